// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/label"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/snapshot"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Defaults of timeouts, as documented.
const (
	defaultWriteTimeout = 4 * time.Hour
	defaultReadTimeout  = time.Minute
	// Finding out whether the holder of a lease is alive takes up to a minute.
	defaultDeleteTimeout = 3 * time.Minute
)

// optionsModel is the user's description of an upgrade: the versions that the cluster is to run, and how it gets
// there, in the order of the documentation. The resource and talosupgrade_preflight share it. The tag "decides" says
// what an attribute is about, as [decision] has it.
type optionsModel struct {
	TalosVersion         types.String `tfsdk:"talos_version" decides:"upgrade"`
	KubernetesVersion    types.String `tfsdk:"kubernetes_version" decides:"upgrade"`
	Context              types.String `tfsdk:"context" decides:"upgrade"`
	Order                types.String `tfsdk:"order" decides:"nodes"`
	RebootMode           types.String `tfsdk:"reboot_mode" decides:"nodes"`
	NodeTimeout          types.String `tfsdk:"node_timeout" decides:"upgrade"`
	Drain                types.Object `tfsdk:"drain" decides:"nodes"`
	InstallerImage       types.String `tfsdk:"installer_image" decides:"nodes"`
	AllowIntermediate    types.Bool   `tfsdk:"allow_intermediate_versions" decides:"upgrade"`
	IntermediateVersions types.List   `tfsdk:"intermediate_versions" decides:"upgrade"`
	AllowUnknown         types.Bool   `tfsdk:"allow_unknown_versions" decides:"upgrade"`
	MaxUnavailable       types.String `tfsdk:"max_unavailable" decides:"nodes"`
	ParallelPulls        types.Number `tfsdk:"parallel_pulls" decides:"nodes"`
	Pools                types.Map    `tfsdk:"pools" decides:"nodes"`
	Canary               types.List   `tfsdk:"canary" decides:"nodes"`
	CanarySelector       types.String `tfsdk:"canary_selector" decides:"nodes"`
	Settle               types.String `tfsdk:"settle" decides:"nodes"`
	NodeOverrides        types.Map    `tfsdk:"node_overrides" decides:"nodes"`
	SelectorOverrides    types.List   `tfsdk:"selector_overrides" decides:"nodes"`
	Kubernetes           types.Object `tfsdk:"kubernetes" decides:"nodes"`
	Preflight            types.Object `tfsdk:"preflight" decides:"upgrade"`
	EtcdSnapshot         types.Object `tfsdk:"etcd_snapshot" decides:"upgrade"`
	Gates                types.List   `tfsdk:"gates" decides:"upgrade"`
	MaintenanceWindow    types.Object `tfsdk:"maintenance_window" decides:"upgrade"`
	SyncInstallImage     types.Bool   `tfsdk:"sync_install_image" decides:"nodes"`
	OnFailure            types.String `tfsdk:"on_failure" decides:"nodes"`
	Retry                types.Object `tfsdk:"retry" decides:"nodes"`
	OnSuspend            types.String `tfsdk:"on_suspend" decides:"upgrade"`
	PublishTo            types.Object `tfsdk:"publish_to" decides:"upgrade"`
	Mode                 types.String `tfsdk:"mode" decides:"upgrade"`
}

// clusterModel is the resource in configuration, plan and state.
type clusterModel struct {
	optionsModel

	ReportPath types.String   `tfsdk:"report_path" decides:"run"`
	Timeouts   timeouts.Value `tfsdk:"timeouts" decides:"run"`
	ID         types.String   `tfsdk:"id"`
	Status     types.Object   `tfsdk:"status"`
	Nodes      types.Map      `tfsdk:"nodes"`
	Snapshot   types.Object   `tfsdk:"snapshot"`
}

// drainModel is the drain object.
type drainModel struct {
	Enabled   types.Bool   `tfsdk:"enabled"`
	Timeout   types.String `tfsdk:"timeout"`
	OnTimeout types.String `tfsdk:"on_timeout"`
	Volumes   types.String `tfsdk:"wait_for_volumes"`
}

// nodeOverrideModel is one value of node_overrides.
type nodeOverrideModel struct {
	InstallerImage types.String `tfsdk:"installer_image"`
	Hold           types.Bool   `tfsdk:"hold"`
	RebootMode     types.String `tfsdk:"reboot_mode"`
	RetryBootID    types.String `tfsdk:"retry_boot_id"`
}

