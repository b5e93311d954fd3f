// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Read implements [resource.Resource]. A cluster that cannot be looked at keeps
// what the state says: it is not gone because it is away.
func (r *clusterResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.State.Get(ctx, &model)...)

	limit, diagnostics := model.Timeouts.Read(ctx, defaultReadTimeout)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	seen, err := r.clusters.observe(bounded, model.Context.ValueString())
	if err != nil {
		resp.Diagnostics.Append(unreadable(r.clusters.access, err, r.clusters.called(model)))

		return
	}

	if seen.ID == "" {
		resp.Diagnostics.AddWarning(about(summaryUnobserved, seen.name), "Neither discovery nor Kubernetes tells which cluster this is, so the state keeps what it says.\n\n"+
			"Look at why discovery (talosctl get members) and the namespace kube-system say nothing; an apply looks first.")

		return
	}

	if model.ID.ValueString() != "" && seen.ID != model.ID.ValueString() {
		resp.Diagnostics.Append(wrongCluster(model.ID.ValueString(), seen.ID, seen.name))

		return
	}

	resp.Diagnostics.Append(model.observe(ctx, seen.Observation)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// unreadable is the diagnostic of a refresh that could not look. Credentials
// that were never usable are an error; everything else keeps the state. The
// name is what people call the cluster.
func unreadable(access credentials, err error, name string) diag.Diagnostic {
	found := problem("read the cluster", access, err)
	if errors.Is(err, errMissing) || errors.Is(err, errUnusable) {
		return found
	}

	return warning(found, about(summaryUnobserved, name), "The state keeps what it says until the cluster can be looked at again; an apply looks first.")
}

// observe writes what was observed into the computed attributes and leaves
// everything that is the user's alone.
func (m *clusterModel) observe(ctx context.Context, observed cluster.Observation) diag.Diagnostics {
	return m.record(ctx, observed, statusOf(observed, *m))
}

// record is observe with a status that knows more than the observation does.
func (m *clusterModel) record(ctx context.Context, observed cluster.Observation, current status) diag.Diagnostics {
	nodes, diagnostics := nodesValue(ctx, observed, m.Nodes)

	m.Nodes = nodes
	m.Status = current.since(m.Status)
	m.Snapshot = snapshotValue(observed.Journal, m.Snapshot)

	if observed.ID != "" {
		m.ID = types.StringValue(observed.ID)
	}

	return diagnostics
}

// nodeModel is one value of nodes.
type nodeModel struct {
	Role              types.String `tfsdk:"role"`
	Address           types.String `tfsdk:"address"`
	TalosVersion      types.String `tfsdk:"talos_version"`
	ComponentVersions types.Object `tfsdk:"component_versions"`
	Image             types.String `tfsdk:"image"`
	Schematic         types.String `tfsdk:"schematic"`
	Platform          types.String `tfsdk:"platform"`
}

func nodeTypes() map[string]attr.Type {
	return map[string]attr.Type{
		"role":               types.StringType,
		"address":            types.StringType,
		"talos_version":      types.StringType,
		"component_versions": types.ObjectType{AttrTypes: componentTypes()},
		"image":              types.StringType,
		"schematic":          types.StringType,
		"platform":           types.StringType,
	}
}

// componentAttribute is the component as an attribute name: hyphens are not
// usual in those.
func componentAttribute(component cluster.Component) string {
	return strings.ReplaceAll(string(component), "-", "_")
}

func componentNames() []string {
	components := cluster.Components(cluster.ControlPlane)
	names := make([]string, 0, len(components))

	for _, component := range components {
		names = append(names, componentAttribute(component))
	}

	return names
}

func componentTypes() map[string]attr.Type {
	attributes := map[string]attr.Type{}
	for _, name := range componentNames() {
		attributes[name] = types.StringType
	}

	return attributes
}

func componentValue(node cluster.Node) types.Object {
	values := map[string]attr.Value{}
	for _, component := range cluster.Components(cluster.ControlPlane) {
		values[componentAttribute(component)] = versionValue(node.Versions[component])
	}

	return types.ObjectValueMust(componentTypes(), values)
}

// newNodeModel is the node as observed.
func newNodeModel(node cluster.Node) nodeModel {
	model := nodeModel{
		Role:              textValue(string(node.Role)),
		Address:           textValue(node.Address),
		ComponentVersions: componentValue(node),
	}

	if node.Machine == nil {
		return model
	}

	model.TalosVersion = versionValue(node.Machine.Talos)
	if node.Machine.TalosTag != "" {
		model.TalosVersion = textValue(node.Machine.TalosTag)
	}

	model.Schematic = textValue(node.Machine.Schematic)
	model.Platform = textValue(node.Machine.Platform)

	if node.Machine.Config != nil {
		model.Image = textValue(node.Machine.Config.InstallImage)
	}

	return model
}

// merge fills what this observation does not say from an earlier one, so that
// a node which is away for a minute does not flap in state.
func (m nodeModel) merge(earlier nodeModel, node cluster.Node) nodeModel {
	if node.Machine == nil {
		m.TalosVersion, m.Image, m.Schematic, m.Platform = earlier.TalosVersion, earlier.Image, earlier.Schematic, earlier.Platform
	}

	merged := m.ComponentVersions.Attributes()
	for name, value := range earlier.ComponentVersions.Attributes() {
		if current, ok := merged[name]; ok && current.IsNull() {
			merged[name] = value
		}
	}

	m.ComponentVersions = types.ObjectValueMust(componentTypes(), merged)

	return m
}

// unseenNodes are the nodes that earlier knows and that nothing listed this time:
// without the Kubernetes API there is only discovery, which may be switched off, or
// cut off as well. Earlier may be null or unknown.
func unseenNodes(observed cluster.Observation, earlier types.Map) []string {
	if observed.KubernetesError == nil {
		return nil
	}

	return slices.DeleteFunc(slices.Sorted(maps.Keys(earlier.Elements())), func(name string) bool {
		_, listed := observed.Node(name)

		return listed
	})
}

// unseenFinding says of nodes which the state knows that a plan knows nothing of them.
func unseenFinding(names []string, observed cluster.Observation) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Unknown: true, Err: observed.KubernetesError,
		Found: fmt.Sprintf("the state knows %s, and neither the Kubernetes API, which did not answer, nor discovery lists them, so what they need is not known",
			strings.Join(names, ", ")),
		Remedy: "Make the Kubernetes API answer, or look at discovery (talosctl get members); an apply lists the nodes again before it touches any.",
	}
}

