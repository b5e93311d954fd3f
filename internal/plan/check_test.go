// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// status changes what a member of etcd says about itself.
func (s *scene) status(name string, change func(*cluster.EtcdStatus)) *scene {
	view := *s.node(name).Etcd
	change(&view.Status)
	s.node(name).Etcd = &view

	return s
}

// alarmed makes control planes report an alarm, as etcd does in the status of a member.
func (s *scene) alarmed(alarm string, names ...string) *scene {
	for _, name := range names {
		view := *s.node(name).Etcd
		view.Status.Errors = append(slices.Clone(view.Status.Errors), reported(alarm))
		s.node(name).Etcd = &view
	}

	return s
}

// reported returns the status text of an alarm such as "NOSPACE on member 1f".
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

// lags puts a member 5,000 entries behind all others.
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

// unconfirmed makes a machine one that has not been ready since an install, before which it booted the entry.
func (s *scene) unconfirmed(name, entry string) *scene {
	s.node(name).Machine.UpgradePending, s.node(name).Machine.UpgradeTag, s.node(name).Machine.Ready = true, entry, false

	return s
}

// cordonedByTalos cordons a node as a machine does that goes down by itself.
func (s *scene) cordonedByTalos(name string) *scene {
	s.node(name).Kube.Unschedulable, s.node(name).Kube.CordonedByTalos = true, true

	return s
}

// runsHere makes the process that plans run on the node.
func (s *scene) runsHere(name string) *scene {
	s.policy.OwnBootID = s.node(name).Kube.BootID

	return s
}

// unbooted hides the boot ID from Kubernetes.
func (s *scene) unbooted(name string) *scene {
	s.node(name).Kube.BootID = ""

	return s
}

// runsBeside makes the process that plans run on a machine that is not a node.
func (s *scene) runsBeside() *scene {
	s.policy.OwnBootID = "boot-elsewhere"

	return s
}

