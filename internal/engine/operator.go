// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// attributePublishTo is the attribute that names the object of the operator.
const attributePublishTo = "publish_to"

// products are both products, in the order in which people read them.
var products = [...]version.Product{version.Talos, version.Kubernetes}

// judgeOperator returns what speaks against an upgrade beside the operator or, if the request delegates, against
// asking it.
func (e *Engine) judgeOperator(report cluster.OperatorReport, err error, request Request) []cluster.Finding {
	if err != nil {
		return []cluster.Finding{e.unreported(err, request)}
	}

	if report.Passive {
		return nil
	}

	if report.Deleting {
		return []cluster.Finding{e.operatorFinding(fmt.Sprintf("%s is being deleted, and what is deleted with it is for its operator to say", e.operator),
			"Wait until it is gone and leave publish_to out, or find out who deletes it.")}
	}

	if request.Delegated {
		return e.judgeHold(report)
	}

	var findings []cluster.Finding

	for _, product := range products {
		findings = append(findings, e.judgeProduct(report, product)...)
	}

	return findings
}

// unreported returns the finding about an object that cannot be read. An upgrade by this engine does not need the
// object, a delegated one does.
func (e *Engine) unreported(err error, request Request) cluster.Finding {
	found := cluster.Finding{
		Check: cluster.CheckOperator, Severity: cluster.Advice, Attribute: attributePublishTo, Err: err, Unknown: true,
		Found:  fmt.Sprintf("%s cannot be read: %v", e.operator, err),
		Remedy: "Nothing is published there, and an operator that owns the cluster is not kept from acting meanwhile. " + unreadRemedy(err),
	}

	if request.Delegated {
		found.Severity, found.Remedy = cluster.Observed, "An operator can only be asked through it. "+unreadRemedy(err)
	}

	return found
}

func unreadRemedy(err error) string {
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return "Create the object (and its CRD), or correct publish_to; where it is in another cluster, the provider block names that in management."
	case errors.Is(err, cluster.ErrDenied):
		return "Allow the credentials to get and patch it."
	case errors.Is(err, cluster.ErrCredentials):
		return "Renew or correct the credentials of the cluster that holds it (management in the provider block)."
	default:
		return "Make the API of the cluster that holds it reachable from here (management in the provider block)."
	}
}

// judgeHold returns what prevents the operator from acting on a request.
func (e *Engine) judgeHold(report cluster.OperatorReport) []cluster.Finding {
	if report.Hold == "" || cluster.IsRun(report.Hold) {
		return nil
	}

	return []cluster.Finding{e.operatorFinding(
		fmt.Sprintf("the operator of %s was told to leave it alone (%q), so that it would do nothing", e.operator, report.Hold), report.Unhold)}
}

// judgeProduct returns what shows that the operator, or somebody who uses it, is upgrading the product. A busy
// status alone does not count while the operator is held: it was left by a run of ours, or from before.
func (e *Engine) judgeProduct(report cluster.OperatorReport, product version.Product) []cluster.Finding {
	said := report.Of(product)

	switch {
	case said.Target != "" && report.Hold != "" && report.Hold == e.runID:
		return []cluster.Finding{e.operatorFinding(
			fmt.Sprintf("somebody has asked the operator of %s to bring %s to %s; this run keeps it from that until it stops", e.operator, product.Name(), said.Target),
			"Let it finish, or take that back. "+said.Undo)}
	case said.Target != "" && cluster.IsRun(report.Hold):
		return []cluster.Finding{e.operatorFinding(
			fmt.Sprintf("the operator of %s is asked to bring %s to %s, and kept from it by the hold %q of a run that ended without taking it back",
				e.operator, product.Name(), said.Target, report.Hold),
			"Either take that back, or end the hold and have the operator do it. "+said.Undo+" "+report.Unhold)}
	case said.Target != "":
		return []cluster.Finding{e.operatorFinding(
			fmt.Sprintf("the operator of %s is asked to bring %s to %s", e.operator, product.Name(), said.Target),
			"Let it finish, or take that back. "+said.Undo)}
	case said.Status.Busy() && report.Hold == "":
		return []cluster.Finding{e.operatorFinding(
			fmt.Sprintf("%s says that its operator is upgrading %s (%s%s)", e.operator, product.Name(), said.Status, quoted(said.Message)),
			"Let it finish. If nothing is upgrading the cluster any more, remove that status from the object. "+said.Undo)}
	default:
		return nil
	}
}

func (e *Engine) operatorFinding(found, remedy string) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckOperator, Severity: cluster.Observed, Attribute: attributePublishTo, Found: found, Remedy: remedy,
	}
}

// quoted returns a quotation of the text as part of a sentence; empty if the text is empty.
func quoted(text string) string {
	if text == "" {
		return ""
	}

	return fmt.Sprintf(": %q", text)
}

// pauseLeft reports whether a run that died still holds the operator, although there is nothing to do.
func (e *Engine) pauseLeft(ctx context.Context) bool {
	if e.operator == nil {
		return false
	}

	report, err := e.operator.Report(ctx)

	return err == nil && cluster.IsRun(report.Hold)
}

