// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
)

// images are references by the names of their attributes; one that is missing is
// null.
type images map[string]string

func imageTypes() map[string]attr.Type {
	attributes := overrideImageTypes()
	attributes[attrInstaller] = types.StringType

	return attributes
}

// value is the images as an object of the schema.
func (i images) value() types.Object {
	values := map[string]attr.Value{}
	for name := range imageTypes() {
		values[name] = textValue(i[name])
	}

	return types.ObjectValueMust(imageTypes(), values)
}

// nodeImages are what the machine configuration of a node names, as far as it
// decides about it.
func nodeImages(node cluster.Node) images {
	found := images{}

	if node.Machine == nil || node.Machine.Config == nil {
		return found
	}

	found[attrInstaller] = node.Machine.Config.InstallImage

	for _, each := range imageAttributes() {
		if each.component.Configured(node.Role) {
			found[each.name] = node.Machine.Config.Images[each.component]
		}
	}

	return found
}

// readable are the nodes that answer, and whether the machine configurations of
// all of them could be read.
func readable(snapshot cluster.Snapshot) ([]cluster.Node, bool) {
	nodes := slices.DeleteFunc(snapshot.Managed(), func(node cluster.Node) bool { return node.Machine == nil })

	return nodes, !slices.ContainsFunc(nodes, func(node cluster.Node) bool { return node.Machine.Config == nil })
}

// commonImages are those on which all machine configurations agree.
func commonImages(snapshot cluster.Snapshot) images {
	common := images{}

	nodes, all := readable(snapshot)
	if !all {
		return common
	}

	for name := range imageTypes() {
		if choices := imageChoices(nodes, name); len(choices) == 1 {
			common[name] = choices[0].image
		}
	}

	return common
}

// imageChoice is an image with the nodes whose machine configurations name it.
type imageChoice struct {
	// image is empty where they name none.
	image string
	nodes []string
}

// imageChoices are the images that the nodes name under the attribute, of those
// nodes whose machine configuration decides about it.
func imageChoices(nodes []cluster.Node, name string) []imageChoice {
	var choices []imageChoice

	for _, node := range nodes {
		found, decides := nodeImages(node)[name]
		if !decides {
			continue
		}

		at := slices.IndexFunc(choices, func(c imageChoice) bool { return c.image == found })
		if at < 0 {
			at = len(choices)
			choices = append(choices, imageChoice{image: found})
		}

		choices[at].nodes = append(choices[at].nodes, node.Name)
	}

	return choices
}

// imageWarnings name what may go wrong with the images in machine configurations
// when somebody else applies them. Installers may differ from node to node.
func imageWarnings(seen observation) diag.Diagnostics {
	var diagnostics diag.Diagnostics

	nodes, all := readable(seen.Snapshot)
	if !all {
		return diagnostics
	}

	var mixed []string

	for _, each := range imageAttributes() {
		choices := imageChoices(nodes, each.name)
		if len(choices) < 2 {
			continue
		}

		parts := make([]string, 0, len(choices))
		for _, choice := range choices {
			parts = append(parts, choice.String())
		}

		mixed = append(mixed, fmt.Sprintf("- %s: %s.", each.component, strings.Join(atMost(parts, namesMost, "and %d more images"), "; ")))
	}

	if len(mixed) > 0 {
		diagnostics.AddWarning(about("The machine configurations do not agree about images", seen.name), strings.Join(mixed, "\n")+
			"\n\nimages is null for them, so that nothing takes the image of one node for that of all. Where an upgrade is under way this is over when it is done.\n\n"+
			"Otherwise name the same image in all machine configurations (talosctl patch machineconfig).")
	}

	if apart := apartFromConfig(nodes); len(apart) > 0 {
		diagnostics.AddWarning(about("Not everything runs what its machine configuration names", seen.name), strings.Join(atMost(apart, linesMost, "- and %d more differences"), "\n")+
			"\n\nApply a talosupgrade_cluster with kubernetes_version, which brings both together, or look at why it does not come up (talosctl containers --kubernetes).")
	}

	return diagnostics
}

// String is "kubelet:v1.35.2 on cp-0, cp-1".
func (c imageChoice) String() string {
	named := c.image
	if named == "" {
		named = "nothing"
	}

	return named + " on " + nameList(c.nodes)
}

// apartFromConfig has a line for every component that runs another version than
// the machine configuration of its node names.
func apartFromConfig(nodes []cluster.Node) []string {
	var lines []string

	for _, node := range nodes {
		for _, each := range imageAttributes() {
			running, runs := node.Versions[each.component]
			named := nodeImages(node)[each.name]

			if !runs || named == "" {
				continue
			}

			_, tag, err := image.Split(named)
			if err != nil {
				continue
			}

			if configured, err := image.TagVersion(tag); err == nil && !configured.Equal(running) {
				lines = append(lines, fmt.Sprintf("- %s: %s runs %s, and the machine configuration names %s.", node.Name, each.component, running, named))
			}
		}
	}

	return lines
}

// atMost are the texts, and in the words of rest how many more there are than a
// person reads.
func atMost(texts []string, most int, rest string) []string {
	hidden := len(texts) - most
	if hidden <= 1 {
		return texts
	}

	return append(texts[:most:most], fmt.Sprintf(rest, hidden))
}
