// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// returnable returns a cluster in which any node may be sent back from 1.13.4 to
// 1.12.6, and the entry of the journal for it.
func returnable() (cluster.Observation, cluster.Entry) {
	made := cluster.Observation{}

	for _, name := range []string{"worker-0", "cp-0", "cp-1", "cp-2"} {
		node := cluster.Node{
			Name: name, Role: cluster.Worker,
			Machine:  &cluster.Machine{Talos: version.MustParse("1.13.4"), BootID: "after", Schematic: "s"},
			Versions: map[cluster.Component]version.Version{cluster.Kubelet: version.MustParse("1.34.2")},
		}

		if strings.HasPrefix(name, "cp") {
			node.Role = cluster.ControlPlane
			node.Etcd = &cluster.EtcdView{Status: cluster.EtcdStatus{Version: "3.6.5"}}
			node.Versions[cluster.APIServer] = version.MustParse("1.34.2")
		}

		made.Nodes = append(made.Nodes, node)
	}

	return made, cluster.Entry{
		Phase: cluster.PhaseRebooting, BootID: "before", Target: version.MustParse("1.13.4"), Previous: version.MustParse("1.12.6"),
		PreviousSchematic: "s", PreviousEtcd: "3.6.5",
	}
}

func TestRollback_NeedsEveryCondition(t *testing.T) {
	of := func(observed *cluster.Observation, name string) *cluster.Node {
		for i := range observed.Nodes {
			if observed.Nodes[i].Name == name {
				return &observed.Nodes[i]
			}
		}

		return nil
	}

	for name, test := range map[string]struct {
		node   string
		change func(*cluster.Observation, *cluster.Entry)
		// says is a part of the only objection; empty if there is none.
		says string
	}{
		"worker":        {"worker-0", func(*cluster.Observation, *cluster.Entry) {}, ""},
		"control plane": {"cp-1", func(*cluster.Observation, *cluster.Entry) {}, ""},
		"silent": {"worker-0", func(s *cluster.Observation, _ *cluster.Entry) {
			of(s, "worker-0").Machine, of(s, "worker-0").Unreachable = nil, errors.New("refused")
		}, "does not answer"},
		"gone":          {"worker-9", func(*cluster.Observation, *cluster.Entry) {}, "does not answer"},
		"other version": {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.Target = version.MustParse("1.13.5") }, "not what was installed"},
		"no previous":   {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.Previous = version.Version{} }, "does not say what it ran"},
		"same system":   {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.Previous = e.Target }, "runs what it ran before"},
		"same version, other schematic": {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) {
			e.Previous, e.PreviousSchematic = e.Target, "other"
		}, ""},
		"other schematic": {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.Schematic = "other" }, "which is not what was installed"},
		"no schematic": {"worker-0", func(s *cluster.Observation, e *cluster.Entry) {
			of(s, "worker-0").Machine.Schematic, e.Schematic = "", "s"
		}, "shows no schematic"},
		"its schematic":       {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.Schematic = "s" }, ""},
		"told before":         {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.Phase, e.Told = cluster.PhaseRollingBack, true }, "once before"},
		"outcome unknown":     {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.Phase = cluster.PhaseIntent }, "end of the installer"},
		"same boot":           {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.BootID = "after" }, "has booted since"},
		"boot unknown":        {"worker-0", func(s *cluster.Observation, _ *cluster.Entry) { of(s, "worker-0").Machine.BootID = "" }, "has booted since"},
		"boot before unknown": {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.BootID = "" }, "has booted since"},
		"kubelet too new": {"worker-0", func(s *cluster.Observation, _ *cluster.Entry) {
			of(s, "worker-0").Versions[cluster.Kubelet] = version.MustParse("1.36.1")
		}, "does not fit"},
		"kubelet unknown": {"worker-0", func(s *cluster.Observation, _ *cluster.Entry) { of(s, "worker-0").Versions = nil }, "which Kubernetes"},
		"others' is their own": {"worker-0", func(s *cluster.Observation, _ *cluster.Entry) {
			of(s, "cp-0").Versions[cluster.APIServer] = version.MustParse("1.36.1")
		}, ""},
		"cluster too new": {"cp-1", func(s *cluster.Observation, _ *cluster.Entry) {
			of(s, "cp-0").Versions[cluster.APIServer] = version.MustParse("1.36.1")
		}, "does not fit"},
		"etcd unrecorded":  {"cp-1", func(_ *cluster.Observation, e *cluster.Entry) { e.PreviousEtcd = "" }, "which version of etcd it ran before"},
		"etcd of a worker": {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.PreviousEtcd = "" }, ""},
		"etcd moved on": {"cp-1", func(s *cluster.Observation, _ *cluster.Entry) {
			for _, name := range []string{"cp-0", "cp-1", "cp-2"} {
				of(s, name).Etcd.Status.Version = "3.7.0"
			}
		}, "could not join"},
		"one old member keeps etcd back": {"cp-1", func(s *cluster.Observation, _ *cluster.Entry) {
			of(s, "cp-0").Etcd.Status.Version, of(s, "cp-1").Etcd.Status.Version = "3.7.0", "3.7.0"
		}, ""},
		"its own member is silent":      {"cp-1", func(s *cluster.Observation, _ *cluster.Entry) { of(s, "cp-1").Etcd = nil }, ""},
		"another one is":                {"cp-1", func(s *cluster.Observation, _ *cluster.Entry) { of(s, "cp-2").Etcd = nil }, "runs on cp-2"},
		"another version is no version": {"cp-1", func(s *cluster.Observation, _ *cluster.Entry) { of(s, "cp-2").Etcd.Status.Version = "" }, "runs on cp-2"},
	} {
		t.Run(name, func(t *testing.T) {
			observed, entry := returnable()
			test.change(&observed, &entry)

			against := strings.Join(plan.AgainstRollback(observed, test.node, entry), "; ")
			if (against == "") != (test.says == "") || !strings.Contains(against, test.says) {
				t.Errorf("got %q, want %q", against, test.says)
			}
		})
	}
}

