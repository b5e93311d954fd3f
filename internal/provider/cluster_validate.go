// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// ValidateConfig implements [resource.ResourceWithValidateConfig]. It finds contradictions that do not depend on the
// cluster. The methods that it calls expect the configuration, in which attributes that are not set are null and have no
// default yet. Unknown values contradict nothing.
func (r *clusterResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	resp.Diagnostics.Append(model.validateVersions()...)
	resp.Diagnostics.Append(model.validateIntermediate()...)
	resp.Diagnostics.Append(model.validateCanary()...)
	resp.Diagnostics.Append(model.validateKubernetes(ctx)...)
	resp.Diagnostics.Append(model.validateGuards(ctx)...)
	resp.Diagnostics.Append(model.validateOnFailure()...)
	resp.Diagnostics.Append(model.validatePublishing()...)
	resp.Diagnostics.Append(model.validateTimeouts()...)
}

// leastNodeTimeout is the shortest node_timeout without a warning. A physical server may take that long to boot, even if
// it has few pods to drain.
const leastNodeTimeout = 5 * time.Minute

// validateTimeouts warns of a node_timeout that may be too short for a server, and of a timeouts object that sets
// nothing: a name in it is probably misspelt, because Terraform drops names that it does not know.
func (m clusterModel) validateTimeouts() diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if limit, err := time.ParseDuration(m.NodeTimeout.ValueString()); err == nil && limit > 0 && limit < leastNodeTimeout {
		diagnostics.AddAttributeWarning(path.Root(attrname.NodeTimeout), "Short node_timeout",
			fmt.Sprintf("%s is %s, from the cordon of a node until it is back in service. Machines that go through their firmware may take %s, so that the run would stop while they boot.\n\n"+
				"Give it more, or leave it out: the default is %s.", attrname.NodeTimeout, m.NodeTimeout.ValueString(), readable.Duration(leastNodeTimeout), readable.Duration(cluster.DefaultNodeTimeout)))
	}

	if m.Timeouts.IsNull() || m.Timeouts.IsUnknown() {
		return diagnostics
	}

	for _, limit := range m.Timeouts.Attributes() {
		if !limit.IsNull() {
			return diagnostics
		}
	}

	return append(diagnostics, diag.NewAttributeWarningDiagnostic(path.Root(attrname.Timeouts), "Empty timeouts",
		fmt.Sprintf("%s: none of %s is set, so that the defaults apply, and an upgrade may take %s. Terraform drops names that it does not know: a misspelt one leaves an empty object behind.\n\n"+
			"Correct the name, or remove %s.", attrname.Timeouts, strings.Join(slices.Sorted(maps.Keys(m.Timeouts.Attributes())), ", "), readable.Duration(defaultWriteTimeout), attrname.Timeouts)))
}

// validateVersions refuses talos_version and kubernetes_version if the support matrix does not contain the pair. If
// allow_unknown_versions is true, versions that are newer than the matrix are accepted.
func (m clusterModel) validateVersions() diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if m.AllowUnknown.IsUnknown() || !attribute.Stated(m.TalosVersion) || !attribute.Stated(m.KubernetesVersion) {
		return diagnostics
	}

	talos, talosErr := version.Parse(m.TalosVersion.ValueString())
	kubernetes, kubernetesErr := version.Parse(m.KubernetesVersion.ValueString())

	if talosErr != nil || kubernetesErr != nil {
		return diagnostics // The validators of both report it.
	}

	if refused := (plan.Walk{AllowUnknown: m.AllowUnknown.ValueBool()}).CheckPair(talos, kubernetes); refused != nil {
		diagnostics.AddAttributeError(path.Root(attrname.KubernetesVersion), "Versions that do not go together", diagnostic.Sentence(refused.Reason)+"\n\n"+refused.Remedy)
	}

	return diagnostics
}

// validateIntermediate refuses null elements and duplicates in intermediate_versions, and versions that are listed
// without allow_intermediate_versions = true.
func (m clusterModel) validateIntermediate() diag.Diagnostics {
	at := path.Root(attrname.IntermediateVersions)

	diagnostics := distinct(at, m.IntermediateVersions, func(text string) string {
		parsed, err := version.Parse(text)
		if err != nil {
			return text
		}

		return parsed.String()
	})

	if len(m.IntermediateVersions.Elements()) > 0 && !m.AllowIntermediate.IsUnknown() && !m.AllowIntermediate.ValueBool() {
		diagnostics.AddAttributeError(at, "Intermediate versions without effect",
			"intermediate_versions lists versions to pass through, but without allow_intermediate_versions = true none of them is used.\n\n"+
				"Set allow_intermediate_versions = true, or remove intermediate_versions.")
	}

	return diagnostics
}

