// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// status changes what a member of etcd says about itself.
func (s *scene) status(name string, change func(*cluster.EtcdStatus)) *scene {
	view := *s.node(name).Etcd
	change(&view.Status)
	s.node(name).Etcd = &view

	return s
}

// alarmed has control planes tell of an alarm, as etcd does in the status of a member.
func (s *scene) alarmed(alarm string, names ...string) *scene {
	for _, name := range names {
		view := *s.node(name).Etcd
		view.Status.Errors = append(slices.Clone(view.Status.Errors), reported(alarm))
		s.node(name).Etcd = &view
	}

	return s
}

// reported is how a status repeats an alarm such as "NOSPACE on member 1f".
func reported(alarm string) string {
	var (
		member uint64
		kind   string
	)

	if _, err := fmt.Sscanf(alarm, "%s on member %x", &kind, &member); err != nil {
		return alarm
	}

	return fmt.Sprintf("memberID:%d alarm:%s ", member, kind)
}

// members changes the list of members that every control plane sees.
func (s *scene) members(change func([]cluster.EtcdMember)) *scene {
	for i := range s.snapshot.Nodes {
		if node := &s.snapshot.Nodes[i]; node.Etcd != nil {
			view := *node.Etcd
			view.Members = append([]cluster.EtcdMember(nil), view.Members...)
			change(view.Members)
			node.Etcd = &view
		}
	}

	return s
}

// lags has a member be 5,000 entries behind all others.
func (s *scene) lags(name string) *scene {
	for _, node := range s.snapshot.ControlPlanes() {
		s.status(node.Name, func(e *cluster.EtcdStatus) {
			e.Index, e.Applied = 8000, 8000
			if node.Name == name {
				e.Applied = 3000
			}
		})
	}

	return s
}

func (s *scene) sized(name string, mebibytes int64) *scene {
	return s.status(name, func(e *cluster.EtcdStatus) { e.DBSize = mebibytes << 20 })
}

func (s *scene) quota(name string, mebibytes int64) *scene {
	s.node(name).Machine.Config.EtcdQuota = mebibytes << 20

	return s
}

func (s *scene) stage(name string, stage cluster.Stage) *scene {
	s.node(name).Machine.Stage, s.node(name).Machine.Ready = stage, false

	return s
}

// unconfirmed is a machine whose new system has not confirmed itself.
func (s *scene) unconfirmed(name string) *scene {
	s.node(name).Machine.UpgradePending, s.node(name).Machine.Ready = true, false

	return s
}

// cordonedByTalos as a machine does that goes down by itself.
func (s *scene) cordonedByTalos(name string) *scene {
	s.node(name).Kube.Unschedulable, s.node(name).Kube.CordonedByTalos = true, true

	return s
}

func (s *scene) pressed(name string, pressure ...string) *scene {
	s.node(name).Kube.Pressure = pressure

	return s
}

func (s *scene) missing(name string, component cluster.Component) *scene {
	delete(s.node(name).Pods, component)

	return s
}

// skips turns checks into warnings.
func (s *scene) skips(checks ...string) *scene {
	s.policy.SkipChecks = map[string]bool{}
	for _, check := range checks {
		s.policy.SkipChecks[check] = true
	}

	return s
}

const alarmNoSpace = "NOSPACE on member 1f"

