// SPDX-License-Identifier: MPL-2.0

package compat

import (
	_ "embed" // for the list of stops
	"fmt"
	"strings"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// stops is the list of releases that have something against them. Its head says what a line is.
//
//go:embed stops.txt
var stops string

// StopWhen is when a release is to be stopped at, spelled as in the list.
type StopWhen string

const (
	// Withdrawn releases were taken back: no node is to be upgraded to one.
	Withdrawn StopWhen = "withdrawn"
	// Running is about nodes that leave the release.
	Running StopWhen = "running"
	// BootsUKI is about nodes that boot a UKI and are upgraded to the release.
	BootsUKI StopWhen = "boots-uki"
)

// Stop is what is known against releases of Talos.
type Stop struct {
	First, Last version.Version
	When        StopWhen
	// Reason continues "Talos 1.13.1 ...", without a full stop; Remedy is one or more sentences.
	Reason, Remedy string
	// Source is where it was reported.
	Source string
}

// concerns tells whether the release is one of the stop's.
func (s Stop) concerns(talos version.Version) bool {
	return talos.Compare(s.First) >= 0 && talos.Compare(s.Last) <= 0
}

// Stops are what is known against a release of Talos.
func Stops(talos version.Version) []Stop {
	var found []Stop

	for _, stop := range stopTable() {
		if stop.concerns(talos) {
			found = append(found, stop)
		}
	}

	return found
}

// IsWithdrawn tells whether a release of Talos was taken back.
func IsWithdrawn(talos version.Version) bool {
	for _, stop := range Stops(talos) {
		if stop.When == Withdrawn {
			return true
		}
	}

	return false
}

// stopTable is the list, which is read once.
var stopTable = sync.OnceValue(func() []Stop {
	table, err := readStops(stops)
	if err != nil {
		panic(err) // A test reads it.
	}

	return table
})

func readStops(text string) ([]Stop, error) {
	const columns = 5

	var table []Stop

	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		fields := strings.Split(line, " | ")
		if len(fields) != columns {
			return nil, fmt.Errorf("the line %q has %d fields, want %d", line, len(fields), columns)
		}

		stop := Stop{When: StopWhen(fields[1]), Reason: fields[2], Remedy: fields[3], Source: fields[4]}

		switch stop.When {
		case Withdrawn, Running, BootsUKI:
		default:
			return nil, fmt.Errorf("the line %q: %q is none of %s, %s, %s", line, stop.When, Withdrawn, Running, BootsUKI)
		}

		first, last, several := strings.Cut(fields[0], "-")
		if !several {
			last = first
		}

		var err error
		if stop.First, err = version.Parse(first); err == nil {
			stop.Last, err = version.Parse(last)
		}

		if err != nil {
			return nil, fmt.Errorf("the line %q: %w", line, err)
		}

		table = append(table, stop)
	}

	return table, nil
}
