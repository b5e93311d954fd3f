// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// wantLearner asks a member without a vote, and the first one about it.
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

	// Last, as one that joins may have a vote when this is done.
	var taken bytes.Buffer
	if err := r.EtcdSnapshot(ctx, name, &taken); err != nil || taken.Len() < model.SnapshotSize {
		r.t.Errorf("the snapshot, by the learner: %d bytes, %v", taken.Len(), err)
	}
}

func TestLearnerAnswersForItselfOnly(t *testing.T) {
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

func TestAnyMemberNamesTheMembers(t *testing.T) {
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
