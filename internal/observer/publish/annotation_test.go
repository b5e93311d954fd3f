// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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

// TestAnnounce_HalfWithNothingToDoIsIdle: each half is idle, unless the object tells
// that an upgrade to the very version was completed or begun.
func TestAnnounce_HalfWithNothingToDoIsIdle(t *testing.T) {
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

// TestAnnounce_RunThatMovedSomethingIsCompleted, also the half of it that was there already.
func TestAnnounce_RunThatMovedSomethingIsCompleted(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}
	events := []cluster.Event{
		nothingToDo()[0],
		{Kind: cluster.EventNodeStarted, Node: "cp-0", Talos: left(1, 4, 5, "1.12.6"), Kubernetes: aside(5, "1.34.2"), Target: target},
		nothingToDo()[1],
	}

	expect(t, toldTo(t, publish.Options{}, nil, events...), map[string]string{talosStatus: "completed", "phase": "Ready", kubernetesStatus: "idle"})
}

// TestAnnounce_SaysThatUpgradesAreSuspended: also after what was on its way is done, until they are
// resumed.
func TestAnnounce_SaysThatUpgradesAreSuspended(t *testing.T) {
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

// lagging is the progress with so many nodes whose pod of kube-proxy has another version.
func lagging(nodes int, of cluster.Progress) cluster.Progress {
	of.Lagging = nodes

	return of
}

func TestAnnounce_HalfThatIsAppliedAndNotShownIsNotIdle(t *testing.T) {
	target := cluster.Target{Kubernetes: version.MustParse("1.35.2")}
	waits := lagging(2, left(0, 5, 5, "1.34.2"))

	for _, events := range [][]cluster.Event{
		{{Kind: cluster.EventRunStarted, Kubernetes: waits, Target: target}},
		{{Kind: cluster.EventRunStarted, Kubernetes: waits, Target: target}, {Kind: cluster.EventRunDone, Kubernetes: waits, Target: target}},
	} {
		expect(t, toldTo(t, publish.Options{}, nil, events...), map[string]string{
			kubernetesStatus: "pending", kubernetesMessage: "Kubernetes upgrade applied: 3/5 nodes show 1.35.2 so far", talosStatus: "absent",
		})
	}
}

// TestAnnounce_OnlyWhatIsUntrueOrMissing: only what is untrue is, or not told at all.
// What an operator says in words of its own would be contradicted with every apply.
func TestAnnounce_OnlyWhatIsUntrueOrMissing(t *testing.T) {
	told := toldTo(t, publish.Options{Available: newest}, nil, nothingToDo()...)
	working := nothingToDo()[1]
	working.Talos.Steps = 1

	named, unnamed := publish.Options{Announce: true, Available: newest}, publish.Options{Available: newest}

	for name, test := range map[string]struct {
		options publish.Options
		event   cluster.Event
		change  map[string]any
		want    bool
	}{
		"nothing new":                {named, nothingToDo()[1], map[string]any{}, false},
		"in an event that begins":    {named, nothingToDo()[0], map[string]any{}, false},
		"a run that failed, unnamed": {unnamed, nothingToDo()[1], map[string]any{talosStatus: "failed"}, true},
		"a run that died, unnamed":   {unnamed, nothingToDo()[1], map[string]any{kubernetesStatus: "in-progress"}, true},
		"no status, unnamed":         {unnamed, nothingToDo()[1], map[string]any{talosStatus: nil}, false},
		"nothing new, unnamed":       {unnamed, nothingToDo()[1], map[string]any{}, false},
		"other versions, unnamed":    {unnamed, nothingToDo()[1], map[string]any{talosCurrent: "1.12.6", talosAvailable: nil}, false},
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

// TestAnnounce_RefusedRunSaysNothingOfAnOperatorsWork: it did not begin, because
// an operator is at work.
func TestAnnounce_RefusedRunSaysNothingOfAnOperatorsWork(t *testing.T) {
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

const (
	talosAvailable, kubernetesAvailable = protocol.KeyTalosAvailable, protocol.KeyKubernetesAvailable
	talosCurrent, kubernetesCurrent     = protocol.KeyTalosCurrent, protocol.KeyKubernetesCurrent
)

// newest is what the cluster of these tests could be upgraded to: Talos to 1.13.4,
// and Kubernetes to 1.35.2 as soon as Talos is there.
func newest(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version) {
	last, supported := version.MustParse("1.13.4"), version.MustParse("1.35.2")

	if !talos.IsZero() && talos.Less(last) {
		nextTalos = last
	}

	if !talos.IsZero() && !talos.Less(last) && !kubernetes.IsZero() && kubernetes.Less(supported) {
		nextKubernetes = supported
	}

	return nextTalos, nextKubernetes
}

// aside is a half that the run does not manage.
func aside(total int, lowest string) cluster.Progress {
	made := progress(0, total, lowest)
	made.Managed, made.Steps = false, 0

	return made
}

// toldTo tells the events to a publisher on the object, which says that before, and
// returns the object.
func toldTo(t *testing.T, options publish.Options, before map[string]string, events ...cluster.Event) *shelf {
	t.Helper()

	shelf := newShelf("phase", "conditions")

	notes := map[string]any{}
	for key, value := range before {
		notes[key] = value
	}

	shelf.annotate(notes)

	synctest.Test(t, func(t *testing.T) {
		publisher := publish.New(publish.NewObjectStore(shelf, published()), options)

		for _, event := range events {
			publisher.Observe(event)
			synctest.Wait()
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if notes := publisher.Notes(); len(notes) > 0 {
			t.Errorf("it has notes: %q", notes)
		}
	})

	for _, call := range shelf.calls {
		if strings.Contains(call, "-target") {
			t.Errorf("a target was written: %s", call)
		}
	}

	return shelf
}

// expect checks annotations and, below "phase", "TalosUpgrade" and
// "KubernetesUpgrade", the status.
func expect(t *testing.T, shelf *shelf, want map[string]string) {
	t.Helper()

	for key, want := range want {
		got := ""

		switch key {
		case "phase":
			got, _ = shelf.status()["phase"].(string)
		case protocol.ConditionTalos, protocol.ConditionKubernetes:
			got = shelf.condition(key)
		default:
			got = shelf.get(key)
		}

		if got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// TestAvailable_VersionsFollowTheRun follows a run that brings Talos along and leaves
// Kubernetes alone, in the words of the document of the protocol.
func TestAvailable_VersionsFollowTheRun(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}
	kubernetes := aside(5, "1.34.2")

	run := []cluster.Event{
		{Kind: cluster.EventRunStarted, Talos: left(5, 0, 5, "1.12.6"), Kubernetes: kubernetes, Target: target},
		{Kind: cluster.EventNodeStarted, Node: "cp-0", Talos: left(3, 2, 5, "1.12.6"), Kubernetes: kubernetes, Target: target},
		{Kind: cluster.EventNodeDone, Node: "cp-0", Target: target},
		{Kind: cluster.EventRunDone, Talos: left(0, 5, 5, "1.13.4"), Kubernetes: kubernetes, Target: target},
	}
	failed := cluster.Event{Kind: cluster.EventRunFailed, Node: "cp-1", Text: "node cp-1 did not come back online", Talos: left(2, 3, 5, "1.12.6"), Kubernetes: kubernetes, Target: target}

	moving := map[string]string{
		talosStatus: "in-progress", talosAvailable: "1.13.4", talosCurrent: "1.12.6", "phase": "UpgradingTalos",
		// It is not known what Talos will support when it has been upgraded.
		kubernetesAvailable: "absent", kubernetesStatus: "idle", kubernetesMessage: "Running 1.34.2", kubernetesCurrent: "1.34.2",
		kubernetesProgress: "absent", protocol.ConditionKubernetes: "absent",
	}

	for name, test := range map[string]struct {
		events []cluster.Event
		want   map[string]string
	}{
		"it begins": {run[:1], map[string]string{
			talosMessage: "Talos upgrade started: 1.12.6 → 1.13.4", protocol.KeyTalosProgress: "0/5",
			protocol.ConditionTalos: "True InProgress Talos upgrade started: 1.12.6 → 1.13.4",
		}},
		"a node begins": {run[:2], map[string]string{
			talosMessage: "Upgrading node cp-0 (2/5)", protocol.KeyTalosProgress: "2/5",
			protocol.ConditionTalos: "True InProgress Upgrading node cp-0 (2/5 nodes completed)",
		}},
		"a node is done": {run[:3], map[string]string{talosMessage: "Node cp-0 upgraded"}},
		"all is done": {run, map[string]string{
			talosStatus: "completed", talosMessage: "Talos upgrade completed: now running 1.13.4", talosAvailable: "absent", talosCurrent: "1.13.4",
			kubernetesAvailable: "1.35.2", kubernetesMessage: "Upgrade available: 1.34.2 → 1.35.2", "phase": "Ready",
			protocol.ConditionTalos: "False Completed Talos upgrade completed: now running 1.13.4", protocol.KeyTalosProgress: "5/5",
		}},
		"it fails": {append(run[:2:2], failed), map[string]string{
			talosStatus: "failed", talosMessage: "Talos upgrade failed: node cp-1 did not come back online", talosAvailable: "1.13.4",
			kubernetesMessage: "Up to date: running 1.34.2", "phase": "UpgradeFailed", protocol.KeyFailedNodes: "cp-1",
			protocol.ConditionTalos: "False Failed Talos upgrade failed: node cp-1 did not come back online",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			shelf := toldTo(t, publish.Options{Available: newest}, map[string]string{kubernetesAvailable: "1.34.9", kubernetesProgress: "3/5"}, test.events...)

			want := maps.Clone(moving)
			maps.Copy(want, test.want)
			expect(t, shelf, want)
		})
	}
}

// TestAvailable_KubernetesIsOfferedWhenTalosIsDone, as the flow of the protocol has it, also
// before the run has brought it along.
func TestAvailable_KubernetesIsOfferedWhenTalosIsDone(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2")}
	there, old := left(0, 5, 5, "1.13.4"), left(20, 0, 5, "1.34.2")

	begins := cluster.Event{Kind: cluster.EventRunStarted, Talos: left(5, 0, 5, "1.12.6"), Kubernetes: old, Target: target}
	follows := cluster.Event{Kind: cluster.EventNodeStarted, Node: "cp-0", Component: cluster.APIServer, Talos: there, Kubernetes: old, Target: target}
	ends := cluster.Event{Kind: cluster.EventRunDone, Talos: there, Kubernetes: left(0, 5, 5, "1.35.2"), Target: target}

	for name, test := range map[string]struct {
		events []cluster.Event
		want   map[string]string
	}{
		"Talos": {[]cluster.Event{begins}, map[string]string{
			talosAvailable: "1.13.4", kubernetesAvailable: "absent", "phase": "UpgradingTalos",
			protocol.ConditionKubernetes: "False Blocked Waiting for Talos upgrade to complete",
		}},
		"Kubernetes": {[]cluster.Event{begins, follows}, map[string]string{
			talosAvailable: "absent", kubernetesAvailable: "1.35.2", "phase": "UpgradingKubernetes",
			protocol.ConditionTalos:      "False Completed Talos upgrade completed: now running 1.13.4",
			protocol.ConditionKubernetes: "True InProgress Upgrading kube-apiserver on cp-0 (0/5 nodes completed)",
		}},
		"the end": {[]cluster.Event{begins, follows, ends}, map[string]string{
			talosAvailable: "absent", kubernetesAvailable: "absent", "phase": "Ready",
			protocol.ConditionKubernetes: "False Completed Kubernetes upgrade completed: now running 1.35.2",
		}},
		"not every node shows it": {[]cluster.Event{begins, {Kind: cluster.EventRunDone, Talos: there, Kubernetes: left(0, 2, 5, "1.34.2"), Target: target}}, map[string]string{
			kubernetesStatus: "pending", "phase": "UpgradingKubernetes",
			protocol.ConditionKubernetes: "True InProgress Kubernetes upgrade applied: 2/5 nodes show 1.35.2 so far",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, toldTo(t, publish.Options{Available: newest}, nil, test.events...), test.want)
		})
	}
}

// TestAvailable_UnknownIsNotOffered, and what somebody else found out stays.
func TestAvailable_UnknownIsNotOffered(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}
	before := map[string]string{talosAvailable: "1.13.4", kubernetesAvailable: "1.34.9"}

	backwards := func(version.Version, version.Version) (version.Version, version.Version) {
		return version.MustParse("1.12.0"), version.MustParse("1.34.2")
	}

	for name, test := range map[string]struct {
		options publish.Options
		talos   string
		want    map[string]string
	}{
		"nobody knows versions": {publish.Options{}, "1.13.4", map[string]string{talosAvailable: "1.13.4", kubernetesAvailable: "1.34.9", kubernetesMessage: "Running 1.34.2"}},
		"nobody knows what runs": {publish.Options{Available: newest}, "", map[string]string{
			talosAvailable: "1.13.4", kubernetesAvailable: "1.34.9", talosCurrent: "absent", kubernetesMessage: "Running 1.34.2",
		}},
		"nothing newer": {publish.Options{Available: backwards}, "1.13.4", map[string]string{
			talosAvailable: "absent", kubernetesAvailable: "absent", kubernetesMessage: "Up to date: running 1.34.2",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, toldTo(t, test.options, before, cluster.Event{
				Kind: cluster.EventRunDone, Talos: left(0, 5, 5, test.talos), Kubernetes: aside(5, "1.34.2"), Target: target,
			}), test.want)
		})
	}
}

// left is a half in which that many steps remain.
func left(steps, done, total int, lowest string) cluster.Progress {
	made := progress(done, total, lowest)
	made.Steps = steps

	return made
}

// told publishes the events of a run with the target, and returns what stood in
// the end. Nothing of a half that is not managed may stand.
func told(t *testing.T, target cluster.Target, events ...cluster.Event) *memory {
	t.Helper()

	store := &memory{}

	synctest.Test(t, func(t *testing.T) {
		publisher := publish.New(store, publish.Options{})

		for _, event := range events {
			event.Target = target
			publisher.Observe(event)
			synctest.Wait()
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})

	return store
}

const (
	talosStatus, talosMessage           = protocol.KeyTalosStatus, protocol.KeyTalosMessage
	kubernetesStatus, kubernetesMessage = protocol.KeyKubernetesStatus, protocol.KeyKubernetesMessage
	kubernetesProgress                  = protocol.KeyKubernetesProgress
)

func TestAnnotation_EachHalfIsToldOnItsOwn(t *testing.T) {
	both := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2")}
	onlyTalos, onlyKubernetes := cluster.Target{Talos: both.Talos}, cluster.Target{Kubernetes: both.Kubernetes}

	behind, there := left(5, 0, 5, "1.12.6"), left(0, 5, 5, "1.13.4")
	old, halfway, last := left(20, 0, 5, "1.34.2"), left(12, 2, 5, "1.34.2"), left(1, 5, 5, "1.35.2")
	arrived := left(0, 5, 5, "1.35.2")

	unfinished := there
	unfinished.Steps = 1

	unsupported := old
	unsupported.Waits = "Talos 1.12.6 does not support K8s 1.36.1. Upgrade Talos first."

	step := func(kind cluster.EventKind, node string, component cluster.Component, talos, kubernetes cluster.Progress) cluster.Event {
		return cluster.Event{Kind: kind, Node: node, Component: component, Talos: talos, Kubernetes: kubernetes}
	}

	for name, test := range map[string]struct {
		target cluster.Target
		events []cluster.Event
		want   map[string]string
	}{
		"Kubernetes waits for Talos": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", behind, old)}, map[string]string{
			talosStatus: "in-progress", talosMessage: "Talos upgrade started: 1.12.6 → 1.13.4",
			kubernetesStatus: "blocked", kubernetesMessage: "Waiting for Talos upgrade to complete",
			protocol.KeyKubernetesCurrent: "1.34.2", kubernetesProgress: "0/5", protocol.KeyTalosProgress: "0/5",
		}},
		"only an earlier turn has to be finished": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", unfinished, old)}, map[string]string{
			talosStatus: "in-progress", talosMessage: "Finishing the Talos upgrade to 1.13.4",
		}},
		"nobody waited for kube-proxy": {onlyKubernetes, []cluster.Event{step(cluster.EventRunDone, "", "", behind, lagging(3, left(0, 5, 5, "1.34.2")))}, map[string]string{
			kubernetesStatus: "pending", kubernetesMessage: "Kubernetes upgrade applied: 2/5 nodes show 1.35.2 so far", protocol.KeyKubernetesCurrent: "1.34.2",
			kubernetesProgress: "5/5",
		}},
		"and says why it cannot go first": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", behind, unsupported)}, map[string]string{
			kubernetesStatus: "blocked", kubernetesMessage: "Talos 1.12.6 does not support K8s 1.36.1. Upgrade Talos first.",
		}},
		"and for every node of it": {both, []cluster.Event{step(cluster.EventNodeStarted, "cp-0", "", behind, old)}, map[string]string{
			talosStatus: "in-progress", talosMessage: "Upgrading node cp-0 (0/5)", kubernetesStatus: "blocked",
		}},
		"Talos is done when Kubernetes begins": {both, []cluster.Event{
			step(cluster.EventNodeStarted, "cp-0", cluster.APIServer, there, halfway),
		}, map[string]string{
			talosStatus: "completed", talosMessage: "Talos upgrade completed: now running 1.13.4",
			kubernetesStatus: "in-progress", kubernetesMessage: "Upgrading kube-apiserver on cp-0 (2/5)", kubernetesProgress: "2/5",
		}},
		"Talos is not done before another hop of it": {both, []cluster.Event{
			step(cluster.EventNodeStarted, "cp-0", cluster.APIServer, behind, halfway),
		}, map[string]string{
			talosStatus: "blocked", talosMessage: "Waiting for Kubernetes upgrade to complete", kubernetesStatus: "in-progress",
		}},
		"a half with nothing to do": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", there, old)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "in-progress", kubernetesMessage: "Kubernetes upgrade started: 1.34.2 → 1.35.2",
		}},
		"the other half with nothing to do": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", behind, arrived)}, map[string]string{
			talosStatus: "in-progress", kubernetesStatus: "completed", kubernetesMessage: "Kubernetes upgrade completed: now running 1.35.2",
		}},
		"manifests": {both, []cluster.Event{step(cluster.EventNodeStarted, "", cluster.Manifests, there, last)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "in-progress", kubernetesMessage: "Syncing the bootstrap manifests (5/5)",
		}},
		"a component that is done": {both, []cluster.Event{{Kind: cluster.EventNodeDone, Node: "worker-0", Component: cluster.Kubelet}}, map[string]string{
			kubernetesStatus: "in-progress", kubernetesMessage: "kubelet on worker-0 upgraded", talosStatus: "absent",
		}},
		"a version on the way": {both, []cluster.Event{{
			Kind: cluster.EventNodeStarted, Node: "cp-0", Component: cluster.Scheduler, To: version.MustParse("1.34.9"), Talos: there, Kubernetes: old,
		}}, map[string]string{kubernetesMessage: "Upgrading kube-scheduler on cp-0 to 1.34.9 (0/5)"}},
		"Talos fails, and a node that was done is away": {both, []cluster.Event{
			step(cluster.EventRunStarted, "", "", behind, arrived), step(cluster.EventRunFailed, "cp-1", "", behind, left(0, 4, 5, "1.35.2")),
		}, map[string]string{
			talosStatus: "failed", kubernetesStatus: "pending", kubernetesMessage: "Kubernetes upgrade applied: 4/5 nodes show 1.35.2 so far",
		}},
		"Talos follows, and not every node shows Kubernetes": {both, []cluster.Event{
			step(cluster.EventNodeStarted, "cp-0", cluster.APIServer, behind, left(3, 2, 5, "1.34.2")), step(cluster.EventNodeStarted, "cp-0", "", behind, left(0, 3, 5, "1.34.2")),
		}, map[string]string{talosStatus: "in-progress", kubernetesStatus: "pending"}},
		"all nodes are held": {both, []cluster.Event{
			step(cluster.EventRunStarted, "", "", cluster.Progress{Managed: true}, cluster.Progress{Managed: true}),
			step(cluster.EventRunDone, "", "", cluster.Progress{Managed: true}, cluster.Progress{Managed: true}),
		}, map[string]string{
			talosStatus: "absent", talosMessage: "absent", protocol.KeyTalosCurrent: "absent", protocol.KeyTalosProgress: "absent", kubernetesStatus: "absent", kubernetesMessage: "absent",
		}},
		"all nodes are held in the end": {onlyTalos, []cluster.Event{
			step(cluster.EventRunStarted, "", "", behind, cluster.Progress{}), step(cluster.EventRunDone, "", "", cluster.Progress{Managed: true}, cluster.Progress{}),
		}, map[string]string{talosStatus: "idle", talosMessage: "Talos upgrade ended: what the nodes run is not known"}},
		"both are done": {both, []cluster.Event{step(cluster.EventRunDone, "", "", there, arrived)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "completed", kubernetesMessage: "Kubernetes upgrade completed: now running 1.35.2",
			protocol.KeyKubernetesCurrent: "1.35.2", kubernetesProgress: "5/5", protocol.KeyTalosCurrent: "1.13.4",
		}},
		"Talos fails": {both, []cluster.Event{step(cluster.EventRunFailed, "cp-1", "", behind, old)}, map[string]string{
			talosStatus: "failed", kubernetesStatus: "blocked", protocol.KeyFailedNodes: "cp-1",
		}},
		"a component fails": {both, []cluster.Event{step(cluster.EventRunFailed, "cp-1", cluster.APIServer, there, halfway)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "failed",
			kubernetesMessage: "Kubernetes upgrade failed: the reason is not known", protocol.KeyFailedNodes: "cp-1",
		}},
		"a component fails before another hop of Talos": {both, []cluster.Event{
			step(cluster.EventRunFailed, "cp-1", cluster.APIServer, behind, halfway),
		}, map[string]string{talosStatus: "blocked", kubernetesStatus: "failed"}},
		"it fails after Talos is done": {both, []cluster.Event{step(cluster.EventRunFailed, "", "", there, halfway)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "failed",
		}},
		"a component fails, and no node of Talos can be told": {both, []cluster.Event{
			step(cluster.EventRunFailed, "cp-1", cluster.APIServer, cluster.Progress{}, halfway),
		}, map[string]string{talosStatus: "failed", kubernetesStatus: "failed"}},
		"Kubernetes alone": {onlyKubernetes, []cluster.Event{
			step(cluster.EventRunStarted, "", "", cluster.Progress{}, old), step(cluster.EventNodeStarted, "cp-0", cluster.APIServer, cluster.Progress{}, halfway),
		}, map[string]string{
			kubernetesStatus: "in-progress", kubernetesMessage: "Upgrading kube-apiserver on cp-0 (2/5)",
			talosStatus: "absent", talosMessage: "absent", protocol.KeyTalosProgress: "absent", protocol.KeyTalosCurrent: "absent",
		}},
		"Kubernetes alone fails": {onlyKubernetes, []cluster.Event{step(cluster.EventRunFailed, "", "", cluster.Progress{}, halfway)}, map[string]string{
			kubernetesStatus: "failed", talosStatus: "absent",
		}},
		"manifests after a roll of Talos alone": {onlyTalos, []cluster.Event{
			step(cluster.EventNodeStarted, "", cluster.Manifests, there, cluster.Progress{}),
		}, map[string]string{
			talosStatus: "in-progress", talosMessage: "Syncing the bootstrap manifests (5/5)",
			kubernetesStatus: "absent", kubernetesMessage: "absent", kubernetesProgress: "absent",
		}},
		"they fail": {onlyTalos, []cluster.Event{step(cluster.EventRunFailed, "", cluster.Manifests, there, cluster.Progress{})}, map[string]string{
			talosStatus: "failed", kubernetesStatus: "absent",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store := told(t, test.target, test.events...)

			for key, want := range test.want {
				if got := store.get(key); got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
		})
	}
}