// validateCanary refuses null elements and duplicates in canary, and nodes that node_overrides holds. Which nodes
// selector_overrides holds is not known without the cluster.
func (m clusterModel) validateCanary() diag.Diagnostics {
	at := path.Root(attrname.Canary)
	held := m.held()

	diagnostics := distinct(at, m.Canary, func(text string) string { return text })

	for index, element := range m.Canary.Elements() {
		name, ok := element.(types.String)
		if !ok || !held[name.ValueString()] {
			continue
		}

		diagnostics.AddAttributeError(at.AtListIndex(index), "Canary that is held",
			fmt.Sprintf("%s is node %s, which node_overrides[%q].hold leaves alone: it cannot go first and stay where it is.\n\n"+
				"Remove the node from canary, or its hold.", at.AtListIndex(index), name.ValueString(), name.ValueString()))
	}

	return diagnostics
}

// distinct refuses null elements and duplicates in a list of texts. Two elements with the same meaning are
// duplicates.
func distinct(at path.Path, list types.List, meaning func(string) string) diag.Diagnostics {
	var diagnostics diag.Diagnostics

	first := map[string]int{}

	for index, element := range list.Elements() {
		place := at.AtListIndex(index)

		if element.IsNull() {
			diagnostics.Append(attribute.Missing(place))

			continue
		}

		value, ok := element.(types.String)
		if !ok || value.IsUnknown() {
			continue
		}

		text := value.ValueString()

		if earlier, again := first[meaning(text)]; again {
			diagnostics.AddAttributeError(place, "Duplicate value",
				fmt.Sprintf("%s is %q, as %s is already. Remove one of them.", place, text, at.AtListIndex(earlier)))

			continue
		}

		first[meaning(text)] = index
	}

	return diagnostics
}

// validateKubernetes refuses options of kubernetes that have no effect. A default is not refused: a configuration that
// Terraform generates for an import states it.
func (m clusterModel) validateKubernetes(ctx context.Context) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		model       kubernetesModel
	)

	if m.Kubernetes.IsNull() || m.Kubernetes.IsUnknown() {
		return diagnostics
	}

	diagnostics.Append(m.Kubernetes.As(ctx, &model, basetypes.ObjectAsOptions{})...)
	diagnostics.Append(model.validateManifests(ctx, m.KubernetesVersion.IsNull())...)

	if m.KubernetesVersion.IsNull() {
		diagnostics.Append(model.validateUnmanaged()...)
	}

	return diagnostics
}

// validateManifests refuses prune = true, force = true, exclude, and a timeout other than the default, if the manifests
// are not synced: if sync is false, or if neither sync nor kubernetes_version is set. unmanaged is true if
// kubernetes_version is not set.
func (k kubernetesModel) validateManifests(ctx context.Context, unmanaged bool) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		manifests   manifestsModel
		idle        []string
	)

	if k.Manifests.IsNull() || k.Manifests.IsUnknown() {
		return diagnostics
	}

	diagnostics.Append(k.Manifests.As(ctx, &manifests, basetypes.ObjectAsOptions{})...)

	if manifests.Sync.IsUnknown() || manifests.Sync.ValueBool() || manifests.Sync.IsNull() && !unmanaged {
		return diagnostics
	}

	if manifests.Prune.ValueBool() {
		idle = append(idle, attrname.Prune+" = true")
	}

	if manifests.Force.ValueBool() {
		idle = append(idle, attrname.Force+" = true")
	}

	if attribute.Stated(manifests.Timeout) && !attribute.KeepDuration().Same(manifests.Timeout.ValueString(), cluster.DefaultPolicy().Kubernetes.Manifests.Timeout.String()) {
		idle = append(idle, attrname.Timeout)
	}

	if len(manifests.Exclude.Elements()) > 0 {
		idle = append(idle, attrname.Exclude)
	}

	at := path.Root(attrname.Kubernetes).AtName(attrname.Manifests)

	switch {
	case len(idle) == 0:
	case manifests.Sync.IsNull():
		diagnostics.Append(diagnostic.ErrorAt(at, "Options of manifests without effect",
			"Without "+attrname.KubernetesVersion+" the bootstrap manifests are not synced unless "+at.AtName(attrname.Sync).String()+" = true says so, and nothing looks at "+strings.Join(idle, " and ")+".\n\n"+
				"Set "+at.AtName(attrname.Sync).String()+" = true, or remove "+strings.Join(idle, " and ")+"."))
	default:
		diagnostics.Append(diagnostic.ErrorAt(at, "Options of manifests that contradict each other",
			at.String()+" says sync = false, so nothing is applied, but sets "+strings.Join(idle, " and ")+" as well.\n\n"+
				"Remove sync = false, or remove "+strings.Join(idle, " and ")+"."))
	}

	return diagnostics
}

