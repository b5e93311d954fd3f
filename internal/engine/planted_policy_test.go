// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"io"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// plantedWriters are bugs about who may write when: S7 and S12.
func plantedWriters() []planted {
	return []planted{
		{
			name: "the lease of somebody else is ignored", want: []checker.Invariant{checker.S7},
			prepare: func(r *rig) {
				if err := r.HoldLease("somebody"); err != nil {
					r.T.Fatal(err)
				}
			},
			plant: func(_ *rig, l *liar) { l.noLease.Store(true) },
			setup: setup{Judging: []checker.Option{checker.LeaseDuration(plantedMost)}},
		},
		{
			name: "the loss of the lease goes unnoticed", want: []checker.Invariant{checker.S7},
			setup: setup{Judging: []checker.Option{checker.LeaseDuration(plantedMost)}},
			plant: func(r *rig, l *liar) {
				l.Client.Intercept(behind("Cordon", "worker-0", 1, func(_ context.Context, h hand) {
					l.noLease.Store(true)
					h.must(r.HoldLease("somebody"))
				})(r, l.Client))
			},
		},
		{
			name: "the name of another run in the journal goes unnoticed", want: []checker.Invariant{checker.S7},
			setup: setup{Judging: []checker.Option{checker.LeaseDuration(plantedMost)}},
			plant: func(r *rig, l *liar) {
				l.ownName = true
				l.Client.Intercept(behind("Cordon", "worker-0", 1, func(_ context.Context, h hand) {
					l.noLease.Store(true)
					h.must(r.HoldLease("somebody"))
					r.EditJournalAsPerson(func(j cluster.Journal) cluster.Journal {
						j.Holder = "somebody"

						return j
					})
				})(r, l.Client))
			},
		},
		{
			name: "the lease is never renewed", want: []checker.Invariant{checker.S7},
			plant: func(_ *rig, l *liar) { l.noRenewal = true },
		},
		{
			name: "no lease is taken", want: []checker.Invariant{checker.S12},
			plant: func(_ *rig, l *liar) { l.noLease.Store(true) },
		},
		{
			name: "an upgrade is announced before the lease is taken", want: []checker.Invariant{checker.S12},
			meddle: behind("Nodes", "", 1, func(ctx context.Context, h hand) { h.claims(ctx, "talos-status", "in-progress") }),
		},
		{
			name: "a plan writes", want: []checker.Invariant{checker.S12}, does: observed,
			meddle: behind("Nodes", "", 1, func(ctx context.Context, h hand) { h.claims(ctx, "talos-status", "pending") }),
		},
		{
			name: "a plan cordons to try whether it may", want: []checker.Invariant{checker.S12}, does: observed,
			meddle: behind("Nodes", "", 1, func(ctx context.Context, h hand) {
				_, err := h.Cordon(ctx, "worker-0", "a-plan")
				h.must(err)
			}),
		},
		{
			name: "a preflight evicts where it only wants to know", want: []checker.Invariant{checker.S12}, does: observed,
			prepare: func(r *rig) { r.AddPod("web", "worker-0", nil) },
			meddle: behind("Nodes", "", 1, func(ctx context.Context, h hand) {
				pods, err := h.PodsToEvict(ctx, "worker-0")
				h.must(err)

				for _, pod := range pods {
					h.must(h.Evict(ctx, pod))
				}
			}),
		},
	}
}

// observed is all that a plan does to a cluster.
func observed(ctx context.Context, w *worker, _ engine.Request) error {
	_, err := w.Engine.Observe(ctx)

	return err
}

