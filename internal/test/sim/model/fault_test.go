// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestFault_Load(t *testing.T) {
	const script = `
faults:
  - node: worker-0
    step: pull
    effect: fail
    times: 2
    message: registry says no
  - {node: "*", step: install, effect: unreachable, for: 3m}
  - {node: cp-0, step: static-pod, effect: never-ready, component: kube-scheduler, for: 10m, times: 0}
  - {node: cp-0, step: api-server, effect: flap, for: 30s}
  - {node: cp-0, step: apply, effect: overwritten, component: kube-proxy}
  - {node: cp-0, step: kubelet-restart, effect: stays-down}
  - {node: cp-0, step: component-pull, effect: stall, component: kubelet, for: 1m}
  - {node: cp-0, step: apply, effect: busy, component: installer}
  - {node: "*", step: etcd, effect: alarm-nospace, for: 5m}
  - {node: cp-0, step: etcd-snapshot, effect: stall, for: 5m}
  - {node: cp-0, step: disk, effect: stall, for: 2m}
  - {node: worker-0, step: security-state, effect: unreadable}
  - {node: cp-0, step: rollback, effect: connection-lost}
  - {node: cp-0, step: boot, effect: etcd-down, talos: v1.13.4, times: 0}
  - {node: worker-0, step: boot, effect: stuck, for: 7m, message: no lease}
`

	got, err := model.LoadFaults([]byte(script))
	if err != nil {
		t.Fatal(err)
	}

	want := []model.Fault{
		{Node: "worker-0", Step: model.StepPull, Effect: model.EffectFail, Times: 2, Message: "registry says no"},
		{Node: "*", Step: model.StepInstall, Effect: model.EffectUnreachable, Times: 1, For: 3 * time.Minute},
		{Node: "cp-0", Step: model.StepStaticPod, Effect: model.EffectNeverReady, Component: "kube-scheduler", For: 10 * time.Minute},
		{Node: "cp-0", Step: model.StepAPIServer, Effect: model.EffectFlap, Times: 1, For: 30 * time.Second},
		{Node: "cp-0", Step: model.StepApply, Effect: model.EffectOverwritten, Times: 1, Component: "kube-proxy"},
		{Node: "cp-0", Step: model.StepKubeletRestart, Effect: model.EffectStaysDown, Times: 1},
		{Node: "cp-0", Step: model.StepComponentPull, Effect: model.EffectStall, Times: 1, Component: "kubelet", For: time.Minute},
		{Node: "cp-0", Step: model.StepApply, Effect: model.EffectBusy, Times: 1, Component: "installer"},
		{Node: "*", Step: model.StepEtcd, Effect: model.EffectAlarmNoSpace, Times: 1, For: 5 * time.Minute},
		{Node: "cp-0", Step: model.StepEtcdSnapshot, Effect: model.EffectStall, Times: 1, For: 5 * time.Minute},
		{Node: "cp-0", Step: model.StepDisk, Effect: model.EffectStall, Times: 1, For: 2 * time.Minute},
		{Node: "worker-0", Step: model.StepSecurityState, Effect: model.EffectUnreadable, Times: 1},
		{Node: "cp-0", Step: model.StepRollback, Effect: model.EffectConnectionLost, Times: 1},
		{Node: "cp-0", Step: model.StepBoot, Effect: model.EffectEtcdDown, Talos: "v1.13.4"},
		{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectStuck, Times: 1, For: 7 * time.Minute, Message: "no lease"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}

	for _, empty := range []string{"", "# nothing\n", "faults:\n", "faults: []\n"} {
		if faults, err := model.LoadFaults([]byte(empty)); err != nil || len(faults) != 0 {
			t.Errorf("%q: %v, %v", empty, faults, err)
		}
	}
}

