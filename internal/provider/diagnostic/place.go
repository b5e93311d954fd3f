// SPDX-License-Identifier: MPL-2.0

package diagnostic

import (
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
)

// WithDetail returns the diagnostic with another detail.
func WithDetail(of diag.Diagnostic, detail string) diag.Diagnostic {
	if located, ok := of.(diag.DiagnosticWithPath); ok {
		return diag.NewAttributeErrorDiagnostic(located.Path(), of.Summary(), detail)
	}

	return diag.NewErrorDiagnostic(of.Summary(), detail)
}

// AsWarning returns the problem as a warning, for operations that can continue despite it.
func AsWarning(problem diag.Diagnostic, summary, consequence string) diag.Diagnostic {
	return diag.NewWarningDiagnostic(summary, problem.Detail()+"\n\n"+consequence)
}

// ErrorAt returns an error about a place in the configuration, or about none if the path is empty.
func ErrorAt(at path.Path, summary, detail string) diag.Diagnostic {
	if len(at.Steps()) == 0 {
		return diag.NewErrorDiagnostic(summary, detail)
	}

	// The command line only shows an attribute as a whole.
	if len(at.Steps()) > 1 {
		detail += "\n\nThe value at fault is " + at.String() + "."
	}

	return diag.NewAttributeErrorDiagnostic(Visible(at), summary, detail)
}

// Visible returns as much of the path as the command line finds in a configuration: an attribute of the resource, or
// one element of it. For anything deeper it shows the first line of the resource, which is the wrong one.
func Visible(at path.Path) path.Path {
	var shown path.Path

	for index, step := range at.Steps() {
		switch step := step.(type) {
		case path.PathStepAttributeName:
			if index > 0 {
				return shown
			}

			shown = path.Root(string(step))
		case path.PathStepElementKeyString:
			return shown.AtMapKey(string(step))
		case path.PathStepElementKeyInt:
			return shown.AtListIndex(int(step))
		}
	}

	return shown
}
