// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestWhatWaitingMayCureStopsAnApplyOnly(t *testing.T) {
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
			says: []string{"same machine ID as worker-1 (id-worker-1)", "talosctl -n 10.0.1.2 reset --system-labels-to-wipe STATE", "delete the Node object of the old name"},
		},
		"one of two with one machine ID is done": {
			scene: newScene(3, 2).running("worker-1", "1.13.4").cloned("worker-1", "worker-2"), check: "pending-install", severity: cluster.Observed, node: "worker-2",
			says: []string{"same machine ID as worker-1"},
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
				"rebooted after 0001-01-01", "remove the key id-worker-1: kubectl -n kube-system edit configmap talosupgrade-journal",
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

func TestAdviceStopsNothing(t *testing.T) {
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

func TestWhatDoesNotStandInTheWayIsNotMentioned(t *testing.T) {
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

func TestControlPlanesMustEqualTheMembersOfEtcd(t *testing.T) {
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
			says: []string{"2 members as seen from cp-1", "3 control planes", "Let members join"},
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

func TestUnpinnedComponentsAreThoseThatTheRoleRuns(t *testing.T) {
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

// oldProxy is an image of kube-proxy from before what runs.
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