// validateUnmanaged refuses images, and a max_unavailable_kubelets other than the default, which have no effect without
// kubernetes_version. For manifests, see [kubernetesModel.validateManifests].
func (k kubernetesModel) validateUnmanaged() diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		idle        []string
	)

	for _, image := range imageAttributes() {
		if attribute.Stated(k.Images.Attributes()[image.name]) {
			idle = append(idle, path.Root(attrname.Kubernetes).AtName(attrname.Images).AtName(image.name).String())
		}
	}

	if attribute.Stated(k.UnavailableKubelets) && k.UnavailableKubelets.ValueString() != cluster.DefaultPolicy().Kubernetes.MaxUnavailableKubelets.String() {
		idle = append(idle, path.Root(attrname.Kubernetes).AtName(attrname.UnavailableKubelets).String())
	}

	if len(idle) > 0 {
		diagnostics.AddAttributeError(path.Root(attrname.Kubernetes), "Kubernetes options without effect",
			"Without "+attrname.KubernetesVersion+" Kubernetes is not managed, and nothing looks at "+strings.Join(idle, ", ")+".\n\n"+
				"Set "+attrname.KubernetesVersion+", to the running version if nothing is to be upgraded, or remove "+strings.Join(idle, ", ")+".")
	}

	return diagnostics
}

// validateGuards refuses invalid gates and an invalid maintenance_window. Of one that is partly unknown, it validates the
// known parts. It warns of a window that never closes.
func (m clusterModel) validateGuards(ctx context.Context) diag.Diagnostics {
	_, diagnostics := m.rules(ctx)
	window, more := m.window(ctx)
	diagnostics.Append(more...)

	if window == nil || !known(ctx, m.MaintenanceWindow) {
		return diagnostics
	}

	// Any time will do, because the end is searched for years ahead. If there is none, until is zero.
	if open, until := window.Open(time.Unix(0, 0)); open && until.IsZero() {
		diagnostics.AddAttributeWarning(path.Root(attrname.MaintenanceWindow), "Window that never closes",
			fmt.Sprintf("%s (%s) opens again before it closes, so that it is always open.\n\nMake %s shorter than the time between two starts, or leave %s out.",
				attrname.MaintenanceWindow, window, attrname.Duration, attrname.MaintenanceWindow))
	}

	return diagnostics
}

// checksToSkip accepts names of checks that can be skipped.
func checksToSkip() attribute.Elements {
	all := strings.Join(skippable(), ", ")

	return attribute.Elements{Require: "every element must be the name of a check that can be skipped: " + all, Check: func(at path.Path, element attr.Value) diag.Diagnostic {
		text, isText := element.(types.String)

		switch {
		case !isText, text.IsUnknown():
			return nil
		case text.IsNull():
			return attribute.Missing(at)
		}

		name := text.ValueString()
		check, found := cluster.CheckNamed(name)

		switch {
		case !found:
			return attribute.Problem(at, "Unknown check", fmt.Sprintf(" names %q, which is not a check.%s\n\nChecks that can be skipped: %s.",
				name, attribute.DidYouMean(name, checkNames()...), all))
		case check.Firm != "":
			return attribute.Problem(at, "Check that cannot be skipped", fmt.Sprintf(" names %q (%s), which cannot be skipped: %s.\n\nRemove it. Checks that can be skipped: %s.",
				name, check.About, check.Firm, all))
		default:
			return nil
		}
	}}
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

var _ validator.Number = wholeNumberValidator{}

// directoryText accepts the path of a directory on the machine that runs Terraform. Whether it is writable is checked
// before the snapshot is saved. otherwise follows the advice to name one.
func directoryText(otherwise string) attribute.Text {
	return attribute.Text{Accepts: "be the path of a directory", Check: func(at path.Path, text string) diag.Diagnostic {
		problem := unusablePath(text)
		if strings.TrimSpace(text) == "" {
			problem = "is empty. Name a directory, such as \"${path.root}/snapshots\"" + otherwise + "."
		}

		if problem == "" {
			return nil
		}

		return attribute.Problem(at, "Invalid directory", " "+problem)
	}}
}

// validateOnFailure refuses on_failure = "rollback" without talos_version.
func (m clusterModel) validateOnFailure() diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if m.TalosVersion.IsNull() && m.OnFailure.ValueString() == string(cluster.RollBackOnFailure) {
		diagnostics.AddAttributeError(path.Root(attrname.OnFailure), "Rollback without effect",
			fmt.Sprintf("%s = %q sends a node back to the Talos it ran before, and without %s no node gets another one. Kubernetes is never rolled back.\n\n"+
				"Set %s, to the running version if nothing is to be upgraded, or remove %s.",
				attrname.OnFailure, cluster.RollBackOnFailure, attrname.TalosVersion, attrname.TalosVersion, attrname.OnFailure))
	}

	return diagnostics
}