// selectorOverrideModel is one element of selector_overrides.
type selectorOverrideModel struct {
	Selector       types.String `tfsdk:"selector"`
	InstallerImage types.String `tfsdk:"installer_image"`
	Hold           types.Bool   `tfsdk:"hold"`
	RebootMode     types.String `tfsdk:"reboot_mode"`
}

// poolModel is one value of pools.
type poolModel struct {
	Selector       types.String `tfsdk:"selector"`
	MaxUnavailable types.String `tfsdk:"max_unavailable"`
}

// newClusterModel returns the model of a configuration that sets only the versions, as stored by an import.
func newClusterModel(ctx context.Context, talos, kubernetes version.Version) clusterModel {
	options := optionsModel{
		TalosVersion:      attribute.VersionValue(talos),
		KubernetesVersion: attribute.VersionValue(kubernetes),
		Kubernetes:        kubernetesDefaults(types.BoolValue(!kubernetes.IsZero())),
	}

	return options.planned(ctx)
}

// cluster returns the resource with the options, as its configuration sets them.
func (m optionsModel) cluster() clusterModel { return clusterModel{optionsModel: m} }

// planned returns the resource with the options and the defaults of its attributes, which Terraform sets for
// resources only.
func (m optionsModel) planned(ctx context.Context) clusterModel { return m.cluster().complete(ctx) }

// complete returns the resource with the defaults of its attributes in place of null. A default that a plan modifier
// sets is not among them.
func (m clusterModel) complete(ctx context.Context) clusterModel {
	attributes := clusterSchema(ctx).Attributes

	for tag, value := range fields(reflect.ValueOf(&m).Elem()) {
		of := attributes[tag.Get("tfsdk")]
		if current, isValue := value.Interface().(attr.Value); isValue && (of.IsOptional() || current.IsNull()) {
			value.Set(reflect.ValueOf(attribute.WithDefaults(ctx, of, current)))
		}
	}

	return m
}

// fields returns the fields of the model, and of those embedded in it, with their tags.
func fields(model reflect.Value) iter.Seq2[reflect.StructTag, reflect.Value] {
	return func(yield func(reflect.StructTag, reflect.Value) bool) {
		for index := range model.NumField() {
			if field := model.Type().Field(index); !field.Anonymous {
				if !yield(field.Tag, model.Field(index)) {
					return
				}

				continue
			}

			for tag, value := range fields(model.Field(index)) {
				if !yield(tag, value) {
					return
				}
			}
		}
	}
}

// choice is an attribute that the user sets.
type choice struct {
	name    string
	value   attr.Value
	decides decision
}

// decision is what a choice is about: the tag "decides" of its field in the model.
type decision string

const (
	// aboutRun is about the run of Terraform: its timeouts, the files it writes.
	aboutRun decision = "run"
	// aboutUpgrade is about the upgrade, whoever performs it.
	aboutUpgrade decision = "upgrade"
	// aboutNodes is about how the nodes are upgraded. With mode = "delegate" the operator decides that, so the choice
	// is refused.
	aboutNodes decision = "nodes"
)

// choices returns all attributes that the user sets, in the order of the model. A change of any of them is a change of
// the resource.
func (m clusterModel) choices() []choice {
	var found []choice

	for tag, field := range fields(reflect.ValueOf(m)) {
		decides, isChoice := tag.Lookup("decides")
		value, isValue := field.Interface().(attr.Value)

		if isChoice && isValue {
			found = append(found, choice{tag.Get("tfsdk"), value, decision(decides)})
		}
	}

	return found
}

// sameAs reports whether both models agree in everything that the user sets.
func (m clusterModel) sameAs(other clusterModel) bool {
	return slices.EqualFunc(m.choices(), other.choices(), func(a, b choice) bool { return a.value.Equal(b.value) })
}

// known reports whether everything that determines the upgrade is known.
func (m clusterModel) known(ctx context.Context) bool {
	return !slices.ContainsFunc(m.choices(), func(one choice) bool { return one.decides != aboutRun && !known(ctx, one.value) })
}

// refusedByDelegate returns the names of the choices that an operator makes.
func refusedByDelegate() []string {
	var names []string

	for _, one := range (clusterModel{}).choices() {
		if one.decides == aboutNodes {
			names = append(names, one.name)
		}
	}

	return names
}

