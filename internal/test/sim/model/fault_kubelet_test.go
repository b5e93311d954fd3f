// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// reports lists when, after the given moment, the kubelet said what of its
// node.
func (r rig) reports(name string, since time.Duration) (said []string, at []time.Duration) {
	for _, event := range r.log.of(name, history.KindKubelet) {
		if moment := time.Duration(event.Sim * float64(time.Second)); moment >= since {
			said = append(said, event.Detail["ready"])
			at = append(at, moment)
		}
	}

	return said, at
}

func sick(step model.Step, effect model.Effect, lasts time.Duration) []model.Fault {
	return []model.Fault{{Node: "worker-0", Step: step, Effect: effect, Times: 1, For: lasts}}
}

func TestKubeletIsNotReadyFromTheStartUntilTheNextBoot(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 2, Faults: sick(model.StepKubelet, model.EffectNotReady, 0)}, func(r rig) {
		if nodes := r.log.of("worker-1", history.KindNode); len(nodes) != 1 {
			t.Fatalf("worker-1 was introduced %d times", len(nodes))
		}

		for range 2 {
			state := r.node("worker-0")
			if state.Kubelet.Ready || !state.Kubelet.Running || state.Ready || !state.Reachable || state.Stage != model.StageRunning {
				t.Fatalf("got %+v, want a machine that runs with a node that is not ready", state)
			}

			time.Sleep(time.Hour)
		}

		if said, _ := r.reports("worker-0", 0); !slices.Equal(said, []string{"false"}) {
			t.Errorf("the history says %v", said)
		}

		if other := r.node("worker-1"); !other.Ready {
			t.Errorf("another node: %+v", other)
		}

		r.pullAndInstall("worker-0", factoryImage)

		if after := r.reboot("worker-0"); after.Talos != "1.13.4" || !after.Kubelet.Ready {
			t.Errorf("after a boot: %+v", after)
		}
	})
}

func TestKubeletGetsWellByItself(t *testing.T) {
	for name, end := range map[string]func(rig){
		"after the fault's duration":       func(rig) { time.Sleep(3*time.Minute + time.Second) },
		"when the script is replaced":      func(r rig) { r.SetFaults(nil) },
		"when another script says no such": func(r rig) { r.SetFaults(sick(model.StepBoot, model.EffectNotReady, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			lasts := time.Duration(0)
			if name == "after the fault's duration" {
				lasts = 3 * time.Minute
			}

			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
				r.SetFaults(sick(model.StepKubelet, model.EffectNotReady, lasts))
				time.Sleep(2 * time.Minute)

				if r.node("worker-0").Kubelet.Ready {
					t.Fatal("the node is ready before the fault ends")
				}

				end(r)

				if state := r.node("worker-0"); !ready(state) {
					t.Fatalf("afterwards: %+v", state)
				}
			})
		})
	}
}

func TestNodeStaysNotReadyAfterItsBoot(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.6"}, func(r rig) {
		kubernetes := &face{}
		r.SetKubernetes(kubernetes)
		r.SetFaults(sick(model.StepBoot, model.EffectNotReady, 10*time.Minute))
		r.legacy("worker-0", model.LegacyOptions{Image: genericImage})
		r.until("worker-0", "down", 3*time.Minute, down)
		r.until("worker-0", "up", 5*time.Minute, func(s model.NodeState) bool { return s.Stage == model.StageRunning })
		time.Sleep(9 * time.Minute)

		state := r.node("worker-0")
		if state.Kubelet.Ready || state.Ready || !state.UpgradePending || state.Talos != "1.13.4" {
			t.Fatalf("nine minutes after the boot: %+v", state)
		}

		if got := kubernetes.text(); got != "cordon worker-0, drain worker-0 5m0s" {
			t.Errorf("a machine whose node is not ready asked: %s", got)
		}

		r.until("worker-0", "ready", 3*time.Minute, ready)
		time.Sleep(time.Second)

		if got := kubernetes.text(); got != "cordon worker-0, drain worker-0 5m0s, uncordon worker-0" {
			t.Errorf("asked of Kubernetes: %s", got)
		}
	})
}

func TestNodeFlapsOnceAfterItBecameReady(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.SetFaults(sick(model.StepBoot, model.EffectFlap, time.Minute))
		begun := r.Now()
		r.reboot("worker-0")
		time.Sleep(time.Hour)

		said, at := r.reports("worker-0", begun)
		if !slices.Equal(said, []string{"false", "true", "false", "true"}) {
			t.Fatalf("the history says %v", said)
		}

		if well, ill := at[2]-at[1], at[3]-at[2]; well.Round(time.Second) != model.FlapAfter.Round(time.Second) || ill.Round(time.Second) != time.Minute {
			t.Errorf("ready for %s and then not for %s", well, ill)
		}
	})
}

func TestNodeThatIsDownDoesNotGetWell(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.SetFaults(append(sick(model.StepKubelet, model.EffectNotReady, time.Minute),
			model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}))

		if _, err := r.Reboot(t.Context(), "worker-0", model.RebootDefault); err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		if state := r.node("worker-0"); state.Up || state.Kubelet.Ready {
			t.Errorf("got %+v", state)
		}
	})
}
