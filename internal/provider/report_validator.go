// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// reportPathValidator accepts what can be a file on the machine that runs Terraform.
// Whether it can be written is found out by the apply.
type reportPathValidator struct{}

// Description implements [validator.String].
func (reportPathValidator) Description(context.Context) string {
	return "value must be the path of a file"
}

// MarkdownDescription implements [validator.String].
func (v reportPathValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateString implements [validator.String].
func (reportPathValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	text := req.ConfigValue.ValueString()

	if problem := unusablePath(text); problem != "" {
		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid file", req.Path.String()+" "+problem)
	} else if strings.HasSuffix(text, "/") || strings.HasSuffix(text, string(os.PathSeparator)) {
		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid file",
			fmt.Sprintf("%s is %q, which is a directory. Name a file in it, such as %q.", req.Path, text, text+"upgrade.html"))
	}
}

// unusablePath is what is wrong with a path whatever the machine; empty where
// nothing is.
func unusablePath(text string) string {
	switch {
	case strings.TrimSpace(text) == "":
		return "is empty. Give it a path, or remove it."
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }):
		return fmt.Sprintf("is %q, which holds a character that no path can hold. Remove it.", text)
	case text == "~", strings.HasPrefix(text, "~/"):
		return fmt.Sprintf("is %q, and nothing puts the home directory in the place of ~ here. Write pathexpand(%q).", text, text)
	case strings.Contains(text, "://"):
		return fmt.Sprintf("is %q, which is an address. Give it a path on the machine that runs Terraform.", text)
	default:
		return ""
	}
}