// known reports whether the value is known, with everything in it.
func known(ctx context.Context, value attr.Value) bool {
	terraform, err := value.ToTerraformValue(ctx)

	return err == nil && terraform.IsFullyKnown()
}

// target returns the target in the model. Images that are not named come from the factory. The model must be known
// and valid.
func (m clusterModel) target(factory string) (cluster.Target, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	parse := func(name string, value types.String) version.Version {
		if value.ValueString() == "" {
			return version.Version{}
		}

		parsed, err := version.Parse(value.ValueString())
		if err != nil {
			diagnostics.AddAttributeError(path.Root(name), "Invalid version", diagnostic.Sentence(err.Error()))
		}

		return parsed
	}

	return cluster.Target{
		Talos:          parse(attrname.TalosVersion, m.TalosVersion),
		Kubernetes:     parse(attrname.KubernetesVersion, m.KubernetesVersion),
		InstallerImage: m.InstallerImage.ValueString(),
		ImageFactory:   factory,
	}, diagnostics
}

// desires reports whether the running version is the wanted one. It is false for a product that is not managed.
func desires(value types.String, running version.Version) bool {
	wanted, err := version.Parse(value.ValueString())

	return err == nil && wanted.Equal(running)
}

// request returns the request of the model to the engine. Images that are not named come from the factory. Gates
// evaluate the objects, which are nil if the Kubernetes API is unavailable. The model must be known.
func (m clusterModel) request(ctx context.Context, factory string, objects cluster.Objects) (engine.Request, diag.Diagnostics) {
	target, diagnostics := m.target(factory)

	policy, more := m.policy(ctx)
	diagnostics.Append(more...)

	rules, more := m.rules(ctx)
	diagnostics.Append(more...)

	window, more := m.window(ctx)
	diagnostics.Append(more...)

	if objects == nil {
		objects = noObjects{}
	}

	made := engine.Request{Target: target, Policy: policy, Window: window, Snapshots: m.snapshots(), Delegated: m.publication().Delegated}

	if made.Delegated {
		// The operator manages what Talos renders into the cluster.
		made.Policy.Kubernetes.Manifests = cluster.ManifestPolicy{}
	}

	for _, rule := range rules {
		made.Gates = append(made.Gates, rule.On(objects))
	}

	return made, diagnostics
}

// noObjects are the objects of a cluster whose Kubernetes API is unavailable.
type noObjects struct{}

// Objects implements [cluster.Objects].
func (noObjects) Objects(context.Context, cluster.ObjectQuery) ([]map[string]any, error) {
	return nil, fmt.Errorf("there is no connection to the Kubernetes API: %w", cluster.ErrUnreachable)
}

// policy returns how the target is reached. The model must be known.
func (m clusterModel) policy(ctx context.Context) (cluster.Policy, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	policy := cluster.DefaultPolicy()
	policy.Order = cluster.Order(m.Order.ValueString())
	policy.RebootMode = cluster.RebootMode(m.RebootMode.ValueString())
	policy.NodeTimeout = duration(path.Root(attrname.NodeTimeout), m.NodeTimeout, policy.NodeTimeout, &diagnostics)
	policy.Settle = duration(path.Root(attrname.Settle), m.Settle, policy.Settle, &diagnostics)
	policy.MaxUnavailable = share(path.Root(attrname.MaxUnavailable), m.MaxUnavailable, policy.MaxUnavailable, &diagnostics)

	if !m.ParallelPulls.IsNull() {
		pulls, whole := wholeNumber(m.ParallelPulls, maxParallelPulls)
		if !whole {
			diagnostics.Append(wrongParallelPulls(path.Root(attrname.ParallelPulls), m.ParallelPulls))
		}

		policy.ParallelPulls = pulls
	}

	policy.AllowIntermediate = m.AllowIntermediate.ValueBool()
	policy.AllowUnknown = m.AllowUnknown.ValueBool()
	policy.SkipChecks = m.skipped()
	policy.SyncInstallImage = m.SyncInstallImage.ValueBool()
	policy.OnFailure = m.onFailure(policy.OnFailure)

	if text := m.OnSuspend.ValueString(); text != "" {
		policy.OnSuspend = cluster.OnSuspend(text)
	}

	repeat, more := m.retry(ctx, policy.Repeat)
	diagnostics.Append(more...)

	policy.Repeat = repeat

	diagnostics.Append(m.Canary.ElementsAs(ctx, &policy.Canary, false)...)

	var drain drainModel

	diagnostics.Append(m.Drain.As(ctx, &drain, basetypes.ObjectAsOptions{UnhandledNullAsEmpty: true})...)

	if !m.Drain.IsNull() {
		policy.Drain = cluster.DrainPolicy{
			Enabled:   drain.Enabled.ValueBool(),
			Timeout:   duration(path.Root(attrname.Drain).AtName("timeout"), drain.Timeout, policy.Drain.Timeout, &diagnostics),
			OnTimeout: cluster.DrainFallback(drain.OnTimeout.ValueString()),
			Volumes:   cluster.VolumeWait(drain.Volumes.ValueString()),
		}
	}

	var intermediate []string

	diagnostics.Append(m.IntermediateVersions.ElementsAs(ctx, &intermediate, false)...)

	for index, text := range intermediate {
		parsed, err := version.Parse(text)
		if err != nil {
			at := path.Root(attrname.IntermediateVersions).AtListIndex(index)
			diagnostics.AddAttributeError(diagnostic.Visible(at), "Invalid version", attribute.Located(at, err))
		}

		policy.Intermediate = append(policy.Intermediate, parsed)
	}

	diagnostics.Append(m.overrides(ctx, &policy)...)
	diagnostics.Append(m.selectors(ctx, &policy)...)

	kubernetes, more := m.kubernetes(ctx, policy.Kubernetes)
	diagnostics.Append(more...)

	policy.Kubernetes = kubernetes

	return policy, diagnostics
}

