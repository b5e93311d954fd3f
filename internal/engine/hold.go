// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// holdAttempts is how often the hold is tried when others write it meanwhile.
const holdAttempts = 5

// settleHurried bounds what the operator is told after a cancel: to set it free is
// worth more.
const settleHurried = 2 * time.Second

// errOccupied is an operator that began to upgrade the cluster just before the run
// would have.
var errOccupied = fmt.Errorf("%w is upgrading it", ErrOperator)

// pauseOperator keeps the operator from acting for as long as the run lasts. It fails only
// where somebody else upgrades the cluster: an operator that cannot be reached or
// held is said aloud, and stops no upgrade.
func (r *run) pauseOperator(ctx context.Context) error {
	blocking := r.operatorConflicts(ctx, false)
	if len(blocking) == 0 {
		return nil
	}

	failure := blocked(r.request.Target, blocking)
	failure.Err = errors.Join(errOccupied, failure.Err)

	return failure
}

// operatorConflicts is what shows that the operator, or somebody through it, upgrades the
// cluster. Where nobody does it is held: at the beginning, and again when somebody
// has taken the hold away. Once the run has begun, a status that says so is its own.
func (r *run) operatorConflicts(ctx context.Context, begun bool) []cluster.Finding {
	switch {
	case r.engine.operator == nil:
		return nil
	case begun && r.operatorWatch.recentlyUnreadable(r.engine.clock.Now()):
		return r.operatorWatch.last()
	}

	var failed error

	for range holdAttempts {
		report, err := r.engine.operator.Report(ctx)
		if err != nil {
			// What was seen last counts: publishing stops no upgrade, and an operator
			// at work does not stop because nobody can look.
			r.operatorWatch.fail(r.engine.clock.Now())

			return r.operatorWatch.last()
		}

		if begun && report.Talos.Target+report.Kubernetes.Target == "" {
			report.Talos.Status, report.Kubernetes.Status = "", ""
		}

		blocking := cluster.Blocking(r.engine.judgeOperator(report, nil, r.request))
		r.operatorWatch.note(blocking, report.Unhold)

		switch {
		case len(blocking) > 0 || report.Passive:
			return blocking
		case report.Hold == r.engine.runID:
			r.operatorWatch.pause()

			return nil
		case report.Hold != "" && !cluster.IsRun(report.Hold):
			r.engine.warnOnce(fmt.Sprintf("the operator of %s is kept from acting by somebody else (%q), which is left as it is: the upgrade relies on it to stay", r.engine.operator, report.Hold))

			return nil
		}

		// Even an attempt that fails may have taken effect.
		r.operatorWatch.pause()

		failed = r.engine.callWhole(ctx, func(ctx context.Context) error { return r.engine.operator.Hold(ctx, r.engine.runID, report.Hold) })
		if !errors.Is(failed, cluster.ErrConflict) {
			break
		}
	}

	if failed != nil && ctx.Err() == nil {
		r.engine.warnOnce(fmt.Sprintf("the operator of %s could not be kept from acting: %v. It may change the cluster at the same time if somebody asks it to", r.engine.operator, failed))
	}

	return nil
}

// resumeOperator lets the operator act again, once what it knows of the versions is
// true. Both are of use to nobody but the operator, so that what fails is said.
func (r *run) resumeOperator(ctx context.Context, talos, kubernetes version.Version) {
	if !r.operatorWatch.paused() {
		return
	}

	r.updateOperator(ctx, talos, kubernetes)

	r.endPause(ctx)
}

// endPause ends the hold of the run, for as long as a run that had to stop may take.
func (r *run) endPause(ctx context.Context) {
	var err error

	for range 2 {
		kept, end := r.engine.cleanupWithin(ctx, endPauseTimeout)
		err = r.engine.endPauseNamed(kept, r.engine.runID)
		end()

		if err == nil || ctx.Err() == nil {
			break
		}
	}

	if err != nil {
		r.engine.warn(strings.TrimSpace(fmt.Sprintf("the operator of %s is still kept from acting by %q: %v. The next apply ends that. %s", r.engine.operator, r.engine.runID, err, r.operatorWatch.endPauseByHand())))
	}
}

// updateOperator tells the operator what the cluster runs, as long as it is held: what it
// remembers while it is at work is its own.
func (r *run) updateOperator(ctx context.Context, talos, kubernetes version.Version) {
	kept, end := r.engine.cleanupContext(ctx)
	defer end()

	if ctx.Err() != nil {
		var cancel context.CancelFunc

		kept, cancel = r.engine.clock.WithTimeout(kept, settleHurried)
		defer cancel()
	}

	report, err := r.engine.operator.Report(kept)
	if err == nil {
		r.operatorWatch.note(nil, report.Unhold)

		if report.Hold != r.engine.runID {
			return
		}

		err = r.engine.operator.Settle(kept, talos, kubernetes)
	}

	if err != nil {
		r.engine.warn(fmt.Sprintf("what the operator of %s remembers of the versions could not be brought up to date (Talos %s, Kubernetes %s): %v", r.engine.operator, talos, kubernetes, err))
	}
}

// endPauseNamed ends a hold, which is tried for as long as the context lasts.
func (e *Engine) endPauseNamed(ctx context.Context, hold string) error {
	return e.waitClosely(ctx, "", fmt.Sprintf("the operator of %s to be set free", e.operator), minPoll, func(ctx context.Context) (bool, string, error) {
		err := e.operator.Release(ctx, hold)
		if err != nil && cluster.Heals(err) {
			return false, err.Error(), nil
		}

		return err == nil, "", err
	})
}

// warnOnce says something that is found again and again.
func (e *Engine) warnOnce(text string) {
	if e.notices.fresh(cluster.Finding{Check: cluster.CheckOperator, Found: text}) {
		e.warn(text)
	}
}

// warn says something worth a person's attention.
func (e *Engine) warn(text string) {
	e.emit(cluster.Event{Kind: cluster.EventWarning, Text: text})
}
