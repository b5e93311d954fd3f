// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestStatus_FollowsFromObservationAndDesire(t *testing.T) {
	journal := func(phase cluster.Phase) cluster.Journal {
		return cluster.Journal{Entries: map[string]cluster.Entry{"id-worker-0": {Node: "worker-0", Phase: phase}}}
	}

	stale := func(phase cluster.Phase) cluster.Journal {
		return cluster.Journal{Entries: map[string]cluster.Entry{"id-of-a-machine-that-left": {Node: "worker-0", Phase: phase}}}
	}

	for name, test := range map[string]struct {
		talos, kubernetes           types.String
		change                      func(*fakeCluster)
		phase, talosHalf, otherHalf string
	}{
		"at the target":       {types.StringValue("v1.13.4"), types.StringNull(), nil, protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusIdle},
		"both halves managed": {types.StringValue("1.13.4"), types.StringValue("v1.34.2"), nil, protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusCompleted},
		"nothing of Talos":    {types.StringNull(), types.StringValue("1.34.2"), nil, protocol.PhaseReady, protocol.StatusIdle, protocol.StatusCompleted},
		"behind the target":   {types.StringValue("1.13.5"), types.StringNull(), nil, protocol.PhaseReady, protocol.StatusPending, protocol.StatusIdle},
		"one node behind": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.nodes[2].talos = "1.13.0"
		}, protocol.PhaseReady, protocol.StatusPending, protocol.StatusIdle},
		"a node in mid-upgrade": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = journal(cluster.PhaseInstalled)
		}, protocol.PhaseUpgradingTalos, protocol.StatusInProgress, protocol.StatusIdle},
		"a node fell back": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = journal(cluster.PhaseFallback)
		}, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusIdle},
		"a node fell back from another version than is wanted now": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = decided("1.13.5")
		}, protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusIdle},
		"a node fell back, and a person brought it to what is wanted": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = decided("1.13.4")
		}, protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusIdle},
		"a node fell back on the way to another minor version": {types.StringValue("1.14.1"), types.StringNull(), func(f *fakeCluster) {
			f.journal = decided("1.13.5")
		}, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusIdle},
		"a machine that left in mid-upgrade": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = stale(cluster.PhaseInstalled)
		}, protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusIdle},
		"a machine that left after it fell back": {types.StringValue("1.13.4"), types.StringNull(), func(f *fakeCluster) {
			f.journal = stale(cluster.PhaseFallback)
		}, protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusIdle},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			if test.change != nil {
				test.change(fake)
			}

			seen, err := fake.clusters(t).Observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}

			model := newClusterModel(t.Context(), version.Version{}, version.Version{})
			model.TalosVersion, model.KubernetesVersion = test.talos, test.kubernetes

			got := statusOf(seen.Observation, model)
			if got.Phase != test.phase || got.Talos.Status != test.talosHalf || got.Kubernetes.Status != test.otherHalf {
				t.Errorf("phase %s, talos %s, kubernetes %s; message %q", got.Phase, got.Talos.Status, got.Kubernetes.Status, got.Message)
			}
		})
	}
}

