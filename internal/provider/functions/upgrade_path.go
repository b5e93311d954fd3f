// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"context"
	"errors"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The attributes of a state.
const (
	stateTalos      = "talos"
	stateKubernetes = "kubernetes"
)

// upgradePathFunction is upgrade_path(from, to).
type upgradePathFunction struct{}

var _ function.Function = upgradePathFunction{}

func newUpgradePathFunction() function.Function { return upgradePathFunction{} }

// stateResult is one state of a path.
type stateResult struct {
	Talos      types.String `tfsdk:"talos"`
	Kubernetes types.String `tfsdk:"kubernetes"`
}

// Metadata implements [function.Function].
func (upgradePathFunction) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "upgrade_path"
}

// Definition implements [function.Function].
func (upgradePathFunction) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	state := types.ObjectType{AttrTypes: map[string]attr.Type{stateTalos: types.StringType, stateKubernetes: types.StringType}}

	resp.Definition = function.Definition{
		Summary: "Returns the versions that an upgrade goes through.",
		MarkdownDescription: "Returns the states `{ talos, kubernetes }` of an upgrade from `from` to `to`, both included. No minor version is skipped, every pair after `from` is supported, and reboots are as few as " +
			"possible. Minor versions in between use the newest patch that this version of the provider knows. " +
			"`talosupgrade_cluster` takes the same steps with `allow_intermediate_versions = true`, from Talos 1.8 on, unless `intermediate_versions` or `release_source.table` gives other patches. If nothing is to be done, the list holds that one state.\n\n" +
			"If there is no path, as for a downgrade, the function fails and says why.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "from",
				MarkdownDescription: "What the cluster runs: an object `{ talos, kubernetes }` of versions, with or without `v`. For Talos alone, `kubernetes` may be null or omitted " +
					"in both arguments; it is then null in the result.",
			},
			function.DynamicParameter{
				Name: "to",
				MarkdownDescription: "What the cluster is to run, in the same form. If `kubernetes` is null or omitted here alone, Kubernetes stays at the version in `from`, " +
					"and every Talos version on the way must support it.",
			},
		},
		Return: function.ListReturn{ElementType: state},
	}
}

// Run implements [function.Function].
func (upgradePathFunction) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	from, refused := stateArgument(ctx, req.Arguments, 0)
	if refused != nil {
		resp.Error = refused

		return
	}

	to, refused := stateArgument(ctx, req.Arguments, 1)
	if refused != nil {
		resp.Error = refused

		return
	}

	if from.Kubernetes.IsZero() && !to.Kubernetes.IsZero() {
		resp.Error = refusal(0, "kubernetes is missing, but the target has one (%s), and the path depends on where it starts; set it, or leave it out of both", to.Kubernetes)

		return
	}

	states, err := plan.Path(from, to, plan.Walk{})
	if err != nil {
		// The error is about the target because a user can choose that.
		resp.Error = refusal(1, "%s", blocked(to, err))

		return
	}

	results := make([]stateResult, 0, len(states))
	for _, state := range states {
		results = append(results, stateResult{Talos: versionOrNull(state.Talos), Kubernetes: versionOrNull(state.Kubernetes)})
	}

	resp.Error = resp.Result.Set(ctx, results)
}

// stateArgument parses the argument at the position as the state of a cluster.
func stateArgument(ctx context.Context, arguments function.ArgumentsData, position int64) (plan.State, *function.FuncError) {
	object, refused := readObject(ctx, arguments, position, stateTalos, stateKubernetes)
	if refused != nil {
		return plan.State{}, refused
	}

	if _, refused = object.required(stateTalos, "1.13.4"); refused != nil {
		return plan.State{}, refused
	}

	var talos, kubernetes version.Version

	if talos, refused = object.version(stateTalos); refused != nil {
		return plan.State{}, refused
	}

	if kubernetes, refused = object.version(stateKubernetes); refused != nil {
		return plan.State{}, refused
	}

	return plan.State{Talos: talos, Kubernetes: kubernetes}, nil
}

// blocked says why there is no path to the state, and what to do about it. The planner names attributes of the
// resource. They are renamed here, and remedies with attributes that the function does not have are replaced.
func blocked(to plan.State, err error) string {
	var refused *plan.PathError
	if !errors.As(err, &refused) {
		return err.Error()
	}

	remedy := refused.Remedy

	switch _, newest := compat.TalosMinors(); {
	case errors.Is(err, compat.ErrNewer) && to.Talos.Minor().Compare(newest) > 0:
		return beyondMatrix(to.Talos)
	case errors.Is(err, compat.ErrNewer):
		remedy = "Use a version that the support matrix knows, or a newer release of this provider."
	case errors.Is(err, plan.ErrNoRelease):
		remedy = "Use a newer release of this provider, or ask for the way to and from a release of that line."
	}

	reason := strings.NewReplacer("talos_version", stateTalos, "kubernetes_version", stateKubernetes).Replace(refused.Reason)
	remedy = strings.NewReplacer("talos_version", "Talos version", "kubernetes_version", "Kubernetes version").Replace(remedy)

	return strings.TrimSuffix(reason+". "+remedy, ".")
}

// versionOrNull returns the version without v; null if the state has none.
func versionOrNull(v version.Version) types.String {
	if v.IsZero() {
		return types.StringNull()
	}

	return types.StringValue(v.String())
}