// oneKernel makes all nodes, and the process that plans, run on one machine.
func (s *scene) oneKernel() *scene {
	for i := range s.snapshot.Nodes {
		s.snapshot.Nodes[i].Machine.BootID, s.snapshot.Nodes[i].Kube.BootID = "boot-host", "boot-host"
	}

	s.policy.OwnBootID = "boot-host"

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

func TestCheck_TroubleOfNodesStopsAnApply(t *testing.T) {
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
			scene: newScene(3, 2).unconfirmed("worker-2", "talos-v1.12.5.efi"), check: "external-changes", severity: cluster.Observed, node: "worker-2",
			says: []string{
				"the machine runs Talos 1.12.6, which was installed and has not been ready yet", "META key 0x06 (talos-v1.12.5.efi) names the system before it",
				"No run of this provider did that", "a talos_machine of the provider siderolabs/talos", "Wait until it is ready (talosctl -n 10.0.1.2 get machinestatus)",
				"talosctl -n 10.0.1.2 rollback starts the system before it; a mere reboot starts the same one again", "let one program alone",
			},
		},
		"a node that somebody else moved and rolled back before it was ready": {
			scene: newScene(3, 2).unconfirmed("worker-2", "Talos-v1.12.6.efi"), check: "external-changes", severity: cluster.Observed, node: "worker-2",
			says: []string{
				"META key 0x06 (Talos-v1.12.6.efi) names that version itself: it was rolled back before the new system was ready, or that version was installed over itself",
				"Wait until it is ready (talosctl -n 10.0.1.2 get machinestatus): Talos removes the key then. Until then, the system that was left starts again if this one fails.",
			},
		},
		"a node with GRUB that somebody else moved": {
			scene: newScene(3, 2).unconfirmed("worker-2", "B"), check: "external-changes", severity: cluster.Observed, node: "worker-2",
			says: []string{"installed or it was rolled back; META key 0x06 (B) does not tell which of the two", "Wait until it is ready"},
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
		"a worker that the provider runs on": {
			scene: newScene(3, 2).runsHere("worker-2"), check: "own-node", severity: cluster.Observed, node: "worker-2",
			says: []string{"runs on this node itself", "Run it from somewhere else", `node_overrides = { "worker-2" = { hold = true } }`, `skip = ["own-node"]`},
		},
		"a control plane that the provider runs on": {
			scene: newScene(3, 2).runsHere("cp-3"), check: "own-node", severity: cluster.Observed, node: "cp-3",
		},
		"the provider's node, whose boot Talos alone tells": {
			scene: newScene(3, 2).runsHere("worker-2").unbooted("worker-2"), check: "own-node", severity: cluster.Observed, node: "worker-2",
		},
		"the provider's node, left with its new system installed": {
			scene: newScene(3, 2).runsHere("worker-2").entry("worker-2", cluster.PhaseInstalled, "boot-worker-2"), check: "own-node", severity: cluster.Observed, node: "worker-2",
		},
		"a worker that was deleted while it was on its way": {
			scene: newScene(3, 2).entry("worker-3", cluster.PhaseRebooting, "boot-worker-3").departed("worker-3"), check: "pending-install", severity: cluster.Advice,
			node: "worker-3", says: []string{"nobody has seen whether that boots", "goes on without it"},
		},
		"a worker that was deleted after its run was killed": {
			scene: newScene(3, 2).entry("worker-3", cluster.PhaseRebooting, "boot-worker-3"), check: "pending-install", severity: cluster.Advice,
			node: "worker-3", says: []string{"nobody has seen whether that boots", "goes on without it"},
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

// TestCheck_HarmlessTroubleIsNotMentioned: what an earlier run left unfinished is finished, and if nothing is to be
// done, nothing is in the way.
func TestCheck_HarmlessTroubleIsNotMentioned(t *testing.T) {
	t.Parallel()

	open := func() *scene { return newScene(3, 2).entry("cp-2", cluster.PhaseRebooting, "b") }
	lag := func(s *scene) *scene {
		return s.status("cp-1", func(e *cluster.EtcdStatus) { e.Index, e.Applied = 9000, 9000 }).status("cp-3", func(e *cluster.EtcdStatus) { e.Applied = 9000 })
	}

	for behaviour, s := range map[string]*scene{
		"an unfinished control plane that is not Ready":        open().notReady("cp-2"),
		"a departed worker that is back":                       newScene(3, 2).entry("worker-2", cluster.PhaseRebooting, "b").departed("worker-2"),
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
		"the provider's node, where nobody knows which":        newScene(3, 2).unbooted("worker-2").runsHere("worker-2"),
		"the provider's node, in another cluster":              newScene(3, 2).runsBeside(),
		"the provider's node, done":                            newScene(3, 2).runs("1.13.4", "worker-2").runsHere("worker-2"),
		"the provider's node, held":                            newScene(3, 2).holds("worker-2").runsHere("worker-2"),
		"the provider's node, with only its cordon left":       newScene(3, 2).runs("1.13.4", "worker-2").cordoned("worker-2", "run-1").runsHere("worker-2"),
		"the provider's node, which gets Kubernetes alone":     newScene(3, 2).unmanaged().asserts("1.35.0").runsHere("cp-1"),
		"containers that get Kubernetes alone":                 newScene(3, 2).on("container").unmanaged().asserts("1.35.0").oneKernel(),
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

// findingCase expects one finding of a check, and no other that blocks.
type findingCase struct {
	scene    *scene
	check    string
	severity cluster.Severity
	node     string
	// says are parts of the printed finding: what was found, and what to do.
	says []string
}

func runFindings(t *testing.T, cases map[string]findingCase) {
	t.Helper()

	for behaviour, test := range cases {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			findings := test.scene.said(t).Findings
			got, ok := find(findings, test.check)
			if !ok || got.Severity != test.severity || got.Node != test.node {
				t.Fatalf("findings: %v; want %s of severity %d at node %q", findings, test.check, test.severity, test.node)
			}

			for _, part := range test.says {
				if !strings.Contains(got.String(), part) {
					t.Errorf("the finding does not say %q: %s", part, got)
				}
			}

			if got.Severity != cluster.Advice && got.Remedy == "" {
				t.Errorf("no remedy: %s", got)
			}

			for _, other := range cluster.Blocking(findings) {
				if other.Check != test.check {
					t.Errorf("unexpected: %s", other)
				}
			}
		})
	}
}

func TestCheck_ImpossibleTargetsArePermanent(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"a downgrade names the node": {
			scene: newScene(3, 2).runs("1.13.4").runs("1.13.5", "cp-2"), check: "versions", severity: cluster.Permanent, node: "cp-2",
			says: []string{"1.13.5", "newer than the target 1.13.4", "Set talos_version to 1.13.5"},
		},
		"a suffix makes the target a pre-release": {
			scene: newScene(3, 2).runs("1.13.4").aims("1.13.4-slim"), check: "versions", severity: cluster.Permanent, node: "worker-1",
			says: []string{"runs Talos 1.13.4, which is newer than the target 1.13.4-slim (a pre-release, which comes before 1.13.4)"},
		},
		"a suffix makes the target of Kubernetes a pre-release": {
			scene: newScene(3, 2).asserts("1.34.2-slim"), check: "versions", severity: cluster.Permanent,
			says: []string{"newer than the target 1.34.2-slim (a pre-release, which comes before 1.34.2)", "Set kubernetes_version to 1.34.2 or newer"},
		},
		"another major": {
			scene: newScene(3, 2).aims("2.0.0"), check: "compatibility", severity: cluster.Permanent,
			says: []string{"Talos 2.0.0 is of another major version", "Choose a version of Talos 1"},
		},
		"a skipped minor names the one in between": {
			scene: newScene(3, 2).runs("1.13.4").runs("1.11.6", "worker-1"), check: "versions", severity: cluster.Permanent,
			says: []string{
				"from Talos 1.11.6 to 1.13.4 would skip the minor version 1.12", "Talos 1.11.6, Kubernetes 1.34.2 -> Talos 1.12.", "-> Talos 1.13.4",
				"Set allow_intermediate_versions = true", "set talos_version to 1.12.",
			},
		},
		"a minor that the matrix does not know": {
			scene: newScene(3, 0).runs("1.15.2").aims("1.16.0"), check: "compatibility", severity: cluster.Permanent,
			says: []string{"1.16", "not in the support matrix", "Choose a version"},
		},
		"Kubernetes too old for the target": {
			scene: newScene(3, 1).kubernetes("1.30.4"), check: "compatibility", severity: cluster.Permanent,
			says: []string{
				"Talos 1.13.4 needs Kubernetes 1.31 or newer, the cluster runs 1.30.4, and kubernetes_version is not set", "Bring Kubernetes into that range first",
			},
		},
		"Kubernetes too new for the target": {
			scene: newScene(3, 1).kubernetes("1.37.0"), check: "compatibility", severity: cluster.Permanent,
			says: []string{"Talos 1.13.4 needs Kubernetes 1.36 or older, the cluster runs 1.37.0", "or choose another talos_version"},
		},
		"one old kubelet is enough": {
			scene: func() *scene {
				return newScene(3, 1).component("worker-1", cluster.Kubelet, "1.30.9")
			}(), check: "compatibility", severity: cluster.Permanent, says: []string{"1.30.9"},
		},
		"Talos below what is managed": {
			scene: newScene(3, 0).runs("1.7.7").aims("1.8.4").kubernetes("1.30.0"), check: "versions", severity: cluster.Permanent,
			says: []string{"Talos 1.7.7 are too old", "1.8.0 or newer with talosctl"},
		},
		"Talos below what is tested": {
			scene: newScene(3, 0).runs("1.10.5").aims("1.11.6").kubernetes("1.32.0"), check: "versions", severity: cluster.Advice,
			says: []string{"1.10.5", "tested from 1.11.0"},
		},
		"one new kubelet is enough": {
			scene: newScene(3, 1).component("worker-1", cluster.Kubelet, "1.37.0"), check: "compatibility", severity: cluster.Permanent,
			says: []string{"Talos 1.13.4 needs Kubernetes 1.36 or older, and some components of the cluster run 1.37.0", "Bring all components to one version first"},
		},
		"a skipped minor of Kubernetes": {
			scene: newScene(3, 0).asserts("1.36.0"), check: "versions", severity: cluster.Permanent,
			says: []string{
				"from Kubernetes 1.34.2 to 1.36.0 would skip the minor version 1.35", "Talos 1.12.6, Kubernetes 1.34.2 -> Talos 1.13.4 -> Kubernetes 1.35.",
				"set kubernetes_version to 1.35.",
			},
		},
		"a component that would go down names its node": {
			scene: newScene(3, 1).asserts("1.34.2").component("worker-1", cluster.Kubelet, "1.34.3"), check: "versions", severity: cluster.Permanent, node: "worker-1",
			says: []string{"runs kubelet 1.34.3, newer than the target 1.34.2", "Set kubernetes_version to 1.34.3 or newer"},
		},
		"components that would go down on many nodes are one finding": {
			scene: newScene(3, 10).asserts("1.34.1"), check: "versions", severity: cluster.Permanent,
			says: []string{"Kubernetes up to 1.34.2 runs on worker-1, worker-2,", "worker-10 and 3 more, newer than the target 1.34.1"},
		},
		"a version that the matrix does not know is accepted on request only": {
			scene: newScene(3, 0).runs("1.15.2").aims("1.16.0").kubernetes("1.36.0"), check: "compatibility", severity: cluster.Permanent,
			says: []string{"talos 1.16", "1.8 to 1.15", "allow_unknown_versions = true"},
		},
		"a legacy node cannot leave out the drain": {
			scene: func() *scene {
				s := newScene(0, 0)
				s.add(cluster.Worker, "worker-1", "10.0.1.1")
				s.add(cluster.ControlPlane, "cp-1", "10.0.0.1")
				s.policy.Drain.Enabled = false

				return s.runs("1.13.1", "cp-1").elect()
			}(), check: "versions", severity: cluster.Permanent, node: "worker-1",
			says: []string{"1.12.6", "always drains itself", "Leave drain.enabled at true"},
		},
	})
}

func TestCheck_NodeImagesThatCannotBeChosenArePermanent(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"extensions that the generic installer lacks": {
			scene: func() *scene {
				s := newScene(3, 1)
				s.node("worker-1").Machine.Extensions = []string{"drbd"}

				return s
			}(), check: "schematic", severity: cluster.Permanent, node: "worker-1",
			says: []string{"drbd", "Set installer_image"},
		},
		"an install image that is none": {
			scene: func() *scene {
				s := newScene(3, 1)
				s.node("cp-1").Machine.Config.InstallImage = "Not An Image"

				return s
			}(), check: "installer-image", severity: cluster.Permanent, node: "cp-1",
			says: []string{"machine.install.image", "Not An Image", "Correct machine.install.image"},
		},
		"an installer_image that installs nothing": {
			scene: func() *scene {
				s := newScene(1, 0)
				s.target.InstallerImage = "ghcr.io/siderolabs/imager"

				return s
			}(), check: "installer-image", severity: cluster.Permanent,
			says: []string{"ghcr.io/siderolabs/imager is an image of Talos that installs nothing", "Name an installer"},
		},
		"an installer_image with a tag that is no version": {
			scene: func() *scene {
				s := newScene(1, 0)
				s.target.InstallerImage = generic + ":latest"

				return s
			}(), check: "installer-image", severity: cluster.Permanent, node: "cp-1",
			says: []string{generic + ":latest", "give the repository alone", "Correct installer_image"},
		},
	})
}

func TestCheck_PossibleTargetsHaveNoFindings(t *testing.T) {
	t.Parallel()

	for behaviour, s := range map[string]*scene{
		"the next minor":                         newScene(3, 2),
		"the same minor":                         newScene(3, 2).runs("1.13.0"),
		"a pre-release of the same version":      newScene(3, 2).runs("1.13.4-rc.0"),
		"a mix of both minors":                   newScene(3, 2).runs("1.13.4", "worker-1"),
		"the asserted Kubernetes version runs":   newScene(3, 2).asserts("1.34.2"),
		"lifecycle nodes need not be drained":    newScene(3, 2).runs("1.13.1").undrained(),
		"legacy nodes at the target do not move": newScene(3, 2).aims("1.12.6").undrained(),
		"roles that are unknown":                 newScene(3, 2).roles(),
		"an administrator among other roles":     newScene(3, 2).roles("os:reader", adminRole),
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			if got := s.said(t).Findings; len(got) > 0 {
				t.Errorf("findings: %v", got)
			}
		})
	}
}

