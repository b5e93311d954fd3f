// SPDX-License-Identifier: MPL-2.0

package drain

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// maxNames is how many names a finding lists.
const namesMost = 10

// group are pods of drained nodes that are worth one warning.
type group struct {
	pods  []string
	nodes []string
}

// add adds a pod of the node, whose pods come one after the other.
func (g *group) add(node, pod string) {
	g.pods = append(g.pods, pod)

	if len(g.nodes) == 0 || g.nodes[len(g.nodes)-1] != node {
		g.nodes = append(g.nodes, node)
	}
}

// advice are the findings that stop nothing.
func (f *forecast) advice() []cluster.Finding {
	var findings []cluster.Finding

	for _, kind := range []struct {
		group         *group
		found, remedy string
	}{
		{&f.lone, "pods without a controller are evicted, and nobody brings them back: %s", "Save what they are for, or run them under a controller."},
		{&f.local, "pods lose the data in their local volumes (emptyDir): %s", "Expect it, or move the data to persistent volumes first."},
		{&f.bound, "pods fit no other node that takes pods, and wait until this one is back: %s", "Expect that they are away meanwhile, or let them run elsewhere (node selectors, affinities, tolerations, local volumes)."},
		{&f.homeless, "the other nodes have no room for pods that must move, which wait until this one is back: %s", "Make room, add a node, or lower what they request."},
	} {
		if len(kind.group.pods) == 0 {
			continue
		}

		findings = append(findings, cluster.Finding{
			Check: cluster.CheckDrain, Severity: cluster.Advice, Node: kind.group.nodes[0],
			Found:  fmt.Sprintf(kind.found, listed(kind.group.pods)) + also(kind.group.nodes[1:]),
			Remedy: kind.remedy,
		})
	}

	return findings
}

// listed writes names in a row: "a, b, c", and of very many the first alone.
func listed(names []string) string {
	if more := len(names) - namesMost; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namesMost], ", "), more)
	}

	return strings.Join(names, ", ")
}

// also names the other nodes that a finding is about.
func also(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}

	return "; the same on " + listed(nodes)
}