// nodesValue is what was observed of the nodes, with what earlier says where
// this observation is silent. Earlier may be null or unknown.
func nodesValue(ctx context.Context, observed cluster.Observation, earlier types.Map) (types.Map, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	before := map[string]nodeModel{}
	if !earlier.IsNull() && !earlier.IsUnknown() {
		diagnostics.Append(earlier.ElementsAs(ctx, &before, false)...)
	}

	models := map[string]nodeModel{}

	for _, node := range observed.Managed() {
		name := readable.Word(node.Name)

		model := newNodeModel(node)
		if known, ok := before[name]; ok {
			model = model.merge(known, node)
		}

		models[name] = model
	}

	for _, name := range unseenNodes(observed, earlier) {
		models[name] = before[name]
	}

	value, more := types.MapValueFrom(ctx, types.ObjectType{AttrTypes: nodeTypes()}, models)
	diagnostics.Append(more...)

	return value, diagnostics
}

// productStatus is one of Talos and Kubernetes.
type productStatus struct {
	Status          string
	Lowest, Highest version.Version
}

// status is where a cluster stands.
type status struct {
	Phase, Message    string
	Talos, Kubernetes productStatus
}

func productStatusTypes() map[string]attr.Type {
	return map[string]attr.Type{"status": types.StringType, "lowest": types.StringType, "highest": types.StringType}
}