// TestCheck_WayOfSeveralHopsIsObjectedToOnce is about findings that concern every turn of a node in the same way.
func TestCheck_WayOfSeveralHopsIsObjectedToOnce(t *testing.T) {
	t.Parallel()

	findings := func() []cluster.Finding {
		s := newScene(3, 1).walks().runs("1.11.2").unpinned("worker-1").undrained()
		s.node("worker-1").Machine.Extensions = []string{"drbd"}

		return s.said(t).Findings
	}()

	seen := map[string]int{}
	for _, finding := range findings {
		seen[finding.Node+" "+finding.Check]++
	}

	for _, want := range []string{"worker-1 schematic", "worker-1 component-images", "worker-1 versions", "cp-1 versions"} {
		if seen[want] != 1 {
			t.Errorf("%s is said %d times in %v", want, seen[want], findings)
		}
	}
}

// Nothing finishes the turn of a node while Talos is not managed, so the node is reported as missing.
func TestCheck_SilentNodeIsMissedWhereTalosIsNotManaged(t *testing.T) {
	t.Parallel()

	s := newScene(3, 2).silent("worker-1").entry("worker-1", cluster.PhaseRebooting, "b").asserts("1.35.0")
	s.target.Talos = version.Version{}

	made := s.said(t)
	if finding, ok := find(made.Findings, "talos-api"); !ok || finding.Node != "worker-1" || strings.Join(made.Elsewhere, " ") != "worker-1" {
		t.Errorf("plan:\n%s", render(made))
	}
}

func (s *scene) aims(talos string) *scene {
	s.target.Talos = version.MustParse(talos)

	return s
}

func (s *scene) asserts(kubernetes string) *scene {
	s.target.Kubernetes = version.MustParse(kubernetes)

	return s
}

func (s *scene) undrained() *scene {
	s.policy.Drain.Enabled = false

	return s
}

func (s *scene) roles(roles ...string) *scene {
	s.snapshot.Roles = roles

	return s
}

// TestCheck_KubernetesOfAnotherClusterIsRefused: two sites may use the same addresses, and then only the boot IDs of
// their machines differ.
func TestCheck_KubernetesOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()

	for title, test := range map[string]struct {
		change func(*scene)
		want   bool
	}{
		"the same":               {func(*scene) {}, false},
		"one just rebooted":      {func(s *scene) { s.node("worker-1").Machine.BootID = "boot-new" }, false},
		"all are of another":     {func(s *scene) { s.elsewhere() }, true},
		"another, some silent":   {func(s *scene) { s.elsewhere().silent("worker-1") }, true},
		"one is in its turn":     {func(s *scene) { s.elsewhere().entry("worker-1", cluster.PhaseRebooting, "b") }, false},
		"Kubernetes is silent":   {func(s *scene) { s.elsewhere(); s.cutOff() }, false},
		"boots are not told":     {func(s *scene) { s.bootless() }, false},
		"another, nothing to do": {func(s *scene) { s.elsewhere().runs("1.13.4") }, false},
	} {
		s := newScene(3, 2)
		test.change(s)

		finding, found := find(s.said(t).Findings, "cluster-identity")
		if found != test.want {
			t.Errorf("%s: found %t, want %t", title, found, test.want)
		}

		if found && (finding.Severity != cluster.Observed || finding.Remedy == "") {
			t.Errorf("%s: %+v", title, finding)
		}
	}
}

// elsewhere makes Kubernetes report other boots than the machines do.
func (s *scene) elsewhere() *scene {
	for i := range s.snapshot.Nodes {
		s.snapshot.Nodes[i].Kube.BootID = "boot-elsewhere-" + s.snapshot.Nodes[i].Name
	}

	return s
}

func (s *scene) cutOff() {
	s.snapshot.KubernetesError = errAway
	for i := range s.snapshot.Nodes {
		s.snapshot.Nodes[i].Kube = nil
	}
}

func (s *scene) bootless() {
	for i := range s.snapshot.Nodes {
		s.snapshot.Nodes[i].Kube.BootID = ""
	}
}

// TestCheck_ReaderIsToldThatKubernetesTellsNothing: the missing image names are not the problem.
func TestCheck_ReaderIsToldThatKubernetesTellsNothing(t *testing.T) {
	t.Parallel()

	s := newScene(1, 0).runs("1.13.4").asserts("1.35.0").unreadable("cp-1").kubeless("cp-1").roles("os:reader")
	s.cutOff()

	got, ok := find(s.said(t).Findings, "component-images")
	if !ok || got.Severity != cluster.Observed || got.Node != "cp-1" || !errors.Is(got.Err, errAway) {
		t.Fatalf("finding: %v", got)
	}

	for _, part := range []string{
		"kube-apiserver", "Kubernetes does not tell what runs", "does not show its machine configuration to these credentials (os:reader)",
		"Set kubeconfig", adminRole,
	} {
		if !strings.Contains(got.String(), part) {
			t.Errorf("the finding does not say %q: %s", part, got)
		}
	}

	if strings.Contains(got.String(), "no image is named") {
		t.Errorf("the finding says what nobody looked at: %s", got)
	}
}

// TestCheck_FindingsAboutAllNodesNameTenOfThem: people read them.
func TestCheck_FindingsAboutAllNodesNameTenOfThem(t *testing.T) {
	t.Parallel()

	unread := newScene(3, 40)
	unread.target.InstallerImage = generic
	for i := range unread.snapshot.Nodes {
		unread.snapshot.Nodes[i].Machine.Config = nil
	}

	foreign := newScene(3, 1)
	for i := range 40 {
		foreign.snapshot.Foreign = append(foreign.snapshot.Foreign, fmt.Sprintf("flatcar-%d", i+1))
	}

	runFindings(t, map[string]findingCase{
		"unreadable": {scene: unread, check: "component-images", severity: cluster.Observed, says: []string{"worker-1, worker-2,", "worker-10 and 33 more (check"}},
		"foreign":    {scene: foreign, check: "talos-api", severity: cluster.Advice, says: []string{"flatcar-1, flatcar-2,", "flatcar-10 and 30 more (check"}},
	})
}

