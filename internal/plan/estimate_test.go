// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestProgress_ClaimsNoMoreThanTheTruth reads "done/total steps lowest" of both halves, with the lagging nodes behind the total, in brackets if a half is not
// managed.
func TestProgress_ClaimsNoMoreThanTheTruth(t *testing.T) {
	t.Parallel()

	both := func() *scene { return newScene(1, 2).runs("1.13.4").kubernetes("1.35.2").asserts("1.35.2") }

	for behaviour, test := range map[string]struct {
		scene             *scene
		talos, kubernetes string
	}{
		"all is done":            {both(), "3/3 0 1.13.4", "3/3 0 1.35.2"},
		"Talos alone is managed": {newScene(1, 2).runs("1.13.4", "worker-1"), "1/3 2 1.12.6", "(0/3 1 1.34.2)"},
		"Kubernetes alone is":    {newScene(0, 2).unmanaged().asserts("1.35.0").unsynced(), "(0/2 0 1.12.6)", "0/2 2 1.34.2"},
		"a kubelet lags":         {both().component("worker-1", cluster.Kubelet, "1.34.9"), "3/3 0 1.13.4", "2/3 2 1.34.9"},
		"a configuration lags":   {both().namesComponent("worker-1", cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.34.0"), "3/3 0 1.13.4", "2/3 2 1.34.0"},
		"a pod of kube-proxy":    {both().runsComponent("worker-1", cluster.Proxy, "1.34.9"), "3/3 0 1.13.4", "3/3, 1 lagging 1 1.34.9"},
		"and without a sync":     {both().runsComponent("worker-1", cluster.Proxy, "1.34.9").unsynced(), "3/3 0 1.13.4", "3/3 0 1.35.2"},
		"another image is due":   {both().wants(cluster.Kubelet, "mirror.example.com/k"), "3/3 0 1.13.4", "0/3 4 1.35.2"},
		"manifests are due":      {both().due(), "3/3 0 1.13.4", "3/3 1 1.35.2"},
		"a held node is left out": {
			both().component("worker-1", cluster.Kubelet, "1.34.9").runs("1.12.6", "worker-1").holds("worker-1"), "2/2 0 1.13.4", "2/2 0 1.35.2",
		},
		"a silent node says nothing":            {both().silent("worker-1"), "2/3 0 unknown", "3/3 0 1.35.2"},
		"one in its turn runs what it ran":      {both().silent("worker-1").entry("worker-1", cluster.PhaseRebooting, "b"), "2/3 1 1.12.6", "3/3 1 1.35.2"},
		"one that is not registered":            {both().kubeless("worker-1"), "3/3 0 1.13.4", "2/3 0 unknown"},
		"a node that does not say its version":  {func() *scene { s := both(); s.node("cp-1").Machine.Talos = version.Version{}; return s }(), "2/3 0 unknown", "3/3 0 1.35.2"},
		"an API server whose pod is not there":  {func() *scene { s := both(); delete(s.node("cp-1").Versions, cluster.APIServer); return s }(), "3/3 0 1.13.4", "3/3 0 unknown"},
		"unfinished work":                       {both().cordoned("worker-1", "run-1"), "2/3 1 1.13.4", "3/3 1 1.35.2"},
		"a node that is ahead has not arrived":  {both().runs("1.13.6", "cp-1"), "2/3 0 1.13.4", "3/3 0 1.35.2"},
		"a kubelet ahead has not arrived there": {both().component("worker-1", cluster.Kubelet, "1.35.3"), "3/3 0 1.13.4", "2/3 0 1.35.2"},
	} {
		made := test.scene.make()

		for half, compared := range map[string]struct {
			got  cluster.Progress
			want string
		}{"talos": {made.Talos, test.talos}, "kubernetes": {made.Kubernetes, test.kubernetes}} {
			count := fmt.Sprintf("%d/%d", compared.got.Done, compared.got.Total)
			if compared.got.Lagging > 0 {
				count += fmt.Sprintf(", %d lagging", compared.got.Lagging)
			}

			got := fmt.Sprintf("%s %d %s", count, compared.got.Steps, compared.got.Lowest)
			if !compared.got.Managed {
				got = "(" + got + ")"
			}

			if got != compared.want {
				t.Errorf("%s: %s is %s, want %s, of\n%s", behaviour, half, got, compared.want, render(made))
			}
		}
	}
}

// kubeless removes the node from Kubernetes.
func (s *scene) kubeless(name string) *scene {
	node := s.node(name)
	node.Kube, node.Versions = nil, map[cluster.Component]version.Version{}

	return s
}

func TestProgress_AgreesWithTheSteps(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScene(rt)
		made := s.make()

		if made.Talos.Steps+made.Kubernetes.Steps != len(made.Steps) {
			rt.Fatalf("%d and %d steps of\n%s", made.Talos.Steps, made.Kubernetes.Steps, render(made))
		}

		for _, half := range []cluster.Progress{made.Talos, made.Kubernetes} {
			if half.Total != made.Total() || half.Done > half.Total {
				rt.Fatalf("%+v of\n%s", half, render(made))
			}
		}

		if s.target.Kubernetes.IsZero() && made.Talos.Done != len(made.AtTarget) {
			rt.Fatalf("%d of Talos are done, at the target are %v of\n%s", made.Talos.Done, made.AtTarget, render(made))
		}

		// What may be claimed is what the lowest node runs.
		for _, node := range s.snapshot.Managed() {
			kubelet := node.Versions[cluster.Kubelet]
			if !s.policy.Hold[node.Name] && kubelet.Less(made.Kubernetes.Lowest) {
				rt.Fatalf("%s is claimed, and %s runs %s", made.Kubernetes.Lowest, node.Name, kubelet)
			}
		}
	})
}

