// SPDX-License-Identifier: MPL-2.0

package removal

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// flagsText is the table of flags that are gone. Its head says what it is made of.
//
//go:embed flags.txt
var flagsText string

// flagOf is a flag of a component, without its dashes.
type flagOf struct {
	component cluster.Component
	name      string
}

// flagTables returns the last minor version that has a flag; the table is parsed once.
var flagTables = sync.OnceValue(func() map[flagOf]version.Minor {
	table, err := readFlags(flagsText)
	if err != nil {
		panic(err) // A test parses the table.
	}

	return table
})

func readFlags(text string) (map[flagOf]version.Minor, error) {
	const columns = 3

	table := map[flagOf]version.Minor{}

	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" || fields[0] == "release" {
			continue
		}

		if len(fields) != columns {
			return nil, fmt.Errorf("the line %q has %d fields", line, len(fields))
		}

		last, err := version.Parse(fields[2] + ".0")
		if err != nil {
			return nil, fmt.Errorf("the line %q: %w", line, err)
		}

		table[flagOf{cluster.Component(fields[0]), fields[1]}] = last.Minor()
	}

	return table, nil
}

// talosDrops reports whether Talos sets a flag by itself and leaves it out for a release that lacks it, so that the
// flag is on a command line regardless of the machine configuration.
func talosDrops(flag flagOf) bool {
	return flag == flagOf{cluster.APIServer, "cloud-provider"}
}

// flags returns the flags in use that from has and to lacks.
func (w *watch) flags(from, to version.Version) []cluster.Removal {
	w.mu.Lock()
	defer w.mu.Unlock()

	var all []cluster.Removal

	for _, seen := range w.seen {
		for _, name := range namesOf(seen.command) {
			flag := flagOf{seen.component, name}

			last, listed := flagTables()[flag]
			if !listed || talosDrops(flag) || from.Minor().Compare(last) > 0 || to.Minor().Compare(last) <= 0 {
				continue
			}

			all = append(all, cluster.Removal{Kind: KindFlag, Name: name, Address: seen.address, Component: seen.component, In: to})
		}
	}

	return all
}

// namesOf returns the flags of a command line without their dashes.
func namesOf(command []string) []string {
	var names []string

	for _, argument := range command {
		name, is := strings.CutPrefix(argument, "--")
		if !is {
			continue
		}

		name, _, _ = strings.Cut(name, "=")
		// The components accept either.
		names = append(names, strings.ReplaceAll(name, "_", "-"))
	}

	return names
}
