// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// reports returns what the kubelet said of its node since the given time, and when.
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

func TestKubelet_IsNotReadyFromTheStartUntilTheNextBoot(t *testing.T) {
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

func TestKubelet_GetsWellByItself(t *testing.T) {
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

func TestKubelet_NodeStaysNotReadyAfterItsBoot(t *testing.T) {
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

func TestKubelet_NodeFlapsOnceAfterItBecameReady(t *testing.T) {
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

func TestKubelet_NodeDoesNotFlapOnceTheScriptIsReplaced(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.SetFaults(sick(model.StepBoot, model.EffectFlap, 0))
		r.reboot("worker-0")
		r.until("worker-0", "ready", time.Hour, func(state model.NodeState) bool { return state.Up && state.Kubelet.Ready })
		r.SetFaults(nil)
		time.Sleep(model.FlapAfter + time.Minute)

		if state := r.node("worker-0"); !state.Kubelet.Ready {
			t.Errorf("got %+v", state)
		}
	})
}

func TestKubelet_NodeThatIsDownDoesNotGetWell(t *testing.T) {
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

func TestKubelet_Restarts(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2"}, func(r rig) {
		if _, err := r.PullComponent(r.t.Context(), "worker-0", newKubelet, model.NamespaceSystem, nil); err != nil {
			r.t.Fatal(err)
		}

		before := r.node("worker-0").KubeletService.Since
		began := time.Now()
		r.mustApply("worker-0", "kubelet:v1.34.2", "kubelet:v1.35.2")

		away := r.until("worker-0", "without a kubelet", 2*time.Second, func(s model.NodeState) bool { return s.KubeletService.Since.IsZero() })
		if away.KubeletService.Running || away.KubeletService.Healthy || away.Kubelet.Running || away.Kubelet.Version != "1.34.2" || away.KubeletService.Image != newKubelet {
			r.t.Errorf("in between: %+v", away)
		}

		if !away.Kubelet.Ready || away.Ready || !slices.Contains(away.Unmet, model.Condition{Name: "services", Reason: "kubelet not running"}) {
			r.t.Errorf("in between: node ready %t, unmet %v", away.Kubelet.Ready, away.Unmet)
		}

		registered := r.until("worker-0", "registered", 5*time.Second, func(s model.NodeState) bool { return s.Kubelet.Version == "1.35.2" })
		if registered.Kubelet.Ready || registered.Ready || !slices.ContainsFunc(registered.Unmet, func(c model.Condition) bool { return c.Name == "nodeReady" }) {
			r.t.Errorf("a new kubelet has to find its node not ready first: %+v, unmet %v", registered.Kubelet, registered.Unmet)
		}

		since := time.Now()

		r.until("worker-0", "ready", 7*time.Second, func(s model.NodeState) bool { return s.Kubelet.Ready })

		if took := time.Since(since); took < 1700*time.Millisecond || took > 6200*time.Millisecond {
			r.t.Errorf("its node was not ready for %s", took)
		}

		state := r.until("worker-0", "with the new kubelet", 10*time.Second, kubeletRuns("1.35.2"))
		if took := time.Since(began); took < 3*time.Second || took > 11*time.Second {
			r.t.Errorf("took %s", took)
		}

		if !state.KubeletService.Since.After(before) || state.Components.Kubelet != "1.35.2" || !state.Ready {
			r.t.Errorf("in the end: %+v", state)
		}

		if got := r.components("worker-0", model.KubeletName); got != "stopped@1.34.2 starting@1.35.2 ready@1.35.2" {
			r.t.Errorf("history: %s", got)
		}

		var seen []string
		for _, event := range r.log.of("worker-0", history.KindKubelet) {
			seen = append(seen, event.Detail["version"]+" ready="+event.Detail["ready"])
		}

		if want := []string{"1.35.2 ready=false", "1.35.2 ready=true"}; !slices.Equal(seen, want) {
			r.t.Errorf("history: %q, want %q", seen, want)
		}
	})
}

func TestKubelet_StaysDown(t *testing.T) {
	for name, length := range map[string]time.Duration{"for a while": 5 * time.Minute, "until the script is replaced": 0} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2"}, func(r rig) {
				r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepKubeletRestart, Effect: model.EffectStaysDown, For: length, Times: 1}})
				r.mustApply("worker-0", "kubelet:v1.34.2", "kubelet:v1.35.2")
				r.pass(30 * time.Second)

				if state := r.node("worker-0"); state.KubeletService.Running || !state.Kubelet.Ready {
					r.t.Errorf("within the grace of the node controller: %+v", state)
				}

				r.pass(3 * time.Minute)

				if state := r.node("worker-0"); state.KubeletService.Running || state.Kubelet.Ready || state.Kubelet.Version != "1.34.2" {
					r.t.Errorf("after it: %+v", state)
				}

				if length == 0 {
					r.pass(time.Hour)
					r.SetFaults(nil)
				}

				r.until("worker-0", "up", 4*time.Minute, func(s model.NodeState) bool { return kubeletRuns("1.35.2")(s) && s.Kubelet.Ready && ready(s) })
			})
		})
	}
}

