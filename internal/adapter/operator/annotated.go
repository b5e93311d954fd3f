// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// cutOff is the message for a product whose upgrade a run did not finish.
const cutOff = "The upgrade was cut off"

// emptyHold stands for a hold without a value, which holds like any other one.
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
			return annotate(protocol.KeyHold, run), nil
		default:
			return nil, fmt.Errorf("unable to hold %s: %w: its annotation %s says %q, and said %q before",
				a.of, cluster.ErrConflict, protocol.KeyHold, shortened(standing), shortened(instead))
		}
	})
}

// Settle implements [cluster.Operator]. Such an operator is not known to keep anything but the object.
func (a *annotated) Settle(context.Context, version.Version, version.Version) error { return nil }

// Release implements [cluster.Operator].
func (a *annotated) Release(ctx context.Context, run string) error {
	return a.release(ctx, run, func(object, version.Product) bool { return false })
}

// release removes the hold of the run. If a product is still reported as being upgraded, a run of ours could not
// reset that. Because no operator acts on a target of such a product, its status is set to idle, unless the
// operator itself is upgrading it, which atWork reports.
func (a *annotated) release(ctx context.Context, run string, atWork func(object, version.Product) bool) error {
	var cut []version.Product

	err := rewrite(ctx, a.access, a.of, nil, func(found object) (map[string]any, error) {
		cut = nil

		if standing := held(found); standing == "" || standing != run {
			return nil, nil
		}

		changes := map[string]any{protocol.KeyHold: nil}

		for _, product := range [...]version.Product{version.Talos, version.Kubernetes} {
			if busy(found, product) && !atWork(found, product) {
				changes[protocol.Key(product, protocol.FieldStatus)] = protocol.StatusIdle
				changes[protocol.Key(product, protocol.FieldMessage)] = cutOff
				cut = append(cut, product)
			}
		}

		return map[string]any{"metadata": map[string]any{"annotations": changes}}, nil
	})
	if errors.Is(err, cluster.ErrNotFound) {
		// Without the object nothing is held.
		return nil
	}

	if err == nil && len(cut) > 0 {
		a.endStatus(ctx, cut)
	}

	return err
}

// Ask implements [cluster.Operator]. It is not supported, because an operator is known to act on a target for a few
// kinds only.
func (a *annotated) Ask(_ context.Context, product version.Product, to version.Version) error {
	return nobody(a.of, product, to)
}

// Withdraw implements [cluster.Operator].
func (a *annotated) Withdraw(_ context.Context, product version.Product, to version.Version) error {
	return nobody(a.of, product, to)
}

func reportedProduct(of cluster.Reference, found object, product version.Product) cluster.OperatorProduct {
	said := func(named protocol.Field) string {
		value, _ := found.annotation(protocol.Key(product, named))

		return value
	}

	report := cluster.OperatorProduct{
		Target:   plain(said(protocol.FieldTarget)),
		Status:   protocol.Status(said(protocol.FieldStatus)),
		Message:  shortened(said(protocol.FieldMessage)),
		Progress: shortened(said(protocol.FieldProgress)),
		Current:  plain(said(protocol.FieldCurrent)),
	}

	switch {
	case report.Target != "":
		report.Undo = undo(of, protocol.Key(product, protocol.FieldTarget)+"-")
	case report.Status.Busy():
		report.Undo = undo(of, protocol.Key(product, protocol.FieldStatus)+"-")
	}

	return report
}

// unhold returns how a person removes the hold, including one that is set later. The busy status that a run of ours
// left behind is removed with it, because no operator acts while it is set.
func unhold(of cluster.Reference, report cluster.OperatorReport) string {
	what, line := "The hold is the annotation "+protocol.KeyHold, protocol.KeyHold+"-"

	for _, product := range [...]version.Product{version.Talos, version.Kubernetes} {
		if status := protocol.Key(product, protocol.FieldStatus); cluster.IsRun(report.Hold) && report.Of(product).Status.Busy() {
			what += ", and " + status + " goes with it"
			line += " " + status + "-"
		}
	}

	return what + ". " + undo(of, line)
}

// busy reports whether the annotations say that the product is being upgraded.
func busy(found object, product version.Product) bool {
	status, _ := found.annotation(protocol.Key(product, protocol.FieldStatus))

	return protocol.Status(status).Busy()
}

// undo returns the command with which a person sets an annotation of the object, or removes it if what ends with a
// dash.
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

// held returns what keeps the operator from acting; empty if nothing does.
func held(found object) string {
	value, stands := found.annotation(protocol.KeyHold)
	if stands && value == "" {
		return emptyHold
	}

	return value
}

// reported returns what the annotations say.
func reported(of cluster.Reference, found object) cluster.OperatorReport {
	report := cluster.OperatorReport{
		Deleting:   found.deleting(),
		Hold:       held(found),
		Talos:      reportedProduct(of, found, version.Talos),
		Kubernetes: reportedProduct(of, found, version.Kubernetes),
	}

	report.Unhold = unhold(of, report)

	updated, _ := found.annotation(protocol.KeyLastUpdate)
	if at, err := time.Parse(time.RFC3339, updated); err == nil {
		report.Updated = at
	}

	failed, _ := found.annotation(protocol.KeyFailedNodes)
	for node := range strings.SplitSeq(failed, ",") {
		if node = strings.TrimSpace(node); node != "" {
			report.FailedNodes = append(report.FailedNodes, node)
		}
	}

	return report
}

// endStatus sets the phase and the conditions of products whose upgrade was cut off, if the object has them. They
// only inform people, so errors are ignored: the hold has been removed in any case.
func (a *annotated) endStatus(ctx context.Context, cut []version.Product) {
	ctx, cancel := context.WithTimeout(ctx, maxSecretWait)
	defer cancel()

	read, err := a.access.Object(ctx, a.of)
	if err != nil {
		return
	}

	if changes := endedStatus(read, cut, time.Now().UTC()); changes != nil {
		_, _ = a.access.PatchObject(ctx, a.of, "status", map[string]any{
			"metadata": map[string]any{"resourceVersion": object(read).text("metadata", "resourceVersion")},
			"status":   changes,
		})
	}
}

// endedStatus returns the changes of the status; nil if there are none. A list is replaced as a whole, so it
// includes the conditions of others unchanged.
func endedStatus(read object, cut []version.Product, now time.Time) map[string]any {
	conditions, _, err := unstructured.NestedSlice(read, "status", "conditions")
	if err != nil {
		return nil
	}

	changes, stale := map[string]any{}, false

	for _, one := range conditions {
		condition, ok := one.(map[string]any)
		if !ok {
			continue
		}

		about := func(product version.Product) bool { return object(condition).text("type") == product.Name()+"Upgrade" }
		if slices.ContainsFunc(cut, about) && object(condition).text("status") == "True" {
			condition["status"], condition["reason"], condition["message"] = "False", "Failed", cutOff
			condition["lastTransitionTime"], stale = now.Format(time.RFC3339), true
		}
	}

	if stale {
		changes["conditions"] = conditions
	}

	if strings.HasPrefix(read.text("status", "phase"), "Upgrading") {
		changes["phase"] = "UpgradeFailed"
	}

	if len(changes) == 0 {
		return nil
	}

	return changes
}
