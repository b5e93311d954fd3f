// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// pathCase expects one blocking finding, at an attribute and a place within it.
type pathCase struct {
	scene     *scene
	severity  cluster.Severity
	node      string
	attribute string
	within    []cluster.Within
	says      []string
}

func runPaths(t *testing.T, cases map[string]pathCase) {
	t.Helper()

	for behaviour, test := range cases {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			// What could not be listed is a finding of its own.
			findings := slices.DeleteFunc(cluster.Blocking(test.scene.said(t).Findings), func(f cluster.Finding) bool { return f.Check == "kubernetes-api" })
			if len(findings) != 1 {
				t.Fatalf("findings: %v; want one", findings)
			}

			got := findings[0]
			if got.Severity != test.severity || got.Node != test.node || got.Attribute != test.attribute || !slices.Equal(got.Within, test.within) {
				t.Errorf("finding %+v; want severity %d at node %q, %s %v", got, test.severity, test.node, test.attribute, test.within)
			}

			for _, part := range test.says {
				if !strings.Contains(got.String(), part) {
					t.Errorf("the finding does not say %q: %s", part, got)
				}
			}
		})
	}
}

func TestOverrides_NodesThatTheyNameMustBeThere(t *testing.T) {
	t.Parallel()

	index := func(i int) []cluster.Within { return []cluster.Within{cluster.Index(i)} }
	key := func(name string) []cluster.Within { return []cluster.Within{cluster.Key(name)} }

	unlisted := newScene(3, 2).canary("worker-9")
	unlisted.snapshot.DiscoveryError = errAway

	alone := newScene(3, 2).holds("worker-9")
	alone.snapshot.KubernetesError = errAway

	foreign := newScene(3, 2).canary("flatcar-1")
	foreign.snapshot.Foreign = []string{"flatcar-1"}

	runPaths(t, map[string]pathCase{
		"a canary that does not exist": {
			scene: newScene(3, 2).canary("worker-1", "worker-9"), severity: cluster.Permanent, attribute: "canary", within: index(1),
			says: []string{"no node worker-9", "kubectl get nodes"},
		},
		"a canary that is a control plane": {
			scene: newScene(3, 2).canary("cp-1"), severity: cluster.Permanent, attribute: "canary", within: index(0),
			says: []string{"cp-1 is a control plane", "only workers"},
		},
		"a canary that is held": {
			scene: newScene(3, 2).canary("worker-2").holds("worker-2"), severity: cluster.Permanent, attribute: "canary", within: index(0),
			says: []string{"worker-2", "left alone", "take its hold away"},
		},
		"a canary of another operating system": {
			scene: foreign, severity: cluster.Permanent, attribute: "canary", within: index(0), says: []string{"flatcar-1 does not run Talos"},
		},
		"a canary that may only not have been listed": {
			scene: unlisted, severity: cluster.Observed, attribute: "canary", within: index(0), says: []string{"there seems to be no node worker-9"},
		},
		"a hold of a node that does not exist": {
			scene: newScene(3, 2).holds("worker-9"), severity: cluster.Permanent, attribute: "node_overrides", within: key("worker-9"),
			says: []string{"no node worker-9", "remove the entry"},
		},
		"an override of a node that may only not have been listed": {
			scene: alone, severity: cluster.Observed, attribute: "node_overrides", within: key("worker-9"),
		},
		"a retry of a node that does not exist": {
			scene: newScene(3, 2).retry("worker-9", "b"), severity: cluster.Permanent, attribute: "node_overrides", within: key("worker-9"),
		},
		"an image of a node that does not exist": {
			scene: newScene(3, 2).gets("worker-9", generic), severity: cluster.Permanent, attribute: "node_overrides", within: key("worker-9"),
		},
	})
}