func TestStatus_OfTheKubernetesHalf(t *testing.T) {
	due := cluster.Journal{Manifests: &cluster.ManifestsDue{Run: "run"}}
	behind := func(f *fakeCluster) { f.nodes[2].kubelet = "1.34.1" }

	for name, test := range map[string]struct {
		talos, kubernetes           string
		change                      func(*fakeCluster)
		sync                        bool
		phase, talosHalf, otherHalf string
		says                        string
	}{
		"behind the target":   {"", "1.35.0", nil, true, protocol.PhaseReady, protocol.StatusIdle, protocol.StatusPending, "Kubernetes 1.34.2."},
		"one kubelet behind":  {"1.13.4", "1.34.2", behind, true, protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusPending, "Kubernetes 1.34.1 to 1.34.2."},
		"it waits for Talos":  {"1.13.5", "1.35.0", nil, true, protocol.PhaseReady, protocol.StatusPending, protocol.StatusBlocked, "Talos 1.13.4, Kubernetes 1.34.2."},
		"and cannot go first": {"1.14.0", "1.37.0", nil, true, protocol.PhaseReady, protocol.StatusPending, protocol.StatusBlocked, "Talos 1.13.4 does not support K8s 1.37.0. Upgrade Talos first."},
		"Talos waits for it": {"1.14.0", "1.35.0", func(f *fakeCluster) {
			for index := range f.nodes {
				f.nodes[index].kubernetes = "1.31.4"
			}
		}, true, protocol.PhaseReady, protocol.StatusPending, protocol.StatusPending, "Kubernetes 1.31.4."},
		"nothing waits for what is done": {"1.13.5", "1.34.2", nil, true, protocol.PhaseReady, protocol.StatusPending, protocol.StatusCompleted, "Kubernetes 1.34.2."},
		"manifests are due":              {"", "1.34.2", func(f *fakeCluster) { f.journal = due }, true, protocol.PhaseUpgradingKubernetes, protocol.StatusIdle, protocol.StatusInProgress, "bootstrap manifests"},
		"manifests are due after a roll of Talos": {
			"1.13.4", "", func(f *fakeCluster) { f.journal = due }, true, protocol.PhaseUpgradingTalos, protocol.StatusCompleted, protocol.StatusIdle, "bootstrap manifests",
		},
		"manifests are due, and nobody wants them": {
			"1.13.4", "1.34.2", func(f *fakeCluster) { f.journal = due }, false, protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusCompleted, "Kubernetes 1.34.2.",
		},
		"manifests are due before Talos is done": {
			"1.13.5", "1.34.2", func(f *fakeCluster) { f.journal = due }, true, protocol.PhaseReady, protocol.StatusPending, protocol.StatusCompleted, "Kubernetes 1.34.2.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			if test.change != nil {
				test.change(fake)
			}

			seen, err := fake.clusters(t).Observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}

			model := desired(test.talos, test.kubernetes)
			inManifests(t, func(m *manifestsModel) { m.Sync = types.BoolValue(test.sync) })(model)

			got := statusOf(seen.Observation, *model)
			if got.Phase != test.phase || got.Talos.Status != test.talosHalf || got.Kubernetes.Status != test.otherHalf || !strings.Contains(got.Message, test.says) {
				t.Errorf("phase %s, talos %s, kubernetes %s; message %q", got.Phase, got.Talos.Status, got.Kubernetes.Status, got.Message)
			}
		})
	}
}

// TestStatus_RemembersTheHalfThatFailed: until it is where it should be, and no other.
func TestStatus_RemembersTheHalfThatFailed(t *testing.T) {
	stop := errors.New("kube-apiserver on cp-0 did not become ready")

	for name, test := range map[string]struct {
		planned                     *clusterModel
		stop                        error
		talosHalf, otherHalf, later string
	}{
		"Talos":            {desired("1.13.5", "1.35.0"), stop, protocol.StatusFailed, protocol.StatusBlocked, protocol.StatusBlocked},
		"Kubernetes":       {desired("1.13.4", "1.35.0"), stop, protocol.StatusCompleted, protocol.StatusFailed, protocol.StatusFailed},
		"Kubernetes alone": {desired("", "1.35.0"), stop, protocol.StatusIdle, protocol.StatusFailed, protocol.StatusFailed},
		"a component before another hop of Talos": {
			desired("1.13.5", "1.35.0"), &say.Failure{Component: cluster.APIServer, Err: stop}, protocol.StatusPending, protocol.StatusFailed, protocol.StatusFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")

			seen, err := fake.clusters(t).Observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}

			// State keeps the versions that were desired before; here they are the same.
			model := *test.planned

			got := stopped(model, *test.planned, seen.Observation, "Unable to upgrade", test.stop)
			if got.Phase != protocol.PhaseUpgradeFailed || got.Talos.Status != test.talosHalf || got.Kubernetes.Status != test.otherHalf {
				t.Errorf("phase %s, talos %s, kubernetes %s", got.Phase, got.Talos.Status, got.Kubernetes.Status)
			}

			model.Status = got.value()
			wellDone(t, model.observe(seen.Observation))

			if phase, other := text(model.Status, "phase"), earlierStatus(model.Status, "kubernetes"); phase != protocol.PhaseUpgradeFailed || other != test.later {
				t.Errorf("after a refresh: phase %s, kubernetes %s", phase, other)
			}

			for index := range fake.nodes {
				fake.nodes[index].talos, fake.nodes[index].kubernetes = "1.13.5", "1.35.0"
			}

			if test.planned.TalosVersion.ValueString() == "1.13.4" {
				model.TalosVersion = types.StringValue("1.13.5")
			}

			seen, err = fake.clusters(t).Observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}

			wellDone(t, model.observe(seen.Observation))

			if phase := text(model.Status, "phase"); phase != protocol.PhaseReady {
				t.Errorf("phase %s although every node runs what is desired", phase)
			}
		})
	}
}