// announces reports whether an observer has something to publish about a cluster in which there is nothing to do.
func (e *Engine) announces(ctx context.Context, event cluster.Event) bool {
	for _, observer := range e.observers {
		if announcer, ok := observer.(cluster.Announcer); ok && announcer.Announces(ctx, event) {
			return true
		}
	}

	return false
}

// holdAttempts is how often the hold is tried if others write the object meanwhile.
const holdAttempts = 5

// settleHurried bounds the update of what the operator knows after a cancel, because releasing it is more
// important.
const settleHurried = 2 * time.Second

// pauseOperator keeps the operator from acting while the run lasts. It fails only if somebody else is upgrading
// the cluster: an operator that cannot be reached or held is a warning, and stops no upgrade.
func (r *run) pauseOperator(ctx context.Context) error {
	blocking := r.operatorConflicts(ctx, false)
	if len(blocking) == 0 {
		return nil
	}

	failure := say.Blocked(r.request.Target, blocking)
	failure.Err = errors.Join(permit.ErrOccupied, failure.Err)

	return failure
}

// operatorConflicts returns what shows that the operator, or somebody through it, is upgrading the cluster. If
// nobody is, it holds the operator: at the beginning, and again if somebody has removed the hold. Once the run
// has begun, a busy status without a target is ignored, because the run has published it itself.
func (r *run) operatorConflicts(ctx context.Context, begun bool) []cluster.Finding {
	switch {
	case r.engine.operator == nil:
		return nil
	case begun && r.shared.operatorSilent(r.engine.clock.Now()):
		return r.shared.operatorFindings()
	}

	var failed error

	for range holdAttempts {
		report, err := r.engine.operator.Report(ctx)
		if err != nil {
			// The last result counts: publishing stops no upgrade, and an operator at work does not stop because
			// the object cannot be read.
			r.shared.noteOperatorSilent(r.engine.clock.Now())

			return r.shared.operatorFindings()
		}

		if begun && report.Talos.Target+report.Kubernetes.Target == "" {
			report.Talos.Status, report.Kubernetes.Status = "", ""
		}

		blocking := cluster.Blocking(r.engine.judgeOperator(report, nil, r.request))
		r.shared.noteOperator(blocking, report.Unhold)

		switch {
		case len(blocking) > 0 || report.Passive:
			return blocking
		case report.Hold == r.engine.runID:
			r.shared.noteOperatorPaused()

			return nil
		case report.Hold != "" && !cluster.IsRun(report.Hold):
			r.engine.warnOnce(fmt.Sprintf("the operator of %s is kept from acting by somebody else (%q), which is left as it is: the upgrade relies on it to stay", r.engine.operator, report.Hold))

			return nil
		}

		// Even an attempt that fails may have taken effect.
		r.shared.noteOperatorPaused()

		failed = r.leased.hold(ctx, report.Hold)
		if !errors.Is(failed, cluster.ErrConflict) {
			break
		}
	}

	if failed != nil && ctx.Err() == nil {
		r.engine.warnOnce(fmt.Sprintf("the operator of %s could not be kept from acting: %v. It may change the cluster at the same time if somebody asks it to", r.engine.operator, failed))
	}

	return nil
}

// resumeOperator lets the operator act again, after updating what it knows about the versions. Failures are only
// warnings, because both matter to nobody but the operator.
func (r *run) resumeOperator(ctx context.Context, talos, kubernetes version.Version) {
	if !r.shared.operatorPaused() {
		return
	}

	r.updateOperator(ctx, talos, kubernetes)

	r.endPause(ctx)
}

// endPause ends the hold of the run, within the time that a run that had to stop may take.
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
		r.engine.warn(strings.TrimSpace(fmt.Sprintf("the operator of %s is still kept from acting by %q: %v. The next apply ends that. %s", r.engine.operator, r.engine.runID, err, r.shared.operatorUnhold())))
	}
}

// updateOperator tells the operator what the cluster runs, if it is still held: what it stores while it is at
// work must not be changed.
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
		r.shared.noteOperator(nil, report.Unhold)

		if report.Hold != r.engine.runID {
			return
		}

		err = r.leased.settle(kept, talos, kubernetes)
	}

	if err != nil {
		r.engine.warn(fmt.Sprintf("what the operator of %s remembers of the versions could not be brought up to date (Talos %s, Kubernetes %s): %v", r.engine.operator, talos, kubernetes, err))
	}
}

// endPauseNamed ends a hold, and retries for as long as the context lasts.
func (e *Engine) endPauseNamed(ctx context.Context, hold string) error {
	return e.waitClosely(ctx, "", fmt.Sprintf("the operator of %s to be set free", e.operator), minPoll, func(ctx context.Context) (bool, string, error) {
		err := e.operator.Release(ctx, hold) //nolint:forbidigo // also where somebody has freed the lease
		if err != nil && cluster.Heals(err) {
			return false, err.Error(), nil
		}

		return err == nil, "", err
	})
}

// warnOnce warns about something that is found repeatedly.
func (e *Engine) warnOnce(text string) {
	e.emitOnce(withoutNumbers(text), cluster.Event{Kind: cluster.EventWarning, Text: text})
}

// warn emits a warning for people.
func (e *Engine) warn(text string) {
	e.emit(cluster.Event{Kind: cluster.EventWarning, Text: text})
}