func statusTypes() map[string]attr.Type {
	return map[string]attr.Type{
		"phase":      types.StringType,
		"message":    types.StringType,
		"talos":      types.ObjectType{AttrTypes: productStatusTypes()},
		"kubernetes": types.ObjectType{AttrTypes: productStatusTypes()},
	}
}

func (h productStatus) value() types.Object {
	return types.ObjectValueMust(productStatusTypes(), map[string]attr.Value{
		"status":  types.StringValue(h.Status),
		"lowest":  versionValue(h.Lowest),
		"highest": versionValue(h.Highest),
	})
}

// value is the status as an object of the schema.
func (s status) value() types.Object {
	return types.ObjectValueMust(statusTypes(), map[string]attr.Value{
		"phase":      types.StringValue(s.Phase),
		"message":    types.StringValue(readable.Printable(s.Message)),
		"talos":      s.Talos.value(),
		"kubernetes": s.Kubernetes.value(),
	})
}

// statusOf judges an observation by what is desired. Where all is observed it
// depends on nothing else, so that an import finds what an apply stored. What
// the Kubernetes API does not say right now is taken from the earlier status.
func statusOf(observed cluster.Observation, desired clusterModel) status {
	held := desired.held()
	counted := without(observed, held)

	made := status{Phase: protocol.PhaseReady}
	made.Talos.Lowest, made.Talos.Highest = counted.TalosVersions()

	made.Kubernetes.Lowest, made.Kubernetes.Highest = counted.KubernetesVersions()
	if made.Kubernetes.Lowest.IsZero() {
		made.Kubernetes.Lowest = earlierVersion(desired.Status, "lowest")
		made.Kubernetes.Highest = earlierVersion(desired.Status, "highest")
	}

	absent := unseenNodes(observed, desired.Nodes)
	made.Talos.include(desired.Nodes, slices.DeleteFunc(slices.Clone(absent), func(name string) bool { return held[name] }))

	made.Talos.judge(desired.TalosVersion)
	made.Kubernetes.judge(desired.KubernetesVersion)

	left := unfinished(observed, held, desired.TalosVersion)
	due := manifestsDue(observed, desired)

	switch {
	case len(left.returned()) > 0:
		made.Phase, made.Talos.Status = protocol.PhaseUpgradeFailed, protocol.StatusFailed
		made.Message = left.message()
	case len(left.open()) > 0:
		made.Phase, made.Talos.Status = protocol.PhaseUpgradingTalos, protocol.StatusInProgress
		made.Message = left.message()
	case due && made.Kubernetes.Status == protocol.StatusIdle:
		made.Phase, made.Message = protocol.PhaseUpgradingTalos, "The bootstrap manifests are still to be synced after a roll; the next apply does it."
	case due && made.Talos.arrived():
		made.Phase, made.Kubernetes.Status = protocol.PhaseUpgradingKubernetes, protocol.StatusInProgress
		made.Message = "In the middle of a roll, and the bootstrap manifests are still to be synced; the next apply continues."
	default:
		made.Message = fmt.Sprintf("Talos %s, Kubernetes %s.", made.Talos, made.Kubernetes)
	}

	made.block(desired)

	if len(absent) > 0 {
		made.Message += fmt.Sprintf(" Nothing lists %s right now; what is said of them is from an earlier look.", strings.Join(absent, ", "))
	}

	return made
}

// block says of a Kubernetes that is not at its target that it waits for Talos,
// where Talos is not at its own and nothing demands the opposite.
func (s *status) block(desired clusterModel) {
	if s.Kubernetes.Status != protocol.StatusPending || s.Talos.arrived() {
		return
	}

	talos, talosErr := version.Parse(desired.TalosVersion.ValueString())
	kubernetes, kubernetesErr := version.Parse(desired.KubernetesVersion.ValueString())

	if talosErr != nil || kubernetesErr != nil || compat.Supports(talos, s.Kubernetes.Lowest) != nil {
		return
	}

	s.Kubernetes.Status = protocol.StatusBlocked

	if compat.Supports(s.Talos.Lowest, kubernetes) != nil {
		s.Message += fmt.Sprintf(" Talos %s does not support K8s %s. Upgrade Talos first.", s.Talos.Lowest, kubernetes)
	}
}

