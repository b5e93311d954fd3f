// SPDX-License-Identifier: MPL-2.0

package snapshot

import (
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// leftoverAge is the age at which a partial file counts as left behind by a process that was killed: twice as long
// as a snapshot may take.
const leftoverAge = 2 * time.Hour

// removeLeftovers removes the files that calls of Save for the same cluster left in the directory when they were
// killed: nothing else removes them, and they hold secrets. Errors are ignored, and the next call tries again.
func removeLeftovers(directory, name string, now time.Time) {
	// If the directory cannot be listed, writing to it will show why.
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
