// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

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
func unseenNodes(snapshot cluster.Snapshot, earlier types.Map) []string {
	if snapshot.KubernetesError == nil {
		return nil
	}

	return slices.DeleteFunc(slices.Sorted(maps.Keys(earlier.Elements())), func(name string) bool {
		_, listed := snapshot.Node(name)

		return listed
	})
}

// unseenFinding says of nodes which the state knows that a plan knows nothing of them.
func unseenFinding(names []string, snapshot cluster.Snapshot) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Unknown: true, Err: snapshot.KubernetesError,
		Found: fmt.Sprintf("the state knows %s, and neither the Kubernetes API, which did not answer, nor discovery lists them, so what they need is not known",
			strings.Join(names, ", ")),
		Remedy: "Make the Kubernetes API answer, or look at discovery (talosctl get members); an apply lists the nodes again before it touches any.",
	}
}

// nodesValue is what was observed of the nodes, with what earlier says where
// this observation is silent. Earlier may be null or unknown.
func nodesValue(ctx context.Context, snapshot cluster.Snapshot, earlier types.Map) (types.Map, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	before := map[string]nodeModel{}
	if !earlier.IsNull() && !earlier.IsUnknown() {
		diagnostics.Append(earlier.ElementsAs(ctx, &before, false)...)
	}

	models := map[string]nodeModel{}

	for _, node := range snapshot.Managed() {
		name := cluster.Word(node.Name)

		model := newNodeModel(node)
		if known, ok := before[name]; ok {
			model = model.merge(known, node)
		}

		models[name] = model
	}

	for _, name := range unseenNodes(snapshot, earlier) {
		models[name] = before[name]
	}

	value, more := types.MapValueFrom(ctx, types.ObjectType{AttrTypes: nodeTypes()}, models)
	diagnostics.Append(more...)

	return value, diagnostics
}