func TestKubelet_NewOneStaysNotReady(t *testing.T) {
	for name, length := range map[string]time.Duration{"for a while": 5 * time.Minute, "until the script is replaced": 0} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2"}, func(r rig) {
				r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepKubeletRestart, Effect: model.EffectNotReady, For: length, Times: 1}})
				r.mustApply("worker-0", "kubelet:v1.34.2", "kubelet:v1.35.2")
				r.until("worker-0", "with the new kubelet", 2*time.Minute, kubeletRuns("1.35.2"))
				r.pass(4 * time.Minute)

				if state := r.node("worker-0"); state.Kubelet.Ready || !kubeletRuns("1.35.2")(state) {
					r.t.Errorf("kubelet %+v, service %+v", state.Kubelet, state.KubeletService)
				}

				if length == 0 {
					r.pass(time.Hour)
					r.SetFaults(nil)
				}

				r.until("worker-0", "ready", 90*time.Second, ready)
			})
		})
	}
}

func TestKubelet_DownOverABoot(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Kubernetes: "1.34.2"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepKubeletRestart, Effect: model.EffectStaysDown, Times: 1}})
		r.mustApply("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.2")
		r.pass(2 * time.Minute)
		r.pullAndInstall("cp-0", factoryImage)

		if _, err := r.Reboot(r.t.Context(), "cp-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("cp-0", "down", time.Minute, down)
		r.pass(10 * time.Minute)

		if state := r.node("cp-0"); state.Kubelet.Running || state.Kubelet.Ready || state.APIServerUp || !state.UpgradePending {
			r.t.Errorf("while it stays down: %+v", state)
		}

		r.SetFaults(nil)

		state := r.until("cp-0", "ready", 2*time.Minute, ready)
		if !kubeletRuns("1.35.2")(state) || !state.APIServerUp {
			r.t.Errorf("in the end: %+v", state)
		}
	})
}

func TestKubelet_MissingImage(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.mustApply("worker-0", "kubelet:v1.34.2", "kubelet:v1.99.0")
		r.pass(5 * time.Minute)

		if state := r.node("worker-0"); state.KubeletService.Running || state.Kubelet.Ready || state.Kubelet.Version != "1.34.2" {
			r.t.Errorf("without an image: %+v", state)
		}

		r.mustApply("worker-0", "kubelet:v1.99.0", "kubelet:v1.34.2")
		r.until("worker-0", "ready", time.Minute, ready)
	})
}

func TestKubelet_SuffixIsNoPartOfItsVersion(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.mustApply("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.2-slim@sha256:"+schematic)
		r.until("cp-0", "at the new kubelet", 2*time.Minute, kubeletRuns("1.35.2"))
	})
}

func TestKubelet_StaticPodsWaitForIt(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Kubernetes: "1.34.2"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepKubeletRestart, Effect: model.EffectStaysDown, Times: 1}})
		r.mustApply("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.2")
		r.pass(2 * time.Minute)
		r.mustApply("cp-0", "kube-apiserver:v1.34.2", "kube-apiserver:v1.35.2")
		r.pass(5 * time.Minute)

		if pod := r.node("cp-0").StaticPods[model.APIServerName]; pod.ConfigVersion != 2 || pod.PodConfigVersion != 1 || !pod.Ready {
			r.t.Errorf("without a kubelet: %+v", pod)
		}

		r.SetFaults(nil)
		r.until("cp-0", "serving", 4*time.Minute, serves(model.APIServerName, newServer))
	})
}
