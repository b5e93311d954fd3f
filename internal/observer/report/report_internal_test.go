// SPDX-License-Identifier: MPL-2.0

package report

import (
	"testing"
	"time"
)

// TestReport_PageTellsHowOftenItIsWritten: that of a thousand nodes takes a quarter of a second
// to draw, and rests a hundred times as long. Whoever finds it older than it says
// takes the run for dead.
func TestReport_PageTellsHowOftenItIsWritten(t *testing.T) {
	for rest, want := range map[time.Duration]time.Duration{
		time.Second: 10 * time.Second, 10 * time.Second: 10 * time.Second, 25 * time.Second: time.Minute, 40 * time.Second: 2 * time.Minute,
	} {
		if got := paceOf(rest); got != want {
			t.Errorf("rests %s: written at least every %s, want %s", rest, got, want)
		}
	}
}
