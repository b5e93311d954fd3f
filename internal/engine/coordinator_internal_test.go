// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestCoordinator_StepIsClaimedOnANewLookOnly: whoever looked before another turn did
// something has to look again.
func TestCoordinator_StepIsClaimedOnANewLookOnly(t *testing.T) {
	t.Parallel()

	between := newCoordinator()
	first, second := between.generation(), between.generation()

	if !between.reserve(first, cluster.Worker, false) {
		t.Fatal("the first step was not granted")
	}

	if between.reserve(second, cluster.Worker, false) {
		t.Error("a step was granted on a look that is older than the one before")
	}

	looked := between.generation()
	between.acted(cluster.Worker)

	if between.reserve(looked, cluster.ControlPlane, true) {
		t.Error("a step was granted on a look that is older than what came of another one")
	}

	if !between.reserve(between.generation(), cluster.ControlPlane, true) {
		t.Error("a step was not granted on a new look")
	}
}

// TestCoordinator_WorkersOutOfServiceDoNotHoldEachOtherUp: what happens to a control plane
// still does.
func TestCoordinator_WorkersOutOfServiceDoNotHoldEachOtherUp(t *testing.T) {
	t.Parallel()

	between := newCoordinator()
	looked := between.generation()
	between.acted(cluster.Worker)

	if !between.reserve(looked, cluster.Worker, true) {
		t.Error("a worker that is out of service was held up by another worker")
	}

	looked = between.generation()
	between.acted(cluster.ControlPlane)

	if between.reserve(looked, cluster.Worker, true) {
		t.Error("a step was granted on a look that is older than that of a control plane")
	}
}

func TestCoordinator_TurnsKnowWhoBeganBeforeThem(t *testing.T) {
	t.Parallel()

	between := newCoordinator()
	between.disturb("a")
	between.disturb("b")
	between.disturb("c")
	between.disturb("a")

	for node, want := range map[string]map[string]bool{
		"a": {"b": false, "c": false},
		"b": {"a": true, "c": false},
		"d": {"a": true, "b": true, "c": true},
	} {
		if got := between.others(node); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", node, got, want)
		}
	}

	between.done("a")

	if got, want := between.others("b"), map[string]bool{"c": false}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCoordinator_SemaphoreCanBeGivenUpOn(t *testing.T) {
	t.Parallel()

	errTired := errors.New("tired")
	ctx, cancel := context.WithCancelCause(context.Background())
	held := newSemaphore(1)

	if err := held.enter(ctx); err != nil {
		t.Fatal(err)
	}

	cancel(errTired)

	if err := held.enter(ctx); !errors.Is(err, errTired) {
		t.Errorf("got %v, want the cause", err)
	}

	held.leave()

	if err := held.enter(context.Background()); err != nil {
		t.Errorf("a gate that is free was not entered: %v", err)
	}
}