func TestCheck_WhatWaitingMayCureStopsAnApplyOnly(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"a worker that does not answer": {
			scene: newScene(3, 2).silent("worker-2"), check: "talos-api", severity: cluster.Observed, node: "worker-2",
			says: []string{"this worker at 10.0.1.2", "unreachable", "Bring the node back"},
		},
		"a control plane that does not answer": {
			scene: newScene(3, 2).silent("cp-2"), check: "talos-api", severity: cluster.Observed, node: "cp-2",
			says: []string{"this control plane at 10.0.0.2", "unreachable", "Bring the node back"},
		},
		"a silent node is missed though it once fell back": {
			scene: newScene(3, 2).silent("cp-2").entry("cp-2", cluster.PhaseFallback, "b"), check: "talos-api", severity: cluster.Observed, node: "cp-2",
		},
		"a member without a Node object": {
			scene: func() *scene {
				s := newScene(3, 2)
				s.node("worker-1").Kube = nil

				return s
			}(), check: "nodes-ready", severity: cluster.Observed, node: "worker-1",
			says: []string{"no Node object in Kubernetes", "Let it join"},
		},
		"the Kubernetes API is away": {
			scene: func() *scene {
				s := newScene(3, 2)
				s.snapshot.KubernetesError, s.snapshot.Journal, s.snapshot.JournalError = errAway, nil, errAway
				for i := range s.snapshot.Nodes {
					s.snapshot.Nodes[i].Kube = nil
				}

				return s
			}(), check: "kubernetes-api", severity: cluster.Observed,
			says: []string{"connection refused", "Make the Kubernetes API answer"},
		},
		"the journal cannot be read": {
			scene: func() *scene {
				s := newScene(3, 2)
				s.snapshot.Journal, s.snapshot.JournalError = nil, errAway

				return s
			}(), check: "pending-install", severity: cluster.Observed,
			says: []string{"kube-system/talosupgrade-journal", "connection refused", "Make it readable"},
		},
		"credentials that may only read": {
			scene: newScene(3, 2).roles("os:reader", "os:operator"), check: "roles", severity: cluster.Observed,
			says: []string{"os:reader, os:operator", adminRole, "talosconfig of an administrator"},
		},
		"etcd that does not answer": {
			scene: func() *scene {
				s := newScene(3, 2)
				s.node("cp-2").Etcd, s.node("cp-2").EtcdError = nil, errAway

				return s
			}(), check: "etcd-quorum", severity: cluster.Observed, node: "cp-2",
			says: []string{"connection refused", "talosctl"},
		},
		"two machines with one machine ID": {
			scene: newScene(3, 2).cloned("worker-1", "worker-2"), check: "pending-install", severity: cluster.Observed, node: "worker-2",
			says: []string{
				"worker-2 at 10.0.1.2 and worker-1 at 10.0.1.1 have the same machine ID (id-worker-1)", "the disk of one was copied from the other",
				"Find out which of them is the copy", "save its machine configuration", "Leave the other one alone", "loses its identity and its configuration",
				"worker-1: talosctl -n 10.0.1.1 reset --system-labels-to-wipe STATE --reboot; worker-2: talosctl -n 10.0.1.2 reset",
			},
		},
		"a control plane and a worker with one machine ID": {
			scene: newScene(3, 2).cloned("cp-1", "worker-2"), check: "pending-install", severity: cluster.Observed, node: "cp-1",
			says: []string{"(worker-2: talosctl -n 10.0.1.2 reset --system-labels-to-wipe STATE --reboot)", "If the copy is a control plane, wipe nothing"},
		},
		"one of two with one machine ID is done": {
			scene: newScene(3, 2).running("worker-1", "1.13.4").cloned("worker-1", "worker-2"), check: "pending-install", severity: cluster.Observed, node: "worker-2",
			says: []string{"have the same machine ID (id-worker-1)"},
		},
		"a Node object whose machine registers under another name": {
			scene: func() *scene {
				s := newScene(3, 2)
				s.snapshot.Stale = []cluster.StaleNode{{Name: "worker-9", Address: "10.0.1.2", Registered: "worker-2"}}

				return s
			}(), check: "nodes-ready", severity: cluster.Observed, node: "worker-9",
			says: []string{"the Node object is stale: the machine at its address 10.0.1.2 registers as worker-2", "Delete it (kubectl delete node worker-9): that leaves the machine alone"},
		},
		"a machine ID that nobody tells": {
			scene: newScene(3, 2).unidentified("worker-1"), check: "pending-install", severity: cluster.Observed, node: "worker-1",
			says: []string{"neither Talos nor Kubernetes reports its machine ID", "kubectl get node worker-1"},
		},
		"STATE was wiped in the middle of an upgrade": {
			scene: newScene(3, 2).entry("worker-1", cluster.PhaseInstalled, "boot-before").machineID("worker-1", "id-after"),
			check: "pending-install", severity: cluster.Observed, node: "worker-1",
			says: []string{
				"an unfinished upgrade to Talos 1.13.4 of a node of this name under id-worker-1", "has the ID id-after", "STATE partition was wiped",
				"has not been rebooted since 0001-01-01", "drain and reboot that machine first: without a boot in between", "remove the key id-worker-1: kubectl -n kube-system edit configmap talosupgrade-journal",
			},
		},
		"STATE was wiped, and the kubelet has not registered since": {
			scene: func() *scene {
				s := newScene(3, 2).entry("worker-1", cluster.PhaseInstalled, "boot-before")
				s.node("worker-1").Machine.MachineID = "id-after"

				return s
			}(), check: "pending-install", severity: cluster.Observed, node: "worker-1",
			says: []string{"under id-worker-1", "has the ID id-after"},
		},
		"two members of etcd": {
			scene: newScene(2, 1), check: "two-members", severity: cluster.Observed,
			says: []string{"two members", "no quorum", "Add a third control plane"},
		},
		"a node in maintenance mode": {
			scene: func() *scene {
				s := newScene(3, 2).silent("worker-2")
				s.node("worker-2").Unreachable = fmt.Errorf("unable to read the boot ID of node 10.0.1.2: %w: %w: it is Talos in maintenance mode", cluster.ErrUnreachable, cluster.ErrForeign)

				return s
			}(), check: "talos-api", severity: cluster.Observed, node: "worker-2",
			says: []string{"it is Talos in maintenance mode", "talosctl get disks --insecure --nodes 10.0.1.2", "give it a configuration only when you know", "kubectl delete node worker-2"},
		},
		"a certificate that expired": {
			scene: func() *scene {
				s := newScene(3, 2).silent("worker-2")
				s.node("worker-2").Unreachable = fmt.Errorf("unable to read the boot ID of node 10.0.1.2: %w: the client certificate expired on 2026-03-04", cluster.ErrCredentials)

				return s
			}(), check: "talos-api", severity: cluster.Observed, node: "worker-2",
			says: []string{"its Talos API does not accept the credentials: the client certificate expired on 2026-03-04 (", "waiting does not help"},
		},
		"components that are not pinned": {
			scene: func() *scene {
				s := newScene(3, 2)
				delete(s.node("worker-1").Machine.Config.Images, cluster.Kubelet)

				return s
			}(), check: "component-images", severity: cluster.Observed, node: "worker-1",
			says: []string{"does not pin the image of kubelet,", `talosctl -n 10.0.1.1 patch machineconfig --patch '{"machine":{"kubelet":{"image":"ghcr.io/siderolabs/kubelet:v1.34.2"}}}'`},
		},
		"no control plane to be found": {
			scene: newScene(0, 2), check: "etcd-members", severity: cluster.Observed,
			says: []string{"no control plane", "Check that the endpoints"},
		},
		"no control plane to be found, and nothing to do": {
			scene: newScene(0, 2).runs("1.13.4", "worker-1").runs("1.13.4", "worker-2"), check: "etcd-members", severity: cluster.Observed,
			says: []string{"no control plane", "talosctl get members"},
		},
		"workers that keep the budget to themselves": {
			scene: newScene(3, 2).runs("1.13.4", "worker-1").notReady("worker-1"), check: "nodes-ready", severity: cluster.Observed,
			says: []string{"worker-1 (not ready)", "kubectl describe node"},
		},
		"Kubernetes shows what was before a boot": {
			scene: newScene(3, 2).outdated("cp-2", cluster.APIServer).outdated("cp-2", cluster.Scheduler), check: cluster.CheckControlPlane, severity: cluster.Observed, node: "cp-2",
			says: []string{"still shows kube-apiserver, kube-scheduler as they were before", "Wait: its kubelet", "talosctl -n 10.0.0.2 logs kubelet"},
		},
		"a cordon of somebody else keeps the budget": {
			scene: newScene(3, 3).cordoned("worker-2", ""), check: "nodes-ready", severity: cluster.Observed,
			says: []string{"worker-2 (cordoned)", "kubectl uncordon"},
		},
		"an image from which the node fell back": {
			scene: newScene(3, 2).entry("worker-1", cluster.PhaseFallback, "boot-9"), check: "pending-install", severity: cluster.Observed, node: "worker-1",
			says: []string{generic + ":v1.13.4", "fell back to Talos 1.12.6", `node_overrides = { "worker-1" = { retry_boot_id = "boot-9" } }`},
		},
		"a retry with the boot ID of an earlier fallback": {
			scene: newScene(3, 2).entry("worker-1", cluster.PhaseFallback, "boot-9").retry("worker-1", "boot-8"),
			check: "pending-install", severity: cluster.Observed, node: "worker-1",
		},
		"a retry for another node": {
			scene: newScene(3, 2).entry("worker-1", cluster.PhaseFallback, "boot-9").retry("worker-2", "boot-9"),
			check: "pending-install", severity: cluster.Observed, node: "worker-1",
		},
		"a fallback whose boot ID was not recorded": {
			scene: newScene(3, 2).entry("worker-1", cluster.PhaseFallback, ""), check: "pending-install", severity: cluster.Observed, node: "worker-1",
		},
	})
}

