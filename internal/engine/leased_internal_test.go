// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// awayKubernetes takes no lease, and lists nodes for those who claim none.
type awayKubernetes struct{ cluster.Kubernetes }

func (awayKubernetes) NodesNow(_ context.Context, claim string) ([]cluster.KubeNode, error) {
	if claim != "" {
		return nil, errors.New("a claim was written")
	}

	return nil, nil
}

func (awayKubernetes) WriteLease(context.Context, cluster.Lease) (cluster.Lease, error) {
	return cluster.Lease{}, cluster.ErrUnreachable
}

// TestLeased_NothingIsCalledWithoutTheLease: each call is refused before it reaches a port, and
// whether it may be made later shows in the error.
func TestLeased_NothingIsCalledWithoutTheLease(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		lost error
		want error
	}{
		"the lease is somebody else's":    {lost: say.ErrLeaseLost, want: say.ErrLeaseLost},
		"the lease could not be renewed":  {want: cluster.ErrUnreachable},
		"the lease was freed by somebody": {lost: say.ErrLeaseFreed, want: say.ErrLeaseFreed},
	} {
		e := New(Options{Kubernetes: awayKubernetes{}})
		l := leased{engine: e, lock: &lock{engine: e, renewing: newSemaphore(1), lost: test.lost}}

		for call, made := range map[string]func(context.Context) error{
			"cordon":            func(ctx context.Context) error { _, err := l.cordon(ctx, "a"); return err },
			"uncordon":          func(ctx context.Context) error { return l.uncordon(ctx, "a") },
			"evict":             func(ctx context.Context) error { return l.evict(ctx, cluster.Pod{}) },
			"deletePod":         func(ctx context.Context) error { return l.deletePod(ctx, cluster.Pod{}) },
			"writeJournal":      func(ctx context.Context) error { _, err := l.writeJournal(ctx, cluster.Journal{}); return err },
			"install":           func(ctx context.Context) error { _, err := l.install(ctx, "a", "image"); return err },
			"upgrade":           func(ctx context.Context) error { _, err := l.upgrade(ctx, "a", "image", "", nil); return err },
			"reboot":            func(ctx context.Context) error { return l.reboot(ctx, "a", "") },
			"rollBack":          func(ctx context.Context) error { return l.rollBack(ctx, "a") },
			"forfeitLeadership": func(ctx context.Context) error { return l.forfeitLeadership(ctx, "a") },
			"configure":         func(ctx context.Context) error { return l.configure(ctx, "a", cluster.ImageChange{}) },
			"applyManifests": func(ctx context.Context) error {
				_, err := l.applyManifests(ctx, "a", cluster.ManifestOptions{})

				return err
			},
			"hold":        func(ctx context.Context) error { return l.hold(ctx, "") },
			"releaseHold": func(ctx context.Context) error { return l.releaseHold(ctx, "") },
			"ask":         func(ctx context.Context) error { return l.ask(ctx, version.Talos, version.Version{}) },
			"withdraw":    func(ctx context.Context) error { return l.withdraw(ctx, version.Talos, version.Version{}) },
			"settle":      func(ctx context.Context) error { return l.settle(ctx, version.Version{}, version.Version{}) },
		} {
			// A port that were called would panic: there are none.
			err := made(t.Context())
			if !errors.Is(err, errRefusedByLease) || !errors.Is(err, test.want) {
				t.Errorf("%s, %s: %v, want it refused with %v", name, call, err, test.want)
			}

			if lost := test.lost != nil; (permanentOnly(err) != nil) != lost || notSent(err) == lost {
				t.Errorf("%s, %s: permanent is %v and not sent %t", name, call, permanentOnly(err), notSent(err))
			}
		}

		if _, err := l.nodesNow(t.Context(), "a"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