// overrides adds what the model sets for single nodes to the policy.
func (m clusterModel) overrides(ctx context.Context, policy *cluster.Policy) diag.Diagnostics {
	overrides := map[string]*nodeOverrideModel{}
	diagnostics := m.NodeOverrides.ElementsAs(ctx, &overrides, false)

	policy.Retry, policy.Hold, policy.Images = map[string]string{}, map[string]bool{}, map[string]string{}
	policy.RebootModes = map[string]cluster.RebootMode{}

	for node, override := range overrides {
		// Even an override that sets nothing names a node.
		policy.Hold[node] = false

		if override == nil {
			continue
		}

		if bootID := override.RetryBootID.ValueString(); bootID != "" {
			policy.Retry[node] = bootID
		}

		if repository := override.InstallerImage.ValueString(); repository != "" {
			policy.Images[node] = repository
		}

		if mode := override.RebootMode.ValueString(); mode != "" {
			policy.RebootModes[node] = cluster.RebootMode(mode)
		}

		policy.Hold[node] = override.Hold.ValueBool()
	}

	return diagnostics
}

// selectors adds what the model sets for nodes chosen by selectors to the policy.
func (m clusterModel) selectors(ctx context.Context, policy *cluster.Policy) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		overrides   []selectorOverrideModel
	)

	pools := map[string]poolModel{}

	diagnostics.Append(m.SelectorOverrides.ElementsAs(ctx, &overrides, false)...)
	diagnostics.Append(m.Pools.ElementsAs(ctx, &pools, false)...)

	if !m.CanarySelector.IsNull() {
		policy.CanarySelector = selector(path.Root(attrname.CanarySelector), m.CanarySelector, &diagnostics)
	}

	for index, override := range overrides {
		policy.SelectorOverrides = append(policy.SelectorOverrides, cluster.SelectorOverride{
			Selector: selector(path.Root(attrname.SelectorOverrides).AtListIndex(index).AtName(attrname.Selector), override.Selector, &diagnostics),
			Hold:     override.Hold.ValueBool(), Image: override.InstallerImage.ValueString(),
			RebootMode: cluster.RebootMode(override.RebootMode.ValueString()),
		})
	}

	for _, name := range slices.Sorted(maps.Keys(pools)) {
		at := path.Root(attrname.Pools).AtMapKey(name)

		policy.Pools = append(policy.Pools, cluster.Pool{
			Name: name, Selector: selector(at.AtName(attrname.Selector), pools[name].Selector, &diagnostics),
			MaxUnavailable: share(at.AtName(attrname.MaxUnavailable), pools[name].MaxUnavailable, cluster.OneAtATime(), &diagnostics),
		})
	}

	return diagnostics
}

// selector parses the label selector. Its error is the same diagnostic as that of the validator.
func selector(at path.Path, value types.String, diagnostics *diag.Diagnostics) cluster.Selector {
	parsed, err := label.Parse(value.ValueString())
	if err != nil {
		diagnostics.Append(attribute.WrongSelector(at, value.ValueString(), err))
	}

	return parsed
}