// manifestsDue tells whether an earlier roll did not get to the bootstrap
// manifests, and somebody wants them.
func manifestsDue(observed cluster.Observation, desired clusterModel) bool {
	return observed.Journal != nil && observed.Journal.Manifests != nil && desired.syncs()
}

// arrived tells whether nothing is left to do in the product.
func (h *productStatus) arrived() bool {
	return h.Status == protocol.StatusCompleted || h.Status == protocol.StatusIdle
}

// judge sets the status of a product from what is desired of it.
func (h *productStatus) judge(desired types.String) {
	switch {
	case desired.ValueString() == "":
		h.Status = protocol.StatusIdle
	case desires(desired, h.Lowest) && desires(desired, h.Highest):
		h.Status = protocol.StatusCompleted
	default:
		h.Status = protocol.StatusPending
	}
}

// String is "1.13.4" or "1.12.6 to 1.13.4".
func (h productStatus) String() string {
	if h.Lowest.Equal(h.Highest) {
		return h.Lowest.String()
	}

	return h.Lowest.String() + " to " + h.Highest.String()
}

// without is the observation without the held nodes: they neither have to follow
// nor keep the others from being done.
func without(observed cluster.Observation, held map[string]bool) cluster.Observation {
	observed.Nodes = slices.DeleteFunc(slices.Clone(observed.Nodes), func(node cluster.Node) bool { return held[node.Name] })

	return observed
}

// failed is the status after an upgrade that stopped, in the second half where
// the first was done.
func (s status) failed(message string, second bool) status {
	s.Phase, s.Message = protocol.PhaseUpgradeFailed, message

	if second {
		s.Kubernetes.Status = protocol.StatusFailed
	} else {
		s.Talos.Status = protocol.StatusFailed
	}

	return s
}

// since keeps what state says of a failed upgrade for as long as the nodes do
// not all run what is desired: an observation does not tell why they do not.
func (s status) since(earlier types.Object) types.Object {
	if earlier.IsNull() || earlier.IsUnknown() || (s.Phase != protocol.PhaseReady && s.Phase != protocol.PhaseUpgradingKubernetes) {
		return s.value()
	}

	attributes := earlier.Attributes()

	phase, ok := attributes["phase"].(types.String)
	if !ok || phase.ValueString() != protocol.PhaseUpgradeFailed {
		return s.value()
	}

	message, ok := attributes["message"].(types.String)
	if !ok {
		return s.value()
	}

	switch {
	case s.Talos.Status == protocol.StatusPending && earlierStatus(earlier, "talos") == protocol.StatusFailed:
		return s.failed(message.ValueString(), false).value()
	case !s.Kubernetes.arrived() && earlierStatus(earlier, "kubernetes") == protocol.StatusFailed:
		return s.failed(message.ValueString(), true).value()
	default:
		return s.value()
	}
}

// earlierStatus is the status of a product in an earlier status.
func earlierStatus(earlier types.Object, half string) string {
	object, ok := earlier.Attributes()[half].(types.Object)
	if !ok {
		return ""
	}

	text, ok := object.Attributes()["status"].(types.String)
	if !ok {
		return ""
	}

	return text.ValueString()
}

// earlierVersion is a version in the Kubernetes of a status; zero where
// there is none.
func earlierVersion(earlier types.Object, name string) version.Version {
	object, ok := earlier.Attributes()["kubernetes"].(types.Object)
	if !ok {
		return version.Version{}
	}

	text, ok := object.Attributes()[name].(types.String)
	if !ok {
		return version.Version{}
	}

	// Null and unknown read as the empty text, which is no version.
	parsed, err := version.Parse(text.ValueString())
	if err != nil {
		return version.Version{}
	}

	return parsed
}

