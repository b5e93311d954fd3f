// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/function"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// compatibleFunction is compatible(talos, kubernetes).
type compatibleFunction struct{}

var _ function.Function = compatibleFunction{}

func newCompatibleFunction() function.Function { return compatibleFunction{} }

// Metadata implements [function.Function].
func (compatibleFunction) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "compatible"
}

// Definition implements [function.Function].
func (compatibleFunction) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Whether a Talos version supports a Kubernetes version.",
		MarkdownDescription: "Returns `true` if the support matrix says that the Talos version supports the Kubernetes version, and `false` if it says that it does not. " +
			"If the matrix does not know the Talos version, or the Kubernetes version is newer than the whole matrix, " +
			"the function fails and says where the matrix ends.",
		Parameters: []function.Parameter{
			versionParameter("talos", "Talos version such as `1.13.4`, with or without `v`."),
			versionParameter("kubernetes", "Kubernetes version such as `1.35.2`, with or without `v`."),
		},
		Return: function.BoolReturn{},
	}
}

// Run implements [function.Function].
func (compatibleFunction) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	talos, refused := versionArgument(ctx, req.Arguments, 0)
	if refused != nil {
		resp.Error = refused

		return
	}

	kubernetes, refused := versionArgument(ctx, req.Arguments, 1)
	if refused != nil {
		resp.Error = refused

		return
	}

	// It is unknown which Talos versions run a Kubernetes version beyond the matrix.
	if _, newest := compat.KubernetesRange(); kubernetes.Minor().Compare(newest) > 0 && knownTalos(talos) {
		resp.Error = refusal(1, "Kubernetes %s is newer than the support matrix, which ends at Kubernetes %s; use a version up to that, or a release of this provider that knows more",
			kubernetes, newest)

		return
	}

	err := compat.Supports(talos, kubernetes)

	switch {
	case err == nil:
		resp.Error = resp.Result.Set(ctx, true)
	case errors.Is(err, compat.ErrUnsupported):
		resp.Error = resp.Result.Set(ctx, false)
	default:
		resp.Error = refusal(0, "%s", beyondMatrix(talos))
	}
}

func knownTalos(talos version.Version) bool {
	_, err := compat.Find(talos.Minor())

	return err == nil
}
