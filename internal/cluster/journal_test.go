// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	hardware = "4C4C4544-0042-3510-8052-B4C04F564432"
	zero     = "00000000-0000-0000-0000-000000000000"
)

// machine is a node that both APIs tell of.
func machine(name, id, uuid string) cluster.Node {
	return cluster.Node{
		Name:    name,
		Machine: &cluster.Machine{NodeName: name, MachineID: id, UUID: uuid},
		Kube:    &cluster.KubeNode{Name: name, MachineID: id, SystemUUID: strings.ToLower(uuid)},
	}
}

func silent(node cluster.Node) cluster.Node {
	node.Machine = nil

	return node
}

func open(node string) cluster.Entry {
	return cluster.Entry{Node: node, Phase: cluster.PhaseInstalled, BootID: "boot-of-" + node}
}

// TestJournal_EntriesOfEarlierVersionsAreMatchedAndMigrated: they stand under the UUIDs of
// the hardware.
func TestJournal_EntriesOfEarlierVersionsAreMatchedAndMigrated(t *testing.T) {
	a, b := machine("a", "id-a", hardware), machine("b", "id-b", zero)
	override := machine("b", "id-b", hardware)
	override.Kube.SystemUUID = zero

	for title, test := range map[string]struct {
		entries map[string]cluster.Entry
		nodes   []cluster.Node
		want    map[string]string // the node of the entry by key
	}{
		"by the UUID":                          {map[string]cluster.Entry{hardware: open("a")}, []cluster.Node{a, b}, map[string]string{"id-a": "a"}},
		"as Kubernetes spells it":              {map[string]cluster.Entry{hardware: open("a")}, []cluster.Node{silent(a), b}, map[string]string{"id-a": "a"}},
		"of a node that was renamed":           {map[string]cluster.Entry{hardware: open("before")}, []cluster.Node{a, b}, map[string]string{"id-a": "before"}},
		"of zeros":                             {map[string]cluster.Entry{zero: open("b")}, []cluster.Node{a, b}, map[string]string{"id-b": "b"}},
		"by the name where several share it":   {map[string]cluster.Entry{zero: open("b")}, []cluster.Node{machine("a", "id-a", zero), b}, map[string]string{"id-b": "b"}},
		"by nothing where none has the name":   {map[string]cluster.Entry{zero: open("c")}, []cluster.Node{machine("a", "id-a", zero), b}, map[string]string{zero: "c"}},
		"under what Talos calls the hardware":  {map[string]cluster.Entry{hardware: open("b")}, []cluster.Node{override}, map[string]string{"id-b": "b"}},
		"under what Kubernetes calls it":       {map[string]cluster.Entry{zero: open("b")}, []cluster.Node{override}, map[string]string{"id-b": "b"}},
		"of a machine that left":               {map[string]cluster.Entry{"other": open("a")}, []cluster.Node{a, b}, map[string]string{"other": "a"}},
		"without a machine ID to stand under":  {map[string]cluster.Entry{hardware: open("a")}, []cluster.Node{machine("a", "", hardware)}, map[string]string{hardware: "a"}},
		"beside one that stands there already": {map[string]cluster.Entry{hardware: open("old"), "id-a": open("a")}, []cluster.Node{a}, map[string]string{hardware: "old", "id-a": "a"}},
		"that are of this version":             {map[string]cluster.Entry{"id-a": open("a")}, []cluster.Node{a, machine("b", "id-b", "id-a")}, map[string]string{"id-a": "a"}},
	} {
		before := cluster.Journal{Entries: maps.Clone(test.entries), ResourceVersion: "7"}
		after := before.Keyed(test.nodes)

		got := map[string]string{}
		for key, entry := range after.Entries {
			got[key] = entry.Node
		}

		if !maps.Equal(got, test.want) || after.ResourceVersion != "7" || !maps.Equal(before.Entries, test.entries) {
			t.Errorf("%s: %v, want %v", title, got, test.want)
		}
	}
}

