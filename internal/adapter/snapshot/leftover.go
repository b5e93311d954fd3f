// SPDX-License-Identifier: MPL-2.0

package snapshot

import (
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// leftoverAge is when a file that is being written counts as left behind by a
// process that was killed: twice as long as a snapshot may take.
const leftoverAge = 2 * time.Hour

// removeLeftovers removes what calls of Save for the same cluster left in the
// directory when they were killed: nobody else would, and it holds secrets. It
// is an attempt, the next call makes another one.
func removeLeftovers(directory, name string, now time.Time) {
	// What cannot be listed tells why as soon as it is written to.
	entries, err := os.ReadDir(directory)
	if err != nil {
		return
	}

	ours := regexp.MustCompile(`^\.` + regexp.QuoteMeta(fileName(name)) + `-\d{8}T\d{6}Z(-\d+)?\.db(` +
		regexp.QuoteMeta(checksumSuffix) + `)?` + regexp.QuoteMeta(partialSuffix) + `$`)

	for _, entry := range entries {
		if !entry.Type().IsRegular() || !ours.MatchString(entry.Name()) {
			continue
		}

		if info, err := entry.Info(); err == nil && now.Sub(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(directory, entry.Name()))
		}
	}
}