func TestCheck_AdviceStopsNothing(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"a single control plane": {
			scene: newScene(1, 1), check: "single-control-plane", severity: cluster.Advice, node: "cp-1",
			says: []string{"one control plane", "away while it reboots"},
		},
		"a node that is gone": {
			scene: func() *scene {
				s := newScene(3, 2).silent("worker-1").notReady("worker-1")
				s.node("worker-1").Gone = true

				return s
			}(), check: "nodes-ready", severity: cluster.Advice, node: "worker-1",
			says: []string{"gone", "5 minutes", "Delete its Node object"},
		},
		"a worker that only discovery still lists": {
			scene: newScene(3, 2).left("worker-1"), check: "nodes-ready", severity: cluster.Advice, node: "worker-1",
			says: []string{"no Node object", "10.0.1.1", "does not answer", "within 30 minutes"},
		},
		"nodes of another operating system": {
			scene: func() *scene {
				s := newScene(3, 2)
				s.snapshot.Foreign = []string{"flatcar-1", "windows-1"}

				return s
			}(), check: "talos-api", severity: cluster.Advice,
			says: []string{"not running Talos", "flatcar-1, windows-1"},
		},
	})
}

func TestCheck_WhatDoesNotStandInTheWayIsNotMentioned(t *testing.T) {
	t.Parallel()

	for behaviour, s := range map[string]*scene{
		"an unfinished worker that does not answer":          newScene(3, 2).silent("worker-1").notReady("worker-1").entry("worker-1", cluster.PhaseRebooting, "b"),
		"an unfinished control plane that does not answer":   newScene(3, 2).silent("cp-1").notReady("cp-1").entry("cp-1", cluster.PhaseInstalled, "b"),
		"another image after a fallback":                     newScene(3, 2).entry("worker-1", cluster.PhaseFallback, "b").image("worker-1", generic+":v1.13.3"),
		"a retry that the user asks for":                     newScene(3, 2).entry("worker-1", cluster.PhaseFallback, "boot-9").retry("worker-1", "boot-9"),
		"a node at the target that once fell back":           newScene(3, 2).runs("1.13.4", "worker-1").entry("worker-1", cluster.PhaseFallback, "b"),
		"kube-proxy that Talos does not manage":              newScene(3, 2).proxyless(),
		"two members of etcd while only workers move":        newScene(2, 2).runs("1.13.4", "cp-1", "cp-2"),
		"one control plane at the target":                    newScene(1, 2).runs("1.13.4", "cp-1"),
		"an unavailable worker that the roll brings back":    newScene(3, 2).notReady("worker-2"),
		"components that are switched off are not missed":    newScene(3, 2).disabled("cp-1", cluster.Scheduler, cluster.ControllerManager),
		"a held control plane without kube-proxy":            newScene(3, 2).withoutProxy("cp-1").holds("cp-1"),
		"without kube-proxy but for a held control plane":    newScene(3, 2).proxyless().holds("cp-1").enabled("cp-1"),
		"control planes that disagree, and no sync":          newScene(3, 2).withoutProxy("cp-1").unsynced(),
		"control planes that disagree, and nothing to do":    newScene(3, 2).withoutProxy("cp-1").runs("1.13.4"),
		"an old kube-proxy is named, and no sync":            newScene(3, 2).namesComponent("cp-1", cluster.Proxy, oldProxy).unsynced(),
		"an old kube-proxy is named, and nothing to do":      newScene(3, 2).namesComponent("cp-1", cluster.Proxy, oldProxy).runs("1.13.4"),
		"an old kube-proxy is named by a held control plane": newScene(3, 2).namesComponent("cp-1", cluster.Proxy, oldProxy).holds("cp-1"),
		"an old kube-proxy is named, and brought up":         newScene(3, 2).namesComponent("cp-1", cluster.Proxy, oldProxy).asserts("1.34.2").walks(),
		"an open entry, and nothing to do with Kubernetes":   newScene(3, 2).entry("worker-1", cluster.PhaseInstalled, "b").unmanaged().asserts("1.34.2"),
		"our own cordon of an earlier run":                   newScene(3, 2).cordoned("worker-2", "run-1"),
		"a spent budget while only control planes move":      newScene(3, 2).runs("1.13.4", "worker-1", "worker-2").cordoned("worker-1", ""),
		"the only workers to move are unavailable already":   newScene(3, 2).runs("1.13.4", "worker-1").cordoned("worker-2", ""),
		"a reader, unpinned images and two members, no work": newScene(2, 0).runs("1.13.4").unpinned("cp-1").roles("os:reader"),
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			if got := s.said(t).Findings; len(got) > 0 {
				t.Errorf("findings: %v", got)
			}
		})
	}
}

func TestCheck_ControlPlanesMustEqualTheMembersOfEtcd(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"a member that is no control plane": {
			scene: func() *scene {
				s := newScene(3, 0)
				view := s.node("cp-2").Etcd
				s.node("cp-2").Etcd = &cluster.EtcdView{Status: view.Status, Members: append(view.Members[:3:3], cluster.EtcdMember{ID: 0xabc, Name: "old-cp", PeerAddresses: []string{"10.9.9.9"}})}

				return s
			}(), check: "etcd-members", severity: cluster.Observed, node: "cp-2",
			says: []string{"4 members as seen from cp-2", "3 control planes", "old-cp (0000000000000abc)", "talosctl etcd remove-member"},
		},
		"a control plane that is no member": {
			scene: func() *scene {
				s := newScene(3, 0)
				s.node("cp-1").Etcd = &cluster.EtcdView{Status: s.node("cp-1").Etcd.Status, Members: s.node("cp-1").Etcd.Members[:2]}

				return s
			}(), check: "etcd-members", severity: cluster.Observed, node: "cp-1",
			says: []string{"2 members as seen from cp-1", "3 control planes", "Wait until all members have joined"},
		},
		"a member replaced by another of the same number": {
			scene: func() *scene {
				s := newScene(3, 0)
				members := append([]cluster.EtcdMember{{ID: 0xdef, Name: "old-cp", PeerAddresses: []string{"10.9.9.9"}}}, s.node("cp-1").Etcd.Members[1:]...)
				s.node("cp-3").Etcd = &cluster.EtcdView{Status: s.node("cp-3").Etcd.Status, Members: members}

				return s
			}(), check: "etcd-members", severity: cluster.Observed, node: "cp-3", says: []string{"old-cp"},
		},
	})

	t.Run("a member is known by its ID where its address differs", func(t *testing.T) {
		t.Parallel()

		s := newScene(3, 0)
		for i := range s.snapshot.Nodes {
			s.snapshot.Nodes[i].Address = "fd00::" + s.snapshot.Nodes[i].Name
		}

		if got := s.said(t).Findings; len(got) > 0 {
			t.Errorf("findings: %v", got)
		}
	})
}

func TestCheck_UnpinnedComponentsAreThoseThatTheRoleRuns(t *testing.T) {
	t.Parallel()

	findings := newScene(1, 1).unpinned("worker-1").unpinned("cp-1").said(t).Findings

	want := map[string]string{
		"worker-1": "the image of kubelet,",
		"cp-1":     "the image of kubelet, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy,",
	}

	for _, finding := range findings {
		if finding.Check != "component-images" {
			continue
		}

		if !strings.Contains(finding.Found, want[finding.Node]) {
			t.Errorf("%s lacks %q", finding, want[finding.Node])
		}

		delete(want, finding.Node)
	}

	if len(want) > 0 {
		t.Errorf("no finding for %v", want)
	}
}

// enabled switches everything on again.
func (s *scene) enabled(node string) *scene {
	s.node(node).Machine.Config.Disabled = nil

	return s
}

// oldProxy is an image of kube-proxy that is older than what runs.
const oldProxy = "mirror.example.com:5000/kube-proxy:v1.33.0"

func (s *scene) retry(node, bootID string) *scene {
	s.policy.Retry = map[string]string{node: bootID}

	return s
}

