// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
)

// attrReportPath is the attribute that says where the picture of a run goes.
const attrReportPath = "report_path"

// errReport is what a report that is wanted and has no place counts as.
var errReport = errors.New("no place for the report")

// reportError is why a report has no place, which says enough by itself.
type reportError struct{ error }

// Is tells that it counts as [errReport].
func (e reportError) Is(target error) bool { return target == errReport }

// Unwrap is the reason.
func (e reportError) Unwrap() error { return e.error }

// reportSchema is the attribute that says where the picture of a run goes.
func reportSchema() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		attrReportPath: schema.StringAttribute{
			MarkdownDescription: "File, on the machine that runs Terraform, for a picture of the run, such as `\"${path.root}/upgrade.html\"`: one HTML page without scripts and without anything to load, " +
				"with a timeline of every node, the plan, what the checks found, the versions before and after and, where the run stops, what was seen and what to do. " +
				"It is written again as the run goes on. An apply that has nothing to do leaves it as it is. Directories that are missing are made. " +
				"A file that is no report is not written over: that is an error before anything is touched. It holds no secrets, but names of nodes, addresses and images.",
			Optional:   true,
			Validators: []validator.String{reportPathValidator{}},
		},
	}
}

// draw makes the report that the model wants, for the run of the claimant; nil where
// it wants none. The error counts as [errReport].
func (r *clusterResource) draw(model clusterModel, claimant, run, name string) (*report.Report, error) {
	path := model.ReportPath.ValueString()
	if path == "" {
		return nil, nil //nolint:nilnil // none is wanted
	}

	place, err := report.Check(path)
	if err != nil {
		return nil, reportError{err}
	}

	if !r.clusters.claims.write(place, claimant) {
		return nil, reportError{fmt.Errorf("%s cannot be written: another %s_cluster resource writes its own report there", place, typeName)}
	}

	return report.New(report.Options{Path: place, Cluster: name, Run: run, Version: r.clusters.settings.version}), nil
}

// endingOf is how a run ended, for its report.
func endingOf(snapshot cluster.Snapshot, err error) report.Ending {
	ending := report.Ending{Outcome: report.Completed, Nodes: snapshot.Nodes}
	if err == nil {
		return ending
	}

	ending.Outcome = drawnOutcome(err)

	if errors.Is(err, engine.ErrWrongCluster) {
		// They are another cluster's.
		ending.Nodes = nil
	}

	var failure *engine.Failure
	if !errors.As(err, &failure) {
		ending.Failure = &report.Failure{Summary: "Unable to upgrade the cluster", Seen: sentence(err.Error())}

		return ending
	}

	ending.Failure = &report.Failure{
		Summary: failure.Summary, Nodes: failure.Nodes(), Seen: failure.Seen, Findings: failure.Findings,
		State: failure.State, Remedy: failure.Remedy,
	}

	for _, excerpt := range failure.Excerpts {
		ending.Failure.Excerpts = append(ending.Failure.Excerpts, report.Excerpt(excerpt))
	}

	return ending
}

func drawnOutcome(err error) report.Outcome {
	var failure *engine.Failure

	switch {
	case errors.Is(err, engine.ErrLeaseLost):
		return report.Lost
	case errors.As(err, &failure) && len(failure.Nodes()) > 0:
		// Whatever else came to pass beside it.
		return report.Failed
	case errors.Is(err, context.Canceled), errors.Is(err, engine.ErrDeadline), errors.Is(err, engine.ErrWindow):
		return report.Stopped
	case neverBegan(err):
		return report.Refused
	default:
		return report.Failed
	}
}
