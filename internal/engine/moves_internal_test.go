// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"maps"
	"testing"
)

func TestMoves_TurnsKnowWhoBeganBeforeThem(t *testing.T) {
	t.Parallel()

	between := newMoves()
	between.resume("a")
	between.resume("b")
	between.resume("c")
	between.resume("a")

	for node, want := range map[string]map[string]bool{
		"a": {"b": false, "c": false},
		"b": {"a": true, "c": false},
		"d": {"a": true, "b": true, "c": true},
	} {
		if got := between.beside(node); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", node, got, want)
		}
	}

	between.done("a")

	if got, want := between.beside("b"), map[string]bool{"c": false}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestMoves_SemaphoreCanBeGivenUpOn(t *testing.T) {
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