func TestEstimate_CountsTurnsBesideEachOtherOnce(t *testing.T) {
	t.Parallel()

	turn := newScene(1, 0).said(t).Steps[0].Estimate

	settled := newScene(1, 4)
	settled.policy.MaxUnavailable, settled.policy.Settle = share("2"), time.Minute

	const (
		kubelet = 40 * time.Second
		server  = 150 * time.Second
		static  = 25 * time.Second
		// others are the controller manager, kube-proxy and the kubelet.
		others = static + 10*time.Second + kubelet
	)

	for behaviour, test := range map[string]struct {
		scene *scene
		want  time.Duration
	}{
		"nothing to do":                      {newScene(3, 2).runs("1.13.4"), 0},
		"one after the other":                {newScene(3, 2).unsynced(), 5 * turn},
		"with the manifests":                 {newScene(3, 2), 5*turn + time.Minute},
		"two workers at a time, and settled": {settled.unsynced(), 3 * (turn + time.Minute)},
		"canaries before the others":         {newScene(0, 2).canary("worker-2").unsynced(), 2 * turn},
		"twice through two hops":             {newScene(1, 1).walks().runs("1.11.2").unsynced(), 4 * turn},
		"kubelets one after the other":       {behind(newScene(1, 5), "1"), 5*kubelet + time.Minute},
		"kubelets two at a time":             {behind(newScene(1, 5), "2"), 3*kubelet + time.Minute},
		"kubelets, and settled":              {settling(behind(newScene(1, 5), "2")), 3*(kubelet+time.Minute) + time.Minute},
		"kubelets with the canary before":    {behind(newScene(1, 5).canary("worker-5"), "2"), 3*kubelet + time.Minute},
		// Below Talos 1.14, the API server restarts with the scheduler as well.
		"Kubernetes on one control plane":             {newScene(1, 0).runs("1.13.4").asserts("1.35.0"), 2*server + others + time.Minute},
		"Kubernetes on three control planes":          {newScene(3, 0).runs("1.13.4").asserts("1.35.0"), 3*(2*server+others) + time.Minute},
		"Kubernetes from Talos 1.14 on":               {newScene(3, 0).aims("1.14.1").runs("1.14.1").asserts("1.35.0"), 3*(server+static+others) + time.Minute},
		"Kubernetes after the nodes reach Talos 1.14": {newScene(3, 0).aims("1.14.1").runs("1.13.4").asserts("1.35.0"), 3*(turn+server+static+others) + time.Minute},
	} {
		if got := test.scene.said(t).Estimate(); got != test.want {
			t.Errorf("%s: %s, want %s", behaviour, got, test.want)
		}
	}
}
