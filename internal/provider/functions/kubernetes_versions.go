// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
)

// kubernetesVersionsFunction is kubernetes_versions(talos).
type kubernetesVersionsFunction struct{}

var _ function.Function = kubernetesVersionsFunction{}

func newKubernetesVersionsFunction() function.Function { return kubernetesVersionsFunction{} }

// minorsResult is what kubernetes_versions returns.
type minorsResult struct {
	Min string `tfsdk:"min"`
	Max string `tfsdk:"max"`
}

// Metadata implements [function.Function].
func (kubernetesVersionsFunction) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "kubernetes_versions"
}

// Definition implements [function.Function].
func (kubernetesVersionsFunction) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Returns the Kubernetes versions that a Talos version supports.",
		MarkdownDescription: "Returns `{ min, max }`: the oldest and newest minor version of Kubernetes that the Talos version supports, such as `\"1.31\"` and `\"1.36\"`, " +
			"each with all of its patches. If the support matrix does not know the Talos version, the function fails and says where the matrix ends.",
		Parameters: []function.Parameter{
			versionParameter("talos", "Talos version such as `1.13.4`, with or without `v`. All patches of a minor version support the same Kubernetes versions."),
		},
		Return: function.ObjectReturn{AttributeTypes: map[string]attr.Type{"min": types.StringType, "max": types.StringType}},
	}
}

// Run implements [function.Function].
func (kubernetesVersionsFunction) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	talos, refused := versionArgument(ctx, req.Arguments, 0)
	if refused != nil {
		resp.Error = refused

		return
	}

	oldest, newest, err := compat.KubernetesMinors(talos.Minor())
	if err != nil {
		resp.Error = refusal(0, "%s", beyondMatrix(talos))

		return
	}

	resp.Error = resp.Result.Set(ctx, minorsResult{Min: oldest.String(), Max: newest.String()})
}
