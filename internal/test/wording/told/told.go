// SPDX-License-Identifier: MPL-2.0

// Package told records what Terraform is told, for the pages of package wording.
package told

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// Noted records the diagnostics, and returns them.
func Noted(t testing.TB, told diag.Diagnostics) diag.Diagnostics {
	t.Helper()

	for _, one := range told {
		note(t, one.Severity() == diag.SeverityWarning, one.Summary(), one.Detail())
	}

	return told
}

// NotedOnWire is [Noted] of diagnostics that were sent to Terraform.
func NotedOnWire(t testing.TB, told []*tfprotov6.Diagnostic) []*tfprotov6.Diagnostic {
	t.Helper()

	for _, one := range told {
		note(t, one.Severity == tfprotov6.DiagnosticSeverityWarning, one.Summary, one.Detail)
	}

	return told
}

func note(t testing.TB, warning bool, summary, detail string) {
	t.Helper()

	kind := wording.KindError
	if warning {
		kind = wording.KindWarning
	}

	wording.Note(t, wording.Entry{Kind: kind, Summary: summary, Detail: detail})
}
