// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// plant is a bug: an interceptor that replaces that of a run.
type plant func(s *stage, run *apply) ports.Interceptor

// swallow makes calls of these methods return success without being carried out.
func swallow(when func(*apply) bool, methods ...string) plant {
	return func(_ *stage, run *apply) ports.Interceptor {
		return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if slices.Contains(methods, call.Method) && when(run) {
				return nil
			}

			return run.intercept(ctx, call, next)
		}
	}
}

func always(*apply) bool { return true }

func wasCancelled(run *apply) bool { return !run.interrupted().IsZero() }

// uncordonAll uncordons a node once something was done to it, whoever cordoned it.
func uncordonAll(s *stage, run *apply) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		err := run.intercept(ctx, call, next)
		if err == nil && slices.Contains([]string{"Install", "Upgrade", "Configure"}, call.Method) {
			s.UncordonAnyway(run.name, call.Node)
		}

		return err
	}
}

// mumble lets the text of an API error reach a person unchanged.
func mumble(_ *stage, run *apply) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == "Drain" || call.Method == "Cordon" {
			return errors.New("rpc error: code = PermissionDenied")
		}

		return run.intercept(ctx, call, next)
	}
}

// TestStories_CatchPlantedBugs wants stories to catch an engine that forgets, does not take the lease, keeps it,
// takes what is not its own, or reports what nobody can read.
func TestStories_CatchPlantedBugs(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("it may take many stories until one is about a certain bug")
	}

	set(t, "steps", "12")

	for name, given := range map[string]struct {
		bug  plant
		want []string
	}{
		"nothing is recorded":    {swallow(always, "WriteJournal"), []string{"S4"}},
		"no lease is taken":      {swallow(always, "WriteLease", "Lease"), []string{"S7", "S12", "L1"}},
		"cancelled with a lease": {swallow(wasCancelled, "WriteLease"), []string{"L4"}},
		"every cordon is lifted": {uncordonAll, []string{"S9"}},
		"nothing is put back":    {swallow(always, "Uncordon"), []string{"left", "L1", "L3"}},
		"a bare status is shown": {mumble, []string{"wording"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stories := rapid.Custom(func(told *rapid.T) wrong {
				found, thrown := live(t, told, newTally(), given.bug)
				if thrown != nil {
					panic(thrown)
				}

				return found
			})

			const most = 150

			for seed := range most {
				if found := stories.Example(seed + 1); slices.Contains(given.want, found.kind) {
					t.Logf("caught by the story of seed %d: %s", seed+1, found.kind)

					return
				}
			}

			t.Errorf("none of %d stories has found it, want %v", most, given.want)
		})
	}
}
