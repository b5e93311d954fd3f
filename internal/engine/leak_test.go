// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// fastClock is the engine's clock over the one of a simulation that runs fast.
type fastClock struct{ *model.ScaledClock }

func (c fastClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.Real(d))
}

// outside runs an upgrade of a small cluster outside of any bubble, which would
// hide what goes on after the end. It returns when nothing of it may be left.
func outside(t *testing.T, seed uint64, ports func(*ports.Client) cluster.Talos, during func(*model.ScaledClock, *ports.Client, context.CancelFunc)) error {
	t.Helper()

	const factor = 2000

	clock := model.NewScaledClock(factor)
	r := newRig(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1, Clock: clock, Seed: seed}})

	defer r.Stop()

	client := r.Client("run-1")
	w := engine.New(engine.Options{
		Talos: ports(client), Kubernetes: client, Removals: client, Manifests: client, Workloads: client, Run: "run-1", Clock: fastClock{clock},
	})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	during(clock, client, cancel)

	_, err := w.Upgrade(ctx, to(toLifecycle))

	return err
}

func plainly(client *ports.Client) cluster.Talos { return client }

func TestNothingLeaks(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())

	err := outside(t, 0, plainly, func(*model.ScaledClock, *ports.Client, context.CancelFunc) {})
	if err != nil {
		t.Errorf("the upgrade ended with %v", err)
	}
}

// TestNothingLeaksWhereverItIsCancelled cancels runs at random moments.
func TestNothingLeaksWhereverItIsCancelled(t *testing.T) {
	const (
		moments = 10
		length  = 4 * time.Minute
	)

	random := rand.New(rand.NewPCG(23, 29)) //nolint:gosec // moments, not secrets

	for range moments {
		moment, seed := time.Duration(random.Int64N(int64(length))), random.Uint64()
		before := goleak.IgnoreCurrent()

		err := outside(t, seed, plainly, func(clock *model.ScaledClock, _ *ports.Client, cancel context.CancelFunc) {
			time.AfterFunc(clock.Real(moment), cancel)
		})
		if err == nil {
			t.Errorf("cancelled after %s, the upgrade ended well", moment)
		}

		if leaked := goleak.Find(before); leaked != nil {
			t.Fatalf("cancelled after %s with seed %d: %v", moment, seed, leaked)
		}
	}
}

// TestNothingLeaksWhereTheConnectionDies has every call fail from some mutating
// call on, which hangs until its context ends.
func TestNothingLeaksWhereTheConnectionDies(t *testing.T) {
	const moments, calls = 10, 25

	random := rand.New(rand.NewPCG(31, 37)) //nolint:gosec // moments, not secrets

	for range moments {
		at, seed := 1+random.IntN(calls), random.Uint64()
		before := goleak.IgnoreCurrent()

		err := outside(t, seed, plainly, func(clock *model.ScaledClock, client *ports.Client, cancel context.CancelFunc) {
			client.Intercept(cutAt(at, func() { time.AfterFunc(clock.Real(time.Minute), cancel) }))
		})
		if err == nil {
			t.Errorf("with its connection dead at mutation %d, the upgrade ended well", at)
		}

		if leaked := goleak.Find(before); leaked != nil {
			t.Fatalf("with its connection dead at mutation %d and seed %d: %v", at, seed, leaked)
		}
	}
}

// cutAt has all calls hang until their contexts end, from a mutating call on; then
// is done once.
func cutAt(mutation int, then func()) ports.Interceptor {
	var dead atomic.Bool

	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Mutation >= mutation && !dead.Swap(true) {
			then()
		}

		if !dead.Load() {
			return next(ctx)
		}

		<-ctx.Done()

		return fmt.Errorf("no reply: %w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
	}
}

// leaky is a connection that leaves a goroutine behind with each look.
type leaky struct {
	cluster.Talos

	held <-chan struct{}
}

func (l leaky) Machine(ctx context.Context, address string, known *cluster.Machine) (cluster.Machine, error) {
	go func() { <-l.held }()

	return l.Talos.Machine(ctx, address, known)
}

// leaksSomething is about L6: what looks for leaks sees one.
func leaksSomething(t *testing.T) {
	held := make(chan struct{})
	before := goleak.IgnoreCurrent()

	err := outside(t, 0, func(client *ports.Client) cluster.Talos { return leaky{client, held} },
		func(*model.ScaledClock, *ports.Client, context.CancelFunc) {})
	if err != nil {
		t.Errorf("the upgrade ended with %v", err)
	}

	if leaked := goleak.Find(before); leaked == nil || !strings.Contains(leaked.Error(), "leaky") {
		t.Errorf("with a connection that leaks, goleak finds %v", leaked)
	}

	close(held)

	if leaked := goleak.Find(before); leaked != nil {
		t.Errorf("with what leaked given free, goleak finds %v", leaked)
	}

	if seen := leaksInBubble(t); !strings.Contains(seen, "goroutines remain") {
		t.Errorf("of a connection that leaks, a bubble says %q", seen)
	}
}

// leaksInBubble is what a bubble says when something is left in it.
func leaksInBubble(t *testing.T) (seen string) {
	defer func() { seen = fmt.Sprint(recover()) }()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1}}, func(r *rig) {
		client := r.Client("run-1")
		r.Must(r.WorkerOver(client, leaky{client, make(chan struct{})}, client), to(toLifecycle))
	})

	return ""
}
