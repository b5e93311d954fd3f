// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// plantedDisruptions are bugs about who may be taken down when: S1, S2 and S3.
func plantedDisruptions() []planted {
	return []planted{
		{
			name: "a control plane that is down goes unnoticed", want: []checker.Invariant{checker.S1},
			setup:   setup{Options: model.Options{ControlPlanes: 5}},
			prepare: func(r *rig) { r.loseForGood("cp-4") },
			plant:   func(_ *rig, l *liar) { l.hide("cp-4", "cp-3") },
			lie:     silence,
		},
		{
			// With three members every second one that is down costs quorum too.
			name: "a lost member of etcd goes unnoticed", want: []checker.Invariant{checker.S1, checker.S2},
			setup:   setup{Options: model.Options{ControlPlanes: 3}},
			prepare: func(r *rig) { r.loseForGood("cp-2") },
			plant:   func(_ *rig, l *liar) { l.hide("cp-2", "cp-1") },
			lie:     silence,
		},
		{
			name: "two control planes reboot at a time", want: []checker.Invariant{checker.S1},
			setup: setup{Options: model.Options{ControlPlanes: 5}}, lie: silence,
			meddle: behind("Reboot", "cp-0", 1, func(ctx context.Context, h hand) { h.reboot(ctx, "cp-1") }),
		},
		{
			name: "both of two members reboot at a time", want: []checker.Invariant{checker.S1, checker.S2},
			setup: setup{Options: model.Options{ControlPlanes: 2}, Judging: skipping(cluster.CheckTwoMembers)}, lie: silence,
			request: func(*rig) engine.Request { return optedIn() },
			meddle:  behind("Reboot", "cp-0", 1, func(ctx context.Context, h hand) { h.reboot(ctx, "cp-1") }),
		},
		{
			// What is not known to be of an earlier boot passes for news.
			name: "a control plane is done before its pods are told of", want: []checker.Invariant{checker.S1},
			setup: setup{Options: model.Options{ControlPlanes: 5, Seed: 7}},
			plant: func(_ *rig, l *liar) { l.pods = func(pod *cluster.ComponentPod) { pod.Started = time.Time{} } },
		},
		{
			// Nothing tells that the API server is about to be made anew with the scheduler.
			name: "a scheduler is done before the API server is", want: []checker.Invariant{checker.S1},
			setup: oldKubernetes(), request: newKubernetes,
			plant: func(_ *rig, l *liar) { l.pods = func(pod *cluster.ComponentPod) { pod.FilesVersion = "" } },
		},
		{
			name: "observations are remembered", want: []checker.Invariant{checker.S3},
			plant: func(_ *rig, l *liar) { l.remember = 45 * time.Second },
		},
		{
			// A control plane falls silent behind the first install.
			name: "no guard is asked", want: []checker.Invariant{checker.S3}, blind: true,
			meddle: behind("Install", "worker-0", 1, func(_ context.Context, h hand) { h.rig.World().SetFaults(silent("cp-2")) }),
		},
	}
}

// optedIn is a request of somebody who accepts what two members cost.
func optedIn() engine.Request {
	request := to(toLifecycle)
	request.Policy.SkipChecks = map[string]bool{cluster.CheckTwoMembers: true}

	return request
}

// neglected are the guards that see what goes wrong in the middle of a turn, each
// of them forgotten.
func neglected() []planted {
	guards := neededGuards()
	bugs := make([]planted, 0, len(guards))

	for _, needed := range guards {
		bugs = append(bugs, planted{
			name: "nobody looks for " + needed.name, want: []checker.Invariant{needed.want}, alsoOthers: true,
			setup: needed.setup, forgets: needed.guards, lie: silence,
			request: func(*rig) engine.Request { return careless() },
			meddle: behind("Cordon", "cp-0", 1, func(_ context.Context, h hand) {
				needed.happens(h.rig)

				// It has been wrong for longer than one look may be old.
				time.Sleep(40 * time.Second)
			}),
		})
	}

	return bugs
}

// plantedRestarts are bugs about components of Kubernetes that restart: S1, S3, S4
// and S10.
func plantedRestarts() []planted {
	// The order is API servers, controller managers, schedulers, kube-proxy and
	// kubelets, those of the control planes first.
	const firstServer, firstKubelet = 1, 5

	away := model.Fault{Node: "cp-0", Step: model.StepAPIServer, Effect: model.EffectFlap, Times: 1, For: 4 * time.Minute}

	return []planted{
		{
			name: "two API servers restart at a time", want: []checker.Invariant{checker.S1}, setup: oldKubernetes(), request: newKubernetes,
			meddle: behind("Configure", "cp-0", firstServer, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.configure(ctx, "cp-1", cluster.APIServer, fromKubernetes, toKubernetes)
			}),
		},
		{
			name: "a control plane reboots while a component restarts", want: []checker.Invariant{checker.S1},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: behind("Configure", "cp-0", firstServer, func(ctx context.Context, h hand) { h.reboot(ctx, "cp-1") }),
		},
		{
			name: "a component restarts while a control plane reboots", want: []checker.Invariant{checker.S1},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", firstServer, func(ctx context.Context, h hand) {
				h.reboot(ctx, "cp-1")
				h.look(ctx)
			}),
		},
		{
			name: "an API server that went away goes unnoticed", want: []checker.Invariant{checker.S1}, alsoOthers: true,
			setup:   setup{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 5, Seed: 31, Faults: []model.Fault{away}}},
			forgets: []string{cluster.CheckControlPlane, "control-planes"},
			skips:   cluster.CheckControlPlane, request: newKubernetes,
		},
		{
			name: "a configuration changes unseen", want: []checker.Invariant{checker.S3}, setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", firstServer, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.configure(ctx, "worker-1", cluster.Kubelet, fromKubernetes, "1.34.3")
				h.rig.Until("configured", time.Minute, func() bool { return h.rig.State("worker-1").Kubelet.Version == "1.34.3" })
				h.configure(ctx, "worker-1", cluster.Kubelet, "1.34.3", "1.34.4")
				h.look(ctx)
			}),
		},
		{
			name: "kubelets of two control planes restart at a time", want: []checker.Invariant{checker.S10},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: behind("Configure", "cp-0", firstKubelet, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.configure(ctx, "cp-1", cluster.Kubelet, fromKubernetes, toKubernetes)
			}),
		},
		{
			name: "more kubelets restart at a time than may", want: []checker.Invariant{checker.S10}, setup: oldKubernetes(),
			request: func(r *rig) engine.Request {
				request := newKubernetes(r)
				request.Policy.Kubernetes.MaxUnavailableKubelets = sharing(r.T, toLifecycle, "100%").Policy.MaxUnavailable

				return request
			},
		},
		{
			name: "canaries are not known when kubelets move", want: []checker.Invariant{checker.S10}, request: newKubernetes,
			setup: setup{Options: model.Options{Kubernetes: fromKubernetes}, Judging: []checker.Option{checker.Canary("worker-1")}},
		},
	}
}

// oldKubernetes is a cluster whose Kubernetes has to move.
func oldKubernetes() setup { return setup{Options: model.Options{Kubernetes: fromKubernetes}} }

func newKubernetes(*rig) engine.Request { return kube(toKubernetes) }
