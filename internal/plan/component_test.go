// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestComponent_KubeletsOfWorkersRestartBesideEachOther(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		scene *scene
		// busy are nodes whose kubelets are restarting.
		busy string
		want string
	}{
		"one by default":                                 {scene: behind(newScene(3, 3), "1"), want: "worker-1"},
		"nothing beside it by default":                   {scene: behind(newScene(3, 3), "1"), busy: "worker-1"},
		"as many as the budget allows":                   {scene: behind(newScene(3, 3), "2"), want: "worker-1 worker-2"},
		"a slot is refilled":                             {scene: behind(newScene(3, 3), "2"), busy: "worker-1", want: "worker-2"},
		"a share of the workers":                         {scene: behind(newScene(3, 6), "50%"), want: "worker-1 worker-2 worker-3"},
		"a cordon does not count":                        {scene: behind(newScene(3, 3).cordoned("worker-3", ""), "2"), want: "worker-1 worker-2"},
		"a worker that is not Ready counts":              {scene: behind(newScene(3, 3).notReady("worker-3"), "2").component("worker-3", cluster.Kubelet, "1.35.0"), want: "worker-1"},
		"one that needs it itself costs nothing":         {scene: behind(newScene(3, 3).notReady("worker-3"), "2"), want: "worker-1 worker-3"},
		"and it goes first where nothing is left":        {scene: behind(newScene(3, 3).notReady("worker-3"), "1"), want: "worker-3"},
		"one may always restart where nothing else does": {scene: behind(newScene(3, 3).notReady("worker-3"), "1").component("worker-3", cluster.Kubelet, "1.35.0"), want: "worker-1"},
		"but not beside another":                         {scene: behind(newScene(3, 3).notReady("worker-3"), "1").component("worker-3", cluster.Kubelet, "1.35.0"), busy: "worker-1"},
		"canaries alone":                                 {scene: behind(newScene(3, 3).canary("worker-3"), "3"), want: "worker-3"},
		"canaries beside each other":                     {scene: behind(newScene(3, 4).canary("worker-3", "worker-4"), "3"), want: "worker-3 worker-4"},
		"nothing else while a canary restarts":           {scene: behind(newScene(3, 3).canary("worker-3"), "3"), busy: "worker-3"},
		"no kubelet of a control plane beside those of canaries": {
			scene: behind(newScene(3, 3).canary("worker-3"), "3").component("cp-1", cluster.Kubelet, "1.34.2"), busy: "worker-3",
		},
		"the kubelet of a control plane alone": {scene: behind(newScene(3, 3), "3").component("cp-1", cluster.Kubelet, "1.34.2"), want: "cp-1"},
		"and nothing beside it":                {scene: behind(newScene(3, 3), "3").component("cp-1", cluster.Kubelet, "1.34.2"), busy: "cp-1"},
		"a scheduler alone":                    {scene: behind(newScene(3, 3), "3").component("cp-2", cluster.Scheduler, "1.34.2"), want: "cp-2"},
		"the budget of reboots is another":     {scene: budgeted(behind(newScene(3, 3), "1"), "3"), want: "worker-1"},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			made := test.scene.said(t)

			var busy []plan.Step

			for _, name := range strings.Fields(test.busy) {
				busy = append(busy, made.Steps[slices.IndexFunc(made.Steps, func(s plan.Step) bool { return s.Node == name })])
			}

			if got := stepNames(plan.Plan{Steps: made.Startable(test.scene.snapshot, busy)}); got != test.want {
				t.Errorf("startable: %q, want %q, of\n%s", got, test.want, render(made))
			}
		})
	}
}

func budgeted(s *scene, text string) *scene {
	s.policy.MaxUnavailable = share(text)

	return s
}

