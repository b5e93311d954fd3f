// SPDX-License-Identifier: MPL-2.0

package snapshot

import (
	"regexp"
	"strings"
	"time"
)

const (
	// timeLayout is the basic form of ISO 8601, which sorts by time.
	timeLayout = "20060102T150405Z"
	// maxName leaves room in the 255 bytes that a file name may have.
	maxName = 100
	// anonymous stands for a name of which nothing is left.
	anonymous = "cluster"
)

// unfit is what file names, and the shells they are typed into, may not take.
var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// baseName is the name of a snapshot without suffix.
func baseName(name string, taken time.Time) string {
	return fileName(name) + "-" + taken.UTC().Format(timeLayout)
}

// fileName is the name of a cluster as files have it.
func fileName(name string) string {
	// Neither hidden nor an option of a command.
	name = strings.TrimLeft(unfit.ReplaceAllString(name, "-"), ".-")
	name = strings.TrimRight(name[:min(len(name), maxName)], "-")

	if name == "" {
		name = anonymous
	}

	return name
}
