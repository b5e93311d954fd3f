// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// noted takes note of what a person is told.
func noted(t testing.TB, told diag.Diagnostics) diag.Diagnostics {
	t.Helper()

	for _, one := range told {
		kind := wording.KindError
		if one.Severity() == diag.SeverityWarning {
			kind = wording.KindWarning
		}

		wording.Note(t, wording.Entry{Kind: kind, Summary: one.Summary(), Detail: one.Detail()})
	}

	return told
}

// notedOnWire takes note of what the command line is sent.
func notedOnWire(t testing.TB, told []*tfprotov6.Diagnostic) []*tfprotov6.Diagnostic {
	t.Helper()

	for _, one := range told {
		kind := wording.KindError
		if one.Severity == tfprotov6.DiagnosticSeverityWarning {
			kind = wording.KindWarning
		}

		wording.Note(t, wording.Entry{Kind: kind, Summary: one.Summary, Detail: one.Detail})
	}

	return told
}
