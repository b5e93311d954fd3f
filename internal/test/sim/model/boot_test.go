// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// arrives reboots a machine into what is installed and gives it enough time.
func (r rig) arrives(name string) model.NodeState {
	r.t.Helper()

	if _, err := r.Reboot(r.t.Context(), name, model.RebootDefault); err != nil {
		r.t.Fatal(err)
	}

	r.until(name, "down", time.Minute, down)
	r.until(name, "up", 5*time.Minute, func(s model.NodeState) bool { return s.Up })
	time.Sleep(10 * time.Minute)

	return r.node(name)
}

func unmet(state model.NodeState) map[string]string {
	reasons := map[string]string{}
	for _, condition := range state.Unmet {
		reasons[condition.Name] = condition.Reason
	}

	return reasons
}

func TestBoot_MemberThatDoesNotComeUpOnTheNewSystem(t *testing.T) {
	faults := []model.Fault{{Node: "cp-1", Step: model.StepBoot, Effect: model.EffectEtcdDown, Talos: "1.13.4"}}

	for name, test := range map[string]struct {
		cure  func(rig)
		talos string
	}{
		"until another system boots": {func(r rig) {
			if state := r.arrives("cp-1"); state.EtcdRunning {
				r.t.Error("a reboot of the same system cured it")
			}

			if err := r.Rollback(r.t.Context(), "cp-1"); err != nil {
				r.t.Fatal(err)
			}
		}, "1.13.2"},
		"until the script is replaced": {func(r rig) { r.SetFaults(nil) }, "1.13.4"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 3, Faults: faults}, func(r rig) {
				r.pullAndInstall("cp-1", factoryImage)

				state := r.arrives("cp-1")
				if state.Talos != "1.13.4" || state.Stage != model.StageRunning || !state.Kubelet.Ready || state.EtcdRunning || state.EtcdServed ||
					state.APIServerUp || state.StaticPods[model.APIServerName].Ready || !state.UpgradePending {
					r.t.Errorf("with the new system: %+v", state)
				}

				if reasons := unmet(state); reasons["services"] != "etcd not healthy" || reasons["staticPods"] != "kube-system/kube-apiserver-cp-1 not ready" {
					r.t.Errorf("not ready because of %q", reasons)
				}

				if _, err := r.EtcdStatus(r.t.Context(), "cp-1"); err == nil {
					r.t.Error("a member that is down has a status")
				}

				if !r.EtcdQuorum() {
					r.t.Error("the others have no quorum")
				}

				test.cure(r)
				r.until("cp-1", "healthy with "+test.talos, 10*time.Minute, func(s model.NodeState) bool {
					return ready(s) && s.EtcdHealthy && s.APIServerUp && s.Talos == test.talos
				})
			})
		})
	}
}

func TestBoot_MemberIsDownForAWhile(t *testing.T) {
	// The only member takes the API server of the whole cluster with it.
	inWorld(t, model.Options{ControlPlanes: 1, Faults: []model.Fault{
		{Node: "cp-0", Step: model.StepBoot, Effect: model.EffectEtcdDown, Times: 1, For: 15 * time.Minute},
	}}, func(r rig) {
		r.pullAndInstall("cp-0", factoryImage)

		if state := r.arrives("cp-0"); r.Serving() || state.Ready || state.Kubelet.Ready {
			r.t.Errorf("without etcd: %+v", state)
		}

		r.until("cp-0", "ready", 10*time.Minute, ready)
	})
}

// TestBoot_MachineStuckInBooting is row 42 of the catalogue: the machine's API answers, but its boot does not
// continue.
func TestBoot_MachineStuckInBooting(t *testing.T) {
	for name, test := range map[string]struct {
		fault model.Fault
		cure  func(rig)
		after string
	}{
		"until the next boot":          {model.Fault{Times: 1}, func(r rig) { r.arrives("cp-1") }, "1.13.4"},
		"for a while":                  {model.Fault{Times: 1, For: 20 * time.Minute}, func(rig) {}, "1.13.4"},
		"until the script is replaced": {model.Fault{}, func(r rig) { r.SetFaults(nil) }, "1.13.4"},
		"until another system boots": {model.Fault{Talos: "1.13.4"}, func(r rig) {
			if err := r.Rollback(r.t.Context(), "cp-1"); err != nil {
				r.t.Fatal(err)
			}
		}, "1.13.2"},
	} {
		t.Run(name, func(t *testing.T) {
			test.fault.Node, test.fault.Step, test.fault.Effect = "cp-1", model.StepBoot, model.EffectStuck
			test.fault.Message = "waiting on: a default route"

			inWorld(t, model.Options{ControlPlanes: 3, Faults: []model.Fault{test.fault}}, func(r rig) {
				r.pullAndInstall("cp-1", factoryImage)

				state := r.arrives("cp-1")
				if !state.Reachable || state.Stage != model.StageBooting || state.Ready || state.Kubelet.Running || state.EtcdRunning || state.Talos != "1.13.4" {
					r.t.Errorf("stuck: %+v", state)
				}

				if reasons := unmet(state); reasons["network"] != "waiting on: a default route" || reasons["services"] == "" {
					r.t.Errorf("not ready because of %q", reasons)
				}

				test.cure(r)
				r.until("cp-1", "ready", 15*time.Minute, func(s model.NodeState) bool { return ready(s) && s.Talos == test.after })
			})
		})
	}
}
