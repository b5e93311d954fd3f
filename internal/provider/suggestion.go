// SPDX-License-Identifier: MPL-2.0

package provider

// nearest is the name that somebody most likely meant by what was written: the
// one that takes the fewest keystrokes to get to, up to a third of its letters.
// It is empty where no name is that close.
func nearest(written string, names []string) string {
	best, fewest := "", 0

	for _, name := range names {
		distance := keystrokes(written, name)
		if distance > len(name)/3 || (best != "" && distance >= fewest) {
			continue
		}

		best, fewest = name, distance
	}

	return best
}

// keystrokes is the Levenshtein distance of two texts: how many bytes have to be
// inserted, removed or replaced.
func keystrokes(from, to string) int {
	row := make([]int, len(to)+1)
	for column := range row {
		row[column] = column
	}

	for line := range len(from) {
		diagonal := row[0]
		row[0] = line + 1

		for column := range len(to) {
			replaced := diagonal
			if from[line] != to[column] {
				replaced++
			}

			diagonal = row[column+1]
			row[column+1] = min(replaced, diagonal+1, row[column]+1)
		}
	}

	return row[len(to)]
}
