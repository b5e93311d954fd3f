// SPDX-License-Identifier: MPL-2.0

package report

import (
	"fmt"
	"time"
)

// moment is a point in time as the page writes it.
func moment(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// took is a duration for people, in whole seconds.
func took(d time.Duration) string {
	d = max(d, 0).Round(time.Second)

	hours, minutes, seconds := int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60

	switch {
	case hours > 0:
		return fmt.Sprintf("%d h %02d min", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%d min %02d s", minutes, seconds)
	default:
		return fmt.Sprintf("%d s", seconds)
	}
}

// elapsed is the time since the run began as a clock: "04:12" or "1:04:12".
func elapsed(d time.Duration) string {
	d = max(d, 0).Round(time.Second)

	hours, minutes, seconds := int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60
	if hours > 0 {
		return fmt.Sprintf("%d:%02d:%02d", hours, minutes, seconds)
	}

	return fmt.Sprintf("%02d:%02d", minutes, seconds)
}

// ticksMost bounds the marks on the axis of time: a phone has room for so many.
const ticksMost = 5

// tickSteps are the distances between two marks.
var tickSteps = [...]time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// tickStep is the shortest distance of which no more than ticksMost fit.
func tickStep(whole time.Duration) time.Duration {
	for _, step := range tickSteps {
		if whole/step <= ticksMost {
			return step
		}
	}

	longest := tickSteps[len(tickSteps)-1]
	days := int64(whole / longest)

	return longest * time.Duration(days/ticksMost+1)
}
