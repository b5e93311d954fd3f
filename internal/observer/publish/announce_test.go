// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"maps"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// nothingToDo is a run that finds Talos at its target, and Kubernetes not managed.
func nothingToDo() []cluster.Event {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}
	there, beside := left(0, 5, 5, "1.13.4"), aside(5, "1.34.2")

	return []cluster.Event{
		{Kind: cluster.EventRunStarted, Talos: there, Kubernetes: beside, Target: target},
		{Kind: cluster.EventRunDone, Talos: there, Kubernetes: beside, Target: target},
	}
}

// TestWhatStandsWhereNothingIsToBeDone: each half is idle, unless the object tells
// that an upgrade to the very version was completed or begun.
func TestWhatStandsWhereNothingIsToBeDone(t *testing.T) {
	idle := map[string]string{
		talosStatus: "idle", talosMessage: "Up to date: running 1.13.4", talosCurrent: "1.13.4", talosAvailable: "absent", protocol.KeyTalosProgress: "5/5",
		kubernetesStatus: "idle", kubernetesMessage: "Upgrade available: 1.34.2 → 1.35.2", kubernetesCurrent: "1.34.2", kubernetesAvailable: "1.35.2",
		kubernetesProgress: "absent", protocol.KeyFailedNodes: "absent",
		"phase": "Ready", protocol.ConditionTalos: "absent", protocol.ConditionKubernetes: "absent",
	}
	completed := map[string]string{
		talosStatus: "completed", talosMessage: "Talos upgrade completed: now running 1.13.4",
		protocol.ConditionTalos: "False Completed Talos upgrade completed: now running 1.13.4",
	}

	for name, test := range map[string]struct{ before, want map[string]string }{
		"nothing":         {nil, nil},
		"idle":            {map[string]string{talosStatus: "idle", talosMessage: "Upgrade available: 1.12.6 → 1.13.4", talosCurrent: "1.12.6", talosAvailable: "1.13.4"}, nil},
		"another version": {map[string]string{talosStatus: "completed", talosCurrent: "1.12.6", talosMessage: "Talos upgrade completed: now running 1.12.6"}, nil},
		"no version":      {map[string]string{talosStatus: "completed", talosCurrent: "unknown"}, nil},
		"this very one":   {map[string]string{talosStatus: "completed", talosCurrent: "1.13.4", talosMessage: "its own words", protocol.KeyTalosProgress: "3/3"}, map[string]string{talosStatus: "completed", talosMessage: "its own words", protocol.KeyTalosProgress: "3/3"}},
		"spelled with v":  {map[string]string{talosStatus: "completed", talosCurrent: "v1.13.4", talosMessage: "its own words"}, map[string]string{talosStatus: "completed", talosMessage: "its own words", protocol.KeyTalosProgress: "absent"}},
		"a run that died": {map[string]string{talosStatus: "in-progress", talosCurrent: "1.12.6", protocol.KeyLastUpdate: "2026-01-01T00:00:00Z"}, completed},
		"one in a turn":   {map[string]string{talosStatus: "rolling-back", protocol.KeyLastUpdate: "2026-01-01T00:00:00Z"}, completed},
		"one that waited": {map[string]string{talosStatus: "blocked"}, completed},
		"one not shown":   {map[string]string{talosStatus: "pending"}, completed},
		"one that failed": {map[string]string{talosStatus: "failed", protocol.KeyFailedNodes: "cp-1"}, completed},
		"failed for it":   {map[string]string{talosStatus: "failed", talosCurrent: "v1.13.4", protocol.KeyFailedNodes: "cp-1"}, nil},
		"the other one": {
			map[string]string{kubernetesStatus: "failed", kubernetesMessage: "x", kubernetesProgress: "2/5", kubernetesCurrent: "1.34.2", protocol.KeyFailedNodes: "cp-1"},
			map[string]string{kubernetesStatus: "failed", kubernetesMessage: "x", kubernetesProgress: "2/5", protocol.KeyFailedNodes: "cp-1", "phase": "UpgradeFailed"},
		},
		"of the other one": {map[string]string{kubernetesStatus: "completed", kubernetesMessage: "x", kubernetesProgress: "5/5", kubernetesCurrent: "v1.34.2"}, map[string]string{kubernetesStatus: "completed", kubernetesMessage: "x", kubernetesProgress: "5/5"}},
	} {
		t.Run(name, func(t *testing.T) {
			shelf := toldTo(t, publish.Options{Announce: true, Available: newest}, test.before, nothingToDo()...)

			want := maps.Clone(idle)
			maps.Copy(want, test.want)
			expect(t, shelf, want)

			// And then there is nothing to announce.
			publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{Announce: true, Available: newest})
			if publisher.Announces(t.Context(), nothingToDo()[1]) {
				t.Error("after it was announced there is something to announce")
			}
		})
	}
}