func TestTroubleOfEtcdStopsAnApply(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"an alarm is named once": {
			scene: newScene(3, 1).identified("cp-2", 0x1f).alarmed(alarmNoSpace, "cp-1", "cp-2", "cp-3"), check: "etcd-alarms", severity: cluster.Observed, node: "cp-2",
			says: []string{"etcd raised " + alarmNoSpace + " (check", "talosctl etcd alarm disarm"},
		},
		"an alarm in the status alone": {
			scene: newScene(3, 1).status("cp-2", func(e *cluster.EtcdStatus) { e.Errors = []string{"memberID:31 alarm:CORRUPT "} }), check: "etcd-alarms", severity: cluster.Observed,
			says: []string{"etcd raised CORRUPT on member 1f (check", "Replace the member"},
		},
		"an alarm is no other error": {
			scene: newScene(3, 1).alarmed(alarmNoSpace, "cp-1", "cp-2", "cp-3").status("cp-2", func(e *cluster.EtcdStatus) { e.Errors = []string{"memberID:31 alarm:NOSPACE "} }),
			check: "etcd-alarms", severity: cluster.Observed,
		},
		"a member that reports an error": {
			scene: newScene(3, 1).status("cp-2", func(e *cluster.EtcdStatus) { e.Errors = []string{"etcdserver: request timed out"} }), check: "etcd-quorum", severity: cluster.Observed, node: "cp-2",
			says: []string{"reports: etcdserver: request timed out", "talosctl"},
		},
		"a member without a leader": {
			scene: newScene(3, 1).status("cp-3", func(e *cluster.EtcdStatus) { e.Leader = 0 }), check: "etcd-quorum", severity: cluster.Observed, node: "cp-3", says: []string{"follows no leader"},
		},
		"a member with another leader": {
			scene: newScene(3, 1).status("cp-1", func(e *cluster.EtcdStatus) { e.Leader = 0x2f }), check: "etcd-quorum", severity: cluster.Observed, node: "cp-1",
			says: []string{"do not agree on a leader", "000000000000002f", "0000000000000001"},
		},
		"a member that lags": {
			scene: newScene(3, 1).status("cp-2", func(e *cluster.EtcdStatus) { e.Index, e.Applied = 6000, 6000 }).
				status("cp-1", func(e *cluster.EtcdStatus) { e.Applied = 5000 }).status("cp-3", func(e *cluster.EtcdStatus) { e.Applied = 4999 }),
			check: "etcd-raft-lag", severity: cluster.Observed, node: "cp-3", says: []string{"applied entry 4999 of 6000", "talosctl -n 10.0.0.3 etcd status"},
		},
		"a learner that answers nothing else": {
			scene: func() *scene {
				s := newScene(3, 1)
				view := s.node("cp-2").Etcd
				view.Members, view.Status.Learner = nil, true

				return s
			}(), check: "etcd-members", severity: cluster.Observed, node: "cp-2", says: []string{"cp-2 of etcd is still a learner"},
		},
		"a learner is named at its own node": {
			scene: newScene(3, 1).members(func(m []cluster.EtcdMember) { m[1].Learner = true }), check: "etcd-members", severity: cluster.Observed, node: "cp-2", says: []string{"cp-2 of etcd is still a learner"},
		},
		"a member that has never started": {
			scene: newScene(3, 1).members(func(m []cluster.EtcdMember) { m[2].Name = "" }), check: "etcd-members", severity: cluster.Observed, node: "cp-3", says: []string{"has never started"},
		},
		"a database near its default quota": {
			scene: newScene(3, 1).sized("cp-2", 1850), check: "etcd-db-size", severity: cluster.Observed, node: "cp-2",
			says: []string{"1.81 GiB", "90 % of its quota of 2.00 GiB (the default of etcd)", "talosctl -n 10.0.0.2 etcd defrag"},
		},
		"a database near a quota of its own": {
			scene: newScene(3, 1).sized("cp-2", 470).quota("cp-2", 512), check: "etcd-db-size", severity: cluster.Observed, node: "cp-2", says: []string{"470 MiB", "91 % of its quota of 512 MiB"},
		},
		"a database that grows": {
			scene: newScene(3, 1).sized("cp-2", 1540), check: "etcd-db-size", severity: cluster.Advice, node: "cp-2", says: []string{"75 %"},
		},
		"a database that is large, but not for its quota": {
			scene: newScene(3, 1).sized("cp-2", 6200).quota("cp-2", 8192), check: "etcd-db-size", severity: cluster.Advice, node: "cp-2", says: []string{"6.05 GiB", "quota-backend-bytes"},
		},
	})
}

