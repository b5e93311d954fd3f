// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestLearnerIsKnownByItsStatus, as it tells nothing else of itself; the others
// list it.
func TestLearnerIsKnownByItsStatus(t *testing.T) {
	inCluster(t, model.Options{Faults: ill("cp-0", model.StepEtcd, model.EffectLearner)}, func(_ *ports.Cluster, c *ports.Client) {
		view, err := c.Etcd(context.Background(), firstAt, true)
		if err != nil || !view.Status.Learner || view.Status.MemberID == 0 || view.Members != nil {
			t.Errorf("the learner: %+v, %v", view, err)
		}

		view, err = c.Etcd(context.Background(), thirdAt, true)
		if err != nil || view.Status.Learner || len(view.Members) != 3 || !view.Members[0].Learner {
			t.Errorf("a voter: %+v, %v", view, err)
		}
	})
}

func TestEtcdOfALearnerIsNoResultForACallerWhoStopped(t *testing.T) {
	inCluster(t, model.Options{Faults: ill("cp-0", model.StepEtcd, model.EffectLearner)}, func(_ *ports.Cluster, c *ports.Client) {
		ctx, cancel := context.WithCancel(context.Background())

		c.Intercept(func(ctx context.Context, _ ports.Call, next func(context.Context) error) error {
			cancel()

			return next(ctx)
		})

		view, err := c.Etcd(ctx, firstAt, true)
		means(t, err, context.Canceled)

		if view.Status.Learner {
			t.Errorf("got %+v", view)
		}
	})
}

func TestMemberThatVotesIsKnownByAllThatItTells(t *testing.T) {
	for name, given := range map[string]struct {
		effect model.Effect
		want   error
	}{
		"silent":           {model.EffectSilent, cluster.ErrUnreachable},
		"without a leader": {model.EffectNoLeader, cluster.ErrQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, model.Options{Faults: ill("cp-0", model.StepEtcd, given.effect)}, func(_ *ports.Cluster, c *ports.Client) {
				view, err := c.Etcd(context.Background(), firstAt, true)
				means(t, err, given.want)

				if view.Status.MemberID != 0 {
					t.Errorf("got %+v beside an error", view)
				}
			})
		})
	}
}
