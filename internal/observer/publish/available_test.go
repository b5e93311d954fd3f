// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

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

// TestWhatAClusterCouldBeUpgradedTo follows a run that brings Talos along and leaves
// Kubernetes alone, in the words of the document of the protocol.
func TestWhatAClusterCouldBeUpgradedTo(t *testing.T) {
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

// TestKubernetesIsOfferedWhenTalosIsDone, as the flow of the protocol has it, also
// before the run has brought it along.
func TestKubernetesIsOfferedWhenTalosIsDone(t *testing.T) {
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

// TestWhatIsNotKnownIsNotOffered, and what somebody else found out stays.
func TestWhatIsNotKnownIsNotOffered(t *testing.T) {
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
