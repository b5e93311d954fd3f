// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"testing"
	"testing/synctest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// left is a half in which that many steps remain.
func left(steps, done, total int, lowest string) cluster.Progress {
	made := progress(done, total, lowest)
	made.Steps = steps

	return made
}

// told publishes the events of a run with the target, and returns what stood in
// the end. Nothing of a half that is not managed may stand.
func told(t *testing.T, target cluster.Target, events ...cluster.Event) *memory {
	t.Helper()

	store := &memory{}

	synctest.Test(t, func(t *testing.T) {
		publisher := publish.New(store, publish.Options{})

		for _, event := range events {
			event.Target = target
			publisher.Observe(event)
			synctest.Wait()
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})

	return store
}

const (
	talosStatus, talosMessage           = protocol.KeyTalosStatus, protocol.KeyTalosMessage
	kubernetesStatus, kubernetesMessage = protocol.KeyKubernetesStatus, protocol.KeyKubernetesMessage
	kubernetesProgress                  = protocol.KeyKubernetesProgress
)

func TestEachHalfIsToldOnItsOwn(t *testing.T) {
	both := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2")}
	onlyTalos, onlyKubernetes := cluster.Target{Talos: both.Talos}, cluster.Target{Kubernetes: both.Kubernetes}

	behind, there := left(5, 0, 5, "1.12.6"), left(0, 5, 5, "1.13.4")
	old, halfway, last := left(20, 0, 5, "1.34.2"), left(12, 2, 5, "1.34.2"), left(1, 5, 5, "1.35.2")
	arrived := left(0, 5, 5, "1.35.2")

	unfinished := there
	unfinished.Steps = 1

	unsupported := old
	unsupported.Waits = "Talos 1.12.6 does not support K8s 1.36.1. Upgrade Talos first."

	step := func(kind cluster.EventKind, node string, component cluster.Component, talos, kubernetes cluster.Progress) cluster.Event {
		return cluster.Event{Kind: kind, Node: node, Component: component, Talos: talos, Kubernetes: kubernetes}
	}

	for name, test := range map[string]struct {
		target cluster.Target
		events []cluster.Event
		want   map[string]string
	}{
		"Kubernetes waits for Talos": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", behind, old)}, map[string]string{
			talosStatus: "in-progress", talosMessage: "Talos upgrade started: 1.12.6 → 1.13.4",
			kubernetesStatus: "blocked", kubernetesMessage: "Waiting for Talos upgrade to complete",
			protocol.KeyKubernetesCurrent: "1.34.2", kubernetesProgress: "0/5", protocol.KeyTalosProgress: "0/5",
		}},
		"only an earlier turn has to be finished": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", unfinished, old)}, map[string]string{
			talosStatus: "in-progress", talosMessage: "Finishing the Talos upgrade to 1.13.4",
		}},
		"nobody waited for kube-proxy": {onlyKubernetes, []cluster.Event{step(cluster.EventRunDone, "", "", behind, left(0, 2, 5, "1.34.2"))}, map[string]string{
			kubernetesStatus: "pending", kubernetesMessage: "Kubernetes upgrade applied: 2/5 nodes show 1.35.2 so far", protocol.KeyKubernetesCurrent: "1.34.2",
		}},
		"and says why it cannot go first": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", behind, unsupported)}, map[string]string{
			kubernetesStatus: "blocked", kubernetesMessage: "Talos 1.12.6 does not support K8s 1.36.1. Upgrade Talos first.",
		}},
		"and for every node of it": {both, []cluster.Event{step(cluster.EventNodeStarted, "cp-0", "", behind, old)}, map[string]string{
			talosStatus: "in-progress", talosMessage: "Upgrading node cp-0 (0/5)", kubernetesStatus: "blocked",
		}},
		"Talos is done when Kubernetes begins": {both, []cluster.Event{
			step(cluster.EventNodeStarted, "cp-0", cluster.APIServer, there, halfway),
		}, map[string]string{
			talosStatus: "completed", talosMessage: "Talos upgrade completed: now running 1.13.4",
			kubernetesStatus: "in-progress", kubernetesMessage: "Upgrading kube-apiserver on cp-0 (2/5)", kubernetesProgress: "2/5",
		}},
		"Talos is not done before another hop of it": {both, []cluster.Event{
			step(cluster.EventNodeStarted, "cp-0", cluster.APIServer, behind, halfway),
		}, map[string]string{
			talosStatus: "blocked", talosMessage: "Waiting for Kubernetes upgrade to complete", kubernetesStatus: "in-progress",
		}},
		"a half with nothing to do": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", there, old)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "in-progress", kubernetesMessage: "Kubernetes upgrade started: 1.34.2 → 1.35.2",
		}},
		"the other half with nothing to do": {both, []cluster.Event{step(cluster.EventRunStarted, "", "", behind, arrived)}, map[string]string{
			talosStatus: "in-progress", kubernetesStatus: "completed", kubernetesMessage: "Kubernetes upgrade completed: now running 1.35.2",
		}},
		"manifests": {both, []cluster.Event{step(cluster.EventNodeStarted, "", cluster.Manifests, there, last)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "in-progress", kubernetesMessage: "Syncing the bootstrap manifests (5/5)",
		}},
		"a component that is done": {both, []cluster.Event{{Kind: cluster.EventNodeDone, Node: "worker-0", Component: cluster.Kubelet}}, map[string]string{
			kubernetesStatus: "in-progress", kubernetesMessage: "kubelet on worker-0 upgraded", talosStatus: "absent",
		}},
		"a version on the way": {both, []cluster.Event{{
			Kind: cluster.EventNodeStarted, Node: "cp-0", Component: cluster.Scheduler, To: version.MustParse("1.34.9"), Talos: there, Kubernetes: old,
		}}, map[string]string{kubernetesMessage: "Upgrading kube-scheduler on cp-0 to 1.34.9 (0/5)"}},
		"Talos fails, and a node that was done is away": {both, []cluster.Event{
			step(cluster.EventRunStarted, "", "", behind, arrived), step(cluster.EventRunFailed, "cp-1", "", behind, left(0, 4, 5, "1.35.2")),
		}, map[string]string{
			talosStatus: "failed", kubernetesStatus: "pending", kubernetesMessage: "Kubernetes upgrade applied: 4/5 nodes show 1.35.2 so far",
		}},
		"Talos follows, and not every node shows Kubernetes": {both, []cluster.Event{
			step(cluster.EventNodeStarted, "cp-0", cluster.APIServer, behind, left(3, 2, 5, "1.34.2")), step(cluster.EventNodeStarted, "cp-0", "", behind, left(0, 3, 5, "1.34.2")),
		}, map[string]string{talosStatus: "in-progress", kubernetesStatus: "pending"}},
		"all nodes are held": {both, []cluster.Event{
			step(cluster.EventRunStarted, "", "", cluster.Progress{Managed: true}, cluster.Progress{Managed: true}),
			step(cluster.EventRunDone, "", "", cluster.Progress{Managed: true}, cluster.Progress{Managed: true}),
		}, map[string]string{
			talosStatus: "absent", talosMessage: "absent", protocol.KeyTalosCurrent: "absent", protocol.KeyTalosProgress: "absent", kubernetesStatus: "absent", kubernetesMessage: "absent",
		}},
		"all nodes are held in the end": {onlyTalos, []cluster.Event{
			step(cluster.EventRunStarted, "", "", behind, cluster.Progress{}), step(cluster.EventRunDone, "", "", cluster.Progress{Managed: true}, cluster.Progress{}),
		}, map[string]string{talosStatus: "idle", talosMessage: "Talos upgrade ended: what the nodes run is not known"}},
		"both are done": {both, []cluster.Event{step(cluster.EventRunDone, "", "", there, arrived)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "completed", kubernetesMessage: "Kubernetes upgrade completed: now running 1.35.2",
			protocol.KeyKubernetesCurrent: "1.35.2", kubernetesProgress: "5/5", protocol.KeyTalosCurrent: "1.13.4",
		}},
		"Talos fails": {both, []cluster.Event{step(cluster.EventRunFailed, "cp-1", "", behind, old)}, map[string]string{
			talosStatus: "failed", kubernetesStatus: "blocked", protocol.KeyFailedNodes: "cp-1",
		}},
		"a component fails": {both, []cluster.Event{step(cluster.EventRunFailed, "cp-1", cluster.APIServer, there, halfway)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "failed",
			kubernetesMessage: "Kubernetes upgrade failed: the reason is not known", protocol.KeyFailedNodes: "cp-1",
		}},
		"a component fails before another hop of Talos": {both, []cluster.Event{
			step(cluster.EventRunFailed, "cp-1", cluster.APIServer, behind, halfway),
		}, map[string]string{talosStatus: "blocked", kubernetesStatus: "failed"}},
		"it fails after Talos is done": {both, []cluster.Event{step(cluster.EventRunFailed, "", "", there, halfway)}, map[string]string{
			talosStatus: "completed", kubernetesStatus: "failed",
		}},
		"a component fails, and no node of Talos can be told": {both, []cluster.Event{
			step(cluster.EventRunFailed, "cp-1", cluster.APIServer, cluster.Progress{}, halfway),
		}, map[string]string{talosStatus: "failed", kubernetesStatus: "failed"}},
		"Kubernetes alone": {onlyKubernetes, []cluster.Event{
			step(cluster.EventRunStarted, "", "", cluster.Progress{}, old), step(cluster.EventNodeStarted, "cp-0", cluster.APIServer, cluster.Progress{}, halfway),
		}, map[string]string{
			kubernetesStatus: "in-progress", kubernetesMessage: "Upgrading kube-apiserver on cp-0 (2/5)",
			talosStatus: "absent", talosMessage: "absent", protocol.KeyTalosProgress: "absent", protocol.KeyTalosCurrent: "absent",
		}},
		"Kubernetes alone fails": {onlyKubernetes, []cluster.Event{step(cluster.EventRunFailed, "", "", cluster.Progress{}, halfway)}, map[string]string{
			kubernetesStatus: "failed", talosStatus: "absent",
		}},
		"manifests after a roll of Talos alone": {onlyTalos, []cluster.Event{
			step(cluster.EventNodeStarted, "", cluster.Manifests, there, cluster.Progress{}),
		}, map[string]string{
			talosStatus: "in-progress", talosMessage: "Syncing the bootstrap manifests (5/5)",
			kubernetesStatus: "absent", kubernetesMessage: "absent", kubernetesProgress: "absent",
		}},
		"they fail": {onlyTalos, []cluster.Event{step(cluster.EventRunFailed, "", cluster.Manifests, there, cluster.Progress{})}, map[string]string{
			talosStatus: "failed", kubernetesStatus: "absent",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store := told(t, test.target, test.events...)

			for key, want := range test.want {
				if got := store.get(key); got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
		})
	}
}

// TestARunWithoutTargetsSaysNothing: there is nothing that it could say.
func TestARunWithoutTargetsSaysNothing(t *testing.T) {
	store := told(t, cluster.Target{}, cluster.Event{Kind: cluster.EventRunDone}, cluster.Event{Kind: cluster.EventRunFailed})
	if len(store.patches) != 0 {
		t.Errorf("%d patches", len(store.patches))
	}
}