func TestFault_LoadNamesLineAndField(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{"no mapping", "- node: a", "line 1: want a mapping"},
		{"unknown key", "fault: []", `line 1: unknown field "fault"`},
		{"no list", "faults: {}", "line 1: field faults: want a list"},
		{"entry is no mapping", "faults:\n- worker-0", "line 2: want a mapping"},
		{"unknown field", "faults:\n- node: a\n  stpe: pull", "line 3: field stpe: unknown field"},
		{"field twice", "faults:\n- node: a\n  node: b", "line 3: field node given twice"},
		{"no node", "faults:\n- {step: pull, effect: fail}", "line 2: field node: missing"},
		{"unknown step", "faults:\n- {node: a, step: pul, effect: fail}", `line 2: field step: got "pul"`},
		{"effect of another step", "faults:\n- {node: a, step: pull, effect: fallback}", "step pull can have fail, not-found"},
		{"times is no number", "faults:\n- node: a\n  times: many", "line 3: field times"},
		{"negative times", "faults:\n- {node: a, step: pull, effect: fail, times: -1}", "field times: got -1"},
		{"bad duration", "faults:\n- node: a\n  for: 3 minutes", "line 3: field for"},
		{"duration without meaning", "faults:\n- {node: a, step: pull, effect: fail, for: 3m}", "field for: effect fail has no duration"},
		{"component of another step", "faults:\n- {node: a, step: pull, effect: fail, component: kubelet}", "field component: step pull is of no component"},
		{"unknown component", "faults:\n- {node: a, step: static-pod, effect: never-ready, component: kubelet}", `got "kubelet", step static-pod can have`},
		{"effect of a boot", "faults:\n- {node: a, step: kubelet-restart, effect: fallback}", "step kubelet-restart can have stays-down, not-ready"},
		{"duration of a snapshot", "faults:\n- {node: a, step: etcd-snapshot, effect: cut, for: 3m}", "field for: effect cut has no duration"},
		{"effect of a disk", "faults:\n- {node: a, step: clock, effect: full}", "step clock can have unsynced, disabled, unreadable"},
		{"version of no boot", "faults:\n- {node: a, step: install, effect: fail, talos: 1.13.4}", "field talos: step install is of no version"},
		{"bad version", "faults:\n- {node: a, step: boot, effect: stuck, talos: 1.13}", `field talos: got "1.13"`},
		{"effect of a rollback", "faults:\n- {node: a, step: rollback, effect: stuck}", "step rollback can have fail, connection-lost"},
		{"not YAML", "faults: [", "line 1"},
	} {
		_, err := model.LoadFaults([]byte(test.script))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func TestFault_OfPulls(t *testing.T) {
	for _, test := range []struct {
		effect model.Effect
		want   error
		cached bool
	}{
		{model.EffectFail, model.ErrPullFailed, false},
		{model.EffectNotFound, model.ErrImageNotFound, false},
		{model.EffectConnectionLost, model.ErrConnectionLost, true},
	} {
		inWorld(t, model.Options{ControlPlanes: 1, Talos: "1.14.0"}, func(r rig) {
			r.SetFaults([]model.Fault{{Node: "*", Step: model.StepPull, Effect: test.effect, Times: 1}})

			if _, err := r.Pull(r.t.Context(), "cp-0", factoryImage, nil); !errors.Is(err, test.want) {
				r.t.Errorf("%s: got %v, want %v", test.effect, err, test.want)
			}

			if cached := slices.Contains(r.node("cp-0").Images, factoryImage); cached != test.cached {
				r.t.Errorf("%s: image there: %t", test.effect, cached)
			}

			if _, err := r.Pull(r.t.Context(), "cp-0", factoryImage, nil); err != nil {
				r.t.Errorf("%s: second try: %v", test.effect, err)
			}

			if faults := r.log.of("cp-0", history.KindFault); len(faults) != 1 || faults[0].Detail["effect"] != string(test.effect) {
				r.t.Errorf("%s: recorded %+v", test.effect, faults)
			}
		})
	}
}

// Talos before 1.14 retries for a time, except if no registry has the image.
func TestFault_PullIsTriedAsOftenAsTheVersionDoes(t *testing.T) {
	for _, test := range []struct {
		talos        string
		fault        model.Fault
		want         error
		strikes      int
		least, limit time.Duration
	}{
		{"1.14.0", model.Fault{Effect: model.EffectFail, Times: 3}, model.ErrPullFailed, 1, 0, time.Minute},
		{"1.13.2", model.Fault{Effect: model.EffectFail, Times: 3}, nil, 3, 35 * time.Second, 3 * time.Minute},
		{"1.13.2", model.Fault{Effect: model.EffectFail}, model.ErrPullFailed, 8, 8 * time.Minute, 20 * time.Minute},
		{"1.13.2", model.Fault{Effect: model.EffectNotFound}, model.ErrImageNotFound, 1, 0, time.Minute},
	} {
		for _, step := range []model.Step{model.StepPull, model.StepComponentPull} {
			t.Run(fmt.Sprintf("%s %s %s %d", test.talos, step, test.fault.Effect, test.fault.Times), func(t *testing.T) {
				inWorld(t, model.Options{ControlPlanes: 1, Talos: test.talos, Kubernetes: "1.34.2"}, func(r rig) {
					fault := test.fault
					fault.Node, fault.Step = "cp-0", step
					r.SetFaults([]model.Fault{fault})

					var err error

					if step == model.StepPull {
						_, err = r.Pull(r.t.Context(), "cp-0", factoryImage, nil)
					} else {
						_, err = r.PullComponent(r.t.Context(), "cp-0", newServer, model.NamespaceCRI, nil)
					}

					took := r.Now()
					if !errors.Is(err, test.want) || took < test.least || took > test.limit {
						r.t.Errorf("got %v after %s, want %v between %s and %s", err, took, test.want, test.least, test.limit)
					}

					if struck := len(r.log.of("cp-0", history.KindFault)); struck != test.strikes {
						r.t.Errorf("tried %d times, want %d", struck, test.strikes)
					}
				})
			})
		}
	}
}

func TestFault_StalledPullGoesOnWhenTheScriptIsReplaced(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepPull, Effect: model.EffectStall, Times: 1}})

		time.AfterFunc(30*time.Minute, func() { r.SetFaults(nil) })

		if _, err := r.Pull(r.t.Context(), "cp-0", factoryImage, nil); err != nil || r.Now() < 30*time.Minute {
			r.t.Fatalf("after %s: %v", r.Now(), err)
		}
	})
}

