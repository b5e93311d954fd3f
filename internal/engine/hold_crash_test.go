// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// TestEveryCallToTheOperatorMayBeTheLast: at each change that a run makes for the
// operator's sake, to hold it, to tell it the versions and to set it free, the
// process dies before or after it, or does not learn that it was made. The next run
// leaves everything as it should be.
func TestEveryCallToTheOperatorMayBeTheLast(t *testing.T) {
	const changes = 3

	for number := 1; number <= changes; number++ {
		for _, kind := range []crash{dieBefore, dieAfter, loseReply} {
			t.Run(fmt.Sprintf("change %d, %s", number, kind), func(t *testing.T) {
				besideOperator(t, setup{}, &played.Habits{Undoes: true}, func(o *owned) {
					struck := o.struckAt(number, kind)

					if !struck {
						t.Fatalf("there are fewer than %d changes", number)
					}

					o.must(o.publishing("2"), to(toLifecycle))
					pass(operatorsChance)
					o.wantFree()
					o.Sound()
					o.AllRun(toLifecycle)
					o.Tidy()
				})
			})
		}
	}

	// There are no more than those.
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		if o.struckAt(changes+1, loseReply) {
			t.Errorf("a run makes more than %d changes for the operator's sake", changes)
		}
	})
}

// struckAt runs an upgrade without a publisher that is struck at the change of that
// number, and tells whether there was one.
func (o *owned) struckAt(number int, kind crash) bool {
	o.T.Helper()

	ctx, end := context.WithCancel(context.Background())
	defer end()

	w := o.beside("1")
	killed := newStrike(kind, atWill, end)
	w.Client.Intercept(killed.Intercept)

	seen, struck := 0, false

	o.dead(killed, func(_ context.Context, operation played.Operation, next func() error) error {
		if operation.By != "client" || operation.Mutation == 0 {
			return next()
		}

		if seen++; seen != number {
			return next()
		}

		struck = true

		if kind == dieBefore {
			killed.Kill()

			return cluster.ErrUnreachable
		}

		err := next()
		if kind == loseReply {
			return errors.Join(err, cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
		}

		killed.Kill()

		return errors.Join(err, cluster.ErrUnreachable)
	})

	_, err := w.Upgrade(ctx, to(toLifecycle))
	o.api.Inject(nil)

	if kind == loseReply && err != nil {
		o.T.Errorf("the run did not get over it: %v", err)
	}

	if kind != loseReply && struck && err != nil && !errors.Is(err, harness.ErrKilled) && !errors.Is(err, context.Canceled) {
		o.T.Errorf("it ended with %v before it was killed", err)
	}

	return struck
}