func TestTroubleOfNodesStopsAnApply(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"a control plane that is not Ready": {
			scene: newScene(3, 1).notReady("cp-2"), check: "nodes-ready", severity: cluster.Observed, node: "cp-2", says: []string{"not Ready in Kubernetes", "kubectl describe node cp-2"},
		},
		"a held control plane that is not Ready": {
			scene: newScene(3, 1).notReady("cp-2").holds("cp-2"), check: "nodes-ready", severity: cluster.Observed, node: "cp-2",
		},
		"a static pod that is not Ready, at no target": {
			scene: newScene(3, 1).ailing("cp-2", cluster.Scheduler, "CrashLoopBackOff"), check: "control-plane-components", severity: cluster.Observed, node: "cp-2",
			says: []string{"kube-scheduler (CrashLoopBackOff)", "kubectl"},
		},
		"a static pod that is not Ready, at the target, is said once": {
			scene: newScene(3, 1).asserts("1.34.2").ailing("cp-2", cluster.Scheduler, ""), check: "control-plane-components", severity: cluster.Observed, node: "cp-2",
		},
		"a static pod that is not known": {
			scene: newScene(3, 1).missing("cp-3", cluster.APIServer), check: "control-plane-components", severity: cluster.Observed, node: "cp-3", says: []string{"no pod of kube-apiserver is known on this control plane"},
		},
		"a reboot of somebody else": {
			scene: newScene(3, 2).stage("worker-2", cluster.StageRebooting), check: "external-changes", severity: cluster.Observed, node: "worker-2",
			says: []string{"the machine is rebooting", "talosctl -n 10.0.1.2 get machinestatus"},
		},
		"a legacy upgrade of somebody else": {
			scene: newScene(3, 2).stage("cp-1", cluster.StageUpgrading), check: "external-changes", severity: cluster.Observed, node: "cp-1",
			says: []string{"upgrading", "likely talosctl upgrade, a talos_machine of the provider siderolabs/talos, Omni or tuppr", "let one program alone"},
		},
		"a node that somebody else moved": {
			scene: newScene(3, 2).unconfirmed("worker-2"), check: "external-changes", severity: cluster.Observed, node: "worker-2",
			says: []string{"has just come up with Talos 1.12.6", "no run of this provider installed it", "a talos_machine of the provider siderolabs/talos", "let one program alone"},
		},
		"a reset of somebody else at the target": {
			scene: newScene(3, 2).runs("1.13.4", "worker-2").stage("worker-2", cluster.StageResetting), check: "external-changes", severity: cluster.Observed, node: "worker-2",
		},
		"a machine that cordoned its node": {
			scene: newScene(3, 2).runs("1.13.4", "worker-1").cordonedByTalos("cp-1"), check: "external-changes", severity: cluster.Observed, node: "cp-1",
			says: []string{"cordoned its own node", "talos.dev/cordoned", "likely talosctl upgrade"},
		},
		"a fallback of ours is no excuse": {
			scene: newScene(3, 2).stage("worker-2", cluster.StageShuttingDown).entry("worker-2", cluster.PhaseFallback, "b").image("worker-2", generic+":v1.13.3"),
			check: "external-changes", severity: cluster.Observed, node: "worker-2", says: []string{"shutting down"},
		},
		"a full disk": {
			scene: newScene(3, 2).pressed("worker-1", "DiskPressure"), check: "disk-space", severity: cluster.Observed, node: "worker-1", says: []string{"DiskPressure", "kubectl describe node worker-1"},
		},
		"other pressure is for people to weigh": {
			scene: newScene(3, 2).pressed("worker-1", "MemoryPressure").pressed("cp-1", "PIDPressure"), check: "nodes-ready", severity: cluster.Advice,
			says: []string{"worker-1 (MemoryPressure), cp-1 (PIDPressure)"},
		},
	})
}