// TestOverrides_TagIsTheOneOfTheTarget: images from modules carry a tag, and each step nevertheless uses its own.
func TestOverrides_TagIsTheOneOfTheTarget(t *testing.T) {
	t.Parallel()

	tagged := func(s *scene, tag string) *scene {
		s.target.InstallerImage = generic + ":" + tag

		return s
	}
	byLabels := func(s *scene, tag string, hold bool) *scene {
		s.policy.SelectorOverrides = []cluster.SelectorOverride{{Selector: has("gpu"), Image: generic + ":" + tag, Hold: hold}}

		return s
	}
	key := []cluster.Within{cluster.Key("worker-2"), cluster.Field("installer_image")}
	index := []cluster.Within{cluster.Index(0), cluster.Field("installer_image")}

	for behaviour, test := range map[string]struct {
		scene *scene
		// attribute is empty if nothing is said.
		attribute string
		within    []cluster.Within
		severity  cluster.Severity
		says      []string
	}{
		"of the target":                       {scene: tagged(newScene(3, 2), "v1.13.4")},
		"of the last of two steps":            {scene: tagged(newScene(3, 2).runs("1.12.6").aims("1.14.1").walks(), "v1.14.1")},
		"of the target, without its v":        {scene: tagged(newScene(3, 2), "1.13.4")},
		"of a node, of the target":            {scene: newScene(3, 2).gets("worker-2", generic+":v1.13.4")},
		"of nodes with labels, of the target": {scene: byLabels(newScene(3, 2), "v1.13.4", false)},
		"of another version": {
			scene: tagged(newScene(3, 2), "v1.13.3"), attribute: "installer_image", severity: cluster.Permanent,
			says: []string{generic + ":v1.13.3 has the tag v1.13.3, and talos_version is 1.13.4", "Set talos_version to 1.13.3, or give the image the tag v1.13.4"},
		},
		"of a step before the last": {
			scene:     tagged(newScene(3, 2).runs("1.12.6").aims("1.14.1").walks(), "v1.13.4"),
			attribute: "installer_image", severity: cluster.Permanent, says: []string{"talos_version is 1.14.1"},
		},
		"of a node, of another version": {
			scene: newScene(3, 2).gets("worker-2", generic+":v1.13.3"), attribute: "node_overrides", within: key, severity: cluster.Permanent,
			says: []string{"has the tag v1.13.3"},
		},
		"of a held node, of another version": {
			scene: newScene(3, 2).gets("worker-2", generic+":v1.13.3").holds("worker-2"), attribute: "node_overrides", within: key, severity: cluster.Advice,
			says: []string{"its nodes are held, and will be refused"},
		},
		"of nodes with labels, of another version": {
			scene: byLabels(newScene(3, 2), "v1.13.3", false), attribute: "selector_overrides", within: index, severity: cluster.Permanent,
			says: []string{"has the tag v1.13.3"},
		},
		"of held nodes with labels, of another version": {
			scene: byLabels(newScene(3, 2), "v1.13.3", true), attribute: "selector_overrides", within: index, severity: cluster.Advice,
			says: []string{"its nodes are held"},
		},
		"where Talos stays as it is": {
			scene: tagged(newScene(3, 2).unmanaged().asserts("1.35.0"), "v1.13.4"), attribute: "installer_image", severity: cluster.Advice,
			says: []string{"talos_version is not set, so no node is upgraded to it", "Set talos_version to 1.13.4, or leave the image out"},
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			found := slices.DeleteFunc(test.scene.said(t).Findings, func(f cluster.Finding) bool { return f.Check != cluster.CheckInstallerImage })

			if test.attribute == "" {
				if len(found) > 0 {
					t.Errorf("findings: %v", found)
				}

				return
			}

			if len(found) != 1 || found[0].Severity != test.severity || found[0].Attribute != test.attribute || !slices.Equal(found[0].Within, test.within) {
				t.Fatalf("findings %+v; want one of severity %d at %s %v", found, test.severity, test.attribute, test.within)
			}

			for _, part := range test.says {
				if !strings.Contains(found[0].String(), part) {
					t.Errorf("the finding does not say %q: %s", part, found[0])
				}
			}
		})
	}
}

