// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

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

func TestTargetsThatNoWaitingMakesPossibleArePermanent(t *testing.T) {
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
		"a skipped minor names the line in between": {
			scene: newScene(3, 2).runs("1.13.4").runs("1.11.6", "worker-1"), check: "versions", severity: cluster.Permanent,
			says: []string{
				"from Talos 1.11.6 to 1.13.4 would skip the release line 1.12", "Talos 1.11.6, Kubernetes 1.34.2 -> Talos 1.12.", "-> Talos 1.13.4",
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
				"from Kubernetes 1.34.2 to 1.36.0 would skip the release line 1.35", "Talos 1.12.6, Kubernetes 1.34.2 -> Talos 1.13.4 -> Kubernetes 1.35.",
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
			says: []string{"talos 1.16", "1.2 to 1.15", "allow_unknown_versions = true"},
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

func TestNodeImagesThatCannotBeChosenArePermanent(t *testing.T) {
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
		"an installer_image with a tag": {
			scene: func() *scene {
				s := newScene(1, 0)
				s.target.InstallerImage = generic + ":v1.13.4"

				return s
			}(), check: "installer-image", severity: cluster.Permanent, node: "cp-1",
			says: []string{generic + ":v1.13.4", "give the repository alone", "Correct installer_image"},
		},
	})
}

func TestWhatCanBeOrderedIsNotHeldAgainstATarget(t *testing.T) {
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

// TestAWayOfSeveralHopsIsObjectedToOnce looks at what concerns every turn of a
// node in the same way.
func TestAWayOfSeveralHopsIsObjectedToOnce(t *testing.T) {
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

// Nothing finishes the turn of a node while Talos is not managed, so the node is
// missed.
func TestASilentNodeIsMissedWhereTalosIsNotManaged(t *testing.T) {
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

// TestKubernetesOfAnotherClusterIsRefused: two sites may use the same addresses,
// and then only the boots of their machines tell one from the other.
func TestKubernetesOfAnotherClusterIsRefused(t *testing.T) {
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

// elsewhere makes Kubernetes tell of other boots than the machines do.
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

// TestReaderThatKubernetesTellsNothingIsTold: that no image is named is not what
// is wrong.
func TestReaderThatKubernetesTellsNothingIsTold(t *testing.T) {
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

// TestFindingsAboutAllNodesNameTenOfThem: they are read by people.
func TestFindingsAboutAllNodesNameTenOfThem(t *testing.T) {
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