// heldIn returns the names of the nodes in the observation that the model holds, by their names and by their labels.
func (m clusterModel) heldIn(observed cluster.Observation) map[string]bool {
	held, policy := m.held(), cluster.Policy{}

	for _, element := range m.SelectorOverrides.Elements() {
		object, isObject := element.(types.Object)
		if !isObject {
			continue
		}

		text, isText := object.Attributes()[attrname.Selector].(types.String)
		hold, isBool := object.Attributes()[attrname.Hold].(types.Bool)

		if !isText || !isBool || !hold.ValueBool() {
			continue
		}

		// An invalid selector holds nothing, and no plan succeeds with it.
		if parsed, err := label.Parse(text.ValueString()); err == nil {
			policy.SelectorOverrides = append(policy.SelectorOverrides, cluster.SelectorOverride{Selector: parsed, Hold: true})
		}
	}

	selected, _ := plan.Select(observed, policy)
	for name := range selected.Selected.Held {
		held[name] = true
	}

	return held
}

// held returns the names of the nodes that the model holds by their names, as far as known.
func (m clusterModel) held() map[string]bool {
	held := map[string]bool{}

	for node, value := range m.NodeOverrides.Elements() {
		object, isObject := value.(types.Object)
		if !isObject {
			continue
		}

		if hold, isBool := object.Attributes()[attrname.Hold].(types.Bool); isBool && hold.ValueBool() {
			held[node] = true
		}
	}

	return held
}

func share(at path.Path, value types.String, fallback cluster.Share, diagnostics *diag.Diagnostics) cluster.Share {
	if value.ValueString() == "" {
		return fallback
	}

	parsed, err := cluster.ParseShare(value.ValueString())
	if err != nil {
		diagnostics.AddAttributeError(diagnostic.Visible(at), "Invalid number of workers", at.String()+": "+err.Error()+".")

		return fallback
	}

	return parsed
}

func duration(at path.Path, value types.String, fallback time.Duration, diagnostics *diag.Diagnostics) time.Duration {
	if value.ValueString() == "" {
		return fallback
	}

	parsed, err := time.ParseDuration(value.ValueString())
	if err != nil {
		diagnostics.AddAttributeError(diagnostic.Visible(at), "Invalid duration", fmt.Sprintf("%s is %s: value must be a duration such as \"90s\" or \"1h30m\".", at, value))

		return fallback
	}

	return parsed
}

// kubernetesModel is the kubernetes object.
type kubernetesModel struct {
	Images              types.Object `tfsdk:"images"`
	UnavailableKubelets types.String `tfsdk:"max_unavailable_kubelets"`
	Manifests           types.Object `tfsdk:"manifests"`
}

// manifestsModel is the manifests object within kubernetes.
type manifestsModel struct {
	Sync    types.Bool   `tfsdk:"sync"`
	Prune   types.Bool   `tfsdk:"prune"`
	Timeout types.String `tfsdk:"timeout"`
	Force   types.Bool   `tfsdk:"force"`
	Exclude types.List   `tfsdk:"exclude"`
}

// manifestObjectModel is an element of exclude.
type manifestObjectModel struct {
	Kind      types.String `tfsdk:"kind"`
	Namespace types.String `tfsdk:"namespace"`
	Name      types.String `tfsdk:"name"`
}

// kubernetes returns how the Kubernetes version is reached. The model must be known; what it does not set is taken
// from the given policy.
func (m clusterModel) kubernetes(ctx context.Context, policy cluster.KubernetesPolicy) (cluster.KubernetesPolicy, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		model       kubernetesModel
		manifests   manifestsModel
	)

	// The manifests that Talos renders belong to Kubernetes.
	policy.Manifests.Sync = m.syncs()

	if m.Kubernetes.IsNull() {
		return policy, diagnostics
	}

	at := path.Root(attrname.Kubernetes)

	diagnostics.Append(m.Kubernetes.As(ctx, &model, basetypes.ObjectAsOptions{})...)

	policy.Images = model.images()
	policy.MaxUnavailableKubelets = share(at.AtName(attrname.UnavailableKubelets), model.UnavailableKubelets, policy.MaxUnavailableKubelets, &diagnostics)

	if model.Manifests.IsNull() {
		return policy, diagnostics
	}

	diagnostics.Append(model.Manifests.As(ctx, &manifests, basetypes.ObjectAsOptions{})...)

	policy.Manifests.Prune, policy.Manifests.Force = manifests.Prune.ValueBool(), manifests.Force.ValueBool()

	excluded, more := manifests.excluded(ctx)
	diagnostics.Append(more...)

	policy.Manifests.Exclude = excluded
	policy.Manifests.Timeout = duration(at.AtName(attrname.Manifests).AtName(attrname.Timeout), manifests.Timeout, policy.Manifests.Timeout, &diagnostics)

	return policy, diagnostics
}