// image changes the image of the node's journal entry.
func (s *scene) image(node, reference string) *scene {
	entry := s.snapshot.Journal.Entries["id-"+node]
	entry.Image = reference
	s.snapshot.Journal.Entries["id-"+node] = entry

	return s
}

func (s *scene) unpinned(node string) *scene {
	s.node(node).Machine.Config.Images = nil

	return s
}

func (s *scene) withoutProxy(node string) *scene {
	delete(s.node(node).Machine.Config.Images, cluster.Proxy)
	s.node(node).Machine.Config.Disabled = map[cluster.Component]bool{cluster.Proxy: true}

	return s
}

func (s *scene) unreadable(node string) *scene {
	s.node(node).Machine.Config = nil

	return s
}

// machineID gives the node another machine ID.
func (s *scene) machineID(name, id string) *scene {
	if s.node(name).Machine != nil {
		s.node(name).Machine.MachineID = id
	}

	s.node(name).Kube.MachineID = id

	return s
}

func (s *scene) unidentified(name string) *scene { return s.machineID(name, "") }

// cloned gives the node the machine ID of another one.
func (s *scene) cloned(from, to string) *scene { return s.machineID(to, s.node(from).MachineID()) }

// moved gives the node another address.
func (s *scene) moved(name, address string) *scene {
	s.node(name).Address, s.node(name).Kube.Addresses = address, []string{address}

	return s
}

func (s *scene) running(name, talos string) *scene {
	s.node(name).Machine.Talos = version.MustParse(talos)

	return s
}

// TestIdentity_HardwareMayShareAUUIDOrHaveNone: the journal does not depend on it.
func TestIdentity_HardwareMayShareAUUIDOrHaveNone(t *testing.T) {
	t.Parallel()

	want := len(newScene(3, 2).make().Steps)

	for _, uuid := range []string{"", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009"} {
		s := newScene(3, 2)

		for i := range s.snapshot.Nodes {
			s.snapshot.Nodes[i].Machine.UUID, s.snapshot.Nodes[i].Kube.SystemUUID = uuid, uuid
		}

		if made := s.said(t); len(cluster.Blocking(made.Findings)) > 0 || len(made.Steps) != want {
			t.Errorf("UUID %q: %d steps, findings %v", uuid, len(made.Steps), made.Findings)
		}
	}
}

// TestIdentity_CloneIsSeenWhileItDoesNotAnswer: Kubernetes reports its machine ID too.
func TestIdentity_CloneIsSeenWhileItDoesNotAnswer(t *testing.T) {
	t.Parallel()

	findings := newScene(3, 2).cloned("worker-1", "worker-2").silent("worker-1").said(t).Findings

	if !slices.ContainsFunc(findings, func(f cluster.Finding) bool {
		return f.Node == "worker-2" && f.Severity == cluster.Observed && strings.Contains(f.Found, "the same machine ID") &&
			strings.Contains(f.Remedy, "kubectl delete node") && !strings.Contains(f.Remedy, "wipe")
	}) {
		t.Errorf("findings: %v", findings)
	}
}

// TestCheck_SilentMachineIsOnlyRemovedIfItIsGoneForGood: if it has no Node object, there is none to delete.
func TestCheck_SilentMachineIsOnlyRemovedIfItIsGoneForGood(t *testing.T) {
	t.Parallel()

	listed := newScene(3, 2).silent("worker-2")
	listed.node("worker-2").Kube = nil

	for remedy, s := range map[string]*scene{
		"If its machine is gone for good, kubectl delete node worker-2.":          newScene(3, 2).silent("worker-2"),
		"If its machine is gone for good, wait until discovery forgets it, which": listed,
	} {
		if findings := s.said(t).Findings; !slices.ContainsFunc(findings, func(f cluster.Finding) bool {
			return f.Node == "worker-2" && strings.HasPrefix(f.Remedy, "Bring the node back. "+remedy)
		}) {
			t.Errorf("none says %q: %v", remedy, findings)
		}
	}
}

// TestIdentity_OneAddressIsNoCopiedDisk: nothing is wiped, whatever the machine reports.
func TestIdentity_OneAddressIsNoCopiedDisk(t *testing.T) {
	t.Parallel()

	silent := newScene(3, 3).silent("worker-2").silent("worker-3").notReady("worker-3")
	third := newScene(3, 3).notReady("worker-3")
	both := newScene(3, 3)
	third.node("worker-2").Machine.NodeName, third.node("worker-3").Machine.NodeName = "worker-4", "worker-4"

	for title, test := range map[string]struct {
		*scene

		says, does string
	}{
		"both Ready":                   {both, "more than one of them is Ready, so that nobody can tell", "Give each machine an address of its own"},
		"silent":                       {silent, "the machine there does not say which one it registers as, and worker-2 alone is Ready", "talosctl -n 10.0.1.2 get nodename"},
		"registers under a third name": {third, "the machine there registers as worker-4", "talosctl -n 10.0.1.2 get nodename"},
	} {
		s, shared := test.cloned("worker-2", "worker-3").moved("worker-3", "10.0.1.2"), 0

		for _, finding := range s.said(t).Findings {
			if strings.Contains(finding.Remedy, "reset") || strings.Contains(finding.Found, "copied") {
				t.Errorf("%s: %v", title, finding)
			}

			if strings.Contains(finding.Found, "the Node objects worker-2, worker-3 have one address (10.0.1.2)") && strings.Contains(finding.Found, test.says) &&
				strings.Contains(finding.Remedy, test.does) {
				shared++
			}
		}

		if shared != 1 {
			t.Errorf("%s: the address is named by %d findings, want 1: %v", title, shared, s.make().Findings)
		}
	}
}

// TestIdentity_KubernetesTellsTheMachineIDWhereTalosDoesNot: the node is down, or too old to report it.
func TestIdentity_KubernetesTellsTheMachineIDWhereTalosDoesNot(t *testing.T) {
	t.Parallel()

	old := newScene(3, 2).entry("worker-1", cluster.PhaseRebooting, "boot-before")
	old.node("worker-1").Machine.MachineID = ""

	for title, s := range map[string]*scene{
		"down": newScene(3, 2).entry("worker-1", cluster.PhaseRebooting, "boot-before").silent("worker-1"),
		"old":  old,
	} {
		made := s.said(t)
		if blocking := cluster.Blocking(made.Findings); len(blocking) > 0 {
			t.Errorf("%s: %v", title, blocking)
		}

		if first := made.Steps[0]; first.Node != "worker-1" || !first.Finish || first.Key != "id-worker-1" {
			t.Errorf("%s: the first step is %+v", title, first)
		}
	}
}

// TestIdentity_SilentNodeHasTheOpenUpgradeOfItsName: the machine ID that its kubelet registered, if any, may be that
// of another installation.
func TestIdentity_SilentNodeHasTheOpenUpgradeOfItsName(t *testing.T) {
	t.Parallel()

	for _, registered := range []string{"", "id-of-another-installation"} {
		s := newScene(3, 2).entry("worker-1", cluster.PhaseRebooting, "boot-before").silent("worker-1").machineID("worker-1", registered)

		made := s.said(t)
		if blocking := cluster.Blocking(made.Findings); len(blocking) > 0 {
			t.Errorf("registered as %q: %v", registered, blocking)
		}

		if first := made.Steps[0]; first.Node != "worker-1" || !first.Finish || first.Key != "id-worker-1" {
			t.Errorf("registered as %q: the first step is %+v", registered, first)
		}
	}
}

// TestIdentity_EntryOfWhatLeftTheClusterBlocksNothing: neither the entry of a node that is there under another name,
// nor that of an upgrade that ended.
func TestIdentity_EntryOfWhatLeftTheClusterBlocksNothing(t *testing.T) {
	t.Parallel()

	renamed := newScene(3, 2).entry("worker-1", cluster.PhaseInstalled, "boot-worker-1")
	renamed.machineID("worker-2", "id-worker-1").machineID("worker-1", "id-new")

	for title, s := range map[string]*scene{
		"the machine is there under another name": renamed,
		"the machine fell back before it left":    newScene(3, 2).entry("worker-1", cluster.PhaseFallback, "boot-before").machineID("worker-1", "id-after"),
	} {
		if blocking := cluster.Blocking(s.said(t).Findings); len(blocking) > 0 {
			t.Errorf("%s: %v", title, blocking)
		}
	}
}