// TestStatus_RunThatNeverBeganDidNotFail: the cluster is as it was, and nobody needs to be
// woken.
func TestStatus_RunThatNeverBeganDidNotFail(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	prior := stored(t, fake, "1.13.4", "")

	seen, err := fake.clusters(t).Observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		failure *say.Failure
		phase   string
	}{
		"checks":                  {&say.Failure{Err: say.ErrBlocked}, protocol.PhaseReady},
		"lock":                    {&say.Failure{Err: say.ErrLocked}, protocol.PhaseReady},
		"snapshot":                {&say.Failure{Err: errors.Join(say.ErrNotBegun, say.ErrSnapshot, cluster.ErrUnreachable)}, protocol.PhaseReady},
		"gate before the roll":    {&say.Failure{Err: errors.Join(say.ErrNotBegun, say.ErrGate)}, protocol.PhaseReady},
		"window before the roll":  {&say.Failure{Err: errors.Join(say.ErrNotBegun, say.ErrWindow)}, protocol.PhaseReady},
		"gate before a node":      {&say.Failure{Err: say.ErrGate, Node: "worker-0"}, protocol.PhaseUpgradeFailed},
		"gate before a component": {&say.Failure{Err: say.ErrGate, Component: cluster.Kubelet, Node: "worker-0"}, protocol.PhaseUpgradeFailed},
	} {
		if got := stopped(*prior, *desired("1.13.5", ""), seen.Observation, "Unable to upgrade", test.failure); got.Phase != test.phase {
			t.Errorf("%s: phase %s, want %s", name, got.Phase, test.phase)
		}
	}
}

// TestStatus_ManifestsAfterARollOfTalosFailInThatHalf: there is no other.
func TestStatus_ManifestsAfterARollOfTalosFailInThatHalf(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")

	seen, err := fake.clusters(t).Observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	model := *desired("1.13.4", "")

	got := stopped(model, model, seen.Observation, "Unable to sync", &say.Failure{Component: cluster.Manifests, Err: say.ErrManifests})
	if got.Phase != protocol.PhaseUpgradeFailed || got.Talos.Status != protocol.StatusFailed || got.Kubernetes.Status != protocol.StatusIdle {
		t.Errorf("phase %s, talos %s, kubernetes %s", got.Phase, got.Talos.Status, got.Kubernetes.Status)
	}
}

func text(object types.Object, name string) string {
	value, isText := object.Attributes()[name].(types.String)
	if !isText {
		return ""
	}

	return value.ValueString()
}