func TestFault_OfInstalls(t *testing.T) {
	for _, test := range []struct {
		effect model.Effect
		exit   int
		err    error
		armed  bool
	}{
		{model.EffectFail, 1, nil, false},
		{model.EffectFailArmed, 1, nil, true},
		{model.EffectConnectionLost, 0, model.ErrConnectionLost, true},
		{model.EffectConnectionLostEarly, 0, model.ErrConnectionLost, true},
	} {
		inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
			r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepInstall, Effect: test.effect, Times: 1}})

			if _, err := r.Pull(r.t.Context(), "cp-0", factoryImage, nil); err != nil {
				r.t.Fatal(err)
			}

			exit, err := r.Install(r.t.Context(), "cp-0", factoryImage, nil)
			if exit != test.exit || !errors.Is(err, test.err) {
				r.t.Errorf("%s: exit %d, %v", test.effect, exit, err)
			}

			r.until("cp-0", "idle", time.Minute, func(s model.NodeState) bool { return !s.Installing })

			if state := r.node("cp-0"); state.Armed != test.armed {
				r.t.Errorf("%s: armed %t", test.effect, state.Armed)
			}
		})
	}
}

func TestFault_RebootTakesEffectBehindALostConnection(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepReboot, Effect: model.EffectConnectionLost, Times: 1}})

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); !errors.Is(err, model.ErrConnectionLost) {
			r.t.Fatalf("reboot: %v", err)
		}

		r.until("worker-0", "down", time.Minute, down)
	})
}

func TestFault_UnreachableMachineRunsOnAndAnswersAgain(t *testing.T) {
	for _, test := range []struct {
		name  string
		lasts time.Duration
	}{{"for a while", 3 * time.Minute}, {"until the script is replaced", 0}} {
		inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
			r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepObserve, Effect: model.EffectUnreachable, Times: 1, For: test.lasts}})

			if _, err := r.Version(r.t.Context(), "cp-0"); !errors.Is(err, model.ErrUnreachable) {
				r.t.Fatalf("%s: %v", test.name, err)
			}

			if state := r.node("cp-0"); !state.Up || state.Reachable || !r.APIServerUp("cp-0") {
				r.t.Fatalf("%s: %+v", test.name, state)
			}

			time.Sleep(3*time.Minute + time.Second)

			if test.lasts == 0 {
				if r.node("cp-0").Reachable {
					r.t.Fatal("answers again by itself")
				}

				r.SetFaults(nil)
			}

			if version, err := r.Version(r.t.Context(), "cp-0"); err != nil || version != "1.13.2" {
				r.t.Fatalf("%s: afterwards %q, %v", test.name, version, err)
			}
		})
	}
}