// TestTroubleThatIsNoneOfTheRollsIsNotMentioned: what an earlier run left in the
// middle is finished, and where nothing is done nothing is in the way.
func TestTroubleThatIsNoneOfTheRollsIsNotMentioned(t *testing.T) {
	t.Parallel()

	open := func() *scene { return newScene(3, 2).entry("cp-2", cluster.PhaseRebooting, "b") }
	lag := func(s *scene) *scene {
		return s.status("cp-1", func(e *cluster.EtcdStatus) { e.Index, e.Applied = 9000, 9000 }).status("cp-3", func(e *cluster.EtcdStatus) { e.Applied = 9000 })
	}

	for behaviour, s := range map[string]*scene{
		"an unfinished control plane that is not Ready":        open().notReady("cp-2"),
		"our own cordon on one that is not Ready":              newScene(3, 2).notReady("cp-2").cordoned("cp-2", "run-1"),
		"an unfinished control plane without its pods":         open().missing("cp-2", cluster.APIServer).ailing("cp-2", cluster.Scheduler, ""),
		"an unfinished control plane that reboots":             open().stage("cp-2", cluster.StageRebooting),
		"an unfinished node that Talos cordoned":               open().cordonedByTalos("cp-2"),
		"our own cordon where that of Talos was before":        newScene(3, 2).cordonedByTalos("worker-1").cordoned("worker-1", "run-1"),
		"an unfinished control plane that has to catch up":     lag(open()),
		"an unfinished control plane that looks for a leader":  open().status("cp-2", func(e *cluster.EtcdStatus) { e.Leader = 0 }),
		"an unfinished control plane that joins":               open().members(func(m []cluster.EtcdMember) { m[1].Learner = true }),
		"an unfinished node with a full disk":                  open().pressed("cp-2", "DiskPressure"),
		"a control plane whose turn is the first":              newScene(3, 0).notReady("cp-2").ailing("cp-2", cluster.Scheduler, ""),
		"a component whose turn may be the cure":               newScene(3, 0).unmanaged().asserts("1.35.0").ailing("cp-2", cluster.Scheduler, ""),
		"a held worker that reboots":                           newScene(3, 2).stage("worker-2", cluster.StageRebooting).holds("worker-2"),
		"a machine that boots":                                 newScene(3, 2).stage("worker-2", cluster.StageBooting),
		"a full disk of a node that stays":                     newScene(3, 2).runs("1.13.4", "worker-1").pressed("worker-1", "DiskPressure", "MemoryPressure"),
		"a component that is switched off":                     newScene(3, 1).disabled("cp-1", cluster.Scheduler).missing("cp-1", cluster.Scheduler),
		"a small database":                                     newScene(3, 1).sized("cp-2", 1535),
		"members as far behind as may be":                      newScene(3, 1).status("cp-2", func(e *cluster.EtcdStatus) { e.Index, e.Applied = 1000, 1000 }),
		"trouble of every kind, and nothing to do":             newScene(3, 2).runs("1.13.4").notReady("cp-1").ailing("cp-2", cluster.Scheduler, "").stage("cp-3", cluster.StageRebooting).cordonedByTalos("worker-1").pressed("worker-2", "DiskPressure").alarmed(alarmNoSpace, "cp-1").sized("cp-1", 2040),
		"an unknown way to boot, and nothing to do":            newScene(3, 2).runs("1.13.4").bootUnknown("worker-1"),
		"an unknown way to boot of an unfinished node":         newScene(3, 2).entry("worker-1", cluster.PhaseRebooting, "b").stage("worker-1", cluster.StageBooting).bootUnknown("worker-1"),
		"a control plane that is not Ready, where it is alone": newScene(1, 0).runs("1.13.3").notReady("cp-1"),
	} {
		if got := cluster.Blocking(s.said(t).Findings); len(got) > 0 {
			t.Errorf("%s: %v", behaviour, got)
		}
	}
}