// TestComponent_ManifestsAreSyncedAlone: they come last, when nothing else goes on.
func TestComponent_ManifestsAreSyncedAlone(t *testing.T) {
	t.Parallel()

	s := behind(newScene(1, 1), "2")
	begun := s.said(t).Steps[:1]

	s.component("worker-1", cluster.Kubelet, "1.35.0").due()

	made := s.said(t)
	if started := made.Startable(s.snapshot, begun); len(started) != 0 {
		t.Errorf("beside a kubelet %v begins", started)
	}

	started := made.Startable(s.snapshot, nil)
	if len(started) != 1 || started[0].Component != cluster.Manifests {
		t.Fatalf("%v begins, want the manifests", started)
	}

	if beside := behind(newScene(1, 1), "2").said(t).Startable(s.snapshot, started); len(beside) != 0 {
		t.Errorf("beside the manifests %v begins", beside)
	}
}

func TestComponent_ManifestsAreAStepOfNoNode(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		scene *scene
		want  string
	}{
		"behind each minor version, for the pods must keep up": {
			scene: newScene(1, 0).runs("1.13.4").asserts("1.36.0").through("1.35.1"), want: "1:1.34.2->1.35.1 2:1.35.1->1.36.0",
		},
		"once where Talos manages no kube-proxy": {
			scene: newScene(1, 0).proxyless().runs("1.13.4").asserts("1.36.0").through("1.35.1"), want: "2:1.35.1->1.36.0",
		},
		"behind Kubernetes, not behind Talos before it": {scene: newScene(1, 0).asserts("1.35.0"), want: "2:1.34.2->1.35.0"},
		"behind Talos, though Kubernetes is met":        {scene: newScene(1, 0).asserts("1.34.2"), want: "1:1.34.2->1.34.2"},
		"behind the last hop of Talos alone":            {scene: newScene(1, 0).walks().runs("1.11.2"), want: "2:1.34.2->1.34.2"},
		"not where nothing is to be done":               {scene: newScene(1, 0).runs("1.13.4").asserts("1.34.2")},
		"not without a sync":                            {scene: newScene(1, 0).asserts("1.35.0").unsynced()},
		"not without a sync, though it is due":          {scene: newScene(1, 0).runs("1.13.4").due().unsynced()},
		"where it is due":                               {scene: newScene(1, 0).runs("1.13.4").due(), want: "1:1.34.2->1.34.2"},
		"once where it is due and follows anyway":       {scene: newScene(1, 0).due(), want: "1:1.34.2->1.34.2"},
		"not where there is no way":                     {scene: newScene(1, 0).kubernetes("1.30.4").due()},
		"for pods alone": {
			scene: newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").pods("1.34.2").asserts("1.35.0"), want: "1:1.34.2->1.35.0",
		},
		"for pods that were left far behind, in one go": {
			scene: newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").pods("1.32.0").asserts("1.35.0"), want: "1:1.35.0->1.35.0",
		},
		"not for pods alone that nobody waits for": {
			scene: newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").pods("1.34.2").asserts("1.35.0").unhurried(),
		},
		"for them where a sync is due": {
			scene: newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").pods("1.34.2").asserts("1.35.0").unhurried().due(), want: "1:1.34.2->1.35.0",
		},
		"once for them behind what else moves": {
			scene: newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").pods("1.34.2").component("worker-1", cluster.Kubelet, "1.34.2").asserts("1.35.0").unhurried(),
			want:  "1:1.34.2->1.35.0",
		},
		"behind each minor version where nobody waits for the pods": {
			scene: newScene(1, 0).runs("1.13.4").asserts("1.36.0").through("1.35.1").unhurried(), want: "1:1.34.2->1.35.1 2:1.35.1->1.36.0",
		},
		"not where nobody may render them": {scene: newScene(1, 1).asserts("1.35.0").holds("cp-1")},
		"not where nobody may, though it is due": {
			scene: newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").pods("1.34.2").asserts("1.35.0").holds("cp-1").due(),
		},
		"not for pods that only a held control plane renders": {
			scene: newScene(2, 1).proxyless().runs("1.13.4").kubernetes("1.35.0").runsComponent("worker-1", cluster.Proxy, "1.34.2").asserts("1.35.0").holds("cp-1").enabled("cp-1"),
		},
		"not for the pod of a control plane without kube-proxy": {
			scene: newScene(2, 0).withoutProxy("cp-1").runs("1.13.4").kubernetes("1.35.0").runsComponent("cp-1", cluster.Proxy, "1.34.2").asserts("1.35.0"),
		},
		"where one control plane is not held": {scene: newScene(3, 0).holds("cp-1").holds("cp-2"), want: "1:1.34.2->1.34.2"},
		"not for pods of a held node": {
			scene: newScene(1, 1).runs("1.13.4").kubernetes("1.35.0").runsComponent("worker-1", cluster.Proxy, "1.34.2").holds("worker-1").asserts("1.35.0"),
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			made := test.scene.said(t)

			var got []string

			for index, step := range made.Steps {
				if step.Component != cluster.Manifests {
					continue
				}

				got = append(got, strings.Join([]string{string(rune('1' + step.Hop)), ":", step.From.String(), "->", step.To.String()}, ""))

				if last := index == len(made.Steps)-1 || made.Steps[index+1].Hop != step.Hop; !last {
					t.Errorf("something follows in the same hop:\n%s", render(made))
				}
			}

			if strings.Join(got, " ") != test.want {
				t.Errorf("manifests: %q, want %q, of\n%s", got, test.want, render(made))
			}

			if made.Total() != len(test.scene.snapshot.Nodes)-len(made.Held) {
				t.Errorf("total %d of %d nodes", made.Total(), len(test.scene.snapshot.Nodes))
			}
		})
	}
}