func TestJournal_NodeIsKnownByMachineIDOrWhileSilentByName(t *testing.T) {
	journal := cluster.Journal{}.With("id-a", open("a")).With("id-b", open("before")).
		With("id-0", cluster.Entry{Node: "c", Phase: cluster.PhaseFallback}).With("id-1", open("c"))
	unnamed := machine("c", "", "")
	unnamed.Kube = nil

	for title, test := range map[string]struct {
		node cluster.Node
		key  string
		open bool
	}{
		"it tells its own":                    {machine("a", "id-a", ""), "id-a", true},
		"another name":                        {machine("b", "id-b", ""), "id-b", true},
		"the name alone":                      {machine("a", "id-x", ""), "id-x", false},
		"the name of a silent one":            {silent(machine("a", "id-x", "")), "id-a", true},
		"its own before the name":             {silent(machine("a", "id-b", "")), "id-b", true},
		"what is open of the name":            {silent(machine("c", "id-x", "")), "id-1", true},
		"one that is known to nobody":         {cluster.Node{Name: "a"}, "id-a", true},
		"one that answers without telling it": {unnamed, "id-1", true},
		"nothing":                             {silent(machine("d", "id-d", "")), "id-d", false},
	} {
		if key, entry, found := journal.Of(test.node); key != test.key || (found && entry.Open()) != test.open {
			t.Errorf("%s: %q %+v %t", title, key, entry, found)
		}
	}
}

func TestJournal_StrayEntryIsOneThatNoMachineIDLeadsTo(t *testing.T) {
	journal := cluster.Journal{}.With("id-a", open("a")).With(hardware, open("b")).With("id-c", cluster.Entry{Node: "c", Phase: cluster.PhaseRolledBack})
	a := machine("a", "id-a", "")

	for title, test := range map[string]struct {
		nodes []cluster.Node // the first one is asked about
		want  string
	}{
		"its own":                           {[]cluster.Node{a}, ""},
		"of its name, under another ID":     {[]cluster.Node{machine("a", "id-x", "")}, "id-a"},
		"of its name, of a machine that is": {[]cluster.Node{machine("a", "id-x", ""), machine("z", "id-a", "")}, ""},
		"of its hardware":                   {[]cluster.Node{machine("x", "id-x", hardware)}, hardware},
		"that ended":                        {[]cluster.Node{machine("c", "id-x", "")}, ""},
		"of a silent one":                   {[]cluster.Node{silent(machine("a", "id-x", ""))}, ""},
	} {
		if key, _, found := journal.Stray(test.nodes[0], test.nodes); key != test.want || found != (test.want != "") {
			t.Errorf("%s: %q, want %q of %v", title, key, test.want, slices.Sorted(maps.Keys(journal.Entries)))
		}
	}
}

// TestJournal_ConfirmedIsForgottenInTime: with the next entry of the machine, and where it has
// left.
func TestJournal_ConfirmedIsForgottenInTime(t *testing.T) {
	a, b := machine("a", "id-a", ""), machine("b", "id-b", "")
	first := cluster.Journal{}.With("id-a", open("a")).WithConfirmed("id-a", open("a"), []cluster.Node{a})

	if entry, known := first.Confirmed["id-a"]; !known || len(first.Entries) > 0 || entry.Phase != "" {
		t.Fatalf("got %+v", first)
	}

	for title, test := range map[string]struct {
		journal cluster.Journal
		want    string
	}{
		"of both":                      {first.WithConfirmed("id-b", open("b"), []cluster.Node{a, b}), "id-a id-b"},
		"of one that has left":         {first.WithConfirmed("id-b", open("b"), []cluster.Node{b}), "id-b"},
		"of one that nobody looked at": {first.WithConfirmed("id-b", open("b"), nil), "id-a id-b"},
		"of one that is upgraded":      {first.With("id-a", open("a")), ""},
		"of another that is upgraded":  {first.With("id-b", open("b")), "id-a"},
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(test.journal.Confirmed)), " "); got != test.want {
			t.Errorf("%s: %q, want %q", title, got, test.want)
		}
	}

	if len(first.Confirmed) != 1 {
		t.Errorf("the journal was changed: %+v", first)
	}
}
