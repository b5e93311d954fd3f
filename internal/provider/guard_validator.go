// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

var (
	_ validator.Set    = skipValidator{}
	_ validator.String = directoryValidator{}
)

// validateGuards wants gates and a window that can be, as far as they are known.
func (m clusterModel) validateGuards(ctx context.Context) diag.Diagnostics {
	_, diagnostics := m.rules(ctx)
	_, more := m.window(ctx)
	diagnostics.Append(more...)

	return diagnostics
}

// skipValidator accepts names of checks that can be skipped.
type skipValidator struct{}

// Description implements [validator.Set].
func (skipValidator) Description(context.Context) string {
	return "every element must be the name of a check that can be skipped: " + strings.Join(skippable(), ", ")
}

// MarkdownDescription implements [validator.Set].
func (v skipValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateSet implements [validator.Set].
func (skipValidator) ValidateSet(_ context.Context, req validator.SetRequest, resp *validator.SetResponse) {
	for _, element := range req.ConfigValue.Elements() {
		name, isText := element.(types.String)
		if !isText || name.IsUnknown() {
			continue
		}

		if name.IsNull() {
			resp.Diagnostics.Append(missing(req.Path))

			continue
		}

		resp.Diagnostics.Append(unskippable(req.Path, name.ValueString())...)
	}
}

// unskippable is what speaks against skipping the check with that name; nothing
// where it can be skipped.
func unskippable(at path.Path, name string) diag.Diagnostics {
	all := "Checks that can be skipped: " + strings.Join(skippable(), ", ") + "."

	check, found := cluster.CheckNamed(name)

	switch {
	case !found:
		hint := ""
		if meant := nearest(name, checkNames()); meant != "" {
			hint = fmt.Sprintf(" Did you mean %q?", meant)
		}

		return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(visible(at), "Unknown check",
			fmt.Sprintf("%s names %q, which is no check.%s\n\n%s", at, name, hint, all))}
	case check.Firm != "":
		return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(visible(at), "Check that cannot be skipped",
			fmt.Sprintf("%s names %q (%s), which cannot be skipped: %s.\n\nRemove it. %s", at, name, check.About, check.Firm, all))}
	default:
		return nil
	}
}

func checkNames() []string {
	var names []string

	for _, check := range cluster.Checks() {
		names = append(names, check.Name)
	}

	return names
}

func skippable() []string {
	var names []string

	for _, check := range cluster.Checks() {
		if check.Firm == "" {
			names = append(names, check.Name)
		}
	}

	return names
}

// directoryValidator accepts what can be a directory on the machine that runs
// Terraform. Whether it can be written to is found out by a check.
type directoryValidator struct{}

// Description implements [validator.String].
func (directoryValidator) Description(context.Context) string {
	return "value must be the path of a directory"
}

// MarkdownDescription implements [validator.String].
func (v directoryValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateString implements [validator.String].
func (directoryValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	text := req.ConfigValue.ValueString()

	problem := unusablePath(text)
	if strings.TrimSpace(text) == "" {
		problem = "is empty. Name a directory, such as \"${path.root}/snapshots\", or remove " + attrEtcdSnapshot + " to upgrade without a snapshot."
	}

	if problem != "" {
		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid directory", req.Path.String()+" "+problem)
	}
}
