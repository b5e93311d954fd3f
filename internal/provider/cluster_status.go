// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// nodeModel is one value of nodes.
type nodeModel struct {
	Role              types.String `tfsdk:"role"`
	Address           types.String `tfsdk:"address"`
	TalosVersion      types.String `tfsdk:"talos_version"`
	ComponentVersions types.Object `tfsdk:"component_versions"`
	Image             types.String `tfsdk:"install_image"`
	Schematic         types.String `tfsdk:"schematic"`
	Platform          types.String `tfsdk:"platform"`
}

func nodeTypes() map[string]attr.Type { return attribute.ObjectType(nodesSchema()).AttrTypes }

// value returns the model as a Terraform object. The framework would find the field names by reflection, anew for
// each node, which takes a fifth of a second for a thousand nodes.
func (m nodeModel) value(kinds map[string]attr.Type) types.Object {
	return types.ObjectValueMust(kinds, map[string]attr.Value{
		"role": m.Role, "address": m.Address, "talos_version": m.TalosVersion, "component_versions": m.ComponentVersions,
		"install_image": m.Image, "schematic": m.Schematic, "platform": m.Platform,
	})
}

// nodeModelOf returns the model of a value; false if it is null or unknown.
func nodeModelOf(value attr.Value) (nodeModel, bool) {
	object, isObject := value.(types.Object)
	if !isObject || object.IsNull() || object.IsUnknown() {
		return nodeModel{}, false
	}

	attributes := object.Attributes()
	text := func(name string) types.String {
		// Every attribute of the schema is present.
		found, _ := attributes[name].(types.String)

		return found
	}
	components, _ := attributes["component_versions"].(types.Object)

	return nodeModel{
		Role: text("role"), Address: text("address"), TalosVersion: text("talos_version"), ComponentVersions: components,
		Image: text("install_image"), Schematic: text("schematic"), Platform: text("platform"),
	}, true
}

// newNodeModel returns the model of an observed node.
func newNodeModel(node cluster.Node) nodeModel {
	model := nodeModel{
		Role:              attribute.TextValue(string(node.Role)),
		Address:           attribute.TextValue(node.Address),
		ComponentVersions: componentValue(node),
	}

	if node.Machine == nil {
		return model
	}

	model.TalosVersion = attribute.VersionValue(node.Machine.Talos)
	if node.Machine.TalosTag != "" {
		model.TalosVersion = attribute.TextValue(node.Machine.TalosTag)
	}

	model.Schematic = attribute.TextValue(node.Machine.Schematic)
	model.Platform = attribute.TextValue(node.Machine.Platform)

	if node.Machine.Config != nil {
		model.Image = attribute.TextValue(node.Machine.Config.InstallImage)
	}

	return model
}

// merge takes values that are missing in this observation from an earlier one, so that a node that is briefly
// unreachable, or whose machine configuration the credentials may not read, does not flap in state. kube-proxy is not
// kept if it is gone from the cluster.
func (m nodeModel) merge(earlier nodeModel, node cluster.Node, proxyless bool) nodeModel {
	if node.Machine == nil {
		m.TalosVersion, m.Schematic, m.Platform = earlier.TalosVersion, earlier.Schematic, earlier.Platform
	}

	if node.Machine == nil || node.Machine.Config == nil {
		m.Image = earlier.Image
	}

	merged := m.ComponentVersions.Attributes()
	for name, value := range earlier.ComponentVersions.Attributes() {
		if current, ok := merged[name]; ok && current.IsNull() && !(proxyless && name == componentAttribute(cluster.Proxy)) {
			merged[name] = value
		}
	}

	m.ComponentVersions = types.ObjectValueMust(componentTypes(), merged)

	return m
}

// proxyless reports whether no node runs kube-proxy although the Kubernetes API answered: it was replaced.
func proxyless(observed cluster.Observation) bool {
	return observed.KubernetesError == nil && !slices.ContainsFunc(observed.Managed(), func(node cluster.Node) bool {
		return !node.Versions[cluster.Proxy].IsZero()
	})
}

