// SPDX-License-Identifier: MPL-2.0

// Package publication names the object to which the progress of an upgrade is published, and holds what observes a run.
package publication

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// DefaultObject is the object to which progress is published by default.
const DefaultObject = "ConfigMap kube-system/talosupgrade"

// Publication is where the progress of an upgrade is published.
type Publication struct {
	// To is the configured object; nil for the default.
	To *cluster.Reference
	// Delegated is true if an operator upgrades the cluster, and publishes too.
	Delegated bool
}

// String returns the display name of the object.
func (p Publication) String() string {
	if p.To == nil {
		return DefaultObject
	}

	return p.To.String()
}

// IsDefault reports whether the object is the one to which progress is published by default, even if it is
// configured explicitly. An object in a management cluster is not.
func (p Publication) IsDefault(managed bool) bool {
	return p.To == nil || !managed && *p.To == DefaultReference()
}

// DefaultReference returns the object to which progress is published by default.
func DefaultReference() cluster.Reference {
	return cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: publish.ConfigMapNamespace, Name: publish.ConfigMapName}
}

// DelegatedWarning adds to the table of a roll that an operator performs it, if it is delegated.
func DelegatedWarning(roll diag.Diagnostic, of Publication) diag.Diagnostic {
	if !of.Delegated {
		return roll
	}

	return diag.NewWarningDiagnostic(roll.Summary(),
		"The operator of "+of.String()+" is asked for this and upgrades the nodes itself, in its own order and at its own pace. "+
			"It is asked for one step after the other, and every node is looked at afterwards.\n\n"+roll.Detail())
}

// UnusableManagementFinding returns the finding of a management cluster that cannot be used.
func UnusableManagementFinding(of Publication, err error) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckOperator, Severity: cluster.Permanent, Attribute: attrname.PublishTo, Err: err,
		Found:  fmt.Sprintf("the management cluster, which holds %s, cannot be asked: %v", of, err),
		Remedy: "Correct " + attrname.Management + " in the provider block.",
	}
}

// UnreadableObjectFinding returns the finding of an object that cannot be read, so that nothing is published to it.
func UnreadableObjectFinding(of Publication, err error) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckOperator, Severity: cluster.Observed, Attribute: attrname.PublishTo, Err: err, Unknown: true,
		Found:  fmt.Sprintf("%s cannot be read: %v", of, err),
		Remedy: "Nothing is published there before that. Create the object, allow the credentials to get and patch it, or correct " + attrname.PublishTo + ".",
	}
}

// Left returns what earlier applies left on the object of a cluster that is at the target: a hold that keeps its
// operator from acting and, if upgrades are delegated to the operator, what is still requested of it. Differences in
// other fields are not worth a plan: an operator may use its own words.
func (p Publication) Left(report cluster.OperatorReport, target cluster.Target) []string {
	var left []string

	if report.Passive || report.Deleting {
		return left
	}

	if cluster.IsRun(report.Hold) {
		left = append(left, p.leftHold(report))
	}

	if !p.Delegated || operator.KindOf(*p.To) != operator.Vitistack {
		return left
	}

	for _, wanted := range []struct {
		half version.Product
		to   version.Version
	}{
		{version.Talos, target.Talos},
		{version.Kubernetes, target.Kubernetes},
	} {
		said := report.Of(wanted.half)
		if wanted.to.IsZero() || said.Target != wanted.to.String() || said.Status.Busy() {
			continue
		}

		left = append(left, strings.TrimSpace(fmt.Sprintf("%s still asks its operator for %s %s, which is reached: it may begin again. %s",
			p, wanted.half.Name(), wanted.to, said.Undo)))
	}

	return left
}

// leftHold says that the operator is still held.
func (p Publication) leftHold(report cluster.OperatorReport) string {
	sign := ""
	if !report.Updated.IsZero() {
		sign = fmt.Sprintf(" (last sign of life: %s)", report.Updated.UTC().Format(time.RFC3339))
	}

	text := fmt.Sprintf("%s is still held by %s%s, so that its operator does nothing", p, report.Hold, sign)
	if report.Talos.Status.Busy() || report.Kubernetes.Status.Busy() {
		text += ", and says that an upgrade is going on"
	}

	return strings.TrimSpace(text + ". " + report.Unhold)
}

// LeftWarning says why an apply is planned for a cluster at the target. The command line shows it again after the
// apply, so it must be true then.
func LeftWarning(left []string, name string) diag.Diagnostic {
	return diag.NewWarningDiagnostic(diagnostic.About("An earlier apply could not end properly", name),
		"While planning, no node had anything left to do, but:\n\n- "+strings.Join(left, "\n- ")+
			"\n\nAn apply ends that, and changes nothing on the nodes. If another run is still at it, it is left alone.")
}
