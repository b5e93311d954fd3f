// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The annotations of the protocol. Those of a product begin with its name.
const (
	prefix        = "upgrade.vitistack.io/"
	holdKey       = prefix + "do-not-reconcile"
	failedKey     = prefix + "failed-nodes"
	resetKey      = prefix + "talos-reset-upgrade-state"
	updatedKey    = prefix + "talosupgrade-last-update"
	targetSuffix  = "-target"
	statusSuffix  = "-status"
	messageSuffix = "-message"
	doneSuffix    = "-progress"
	currentSuffix = "-current"
)

// cutOff is the message of a product that a run left at work.
const cutOff = "The upgrade was cut off"

// emptyHold is how a hold without a value is called: it holds like any other one.
const emptyHold = "(empty)"

// annotated is an operator that follows the annotation protocol.
type annotated struct {
	of     cluster.Reference
	access Access
}

func (a *annotated) String() string { return a.of.String() }

// Report implements [cluster.Operator].
func (a *annotated) Report(ctx context.Context) (cluster.OperatorReport, error) {
	found, err := a.access.Object(ctx, a.of)
	if err != nil {
		return cluster.OperatorReport{}, err
	}

	return reported(a.of, found), nil
}

// Hold implements [cluster.Operator].
func (a *annotated) Hold(ctx context.Context, run, instead string) error {
	return rewrite(ctx, a.access, a.of, nil, func(found object) (map[string]any, error) {
		switch standing := held(found); standing {
		case run:
			return nil, nil
		case instead:
			return annotate(holdKey, run), nil
		default:
			return nil, fmt.Errorf("unable to hold %s: %w: its annotation %s says %q, and said %q before",
				a.of, cluster.ErrConflict, holdKey, shortened(standing), shortened(instead))
		}
	})
}

// Settle implements [cluster.Operator]. Beside the object nothing is known to be
// remembered.
func (a *annotated) Settle(context.Context, version.Version, version.Version) error { return nil }

// Release implements [cluster.Operator].
func (a *annotated) Release(ctx context.Context, run string) error {
	return a.release(ctx, run, func(object, version.Product) bool { return false })
}

// release ends the hold of the run. A product that is said to be at work then is what
// a run of ours could not take back: no operator acts on a target of such a product, so
// that it is said to be idle, unless the operator is at work on it itself.
func (a *annotated) release(ctx context.Context, run string, atWork func(object, version.Product) bool) error {
	var cut []version.Product

	err := rewrite(ctx, a.access, a.of, nil, func(found object) (map[string]any, error) {
		cut = nil

		if standing := held(found); standing == "" || standing != run {
			return nil, nil
		}

		changes := map[string]any{holdKey: nil}

		for _, product := range [...]version.Product{version.Talos, version.Kubernetes} {
			if busy(found, product) && !atWork(found, product) {
				changes[keyOf(product, statusSuffix)] = string(cluster.OperatorIdle)
				changes[keyOf(product, messageSuffix)] = cutOff
				cut = append(cut, product)
			}
		}

		return map[string]any{"metadata": map[string]any{"annotations": changes}}, nil
	})
	if errors.Is(err, cluster.ErrNotFound) {
		// With the object gone, nothing is held.
		return nil
	}

	if err == nil && len(cut) > 0 {
		a.endStatus(ctx, cut)
	}

	return err
}

// Ask implements [cluster.Operator]: whether something acts on a target is known of
// a few kinds only.
func (a *annotated) Ask(_ context.Context, product version.Product, to version.Version) error {
	return nobody(a.of, product, to)
}

// Withdraw implements [cluster.Operator].
func (a *annotated) Withdraw(_ context.Context, product version.Product, to version.Version) error {
	return nobody(a.of, product, to)
}

// reported is what the annotations say.
func reported(of cluster.Reference, found object) cluster.OperatorReport {
	report := cluster.OperatorReport{
		Deleting:   found.deleting(),
		Hold:       held(found),
		Talos:      reportedHalf(of, found, version.Talos),
		Kubernetes: reportedHalf(of, found, version.Kubernetes),
	}

	report.Unhold = unhold(of, report)

	updated, _ := found.annotation(updatedKey)
	if at, err := time.Parse(time.RFC3339, updated); err == nil {
		report.Updated = at
	}

	failed, _ := found.annotation(failedKey)
	for node := range strings.SplitSeq(failed, ",") {
		if node = strings.TrimSpace(node); node != "" {
			report.FailedNodes = append(report.FailedNodes, node)
		}
	}

	return report
}

func reportedHalf(of cluster.Reference, found object, product version.Product) cluster.OperatorProduct {
	said := func(suffix string) string {
		value, _ := found.annotation(keyOf(product, suffix))

		return value
	}

	report := cluster.OperatorProduct{
		Target:   plain(said(targetSuffix)),
		Status:   cluster.OperatorStatus(said(statusSuffix)),
		Message:  shortened(said(messageSuffix)),
		Progress: shortened(said(doneSuffix)),
		Current:  plain(said(currentSuffix)),
	}

	switch {
	case report.Target != "":
		report.Undo = undo(of, keyOf(product, targetSuffix)+"-")
	case report.Status.Busy():
		report.Undo = undo(of, keyOf(product, statusSuffix)+"-")
	}

	return report
}

// unhold is how a person ends the hold, also one that stands later. What a run of
// ours left at work is taken away with it: no operator acts beside that.
func unhold(of cluster.Reference, report cluster.OperatorReport) string {
	what, line := "The hold is the annotation "+holdKey, holdKey+"-"

	for _, product := range [...]version.Product{version.Talos, version.Kubernetes} {
		if status := keyOf(product, statusSuffix); cluster.IsRun(report.Hold) && report.Of(product).Status.Busy() {
			what += ", and " + status + " goes with it"
			line += " " + status + "-"
		}
	}

	return what + ". " + undo(of, line)
}

// busy tells whether the product is said to be at work.
func busy(found object, product version.Product) bool {
	status, _ := found.annotation(keyOf(product, statusSuffix))

	return cluster.OperatorStatus(status).Busy()
}

// undo is how a person annotates the object with what is given, which takes an
// annotation away where it ends with a dash.
func undo(of cluster.Reference, what string) string {
	kind := strings.ToLower(of.Kind)
	if group := groupOf(of.APIVersion); strings.Contains(of.APIVersion, "/") {
		kind += "." + group
	}

	command := "kubectl annotate " + kind + " " + of.Name
	if of.Namespace != "" {
		command += " --namespace " + of.Namespace
	}

	return "By hand: " + command + " " + what
}

// held is what keeps the operator from acting; empty where nothing does.
func held(found object) string {
	value, stands := found.annotation(holdKey)
	if stands && value == "" {
		return emptyHold
	}

	return value
}

func keyOf(product version.Product, suffix string) string { return prefix + string(product) + suffix }