func TestOverrides_ImageOfOneNodeIsItsOwn(t *testing.T) {
	t.Parallel()

	const pinnedDigest = "sha256:" + schematicA

	own := []cluster.Within{cluster.Key("worker-2"), cluster.Field("installer_image")}

	runPaths(t, map[string]pathCase{
		"an image without the node's schematic": {
			scene: newScene(3, 2).built(schematicA).gets("worker-2", "registry.example.com/talos"), severity: cluster.Permanent, node: "worker-2",
			attribute: "node_overrides", within: own, says: []string{"does not name the schematic", schematicA},
		},
		"one image for two steps": {
			scene:    newScene(3, 2).runs("1.12.6").aims("1.14.0").walks().gets("worker-2", generic+"@"+pinnedDigest),
			severity: cluster.Permanent, attribute: "node_overrides", within: own,
			says: []string{generic + "@" + pinnedDigest + " is one image", "needs another one before it, of Talos 1.13.", "Set installer_image to " + generic + ", of which each step takes the tag"},
		},
		"an image that is none": {
			scene: newScene(3, 2).gets("worker-2", "Not An Image"), severity: cluster.Permanent, node: "worker-2",
			attribute: "node_overrides", within: own, says: []string{"Not An Image", "Correct the installer_image of this node"},
		},
	})

	lost := newScene(3, 2).runs("1.13.4").aims("1.14.0")
	lost.target.ImageFactory = "factory"

	secret := newScene(3, 2).runs("1.13.4").aims("1.14.0").gets("worker-2", "registry.example.com/talos")
	secret.target.ImageFactory = "user:s3cret@factory.example.com"

	// The provider block is at fault once, however many nodes want the factory.
	runPaths(t, map[string]pathCase{
		"a factory that is none": {
			scene: lost, severity: cluster.Permanent,
			says: []string{`"factory" has no dot and no port`, "check installer-image", "Correct image_factory_url in the provider block."},
		},
		"a factory with a password": {scene: secret, severity: cluster.Permanent, says: []string{"Correct image_factory_url in the provider block."}},
	})

	for _, finding := range secret.said(t).Findings {
		if strings.Contains(finding.String(), "s3cret") {
			t.Errorf("a finding repeats the password: %s", finding)
		}
	}

	s := newScene(1, 2).gets("worker-2", overrideB)
	s.target.InstallerImage = "registry.example.com/talos"

	want := map[string]string{
		"worker-1": "registry.example.com/talos:v1.13.4", "worker-2": overrideB + ":v1.13.4", "cp-1": "registry.example.com/talos:v1.13.4",
	}

	for _, step := range s.said(t).Steps {
		if step.Image != want[step.Node] || step.Demanded != (step.Node == "worker-2") {
			t.Errorf("image of %s: %s, demanded: %t", step.Node, step.Image, step.Demanded)
		}
	}

	t.Run("a schematic of one node alone is a turn of that node alone", func(t *testing.T) {
		t.Parallel()

		wantOrder(t, newScene(1, 2).runs("1.13.4").gets("worker-2", overrideB).said(t), "worker-2", "worker-1 cp-1")
	})
}