func TestRollback_OnlyMemberOfEtcdHasToAnswer(t *testing.T) {
	observed, entry := returnable()
	observed.Nodes = observed.Nodes[:2]
	observed.Nodes[1].Etcd = nil

	if against := plan.AgainstRollback(observed, "cp-0", entry); len(against) != 1 || !strings.Contains(against[0], "runs on cp-0") {
		t.Errorf("got %q", against)
	}
}

// TestRollback_PersonMaySendBackOnlyWhereItIsCertain what is in the other boot slot of the node.
func TestRollback_PersonMaySendBackOnlyWhereItIsCertain(t *testing.T) {
	const name = "worker-0"

	for title, test := range map[string]struct {
		change func(*cluster.Observation, *cluster.Node, cluster.Entry)
		says   string
		want   plan.SentBack
	}{
		"it is certain": {func(*cluster.Observation, *cluster.Node, cluster.Entry) {}, "", plan.SentBack{Ready: true}},
		"it has left":   {func(_ *cluster.Observation, n *cluster.Node, _ cluster.Entry) { n.Gone = true }, "not part of the cluster", plan.SentBack{}},
		"Kubernetes is away": {func(o *cluster.Observation, _ *cluster.Node, _ cluster.Entry) {
			o.KubernetesError = cluster.ErrUnreachable
		}, "the Kubernetes API does not answer", plan.SentBack{}},
		"the journal is damaged": {func(o *cluster.Observation, _ *cluster.Node, _ cluster.Entry) { o.Journal = nil }, "the journal cannot be read", plan.SentBack{}},
		"it does not answer":     {func(_ *cluster.Observation, n *cluster.Node, _ cluster.Entry) { n.Machine = nil }, "its Talos API does not answer", plan.SentBack{}},
		"it is a container":      {func(_ *cluster.Observation, n *cluster.Node, _ cluster.Entry) { n.Machine.Platform = "container" }, "runs in a container", plan.SentBack{}},
		"it tells no machine ID": {func(_ *cluster.Observation, n *cluster.Node, _ cluster.Entry) { n.Machine.MachineID = "" }, "does not tell its machine ID", plan.SentBack{}},
		"it was rebooted":        {func(_ *cluster.Observation, n *cluster.Node, _ cluster.Entry) { n.Machine.BootID = "later" }, "it has booted since", plan.SentBack{}},
		"it tells no boot":       {func(_ *cluster.Observation, n *cluster.Node, _ cluster.Entry) { n.Machine.BootID = "" }, "it has booted since", plan.SentBack{}},
		"another version": {func(_ *cluster.Observation, n *cluster.Node, _ cluster.Entry) {
			n.Machine.Talos = version.MustParse("1.13.5")
		}, "it runs Talos 1.13.5", plan.SentBack{}},
		"it is not confirmed":   {func(_ *cluster.Observation, n *cluster.Node, _ cluster.Entry) { n.Machine.UpgradePending = true }, "until when Talos has not confirmed what it runs", plan.SentBack{}},
		"another platform":      {func(_ *cluster.Observation, n *cluster.Node, _ cluster.Entry) { n.Machine.Platform = "aws" }, "and ran on metal when it was upgraded", plan.SentBack{}},
		"nothing is remembered": {func(o *cluster.Observation, _ *cluster.Node, _ cluster.Entry) { o.Journal.Confirmed = nil }, "does not say what it ran before", plan.SentBack{}},
		"another machine's entry": {func(o *cluster.Observation, _ *cluster.Node, e cluster.Entry) {
			e.Phase, e.Node = cluster.PhaseInstalled, name
			o.Journal.Entries = map[string]cluster.Entry{"id-before": e}
		}, "under another machine ID", plan.SentBack{}},
		"it is in the middle": {func(o *cluster.Observation, _ *cluster.Node, e cluster.Entry) {
			e.Phase = cluster.PhaseIntent
			o.Journal.Entries = map[string]cluster.Entry{"id": e}
		}, "in the middle of its upgrade", plan.SentBack{}},
		"it is on its way": {func(o *cluster.Observation, n *cluster.Node, e cluster.Entry) {
			e.Phase = cluster.PhaseRollingBack
			o.Journal.Entries, n.Machine, n.Kube = map[string]cluster.Entry{"id": e}, nil, &cluster.KubeNode{MachineID: "id"}
		}, "", plan.SentBack{Unfinished: true}},
		"it is there": {func(o *cluster.Observation, n *cluster.Node, e cluster.Entry) {
			e.Phase = cluster.PhaseFallback
			o.Journal.Entries, n.Machine.Talos = map[string]cluster.Entry{"id": e}, e.Previous
		}, "", plan.SentBack{Done: true}},
	} {
		observed, entry := returnable()
		entry.Platform, entry.ConfirmedBootID, entry.Phase = "metal", "after", ""
		observed.Nodes[0].Machine.MachineID, observed.Nodes[0].Machine.Platform = "id", "metal"
		observed.Journal = &cluster.Journal{Confirmed: map[string]cluster.Entry{"id": entry}}

		test.change(&observed, &observed.Nodes[0], entry)

		got, _, _ := plan.SendBack(observed, name)

		if test.says != "" {
			if len(got.Against) != 1 || !strings.Contains(got.Against[0], test.says) || got.Done || got.Unfinished || got.Ready {
				t.Errorf("%s: %+v, want one reason that says %q", title, got, test.says)
			}

			continue
		}

		if len(got.Against) > 0 || got.Ready != test.want.Ready || got.Done != test.want.Done || got.Unfinished != test.want.Unfinished {
			t.Errorf("%s: %+v, want %+v", title, got, test.want)
		}
	}
}
