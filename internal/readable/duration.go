// SPDX-License-Identifier: MPL-2.0

package readable

import (
	"strings"
	"time"
)

// Duration formats a duration without zero units: 30m, not 30m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}

	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}