// unseenNodes returns the nodes in earlier that are missing in an observation without the Kubernetes API. Then only
// discovery lists nodes, and it may be disabled or unreachable as well. earlier may be null or unknown.
func unseenNodes(observed cluster.Observation, earlier types.Map) []string {
	if observed.KubernetesError == nil {
		return nil
	}

	return slices.DeleteFunc(slices.Sorted(maps.Keys(earlier.Elements())), func(name string) bool {
		_, listed := observed.Node(name)

		return listed
	})
}

// unseenFinding returns the finding that nodes in the state were not observed in a plan.
func unseenFinding(names []string, observed cluster.Observation) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Unknown: true, Err: observed.KubernetesError,
		Found: fmt.Sprintf("the state knows %s, and neither the Kubernetes API, which did not answer, nor discovery lists them, so what they need is not known",
			strings.Join(names, ", ")),
		Remedy: "Make the Kubernetes API answer, or look at discovery (talosctl get members); an apply lists the nodes again before it touches any.",
	}
}

// nodesValue returns the observed nodes, with values from earlier if they are missing in this observation. earlier
// may be null or unknown.
func nodesValue(observed cluster.Observation, earlier types.Map) (types.Map, diag.Diagnostics) {
	before, kinds, values := earlier.Elements(), nodeTypes(), map[string]attr.Value{}
	replaced := proxyless(observed)

	for _, node := range observed.Managed() {
		name := readable.Word(node.Name)

		model := newNodeModel(node)
		if known, ok := nodeModelOf(before[name]); ok {
			model = model.merge(known, node, replaced)
		}

		values[name] = model.value(kinds)
	}

	for _, name := range unseenNodes(observed, earlier) {
		values[name] = before[name]
	}

	return types.MapValue(types.ObjectType{AttrTypes: kinds}, values)
}

// productStatus is the status of Talos or Kubernetes.
type productStatus struct {
	Status          string
	Lowest, Highest version.Version
}

// status is the status of a cluster.
type status struct {
	Phase, Message    string
	Talos, Kubernetes productStatus
}

func productStatusTypes() map[string]attr.Type {
	return attribute.ObjectType(productStatusSchema("")).AttrTypes
}

func statusTypes() map[string]attr.Type { return attribute.ObjectType(statusSchema()).AttrTypes }

func (h productStatus) value() types.Object {
	return types.ObjectValueMust(productStatusTypes(), map[string]attr.Value{
		"status":  types.StringValue(h.Status),
		"lowest":  attribute.VersionValue(h.Lowest),
		"highest": attribute.VersionValue(h.Highest),
	})
}

// value returns the status as an object of the schema.
func (s status) value() types.Object {
	return types.ObjectValueMust(statusTypes(), map[string]attr.Value{
		"phase":      types.StringValue(s.Phase),
		"message":    types.StringValue(readable.Printable(s.Message)),
		"talos":      s.Talos.value(),
		"kubernetes": s.Kubernetes.value(),
	})
}

