// SPDX-License-Identifier: MPL-2.0

package removal

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// gatesText is the table of feature gates. Its head says what it is made of.
//
//go:embed gates.txt
var gatesText string

// gateSpan are release lines after one another that have a gate in one way.
type gateSpan struct {
	first, last version.Minor
	// locked is the value that it cannot be set apart from; nil where it may be set.
	locked *bool
}

// gateTable are the feature gates of release lines of Kubernetes.
type gateTable struct {
	releases []version.Version
	spans    map[string][]gateSpan
}

// gateTables is the table, which is read once.
var gateTables = sync.OnceValue(func() gateTable {
	table, err := readGates(gatesText)
	if err != nil {
		panic(err) // A test reads it.
	}

	return table
})

func readGates(text string) (gateTable, error) {
	table := gateTable{spans: map[string][]gateSpan{}}

	for line := range strings.Lines(text) {
		fields := strings.Fields(line)

		switch {
		case len(fields) == 0 || fields[0] == "#":
			continue
		case fields[0] == "release" && len(fields) == 2:
			release, err := version.Parse(fields[1])
			if err != nil {
				return table, err
			}

			table.releases = append(table.releases, release)

			continue
		case len(fields) < 2 || len(fields) > 3:
			return table, fmt.Errorf("the line %q has %d fields", line, len(fields))
		}

		span, err := readSpan(fields[1:])
		if err != nil {
			return table, fmt.Errorf("the line %q: %w", line, err)
		}

		table.spans[fields[0]] = append(table.spans[fields[0]], span)
	}

	return table, nil
}

func readSpan(fields []string) (span gateSpan, err error) {
	first, last, _ := strings.Cut(fields[0], "-")

	begin, err := version.Parse(first + ".0")
	if err != nil {
		return span, err
	}

	end, err := version.Parse(last + ".0")
	if err != nil {
		return span, err
	}

	if span.first, span.last = begin.Minor(), end.Minor(); len(fields) < 2 {
		return span, nil
	}

	value, err := strconv.ParseBool(fields[1])
	span.locked = &value

	return span, err
}

// covers tells whether the table has the release line.
func (t gateTable) covers(line version.Minor) bool {
	return slices.ContainsFunc(t.releases, func(r version.Version) bool { return r.Minor() == line })
}

// judge is what becomes of a gate that is set to a value in a release line of the table.
func (t gateTable) judge(name string, value bool, line version.Minor) (removal cluster.Removal, found bool) {
	spans, known := t.spans[name]
	removal = cluster.Removal{Kind: KindFeatureGate, Name: name}

	for _, span := range spans {
		if line.Compare(span.first) < 0 || line.Compare(span.last) > 0 {
			continue
		}

		removal.Locked = span.locked

		return removal, span.locked != nil && *span.locked != value
	}

	// What comes with a later release line is as unknown to this one as what never was.
	removal.Unknown = !known || line.Compare(spans[0].first) < 0

	return removal, true
}

// component is what a component is given, by the node that gives it.
type component struct {
	address   string
	component cluster.Component
	command   []string
	gates     map[string]bool
}

// watch collects what components are given as they are read for other checks.
type watch struct {
	mu   sync.Mutex
	seen []component
}

func (w *watch) note(found component) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.seen = append(w.seen, found)
}

// kubeletGates are those of the kubelet of a node.
func (w *watch) kubeletGates(address string) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, seen := range w.seen {
		if seen.address == address && seen.component == cluster.Kubelet {
			return seen.gates
		}
	}

	return nil
}

// gates are those that the release line does without, or has locked to another value.
func (w *watch) gates(to version.Version) []cluster.Removal {
	w.mu.Lock()
	defer w.mu.Unlock()

	var all []cluster.Removal

	for _, seen := range w.seen {
		for _, name := range slices.Sorted(maps.Keys(seen.gates)) {
			removal, found := gateTables().judge(name, seen.gates[name], to.Minor())
			if !found {
				continue
			}

			removal.Address, removal.Component, removal.In = seen.address, seen.component, to
			all = append(all, removal)
		}
	}

	return all
}

// featureGates is the flag that sets feature gates.
const featureGates = "--feature-gates"

// commandGates are the gates that a command line sets, of which each flag occurs once.
func commandGates(command []string) map[string]bool {
	gates := map[string]bool{}

	for _, argument := range mergeFlag(command, featureGates) {
		list, is := strings.CutPrefix(argument, featureGates+"=")
		if !is {
			continue
		}

		for _, one := range strings.Split(list, ",") {
			name, text, _ := strings.Cut(strings.TrimSpace(one), "=")

			// A component takes no other values, and would not run with one.
			if value, err := strconv.ParseBool(text); err == nil {
				gates[name] = value
			}
		}
	}

	return gates
}

// kubeletGates are those of a kubelet's arguments and of its configuration, which comes first.
func kubeletGates(spec *k8s.KubeletSpecSpec) map[string]bool {
	gates := map[string]bool{}

	if given, is := spec.Config["featureGates"].(map[string]any); is {
		for name, value := range given {
			if enabled, is := value.(bool); is {
				gates[name] = enabled
			}
		}
	}

	maps.Copy(gates, commandGates(spec.Args))

	return gates
}