// onFailureText accepts values of on_failure.
func onFailureText() attribute.Text {
	const stop, rollBack = string(cluster.StopOnFailure), string(cluster.RollBackOnFailure)

	advice := fmt.Sprintf("Write %q to leave a node that does not become healthy as it is, or %q to send it back to its old system where that is safe.", stop, rollBack)

	return attribute.Choice("Invalid on_failure", advice, stop, rollBack)
}

// wholeNumberValidator accepts a whole number from 1 to most. wrong returns the error of any other one. Null and unknown
// values are accepted.
type wholeNumberValidator struct {
	most  int
	wrong func(at path.Path, value types.Number) diag.Diagnostic
}

func (v wholeNumberValidator) Description(context.Context) string {
	return fmt.Sprintf("value must be a whole number from 1 to %d", v.most)
}

func (v wholeNumberValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

func (v wholeNumberValidator) ValidateNumber(_ context.Context, req validator.NumberRequest, resp *validator.NumberResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	if _, whole := wholeNumber(req.ConfigValue, v.most); !whole {
		resp.Diagnostics.Append(v.wrong(req.Path, req.ConfigValue))
	}
}

// wholeNumber returns the number as an int, and whether it is a whole number from 1 to most. The value must be known.
func wholeNumber(value types.Number, most int) (int, bool) {
	number := value.ValueBigFloat()
	if !number.IsInt() || number.Cmp(big.NewFloat(1)) < 0 || number.Cmp(big.NewFloat(float64(most))) > 0 {
		return 0, false
	}

	whole, _ := number.Int64()

	return int(whole), true
}

// wrongAttempts returns the error of an invalid number of attempts.
func wrongAttempts(at path.Path, value types.Number) diag.Diagnostic {
	advice := "The first attempt counts: write 1 for no repetition."
	if value.ValueBigFloat().Cmp(big.NewFloat(maxAttempts)) > 0 {
		advice = "What fails that often is not cured by repeating it: look at the error of the last attempt, and run apply again."
	}

	return diag.NewAttributeErrorDiagnostic(diagnostic.Visible(at), "Invalid number of attempts",
		fmt.Sprintf("%s is %s: value must be a whole number from 1 to %d.\n\n%s", at, value.ValueBigFloat().Text('g', -1), maxAttempts, advice))
}

// wrongParallelPulls returns the error of an invalid number of pulls.
func wrongParallelPulls(at path.Path, value types.Number) diag.Diagnostic {
	return diag.NewAttributeErrorDiagnostic(diagnostic.Visible(at), "Invalid number of pulls",
		fmt.Sprintf("%s is %s: value must be a whole number from 1 to %d.\n\nWrite 1 for one node after the other, or leave it out: then it follows max_unavailable.",
			at, value.ValueBigFloat().Text('g', -1), maxParallelPulls))
}

// knownKinds returns the kinds with a default API version, as in [operator.Complete].
func knownKinds() []string { return []string{"KubernetesCluster", "TalosControlPlane", "ConfigMap"} }

// validatePublishing validates publish_to and mode. If publish_to has an error, mode is not validated. If mode is
// delegate, attributes that the operator decides about are refused.
func (m clusterModel) validatePublishing() diag.Diagnostics {
	diagnostics := m.validatePublishTo()
	if diagnostics.HasError() {
		return diagnostics
	}

	diagnostics.Append(m.validateMode()...)

	if m.Mode.ValueString() == modeDelegate {
		diagnostics.Append(m.validateDelegated()...)
	}

	return diagnostics
}

// validatePublishTo refuses publish_to without api_version if its kind has no default one.
func (m clusterModel) validatePublishTo() diag.Diagnostics {
	var diagnostics diag.Diagnostics

	attributes := m.PublishTo.Attributes()
	kind, version := attributes[attrname.Kind], attributes[attrname.APIVersion]

	if m.PublishTo.IsNull() || m.PublishTo.IsUnknown() || kind.IsUnknown() || version.IsUnknown() {
		return diagnostics
	}

	of := m.published()
	if _, complete := operator.Complete(of); complete || !attribute.IsKind(of.Kind) {
		return diagnostics
	}

	diagnostics.AddAttributeError(path.Root(attrname.PublishTo), "Missing API version",
		fmt.Sprintf("%s.%s is %q, and the API version of that kind is not known.%s\n\nSet %s.%s, such as \"example.com/v1\": kubectl api-resources lists it. It is known for %s.",
			attrname.PublishTo, attrname.Kind, of.Kind, attribute.DidYouMean(of.Kind, knownKinds()...), attrname.PublishTo, attrname.APIVersion, strings.Join(knownKinds(), ", ")))

	return diagnostics
}

// validateMode refuses mode = delegate unless publish_to is of a kind whose operator can be asked. Without that mode, it
// refuses a kind whose operator cannot be paused.
func (m clusterModel) validateMode() diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if m.Mode.IsUnknown() || m.PublishTo.IsUnknown() {
		return diagnostics
	}

	delegated, of := m.Mode.ValueString() == modeDelegate, m.published()

	if m.PublishTo.IsNull() {
		if delegated {
			diagnostics.AddAttributeError(path.Root(attrname.Mode), "No operator to delegate to",
				fmt.Sprintf("%s = %q has an operator upgrade the cluster, and without %s there is none to ask.\n\n"+
					"Set %s to the object that the operator acts on, such as { kind = \"KubernetesCluster\", namespace = ..., name = ... }, or remove %s.",
					attrname.Mode, modeDelegate, attrname.PublishTo, attrname.PublishTo, attrname.Mode))
		}

		return diagnostics
	}

	if of.Kind == "" || m.PublishTo.Attributes()[attrname.APIVersion].IsUnknown() {
		return diagnostics
	}

	switch kind := operator.KindOf(of); {
	case delegated && (kind == operator.Plain || kind == operator.Annotated):
		diagnostics.AddAttributeError(path.Root(attrname.Mode), "No operator to delegate to",
			fmt.Sprintf("%s = %q has an operator upgrade the cluster, but no operator is known that acts on a %s, as %s names one. Those of KubernetesCluster and TalosControlPlane can be asked.\n\n"+
				"Have %s name one of these, or remove %s.", attrname.Mode, modeDelegate, of.Kind, attrname.PublishTo, attrname.PublishTo, attrname.Mode))
	case !delegated && kind == operator.Declarative:
		diagnostics.AddAttributeError(path.Root(attrname.PublishTo), "Operator that cannot be held",
			fmt.Sprintf("%s names a %s, whose operator takes every node to what the object says and cannot be held: it would undo what this provider does.\n\n"+
				"Set %s = %q to have that operator upgrade the cluster, or remove %s and make sure that the operator is not running.",
				attrname.PublishTo, of.Kind, attrname.Mode, modeDelegate, attrname.PublishTo))
	}

	return diagnostics
}