// TestARunThatMovedSomethingIsCompleted, also the half of it that was there already.
func TestARunThatMovedSomethingIsCompleted(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}
	events := []cluster.Event{
		nothingToDo()[0],
		{Kind: cluster.EventNodeStarted, Node: "cp-0", Talos: left(1, 4, 5, "1.12.6"), Kubernetes: aside(5, "1.34.2"), Target: target},
		nothingToDo()[1],
	}

	expect(t, toldTo(t, publish.Options{}, nil, events...), map[string]string{talosStatus: "completed", "phase": "Ready", kubernetesStatus: "idle"})
}

// TestSuspendedUpgradesAreSaid: also after what was on its way is done, until they are
// resumed.
func TestSuspendedUpgradesAreSaid(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}
	begun, later := left(4, 0, 5, "1.12.6"), left(4, 1, 5, "1.12.6")
	events := []cluster.Event{
		{Kind: cluster.EventRunStarted, Talos: begun, Target: target},
		{Kind: cluster.EventNodeStarted, Node: "worker-0", Talos: begun, Target: target},
		{Kind: cluster.EventSuspended, Talos: begun, Target: target, Text: "upgrades of this cluster are suspended by ola"},
		{Kind: cluster.EventNodeDone, Node: "worker-0", Talos: later, Target: target},
		{Kind: cluster.EventResumed, Talos: later, Target: target},
		{Kind: cluster.EventNodeStarted, Node: "worker-1", Talos: later, Target: target},
	}

	for last, want := range map[int]string{
		3: "Waiting: upgrades of this cluster are suspended by ola (0/5)",
		4: "Waiting: upgrades of this cluster are suspended by ola (1/5)",
		5: "Going on with the Talos upgrade (1/5)",
		6: "Upgrading node worker-1 (1/5)",
	} {
		expect(t, toldTo(t, publish.Options{}, nil, events[:last]...), map[string]string{talosStatus: "in-progress", talosMessage: want})
	}
}

func TestAHalfThatIsAppliedAndNotShownIsNotIdle(t *testing.T) {
	target := cluster.Target{Kubernetes: version.MustParse("1.35.2")}
	waits := left(0, 3, 5, "1.34.2")

	for _, events := range [][]cluster.Event{
		{{Kind: cluster.EventRunStarted, Kubernetes: waits, Target: target}},
		{{Kind: cluster.EventRunStarted, Kubernetes: waits, Target: target}, {Kind: cluster.EventRunDone, Kubernetes: waits, Target: target}},
	} {
		expect(t, toldTo(t, publish.Options{}, nil, events...), map[string]string{
			kubernetesStatus: "pending", kubernetesMessage: "Kubernetes upgrade applied: 3/5 nodes show 1.35.2 so far", talosStatus: "absent",
		})
	}
}