func TestStatus_HeldNodesDoNotCount(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*fakeCluster)
		phase   string
		half    string
		highest string
	}{
		"one behind":    {func(f *fakeCluster) { f.nodes[2].talos = "1.12.6" }, protocol.PhaseReady, protocol.StatusCompleted, "1.13.4"},
		"one ahead":     {func(f *fakeCluster) { f.nodes[2].talos = "1.14.0" }, protocol.PhaseReady, protocol.StatusCompleted, "1.13.4"},
		"another is it": {func(f *fakeCluster) { f.nodes[1].talos = "1.12.6" }, protocol.PhaseReady, protocol.StatusPending, "1.13.4"},
		"one fell back, which was decided about": {func(f *fakeCluster) {
			f.journal = cluster.Journal{Entries: map[string]cluster.Entry{"id-worker-1": {Node: "worker-1", Phase: cluster.PhaseFallback}}}
		}, protocol.PhaseReady, protocol.StatusCompleted, "1.13.4"},
		"one was rolled back, which was decided about": {func(f *fakeCluster) {
			f.journal = cluster.Journal{Entries: map[string]cluster.Entry{"id-worker-1": {Node: "worker-1", Phase: cluster.PhaseRolledBack}}}
		}, protocol.PhaseReady, protocol.StatusCompleted, "1.13.4"},
		"one is in the middle of a rollback, which no decision changes": {func(f *fakeCluster) {
			f.journal = cluster.Journal{Entries: map[string]cluster.Entry{"id-worker-1": {Node: "worker-1", Phase: cluster.PhaseRollingBack}}}
		}, protocol.PhaseUpgradingTalos, protocol.StatusInProgress, "1.13.4"},
		"one is armed, which no decision changes": {func(f *fakeCluster) {
			f.journal = cluster.Journal{Entries: map[string]cluster.Entry{"id-worker-1": {Node: "worker-1", Phase: cluster.PhaseInstalled}}}
		}, protocol.PhaseUpgradingTalos, protocol.StatusInProgress, "1.13.4"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			test.change(fake)

			seen, err := fake.clusters(t).Observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}

			model := desired("1.13.4", "")
			model.NodeOverrides = holding(t, "worker-1")

			got := statusOf(seen.Observation, *model)
			if got.Phase != test.phase || got.Talos.Status != test.half || got.Talos.Highest.String() != test.highest {
				t.Errorf("phase %s, talos %s up to %s; message %q", got.Phase, got.Talos.Status, got.Talos.Highest, got.Message)
			}
		})
	}
}

// TestStatus_ProxyThatIsGoneLeavesTheState: it was replaced by something else. One that is only missing on some nodes,
// as while its pods are replaced, stays.
func TestStatus_ProxyThatIsGoneLeavesTheState(t *testing.T) {
	t.Parallel()

	runs, both := version.MustParse("1.34.2"), []cluster.Component{cluster.Kubelet, cluster.Proxy}
	node := func(name string, components ...cluster.Component) cluster.Node {
		seen := cluster.Node{Name: name, Role: cluster.Worker, Versions: map[cluster.Component]version.Version{}}
		for _, component := range components {
			seen.Versions[component] = runs
		}

		return seen
	}

	before, _ := nodesValue(cluster.Observation{Nodes: []cluster.Node{node("worker-0", both...), node("worker-1", both...)}},
		types.MapNull(types.ObjectType{AttrTypes: nodeTypes()}))

	for name, test := range map[string]struct {
		seen cluster.Observation
		kept bool
	}{
		"on one node":     {cluster.Observation{Nodes: []cluster.Node{node("worker-0", cluster.Kubelet), node("worker-1", both...)}}, true},
		"on all":          {cluster.Observation{Nodes: []cluster.Node{node("worker-0", cluster.Kubelet), node("worker-1", cluster.Kubelet)}}, false},
		"without answers": {cluster.Observation{Nodes: []cluster.Node{node("worker-0")}, KubernetesError: cluster.ErrUnreachable}, true},
	} {
		after, diagnostics := nodesValue(test.seen, before)
		if diagnostics.HasError() {
			t.Fatal(diagnostics)
		}

		model, _ := nodeModelOf(after.Elements()["worker-0"])
		if shown := model.ComponentVersions.Attributes()["kube_proxy"]; shown.IsNull() == test.kept {
			t.Errorf("%s: kube-proxy is shown as %s", name, shown)
		}
	}
}