// include counts what the state says of nodes that were not seen: they are as far
// as they were.
func (h *productStatus) include(earlier types.Map, names []string) {
	seen := []version.Version{h.Lowest, h.Highest}

	for _, name := range names {
		node, ok := earlier.Elements()[name].(types.Object)
		if !ok {
			continue
		}

		text, _ := node.Attributes()["talos_version"].(types.String)
		if parsed, err := version.Parse(text.ValueString()); err == nil {
			seen = append(seen, parsed)
		}
	}

	h.Lowest, h.Highest = version.Lowest(seen...), version.Highest(seen...)
}

// unfinishedNodes are the nodes of which the journal says that an upgrade of them did
// not get to its end, by how far it got.
type unfinishedNodes map[cluster.Phase][]string

// unfinished are the nodes in the journal. A machine that left the cluster counts
// no more, and a node that runs its old system again has had its decision where it
// is held, runs the new system after all, or is to run another one; but an armed
// one stays armed, whatever is wanted.
func unfinished(observed cluster.Observation, held map[string]bool, wanted types.String) unfinishedNodes {
	left := unfinishedNodes{}

	if observed.Journal == nil {
		return left
	}

	for _, node := range observed.Managed() {
		_, entry, found := observed.Journal.Of(node)
		if found && (entry.Open() || !held[node.Name] && awaited(entry, node, wanted)) {
			left[entry.Phase] = append(left[entry.Phase], node.Name)
		}
	}

	return left
}

// awaited tells whether a node that runs its old system again is still to run what
// failed on it: as what is desired, or on the way to a later release line.
func awaited(entry cluster.Entry, node cluster.Node, wanted types.String) bool {
	desired, err := version.Parse(wanted.ValueString())
	if err != nil || !entry.Target.IsZero() && !desired.Equal(entry.Target) && desired.Minor().Compare(entry.Target.Minor()) <= 0 {
		return false
	}

	// A schematic may be what failed: then the version says nothing.
	return node.Machine == nil || entry.Previous.Equal(entry.Target) || node.Machine.Talos.Less(entry.Target)
}

// open are the nodes that may be armed, by name.
func (l unfinishedNodes) open() []string {
	return l.of(func(phase cluster.Phase) bool { return cluster.Entry{Phase: phase}.Open() })
}

// returned are the nodes that run their old system again, by name.
func (l unfinishedNodes) returned() []string {
	return l.of(func(phase cluster.Phase) bool { return cluster.Entry{Phase: phase}.Returned() })
}

func (l unfinishedNodes) of(wanted func(cluster.Phase) bool) []string {
	var nodes []string

	for phase, names := range l {
		if wanted(phase) {
			nodes = append(nodes, names...)
		}
	}

	slices.Sort(nodes)

	return nodes
}

// message says what became of the nodes that a person has to decide about; and
// of the others, where there are none of those, what they are in the middle of.
func (l unfinishedNodes) message() string {
	var parts []string

	say := func(what, next string, wanted func(cluster.Phase) bool) {
		if nodes := l.of(wanted); len(nodes) > 0 {
			parts = append(parts, what+": "+strings.Join(nodes, ", ")+next)
		}
	}

	if len(l.returned()) > 0 {
		say("Fell back to the old system and waits for a decision", ".", func(phase cluster.Phase) bool { return phase == cluster.PhaseFallback })
		say("Was rolled back to the old system and waits for a decision", ".", func(phase cluster.Phase) bool { return phase == cluster.PhaseRolledBack })
	} else {
		say("In the middle of an upgrade", "; the next apply continues.", func(phase cluster.Phase) bool { return phase != cluster.PhaseRollingBack })
		say("In the middle of a rollback", "; the next apply continues.", func(phase cluster.Phase) bool { return phase == cluster.PhaseRollingBack })
	}

	return strings.Join(parts, " ")
}

// deleteTimeout bounds a destroy. Finding out whether the holder of a lease is
// alive takes up to a minute.
const deleteTimeout = 3 * time.Minute

// leftovers are the objects that a destroy which cannot reach the cluster may
// leave there.
const leftovers = "ConfigMap kube-system/talosupgrade, Lease kube-system/talosupgrade and ConfigMap kube-system/talosupgrade-journal"