// validateDelegated refuses attributes that set what the operator decides about.
func (m clusterModel) validateDelegated() diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		idle        []string
	)

	for _, one := range m.choices() {
		if one.decides == aboutNodes && attribute.Decides(one.value) {
			idle = append(idle, one.name)
		}
	}

	if len(idle) > 0 {
		diagnostics.AddAttributeError(path.Root(idle[0]), "Attributes that the operator decides about",
			fmt.Sprintf("With %s = %q the operator decides how the nodes are upgraded, and nothing looks at %s.\n\nRemove %s, or set %s = %q to have this provider upgrade the nodes.",
				attrname.Mode, modeDelegate, strings.Join(idle, ", "), strings.Join(idle, ", "), attrname.Mode, modeDirect))
	}

	return diagnostics
}

// modeText accepts values of mode.
func modeText() attribute.Text {
	advice := fmt.Sprintf("Write %q to have this provider upgrade the nodes, or %q to have the operator of the object in %s do it.", modeDirect, modeDelegate, attrname.PublishTo)

	return attribute.Choice("Invalid mode", advice, modeDirect, modeDelegate)
}

// reportPathText accepts the path of a file on the machine that runs Terraform. Whether it is writable is left to the
// apply.
func reportPathText() attribute.Text {
	return attribute.Text{Accepts: "be the path of a file", Check: func(at path.Path, text string) diag.Diagnostic {
		if problem := unusablePath(text); problem != "" {
			return attribute.Problem(at, "Invalid file", " "+problem)
		}

		if strings.HasSuffix(text, "/") || strings.HasSuffix(text, string(os.PathSeparator)) {
			return attribute.Problem(at, "Invalid file", fmt.Sprintf(" is %q, which is a directory. Name a file in it, such as %q.", text, text+"upgrade.html"))
		}

		return nil
	}}
}

