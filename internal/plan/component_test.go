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

func TestKubeletsOfWorkersRestartBesideEachOther(t *testing.T) {
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

// TestManifestsAreSyncedAlone: they come last, when nothing else goes on.
func TestManifestsAreSyncedAlone(t *testing.T) {
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

func TestManifestsAreAStepOfNoNode(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		scene *scene
		want  string
	}{
		"behind each release line, for the pods must keep up": {
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
		"behind each release line where nobody waits for the pods": {
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

// TestComponentsCountWithTheLowerOfWhatRunsAndWhatIsNamed is about single
// components on a cluster that is at the target otherwise.
func TestComponentsCountWithTheLowerOfWhatRunsAndWhatIsNamed(t *testing.T) {
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

// TestImagesFollowEachOtherThroughTheHops: what one step names, the next finds.
func TestImagesFollowEachOtherThroughTheHops(t *testing.T) {
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

// TestAnotherRepositoryIsDemandedOnlyWithATarget: without one nothing says that
// components are ours.
func TestAnotherRepositoryIsDemandedOnlyWithATarget(t *testing.T) {
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

// TestNothingIsDemandedWhileNobodyKnowsWhatRuns: there is no version to demand it
// in.
func TestNothingIsDemandedWhileNobodyKnowsWhatRuns(t *testing.T) {
	t.Parallel()

	s := newScene(1, 0).runs("1.13.4").asserts("1.35.0").unpinned("cp-1").kubeless("cp-1").wants(cluster.Kubelet, "mirror.example.com/k")

	if made := s.said(t); len(made.Steps) > 0 || strings.Join(made.Elsewhere, " ") != "cp-1" {
		t.Errorf("plan:\n%s", render(made))
	}
}