// TestSkip_FirmChecksStay: neither firm checks nor findings that leave nothing to upgrade can be skipped.
func TestSkip_FirmChecksStay(t *testing.T) {
	t.Parallel()

	lost := newScene(3, 2).runs("1.13.4").aims("1.14.0")
	lost.target.ImageFactory = "factory"

	var everything []string
	for _, check := range cluster.Checks() {
		everything = append(everything, check.Name)
	}

	for behaviour, test := range map[string]struct {
		scene *scene
		check string
	}{
		"an image that is none":         {newScene(3, 2).gets("worker-1", "Not An Image"), "installer-image"},
		"an install image that is none": {newScene(3, 2).installs("worker-1", ":NO:"), "installer-image"},
		"an image for another platform": {newScene(3, 2).gets("worker-1", "factory.talos.dev/aws-installer/"+schematicA), "installer-image"},
		"an install image for another platform": {
			newScene(3, 2).built(schematicA).installs("worker-1", "factory.talos.dev/aws-installer/"+schematicA+":v1.12.6"), "installer-image",
		},
		"another platform behind another way to boot": {
			newScene(3, 2).secure("worker-1").gets("worker-1", "factory.talos.dev/aws-installer/"+schematicA), "installer-image",
		},
		"corrupt data":                      {newScene(3, 2).alarmed("CORRUPT on member 1", "cp-1"), "etcd-alarms"},
		"a factory that is none":            {lost, "installer-image"},
		"a configuration that is not read":  {newScene(3, 2).unreadable("worker-1"), "component-images"},
		"a member that lags":                {newScene(3, 2).status("cp-1", func(e *cluster.EtcdStatus) { e.Index = 9000 }), "etcd-raft-lag"},
		"etcd that does not answer":         {newScene(3, 2).quiet("cp-1"), "etcd-quorum"},
		"a control plane that is not Ready": {newScene(3, 2).notReady("cp-1"), "nodes-ready"},
		"two members that refuse by themselves": {
			newScene(2, 2), "etcd-quorum",
		},
	} {
		made := test.scene.skips(everything...).said(t)

		// Skipping once more changes nothing.
		got, found := find(cluster.Blocking(test.scene.policy.Skip(made.Findings)), test.check)
		if !found || got.Skipped {
			t.Errorf("%s: %v", behaviour, made.Findings)
		}
	}

	two := newScene(2, 0).runs("1.13.1", "cp-1").skips("two-members").said(t)
	if blocking := cluster.Blocking(cluster.Policy{SkipChecks: map[string]bool{"two-members": true, "etcd-quorum": true}}.Skip(two.Findings)); len(blocking) != 1 || blocking[0].Node != "cp-2" || !strings.Contains(blocking[0].String(), "bring both to Talos 1.13 by hand") {
		t.Errorf("of two members the one below 1.13 refuses: %v", two.Findings)
	}
}

// TestCheck_UnknownIsToldFromWrong: unknown is not the same as wrong.
func TestCheck_UnknownIsToldFromWrong(t *testing.T) {
	t.Parallel()

	untold := newScene(3, 2)
	untold.node("worker-1").Machine.Talos = newScene(0, 0).target.Kubernetes

	unread := newScene(3, 2)
	unread.snapshot.Journal, unread.snapshot.JournalError = nil, errAway

	nameless := newScene(3, 2)
	nameless.node("worker-1").Machine.MachineID, nameless.node("worker-1").Kube.MachineID = "", ""

	for check, s := range map[string]*scene{
		"versions of talos-api":    untold,
		"pending-install":          unread,
		"uuid of pending-install":  nameless,
		"schematic":                newScene(3, 2).unreadable("worker-1"),
		"component-images":         newScene(3, 2).unreadable("worker-1"),
		"etcd-quorum":              newScene(3, 2).quiet("cp-2"),
		"secure-boot":              newScene(3, 2).bootUnknown("worker-1"),
		"control-plane-components": newScene(3, 2).missing("cp-2", cluster.Scheduler),
	} {
		name := check[strings.LastIndexByte(check, ' ')+1:]

		if finding, found := find(s.said(t).Findings, name); !found || !finding.Unknown || finding.Severity != cluster.Observed {
			t.Errorf("%s: %+v", check, finding)
		}
	}

	away, leaderless := newScene(3, 2), newScene(3, 2).quiet("cp-2")
	away.cutOff()

	// The member answers, and says what is wrong.
	leaderless.node("cp-2").EtcdError = cluster.ErrQuorum

	for check, s := range map[string]*scene{
		"talos-api":                newScene(3, 2).silent("worker-1"),
		"kubernetes-api":           away,
		"leader of etcd-quorum":    leaderless,
		"secure-boot":              newScene(3, 2).built(schematicA).secure("worker-1"),
		"control-plane-components": newScene(3, 2).ailing("cp-2", cluster.Scheduler, ""),
		"etcd-quorum":              newScene(3, 2).status("cp-2", func(e *cluster.EtcdStatus) { e.Leader = 0 }),
		"installer-image":          newScene(3, 2).gets("worker-1", "Not An Image"),
	} {
		finding, found := find(s.said(t).Findings, check[strings.LastIndexByte(check, ' ')+1:])
		if !found || finding.Unknown {
			t.Errorf("%s: %+v", check, finding)
		}

		if check == "installer-image" && !errors.Is(finding.Err, image.ErrReference) {
			t.Errorf("%s: %v", check, finding.Err)
		}
	}
}

// arguments gives the API server arguments in the machine configuration of the node.
func (s *scene) arguments(name string, arguments ...string) *scene {
	s.node(name).Machine.Config.APIServerArguments = arguments

	return s
}

// TestCheck_ConfigurationThatTheNextTalosRefuses: it only matters for control planes that leave the releases which
// accept it.
func TestCheck_ConfigurationThatTheNextTalosRefuses(t *testing.T) {
	t.Parallel()

	to114 := func() *scene { return newScene(3, 2).runs("1.13.9").aims("1.14.1") }

	runFindings(t, map[string]findingCase{
		"an argument": {
			scene: to114().arguments("cp-2", "audit-log-maxage", "tls-min-version"), check: "configuration", severity: cluster.Observed, node: "cp-2",
			says: []string{"cluster.apiServer.extraArgs", "tls-min-version", "which Talos 1.14 refuses", "no API server any more", "of every control plane first", "TLS 1.2"},
		},
		"two minor versions at once": {
			scene: newScene(3, 2).aims("1.14.1").allows("intermediate").arguments("cp-1", "tls-min-version"), check: "configuration", severity: cluster.Observed, node: "cp-1",
		},
	})

	for name, s := range map[string]*scene{
		"on a worker":       to114().arguments("worker-1", "tls-min-version"),
		"another argument":  to114().arguments("cp-1", "tls-cipher-suites"),
		"within a minor":    newScene(3, 2).runs("1.13.1").arguments("cp-1", "tls-min-version"),
		"behind it already": newScene(3, 2).runs("1.14.0").aims("1.14.1").arguments("cp-1", "tls-min-version"),
		"held":              to114().arguments("cp-1", "tls-min-version").holds("cp-1"),
		"not read, worker":  to114().unreadable("worker-1"),
	} {
		if finding, found := find(s.said(t).Findings, "configuration"); found {
			t.Errorf("%s: %+v", name, finding)
		}
	}

	if finding, found := find(to114().unreadable("cp-1").said(t).Findings, "configuration"); !found || !finding.Unknown || !strings.Contains(finding.Found, "cp-1") {
		t.Errorf("not read: %+v", finding)
	}
}

