// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
)

// imageAttribute is an attribute with the image of a component.
type imageAttribute struct {
	name      string
	component cluster.Component
}

// imageAttributes returns the attributes of every object with images of components, in the order of the
// documentation.
func imageAttributes() []imageAttribute {
	return []imageAttribute{
		{attrname.Kubelet, cluster.Kubelet},
		{attrname.APIServer, cluster.APIServer},
		{attrname.ControllerManager, cluster.ControllerManager},
		{attrname.Scheduler, cluster.Scheduler},
		{attrname.Proxy, cluster.Proxy},
	}
}

// componentAttribute returns the component as an attribute name, which has underscores in place of hyphens.
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

func overrideImageTypes() map[string]attr.Type {
	attributes := map[string]attr.Type{}
	for _, image := range imageAttributes() {
		attributes[image.name] = types.StringType
	}

	return attributes
}

func componentValue(node cluster.Node) types.Object {
	values := map[string]attr.Value{}
	for _, component := range cluster.Components(cluster.ControlPlane) {
		values[componentAttribute(component)] = attribute.VersionValue(node.Versions[component])
	}

	return types.ObjectValueMust(componentTypes(), values)
}

func componentAttributes() map[string]schema.Attribute {
	attributes := map[string]schema.Attribute{}
	for _, name := range componentNames() {
		attributes[name] = schema.StringAttribute{MarkdownDescription: "Version of " + name + ".", Computed: true}
	}

	return attributes
}
