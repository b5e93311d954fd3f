// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	image114 = "factory.talos.dev/metal-installer/" + schematic + ":v1.14.1"
	image111 = "factory.talos.dev/metal-installer/" + schematic + ":v1.11.5"
)

func TestVersionOfEtcdFollowsThatOfTalos(t *testing.T) {
	for talos, want := range map[string][3]string{
		"1.7.6":  {"3.5.11", "", "3.5"},
		"1.9.5":  {"3.5.17", "", "3.5"},
		"1.10.7": {"3.5.21", "", "3.5"},
		"1.11.5": {"3.6.4", "3.6.0", "3.6"},
		"1.13.2": {"3.6.9", "3.6.0", "3.6"},
		"1.14.1": {"3.7.1", "3.7.0", "3.7"},
	} {
		inWorld(t, model.Options{ControlPlanes: 1, Talos: talos}, func(r rig) {
			status := r.status("cp-0")
			if got := [3]string{status.Version, status.Storage, r.EtcdClusterVersion()}; got != want {
				r.t.Errorf("Talos %s: %q, want %q", talos, got, want)
			}
		})
	}
}

// back rolls a machine back and gives it ample time.
func (r rig) back(name string) model.NodeState {
	r.t.Helper()

	if err := r.Rollback(r.t.Context(), name); err != nil {
		r.t.Fatal(err)
	}

	r.until(name, "down", time.Minute, down)
	r.until(name, "up", 5*time.Minute, func(s model.NodeState) bool { return s.Up })
	time.Sleep(10 * time.Minute)

	return r.node(name)
}

// TestOldEtcdCannotJoinANewerCluster: once all members run the newer one, a
// machine may be sent back, but its member stays away.
func TestOldEtcdCannotJoinANewerCluster(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		for i, name := range []string{"cp-0", "cp-1", "cp-2"} {
			if version := r.EtcdClusterVersion(); version != "3.6" {
				r.t.Fatalf("%d members upgraded: cluster version %s", i, version)
			}

			r.pullAndInstall(name, image114)
			r.reboot(name)

			// As long as one is older, there is a way back.
			if i == 0 {
				if state := r.back(name); !state.EtcdHealthy || state.Talos != "1.13.2" {
					r.t.Fatalf("sent back early: %+v", state)
				}

				r.pullAndInstall(name, image114)
				r.reboot(name)
			}

			if status := r.status(name); status.Version != "3.7.1" {
				r.t.Errorf("%s: etcd %s", name, status.Version)
			}
		}

		time.Sleep(time.Minute)

		if status := r.status("cp-0"); r.EtcdClusterVersion() != "3.7" || status.Storage != "3.7.0" {
			r.t.Fatalf("cluster version %s, storage %s", r.EtcdClusterVersion(), status.Storage)
		}

		state := r.back("cp-1")
		if state.Talos != "1.13.2" || state.EtcdRunning || state.EtcdServed || state.APIServerUp || !r.EtcdQuorum() {
			r.t.Errorf("sent back late: %+v", state)
		}

		lines, err := r.Logs(r.t.Context(), "cp-1", "etcd", 1)
		if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "lower than determined cluster version") {
			r.t.Errorf("etcd says %q, %v", lines, err)
		}

		// It never goes down, and the new system comes up again.
		if state = r.back("cp-1"); !state.EtcdHealthy || state.Talos != "1.14.1" || r.EtcdClusterVersion() != "3.7" {
			r.t.Errorf("back again: %+v", state)
		}
	})
}

// TestMemberThatIsDownKeepsTheVersionOfTheCluster, and with it the way back.
func TestMemberThatIsDownKeepsTheVersionOfTheCluster(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Talos: "1.10.7", Faults: []model.Fault{
		{Node: "cp-0", Step: model.StepBoot, Effect: model.EffectEtcdDown, Talos: "1.11.5"},
	}}, func(r rig) {
		r.pullAndInstall("cp-0", image111)

		if state := r.arrives("cp-0"); state.EtcdRunning || r.EtcdClusterVersion() != "3.5" {
			r.t.Fatalf("cluster version %s: %+v", r.EtcdClusterVersion(), state)
		}

		if state := r.back("cp-0"); !ready(state) || !state.EtcdHealthy {
			r.t.Errorf("sent back: %+v", state)
		}
	})
}

// TestOldMemberThatIsDownHoldsTheOthersBack: until it runs a newer version too,
// nothing is agreed on that it could not join.
func TestOldMemberThatIsDownHoldsTheOthersBack(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		for _, name := range []string{"cp-0", "cp-1"} {
			r.pullAndInstall(name, image114)
			r.reboot(name)
		}

		r.SetFaults([]model.Fault{{Node: "cp-2", Step: model.StepBoot, Effect: model.EffectEtcdDown}})

		if state := r.arrives("cp-2"); state.EtcdRunning || r.EtcdClusterVersion() != "3.6" {
			r.t.Errorf("cluster version %s: %+v", r.EtcdClusterVersion(), state)
		}

		r.SetFaults(nil)
		r.until("cp-2", "healthy", time.Minute, func(s model.NodeState) bool { return s.EtcdHealthy })
	})
}

// TestNewMemberThatDoesNotComeUpStaysALearner until it does.
func TestNewMemberThatDoesNotComeUpStaysALearner(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Faults: []model.Fault{
		{Node: "cp-3", Step: model.StepBoot, Effect: model.EffectEtcdDown, Times: 1, For: 15 * time.Minute},
	}}, func(r rig) {
		name, err := r.AddNode(model.NodeOptions{Role: model.ControlPlane})
		if err != nil {
			r.t.Fatal(err)
		}

		learns := func() bool {
			members, err := r.EtcdMembers(r.t.Context(), "cp-0")
			if err != nil || len(members) != 4 {
				r.t.Fatalf("%v, %v", members, err)
			}

			return members[3].Learner
		}

		time.Sleep(10 * time.Minute)

		if !learns() {
			r.t.Error("it has a vote and never ran")
		}

		r.until(name, "healthy", 10*time.Minute, func(s model.NodeState) bool { return s.EtcdHealthy })

		if learns() {
			r.t.Error("it runs without a vote")
		}
	})
}
