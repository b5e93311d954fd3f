// SPDX-License-Identifier: MPL-2.0

package compat

import (
	_ "embed" // for the table that is built in
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// releases is the built-in table. Its header describes the format.
//
//go:embed releases.txt
var releases string

// The words that begin the lines of a table.
const (
	wordTalos      = "talos"
	wordKubernetes = "kubernetes"
	wordAsOf       = "as-of"
	wordStop       = "stop"
)

// ErrTable is wrapped by the error for a text that is no table of releases.
var ErrTable = errors.New("no table of releases")

// StopWhen says which nodes a stop concerns, spelled as in a table.
type StopWhen string

const (
	// Withdrawn releases were taken back: no node may be upgraded to one.
	Withdrawn StopWhen = "withdrawn"
	// Running concerns nodes that run the release and are upgraded from it.
	Running StopWhen = "running"
	// BootsUKI concerns nodes that boot a UKI and are upgraded to the release.
	BootsUKI StopWhen = "boots-uki"
)

// Stop is a known reason against a range of Talos releases.
type Stop struct {
	First, Last version.Version
	When        StopWhen
	// Reason continues "Talos 1.13.1 ...", without a full stop; Remedy is one or more sentences.
	Reason, Remedy string
	// Source is where it was reported.
	Source string
}

// concerns reports whether the release is in the range of the stop.
func (s Stop) concerns(talos version.Version) bool {
	return talos.Compare(s.First) >= 0 && talos.Compare(s.Last) <= 0
}

// Table is what is known about releases: which exist, and what speaks against some of them. It is immutable.
type Table struct {
	// Source is where the table was read from, in addition to the built-in one; empty for the built-in one alone.
	Source string
	// AsOf is the day up to which the table is complete, as YYYY-MM-DD.
	AsOf string
	// Unread says why an additional table could not be read, worded like an error; empty if none was configured
	// or it was read.
	Unread string

	releases map[version.Product][]version.Version
	newest   map[version.Product]map[version.Minor]version.Version
	stops    []Stop
}

// BuiltIn returns the table that this version of the provider contains.
var BuiltIn = sync.OnceValue(func() *Table {
	table, err := Read("", releases)
	if err != nil {
		panic(err) // A test reads it.
	}

	return table
})

// With returns the table together with what the text adds: releases, stops, and a later day, if it names one.
// Nothing in the table is revoked. Errors wrap [ErrTable] and name the line.
func (t *Table) With(source, text string) (*Table, error) {
	added, err := Read(source, text)
	if err != nil {
		return nil, err
	}

	added.AsOf = max(t.AsOf, added.AsOf)
	added.stops = append(slices.Clone(t.stops), slices.DeleteFunc(added.stops, t.hasStop)...)

	for product, known := range t.releases {
		added.releases[product] = append(added.releases[product], known...)
	}

	added.sort()

	return added, nil
}

// Without returns the table with the reason why an additional one could not be read.
func (t *Table) Without(reason string) *Table {
	missing := *t
	missing.Unread = reason

	return &missing
}

// Releases returns the known stable releases of the product, oldest first. A minor version in the matrix may have
// none.
func (t *Table) Releases(product version.Product) []version.Version {
	return slices.Clone(t.releases[product])
}

// Newest returns the newest known release of a minor version that was not withdrawn; ok is false if none is known.
func (t *Table) Newest(product version.Product, minor version.Minor) (newest version.Version, ok bool) {
	newest, ok = t.newest[product][minor]

	return newest, ok
}

// Stops returns the stops that concern a release of Talos.
func (t *Table) Stops(talos version.Version) []Stop {
	var found []Stop

	for _, stop := range t.stops {
		if stop.concerns(talos) {
			found = append(found, stop)
		}
	}

	return found
}

// IsWithdrawn reports whether a release of Talos was taken back.
func (t *Table) IsWithdrawn(talos version.Version) bool {
	return slices.ContainsFunc(t.Stops(talos), func(stop Stop) bool { return stop.When == Withdrawn })
}

// hasStop reports whether the table already contains the same stop.
func (t *Table) hasStop(other Stop) bool {
	return slices.ContainsFunc(t.stops, func(stop Stop) bool {
		return stop.When == other.When && stop.Reason == other.Reason && stop.First.Equal(other.First) && stop.Last.Equal(other.Last)
	})
}

// clipped is how many characters of foreign text a message repeats.
const clipped = 40

// Read parses the text of a table. Errors wrap [ErrTable] and name the line.
func Read(source, text string) (*Table, error) {
	table := &Table{Source: source, releases: map[version.Product][]version.Version{}}
	number := 0

	for line := range strings.Lines(text) {
		number++

		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		word, rest, _ := strings.Cut(line, " ")

		var err error

		switch word {
		case wordAsOf:
			err = table.readDay(rest)
		case wordTalos:
			err = table.readReleases(version.Talos, rest)
		case wordKubernetes:
			err = table.readReleases(version.Kubernetes, rest)
		case wordStop:
			err = table.readStop(rest)
		default:
			err = fmt.Errorf("begins with %q, which is none of %s, %s, %s and %s", readable.OneLine(word, clipped), wordAsOf, wordTalos, wordKubernetes, wordStop)
		}

		if err != nil {
			return nil, fmt.Errorf("%w: line %d %w", ErrTable, number, err)
		}
	}

	if table.AsOf == "" && len(table.releases) == 0 && len(table.stops) == 0 {
		return nil, fmt.Errorf("%w: it has no line that begins with %s, %s, %s or %s", ErrTable, wordAsOf, wordTalos, wordKubernetes, wordStop)
	}

	table.sort()

	return table, nil
}

func (t *Table) readDay(text string) error {
	if t.AsOf != "" {
		return fmt.Errorf("is a second %s", wordAsOf)
	}

	if _, err := time.Parse(time.DateOnly, text); err != nil {
		return fmt.Errorf("has the day %q, want YYYY-MM-DD", readable.OneLine(text, clipped))
	}

	t.AsOf = text

	return nil
}

func (t *Table) readReleases(product version.Product, text string) error {
	for field := range strings.FieldsSeq(text) {
		release, err := version.Parse(field)
		if err != nil {
			return fmt.Errorf("has %q, which is no version", readable.OneLine(field, clipped))
		}

		if !release.Equal(release.Core()) {
			return fmt.Errorf("has %q, which is no stable release", readable.OneLine(field, clipped))
		}

		t.releases[product] = append(t.releases[product], release)
	}

	return nil
}

func (t *Table) readStop(text string) error {
	const columns = 5

	fields := strings.Split(text, " | ")
	if len(fields) != columns || slices.Contains(fields, "") {
		return fmt.Errorf("has %d fields, want %d that are not empty, with \" | \" between them", len(fields), columns)
	}

	stop := Stop{When: StopWhen(fields[1]), Reason: fields[2], Remedy: fields[3], Source: fields[4]}

	switch stop.When {
	case Withdrawn, Running, BootsUKI:
	default:
		return fmt.Errorf("is about %q, which is none of %s, %s and %s", readable.OneLine(fields[1], clipped), Withdrawn, Running, BootsUKI)
	}

	first, last, several := strings.Cut(fields[0], "-")
	if !several {
		last = first
	}

	var err error
	if stop.First, err = version.Parse(first); err == nil {
		stop.Last, err = version.Parse(last)
	}

	if err != nil || stop.Last.Less(stop.First) {
		return fmt.Errorf("is about %q, which is neither a version nor two with a hyphen between them, the older one first", readable.OneLine(fields[0], clipped))
	}

	t.stops = append(t.stops, stop)

	return nil
}

// sort sorts the releases, removes duplicates, and finds the newest release of each minor version.
func (t *Table) sort() {
	t.newest = map[version.Product]map[version.Minor]version.Version{}

	for product, known := range t.releases {
		slices.SortFunc(known, version.Version.Compare)
		t.releases[product] = slices.CompactFunc(known, version.Version.Equal)
		t.newest[product] = map[version.Minor]version.Version{}

		for _, release := range t.releases[product] {
			if product != version.Talos || !t.IsWithdrawn(release) {
				t.newest[product][release.Minor()] = release
			}
		}
	}
}