// TestWhetherThereIsSomethingToAnnounce: only what is untrue is, or not told at all.
// What an operator says in words of its own would be contradicted with every apply.
func TestWhetherThereIsSomethingToAnnounce(t *testing.T) {
	told := toldTo(t, publish.Options{Available: newest}, nil, nothingToDo()...)
	working := nothingToDo()[1]
	working.Talos.Steps = 1

	named := publish.Options{Announce: true, Available: newest}

	for name, test := range map[string]struct {
		options publish.Options
		event   cluster.Event
		change  map[string]any
		want    bool
	}{
		"nothing new":                {named, nothingToDo()[1], map[string]any{}, false},
		"in an event that begins":    {named, nothingToDo()[0], map[string]any{}, false},
		"nobody named the object":    {publish.Options{Available: newest}, nothingToDo()[1], map[string]any{talosStatus: "in-progress"}, false},
		"there is something to do":   {named, working, map[string]any{talosStatus: nil}, false},
		"an old heartbeat":           {named, nothingToDo()[1], map[string]any{protocol.KeyLastUpdate: "2020-01-01T00:00:00Z"}, false},
		"no status":                  {named, nothingToDo()[1], map[string]any{talosStatus: nil}, true},
		"a run that died":            {named, nothingToDo()[1], map[string]any{talosStatus: "in-progress"}, true},
		"a run that failed":          {named, nothingToDo()[1], map[string]any{talosStatus: "failed"}, true},
		"another version":            {named, nothingToDo()[1], map[string]any{talosCurrent: "1.12.6"}, true},
		"no version":                 {named, nothingToDo()[1], map[string]any{kubernetesCurrent: nil}, true},
		"the same version":           {named, nothingToDo()[1], map[string]any{talosCurrent: "v1.13.4"}, false},
		"completed by somebody else": {named, nothingToDo()[1], map[string]any{talosStatus: "completed", protocol.KeyTalosProgress: nil}, false},
		"other words":                {named, nothingToDo()[1], map[string]any{talosMessage: "All is well", kubernetesMessage: ""}, false},
		"no words":                   {named, nothingToDo()[1], map[string]any{talosMessage: nil}, true},
		"failed nodes":               {named, nothingToDo()[1], map[string]any{protocol.KeyFailedNodes: "cp-1"}, true},
		"another next version":       {named, nothingToDo()[1], map[string]any{kubernetesAvailable: "v1.34.9", talosAvailable: "1.14.1"}, false},
		"a next version of old":      {named, nothingToDo()[1], map[string]any{talosAvailable: "1.13.4"}, true},
		"none where there is one":    {named, nothingToDo()[1], map[string]any{kubernetesAvailable: nil}, false},
		"a next one that is none":    {named, nothingToDo()[1], map[string]any{kubernetesAvailable: "soon"}, true},
		"another node":               {named, nothingToDo()[1], map[string]any{protocol.KeyTalosProgress: "4/4"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			shelf := newShelf("phase")
			shelf.write(told.found)
			shelf.annotate(test.change)

			publisher := publish.New(publish.NewObjectStore(shelf, published()), test.options)
			if got := publisher.Announces(t.Context(), test.event); got != test.want {
				t.Errorf("there is something to announce: %t, want %t", got, test.want)
			}

			if len(shelf.calls) > 0 {
				t.Errorf("it wrote %q", shelf.calls)
			}

			shelf.found = nil

			if publisher.Announces(t.Context(), test.event) {
				t.Error("there is something to announce where nothing can be read")
			}
		})
	}
}

// TestARunThatIsRefusedSaysNothingOfWhatSomebodyElseDoes: it did not begin, because
// an operator is at work.
func TestARunThatIsRefusedSaysNothingOfWhatSomebodyElseDoes(t *testing.T) {
	const target, hold = "upgrade.vitistack.io/talos-target", "upgrade.vitistack.io/do-not-reconcile"

	beat := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
	refused := cluster.Event{
		Kind: cluster.EventRunFailed, Text: "somebody else is at it", Target: cluster.Target{Talos: version.MustParse("1.13.4")},
		Talos: left(5, 0, 5, "1.12.6"), Kubernetes: aside(5, "1.34.2"),
	}
	began := refused
	began.Kind = cluster.EventRunStarted

	for name, test := range map[string]struct {
		before map[string]string
		events []cluster.Event
		want   string
	}{
		"it is asked for something":    {map[string]string{target: "1.13.4", talosStatus: "completed"}, []cluster.Event{refused}, "completed"},
		"it works":                     {map[string]string{talosStatus: "in-progress"}, []cluster.Event{refused}, "in-progress"},
		"it works at the other half":   {map[string]string{kubernetesStatus: "rolling-back", talosStatus: "idle"}, []cluster.Event{refused}, "idle"},
		"it rests":                     {map[string]string{talosStatus: "completed"}, []cluster.Event{refused}, "failed"},
		"a run of ours died":           {map[string]string{talosStatus: "in-progress", protocol.KeyLastUpdate: beat}, []cluster.Event{refused}, "failed"},
		"a run of ours died, holding":  {map[string]string{talosStatus: "in-progress", hold: cluster.RunPrefix + "1"}, []cluster.Event{refused}, "failed"},
		"somebody else holds it":       {map[string]string{talosStatus: "in-progress", hold: "yes"}, []cluster.Event{refused}, "in-progress"},
		"it was asked after the begin": {map[string]string{target: "1.13.4"}, []cluster.Event{began, refused}, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			shelf := toldTo(t, publish.Options{}, test.before, test.events...)
			if got := shelf.get(talosStatus); got != test.want {
				t.Errorf("status %q, want %q", got, test.want)
			}

			if silent := test.want != "failed"; silent && len(shelf.calls) > 0 {
				t.Errorf("it wrote %q", shelf.calls)
			}
		})
	}
}
