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

// gateSpan is a range of consecutive minor versions in which a gate has the same properties.
type gateSpan struct {
	first, last version.Minor
	// locked is the only value that the gate may have; nil if it can be set.
	locked *bool
}

// gateTable has the feature gates of minor versions of Kubernetes.
type gateTable struct {
	releases []version.Version
	spans    map[string][]gateSpan
}

// gateTables returns the table, which is parsed once.
var gateTables = sync.OnceValue(func() gateTable {
	table, err := readGates(gatesText)
	if err != nil {
		panic(err) // A test parses the table.
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

// covers reports whether the table includes the minor version.
func (t gateTable) covers(minor version.Minor) bool {
	return slices.ContainsFunc(t.releases, func(r version.Version) bool { return r.Minor() == minor })
}

// judge returns the removal of a gate with the given value in a minor version of the table; false if the gate can
// have it.
func (t gateTable) judge(name string, value bool, minor version.Minor) (removal cluster.Removal, found bool) {
	spans, known := t.spans[name]
	removal = cluster.Removal{Kind: KindFeatureGate, Name: name}

	for _, span := range spans {
		if minor.Compare(span.first) < 0 || minor.Compare(span.last) > 0 {
			continue
		}

		removal.Locked = span.locked

		return removal, span.locked != nil && *span.locked != value
	}

	// To this minor version, a gate of a later one is as unknown as a gate that never existed.
	removal.Unknown = !known || minor.Compare(spans[0].first) < 0

	return removal, true
}

// component has the arguments of a component, as read from a node.
type component struct {
	address   string
	component cluster.Component
	command   []string
	gates     map[string]bool
}

// watch records the arguments of components while other checks read them.
type watch struct {
	mu   sync.Mutex
	seen []component
}

func (w *watch) note(found component) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.seen = append(w.seen, found)
}

// kubeletGates returns the gates of the kubelet of a node.
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

// gates returns the feature gates in use that the minor version lacks or has locked to another value.
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

// commandGates returns the gates that a command line sets.
func commandGates(command []string) map[string]bool {
	gates := map[string]bool{}

	for _, argument := range mergeFlag(command, featureGates) {
		list, is := strings.CutPrefix(argument, featureGates+"=")
		if !is {
			continue
		}

		for _, one := range strings.Split(list, ",") {
			name, text, _ := strings.Cut(strings.TrimSpace(one), "=")

			// A component accepts no other values and would not start with one.
			if value, err := strconv.ParseBool(text); err == nil {
				gates[name] = value
			}
		}
	}

	return gates
}

// kubeletGates returns the gates in the configuration and the arguments of a kubelet; the arguments take
// precedence.
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