// excluded returns the objects that the model excludes from the sync; nil if it names none.
func (m manifestsModel) excluded(ctx context.Context) ([]cluster.ManifestObject, diag.Diagnostics) {
	var (
		models   []manifestObjectModel
		excluded []cluster.ManifestObject
	)

	diagnostics := m.Exclude.ElementsAs(ctx, &models, false)

	for _, object := range models {
		excluded = append(excluded, cluster.ManifestObject{
			Kind: object.Kind.ValueString(), Namespace: object.Namespace.ValueString(), Name: object.Name.ValueString(),
		})
	}

	return excluded, diagnostics
}

// images returns the repositories in the model; nil if it names none.
func (k kubernetesModel) images() map[cluster.Component]string {
	var images map[cluster.Component]string

	for _, image := range imageAttributes() {
		text, isText := k.Images.Attributes()[image.name].(types.String)
		if !isText || text.ValueString() == "" {
			continue
		}

		if images == nil {
			images = map[cluster.Component]string{}
		}

		images[image.component] = text.ValueString()
	}

	return images
}

// syncs reports whether the bootstrap manifests are synced. If the model does not say, they are if Kubernetes is
// managed: what is not managed is not touched.
func (m clusterModel) syncs() bool {
	if manifests, isObject := m.Kubernetes.Attributes()[attrname.Manifests].(types.Object); isObject {
		if sync, isBool := manifests.Attributes()[attrname.Sync].(types.Bool); isBool && attribute.Stated(sync) {
			return sync.ValueBool()
		}
	}

	return !m.KubernetesVersion.IsNull()
}

// gateModel is one element of gates.
type gateModel struct {
	Preset     types.String `tfsdk:"preset"`
	APIVersion types.String `tfsdk:"api_version"`
	Kind       types.String `tfsdk:"kind"`
	Namespace  types.String `tfsdk:"namespace"`
	Name       types.String `tfsdk:"name"`
	Selector   types.String `tfsdk:"selector"`
	Expr       types.String `tfsdk:"expr"`
	Timeout    types.String `tfsdk:"timeout"`
}

// windowModel is the maintenance_window object.
type windowModel struct {
	Cron     types.String `tfsdk:"cron"`
	Duration types.String `tfsdk:"duration"`
	TimeZone types.String `tfsdk:"time_zone"`
}

// skipped returns the names of the checks whose findings are only warnings; nil if there are none.
func (m clusterModel) skipped() map[string]bool {
	set, isSet := m.Preflight.Attributes()[attrname.Skip].(types.Set)
	if !isSet || len(set.Elements()) == 0 {
		return nil
	}

	names := map[string]bool{}

	for _, element := range set.Elements() {
		if name, isText := element.(types.String); isText {
			names[name.ValueString()] = true
		}
	}

	return names
}

// snapshots returns where a snapshot of etcd is saved; nil if none is wanted.
func (m clusterModel) snapshots() cluster.SnapshotStore {
	directory, isText := m.EtcdSnapshot.Attributes()[attrname.Directory].(types.String)
	if !isText || directory.ValueString() == "" {
		return nil
	}

	return snapshot.New(directory.ValueString())
}

// rules returns the compiled gates in their order. A gate that is not fully known yet is omitted, but what is known
// of it is validated: its expression may be wrong whatever the rest turns out to be.
func (m clusterModel) rules(ctx context.Context) ([]*gate.Rule, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		rules       []*gate.Rule
	)

	for index, element := range m.Gates.Elements() {
		at := path.Root(attrname.Gates).AtListIndex(index)

		if element.IsNull() {
			diagnostics.Append(attribute.Missing(at))

			continue
		}

		object, isObject := element.(types.Object)
		if !isObject || object.IsUnknown() {
			continue
		}

		var model gateModel

		more := object.As(ctx, &model, basetypes.ObjectAsOptions{})
		if model.Preset.IsUnknown() {
			continue
		}

		spec := model.spec(ctx, at, &more)
		diagnostics.Append(more...)

		if more.HasError() {
			continue
		}

		rule, err := gate.Compile(spec)
		if err != nil {
			diagnostics.Append(unusable(at, "Invalid gate", err))

			continue
		}

		if known(ctx, object) {
			rules = append(rules, rule)
		}
	}

	return rules, diagnostics
}

