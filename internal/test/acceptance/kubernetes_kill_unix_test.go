// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"slices"
	"syscall"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// kubernetesMoments are when a run of the Kubernetes half is cut off.
func kubernetesMoments() map[string]func(history.Event) bool {
	component := func(node, component, state string) func(history.Event) bool {
		return func(e history.Event) bool {
			return e.Kind == history.KindComponent && e.Node == node && e.Detail["component"] == component && e.Detail["state"] == state
		}
	}

	return map[string]func(history.Event) bool{
		"API server down": component("cp-1", "kube-apiserver", "stopped"),
		"scheduler configured": func(e history.Event) bool {
			return e.Kind == history.KindConfig && e.Detail["changed"] == "kube-scheduler"
		},
		"kubelet restarting":     component("worker-0", "kubelet", "stopped"),
		"last kubelet restarted": component("worker-1", "kubelet", "ready"),
	}
}

func TestAccKilledInTheKubernetesHalf(t *testing.T) {
	full(t)

	for title, match := range kubernetesMoments() {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 3, Workers: 2, Talos: talosTarget})
			w := newWorkspace(t)
			w.write(use(s), `kubernetes_version = "`+kubernetesTarget+`"`)
			s.forget()

			run := w.background("apply", "-json", "-auto-approve", "-input=false")
			s.await(title, match)
			run.signal(syscall.SIGKILL)

			if killed := run.wait(); killed.exit == 0 {
				t.Fatal("the run came to its end before it was killed")
			}

			w.apply().mustSucceed(0)
			s.wantKubernetes(kubernetesTarget)
			s.notRebooted()
			w.plan().mustSucceed(0)

			// What was there already was not touched again.
			changes := s.configured()
			if once := slices.Compact(slices.Sorted(slices.Values(changes))); len(once) != len(changes) {
				t.Errorf("some components were configured more than once: %v", changes)
			}
		})
	}
}
