// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// gateAsk bounds one query of one gate.
const gateAsk = 30 * time.Second

// maxClosures is how often a gate may close between the wait for it and the moment at which it has to hold.
const maxClosures = 20

// errFlickers is returned for a gate that closed that often.
var errFlickers = fmt.Errorf("%w: a gate is flapping: it opened and closed again before the upgrade could begin, %d times", say.ErrGate, maxClosures)

// awaitGates waits until all gates of the user hold at the same time. Each gate has its own timeout, and time in
// which this run disturbs other nodes does not count. A gate that waiting cannot open, such as one about a kind
// that the cluster does not serve, fails at once. The node is empty before the roll.
func (r *run) awaitGates(ctx context.Context, node string) error {
	gates := r.request.Gates
	if len(gates) == 0 || r.skipsGates(ctx, node) {
		return nil
	}

	// since is when each gate was last seen to hold, or its time did not count.
	since := make([]time.Time, len(gates))
	for index := range since {
		since[index] = r.engine.clock.Now()
	}

	last := "they were just asked"

	return r.engine.wait(ctx, node, "the gates to hold", func(ctx context.Context) (bool, string, error) {
		if err := r.noMoreStarts(); err != nil {
			return false, "", fmt.Errorf("%w; last seen: %s", err, last)
		}

		held, seen, err := r.lock.holds(ctx)
		if err != nil {
			return false, "", err
		}

		answers, now := askAll(ctx, gates, node), r.engine.clock.Now()

		for index, finding := range answers {
			if finding.Found == "" || len(r.shared.beside(node)) > 0 {
				since[index] = now
			}

			if finding.Found == "" {
				continue
			}

			late := now.Sub(since[index]) >= gates[index].Timeout()
			if late || finding.Err != nil && !cluster.Heals(finding.Err) {
				return false, "", &say.GateError{Finding: finding, After: now.Sub(since[index]), Late: late}
			}

			held, seen, last = false, finding.Found, finding.Found
		}

		return held, seen, nil
	})
}

// skipsGates reports whether the gates are skipped. Before the roll, it reports those that do not hold all the
// same.
func (r *run) skipsGates(ctx context.Context, node string) bool {
	if !r.request.Policy.Skips(cluster.CheckGates) {
		return false
	}

	if node == "" {
		if answers := askAll(ctx, r.request.Gates, node); ctx.Err() == nil {
			r.standing(answers)
		}
	}

	return true
}

// hasGates reports whether there are gates to wait for.
func (r *run) hasGates() bool {
	return len(r.request.Gates) > 0 && !r.request.Policy.Skips(cluster.CheckGates)
}

// whileGatesHold waits for the gates and then upgrades. If a gate closes before anything was touched, it is
// waited for again.
func (r *run) whileGatesHold(ctx context.Context, await, upgrade func(context.Context) error) error {
	for range maxClosures {
		if err := await(ctx); err != nil {
			return err
		}

		if err := upgrade(ctx); !errors.Is(err, permit.ErrGateClosed) {
			return err
		}

		// A context that ended is noticed by the wait for the gates.
		_ = r.engine.clock.Sleep(ctx, maxPoll)
	}

	return errFlickers
}

// upgradeGateError returns the error of an upgrade that a gate prevented. It is no failure if the time or the
// window ended during the wait.
func upgradeGateError(err error) error {
	if errors.Is(err, say.ErrWindow) || errors.Is(err, say.ErrDeadline) {
		return fmt.Errorf("%w: %w", permit.ErrStopped, err)
	}

	return err
}

// closedGates returns findings about the gates that do not hold, unless the check is skipped.
func (r *run) closedGates(ctx context.Context, node string) []cluster.Finding {
	if r.request.Policy.Skips(cluster.CheckGates) {
		return nil
	}

	return findClosed(ctx, r.request.Gates, node)
}

// findClosed returns findings about the gates that do not hold, or whose state is unknown.
func findClosed(ctx context.Context, gates []cluster.Gate, node string) []cluster.Finding {
	return slices.DeleteFunc(askAll(ctx, gates, node), func(f cluster.Finding) bool { return f.Found == "" })
}

// askAll queries all gates at once. The finding of a gate that holds is empty.
func askAll(ctx context.Context, gates []cluster.Gate, node string) []cluster.Finding {
	var group sync.WaitGroup

	answers := make([]cluster.Finding, len(gates))

	for index, gate := range gates {
		group.Go(func() {
			if finding, holds := ask(ctx, gate, node); !holds {
				answers[index] = finding
			}
		})
	}

	group.Wait()

	return answers
}

// ask queries one gate once.
func ask(ctx context.Context, gate cluster.Gate, node string) (cluster.Finding, bool) {
	bounded, cancel := context.WithTimeout(ctx, gateAsk)
	defer cancel()

	holds, seen, err := gate.Holds(bounded, node)

	finding := cluster.Finding{
		Check: cluster.CheckGates, Severity: cluster.Observed, Attribute: "gates", Err: err, Unknown: err != nil,
		Found:  fmt.Sprintf("%s does not hold: %s", gate, seen),
		Remedy: "Look at the objects it names; the run waits for a gate as long as its timeout says.",
	}

	if err != nil {
		finding.Found = fmt.Sprintf("%s cannot be judged: %v", gate, err)
	}

	if err != nil && !cluster.Heals(err) {
		finding.Remedy = "Correct the gate, or create what it refers to: waiting does not help."
	}

	return finding, holds && err == nil
}