// TestAnnotation_RunWithoutTargetsSaysNothing: there is nothing that it could say.
func TestAnnotation_RunWithoutTargetsSaysNothing(t *testing.T) {
	store := told(t, cluster.Target{}, cluster.Event{Kind: cluster.EventRunDone}, cluster.Event{Kind: cluster.EventRunFailed})
	if len(store.patches) != 0 {
		t.Errorf("%d patches", len(store.patches))
	}
}

// many are so many names of nodes of 63 characters.
func many(count int) []string {
	names := make([]string, 0, count)
	for i := range count {
		names = append(names, fmt.Sprintf("%s-%04d", strings.Repeat("n", 58), i))
	}

	return names
}

// TestAnnotation_LongListOfFailedNodesIsCutBetweenNames, so that nobody takes what is left
// of one for a node, and what is cut is told from what is whole.
func TestAnnotation_LongListOfFailedNodesIsCutBetweenNames(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}

	for count, want := range map[int]int{1: 1, 127: 127, 128: 128, 129: 127, 1000: 127} {
		store := told(t, target, cluster.Event{Kind: cluster.EventRunFailed, Text: "why", Node: strings.Join(many(count), ",")})

		got := store.get(protocol.KeyFailedNodes)
		if len(got) > 8<<10 {
			t.Errorf("%d nodes: %d bytes", count, len(got))
		}

		names, cut := strings.CutSuffix(got, ",...")
		if cut != (want < count) {
			t.Errorf("%d nodes: the list is said to be cut: %t", count, cut)
		}

		if wanted := strings.Join(many(want), ","); names != wanted {
			t.Errorf("%d nodes: the list is %d bytes long, want that of %d nodes", count, len(names), want)
		}
	}
}