// TestComponent_CountsWithTheLowerOfWhatRunsAndWhatIsNamed is about single components in a cluster that is otherwise
// at the target.
func TestComponent_CountsWithTheLowerOfWhatRunsAndWhatIsNamed(t *testing.T) {
	t.Parallel()

	met := func() *scene { return newScene(1, 2).runs("1.13.4").kubernetes("1.35.2").asserts("1.35.2") }

	for behaviour, test := range map[string]struct {
		scene *scene
		want  string
	}{
		"nothing lags":                        {scene: met()},
		"what runs lags":                      {scene: met().runsComponent("worker-1", cluster.Kubelet, "1.35.0"), want: "kubelet worker-1 1.35.0"},
		"what is named lags":                  {scene: met().namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.34.9"), want: "kubelet worker-1 1.34.9"},
		"a static pod that is named lags":     {scene: met().namesComponent("cp-1", cluster.Scheduler, "registry.k8s.io/kube-scheduler:v1.35.0"), want: "kube-scheduler cp-1 1.35.0"},
		"a tag that is no version":            {scene: met().namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:stable")},
		"nothing is named":                    {scene: met().namesComponent("worker-1", cluster.Kubelet, "")},
		"kube-proxy that is named lags":       {scene: met().namesComponent("cp-1", cluster.Proxy, "registry.k8s.io/kube-proxy:v1.35.0"), want: "kube-proxy cp-1 1.35.0"},
		"kube-proxy that is named nowhere":    {scene: met().namesComponent("cp-1", cluster.Proxy, "").pods("1.35.0"), want: "kube-proxy cp-1 1.35.0"},
		"kube-proxy without Talos":            {scene: met().pods("1.34.0").withoutProxy("cp-1")},
		"the pod of a worker, without a sync": {scene: met().pods("1.34.0").unsynced()},
		"pods that are newer, without a sync": {scene: met().pods("1.36.0").unsynced()},
		"a component that is switched off":    {scene: met().disabled("cp-1", cluster.Scheduler).runsComponent("cp-1", cluster.Scheduler, "1.34.0")},
		"what is switched off may be ahead":   {scene: met().disabled("cp-1", cluster.ControllerManager).runsComponent("cp-1", cluster.ControllerManager, "1.36.0")},
		"what is switched off need not run": {scene: func() *scene {
			s := met().disabled("cp-1", cluster.Scheduler)
			delete(s.node("cp-1").Versions, cluster.Scheduler)
			return s
		}()},
		"a tag is none, and what runs lags":    {scene: met().namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:stable").runsComponent("worker-1", cluster.Kubelet, "1.34.9"), want: "kubelet worker-1 1.34.9"},
		"a pod that is not there yet":          {scene: func() *scene { s := met(); delete(s.node("cp-1").Versions, cluster.Scheduler); return s }()},
		"a held node":                          {scene: met().namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.34.9").holds("worker-1")},
		"another repository, met by the image": {scene: met().wants(cluster.Kubelet, "ghcr.io/siderolabs/kubelet")},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			made := test.scene.said(t)

			var got []string

			for _, step := range made.Steps {
				if step.Component != cluster.Manifests {
					got = append(got, string(step.Component)+" "+step.Node+" "+step.From.String())
				}
			}

			if strings.Join(got, ", ") != test.want || len(cluster.Blocking(made.Findings)) > 0 {
				t.Errorf("steps: %q, want %q, of\n%s", got, test.want, render(made))
			}

			if test.want == "" && len(made.Elsewhere) > 0 {
				t.Errorf("elsewhere: %v", made.Elsewhere)
			}
		})
	}
}

// TestComponent_ImagesFollowEachOtherThroughTheHops: each step finds the image that the previous one set.
func TestComponent_ImagesFollowEachOtherThroughTheHops(t *testing.T) {
	t.Parallel()

	s := newScene(0, 1).runs("1.13.4").asserts("1.36.0").through("1.35.1").unsynced().wants(cluster.Kubelet, "mirror.example.com:5000/kubelet")
	s.namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.34.2-slim@sha256:"+strings.Repeat("c", 64))

	made := s.said(t)
	want := []string{
		"ghcr.io/siderolabs/kubelet:v1.34.2-slim@sha256:" + strings.Repeat("c", 64), "mirror.example.com:5000/kubelet:v1.35.1-slim",
		"mirror.example.com:5000/kubelet:v1.35.1-slim", "mirror.example.com:5000/kubelet:v1.36.0-slim",
	}

	var got []string
	for _, step := range made.Steps {
		got = append(got, step.Configured, step.Image)
	}

	if !slices.Equal(got, want) {
		t.Errorf("images:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestComponent_AnotherRepositoryIsDemandedOnlyWithATarget: without a target, components are not ours to change.
func TestComponent_AnotherRepositoryIsDemandedOnlyWithATarget(t *testing.T) {
	t.Parallel()

	s := newScene(3, 2).runs("1.13.4").wants(cluster.Kubelet, "mirror.example.com/kubelet")
	if made := s.said(t); len(made.Steps) > 0 {
		t.Errorf("without a target:\n%s", render(made))
	}

	s = newScene(1, 1).asserts("1.34.2").wants(cluster.APIServer, "mirror.example.com/api")
	made := s.said(t)

	at := slices.IndexFunc(made.Steps, func(step plan.Step) bool { return step.Component == cluster.APIServer })
	if at < 0 || !made.Steps[at].From.Equal(made.Steps[at].To) || made.Steps[at].Image != "mirror.example.com/api:v1.34.2" || len(made.Hops) != 2 {
		t.Errorf("behind a roll of Talos:\n%s", render(made))
	}

	if made.Hops[1].Product != version.Kubernetes || !made.Hops[1].From.Talos.Equal(version.MustParse("1.13.4")) {
		t.Errorf("hops: %v", made.Hops)
	}
}

// TestComponent_NothingIsDemandedWhileNobodyKnowsWhatRuns: there is no version for the image.
func TestComponent_NothingIsDemandedWhileNobodyKnowsWhatRuns(t *testing.T) {
	t.Parallel()

	s := newScene(1, 0).runs("1.13.4").asserts("1.35.0").unpinned("cp-1").kubeless("cp-1").wants(cluster.Kubelet, "mirror.example.com/k")

	if made := s.said(t); len(made.Steps) > 0 || strings.Join(made.Elsewhere, " ") != "cp-1" {
		t.Errorf("plan:\n%s", render(made))
	}
}

func imageOf(field cluster.Field) []cluster.Within {
	return []cluster.Within{cluster.Field("images"), field}
}

func TestComponent_ImpossibleImagesAreRefused(t *testing.T) {
	t.Parallel()

	rolls := func() *scene { return newScene(3, 2).runs("1.13.4").asserts("1.35.0") }

	runPaths(t, map[string]pathCase{
		"an image for kube-proxy that Talos does not manage": {
			scene: rolls().proxyless().wants(cluster.Proxy, "mirror.example.com/kube-proxy"), severity: cluster.Permanent,
			attribute: "kubernetes", within: imageOf("kube_proxy"), says: []string{"disabled in the machine configuration of every control plane", "cluster.proxy.disabled"},
		},
		"held control planes have no say in that": {
			scene: rolls().proxyless().holds("cp-1").kubernetes("1.35.0").wants(cluster.Proxy, "mirror.example.com/kube-proxy"), severity: cluster.Permanent,
			attribute: "kubernetes", within: imageOf("kube_proxy"), says: []string{"of every control plane that is not held, so"},
		},
		"and that is known before anything is to be done": {
			scene: rolls().proxyless().kubernetes("1.35.0").wants(cluster.Proxy, "mirror.example.com/kube-proxy"), severity: cluster.Permanent,
			attribute: "kubernetes", within: imageOf("kube_proxy"),
		},
		"what a node names is no image": {
			scene: rolls().namesComponent("cp-2", cluster.ControllerManager, "Not An Image"), severity: cluster.Permanent, node: "cp-2",
			attribute: "kubernetes", within: imageOf("kube_controller_manager"),
			says: []string{"cluster.controllerManager.image in the machine configuration", `"Not An Image"`, "talosctl -n 10.0.0.2 edit machineconfig"},
		},
		"and that is said once, however many hops there are": {
			scene: rolls().asserts("1.36.0").walks().namesComponent("cp-2", cluster.ControllerManager, "Not An Image"), severity: cluster.Permanent, node: "cp-2",
			attribute: "kubernetes", within: imageOf("kube_controller_manager"),
		},
		"an override that is none is said once": {
			scene: rolls().wants(cluster.Scheduler, "mirror.example.com/scheduler:v1.35.0"), severity: cluster.Permanent,
			attribute: "kubernetes", within: imageOf("kube_scheduler"), says: []string{"give the repository alone"},
		},
		"what a machine configuration names may be ahead": {
			scene: rolls().namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.36.0"), severity: cluster.Permanent, node: "worker-1",
			attribute: "kubernetes_version", says: []string{"the machine configuration names kubelet 1.36.0, newer than the target 1.35.0", "or correct the machine configuration"},
		},
		"on some nodes it runs, on others it is named": {
			scene:    rolls().component("worker-1", cluster.Kubelet, "1.35.1").namesComponent("worker-2", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.36.0"),
			severity: cluster.Permanent, attribute: "kubernetes_version",
			says: []string{"Kubernetes up to 1.35.1 runs on worker-1, and the machine configuration names Kubernetes up to 1.36.0 on worker-2, newer than the target 1.35.0"},
		},
		"pods of kube-proxy may be ahead": {
			scene: rolls().runsComponent("worker-1", cluster.Proxy, "1.36.0"), severity: cluster.Permanent, node: "worker-1", attribute: "kubernetes_version",
			says: []string{"runs kube-proxy 1.36.0"},
		},
		"a configuration that may not be read": {
			scene: rolls().unreadable("worker-2"), severity: cluster.Observed, says: []string{"cannot be read", "worker-2", "os:admin"},
		},
		"a held node whose configuration would start what Talos does not run": {
			scene: newScene(3, 2).walks().kubernetes("1.32.0").aims("1.14.0").holds("worker-1").
				namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.31.0"),
			severity: cluster.Permanent, node: "worker-1", attribute: "node_overrides", within: []cluster.Within{cluster.Key("worker-1"), cluster.Field("hold")},
			says: []string{"Talos 1.14.0 needs Kubernetes 1.32 or newer, and its kubelet is 1.31.0"},
		},
		"a held API server that is older once it restarts": {
			scene: rolls().kubernetes("1.35.0").asserts("1.35.1").walks().holds("cp-1").
				namesComponent("cp-1", cluster.APIServer, "registry.k8s.io/kube-apiserver:v1.34.0"),
			severity: cluster.Permanent, node: "cp-1", attribute: "node_overrides", within: []cluster.Within{cluster.Key("cp-1"), cluster.Field("hold")},
			says: []string{"kubelets on 1.35.1 would be newer than its kube-apiserver 1.34.0"},
		},
	})
}

// TestComponent_ImagesThatAHopPinsAreNotMissed: they are not set now, but are once Talos moves.
func TestComponent_ImagesThatAHopPinsAreNotMissed(t *testing.T) {
	t.Parallel()

	s := newScene(3, 1).runs("1.13.5").kubernetes("1.31.5").aims("1.14.0").asserts("1.32.4").unpinned("worker-1").unpinned("cp-1")

	made := s.said(t)
	if finding, found := find(made.Findings, "component-images"); found || made.Hops[0].Product != "kubernetes" {
		t.Errorf("finding: %s, of\n%s", finding, render(made))
	}
}

// TestComponent_UnpinnedImageOfOneThatDoesNotRunNamesItsPlace: there is no version to pin.
func TestComponent_UnpinnedImageOfOneThatDoesNotRunNamesItsPlace(t *testing.T) {
	t.Parallel()

	s := newScene(1, 1).namesComponent("cp-1", cluster.Scheduler, "")
	delete(s.node("cp-1").Versions, cluster.Scheduler)

	finding, found := find(s.said(t).Findings, "component-images")
	if !found || !strings.Contains(finding.Remedy, "(cluster.scheduler.image), with talosctl -n 10.0.0.1 patch machineconfig") {
		t.Errorf("finding: %s", finding)
	}
}

func TestComponent_OddImagesAreAdvice(t *testing.T) {
	t.Parallel()

	rolls := func() *scene { return newScene(3, 3).runs("1.13.4").asserts("1.35.0") }
	pinned := "ghcr.io/siderolabs/kubelet:v1.34.2@sha256:" + strings.Repeat("c", 64)

	runFindings(t, map[string]findingCase{
		"a node that names something else than it runs": {
			scene: rolls().runsComponent("worker-1", cluster.Kubelet, "1.34.1").namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.35.0"),
			check: "component-images", severity: cluster.Advice, node: "worker-1",
			says: []string{"kubelet runs 1.34.1 while the machine configuration names 1.35.0;", "An apply brings both to 1.35.0"},
		},
		"several of them are one finding": {
			scene: rolls().runsComponent("worker-1", cluster.Kubelet, "1.34.1").runsComponent("cp-2", cluster.Scheduler, "1.34.0"),
			check: "component-images", severity: cluster.Advice, says: []string{"on worker-1, cp-2;"},
		},
		"without a target of Kubernetes": {
			scene: newScene(3, 3).runsComponent("worker-1", cluster.Kubelet, "1.34.1"), check: "component-images", severity: cluster.Advice, node: "worker-1",
			says: []string{"a reboot starts what it names"},
		},
		"a digest that is left out": {
			scene: rolls().namesComponent("worker-1", cluster.Kubelet, pinned), check: "component-images", severity: cluster.Advice, node: "worker-1",
			says: []string{"names the image of kubelet with a digest"},
		},
		"digests on several nodes are one finding": {
			scene: rolls().namesComponent("worker-1", cluster.Kubelet, pinned).namesComponent("cp-1", cluster.Kubelet, pinned),
			check: "component-images", severity: cluster.Advice, says: []string{"with a digest on worker-1, cp-1,"},
		},
	})

	for behaviour, s := range map[string]*scene{
		"a digest that stays":                      newScene(3, 1).runs("1.13.4").asserts("1.34.2").namesComponent("worker-1", cluster.Kubelet, pinned),
		"pods of kube-proxy that are still behind": rolls().kubernetes("1.35.0").pods("1.34.2"),
		"a held node that disagrees":               rolls().holds("worker-1").runsComponent("worker-1", cluster.Kubelet, "1.34.1"),
		"a tag that says nothing":                  rolls().namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:stable"),
	} {
		if finding, found := find(s.said(t).Findings, "component-images"); found {
			t.Errorf("%s: %s", behaviour, finding)
		}
	}
}

// documented gives a node a configuration as Talos 1.14 generates it, with a document for each component and for the
// install image.
func (s *scene) documented(name string) *scene {
	s.node(name).Machine.Config.Documents = map[cluster.Component]string{
		cluster.Kubelet: "KubeletConfig", cluster.APIServer: "KubeAPIServerConfig", cluster.ControllerManager: "KubeControllerManagerConfig",
		cluster.Scheduler: "KubeSchedulerConfig", cluster.Proxy: "KubeProxyConfig", cluster.Installer: "UnattendedInstallConfig",
	}

	return s
}

// TestComponent_RemediesNameWhatTheConfigurationHas: a v1alpha1 patch would be refused if there is a document for
// the same setting.
func TestComponent_RemediesNameWhatTheConfigurationHas(t *testing.T) {
	t.Parallel()

	rolls := func() *scene { return newScene(3, 1).runs("1.13.4").asserts("1.35.0") }
	unknown := func() *scene {
		s := rolls().namesComponent("cp-1", cluster.APIServer, "registry.k8s.io/kube-apiserver:stable")
		delete(s.node("cp-1").Versions, cluster.APIServer)

		return s
	}
	unpinned := func(s *scene) *scene {
		for _, component := range []cluster.Component{cluster.Kubelet, cluster.Scheduler} {
			delete(s.node("cp-1").Machine.Config.Images, component)
		}

		return s
	}
	without := func(s *scene, nodes ...string) *scene {
		for _, name := range nodes {
			s.node(name).Machine.Config.Disabled = map[cluster.Component]bool{cluster.Proxy: true}
		}

		return s
	}
	named := func(s *scene, node string) *scene {
		s.node(node).Machine.Config.InstallImage = "Not An Image"

		return s
	}

	for name, test := range map[string]struct {
		scene *scene
		check string
		want  string
	}{
		"images that are not pinned": {
			unpinned(newScene(3, 2).documented("cp-1")), "component-images",
			`Pin what runs: talosctl -n 10.0.0.1 patch machineconfig --patch '{"apiVersion":"v1alpha1","kind":"KubeletConfig","image":"ghcr.io/siderolabs/kubelet:v1.34.2"}' ` +
				`--patch '{"apiVersion":"v1alpha1","kind":"KubeSchedulerConfig","image":"registry.k8s.io/kube-scheduler:v1.34.2"}'. ` +
				"It restarts nothing that runs these images already; each node named by this check needs a command of its own.",
		},
		"images that are not pinned in v1alpha1": {
			unpinned(newScene(3, 2)), "component-images",
			`Pin what runs: talosctl -n 10.0.0.1 patch machineconfig --patch '{"machine":{"kubelet":{"image":"ghcr.io/siderolabs/kubelet:v1.34.2"}},` +
				`"cluster":{"scheduler":{"image":"registry.k8s.io/kube-scheduler:v1.34.2"}}}'. ` +
				"It restarts nothing that runs these images already; each node named by this check needs a command of its own.",
		},
		"a version that nobody can tell": {
			unknown().documented("cp-1"), "component-images",
			"Name an image with a version tag in KubeAPIServerConfig.image (talosctl -n 10.0.0.1 edit machineconfig), or wait until it runs.",
		},
		"what a node names is no image": {
			rolls().documented("cp-2").namesComponent("cp-2", cluster.ControllerManager, "Not An Image"), "component-images",
			"Correct KubeControllerManagerConfig.image of this node (talosctl -n 10.0.0.2 edit machineconfig), or set the repository here.",
		},
		"what a node names is no installer": {
			named(newScene(3, 1).documented("cp-1"), "cp-1"), "installer-image",
			"Correct UnattendedInstallConfig.installer.image in the machine configuration, or set installer_image.",
		},
		"a kube-proxy that is there and is not": {
			without(rolls().documented("cp-1").documented("cp-2"), "cp-1"), "component-images",
			"Make the configurations agree (KubeProxyConfig.enabled, cluster.proxy.disabled), or set kubernetes.manifests.sync = false.",
		},
	} {
		finding, found := find(test.scene.said(t).Findings, test.check)
		if !found || finding.Remedy != test.want {
			t.Errorf("%s: %s\nwant the remedy\n%s", name, finding, test.want)
		}
	}
}