// statusOf returns the status of an observation relative to the desired model. If everything is observed, it depends
// on nothing else, so that an import stores the same as an apply. What the Kubernetes API does not report is taken
// from the earlier status.
func statusOf(observed cluster.Observation, desired clusterModel) status {
	held := desired.heldIn(observed)
	counted := without(observed, held)

	made := status{Phase: protocol.PhaseReady}
	made.Talos.Lowest, made.Talos.Highest = counted.TalosVersions()

	// Without labels it is unknown which nodes are held.
	if earlier := earlierVersion(desired.Status, "talos", "lowest"); observed.KubernetesError != nil && len(desired.SelectorOverrides.Elements()) > 0 && !earlier.IsZero() {
		made.Talos.Lowest, made.Talos.Highest = earlier, earlierVersion(desired.Status, "talos", "highest")
	}

	made.Kubernetes.Lowest, made.Kubernetes.Highest = counted.KubernetesVersions()
	if made.Kubernetes.Lowest.IsZero() {
		made.Kubernetes.Lowest = earlierVersion(desired.Status, "kubernetes", "lowest")
		made.Kubernetes.Highest = earlierVersion(desired.Status, "kubernetes", "highest")
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

// block marks Kubernetes as blocked by Talos if neither is at its target, unless the target of Talos does not
// support the running Kubernetes, which then has to be upgraded first.
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

// manifestsDue reports whether an earlier roll did not reach the bootstrap manifests, and they are to be synced.
func manifestsDue(observed cluster.Observation, desired clusterModel) bool {
	return observed.Journal != nil && observed.Journal.Manifests != nil && desired.syncs()
}

// arrived reports whether the product has nothing left to do.
func (h *productStatus) arrived() bool {
	return h.Status == protocol.StatusCompleted || h.Status == protocol.StatusIdle
}

// judge sets the status of a product according to its desired version.
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

// String returns the versions as "1.13.4" or "1.12.6 to 1.13.4".
func (h productStatus) String() string {
	if h.Lowest.Equal(h.Highest) {
		return h.Lowest.String()
	}

	return h.Lowest.String() + " to " + h.Highest.String()
}

// without returns the observation without the held nodes: they need not be upgraded, and do not keep the status from
// being completed.
func without(observed cluster.Observation, held map[string]bool) cluster.Observation {
	observed.Nodes = slices.DeleteFunc(slices.Clone(observed.Nodes), func(node cluster.Node) bool { return held[node.Name] })

	return observed
}

// failed returns the status after an upgrade that stopped: in Kubernetes if second is true, in Talos otherwise.
func (s status) failed(message string, second bool) status {
	s.Phase, s.Message = protocol.PhaseUpgradeFailed, message

	if second {
		s.Kubernetes.Status = protocol.StatusFailed
	} else {
		s.Talos.Status = protocol.StatusFailed
	}

	return s
}

// since keeps the failure in an earlier status as long as not all nodes run what is desired: an observation does not
// show why they do not.
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

// earlierStatus returns the status of a product in an earlier status.
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

// earlierVersion returns a version of a product in a status; zero if there is none.
func earlierVersion(earlier types.Object, half, name string) version.Version {
	object, ok := earlier.Attributes()[half].(types.Object)
	if !ok {
		return version.Version{}
	}

	text, ok := object.Attributes()[name].(types.String)
	if !ok {
		return version.Version{}
	}

	// Null and unknown are read as an empty text, which is not a version.
	parsed, err := version.Parse(text.ValueString())
	if err != nil {
		return version.Version{}
	}

	return parsed
}

// include includes the versions in state of nodes that were not observed: they are assumed to be unchanged.
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

// unfinishedNodes are the nodes whose upgrade did not complete according to the journal, by phase.
type unfinishedNodes map[cluster.Phase][]string

// unfinished returns the unfinished nodes in the journal. Machines that left the cluster are ignored. So is a node
// that runs its old system again if it is held, runs the new system after all, or is to run another one. A node with
// a pending install stays, whatever is wanted.
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

// awaited reports whether a node that runs its old system again is still to run what failed on it: because it is the
// desired version, or an earlier minor version on the way to it.
func awaited(entry cluster.Entry, node cluster.Node, wanted types.String) bool {
	desired, err := version.Parse(wanted.ValueString())
	if err != nil || !entry.Target.IsZero() && !desired.Equal(entry.Target) && desired.Minor().Compare(entry.Target.Minor()) <= 0 {
		return false
	}

	// If only the schematic changed, the versions are equal and do not show whether the node runs the new image.
	return node.Machine == nil || entry.Previous.Equal(entry.Target) || node.Machine.Talos.Less(entry.Target)
}

// open returns the nodes that may have a pending install, sorted by name.
func (l unfinishedNodes) open() []string {
	return l.of(func(phase cluster.Phase) bool { return cluster.Entry{Phase: phase}.Open() })
}

// returned returns the nodes that run their old system again, sorted by name.
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

// message describes the nodes that a person has to decide about. If there are none, it describes the others.
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