// TestAnnotation_ObjectWithoutRoomGetsWhatFits: somebody else has filled it.
func TestAnnotation_ObjectWithoutRoomGetsWhatFits(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}
	begun := cluster.Event{Kind: cluster.EventRunStarted, Talos: left(5, 0, 5, "1.12.6"), Kubernetes: aside(5, "1.34.2"), Target: target}
	failed := cluster.Event{
		Kind: cluster.EventRunFailed, Text: strings.Repeat("é", 400), Node: strings.Join(many(100), ","), Talos: left(3, 2, 5, "1.12.6"), Kubernetes: aside(5, "1.34.2"), Target: target,
	}

	for name, test := range map[string]struct {
		room   int
		fits   bool
		events []cluster.Event
	}{
		"enough":             {20_000, true, []cluster.Event{begun, failed}},
		"for short ones":     {1_500, true, []cluster.Event{begun, failed}},
		"for none":           {100, false, []cluster.Event{begun, failed}},
		"a failure at once":  {1_500, true, []cluster.Event{failed}},
		"none for it at all": {0, false, []cluster.Event{failed}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shelf := newShelf("phase", "conditions")
				shelf.annotate(map[string]any{"filler": strings.Repeat("x", annotationsMost-test.room-len("filler")-len("theirs")-len("yes"))})

				publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{Available: newest})

				for _, event := range test.events {
					publisher.Observe(event)
					synctest.Wait()
				}

				begun := time.Now()

				if err := publisher.Close(t.Context()); (err == nil) != test.fits {
					t.Errorf("closing: %v", err)
				}

				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("it took %s", took)
				}

				notes := strings.Join(publisher.Notes(), "\n")
				if short := test.room < 20_000; short != strings.Contains(notes, "did not take all annotations") || strings.Contains(notes, "ééé") {
					t.Errorf("it has the notes %q", notes)
				}

				if !test.fits {
					return
				}

				want := map[string]string{
					talosStatus: "failed", talosCurrent: "1.12.6", protocol.KeyTalosProgress: "2/5", kubernetesStatus: "idle",
					talosMessage: "Talos upgrade failed: " + strings.Repeat("é", 57) + "…", protocol.KeyFailedNodes: "absent", talosAvailable: "absent", "phase": "UpgradeFailed",
				}
				if test.room >= 20_000 {
					want[talosMessage], want[talosAvailable] = "Talos upgrade failed: "+strings.Repeat("é", 400), "1.13.4"
					want[protocol.KeyFailedNodes] = strings.Join(many(100), ",")
				}

				expect(t, shelf, want)
			})
		})
	}
}

