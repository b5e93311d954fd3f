// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestStaticPod_FollowsItsConfiguration(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Kubernetes: "1.34.2"}, func(r rig) {
		began := time.Now()
		r.mustApply("cp-1", "kube-apiserver:v1.34.2", "kube-apiserver:v1.35.2")

		configured := r.until("cp-1", "configured", 2*time.Second, func(s model.NodeState) bool {
			return s.StaticPods[model.APIServerName].ConfigVersion == 2
		})
		if pod := configured.StaticPods[model.APIServerName]; pod.Image != newServer || pod.PodConfigVersion != 1 || !pod.Ready || !configured.APIServerUp {
			r.t.Errorf("the old pod is to serve still: %+v", pod)
		}

		away := r.until("cp-1", "away", 21*time.Second, func(s model.NodeState) bool { return !s.APIServerUp })
		if pod := away.StaticPods[model.APIServerName]; pod.PodImage != newServer || pod.PodConfigVersion != 2 || pod.Ready || !pod.Started.IsZero() {
			r.t.Errorf("the new pod: %+v", pod)
		}

		if away.Ready || !slices.Contains(away.Unmet, model.Condition{Name: "staticPods", Reason: "kube-system/kube-apiserver-cp-1 not ready"}) {
			r.t.Errorf("unmet: %v", away.Unmet)
		}

		if away.Components.APIServer != "1.34.2" || !away.Kubelet.Ready {
			r.t.Errorf("nothing new runs yet: %+v", away)
		}

		state := r.until("cp-1", "serving", 3*time.Minute, serves(model.APIServerName, newServer))
		if took := time.Since(began); took < 65*time.Second || took > 142*time.Second {
			r.t.Errorf("a restart with a download took %s", took)
		}

		if state.Components.APIServer != "1.35.2" || !state.APIServerUp || !state.Ready {
			r.t.Errorf("in the end: %+v", state)
		}

		if scheduler := state.StaticPods[model.SchedulerName]; scheduler.ConfigVersion != 1 || !scheduler.Ready {
			r.t.Errorf("the scheduler was touched: %+v", scheduler)
		}

		if got := r.components("cp-1", model.APIServerName); got != "stopped@1.34.2 starting@1.35.2 ready@1.35.2" {
			r.t.Errorf("history: %s", got)
		}

		if applied := r.applied("cp-1"); applied != "OK/kube-apiserver/client" {
			r.t.Errorf("history: %s", applied)
		}
	})
}

func TestStaticPod_PulledImageMakesARestartShort(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		if _, err := r.PullComponent(r.t.Context(), "cp-0", newServer, model.NamespaceCRI, nil); err != nil {
			r.t.Fatal(err)
		}

		began := time.Now()
		r.mustApply("cp-0", "kube-apiserver:v1.34.2", "kube-apiserver:v1.35.2")
		r.until("cp-0", "serving", 90*time.Second, serves(model.APIServerName, newServer))

		if took := time.Since(began); took < 35*time.Second || took > 82*time.Second {
			r.t.Errorf("took %s", took)
		}
	})
}

// TestStaticPod_SchedulerTakesTheAPIServerAlong: before Talos 1.14 the files of both have one version, which the
// pod of the API server names.
func TestStaticPod_SchedulerTakesTheAPIServerAlong(t *testing.T) {
	for talos, along := range map[string]bool{"1.12.6": true, "1.13.4": true, "1.14.1": false} {
		inWorld(t, model.Options{ControlPlanes: 3, Talos: talos, Kubernetes: "1.34.2"}, func(r rig) {
			before := r.node("cp-1").StaticPods[model.APIServerName]
			r.mustApply("cp-1", "kube-scheduler:v1.34.2", "kube-scheduler:v1.35.2")
			r.until("cp-1", "scheduling", 2*time.Minute, serves(model.SchedulerName, newScheduler))
			after := r.until("cp-1", "serving", 2*time.Minute, func(s model.NodeState) bool {
				pod := s.StaticPods[model.APIServerName]

				return pod.Ready && pod.PodFilesVersion == pod.FilesVersion
			}).StaticPods[model.APIServerName]

			if anew := !after.Started.Equal(before.Started); anew != along || (after.FilesVersion == before.FilesVersion) == along || after.ConfigVersion != before.ConfigVersion {
				r.t.Errorf("Talos %s: before %+v, after %+v, want it made anew: %t", talos, before, after, along)
			}
		})
	}
}