// TestCheck_IPVSThatTheNextTalosDoesNotLoad: the mode is in the configurations of control planes, the modules in
// those of all nodes.
func TestCheck_IPVSThatTheNextTalosDoesNotLoad(t *testing.T) {
	t.Parallel()

	to115 := func() *scene { return newScene(3, 2).runs("1.14.1").aims("1.15.0") }
	ipvs := func(modules ...string) *scene {
		s := to115()

		for i := range s.snapshot.Nodes {
			config := s.snapshot.Nodes[i].Machine.Config
			config.IPVS = s.snapshot.Nodes[i].Role == cluster.ControlPlane
			config.KernelModules = modules
		}

		return s
	}
	change := func(s *scene, name string, how func(*cluster.MachineConfig)) *scene {
		how(s.node(name).Machine.Config)

		return s
	}
	named := func(c *cluster.MachineConfig) { c.KernelModules = []string{"br_netfilter", "ip_vs", "ip_vs_rr"} }

	runFindings(t, map[string]findingCase{
		"named nowhere": {
			scene: ipvs("br_netfilter"), check: "configuration", severity: cluster.Observed,
			says: []string{"IPVS mode", "Talos 1.15", "cp-1, cp-2, cp-3", "worker-2", "machine.kernel.modules", "ip_vs_rr"},
		},
		"without a scheduler": {
			scene: ipvs("ip_vs", "ip_vs_ftp"), check: "configuration", severity: cluster.Observed, says: []string{"a scheduler of it", "worker-1, worker-2"},
		},
		"named on all but one": {
			scene: change(ipvs("ip_vs", "ip_vs_rr"), "worker-2", func(c *cluster.MachineConfig) { c.KernelModules = nil }), check: "configuration", severity: cluster.Observed,
			says: []string{"after the upgrade: worker-2"},
		},
	})

	for name, s := range map[string]*scene{
		"named":             change(ipvs("ip_vs", "ip_vs_rr"), "cp-1", named),
		"another mode":      to115(),
		"no kube-proxy":     off(ipvs()),
		"within a minor":    ipvs().aims("1.14.2"),
		"not read, no IPVS": to115().unreadable("worker-1"),
	} {
		if finding, found := find(s.said(t).Findings, "configuration"); found {
			t.Errorf("%s: %+v", name, finding)
		}
	}

	for name, s := range map[string]*scene{
		"a worker is not read":         ipvs("ip_vs", "ip_vs_lc").unreadable("worker-1"),
		"no control plane can be read": to115().unreadable("cp-1").unreadable("cp-2").unreadable("cp-3"),
	} {
		if finding, found := find(s.said(t).Findings, "configuration"); !found || !finding.Unknown {
			t.Errorf("%s: %+v", name, finding)
		}
	}
}

// off disables kube-proxy in all configurations.
func off(s *scene) *scene {
	for i := range s.snapshot.Nodes {
		s.snapshot.Nodes[i].Machine.Config.Disabled = map[cluster.Component]bool{cluster.Proxy: true}
	}

	return s
}

// TestCheck_NodesThatCannotBeUpgradedSayWhy: waiting does not help, and nothing else is wrong with them.
func TestCheck_NodesThatCannotBeUpgradedSayWhy(t *testing.T) {
	t.Parallel()

	vendor := func() *scene {
		s := newScene(3, 2)
		s.node("worker-1").Machine.Talos, s.node("worker-1").Machine.TalosTag = version.Version{}, "acme-2026.11"

		return s
	}

	runFindings(t, map[string]findingCase{
		"a version that is none": {
			scene: vendor(), check: "talos-api", severity: cluster.Permanent, node: "worker-1",
			says: []string{`worker at 10.0.1.1 runs Talos "acme-2026.11"`, "not a semantic version", `node_overrides = { "worker-1" = { hold = true } }`},
		},
		"a container": {
			scene: newScene(1, 1).on("container"), check: "versions", severity: cluster.Permanent,
			says: []string{"no upgrade where it runs in a container", "worker-1, cp-1", "leave talos_version out"},
		},
	})

	if _, found := find(newScene(3, 2).on("container").oneKernel().said(t).Findings, "own-node"); found {
		t.Error("containers: the kernel of their host is taken for the one of a node")
	}

	for name, scene := range map[string]*scene{
		"held": vendor().holds("worker-1"), "containers at the target": newScene(1, 1).on("container").runs("1.13.4"),
	} {
		if blocking := cluster.Blocking(scene.said(t).Findings); len(blocking) > 0 {
			t.Errorf("%s: %v", name, blocking)
		}
	}
}

// TestSkip_ChecksBecomeWarningsAndTheRollGoesOn: a check that is skipped must not
// leave a node without an image.
func TestSkip_ChecksBecomeWarningsAndTheRollGoesOn(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		scene *scene
		check string
		// image is the one that worker-1 gets.
		image string
	}{
		"schematic": {newScene(3, 2).extended("worker-1", "drbd"), "schematic", generic + ":v1.13.4"},
		"schematic of an override": {
			newScene(3, 2).built(schematicA).gets("worker-1", "registry.example.com/talos"), "schematic", "registry.example.com/talos:v1.13.4",
		},
		"schematic of a node's own image": {
			newScene(3, 2).built(schematicA).installs("worker-1", overrideB+":v1.12.6"), "schematic", overrideB + ":v1.13.4",
		},
		"secure-boot": {
			newScene(3, 2).built(schematicA).secure("worker-1"), "secure-boot", "factory.talos.dev/metal-installer/" + schematicA + ":v1.13.4",
		},
		"secure-boot that is not told": {newScene(3, 2).bootUnknown("worker-1"), "secure-boot", generic + ":v1.13.4"},
		"alarms":                       {newScene(3, 2).alarmed(alarmNoSpace, "cp-1"), "etcd-alarms", generic + ":v1.13.4"},
		"size":                         {newScene(3, 2).sized("cp-1", 2040), "etcd-db-size", generic + ":v1.13.4"},
		"components":                   {newScene(3, 2).missing("cp-1", cluster.APIServer), "control-plane-components", generic + ":v1.13.4"},
		"disk":                         {newScene(3, 2).pressed("worker-1", "DiskPressure"), "disk-space", generic + ":v1.13.4"},
		"configuration": {
			newScene(3, 2).runs("1.13.1").aims("1.14.1").arguments("cp-1", "tls-min-version"), "configuration",
			"factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.14.1",
		},
		"own node": {newScene(3, 2).runsHere("worker-1"), "own-node", generic + ":v1.13.4"},
		"external": {newScene(3, 2).stage("cp-1", cluster.StageRebooting), "external-changes", generic + ":v1.13.4"},
		"two-members": {
			newScene(2, 2).runs("1.13.1"), "two-members", generic + ":v1.13.4",
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			refused, found := find(test.scene.said(t).Findings, test.check)
			if !found || refused.Severity == cluster.Advice || refused.Skipped {
				t.Fatalf("without skipping: %v", test.scene.said(t).Findings)
			}

			made := test.scene.skips(test.check).said(t)

			got, found := find(made.Findings, test.check)
			if !found || got.Severity != cluster.Advice || !got.Skipped || got.Found != refused.Found || got.Unknown != refused.Unknown {
				t.Errorf("skipped: %+v, want %+v as advice", got, refused)
			}

			if blocking := cluster.Blocking(made.Findings); len(blocking) > 0 {
				t.Errorf("it still stops: %v", blocking)
			}

			first := slices.IndexFunc(made.Steps, func(s plan.Step) bool { return s.Node == "worker-1" })
			if first < 0 || made.Steps[first].Image != test.image {
				t.Errorf("worker-1 is to get another image than %s:\n%s", test.image, render(made))
			}
		})
	}
}

// TestSkip_OneAcceptsNothingElse: an image may fail several checks.
func TestSkip_OneAcceptsNothingElse(t *testing.T) {
	t.Parallel()

	s := newScene(3, 1).built(schematicA).installs("worker-1", overrideB+":v1.12.6").secure("worker-1").skips("schematic")

	made := s.said(t)
	schematic, _ := find(made.Findings, "schematic")
	boot, _ := find(made.Findings, "secure-boot")

	if !schematic.Skipped || boot.Severity != cluster.Permanent || made.Steps[0].Image != "" {
		t.Errorf("plan:\n%s", render(made))
	}

	if made := s.skips("schematic", "secure-boot").said(t); len(cluster.Blocking(made.Findings)) > 0 || made.Steps[0].Image != overrideB+":v1.13.4" {
		t.Errorf("with both skipped:\n%s", render(made))
	}
}
