// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// How a check ended, as the data source says it.
const (
	checkPassed  = "passed"
	checkWarning = "warning"
	checkFailed  = "failed"
	checkUnknown = "unknown"
	checkSkipped = "skipped"
)

// How much that matters, as the data source says it.
const (
	severityNone    = "none"
	severityWarning = "warning"
	severityError   = "error"
)

// checkModel is one element of checks.
type checkModel struct {
	Name     types.String `tfsdk:"name"`
	Status   types.String `tfsdk:"status"`
	Severity types.String `tfsdk:"severity"`
	Node     types.String `tfsdk:"node"`
	Finding  types.String `tfsdk:"finding"`
	Remedy   types.String `tfsdk:"remedy"`
}

// newCheckModels are the checks that were made in the order of the catalogue.
// Findings under a name that is not in it come last.
func newCheckModels(examined engine.Examination) []checkModel {
	models := []checkModel{}
	byCheck := map[string][]cluster.Finding{}

	var names []string
	for _, check := range cluster.Checks() {
		names = append(names, check.Name)
	}

	for _, finding := range examined.Findings {
		byCheck[finding.Check] = append(byCheck[finding.Check], finding)

		if !slices.Contains(names, finding.Check) {
			names = append(names, finding.Check)
		}
	}

	for _, name := range names {
		for _, finding := range byCheck[name] {
			models = append(models, newCheckModel(finding))
		}

		if len(byCheck[name]) == 0 && slices.Contains(examined.Made, name) {
			models = append(models, checkModel{
				Name: types.StringValue(name), Status: types.StringValue(checkPassed), Severity: types.StringValue(severityNone),
			})
		}
	}

	return models
}

func newCheckModel(finding cluster.Finding) checkModel {
	status, severity := checkFailed, severityError

	switch {
	case finding.Skipped:
		status = checkSkipped
	case finding.Unknown:
		status = checkUnknown
	case finding.Severity == cluster.Advice:
		status = checkWarning
	}

	if finding.Severity == cluster.Advice {
		severity = severityWarning
	}

	return checkModel{
		Name:     types.StringValue(finding.Check),
		Status:   types.StringValue(status),
		Severity: types.StringValue(severity),
		Node:     textValue(finding.Node),
		Finding:  textValue(finding.Found),
		Remedy:   textValue(finding.Remedy),
	}
}

// checkSummary is the result in one line, without a full stop. Work tells that
// there is something to upgrade.
func checkSummary(models []checkModel, work bool) string {
	var failed, all []string

	warnings := 0

	for _, model := range models {
		name := model.Name.ValueString()
		if !slices.Contains(all, name) {
			all = append(all, name)
		}

		switch model.Severity.ValueString() {
		case severityWarning:
			warnings++
		case severityError:
			if !slices.Contains(failed, name) {
				failed = append(failed, name)
			}
		}
	}

	text := fmt.Sprintf("All %s passed", counted(len(all), "check"))
	if len(failed) > 0 {
		text = fmt.Sprintf("%d of %s would stop an apply: %s", len(failed), counted(len(all), "check"), strings.Join(failed, ", "))
	} else if warnings > 0 {
		text = fmt.Sprintf("None of %s would stop an apply", counted(len(all), "check"))
	}

	if warnings > 0 {
		text += ", with " + counted(warnings, "warning")
	}

	if !work && len(failed) == 0 {
		text += "; nothing is to be upgraded"
	}

	return text
}

// counted is a number with its noun: "1 check", "2 checks".
func counted(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", number, noun)
}
