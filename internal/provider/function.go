// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/provider"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ provider.ProviderWithFunctions = (*talosUpgrade)(nil)

// Functions implements [provider.ProviderWithFunctions]. They are pure: none of
// them knows how the provider is configured, or reaches anything.
func (p *talosUpgrade) Functions(context.Context) []func() function.Function {
	return []func() function.Function{
		newCompatibleFunction,
		newInstallerImageFunction,
		newKubernetesVersionsFunction,
		newUpgradePathFunction,
	}
}

// refusal is an error about the argument at the position, counted from zero.
// The command line writes the name of the parameter before the text and a full
// stop after it.
func refusal(position int64, format string, values ...any) *function.FuncError {
	return function.NewArgumentFuncError(position, fmt.Sprintf(format, values...))
}

// versionArgument reads the argument at the position as a version.
func versionArgument(ctx context.Context, arguments function.ArgumentsData, position int64) (version.Version, *function.FuncError) {
	var text string
	if err := arguments.GetArgument(ctx, int(position), &text); err != nil {
		return version.Version{}, err
	}

	parsed, err := version.Parse(text)
	if err != nil {
		return version.Version{}, refusal(position, "%v", err)
	}

	return parsed, nil
}

// beyondMatrix says on which side of the support matrix the Talos version lies.
// It is meant for versions that the matrix does not know.
func beyondMatrix(talos version.Version) string {
	oldest, newest := compat.TalosMinors()
	if talos.Minor().Compare(newest) > 0 {
		return fmt.Sprintf("Talos %s is newer than the support matrix, which ends at Talos %s; use a version up to that, or a release of this provider that knows more",
			talos, newest)
	}

	return fmt.Sprintf("Talos %s is older than the support matrix, which begins at Talos %s; use a version from that on", talos, oldest)
}
