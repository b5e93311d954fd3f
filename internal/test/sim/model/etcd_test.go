// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"bytes"
	"errors"
	"strings"
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

// kill makes machines go down hard and stay down.
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

func TestEtcd_LeadershipMovesBeforeAGracefulReboot(t *testing.T) {
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

func TestEtcd_ReturningMemberCatchesUp(t *testing.T) {
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

func TestEtcd_ForfeitLeadership(t *testing.T) {
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

func TestEtcd_QuorumLossAndReturn(t *testing.T) {
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

func TestEtcd_LeaderLostHardIsReplacedAfterAnElection(t *testing.T) {
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

func TestEtcd_AnswersOnControlPlanesOnly(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		if _, err := r.EtcdStatus(r.t.Context(), "worker-0"); !errors.Is(err, model.ErrNotControlPlane) {
			r.t.Fatalf("status of a worker: %v", err)
		}
	})
}

func TestEtcd_AlarmShowsInStatusAndList(t *testing.T) {
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

func TestEtcd_OnlyControlPlaneRebootsAndComesBack(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.reboot("cp-0")

		if !r.EtcdQuorum() || !r.APIServerUp("cp-0") {
			r.t.Fatalf("afterwards: %+v", r.node("cp-0"))
		}
	})
}

const (
	image114 = "factory.talos.dev/metal-installer/" + schematic + ":v1.14.1"
	image111 = "factory.talos.dev/metal-installer/" + schematic + ":v1.11.5"
)

func TestEtcd_VersionFollowsThatOfTalos(t *testing.T) {
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

// back rolls a machine back and gives it enough time.
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

// TestEtcd_OldOneCannotJoinANewerCluster: once all members run the newer version, a machine can be rolled back, but
// its member stays down.
func TestEtcd_OldOneCannotJoinANewerCluster(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		for i, name := range []string{"cp-0", "cp-1", "cp-2"} {
			if version := r.EtcdClusterVersion(); version != "3.6" {
				r.t.Fatalf("%d members upgraded: cluster version %s", i, version)
			}

			r.pullAndInstall(name, image114)
			r.reboot(name)

			// As long as one member is older, a rollback works.
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

		// The cluster version never goes down, and the new system comes up again.
		if state = r.back("cp-1"); !state.EtcdHealthy || state.Talos != "1.14.1" || r.EtcdClusterVersion() != "3.7" {
			r.t.Errorf("back again: %+v", state)
		}
	})
}

// TestEtcd_MemberThatIsDownKeepsTheVersionOfTheCluster, so a rollback still works.
func TestEtcd_MemberThatIsDownKeepsTheVersionOfTheCluster(t *testing.T) {
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

// TestEtcd_OldMemberThatIsDownHoldsTheOthersBack: until it runs a newer version too, the members do not agree on a
// version that it could not join.
func TestEtcd_OldMemberThatIsDownHoldsTheOthersBack(t *testing.T) {
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

// TestEtcd_NewMemberThatDoesNotComeUpStaysALearner until it does.
func TestEtcd_NewMemberThatDoesNotComeUpStaysALearner(t *testing.T) {
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

// wantLearner checks what a learner answers, and what the first member answers about it.
func (r rig) wantLearner(name string) {
	r.t.Helper()

	ctx := r.t.Context()

	if status := r.status(name); !status.Learner || status.Leader == 0 || len(status.Errors) > 0 {
		r.t.Errorf("the status of the learner: %+v", status)
	}

	if list, err := r.EtcdMembers(ctx, name); !errors.Is(err, model.ErrLearner) || list != nil {
		r.t.Errorf("the members, by the learner: %v, %v", list, err)
	}

	if list, err := r.EtcdAlarms(ctx, name); !errors.Is(err, model.ErrLearner) || list != nil {
		r.t.Errorf("the alarms, by the learner: %v, %v", list, err)
	}

	if heir, err := r.ForfeitLeadership(ctx, name); heir != "" || err != nil {
		r.t.Errorf("leadership that the learner does not have: %q, %v", heir, err)
	}

	for _, ask := range []func() ([]model.EtcdMember, error){
		func() ([]model.EtcdMember, error) { return r.EtcdMembers(ctx, "cp-0") },
		func() ([]model.EtcdMember, error) { return r.EtcdMembersOfAny(ctx, name) },
	} {
		list, err := ask()
		if err != nil || len(list) < 2 {
			r.t.Fatalf("the members, by a voter: %v, %v", list, err)
		}

		for _, member := range list {
			if member.Learner != (member.Name == name) {
				r.t.Errorf("the members, by a voter: %+v", list)
			}
		}
	}

	// This is last because a joining member may have a vote when it is done.
	var taken bytes.Buffer
	if err := r.EtcdSnapshot(ctx, name, &taken); err != nil || taken.Len() < model.SnapshotSize {
		r.t.Errorf("the snapshot, by the learner: %d bytes, %v", taken.Len(), err)
	}
}

func TestEtcd_LearnerAnswersForItselfOnly(t *testing.T) {
	t.Run("by the script", func(t *testing.T) {
		inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
			r.SetFaults(troubled("cp-1", model.StepEtcd, model.EffectLearner, 0))
			r.wantLearner("cp-1")
			r.SetFaults(nil)

			if list, err := r.EtcdMembers(r.t.Context(), "cp-1"); err != nil || list[1].Learner {
				r.t.Errorf("with its vote back: %v, %v", list, err)
			}
		})
	})

	t.Run("when it joins", func(t *testing.T) {
		inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
			name, err := r.AddNode(model.NodeOptions{Role: model.ControlPlane})
			if err != nil {
				r.t.Fatal(err)
			}

			r.until(name, "a learner that runs", 10*time.Minute, func(state model.NodeState) bool {
				return state.Reachable && state.EtcdRunning && !state.EtcdHealthy
			})
			r.wantLearner(name)
			r.until(name, "a voter", 10*time.Minute, func(state model.NodeState) bool { return state.EtcdHealthy })

			if _, err := r.EtcdMembers(r.t.Context(), name); err != nil {
				r.t.Errorf("with a vote: %v", err)
			}
		})
	})
}

func TestEtcd_AnyMemberNamesTheMembers(t *testing.T) {
	for name, test := range map[string]struct {
		faults []model.Fault
		down   []string
		ask    string
		want   error
	}{
		"at rest":                        {ask: "cp-0"},
		"for a member that is silent":    {faults: troubled("cp-0", model.StepEtcd, model.EffectSilent, 0), ask: "cp-0"},
		"for a member without a leader":  {faults: troubled("cp-0", model.StepEtcd, model.EffectNoLeader, 0), ask: "cp-0"},
		"but not without quorum":         {down: []string{"cp-1", "cp-2"}, ask: "cp-0", want: model.ErrNoLeader},
		"but not for a worker":           {ask: "worker-0", want: model.ErrNotControlPlane},
		"but not for one that is silent": {down: []string{"cp-2"}, ask: "cp-2", want: model.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 3, Workers: 1, Faults: test.faults}, func(r rig) {
				if len(test.down) > 0 {
					r.kill(test.down...)
				}

				list, err := r.EtcdMembersOfAny(r.t.Context(), test.ask)
				if !errors.Is(err, test.want) || (err == nil) != (len(list) == 3) {
					r.t.Errorf("got %v, %v", list, err)
				}
			})
		})
	}
}