// TestAnnotation_HeartbeatGoesOnWithoutRoom: it is how a reader tells a run that lives.
func TestAnnotation_HeartbeatGoesOnWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf()
		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		shelf.annotate(map[string]any{"filler": strings.Repeat("x", annotationsMost-700)})

		event := story()[0]
		event.Kind, event.Text, event.Node = cluster.EventRollingBack, strings.Repeat("y", 499), "cp-0"
		event.To = version.MustParse("1.12.6")

		publisher.Observe(event)
		synctest.Wait()

		before := shelf.get(protocol.KeyLastUpdate)

		time.Sleep(time.Minute)
		synctest.Wait()

		if got := shelf.get(protocol.KeyLastUpdate); got == before || before == "absent" {
			t.Errorf("the last update was at %s, and is at %s", before, got)
		}

		if got := shelf.get(talosMessage); len(got) != 79+len("…") || !strings.HasPrefix(got, "Rolling back node cp-0 to 1.12.6: yyy") {
			t.Errorf("the message is %q", got)
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestRollback_IsToldWhileItGoesOnAndFailsTheRun is told while it goes on, and then that the run
// failed.
func TestRollback_IsToldWhileItGoesOnAndFailsTheRun(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2")}
	behind, old := left(5, 1, 5, "1.13.2"), left(20, 0, 5, "1.34.2")

	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		publisher := publish.New(store, publish.Options{})

		for _, step := range []struct {
			event cluster.Event
			want  map[string]string
		}{
			{cluster.Event{Kind: cluster.EventNodeStarted, Node: "cp-1", Talos: behind, Kubernetes: old}, map[string]string{
				talosStatus: "in-progress", kubernetesStatus: "blocked", protocol.KeyFailedNodes: "absent",
			}},
			{cluster.Event{Kind: cluster.EventRollingBack, Node: "cp-1", To: version.MustParse("1.13.2"), Text: "etcd did not become healthy\nmore", Err: errDown}, map[string]string{
				talosStatus: "rolling-back", talosMessage: "Rolling back node cp-1 to 1.13.2: etcd did not become healthy",
				kubernetesStatus: "blocked", protocol.KeyTalosProgress: "1/5", protocol.KeyTalosCurrent: "1.13.2", protocol.KeyFailedNodes: "absent",
			}},
			{cluster.Event{Kind: cluster.EventRunFailed, Node: "cp-1", Text: "node cp-1 was rolled back", Talos: behind, Kubernetes: old}, map[string]string{
				talosStatus: "failed", talosMessage: "Talos upgrade failed: node cp-1 was rolled back", protocol.KeyFailedNodes: "cp-1",
			}},
		} {
			step.event.Target = target
			publisher.Observe(step.event)
			synctest.Wait()

			for key, want := range step.want {
				if got := store.get(key); got != want {
					t.Errorf("after %s: %s is %q, want %q", step.event.Kind, key, got, want)
				}
			}

			// The heartbeat beats until the run has ended.
			before := store.get(protocol.KeyLastUpdate)

			time.Sleep(time.Minute)
			synctest.Wait()

			if beats := store.get(protocol.KeyLastUpdate) != before; beats != (step.event.Kind != cluster.EventRunFailed) {
				t.Errorf("after %s: it is told that the run goes on: %t", step.event.Kind, beats)
			}
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRollback_InAnUnmanagedHalfIsNotTold(t *testing.T) {
	store := told(t, cluster.Target{Kubernetes: version.MustParse("1.35.2")},
		cluster.Event{Kind: cluster.EventRollingBack, Node: "cp-1", To: version.MustParse("1.13.2"), Text: "why"})

	for _, key := range []string{talosStatus, talosMessage, kubernetesStatus, kubernetesMessage, protocol.KeyLastUpdate} {
		if got := store.get(key); got != "absent" {
			t.Errorf("%s is %q", key, got)
		}
	}
}

// TestAnnotation_FailedNodesStayUntilARunBeginsOrCompletes, and never as nothing.
func TestAnnotation_FailedNodesStayUntilARunBeginsOrCompletes(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}

	for name, test := range map[string]struct {
		nodes string
		next  cluster.EventKind
		want  string
	}{
		"one":                    {"cp-1", "", "cp-1"},
		"several":                {"worker-2,worker-0", "", "worker-2,worker-0"},
		"named twice":            {"worker-2, worker-0,worker-2", "", "worker-2,worker-0"},
		"none":                   {"", "", "absent"},
		"nothing but commas":     {" ,, ", "", "absent"},
		"then a node begins":     {"cp-1", cluster.EventNodeStarted, "cp-1"},
		"then a run begins":      {"cp-1", cluster.EventRunStarted, "absent"},
		"then a run completes":   {"cp-1,cp-2", cluster.EventRunDone, "absent"},
		"then a run fails again": {"cp-1,cp-2", cluster.EventRunFailed, "absent"},
	} {
		events := []cluster.Event{{Kind: cluster.EventRunFailed, Node: test.nodes, Text: "why"}}
		if test.next != "" {
			events = append(events, cluster.Event{Kind: test.next})
		}

		store := told(t, target, events...)
		if got := store.get(protocol.KeyFailedNodes); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}

		empty := func(changes map[string]*string) bool {
			value := changes[protocol.KeyFailedNodes]

			return value != nil && strings.Trim(*value, " ,") == ""
		}
		if slices.ContainsFunc(store.patches, empty) {
			t.Errorf("%s: a list of nothing was published", name)
		}
	}
}

// TestRollback_ThatAPersonAsksForIsNoUpgrade: what is said is the rollback, and what runs.
func TestRollback_ThatAPersonAsksForIsNoUpgrade(t *testing.T) {
	to := version.MustParse("1.13.2")
	begun := cluster.Event{Kind: cluster.EventRollingBack, Node: "cp-1", To: to, Text: "as ola asked", Asked: true}
	done := cluster.Event{Kind: cluster.EventRolledBack, Node: "cp-1", To: to, Text: "as ola asked", Talos: cluster.Progress{Lowest: to}}
	failed := done
	failed.Text, failed.Err, failed.Talos = "it did not come back", errDown, cluster.Progress{Lowest: version.MustParse("1.13.4")}

	for name, test := range map[string]struct {
		events []cluster.Event
		want   map[string]string
	}{
		"while it goes on": {[]cluster.Event{begun}, map[string]string{
			talosStatus: "rolling-back", talosMessage: "Rolling back node cp-1 to 1.13.2: as ola asked", kubernetesStatus: "absent",
		}},
		"done": {[]cluster.Event{begun, done}, map[string]string{
			talosStatus: "idle", talosMessage: "Rolled back node cp-1 to 1.13.2: as ola asked", protocol.KeyTalosCurrent: "1.13.2",
			protocol.KeyTalosProgress: "absent", kubernetesStatus: "absent", protocol.KeyTalosTarget: "absent", protocol.KeyFailedNodes: "absent",
		}},
		"failed": {[]cluster.Event{begun, failed}, map[string]string{
			talosStatus: "failed", talosMessage: "Unable to roll back node cp-1 to 1.13.2: it did not come back", protocol.KeyTalosCurrent: "1.13.4", kubernetesStatus: "absent",
		}},
	} {
		store := told(t, cluster.Target{}, test.events...)

		for key, want := range test.want {
			if got := store.get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
}

// TestStale_StatusIsMadeTrue: a run or an operator that died wrote the
// annotations and not the status, and what the annotations say is kept.
func TestStale_StatusIsMadeTrue(t *testing.T) {
	const words = "Talos upgrade completed: now running v1.13.4"

	own := publish.Options{Announce: true, Available: newest}
	completed := map[string]string{talosStatus: "completed", talosCurrent: "v1.13.4", talosMessage: words, talosAvailable: "1.14.0"}
	failed := map[string]string{
		talosStatus: "completed", talosCurrent: "1.13.4", kubernetesStatus: "failed", kubernetesMessage: "Kubernetes upgrade failed: why", kubernetesCurrent: "1.34.2",
		protocol.KeyFailedNodes: "cp-1",
	}

	for name, test := range map[string]struct {
		annotations           map[string]string
		phase                 string
		kind, status, reason  string
		wantPhase, want       string
		standing, anyWouldSay bool
	}{
		"at work":            {completed, "UpgradingTalos", protocol.ConditionTalos, "True", "InProgress", "Ready", "False Completed " + words, false, true},
		"failed":             {completed, "UpgradeFailed", protocol.ConditionTalos, "False", "Failed", "Ready", "False Completed " + words, false, true},
		"only the phase":     {completed, "UpgradingTalos", protocol.ConditionTalos, "False", "Completed", "Ready", "False Completed theirs", true, true},
		"nothing":            {completed, "Ready", protocol.ConditionTalos, "False", "Completed", "Ready", "False Completed theirs", true, false},
		"a phase of its own": {completed, "Provisioned", protocol.ConditionTalos, "False", "Succeeded", "Provisioned", "False Succeeded theirs", true, false},
		"the failure of another half": {
			failed, "UpgradeFailed", protocol.ConditionKubernetes, "False", "Failed", "UpgradeFailed", "False Failed theirs", true, false,
		},
		"that failure as going on": {
			failed, "UpgradingKubernetes", protocol.ConditionKubernetes, "True", "InProgress", "UpgradeFailed", "False Failed Kubernetes upgrade failed: why", false, true,
		},
		"that failure as completed": {
			failed, "Ready", protocol.ConditionKubernetes, "False", "Completed", "UpgradeFailed", "False Failed Kubernetes upgrade failed: why", false, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			shelf := toldTo(t, own, test.annotations, nothingToDo()...)
			shelf.write(map[string]any{"status": map[string]any{"phase": test.phase, "conditions": []any{
				foreign("Valid", "True"),
				map[string]any{"type": test.kind, "status": test.status, "reason": test.reason, "message": "theirs", "lastTransitionTime": "2026-01-01T00:00:00Z"},
			}}})

			announces := func() bool {
				return publish.New(publish.NewObjectStore(shelf, published()), own).Announces(t.Context(), nothingToDo()[1])
			}

			if got := announces(); got != test.anyWouldSay {
				t.Errorf("there is something to announce: %t", got)
			}

			synctest.Test(t, func(t *testing.T) {
				publisher := publish.New(publish.NewObjectStore(shelf, published()), own)

				for _, event := range nothingToDo() {
					publisher.Observe(event)
					synctest.Wait()
				}

				if err := publisher.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})

			expect(t, shelf, map[string]string{"phase": test.wantPhase, test.kind: test.want, "Valid": "absent", kubernetesStatus: shelf.get(kubernetesStatus)})

			if got := shelf.condition("Valid"); got != "True Checked it is" {
				t.Errorf("somebody else's says %s", got)
			}

			if announces() {
				t.Error("after it was told there is something to announce")
			}
		})
	}
}

// TestStale_FailureOfAnUnmanagedHalfOutlivesARun that moves the other one.
func TestStale_FailureOfAnUnmanagedHalfOutlivesARun(t *testing.T) {
	before := map[string]string{
		kubernetesStatus: "failed", kubernetesMessage: "Kubernetes upgrade failed: node cp-1", kubernetesProgress: "2/5", kubernetesCurrent: "1.34.2", protocol.KeyFailedNodes: "cp-1",
	}
	run := nothingToDo()
	run[0].Talos = left(5, 0, 5, "1.12.6")

	for name, test := range map[string]struct{ phase, talos string }{
		"while it goes on": {"UpgradingTalos", "in-progress"},
		"when it is done":  {"UpgradeFailed", "completed"},
	} {
		t.Run(name, func(t *testing.T) {
			events := run
			if test.talos == "in-progress" {
				events = run[:1]
			}

			expect(t, toldTo(t, publish.Options{Available: newest}, before, events...), map[string]string{
				talosStatus: test.talos, kubernetesStatus: "failed", kubernetesMessage: before[kubernetesMessage], kubernetesProgress: "2/5",
				protocol.KeyFailedNodes: "cp-1", "phase": test.phase,
			})
		})
	}
}

// TestAnnotation_NothingIsClaimedOfHeldNodes, not even that the cluster is ready.
func TestAnnotation_NothingIsClaimedOfHeldNodes(t *testing.T) {
	events := nothingToDo()
	for i := range events {
		events[i].Talos, events[i].Kubernetes = left(0, 0, 0, ""), aside(0, "")
	}

	expect(t, toldTo(t, publish.Options{Available: newest}, nil, events...), map[string]string{
		talosStatus: "absent", "phase": "", protocol.ConditionTalos: "absent", kubernetesStatus: "absent",
	})
}