func TestOverrides_HeldNodesAreLeftAloneAndStillCount(t *testing.T) {
	t.Parallel()

	t.Run("they are neither moved nor counted as the target's", func(t *testing.T) {
		t.Parallel()

		made := newScene(3, 3).runs("1.13.4", "worker-1").holds("worker-2").said(t)
		wantOrder(t, made, "worker-3 cp-1 cp-2 cp-3", "worker-1")

		if made.Total() != 5 || !slices.Equal(made.Held, []string{"worker-2"}) {
			t.Errorf("total %d, held %v", made.Total(), made.Held)
		}
	})

	quiet := map[string]*scene{
		"a cluster in which only the held node is behind": newScene(3, 2).runs("1.13.4").runs("1.12.6", "worker-1").holds("worker-1"),
		"a held node that is newer":                       newScene(3, 2).runs("1.14.0", "worker-1").holds("worker-1"),
		"a held worker that does not answer":              newScene(3, 2).silent("worker-1").notReady("worker-1").holds("worker-1"),
		"a held worker without a Node object":             newScene(3, 2).unregistered("worker-1").holds("worker-1"),
		"a kubelet three minor versions behind":           newScene(3, 2).asserts("1.35.0").component("worker-1", cluster.Kubelet, "1.32.0").holds("worker-1"),
		"a held node that no matrix knew anyway":          newScene(3, 2).runs("1.10.0", "worker-1").asserts("1.34.3").holds("worker-1"),
	}

	// The first unavailable worker takes a whole budget of one.
	quiet["a held worker that does not answer"].policy.MaxUnavailable = share("2")

	for behaviour, s := range quiet {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			if blocking := cluster.Blocking(s.said(t).Findings); len(blocking) > 0 {
				t.Errorf("findings: %v", blocking)
			}
		})
	}

	hold := func(node string) []cluster.Within { return []cluster.Within{cluster.Key(node), cluster.Field("hold")} }
	walk := func() *scene { return newScene(3, 2).walks() }

	runPaths(t, map[string]pathCase{
		"its Talos does not run the new Kubernetes": {
			scene: walk().runs("1.11.0", "worker-1").asserts("1.35.1").holds("worker-1"), severity: cluster.Permanent, node: "worker-1",
			attribute: "node_overrides", within: hold("worker-1"), says: []string{"Talos 1.11.0 needs Kubernetes 1.34 or older", "Take its hold away"},
		},
		"its kubelet is not run by the new Talos": {
			scene: walk().kubernetes("1.32.0").component("worker-1", cluster.Kubelet, "1.31.0").aims("1.14.0").holds("worker-1"), severity: cluster.Permanent, node: "worker-1",
			attribute: "node_overrides", within: hold("worker-1"), says: []string{"Talos 1.14.0 needs Kubernetes 1.32 or newer, and its kubelet is 1.31.0"},
		},
		"its kubelet falls too far behind": {
			scene: walk().runs("1.13.4", "worker-1").asserts("1.36.0").component("worker-1", cluster.Kubelet, "1.32.0").holds("worker-1"), severity: cluster.Permanent, node: "worker-1",
			attribute: "node_overrides", within: hold("worker-1"), says: []string{"kubelet 1.32.0 would be 4 minor versions behind"},
		},
		"its API server would be older than kubelets": {
			scene: walk().asserts("1.35.1").holds("cp-1"), severity: cluster.Permanent, node: "cp-1",
			attribute: "node_overrides", within: hold("cp-1"), says: []string{"kubelets on 1.35.1 would be newer than its kube-apiserver 1.34.2"},
		},
		"its scheduler falls too far behind": {
			scene: func() *scene {
				s := walk().asserts("1.35.1").component("cp-1", cluster.Scheduler, "1.33.0").component("cp-1", cluster.APIServer, "1.35.0")

				return s.holds("cp-1")
			}(), severity: cluster.Permanent, node: "cp-1",
			attribute: "node_overrides", within: hold("cp-1"), says: []string{"kube-scheduler 1.33.0 would be 2 minor versions behind"},
		},
		"an open entry of an earlier run": {
			scene: walk().entry("worker-1", cluster.PhaseInstalled, "b").holds("worker-1"), severity: cluster.Observed, node: "worker-1",
			attribute: "node_overrides", within: hold("worker-1"), says: []string{"in the middle of its upgrade", "Take its hold away and apply"},
		},
		"our cordon of an earlier run": {
			scene: func() *scene {
				s := walk().cordoned("worker-1", "run-1").holds("worker-1")
				s.policy.MaxUnavailable = share("2")

				return s
			}(), severity: cluster.Observed, node: "worker-1",
			attribute: "node_overrides", within: hold("worker-1"),
		},
		"a control plane that does not answer": {
			scene: walk().silent("cp-2").holds("cp-2"), severity: cluster.Observed, node: "cp-2", says: []string{"did not answer"},
		},
		"a held worker takes up the budget": {
			scene: walk().notReady("worker-1").holds("worker-1"), severity: cluster.Observed,
			says: []string{"max_unavailable = 1 of 2 workers is 1", "worker-1 (not ready)"},
		},
	})
}

func (s *scene) canary(names ...string) *scene {
	s.policy.Canary = append(s.policy.Canary, names...)

	return s
}

func (s *scene) holds(name string) *scene {
	if s.policy.Hold == nil {
		s.policy.Hold = map[string]bool{}
	}

	s.policy.Hold[name] = true

	return s
}

func (s *scene) gets(node, repository string) *scene {
	if s.policy.Images == nil {
		s.policy.Images = map[string]string{}
	}

	s.policy.Images[node] = repository

	return s
}

// walks allows paths through several minor versions.
func (s *scene) walks() *scene {
	s.policy.AllowIntermediate = true

	return s
}

// names sets versions to walk through.
func (s *scene) names(texts ...string) *scene {
	for _, text := range texts {
		s.policy.Intermediate = append(s.policy.Intermediate, version.MustParse(text))
	}

	return s
}

// through walks through the versions.
func (s *scene) through(texts ...string) *scene { return s.names(texts...).walks() }

func (s *scene) unregistered(name string) *scene {
	s.node(name).Kube = nil

	return s
}

func (s *scene) gone(name string) *scene {
	s.silent(name).notReady(name).node(name).Gone = true

	return s
}

// left turns the node into a worker that only discovery still lists.
func (s *scene) left(name string) *scene {
	s.silent(name).unregistered(name).node(name).Gone = true

	return s
}
