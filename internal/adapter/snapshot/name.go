// SPDX-License-Identifier: MPL-2.0

package snapshot

import (
	"regexp"
	"strings"
	"time"
)

const (
	// timeLayout is the basic format of ISO 8601, which sorts by time.
	timeLayout = "20060102T150405Z"
	// maxName leaves room within the 255 bytes of a file name.
	maxName = 100
	// anonymous replaces a name of which nothing is left.
	anonymous = "cluster"
)

// unfit matches what file names, and the shells they are typed into, may not accept.
var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// baseName returns the name of a snapshot without its suffix.
func baseName(name string, taken time.Time) string {
	return fileName(name) + "-" + taken.UTC().Format(timeLayout)
}

// fileName returns the name of a cluster as it is used in file names.
func fileName(name string) string {
	// The name must neither be hidden nor look like an option of a command.
	name = strings.TrimLeft(unfit.ReplaceAllString(name, "-"), ".-")
	name = strings.TrimRight(name[:min(len(name), maxName)], "-")

	if name == "" {
		name = anonymous
	}

	return name
}