func TestStaticPod_ChangeOfFlagsRestartsOnlyThatComponent(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.mustApply("cp-0", "  apiServer:\n", "  apiServer:\n    extraArgs:\n      feature-gates: AllBeta=true\n")

		state := r.until("cp-0", "serving", time.Minute, func(s model.NodeState) bool {
			return s.StaticPods[model.APIServerName].PodConfigVersion == 2 && ready(s)
		})
		if state.StaticPods[model.ControllerManagerName].ConfigVersion != 1 || state.KubeletService.Since != r.node("cp-0").BootedAt {
			r.t.Errorf("something else restarted: %+v", state)
		}
	})
}

func TestStaticPod_TwoQuickAppliesEndWithTheLast(t *testing.T) {
	for _, gap := range []time.Duration{0, 2 * time.Second, 20 * time.Second, 50 * time.Second} {
		t.Run(gap.String(), func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r rig) {
				r.mustApply("cp-0", ":v1.34.2", ":v1.35.1")
				r.pass(gap)
				r.mustApply("cp-0", ":v1.35.1", ":v1.35.2")

				upgraded := all("1.35.2")
				upgraded.Proxy = "1.34.2"

				r.until("cp-0", "at the last", 3*time.Minute, func(s model.NodeState) bool {
					return serves(model.APIServerName, newServer)(s) && serves(model.SchedulerName, newScheduler)(s) && kubeletRuns("1.35.2")(s)
				})

				r.pass(3 * time.Minute)

				if state := r.node("cp-0"); !serves(model.APIServerName, newServer)(state) || state.Components != upgraded || !ready(state) {
					r.t.Errorf("later: %+v", state)
				}

				if history := r.components("cp-0", model.APIServerName); !strings.HasSuffix(history, "ready@1.35.2") {
					r.t.Errorf("history: %s", history)
				}
			})
		})
	}
}

func TestStaticPod_OvertakenRestartHasNoEffect(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r rig) {
		r.mustApply("cp-0", ":v1.34.2", ":v1.35.2")
		r.pass(10 * time.Second)
		r.mustApply("cp-0", ":v1.35.2", ":v1.34.2")
		r.pass(5 * time.Minute)

		if state := r.node("cp-0"); !ready(state) || state.Components != all("1.34.2") || state.StaticPods[model.APIServerName].PodConfigVersion != 3 {
			r.t.Errorf("in the end: %+v", state)
		}

		for _, component := range []string{model.KubeletName, model.APIServerName, model.SchedulerName} {
			if got := r.components("cp-0", component); got != "stopped@1.34.2 starting@1.34.2 ready@1.34.2" {
				r.t.Errorf("history of %s: %s", component, got)
			}
		}
	})
}

func TestStaticPod_RebootDuringARestart(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 4 * time.Second, 20 * time.Second, 45 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r rig) {
				r.mustApply("cp-0", ":v1.34.2", ":v1.35.2")
				r.pass(after)

				state := r.reboot("cp-0")
				if !serves(model.APIServerName, newServer)(state) || !kubeletRuns("1.35.2")(state) || state.StaticPods[model.APIServerName].ConfigVersion != 1 {
					r.t.Errorf("after the reboot: %+v", state)
				}

				r.pass(3 * time.Minute)

				if later := r.node("cp-0"); !ready(later) || later.StaticPods[model.APIServerName] != state.StaticPods[model.APIServerName] {
					r.t.Errorf("later: %+v", later)
				}
			})
		})
	}
}