// spec returns the gate without Terraform's types. Values that are required and not known yet are replaced by valid ones.
// Beside a preset none is required, and a value that is not known yet may turn out to be null.
func (g gateModel) spec(ctx context.Context, at path.Path, diagnostics *diag.Diagnostics) gate.Spec {
	required := func(value types.String, meanwhile string) string {
		if g.Preset.ValueString() != "" {
			return value.ValueString()
		}

		return attribute.Supposed(value, meanwhile)
	}

	return gate.Spec{
		Label:  at.String(),
		Preset: g.Preset.ValueString(),
		Query: cluster.ObjectQuery{
			APIVersion: required(g.APIVersion, "v1"), Kind: required(g.Kind, "ConfigMap"),
			Namespace: g.Namespace.ValueString(), Name: g.Name.ValueString(), Selector: g.Selector.ValueString(),
		},
		Expr:    required(g.Expr, "has(object.metadata)"),
		Timeout: positive(ctx, at.AtName(attrname.Timeout), g.Timeout, diagnostics),
	}
}

// window returns when nodes may be disrupted; nil if always, or if it is not fully known yet.
func (m clusterModel) window(ctx context.Context) (cluster.Window, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		model       windowModel
	)

	if m.MaintenanceWindow.IsNull() || m.MaintenanceWindow.IsUnknown() {
		return nil, diagnostics
	}

	at := path.Root(attrname.MaintenanceWindow)

	diagnostics.Append(m.MaintenanceWindow.As(ctx, &model, basetypes.ObjectAsOptions{})...)

	spec := gate.WindowSpec{
		Cron: attribute.Supposed(model.Cron, "0 0 * * *"), TimeZone: model.TimeZone.ValueString(),
		Duration: positive(ctx, at.AtName(attrname.Duration), model.Duration, &diagnostics),
	}

	if model.Duration.IsUnknown() {
		spec.Duration = time.Hour
	}

	if diagnostics.HasError() {
		return nil, diagnostics
	}

	window, err := gate.NewWindow(spec)
	if err != nil {
		diagnostics.Append(unusable(at, "Invalid maintenance window", err))

		return nil, diagnostics
	}

	if !known(ctx, m.MaintenanceWindow) {
		return nil, diagnostics
	}

	return window, diagnostics
}

// unusable returns the error of a gate or a window at the path.
func unusable(at path.Path, summary string, err error) diag.Diagnostic {
	var problem *gate.Error
	if !errors.As(err, &problem) {
		return diagnostic.ErrorAt(at, summary, attribute.Located(at, err))
	}

	if problem.Field != "" {
		at = at.AtName(problem.Field)
	}

	detail := diagnostic.Paragraph(problem.Found, problem.Field)
	if problem.Remedy != "" {
		detail += "\n\n" + problem.Remedy
	}

	return diagnostic.ErrorAt(at, summary, detail)
}

// positive returns the duration; 0 if there is none. Its error is the same diagnostic as that of the validator, so
// that it is reported once.
func positive(ctx context.Context, at path.Path, value types.String, diagnostics *diag.Diagnostics) time.Duration {
	var resp validator.StringResponse

	attribute.Duration().ValidateString(ctx, validator.StringRequest{Path: at, ConfigValue: value}, &resp)
	diagnostics.Append(resp.Diagnostics...)

	if value.IsNull() || resp.Diagnostics.HasError() {
		return 0
	}

	return duration(at, value, 0, diagnostics)
}

// retryModel is the retry object.
type retryModel struct {
	Attempts types.Number `tfsdk:"attempts"`
	Backoff  types.String `tfsdk:"backoff"`
}

// onFailure returns what happens to a node whose new system does not become healthy; the fallback if the model does
// not say.
func (m clusterModel) onFailure(fallback cluster.OnFailure) cluster.OnFailure {
	if text := m.OnFailure.ValueString(); text != "" {
		return cluster.OnFailure(text)
	}

	return fallback
}