// Delete implements [resource.Resource]. It removes what the provider left in
// the cluster and touches no node.
func (r *clusterResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.State.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	bounded, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()

	reached, release, err := r.clusters.connect(bounded, model.Context.ValueString())
	if err != nil {
		resp.Diagnostics.Append(r.undeletable(err, r.clusters.called(model)))

		return
	}

	defer release()

	id := model.ID.ValueString()

	// Without knowing which cluster this is nothing of it may be deleted.
	found, err := clusterID(bounded, reached)
	if err != nil {
		resp.Diagnostics.Append(r.undeletable(err, r.clusters.called(model)))

		return
	}

	if id = cmp.Or(id, found); found != id {
		resp.Diagnostics.Append(wrongCluster(id, found, reached.name))

		return
	}

	reached.identify(id)

	claimant, diagnostics := claimantIn(ctx, req.Private)
	resp.Diagnostics.Append(diagnostics...)
	r.clusters.claims.release(cmp.Or(id, reached.name), claimant)

	kept, err := reached.kubernetes.Forget(bounded, id)
	if err != nil {
		resp.Diagnostics.Append(r.undeletable(err, r.clusters.called(model)))
	}

	if len(kept) > 0 {
		resp.Diagnostics.AddWarning(about("Objects were left in the cluster", reached.name),
			"Removed from state, but kept in cluster "+id+":\n\n- "+strings.Join(kept, "\n- ")+
				"\n\nA later apply of the same cluster continues from them. To end it by hand, finish each node that they name, uncordon it, "+
				"and then run kubectl -n kube-system delete configmap talosupgrade-journal.")
	}
}

// undeletable is the diagnostic of a destroy that could not clean up. A cluster
// that may be dead for good must not keep its resource alive, so that is a
// warning; what the user can put right is an error. The name is what people call
// the cluster.
func (r *clusterResource) undeletable(err error, name string) diag.Diagnostic {
	found := problem("remove the provider's objects from the cluster", r.clusters.access, err)

	for _, curable := range []error{errUnknown, errMissing, errUnusable, cluster.ErrCredentials, cluster.ErrDenied, context.Canceled} {
		if errors.Is(err, curable) {
			return withDetail(found, found.Detail()+
				"\n\nThe resource stays in state. If the cluster is gone for good, terraform state rm takes it out without asking the cluster.")
		}
	}

	return warning(found, about("Unable to reach the cluster during destroy", name),
		"The resource was removed from state. If the cluster still exists it may hold "+leftovers+
			". Look into the journal before deleting it: a node with an entry may have an upgrade installed that its next reboot starts. A later apply continues from it.")
}

// clusterID is the ID of the connected cluster. The error says why it cannot
// be had.
func clusterID(ctx context.Context, reached *connection) (string, error) {
	id, err := reached.talos.ClusterID(ctx)
	if err != nil || id != "" {
		return id, err
	}

	return reached.kubernetes.UID(ctx)
}

// observation is what a look at a cluster found.
type observation struct {
	cluster.Observation
	// name is what people call the cluster.
	name string
	// expires is when the client certificate that was used does; zero when
	// that is not known.
	expires time.Time
}

// lookAge is how old an observation may be for a plan.
const lookAge = 10 * time.Second

// cachedObservation is an observation with its time, or why there is none.
type cachedObservation struct {
	seen observation
	err  error
	at   time.Time
}

// observe looks at the cluster of a context and changes nothing. A cluster of
// which no node answers is an error.
func (c *clusters) observe(ctx context.Context, wanted string) (observation, error) {
	seen, err := c.look(ctx, wanted)
	if !errors.Is(err, context.Canceled) {
		c.remember(wanted, &cachedObservation{seen: seen, err: err, at: time.Now()})
	}

	return seen, err
}

