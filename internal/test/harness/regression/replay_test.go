// SPDX-License-Identifier: MPL-2.0

package regression_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// aim returns a request for the usual target.
func aim() engine.Request { return harness.To(harness.ToLifecycle) }

// twoAtATime returns a request that allows two workers to be unavailable.
func twoAtATime(r *harness.Rig) engine.Request {
	request := aim()

	share, err := cluster.ParseShare("2")
	if err != nil {
		r.T.Fatal(err)
	}

	request.Policy.MaxUnavailable = share

	return request
}

// first calls do once, after the first call of a method on a node.
func first(method, node string, do func()) ports.Interceptor {
	var once sync.Once

	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		err := next(ctx)

		if call.Method == method && call.Node == node {
			once.Do(do)
		}

		return err
	}
}

func rebootAskedTwice() *replay {
	return &replay{setup: harness.Setup{Options: model.Options{Seed: 41}}, run: func(r *harness.Rig) {
		silent := model.Fault{Node: "cp-2", Step: model.StepObserve, Effect: model.EffectUnreachable, Times: 1, For: 8 * time.Minute}

		var asked atomic.Int32

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method != "Reboot" || call.Node != "worker-0" || asked.Add(1) > 1 {
				return next(ctx)
			}

			time.AfterFunc(50*time.Second, func() { r.World().SetFaults([]model.Fault{silent}) })
			time.AfterFunc(2*time.Minute, func() { _ = next(context.WithoutCancel(ctx)) })

			return nil
		})

		r.Must(w, aim())
		r.At(harness.ToLifecycle)
		r.Once()
		r.Settled(harness.ToLifecycle)
	}}
}

func retryBesideOthers() *replay {
	fallen := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}

	return &replay{setup: harness.Setup{
		Options: model.Options{ControlPlanes: 3, Workers: 5, Seed: 53, Faults: []model.Fault{fallen}},
		Judging: []checker.Option{checker.MaxUnavailable(2)},
	}, run: func(r *harness.Rig) {
		if err := r.Worker("run-1").Apply(context.Background(), twoAtATime(r)); err == nil {
			r.T.Fatal("the run whose node fell back reports success")
		}

		r.World().SetFaults(nil)

		before := r.State("worker-0").BootID
		request := twoAtATime(r)
		request.Policy.Retry = map[string]string{"worker-0": before}

		if _, err := r.World().Reboot(context.Background(), "worker-0", model.RebootDefault); err != nil {
			r.T.Fatal(err)
		}

		r.Until("back", 20*time.Minute, func() bool { return r.State("worker-0").BootID != before && r.State("worker-0").Ready })

		var pulls atomic.Int32

		again, begun := r.Worker("run-2"), time.Now()
		again.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			// The first pull is that of all nodes before the roll.
			if call.Method == "Pull" && call.Node == "worker-0" && pulls.Add(1) == 2 {
				_ = engine.RealClock().Sleep(ctx, 15*time.Minute)
			}

			return next(ctx)
		})

		r.Must(again, request)
		r.At(harness.ToLifecycle)

		for _, event := range again.Events() {
			other := strings.HasPrefix(event.Node, "worker-") && event.Node != "worker-0"
			if event.Kind == cluster.EventNodeStarted && other && event.Time.Sub(begun) > 12*time.Minute {
				r.T.Errorf("%s began after %s, while worker-0 was only pulling", event.Node, event.Time.Sub(begun))
			}
		}
	}}
}

func cordonBeforeCanary() *replay {
	return &replay{setup: harness.Setup{
		Options: model.Options{ControlPlanes: 3, Workers: 3, Seed: 7}, Judging: []checker.Option{checker.Canary("worker-2")},
	}, run: func(r *harness.Rig) {
		r.AddApp("web", 4, nil)

		struck, wait, _ := r.Crashing("run-1", aim(), harness.DieBefore, func(call ports.Call) bool { return call.Method == "Evict" })
		if struck == "" {
			r.T.Fatal("the run was not killed")
		}

		request := aim()
		request.Policy.Canary = []string{"worker-2"}

		r.Must(r.Worker("run-2"), request)
		wait()
		r.At(harness.ToLifecycle)
		r.Once()
	}}
}

// slow is a cluster that takes its time to list its members until the run has begun.
type slow struct {
	*ports.Client

	looks atomic.Int32
}

func (s *slow) Members(ctx context.Context) ([]cluster.Member, error) {
	if s.looks.Add(1) <= 2 {
		if err := engine.RealClock().Sleep(ctx, 45*time.Second); err != nil {
			return nil, err
		}
	}

	return s.Client.Members(ctx)
}

func slowMembers() *replay {
	return &replay{run: func(r *harness.Rig) {
		client := r.Client("run-1")
		r.Must(r.WorkerOver(client, &slow{Client: client}, client), aim())
		r.At(harness.ToLifecycle)
		r.Settled(harness.ToLifecycle)
	}}
}

func namedNodeLeaves() *replay {
	return &replay{setup: harness.Setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Seed: 173}}, run: func(r *harness.Rig) {
		request := aim()
		request.Policy.Hold = map[string]bool{"worker-0": true}

		w := r.Worker("run-1")
		w.Client.Intercept(first("Cordon", "worker-1", func() {
			if err := r.RemoveNode("worker-0"); err != nil {
				r.T.Error(err)
			}
		}))

		r.Must(w, request)
		r.Sound()
		r.Tidy()
		r.AllRun(harness.ToLifecycle)
	}}
}

func syncWithoutWaiting() *replay {
	return &replay{setup: harness.Setup{Options: model.Options{Talos: "1.13.4", Kubernetes: "1.31.4"}}, run: func(r *harness.Rig) {
		request := harness.To("1.14.1")
		request.Target.Kubernetes = version.MustParse("1.32.1")
		request.Policy.AllowIntermediate = true
		request.Policy.Kubernetes.Manifests.Timeout = 0

		r.Must(r.Worker("run-1"), request)
		r.Sound()
		r.Tidy()

		if r.Journal().Manifests != nil {
			r.T.Error("the journal still says that manifests are due")
		}

		pending, err := r.Client("reader").Diff(context.Background(), r.State("cp-0").Address, cluster.ManifestOptions{ServerSide: true})
		if err != nil || len(pending) > 0 {
			r.T.Errorf("after the roll manifests differ: %+v, %v", pending, err)
		}
	}}
}

func killedBesideFallback() *replay {
	fallen := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}

	return &replay{setup: harness.Setup{Options: model.Options{Seed: 5, Faults: []model.Fault{fallen}}}, run: func(r *harness.Rig) {
		struck, wait, _ := r.Crashing("run-1", aim(), harness.DieBefore, func(call ports.Call) bool {
			return call.Method == "Uncordon" && call.Node == "worker-0"
		})
		if struck == "" {
			r.T.Fatal("the run was not killed")
		}

		r.World().SetFaults(nil)

		if err := r.Worker("run-2").Apply(context.Background(), aim()); !errors.Is(err, say.ErrFallback) {
			r.T.Errorf("the run that found the node ended with %v, want its fallback", err)
		}

		wait()
		r.Sound()

		if node := r.Judge.Verdict().Nodes["worker-0"]; node.Cordoned || node.Talos != harness.FromLifecycle {
			r.T.Errorf("worker-0 was left as %+v, want it back in service with its old system", node)
		}

		told := aim()
		told.Policy.Retry = map[string]string{"worker-0": r.State("worker-0").BootID}
		r.Must(r.Worker("run-3"), told)
		r.At(harness.ToLifecycle)
	}}
}
