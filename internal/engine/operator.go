// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// attributePublishTo is the attribute that names the object of the operator.
const attributePublishTo = "publish_to"

// operated is the check of the operator, before anything is begun.
func (p *preflight) operated(ctx context.Context) []cluster.Finding {
	report, err := p.engine.operator.Report(ctx)

	return p.engine.judgeOperator(report, err, p.request)
}

// judgeOperator is what speaks against an upgrade beside the operator or, where
// the request delegates, against asking it.
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

	for _, half := range halves {
		findings = append(findings, e.judgeHalf(report, half)...)
	}

	return findings
}

// unreported is the finding of an object that cannot be read. An upgrade of ours
// does without it, an operator does not.
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

// judgeHold is what keeps the operator from doing what it is asked for.
func (e *Engine) judgeHold(report cluster.OperatorReport) []cluster.Finding {
	if report.Hold == "" || cluster.IsRun(report.Hold) {
		return nil
	}

	return []cluster.Finding{e.operatorFinding(
		fmt.Sprintf("the operator of %s was told to leave it alone (%q), so that it would do nothing", e.operator, report.Hold), report.Unhold)}
}

// judgeHalf is what shows that the operator, or somebody who relies on it, is
// upgrading the half. An operator that is held is not: a status that says so was
// left by a run of ours, or from before.
func (e *Engine) judgeHalf(report cluster.OperatorReport, half cluster.Half) []cluster.Finding {
	said := report.Of(half)

	switch {
	case said.Target != "" && report.Hold != "" && report.Hold == e.runID:
		return []cluster.Finding{e.operatorFinding(
			fmt.Sprintf("somebody has asked the operator of %s to bring %s to %s; this run keeps it from that until it stops", e.operator, half.Name(), said.Target),
			"Let it finish, or take that back. "+said.Undo)}
	case said.Target != "" && cluster.IsRun(report.Hold):
		return []cluster.Finding{e.operatorFinding(
			fmt.Sprintf("the operator of %s is asked to bring %s to %s, and kept from it by the hold %q of a run that ended without taking it back",
				e.operator, half.Name(), said.Target, report.Hold),
			"Either take that back, or end the hold and have the operator do it. "+said.Undo+" "+report.Unhold)}
	case said.Target != "":
		return []cluster.Finding{e.operatorFinding(
			fmt.Sprintf("the operator of %s is asked to bring %s to %s", e.operator, half.Name(), said.Target),
			"Let it finish, or take that back. "+said.Undo)}
	case said.Status.Busy() && report.Hold == "":
		return []cluster.Finding{e.operatorFinding(
			fmt.Sprintf("%s says that its operator is upgrading %s (%s%s)", e.operator, half.Name(), said.Status, quoted(said.Message)),
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

// quoted is what somebody says, as part of a sentence; empty where that is nothing.
func quoted(text string) string {
	if text == "" {
		return ""
	}

	return fmt.Sprintf(": %q", text)
}

// pauseLeft tells whether a run that died keeps the operator from acting although
// nothing is to be done.
func (e *Engine) pauseLeft(ctx context.Context) bool {
	if e.operator == nil {
		return false
	}

	report, err := e.operator.Report(ctx)

	return err == nil && cluster.IsRun(report.Hold)
}

// announces tells whether an observer has something to say of a cluster in which
// nothing is to be done.
func (e *Engine) announces(ctx context.Context, event cluster.Event) bool {
	for _, observer := range e.observers {
		if announcer, ok := observer.(cluster.Announcer); ok && announcer.Announces(ctx, event) {
			return true
		}
	}

	return false
}
