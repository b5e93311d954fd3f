// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

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

// objectArgument is an argument that is written as an object. Its parameter is
// dynamic, because of a typed object the command line demands every attribute,
// even where null would do, and drops those that the type does not know without
// a word: { secureboot = true } would name an image without secure boot.
type objectArgument struct {
	position int64
	values   map[string]attr.Value
}

// readObject reads the argument at the position, which may have the attributes
// of the given names and no others. A map is as good as an object.
func readObject(ctx context.Context, arguments function.ArgumentsData, position int64, names ...string) (objectArgument, *function.FuncError) {
	var argument types.Dynamic
	if err := arguments.GetArgument(ctx, int(position), &argument); err != nil {
		return objectArgument{}, err
	}

	read := objectArgument{position: position}

	switch value := argument.UnderlyingValue().(type) {
	case types.Object:
		read.values = value.Attributes()
	case types.Map:
		read.values = value.Elements()
	default:
		return objectArgument{}, refusal(position, "want an object with the attributes %s, got %s", strings.Join(names, ", "), kindText(value))
	}

	for _, name := range slices.Sorted(maps.Keys(read.values)) {
		if !slices.Contains(names, name) {
			return objectArgument{}, refusal(position, "there is no attribute %q; the attributes are %s", name, strings.Join(names, ", "))
		}
	}

	return read, nil
}

// text is the attribute of that name; empty when it is null or left out.
func (a objectArgument) text(name string) (string, *function.FuncError) {
	value, given := a.values[name]
	if !given || value.IsNull() {
		return "", nil
	}

	text, ok := value.(types.String)
	if !ok {
		return "", refusal(a.position, "%s must be a string, got %s", name, kindText(value))
	}

	if text.ValueString() == "" {
		return "", refusal(a.position, "%s is empty", name)
	}

	return text.ValueString(), nil
}

// required is the attribute of that name, which must be there. The example
// tells what it looks like.
func (a objectArgument) required(name, example string) (string, *function.FuncError) {
	text, refused := a.text(name)
	if refused == nil && text == "" {
		refused = refusal(a.position, "%s is missing; set it, for example %s = %q", name, name, example)
	}

	return text, refused
}

// version is the attribute of that name; zero when it is null or left out.
func (a objectArgument) version(name string) (version.Version, *function.FuncError) {
	text, refused := a.text(name)
	if refused != nil || text == "" {
		return version.Version{}, refused
	}

	parsed, err := version.Parse(text)
	if err != nil {
		return version.Version{}, refusal(a.position, "%s: %v", name, err)
	}

	return parsed, nil
}

// flag is the attribute of that name; false when it is null or left out. In a
// map of strings it is written as "true" or "false".
func (a objectArgument) flag(name string) (bool, *function.FuncError) {
	value, given := a.values[name]
	if !given || value.IsNull() {
		return false, nil
	}

	switch flag := value.(type) {
	case types.Bool:
		return flag.ValueBool(), nil
	case types.String:
		if text := flag.ValueString(); text == "true" || text == "false" {
			return text == "true", nil
		}

		return false, refusal(a.position, "%s must be true or false, got %q", name, flag.ValueString())
	default:
		return false, refusal(a.position, "%s must be true or false, got %s", name, kindText(value))
	}
}

// kindText says what a value is that is not what was wanted.
func kindText(value attr.Value) string {
	switch value := value.(type) {
	case types.String:
		return "the string " + strconv.Quote(value.ValueString())
	case types.Bool:
		return strconv.FormatBool(value.ValueBool())
	case types.Number:
		return "the number " + value.String()
	case types.Object, types.Map:
		return "an object"
	default:
		return "a list"
	}
}

var _ function.Function = compatibleFunction{}

// compatibleFunction is compatible(talos, kubernetes).
type compatibleFunction struct{}

func newCompatibleFunction() function.Function { return compatibleFunction{} }

// Metadata implements [function.Function].
func (compatibleFunction) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "compatible"
}

// Definition implements [function.Function].
func (compatibleFunction) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Tells whether a Talos version runs a Kubernetes version.",
		MarkdownDescription: "True when the support matrix of Talos says that the Talos version runs the Kubernetes version, false when it says that it does not. " +
			"A Talos version that the matrix does not know, and a Kubernetes version that is newer than all of it, are errors that say where the matrix ends: " +
			"not knowing is not the same as no.",
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

	// Of what no Talos is known to run, nothing is known.
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

func versionParameter(name, description string) function.Parameter {
	return function.StringParameter{Name: name, MarkdownDescription: description}
}

var _ function.Function = kubernetesVersionsFunction{}

// kubernetesVersionsFunction is kubernetes_versions(talos).
type kubernetesVersionsFunction struct{}

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
		Summary: "Names the Kubernetes versions that a Talos version runs.",
		MarkdownDescription: "Returns `{ min, max }`: the oldest and the newest minor version of Kubernetes that the Talos version runs, such as `\"1.31\"` and `\"1.36\"`, " +
			"each with all of its patches. A Talos version that the support matrix does not know is an error that says where the matrix ends.",
		Parameters: []function.Parameter{
			versionParameter("talos", "Talos version such as `1.13.4`, with or without `v`. All patches of a minor version run the same Kubernetes versions."),
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

var _ function.Function = upgradePathFunction{}

// The attributes of a state.
const (
	stateTalos      = "talos"
	stateKubernetes = "kubernetes"
)

// upgradePathFunction is upgrade_path(from, to).
type upgradePathFunction struct{}

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
		Summary: "Lists the versions that a cluster goes through.",
		MarkdownDescription: "Returns the states `{ talos, kubernetes }` that a cluster goes through from `from` to `to`, both included: no minor version of either is skipped, every pair on the way is supported, and there are as few reboots as " +
			"possible. Minor versions in between are passed in their newest patch that this release of the provider knows. " +
			"`talosupgrade_cluster` takes the same steps with `allow_intermediate_versions = true`, from Talos 1.8 on. Where nothing is to do the list holds that one state.\n\n" +
			"What cannot be walked, such as a downgrade, is an error that says what is in the way.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "from",
				MarkdownDescription: "What the cluster runs: an object `{ talos, kubernetes }` of versions, with or without `v`. `kubernetes` may be null or left out " +
					"in both arguments, for Talos alone; then it is null in the result.",
			},
			function.DynamicParameter{
				Name: "to",
				MarkdownDescription: "What the cluster is to run, in the same form. Where `kubernetes` is null or left out here alone, Kubernetes stays at what `from` says, " +
					"and every Talos version on the way must run that.",
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
		// The target is what a user can choose.
		resp.Error = refusal(1, "%s", blocked(to, err))

		return
	}

	results := make([]stateResult, 0, len(states))
	for _, state := range states {
		results = append(results, stateResult{Talos: versionValue(state.Talos), Kubernetes: versionValue(state.Kubernetes)})
	}

	resp.Error = resp.Result.Set(ctx, results)
}

// stateArgument reads the argument at the position as the state of a cluster.
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

// blocked says why there is no path to the state and what to do about it. The
// planner speaks of the resource's attributes: those that the function has too
// have another name here, and those that it has nothing like are left out.
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
