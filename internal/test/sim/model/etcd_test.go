// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func (r rig) status(name string) model.EtcdStatus {
	r.t.Helper()

	status, err := r.EtcdStatus(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}

	return status
}

// kill lets a machine go down hard and stay down.
func (r rig) kill(names ...string) {
	r.t.Helper()

	var faults []model.Fault
	for _, name := range names {
		faults = append(faults, model.Fault{Node: name, Step: model.StepBoot, Effect: model.EffectNeverReturns})
	}

	r.SetFaults(faults)

	for _, name := range names {
		if _, err := r.Reboot(r.t.Context(), name, model.RebootForce); err != nil {
			r.t.Fatal(err)
		}
	}

	for _, name := range names {
		r.until(name, "dead", 5*time.Minute, func(s model.NodeState) bool { return s.Dead })
	}
}

func TestLeadershipMovesBeforeAGracefulReboot(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		first := r.status("cp-0")
		if first.Leader != first.Member {
			r.t.Fatalf("cp-0 does not lead at the beginning: %+v", first)
		}

		if _, err := r.Reboot(r.t.Context(), "cp-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		for state := r.node("cp-0"); !state.Ready || state.BootID == "" || state.Reboots == 0 || state.Up; state = r.node("cp-0") {
			if status := r.status("cp-1"); status.Leader == 0 {
				r.t.Fatal("nobody led while the leader stopped gracefully")
			}

			time.Sleep(100 * time.Millisecond)
		}

		r.until("cp-0", "ready", 5*time.Minute, ready)

		back, other := r.status("cp-0"), r.status("cp-1")
		if back.Member != first.Member || back.Leader != other.Leader || back.Leader == first.Leader || back.Term != first.Term+1 {
			r.t.Fatalf("after its return: %+v, before: %+v", back, first)
		}
	})
}

func TestReturningMemberCatchesUp(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		if _, err := r.Reboot(r.t.Context(), "cp-2", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("cp-2", "down", time.Minute, down)
		r.until("cp-2", "etcd back", 5*time.Minute, func(s model.NodeState) bool { return s.EtcdHealthy })

		lag := func() uint64 { status := r.status("cp-2"); return status.Index - status.Applied }
		early := lag()

		time.Sleep(15 * time.Second)

		if late := lag(); early < 100 || late != 0 {
			r.t.Fatalf("lag %d at first, %d later", early, late)
		}
	})
}

func TestForfeitLeadership(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		if heir, err := r.ForfeitLeadership(r.t.Context(), "cp-1"); err != nil || heir != "" {
			r.t.Fatalf("a follower forfeits: %q, %v", heir, err)
		}

		if heir, err := r.ForfeitLeadership(r.t.Context(), "cp-0"); err != nil || heir != "cp-1" {
			r.t.Fatalf("the leader forfeits: %q, %v", heir, err)
		}

		if status := r.status("cp-2"); status.Leader != r.node("cp-1").EtcdID {
			r.t.Fatalf("leader afterwards: %+v", status)
		}
	})

	inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
		if _, err := r.ForfeitLeadership(r.t.Context(), "cp-0"); !errors.Is(err, model.ErrRefused) {
			r.t.Fatalf("the only member forfeits: %v", err)
		}
	})
}

func TestQuorumLossAndReturn(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Workers: 1}, func(r rig) {
		r.kill("cp-0", "cp-1")

		if r.EtcdQuorum() || r.APIServerUp("cp-2") {
			r.t.Fatal("one member of three has quorum")
		}

		if _, err := r.EtcdMembers(r.t.Context(), "cp-2"); !errors.Is(err, model.ErrNoLeader) {
			r.t.Fatalf("member list without quorum: %v", err)
		}

		if status := r.status("cp-2"); status.Leader != 0 || len(status.Errors) != 1 {
			r.t.Fatalf("status without quorum: %+v", status)
		}

		time.Sleep(40 * time.Second)

		if state := r.node("cp-2"); state.Ready || state.Unmet[0].Name != "services" {
			r.t.Fatalf("machine status without quorum: %+v", state)
		}

		r.SetFaults(nil)
		r.until("cp-0", "ready", 5*time.Minute, ready)
		r.until("cp-2", "ready", time.Minute, ready)

		if members, err := r.EtcdMembers(r.t.Context(), "cp-2"); err != nil || len(members) != 3 {
			r.t.Fatalf("member list afterwards: %v, %v", members, err)
		}
	})
}

func TestLeaderLostHardIsReplacedAfterAnElection(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		if _, err := r.Reboot(r.t.Context(), "cp-0", model.RebootForce); err != nil {
			r.t.Fatal(err)
		}

		r.until("cp-0", "down", time.Minute, down)

		if status := r.status("cp-1"); status.Leader != 0 {
			r.t.Fatalf("a new leader at once: %+v", status)
		}

		time.Sleep(2 * time.Second)

		if status := r.status("cp-1"); status.Leader != r.node("cp-1").EtcdID {
			r.t.Fatalf("no new leader after the election: %+v", status)
		}
	})
}

func TestEtcdAnswersOnControlPlanesOnly(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		if _, err := r.EtcdStatus(r.t.Context(), "worker-0"); !errors.Is(err, model.ErrNotControlPlane) {
			r.t.Fatalf("status of a worker: %v", err)
		}
	})
}

func TestAlarmShowsInStatusAndList(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		if err := r.SetEtcdAlarm("cp-1", "NOSPACE"); err != nil {
			r.t.Fatal(err)
		}

		alarms, err := r.EtcdAlarms(r.t.Context(), "cp-0")
		if err != nil || len(alarms) != 1 || alarms[0].Member != r.node("cp-1").EtcdID {
			r.t.Fatalf("alarms: %v, %v", alarms, err)
		}

		if status := r.status("cp-1"); len(status.Errors) != 1 {
			r.t.Fatalf("status: %+v", status)
		}
	})
}

func TestOnlyControlPlaneRebootsAndComesBack(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.reboot("cp-0")

		if !r.EtcdQuorum() || !r.APIServerUp("cp-0") {
			r.t.Fatalf("afterwards: %+v", r.node("cp-0"))
		}
	})
}
