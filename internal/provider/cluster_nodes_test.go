// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// BenchmarkStateOf1000Nodes is a part of the bar for refresh and plan of 1,000 nodes: it
// is done for each of them.
func BenchmarkStateOf1000Nodes(b *testing.B) {
	var observed cluster.Observation

	for number := range 1000 {
		observed.Nodes = append(observed.Nodes, cluster.Node{
			Name: fmt.Sprintf("worker-%d", number), Role: cluster.Worker,
			Machine:  &cluster.Machine{Talos: version.MustParse("1.13.2"), Config: &cluster.MachineConfig{InstallImage: "example.org/installer:v1.13.2"}},
			Versions: map[cluster.Component]version.Version{cluster.Kubelet: version.MustParse("1.35.0")},
		})
	}

	earlier := types.MapNull(types.ObjectType{AttrTypes: nodeTypes()})

	for b.Loop() {
		nodes, diagnostics := nodesValue(observed, earlier)
		if diagnostics.HasError() || len(nodes.Elements()) != len(observed.Nodes) {
			b.Fatal(diagnostics)
		}

		earlier = nodes
	}
}
