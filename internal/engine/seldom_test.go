// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// withCalls has all calls of methods answered with an error.
func withCalls(answer error, methods ...string) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		for _, method := range methods {
			if call.Method == method {
				return answer
			}
		}

		return next(ctx)
	}
}

// TestRunThatCannotBeginSaysWhatToDo, and touches nothing.
func TestRunThatCannotBeginSaysWhatToDo(t *testing.T) {
	for name, given := range map[string]struct {
		cluster string
		wrong   ports.Interceptor
		says    []string
	}{
		"nothing answers":         {"", withCalls(cluster.ErrUnreachable, "Members", "Nodes"), []string{"Unable to observe the cluster", "Check that at least one endpoint"}},
		"credentials are too old": {"", withCalls(cluster.ErrCredentials, "Members", "Nodes"), []string{"Unable to observe the cluster", "Waiting does not help"}},
		"a role is missing":       {"", withCalls(cluster.ErrDenied, "Members", "Nodes"), []string{"Unable to observe the cluster", "Use credentials that are allowed to do this"}},
		"nobody says who it is":   {"cluster", withCalls(cluster.ErrUnreachable, "ClusterID", "UID"), []string{"Unable to tell which cluster this is", "did not say who it is"}},
		"the lease is unreadable": {"", withCalls(cluster.ErrDenied, "Lease"), []string{"lease kube-system/talosupgrade", "Allow the credentials to get, create and patch leases"}},
		"the lease is unwritable": {"", withCalls(cluster.ErrDenied, "WriteLease"), []string{"Unable to take the lease", "Allow the credentials to get, create and patch leases"}},
		"the lease is away":       {"", withCalls(cluster.ErrUnreachable, "WriteLease"), []string{"Unable to take the lease", "kubectl get --raw=/readyz"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				w := r.Worker("run-1")
				w.Client.Intercept(given.wrong)

				request := to(toLifecycle)
				request.ClusterID = given.cluster

				err := w.Apply(context.Background(), request)
				if err == nil {
					t.Fatal("it succeeded")
				}

				for _, text := range append(given.says, "Nothing was touched.") {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("it does not say %q: %v", text, err)
					}
				}

				r.Sound()
			})
		})
	}
}

// TestSnapshotThatCannotBeRecordedIsNamed: it is there all the same.
func TestSnapshotThatCannotBeRecordedIsNamed(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteJournal" && !stamps(call) {
				return cluster.ErrDenied
			}

			return next(ctx)
		})

		err := w.Apply(context.Background(), saving(ports.NewVault()))
		if err == nil || !strings.Contains(err.Error(), "Unable to record the snapshot of etcd") || !strings.Contains(err.Error(), "No node was disturbed. The snapshot is in") {
			t.Errorf("got %v", err)
		}

		r.Sound()
	})
}

// TestSyncThatIsForbiddenAtLastNamesTheRights: they may be taken away in the middle.
func TestSyncThatIsForbiddenAtLastNamesTheRights(t *testing.T) {
	inCluster(t, setup{Options: model.Options{Talos: toLifecycle, Kubernetes: fromKubernetes}}, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(withCall("Apply", cluster.ErrDenied))

		_ = failure(t, w.Apply(context.Background(), kube(toKubernetes)), engine.ErrManifests, "")
	})
}

// TestNothingIsAskedOfAnOperatorInTheMiddleOfATurn: it would not know of it.
func TestNothingIsAskedOfAnOperatorInTheMiddleOfATurn(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		o.dieBehind("Install", o.Worker("run-0"), to(toLifecycle))
		time.Sleep(time.Minute)

		err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle))
		o.wantFailure(err, engine.ErrBlocked, "left the node in the middle of its upgrade", `mode = "direct"`)
	})
}

// TestOperatorThatCannotBeHeldIsNamed: the object may be read and not written. The
// upgrade goes on, with a warning.
func TestOperatorThatCannotBeHeldIsNamed(t *testing.T) {
	besideOperator(t, setup{}, nil, func(o *owned) {
		o.api.Inject(func(_ context.Context, operation played.Operation, next func() error) error {
			if operation.By == "client" && operation.Mutation > 0 {
				return cluster.ErrDenied
			}

			return next()
		})

		w := o.publishing("1")
		o.must(w, to(toLifecycle))

		if !warned(w.worker, "could not be kept from acting: permission denied") {
			t.Errorf("nobody was told: %q", w.Texts(cluster.EventWarning))
		}

		o.Sound()
		o.AllRun(toLifecycle)
	})
}
