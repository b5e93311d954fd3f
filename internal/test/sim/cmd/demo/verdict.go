// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// verdict is the judgement of the simulator.
type verdict struct {
	Violations []violation     `json:"violations"`
	Nodes      map[string]fate `json:"nodes"`
}

type violation struct {
	Invariant string `json:"invariant"`
	Node      string `json:"node"`
	Time      any    `json:"time"`
	What      string `json:"what"`
}

// fate is the final state of a node.
type fate struct {
	Talos    string `json:"talos"`
	Installs int    `json:"installs"`
	Reboots  int    `json:"reboots"`
	Cordoned bool   `json:"cordoned"`
}

// complaints returns how the verdict differs from that of a cluster whose nodes came to the given fates, with no
// cordon left and no invariant violated.
func (v verdict) complaints(want map[string]fate) []string {
	var complaints []string

	for _, broken := range v.Violations {
		complaints = append(complaints, fmt.Sprintf("invariant %s was violated on %s at %v: %s",
			broken.Invariant, orCluster(broken.Node), broken.Time, broken.What))
	}

	if len(v.Nodes) != len(want) {
		complaints = append(complaints, fmt.Sprintf("the simulator knows %d nodes instead of %d", len(v.Nodes), len(want)))
	}

	for _, name := range slices.Sorted(maps.Keys(v.Nodes)) {
		node, wanted := v.Nodes[name], want[name]

		if node.Talos != wanted.Talos {
			complaints = append(complaints, fmt.Sprintf("%s runs Talos %s instead of %s", name, node.Talos, wanted.Talos))
		}

		if node.Cordoned {
			complaints = append(complaints, name+" was left cordoned")
		}

		if node.Installs != wanted.Installs || node.Reboots != wanted.Reboots {
			complaints = append(complaints, fmt.Sprintf("%s was installed %d times and rebooted %d times instead of %d and %d",
				name, node.Installs, node.Reboots, wanted.Installs, wanted.Reboots))
		}
	}

	return complaints
}

// standing returns which nodes were touched and what they run, and whether a cordon is left.
func (v verdict) standing() string {
	versions, untouched, cordoned := map[string][]string{}, []string{}, "none"

	for _, name := range slices.Sorted(maps.Keys(v.Nodes)) {
		node := v.Nodes[name]

		if node.Cordoned {
			cordoned = name
		}

		if node.Installs+node.Reboots == 0 {
			untouched = append(untouched, name)
		} else {
			versions[node.Talos] = append(versions[node.Talos], name)
		}
	}

	var parts []string
	for _, talos := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
		parts = append(parts, "Talos "+talos+" on "+strings.Join(versions[talos], ", "))
	}

	if len(untouched) > 0 {
		parts = append(parts, strings.Join(untouched, ", ")+" not begun")
	}

	return strings.Join(append(parts, cordoned+" cordoned"), "; ")
}

func orCluster(node string) string {
	if node == "" {
		return "the cluster"
	}

	return node
}

// announced returns how the published annotations differ from saying that all nodes run the target.
func announced(annotations map[string]string, target string, size int) []string {
	wanted := map[string]string{
		annotationPrefix + "talos-status":   "completed",
		annotationPrefix + "talos-current":  target,
		annotationPrefix + "talos-progress": fmt.Sprintf("%d/%d", size, size),
	}

	var complaints []string

	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if annotations[key] != wanted[key] {
			complaints = append(complaints, fmt.Sprintf("annotation %s is %q instead of %q", key, annotations[key], wanted[key]))
		}
	}

	return complaints
}
