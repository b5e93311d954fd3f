// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestStaticPodFaults(t *testing.T) {
	for name, test := range map[string]struct {
		fault   model.Fault
		trouble string
		ends    string // by itself, or with the script
		history string
	}{
		"never ready, for a while": {
			model.Fault{Effect: model.EffectNeverReady, For: 5 * time.Minute},
			"", "itself",
			"stopped@1.34.2 starting@1.35.2 starting@1.35.2 ready@1.35.2",
		},
		"never ready, until the script is replaced": {
			model.Fault{Effect: model.EffectNeverReady},
			"", "script",
			"stopped@1.34.2 starting@1.35.2 starting@1.35.2 ready@1.35.2",
		},
		"crash loop": {
			model.Fault{Effect: model.EffectCrashLoop},
			"CrashLoopBackOff: ", "script",
			"stopped@1.34.2 failed@1.35.2 starting@1.35.2 ready@1.35.2",
		},
	} {
		test.fault.Node, test.fault.Step, test.fault.Component, test.fault.Times = "*", model.StepStaticPod, model.APIServerName, 1

		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 3, Kubernetes: "1.34.2"}, func(r rig) {
				r.SetFaults([]model.Fault{test.fault})
				r.mustApply("cp-0", ":v1.34.2", ":v1.35.2")
				r.pass(4 * time.Minute)

				state := r.node("cp-0")
				if pod := state.StaticPods[model.APIServerName]; pod.Ready || pod.PodImage != newServer || !strings.HasPrefix(pod.Trouble, test.trouble) || (test.trouble == "") != (pod.Trouble == "") {
					r.t.Errorf("pod: %+v", pod)
				}

				if state.APIServerUp || state.Ready || !r.node("cp-1").APIServerUp || !serves(model.SchedulerName, newScheduler)(state) {
					r.t.Errorf("while it lasts: %+v", state)
				}

				if test.ends == "script" {
					r.SetFaults([]model.Fault{test.fault})
					r.pass(10 * time.Minute)

					if r.node("cp-0").APIServerUp {
						r.t.Error("the same script again ended it")
					}

					r.SetFaults([]model.Fault{{Node: "*", Step: model.StepStaticPod, Effect: test.fault.Effect, Component: model.SchedulerName}})
				}

				r.until("cp-0", "serving", 4*time.Minute, serves(model.APIServerName, newServer))

				if got := r.components("cp-0", model.APIServerName); got != test.history {
					r.t.Errorf("history: %s", got)
				}
			})
		})
	}
}

func TestHeldPodStaysHeldOverABoot(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Kubernetes: "1.34.2"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepStaticPod, Effect: model.EffectCrashLoop, Component: model.SchedulerName, Times: 1}})
		r.mustApply("cp-0", ":v1.34.2", ":v1.35.2")
		r.pass(2 * time.Minute)
		r.pullAndInstall("cp-0", factoryImage)

		if _, err := r.Reboot(r.t.Context(), "cp-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("cp-0", "down", time.Minute, down)
		state := r.until("cp-0", "running", 5*time.Minute, func(s model.NodeState) bool { return s.Stage == model.StageRunning && s.Kubelet.Ready })

		r.pass(time.Minute)

		if pod := state.StaticPods[model.SchedulerName]; pod.Ready || pod.Trouble == "" || !state.APIServerUp || !r.node("cp-0").UpgradePending {
			r.t.Errorf("after the boot: %+v", state)
		}

		r.SetFaults(nil)
		r.until("cp-0", "ready", time.Minute, ready)
	})
}

func TestFlaps(t *testing.T) {
	for name, test := range map[string]struct {
		fault model.Fault
		least time.Duration
		want  string
	}{
		"of a static pod": {
			model.Fault{Step: model.StepStaticPod, Times: 1}, 19 * time.Second, "failed@1.35.2 ready@1.35.2",
		},
		"of the API server, twice": {
			model.Fault{Step: model.StepAPIServer, Times: 2, For: 40 * time.Second},
			39 * time.Second,
			"failed@1.35.2 ready@1.35.2 failed@1.35.2 ready@1.35.2",
		},
	} {
		test.fault.Node, test.fault.Effect = "cp-0", model.EffectFlap

		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 3, Kubernetes: "1.34.2"}, func(r rig) {
				r.SetFaults([]model.Fault{test.fault})
				r.mustApply("cp-0", "kube-apiserver:v1.34.2", "kube-apiserver:v1.35.2")
				r.until("cp-0", "serving", 2*time.Minute, serves(model.APIServerName, newServer))

				r.until("cp-0", "away", 8*time.Second, func(s model.NodeState) bool { return !s.APIServerUp })
				began := time.Now()
				r.until("cp-0", "back", time.Minute, func(s model.NodeState) bool { return s.APIServerUp })

				if took := time.Since(began); took < test.least {
					r.t.Errorf("away for %s", took)
				}

				r.pass(5 * time.Minute)

				if got := strings.TrimPrefix(r.components("cp-0", model.APIServerName), "stopped@1.34.2 starting@1.35.2 ready@1.35.2 "); got != test.want {
					r.t.Errorf("history: %s", got)
				}

				if faults := len(r.log.of("cp-0", history.KindFault)); faults != test.fault.Times {
					r.t.Errorf("%d faults are recorded", faults)
				}
			})
		})
	}
}
