// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"strings"
)

// namesMost is how many names a finding lists that may concern all nodes.
const namesMost = 10

// listed writes names in a row: "a, b, c", and of very many the first alone.
func listed(names []string) string {
	if more := len(names) - namesMost; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namesMost], ", "), more)
	}

	return strings.Join(names, ", ")
}