func TestStaticPod_ApplyWhileAMachineBoots(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r rig) {
		if _, err := r.Reboot(r.t.Context(), "cp-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("cp-0", "down", time.Minute, down)
		r.until("cp-0", "booting", 5*time.Minute, func(s model.NodeState) bool { return s.Reachable && s.Stage == model.StageBooting })
		r.mustApply("cp-0", ":v1.34.2", ":v1.35.2")

		r.until("cp-0", "ready at the new version", 5*time.Minute, func(s model.NodeState) bool {
			return ready(s) && serves(model.APIServerName, newServer)(s) && kubeletRuns("1.35.2")(s)
		})
	})
}

func TestStaticPod_MissingImage(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Kubernetes: "1.34.2"}, func(r rig) {
		r.mustApply("cp-0", "kube-scheduler:v1.34.2", "kube-scheduler:v1.99.0")

		stuck := r.until("cp-0", "in trouble", time.Minute, func(s model.NodeState) bool { return s.StaticPods[model.SchedulerName].Trouble != "" })
		if pod := stuck.StaticPods[model.SchedulerName]; !strings.HasPrefix(pod.Trouble, "ImagePullBackOff: ") || !strings.Contains(pod.Trouble, "v1.99.0") || pod.Ready {
			r.t.Errorf("pod: %+v", pod)
		}

		r.pass(10 * time.Minute)

		if state := r.node("cp-0"); state.StaticPods[model.SchedulerName].Ready || state.Ready || state.Components.Scheduler != "1.34.2" || !state.APIServerUp {
			r.t.Errorf("later: %+v", state)
		}

		r.mustApply("cp-0", "kube-scheduler:v1.99.0", "kube-scheduler:v1.34.2")

		state := r.until("cp-0", "repaired", time.Minute, ready)
		if pod := state.StaticPods[model.SchedulerName]; pod.Trouble != "" || pod.PodConfigVersion != 3 {
			r.t.Errorf("pod: %+v", pod)
		}
	})
}

func TestStaticPod_StartsWhenTheRegistryComesBack(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepComponentPull, Effect: model.EffectFail, Component: model.SchedulerName}})
		r.mustApply("cp-0", ":v1.34.2", ":v1.35.2")
		r.pass(4 * time.Minute)

		if state := r.node("cp-0"); !serves(model.APIServerName, newServer)(state) || !strings.Contains(state.StaticPods[model.SchedulerName].Trouble, "503") {
			r.t.Errorf("while the registry is away: %+v", state.StaticPods)
		}

		r.SetFaults(nil)
		r.until("cp-0", "repaired", 2*time.Minute, serves(model.SchedulerName, newScheduler))
	})
}

func TestStaticPod_SameSeedSameHistory(t *testing.T) {
	run := func(seed uint64) string {
		var text string

		inWorld(t, model.Options{ControlPlanes: 3, Workers: 1, Kubernetes: "1.34.2", Seed: seed}, func(r rig) {
			r.SetFaults([]model.Fault{
				{Node: "*", Step: model.StepStaticPod, Effect: model.EffectNeverReady, For: time.Minute, Times: 1},
				{Node: "*", Step: model.StepAPIServer, Effect: model.EffectFlap, Times: 1},
			})

			for _, state := range r.Nodes() {
				r.mustApply(state.Name, ":v1.34.2", ":v1.35.2")
			}

			r.pass(5 * time.Minute)
			synctest.Wait()

			text = r.log.text()
		})

		return text
	}

	if first, second := run(7), run(7); first != second || !strings.Contains(first, "state=ready version=1.35.2") {
		t.Fatalf("one seed, two histories:\n%s\n---\n%s", first, second)
	}
}

func TestStaticPod_Faults(t *testing.T) {
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

func TestStaticPod_StaysHeldOverABoot(t *testing.T) {
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

func TestStaticPod_Flaps(t *testing.T) {
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