// decided is a journal in which worker-1 returned from a version to the one before.
func decided(target string) cluster.Journal {
	return cluster.Journal{Entries: map[string]cluster.Entry{"id-worker-1": {
		Node: "worker-1", Phase: cluster.PhaseFallback, Target: version.MustParse(target), Previous: version.MustParse("1.13.0"),
	}}}
}

// BenchmarkStateOf1000Nodes is a part of the bar for refresh and plan of 1,000 nodes: it
// is done for each of them.
func BenchmarkStateOf1000Nodes(b *testing.B) {
	var observed cluster.Observation

	for number := range 1000 {
		observed.Nodes = append(observed.Nodes, cluster.Node{
			Name: fmt.Sprintf("worker-%d", number), Role: cluster.Worker,
			Machine:  &cluster.Machine{Talos: version.MustParse("1.13.2"), Config: &cluster.MachineConfig{InstallImage: "example.org/installer:v1.13.2"}},
			Versions: map[cluster.Component]version.Version{cluster.Kubelet: version.MustParse("1.35.0")},
		})
	}

	earlier := types.MapNull(types.ObjectType{AttrTypes: nodeTypes()})

	for b.Loop() {
		nodes, diagnostics := nodesValue(observed, earlier)
		if diagnostics.HasError() || len(nodes.Elements()) != len(observed.Nodes) {
			b.Fatal(diagnostics)
		}

		earlier = nodes
	}
}

func TestStatus_SaysWhatBecameOfTheNodesInTheJournal(t *testing.T) {
	for name, test := range map[string]struct {
		phases  map[string]cluster.Phase
		phase   string
		half    string
		message string
	}{
		"nobody is in it": {nil, protocol.PhaseReady, protocol.StatusCompleted, "Talos 1.13.4, Kubernetes 1.34.2."},
		"armed": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseInstalled, "worker-0": cluster.PhaseIntent},
			protocol.PhaseUpgradingTalos, protocol.StatusInProgress,
			"In the middle of an upgrade: worker-0, worker-1; the next apply continues.",
		},
		"being rolled back": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseRollingBack},
			protocol.PhaseUpgradingTalos, protocol.StatusInProgress,
			"In the middle of a rollback: worker-1; the next apply continues.",
		},
		"one forwards, one back": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseRollingBack, "worker-0": cluster.PhaseRebooting},
			protocol.PhaseUpgradingTalos, protocol.StatusInProgress,
			"In the middle of an upgrade: worker-0; the next apply continues. In the middle of a rollback: worker-1; the next apply continues.",
		},
		"fell back": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseFallback},
			protocol.PhaseUpgradeFailed, protocol.StatusFailed,
			"Fell back to the old system and waits for a decision: worker-1.",
		},
		"rolled back": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseRolledBack, "worker-0": cluster.PhaseRolledBack},
			protocol.PhaseUpgradeFailed, protocol.StatusFailed,
			"Was rolled back to the old system and waits for a decision: worker-0, worker-1.",
		},
		"one of each, and one that is armed": {
			map[string]cluster.Phase{"worker-1": cluster.PhaseRolledBack, "worker-0": cluster.PhaseFallback, "cp-0": cluster.PhaseInstalled},
			protocol.PhaseUpgradeFailed, protocol.StatusFailed,
			"Fell back to the old system and waits for a decision: worker-0. Was rolled back to the old system and waits for a decision: worker-1.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			fake.journal = cluster.Journal{Entries: map[string]cluster.Entry{}}

			for node, phase := range test.phases {
				fake.journal.Entries["id-"+node] = cluster.Entry{Node: node, Phase: phase}
			}

			seen, err := fake.clusters(t).Observe(t.Context(), "")
			if err != nil {
				t.Fatal(err)
			}

			got := statusOf(seen.Observation, *desired("1.13.4", ""))
			if got.Phase != test.phase || got.Talos.Status != test.half || got.Message != test.message {
				t.Errorf("phase %s, talos %s, message %q", got.Phase, got.Talos.Status, got.Message)
			}
		})
	}
}
