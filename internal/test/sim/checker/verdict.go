// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Violation is one broken invariant.
type Violation struct {
	Invariant Invariant `json:"invariant"`
	// Node is empty if the violation concerns the whole cluster.
	Node string `json:"node"`
	// Time is in simulated seconds since the simulation began.
	Time float64 `json:"time"`
	What string  `json:"what"`
}

// NodeVerdict is the final state of a node.
type NodeVerdict struct {
	Role string `json:"role"`
	// Talos and Kubelet are versions without v, those of the last boot while the node is down.
	Talos   string `json:"talos"`
	Kubelet string `json:"kubelet"`
	// Kubernetes is the lowest version of its components, Configs counts the
	// machine configurations that our client applied.
	Kubernetes string `json:"kubernetes"`
	Configs    int    `json:"configs"`
	// Schematic is empty for a system that was not built by a factory.
	Schematic string `json:"schematic"`
	// Installs counts installers that succeeded, Reboots the kernels started
	// since the node joined.
	Installs int    `json:"installs"`
	Reboots  int    `json:"reboots"`
	BootID   string `json:"boot_id"`
	Cordoned bool   `json:"cordoned"`
}

// Verdict is the judgement of a history.
type Verdict struct {
	// Violations is empty, and not null in JSON, if there are none.
	Violations []Violation `json:"violations"`
	// Nodes are by name.
	Nodes map[string]NodeVerdict `json:"nodes"`
}

// Violations returns the broken invariants so far, in order; empty if there are none.
func (c *Checker) Violations() []Violation {
	return append([]Violation{}, c.violations...)
}

// Nodes returns the nodes of the cluster by name.
func (c *Checker) Nodes() map[string]NodeVerdict {
	nodes := make(map[string]NodeVerdict, len(c.nodes))

	for _, n := range c.all() {
		nodes[n.name] = NodeVerdict{
			Role: n.role, Talos: n.talos, Kubelet: n.runs(kubelet), Kubernetes: c.lowest(n), Configs: n.configs, Schematic: n.schematic,
			Installs: n.installs, Reboots: n.reboots, BootID: n.bootID, Cordoned: n.cordonedBy != "",
		}
	}

	return nodes
}

// lowest returns the lowest version of the components of a node that count.
func (c *Checker) lowest(n *node) string {
	lowest := version.Lowest(c.counted(n)...)
	if lowest.IsZero() {
		return ""
	}

	return lowest.String()
}

// Verdict returns the judgement so far.
func (c *Checker) Verdict() Verdict {
	return Verdict{Violations: c.Violations(), Nodes: c.Nodes()}
}

// Broken returns the invariants that were violated, each once, sorted by name.
func (v Verdict) Broken() []Invariant {
	var broken []Invariant

	for _, violation := range v.Violations {
		if !slices.Contains(broken, violation.Invariant) {
			broken = append(broken, violation.Invariant)
		}
	}

	slices.Sort(broken)

	return broken
}