// plantedPolicies are bugs about what a user asked for: S9, S10, S11, S13 and S14.
func plantedPolicies() []planted {
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

	return []planted{
		{
			name: "every cordon is lifted", want: []checker.Invariant{checker.S9},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 1}},
			prepare: func(r *rig) {
				if err := r.CordonAsPerson("worker-0", true); err != nil {
					r.T.Fatal(err)
				}
			},
			plant: func(r *rig, l *liar) { l.uncordon = r.UncordonAnyway },
		},
		{
			name: "cordoned workers are not counted", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 3}},
			prepare: func(r *rig) {
				if err := r.CordonAsPerson("worker-2", true); err != nil {
					r.T.Fatal(err)
				}
			},
			plant: func(_ *rig, l *liar) { l.schedulable = "worker-2" },
		},
		{
			name: "more workers move at a time than may", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, Judging: twoAtATime()},
			share: "3",
		},
		{
			name: "a worker that fell ill meanwhile is not counted", want: []checker.Invariant{checker.S10}, forgets: []string{cluster.CheckNodesReady},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, Judging: twoAtATime()},
			share: "2", meddle: func(r *rig, _ *ports.Client) ports.Interceptor { return r.fallsIll("worker-3") },
		},
		{
			name: "that a node could not pull its image is not heard", want: []checker.Invariant{checker.S10}, alsoOthers: true,
			setup: setup{
				Options: model.Options{
					ControlPlanes: 3, Workers: 2, Faults: []model.Fault{{Node: "worker-1", Step: model.StepPull, Effect: model.EffectNotFound}},
				},
			},
			meddle: func(*rig, *ports.Client) ports.Interceptor {
				return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if err := next(ctx); call.Method != "Pull" || ctx.Err() != nil {
						return err
					}

					return nil
				}
			},
		},
		{
			name: "canaries are not known", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 2}, Judging: []checker.Option{checker.Canary("worker-1")}},
		},
		{
			name: "a canary is not waited for", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 2}, Judging: []checker.Option{checker.Canary("worker-1")}},
			request: func(*rig) engine.Request {
				request := to(toLifecycle)
				request.Policy.Canary = []string{"worker-1"}

				return request
			},
			meddle: ahead("Uncordon", "worker-1", 1, func(ctx context.Context, h hand) {
				_, err := h.Cordon(ctx, "worker-0", h.Name())
				h.must(err)
			}),
		},
		{
			name: "nobody looks at a canary whose turn is over", want: []checker.Invariant{checker.S10},
			forgets: []string{cluster.CheckCanary, cluster.CheckNodesReady},
			setup: setup{
				Options: model.Options{ControlPlanes: 3, Workers: 4},
				Judging: []checker.Option{checker.Canary("worker-0"), checker.MaxUnavailable(2)},
			},
			request: func(r *rig) engine.Request {
				request := sharing(r.T, toLifecycle, "2")
				request.Policy.Canary = []string{"worker-0"}

				return request
			},
			meddle: behind("Cordon", "worker-1", 1, func(_ context.Context, h hand) { leaveFor(h, "worker-0") }),
		},
		{
			name: "what others use up after the cordon is not counted", want: []checker.Invariant{checker.S10}, forgets: []string{cluster.CheckNodesReady},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, Judging: twoAtATime()}, share: "2",
			meddle: behind("Cordon", "worker-0", 1, func(_ context.Context, h hand) {
				leaveFor(h, "worker-2")
				leaveFor(h, "worker-3")
			}),
		},
		{
			name: "labels that hold are not known", want: []checker.Invariant{checker.S4}, setup: labelled(3),
			prepare: func(r *rig) { r.give(restrained, "worker-1") }, share: "2",
		},
		{
			name: "a label that comes while a node is about to be cordoned is not looked at", want: []checker.Invariant{checker.S4},
			setup: labelled(3), forgets: []string{cluster.CheckSelectors},
			request: func(*rig) engine.Request { return restraining(to(toLifecycle)) },
			meddle: func(r *rig, _ *ports.Client) ports.Interceptor {
				return r.meeting(event{method: "Vitals", node: "worker-1", installed: "worker-0", do: func() {
					r.give(restrained, "worker-1")
					time.Sleep(5 * time.Second)
				}})
			},
		},
		{
			name: "a held node is started when its label goes away", want: []checker.Invariant{checker.S4}, setup: labelled(3, checker.MaxUnavailable(3)),
			prepare: func(r *rig) { r.give(restrained, "worker-1") },
			request: func(r *rig) engine.Request { return restraining(sharing(r.T, toLifecycle, "2")) },
			meddle: behind("Cordon", "worker-0", 1, func(ctx context.Context, h hand) {
				time.Sleep(5 * time.Second)
				h.rig.take(restrained, "worker-1")

				_, err := h.Cordon(ctx, "worker-1", h.Name())
				h.must(err)
			}),
		},
		{
			name: "labels of canaries are not known", want: []checker.Invariant{checker.S10}, setup: labelled(3),
			prepare: func(r *rig) { r.give(leading, "worker-2") },
		},
		{
			name: "pools are not known", want: []checker.Invariant{checker.S10}, setup: labelled(4, inPool(1)), share: "2",
			prepare: func(r *rig) { r.give(storage, "worker-0", "worker-1") },
		},
		{
			name: "a worker of the pool that fell ill meanwhile is not counted", want: []checker.Invariant{checker.S10}, forgets: []string{cluster.CheckNodesReady},
			setup:   labelled(4, inPool(1)),
			prepare: func(r *rig) { r.give(storage, "worker-1", "worker-3") },
			request: func(r *rig) engine.Request { return pooled(r.T, sharing(r.T, toLifecycle, "2"), "1", "1") },
			meddle:  func(r *rig, _ *ports.Client) ports.Interceptor { return r.fallsIll("worker-3") },
		},
		{
			name: "pools do not bound kubelets", want: []checker.Invariant{checker.S10},
			setup: setup{
				Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 4},
				Judging: []checker.Option{checker.MaxUnavailableKubelets(2), inPool(1)},
			},
			prepare: func(r *rig) { r.give(storage, "worker-0", "worker-1") },
			request: func(r *rig) engine.Request {
				parsed, err := cluster.ParseShare("2")
				if err != nil {
					r.T.Fatal(err)
				}

				request := kube(toKubernetes)
				request.Policy.Kubernetes.MaxUnavailableKubelets = parsed

				return request
			},
		},
		{
			name: "the time to settle is not known", want: []checker.Invariant{checker.S10},
			setup: setup{Judging: []checker.Option{checker.Settle(5 * time.Minute)}},
		},
		{
			name: "pods are deleted instead of evicted", want: []checker.Invariant{checker.S11}, skips: cluster.CheckDrain,
			prepare: func(r *rig) { r.AddPod("precious", "worker-0", &ports.Budget{MinAvailable: 1}) },
			plant:   func(_ *rig, l *liar) { l.deletes = true },
		},
		{
			name: "pods are deleted before the timeout", want: []checker.Invariant{checker.S11}, skips: cluster.CheckDrain,
			setup:   setup{Judging: []checker.Option{checker.DrainDelete(cluster.DefaultDrainTimeout)}},
			prepare: func(r *rig) { r.AddPod("precious", "worker-0", &ports.Budget{MinAvailable: 1}) },
			plant:   func(_ *rig, l *liar) { l.deletes = true },
		},
		{
			name: "nobody looks after the cordon of a drain", want: []checker.Invariant{checker.S11}, skips: cluster.CheckDrain,
			prepare: func(r *rig) { r.AddApp("web", 4, &ports.Budget{MinAvailable: 3}) },
			plant:   func(_ *rig, l *liar) { l.unschedulable = "worker-0" },
			meddle: behind("Cordon", "worker-0", 1, func(_ context.Context, h hand) {
				time.AfterFunc(2*time.Second, func() { h.must(h.rig.CordonAsPerson("worker-0", false)) })
			}),
		},
		{
			name: "the window is not looked at", want: []checker.Invariant{checker.S13},
			setup: setup{Judging: []checker.Option{checker.Window(begin, checker.Opening{From: begin, To: begin.Add(4 * time.Minute)})}},
		},
		{
			name: "no snapshot is taken", want: []checker.Invariant{checker.S14},
			setup: setup{Judging: []checker.Option{checker.SnapshotFirst()}},
		},
		{
			name: "half a snapshot is enough", want: []checker.Invariant{checker.S14},
			setup: setup{Judging: []checker.Option{checker.SnapshotFirst()}},
			prepare: func(r *rig) {
				r.World().SetFaults([]model.Fault{{Node: model.AnyNode, Step: model.StepEtcdSnapshot, Effect: model.EffectCut}})
			},
			request: func(*rig) engine.Request { return saving(forgiving{}) },
		},
	}
}

// leaveFor has a person cordon a node, and waits until that is old enough to be
// known.
func leaveFor(h hand, node string) {
	h.must(h.rig.CordonAsPerson(node, true))
	time.Sleep(10 * time.Second)
}

// forgiving takes whatever it gets for a snapshot.
type forgiving struct{}

func (forgiving) Check(context.Context) (string, error) { return "", nil }

func (forgiving) Save(
	ctx context.Context, name string, taken time.Time, stream func(context.Context, io.Writer) error,
) (cluster.EtcdSnapshot, error) {
	_ = stream(ctx, io.Discard)

	return cluster.EtcdSnapshot{Path: name, Size: 1, SHA256: "?", Taken: taken}, nil
}