// unusablePath returns why a path is refused and how to correct it, as text that follows the name of the attribute. If
// the path is accepted, the text is empty. It does not look at the file system.
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

var _ validator.Map = overridesValidator{}

// overridesValidator refuses entries of node_overrides that set nothing. Terraform drops attributes that are not in the
// schema, so an entry with nothing but a misspelt name is empty.
type overridesValidator struct{}

func (overridesValidator) Description(context.Context) string {
	return "no entry may be empty"
}

func (v overridesValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

func (overridesValidator) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	var idle []string

	for name, element := range req.ConfigValue.Elements() {
		object, isObject := element.(types.Object)
		if element.IsUnknown() || !isObject {
			continue
		}

		if !slices.ContainsFunc(slices.Collect(maps.Values(object.Attributes())), func(value attr.Value) bool { return !value.IsNull() }) {
			idle = append(idle, req.Path.AtMapKey(name).String())
		}
	}

	if len(idle) == 0 {
		return
	}

	slices.Sort(idle)

	at := req.Path.String()
	names := strings.Join(slices.Sorted(maps.Keys(attribute.ObjectType(nodeOverridesSchema()).AttrTypes)), ", ")

	resp.Diagnostics.AddAttributeError(diagnostic.Visible(req.Path), "Empty node override",
		fmt.Sprintf("%s: none of %s is set, so nothing is different for the node. Terraform drops names that it does not know: a misspelt one leaves an empty entry behind.\n\n"+
			"Correct the name, or remove the entry. A module that passes entries on leaves out those of which everything is null: %s = { for name, entry in var.%s : name => entry if anytrue([for value in values(entry) : value != null]) }.",
			strings.Join(idle, ", "), names, at, at))
}

// selectorOverrideElements refuses elements that set neither hold, installer_image nor reboot_mode.
func selectorOverrideElements() attribute.Elements {
	const require = "every element must set hold, installer_image or reboot_mode"

	return attribute.Elements{Require: require, Check: func(at path.Path, element attr.Value) diag.Diagnostic {
		object, isObject := element.(types.Object)
		if !isObject || object.IsNull() || object.IsUnknown() {
			return nil
		}

		attributes := object.Attributes()
		if slices.ContainsFunc([]string{attrname.Hold, attrname.InstallerImage, attrname.RebootMode}, func(name string) bool { return !attributes[name].IsNull() }) {
			return nil
		}

		return attribute.Problem(at, "Empty selector override", fmt.Sprintf(
			": none of %s, %s and %s is set, so nothing is different for the nodes. Terraform drops names that it does not know: a misspelt one leaves nothing behind.\n\n"+
				"Correct the name, or remove the element.", attrname.Hold, attrname.InstallerImage, attrname.RebootMode))
	}}
}

// excludedObjects refuses to exclude kube-proxy, because an upgrade waits for its pods. An object in an unknown namespace
// is accepted.
func excludedObjects() attribute.Elements {
	const require = "kube-proxy cannot be excluded, because it is part of the upgrade"

	return attribute.Elements{Require: require, Check: func(at path.Path, element attr.Value) diag.Diagnostic {
		given, isObject := element.(types.Object)
		if !isObject || given.IsNull() || given.IsUnknown() || given.Attributes()[attrname.Namespace].IsUnknown() {
			return nil
		}

		text := func(name string) string {
			value, _ := given.Attributes()[name].(types.String)

			return value.ValueString()
		}

		object := cluster.ManifestObject{Kind: text(attrname.Kind), Namespace: text(attrname.Namespace), Name: text(attrname.Name)}
		if !object.Is("DaemonSet/kube-system/" + string(cluster.Proxy)) {
			return nil
		}

		return diagnostic.ErrorAt(at, "Object that cannot be left out",
			at.String()+" is kube-proxy, whose pods are part of the upgrade: it would wait for them.\n\nRemove it. With sync = false no object is changed at all.")
	}}
}
