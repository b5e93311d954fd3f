// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
)

// verdict is what the simulator says about what happened to it.
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

// fate is what became of a node.
type fate struct {
	Talos    string `json:"talos"`
	Kubelet  string `json:"kubelet"`
	Installs int    `json:"installs"`
	Reboots  int    `json:"reboots"`
	Cordoned bool   `json:"cordoned"`
}

// complaints are the ways in which the verdict is not that of a cluster of the
// given size whose nodes were each upgraded to the target once.
func (v verdict) complaints(target string, size int) []string {
	var complaints []string

	for _, broken := range v.Violations {
		complaints = append(complaints, fmt.Sprintf("invariant %s was violated on %s at %v: %s",
			broken.Invariant, orCluster(broken.Node), broken.Time, broken.What))
	}

	if len(v.Nodes) != size {
		complaints = append(complaints, fmt.Sprintf("the simulator knows %d nodes instead of %d", len(v.Nodes), size))
	}

	for _, name := range slices.Sorted(maps.Keys(v.Nodes)) {
		node := v.Nodes[name]

		if node.Talos != target {
			complaints = append(complaints, fmt.Sprintf("%s runs Talos %s instead of %s", name, node.Talos, target))
		}

		if node.Cordoned {
			complaints = append(complaints, name+" was left cordoned")
		}

		if node.Installs != 1 || node.Reboots != 1 {
			complaints = append(complaints, fmt.Sprintf("%s was installed %d times and rebooted %d times instead of once",
				name, node.Installs, node.Reboots))
		}
	}

	return complaints
}

func orCluster(node string) string {
	if node == "" {
		return "the cluster"
	}

	return node
}

// announced are the ways in which the published annotations do not say that
// all nodes run the target.
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
