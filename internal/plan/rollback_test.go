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

// returnable is a cluster in which any node may be sent back from 1.13.4 to
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

func TestRollbackNeedsEveryCondition(t *testing.T) {
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
		// says is a part of the one objection; empty where there is none.
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
		"other schematic":     {"worker-0", func(_ *cluster.Observation, e *cluster.Entry) { e.Schematic = "other" }, "which is not what was installed"},
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

func TestOnlyMemberOfEtcdHasToAnswer(t *testing.T) {
	observed, entry := returnable()
	observed.Nodes = observed.Nodes[:2]
	observed.Nodes[1].Etcd = nil

	if against := plan.AgainstRollback(observed, "cp-0", entry); len(against) != 1 || !strings.Contains(against[0], "runs on cp-0") {
		t.Errorf("got %q", against)
	}
}