// TestFault_DoesNotBeginOnceTheScriptIsReplaced: a pull under way was struck, and the script is replaced before the
// machine falls silent.
func TestFault_DoesNotBeginOnceTheScriptIsReplaced(t *testing.T) {
	for _, test := range []struct {
		name   string
		script []model.Fault
		want   bool
	}{
		{"without the fault", nil, true},
		{"by one with the fault", []model.Fault{{Node: "cp-0", Step: model.StepPull, Effect: model.EffectUnreachable}}, false},
	} {
		inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
			r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepPull, Effect: model.EffectUnreachable, Times: 1}})

			pulled := make(chan error, 1)
			go func() {
				_, err := r.Pull(r.t.Context(), "cp-0", factoryImage, nil)
				pulled <- err
			}()

			time.Sleep(time.Second)
			r.SetFaults(test.script)

			if err := <-pulled; err != nil {
				r.t.Fatalf("%s: pull: %v", test.name, err)
			}

			time.Sleep(time.Minute)

			if state := r.node("cp-0"); state.Reachable != test.want {
				r.t.Errorf("%s: reachable %t, want %t", test.name, state.Reachable, test.want)
			}
		})
	}
}

func TestFault_IsTakenAsOftenAsItSays(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 2}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "*", Step: model.StepDrain, Effect: model.EffectBlockedByBudget, Times: 2}})

		taken := 0

		for _, name := range []string{"cp-0", "cp-0", "cp-0", "cp-1"} {
			if _, found := r.TakeFault(name, model.StepDrain); found {
				taken++
			}
		}

		if taken != 3 || len(r.FaultsFor(model.StepDrain)) != 1 {
			r.t.Fatalf("taken %d times, left %v", taken, r.FaultsFor(model.StepDrain))
		}
	})
}

func TestFault_ScriptNamesAnUnknownMachine(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
		faults := []model.Fault{
			{Node: "*", Step: model.StepPull, Effect: model.EffectFail},
			{Node: "cp-0", Step: model.StepPull, Effect: model.EffectFail},
		}
		if err := r.CheckFaults(faults); err != nil {
			r.t.Fatal(err)
		}

		faults = append(faults, model.Fault{Node: "cp-7", Step: model.StepBoot, Effect: model.EffectFallback})
		if err := r.CheckFaults(faults); !errors.Is(err, model.ErrUnknownNode) || !strings.Contains(err.Error(), `"cp-7"`) {
			r.t.Fatalf("got %v", err)
		}
	})
}

// TestFault_ListsWhatScriptsCanSay reads a script of each fault, with a duration
// and without one.
func TestFault_ListsWhatScriptsCanSay(t *testing.T) {
	seen := map[string]bool{}

	for _, fault := range model.Faults() {
		pair := fmt.Sprintf("step: %s, effect: %s", fault.Step, fault.Effect)
		if seen[pair] {
			t.Errorf("%s is listed twice", pair)
		}

		seen[pair] = true

		if _, err := model.LoadFaults([]byte("faults: [{node: cp-0, " + pair + "}]")); err != nil {
			t.Errorf("%s: %v", pair, err)
		}

		if _, err := model.LoadFaults([]byte("faults: [{node: cp-0, for: 3m, " + pair + "}]")); (err == nil) != fault.Lasting() {
			t.Errorf("%s: lasting is %t, but with a duration: %v", pair, fault.Lasting(), err)
		}
	}

	for _, fault := range []model.Fault{
		{Step: model.StepObserve, Effect: model.EffectUnreachable},
		{Step: model.StepBoot, Effect: model.EffectFallback},
		{Step: model.StepSecurityState, Effect: model.EffectUnreadable},
	} {
		if !seen[fmt.Sprintf("step: %s, effect: %s", fault.Step, fault.Effect)] {
			t.Errorf("%s %s is not listed", fault.Step, fault.Effect)
		}
	}
}
