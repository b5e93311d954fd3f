// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

var (
	_ validator.String = onFailureValidator{}
	_ validator.Number = attemptsValidator{}
)

// validateOnFailure refuses a rollback of what is not upgraded.
func (m clusterModel) validateOnFailure() diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if m.TalosVersion.IsNull() && m.OnFailure.ValueString() == string(cluster.RollBackOnFailure) {
		diagnostics.AddAttributeError(path.Root(attrOnFailure), "Rollback without effect",
			fmt.Sprintf("%s = %q sends a node back to the Talos it ran before, and without %s no node gets another one. Kubernetes is never rolled back.\n\n"+
				"Set %s, to the running version if nothing is to be upgraded, or remove %s.",
				attrOnFailure, cluster.RollBackOnFailure, attrTalosVersion, attrTalosVersion, attrOnFailure))
	}

	return diagnostics
}

// onFailureValidator accepts what can happen to a node whose new system does not
// become healthy.
type onFailureValidator struct{}

// Description implements [validator.String].
func (onFailureValidator) Description(context.Context) string {
	return fmt.Sprintf("value must be %q or %q", cluster.StopOnFailure, cluster.RollBackOnFailure)
}

// MarkdownDescription implements [validator.String].
func (v onFailureValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateString implements [validator.String].
func (onFailureValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	written := req.ConfigValue.ValueString()

	switch cluster.OnFailure(written) {
	case cluster.StopOnFailure, cluster.RollBackOnFailure:
		return
	}

	hint := ""
	if meant := nearest(written, []string{string(cluster.StopOnFailure), string(cluster.RollBackOnFailure)}); meant != "" {
		hint = fmt.Sprintf(" Did you mean %q?", meant)
	}

	resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid way to fail",
		fmt.Sprintf("%s is %q.%s\n\nWrite %q to leave a node that does not become healthy as it is, or %q to send it back to its old system where that is safe.",
			req.Path, written, hint, cluster.StopOnFailure, cluster.RollBackOnFailure))
}

// attemptsValidator accepts how often something may be tried.
type attemptsValidator struct{}

// Description implements [validator.Number].
func (attemptsValidator) Description(context.Context) string {
	return fmt.Sprintf("value must be a whole number from 1 to %d", attemptsMost)
}

// MarkdownDescription implements [validator.Number].
func (v attemptsValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateNumber implements [validator.Number].
func (attemptsValidator) ValidateNumber(_ context.Context, req validator.NumberRequest, resp *validator.NumberResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	if _, whole := wholeAttempts(req.ConfigValue); !whole {
		resp.Diagnostics.Append(wrongAttempts(req.Path, req.ConfigValue))
	}
}

// wholeAttempts is the number as code counts, and whether it is one that may be
// chosen.
func wholeAttempts(value types.Number) (int, bool) {
	number := value.ValueBigFloat()
	if !number.IsInt() || number.Cmp(big.NewFloat(1)) < 0 || number.Cmp(big.NewFloat(attemptsMost)) > 0 {
		return 0, false
	}

	attempts, _ := number.Int64()

	return int(attempts), true
}

// wrongAttempts is the error of a number of attempts that cannot be.
func wrongAttempts(at path.Path, value types.Number) diag.Diagnostic {
	advice := "The first attempt counts: write 1 for no repetition."
	if value.ValueBigFloat().Cmp(big.NewFloat(attemptsMost)) > 0 {
		advice = "What fails that often does not heal by being repeated: look at the error of the last attempt, and run apply again."
	}

	return diag.NewAttributeErrorDiagnostic(visible(at), "Invalid number of attempts",
		fmt.Sprintf("%s is %s: value must be a whole number from 1 to %d.\n\n%s", at, value.ValueBigFloat().Text('g', -1), attemptsMost, advice))
}