// recent is the last observation where that is only seconds old, and a new one
// otherwise. A plan looks at what the refresh before it just saw.
func (c *clusters) recent(ctx context.Context, wanted string) (observation, error) {
	shared := c.shared(c.access.contextName(wanted))

	shared.mu.Lock()
	last := shared.last
	shared.mu.Unlock()

	if last != nil && time.Since(last.at) < lookAge {
		return last.seen, last.err
	}

	return c.observe(ctx, wanted)
}

// remember keeps an observation; nil forgets the last one, because the cluster
// is about to change.
func (c *clusters) remember(wanted string, last *cachedObservation) {
	shared := c.shared(c.access.contextName(wanted))

	shared.mu.Lock()
	defer shared.mu.Unlock()

	shared.last = last
}

func (c *clusters) look(ctx context.Context, wanted string) (observation, error) {
	reached, release, err := c.connect(ctx, wanted)
	if err != nil {
		return observation{}, err
	}

	defer release()

	observed, err := engine.New(c.engine(reached, nil)).Observe(ctx)
	if err != nil {
		return observation{}, err
	}

	c.shared(c.access.contextName(wanted)).servers.notice(observed)

	return observation{Observation: observed, name: reached.name, expires: reached.expires}, silence(observed)
}

// engine are the options of an engine for the connection, and for the operator
// that may upgrade the same cluster; nil where none is known.
func (c *clusters) engine(reached *connection, beside cluster.Operator) engine.Options {
	return engine.Options{
		Talos: reached.talos, Kubernetes: reached.kubernetes, Removals: reached.removals, Manifests: reached.manifests,
		Workloads: reached.workloads, Registry: reached.registry, Operator: beside,
		Clock: c.settings.clock, ClusterName: cmp.Or(reached.context, reached.name),
	}
}

// examine makes the checks of a plan, and changes nothing. A plan that is refused
// whatever the cluster looks like, or has nothing to do, is not looked at any
// closer.
func (c *clusters) examine(ctx context.Context, planned clusterModel, seen observation, made plan.Plan) engine.Examination {
	refused := slices.ContainsFunc(made.Findings, func(finding cluster.Finding) bool { return finding.Severity == cluster.Permanent })

	if len(made.Steps) == 0 || refused {
		return engine.Examination{Findings: made.Findings}
	}

	reached, release, err := c.connect(ctx, planned.Context.ValueString())
	if err != nil {
		return engine.Examination{Findings: append(slices.Clip(made.Findings), cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Err: err, Unknown: true,
			Found:  fmt.Sprintf("the cluster could not be asked what stands in the way: %v", err),
			Remedy: cmp.Or(remedy(err), "Run the plan again; an apply asks before it touches anything."),
		})}
	}

	defer release()

	// What is wrong with the request was said before anybody was asked.
	request, _ := planned.request(ctx, c.releases.imageFactory(), reached.objects)

	beside, err := reached.operator(planned.publication())
	if err != nil {
		return engine.Examination{Findings: append(slices.Clip(made.Findings), unmanaged(planned.publication(), err))}
	}

	return engine.New(c.engine(reached, beside)).Preflight(ctx, seen.Observation, made, request, engine.Planning)
}

// silence is the error of an observation in which no node answered, nil otherwise.
// A node that was refused counts for all: either the credentials or the
// endpoints are not fit for this cluster, and no waiting changes that.
func silence(observed cluster.Observation) error {
	var reason error

	answered := false

	for _, node := range observed.Managed() {
		switch {
		case node.Machine != nil:
			answered = true
		case errors.Is(node.Unreachable, cluster.ErrDenied), errors.Is(node.Unreachable, cluster.ErrCredentials):
			return fmt.Errorf("node %s at %s: %w", node.Name, node.Address, node.Unreachable)
		default:
			reason = cmp.Or(reason, node.Unreachable)
		}
	}

	switch {
	case answered:
		return nil
	case len(observed.Nodes) == 0 && observed.KubernetesError != nil:
		return fmt.Errorf("%w: %w", errUnlisted, observed.KubernetesError)
	case reason == nil:
		return errSilent
	default:
		// One reason stands for all: they share the endpoints.
		return fmt.Errorf("%w: %w", errSilent, reason)
	}
}