// retry returns how often and how soon safe operations are retried. What the model does not set is taken from the
// fallback.
func (m clusterModel) retry(ctx context.Context, fallback cluster.Repeat) (cluster.Repeat, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		model       retryModel
	)

	if m.Retry.IsNull() {
		return fallback, diagnostics
	}

	diagnostics.Append(m.Retry.As(ctx, &model, basetypes.ObjectAsOptions{})...)

	if !model.Attempts.IsNull() {
		attempts, whole := wholeNumber(model.Attempts, maxAttempts)
		if !whole {
			diagnostics.Append(wrongAttempts(path.Root(attrname.Retry).AtName(attrname.Attempts), model.Attempts))
		}

		fallback.Attempts = attempts
	}

	fallback.Backoff = duration(path.Root(attrname.Retry).AtName(attrname.Backoff), model.Backoff, fallback.Backoff, &diagnostics)

	return fallback, diagnostics
}

// snapshotSchema returns the schema of snapshot. Like status, it has no plan modifier.
func snapshotSchema() schema.Attribute {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}

	return schema.SingleNestedAttribute{
		MarkdownDescription: "Last snapshot of etcd saved because of `etcd_snapshot`; null if there is none.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"path":                     text("File on the machine that ran Terraform."),
			"size":                     schema.Int64Attribute{MarkdownDescription: "Size of the file in bytes.", Computed: true},
			"sha256":                   text("SHA-256 checksum of the file, in hexadecimal."),
			"taken":                    text("Time of the snapshot in UTC, such as `2026-03-14T01:59:26Z`."),
			attrname.TalosVersion:      text("Target Talos version of the roll; null if Talos was not managed."),
			attrname.KubernetesVersion: text("Target Kubernetes version of the roll; null if Kubernetes was not managed."),
		},
	}
}

func snapshotTypes() map[string]attr.Type { return attribute.ObjectType(snapshotSchema()).AttrTypes }

// snapshotValue returns the snapshot in the journal. If the journal could not be read, or contains none any more,
// earlier is kept, because the file still exists. earlier may be null or unknown.
func snapshotValue(journal *cluster.Journal, earlier types.Object) types.Object {
	if journal == nil || journal.Snapshot == nil {
		if earlier.IsUnknown() {
			return types.ObjectNull(snapshotTypes())
		}

		return earlier
	}

	taken := *journal.Snapshot

	return types.ObjectValueMust(snapshotTypes(), map[string]attr.Value{
		"path":                     types.StringValue(taken.Path),
		"size":                     types.Int64Value(taken.Size),
		"sha256":                   types.StringValue(taken.SHA256),
		"taken":                    attribute.TextValue(attribute.Moment(taken.Taken)),
		attrname.TalosVersion:      attribute.VersionValue(taken.Target.Talos),
		attrname.KubernetesVersion: attribute.VersionValue(taken.Target.Kubernetes),
	})
}

// requestOf is [clusterModel.request] with what the provider block says. A run that delegates to an operator may lose
// its own node: the operator continues, and so does the next run.
func (m clusterModel) requestOf(ctx context.Context, clusters *connection.Clusters, objects cluster.Objects) (engine.Request, diag.Diagnostics) {
	made, diagnostics := m.request(ctx, clusters.Releases.ImageFactory(), objects)
	made.Policy.Releases = clusters.Releases.Known()

	if !made.Delegated {
		made.Policy.OwnBootID = clusters.Settings.BootID
	}

	return made, diagnostics
}

// publication returns the publication in the model. The model must be known and valid.
func (m clusterModel) publication() publication.Publication {
	made := publication.Publication{Delegated: m.Mode.ValueString() == modeDelegate}

	if !m.PublishTo.IsNull() && !m.PublishTo.IsUnknown() {
		to, _ := operator.Complete(m.published())
		made.To = &to
	}

	return made
}

// published returns the object as written, as far as it is known.
func (m clusterModel) published() cluster.Reference {
	text := func(name string) string {
		value, isText := m.PublishTo.Attributes()[name].(types.String)
		if !isText {
			return ""
		}

		return value.ValueString()
	}

	return cluster.Reference{APIVersion: text(attrname.APIVersion), Kind: text(attrname.Kind), Namespace: text(attrname.Namespace), Name: text(attrname.Name)}
}
