// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestNodeThatIsWellIsNotRolledBack: what keeps it from service is the Kubernetes
// API, which is away until the time of the node is up.
func TestNodeThatIsWellIsNotRolledBack(t *testing.T) {
	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2}}, func(r *rig) {
		var (
			since    time.Time
			rebooted atomic.Bool
		)

		ofMachines := []string{"Machine", "Members", "ClusterID", "Etcd", "Vitals", "Logs", "Component", "InstallerIdle"}
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if rebooted.Load() && time.Since(since) < cluster.DefaultNodeTimeout+30*time.Second && !slices.Contains(ofMachines, call.Method) {
				return fmt.Errorf("%w: the API server is away", cluster.ErrUnreachable)
			}

			err := next(ctx)

			if call.Method == "Reboot" && !rebooted.Load() {
				since = time.Now()
				rebooted.Store(true)
			}

			return err
		})

		r.Must(w, returning(to(toLifecycle)))
		r.At(toLifecycle)
		r.Once()

		if r.rollbacks() > 0 {
			t.Error("it was rolled back")
		}
	})
}

// TestControlPlaneThatIsWellIsNotRolledBack: it is the member of another one that
// complains.
func TestControlPlaneThatIsWellIsNotRolledBack(t *testing.T) {
	for name, long := range map[string]time.Duration{"for a while": 45 * time.Minute, "for good": 100 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
				var since time.Time

				w := r.Worker("run-1")
				between := &liar{Client: w.Client, etcd: func(view *cluster.EtcdView) {
					if !since.IsZero() && time.Since(since) < long && view.Status.MemberID == r.memberOf("cp-2") {
						view.Status.Errors = []string{"etcdserver: no leader"}
					}
				}}
				w = r.WorkerOver(w.Client, between, between)
				r.during(w, "Reboot", "cp-1", func() { since = time.Now() })

				err := w.Apply(context.Background(), returning(to(toLifecycle)))
				r.Sound()

				if r.rollbacks() > 0 {
					t.Error("it was rolled back")
				}

				if long > time.Hour {
					if failed := failure(t, err, engine.ErrUnhealthy, "cp-1"); !strings.Contains(failed.State, "nothing is wrong with the node itself") || !strings.Contains(failed.Seen, "cp-2") {
						t.Errorf("got %v", failed)
					}

					return
				}

				if err != nil {
					t.Fatal(err)
				}

				r.At(toLifecycle)
			})
		})
	}
}

// memberOf is the ID of the member of etcd on a control plane.
func (r *rig) memberOf(node string) uint64 {
	r.T.Helper()

	view, err := r.Client("looker").Etcd(context.Background(), r.State(node).Address, true)
	if err != nil {
		return 0
	}

	return view.Status.MemberID
}

// heedless is a connection to nodes that answer that they roll back, and do not.
type heedless struct {
	*ports.Client

	told int
}

// Rollback implements [cluster.Talos].
func (d *heedless) Rollback(context.Context, string) error {
	d.told++

	return nil
}

// TestRollbackWithoutAnyEffectIsNotTriedAgain: a node that was told and starts the
// new system again has a bootloader that nobody understands.
func TestRollbackWithoutAnyEffectIsNotTriedAgain(t *testing.T) {
	fault := neverReady("worker-0")
	fault.Times = 0

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{fault}}}, func(r *rig) {
		told := 0

		for number := range 3 {
			w := r.Worker(fmt.Sprintf("run-%d", number))
			between := &heedless{Client: w.Client}
			w = r.WorkerOver(w.Client, between, w.Client)

			failed := failure(t, w.Apply(context.Background(), returning(to(toLifecycle))), engine.ErrUnhealthy, "worker-0")
			if number > 0 && !strings.Contains(failed.State, "it was sent back once before, and started the new system again") {
				t.Errorf("the state is %q", failed.State)
			}

			told += between.told
		}

		r.Sound()

		if told != 1 {
			t.Errorf("it was told %d times", told)
		}

		r.World().SetFaults(nil)
		r.Must(r.Worker("run-last"), returning(to(toLifecycle)))
		r.At(toLifecycle)
	})
}

// TestWhatIsNoLongerWantedMayFail: the target was set back to what runs while the
// node was on its way back.
func TestWhatIsNoLongerWantedMayFail(t *testing.T) {
	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{neverReady("worker-0")}}}, func(r *rig) {
		r.killedAfter("run-1", "Rollback", "worker-0", returning(to(toLifecycle)))
		time.Sleep(15 * time.Minute)

		w := r.Worker("run-2")
		r.Must(w, to(fromLifecycle))
		r.Sound()
		r.sentBack("worker-0", fromLifecycle)

		if said := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(said, "did not come up with") {
			t.Errorf("warned of %q", said)
		}
	})
}

// TestInstallThatHasNoTimeLeftToBeRepeatedSaysSo: the time of the node is up while
// the next attempt is waited for.
func TestInstallThatHasNoTimeLeftToBeRepeatedSaysSo(t *testing.T) {
	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		w := r.Worker("run-1")
		w = r.WorkerOver(w.Client, &lossy{Talos: w.Client, left: 1}, w.Client)

		failed := failure(t, w.Apply(context.Background(), repeating(2, 40*time.Minute)), context.DeadlineExceeded, "worker-0")
		if !strings.Contains(failed.Seen, "the node was asked once to install ghcr.io/siderolabs/installer:v1.13.4, and whether it began is not known, and another attempt was to follow after 40m0s") {
			t.Errorf("seen is %q", failed.Seen)
		}

		r.Sound()
		r.stopped("worker-0", false)
		r.Tidy()
	})
}
