// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// unchangedTimeout bounds a look at an object that was named before. A plan waits
// no longer for a management cluster that is away, where nobody asked for anything.
const unchangedTimeout = 10 * time.Second

// objectView is what there is to say, while nothing is to be upgraded, of the object
// that progress is published to.
type objectView struct {
	// findings are what keeps an apply from telling the object how the cluster is.
	findings []cluster.Finding
	// left is what an earlier apply left on the object, and another one ends.
	left []string
}

// viewObject looks at the object of the model. Where that was named before nobody
// is told that it cannot be read.
func (c *clusters) viewObject(ctx context.Context, planned clusterModel, prior *clusterModel, target cluster.Target) objectView {
	of := planned.publication()
	if of.to == nil {
		return objectView{}
	}

	unchanged := prior != nil && prior.PublishTo.Equal(planned.PublishTo)
	if unchanged {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, unchangedTimeout)
		defer cancel()
	}

	reached, release, err := c.connect(ctx, planned.Context.ValueString())
	if err != nil {
		return objectView{} // which the look at the cluster has said already
	}

	defer release()

	var report cluster.OperatorReport

	beside, err := reached.operator(of)

	switch {
	case err != nil && unchanged, err == nil && beside == nil:
		return objectView{}
	case err != nil:
		return objectView{findings: []cluster.Finding{unmanaged(of, err)}}
	}

	report, err = beside.Report(ctx)

	switch {
	case err == nil:
		return objectView{left: of.left(report, target)}
	case unchanged:
		return objectView{}
	default:
		return objectView{findings: []cluster.Finding{unread(of, err)}}
	}
}

// unread is the finding of an object that cannot be told how the cluster is.
func unread(of publication, err error) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckOperator, Severity: cluster.Observed, Attribute: attrPublishTo, Err: err, Unknown: true,
		Found:  fmt.Sprintf("%s cannot be read: %v", of, err),
		Remedy: "Nothing is published there before that. Create the object, allow the credentials to get and patch it, or correct " + attrPublishTo + ".",
	}
}

// left is what earlier applies left on the object of a cluster that is at the
// target: a hold that keeps its operator from acting and, where an operator is
// asked for upgrades, what it is still asked for. Other words are not worth a plan:
// an operator may say things in its own way.
func (p publication) left(report cluster.OperatorReport, target cluster.Target) []string {
	var left []string

	if report.Passive || report.Deleting {
		return left
	}

	if cluster.IsRun(report.Hold) {
		left = append(left, p.leftHold(report))
	}

	if !p.delegated || operator.KindOf(*p.to) != operator.Vitistack {
		return left
	}

	for _, wanted := range []struct {
		half cluster.Half
		to   version.Version
	}{
		{cluster.HalfTalos, target.Talos},
		{cluster.HalfKubernetes, target.Kubernetes},
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
func (p publication) leftHold(report cluster.OperatorReport) string {
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

// leftWarning says why a cluster at the target is planned to be applied. The command
// line shows it again after the apply, so it must be true then.
func leftWarning(left []string, name string) diag.Diagnostic {
	return diag.NewWarningDiagnostic(about("An earlier apply could not end properly", name),
		"While planning, no node had anything left to do, and still:\n\n- "+strings.Join(left, "\n- ")+
			"\n\nAn apply ends that, and changes nothing on the nodes. If another run is still at it, it is left alone.")
}
