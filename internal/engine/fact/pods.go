// SPDX-License-Identifier: MPL-2.0

package fact

import (
	"fmt"
	"maps"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// PodsByNode are pods by the names of their nodes. It must not be changed, because many observations share it.
type PodsByNode map[string]map[cluster.Component]cluster.ComponentPod

// AddPods sets the pods of each node. Nodes that have only pods of kube-proxy, as most have, share the maps of
// proxies.
func AddPods(nodes []cluster.Node, pods []cluster.ComponentPod, proxies PodsByNode) {
	own := PodsByNode{}

	for _, pod := range pods {
		if own[pod.Node] == nil {
			own[pod.Node] = map[cluster.Component]cluster.ComponentPod{}
			maps.Copy(own[pod.Node], proxies[pod.Node])
		}

		own[pod.Node][pod.Component] = pod
	}

	for index := range nodes {
		node := &nodes[index]
		if node.Pods = own[node.Name]; node.Pods == nil {
			node.Pods = proxies[node.Name]
		}
	}
}

// AddVersions derives the running component versions from what the kubelets report and from the images of the
// component pods. Workers that run the same versions share a map.
func AddVersions(nodes []cluster.Node) {
	type running struct {
		kubelet version.Version
		proxy   string
	}

	shared := map[running]map[cluster.Component]version.Version{}

	for index := range nodes {
		node := &nodes[index]
		runs := running{proxy: node.Pods[cluster.Proxy].Image}

		if node.Kube != nil {
			runs.kubelet = node.Kube.Kubelet
		}

		worker := len(node.Pods) == 0 || len(node.Pods) == 1 && runs.proxy != ""
		if node.Versions = shared[runs]; worker && node.Versions != nil {
			continue
		}

		node.Versions = map[cluster.Component]version.Version{}
		if !runs.kubelet.IsZero() {
			node.Versions[cluster.Kubelet] = runs.kubelet
		}

		for component, pod := range node.Pods {
			if found := image.Version(pod.Image); !found.IsZero() {
				node.Versions[component] = found
			}
		}

		if worker {
			shared[runs] = node.Versions
		}
	}
}

// Fill sets the fields of a node that follow from what its machine reported.
func Fill(node *cluster.Node, machine cluster.Machine) {
	node.Machine = &machine
	pods := node.Pods

	for component, pod := range pods {
		if why := Outdated(machine, pod); why != "" {
			pod.Ready, pod.Outdated, pod.Trouble = false, true, why

			// Other nodes may share the map.
			node.Pods = maps.Clone(node.Pods)
			node.Pods[component] = pod
		}
	}

	if machine.Role != "" {
		node.Role = machine.Role
	}

	if node.Kube == nil && machine.NodeName != "" {
		node.Name = machine.NodeName
	}
}

// Why Kubernetes does not show a static pod as it is.
const (
	earlierPod  = "Kubernetes shows it as it was before the boot"
	replacedPod = "its node has made it anew, and Kubernetes shows the one before"
)

// Outdated says why Kubernetes does not show a static pod as its node runs it, or soon will not; empty if it
// does. After a boot, the mirror pod still describes the container from before. Both times are by the node's
// clock, and Kubernetes truncates them to seconds. The API server is recreated with each version of its files,
// which the node knows before the kubelet does.
func Outdated(machine cluster.Machine, pod cluster.ComponentPod) string {
	switch {
	case !pod.Component.Static():
		return ""
	case !pod.Started.IsZero() && pod.Started.Before(machine.PodsSince.Truncate(time.Second)):
		return earlierPod
	case pod.Component == cluster.APIServer && pod.FilesVersion != "" && machine.FilesVersion != "" && pod.FilesVersion != machine.FilesVersion:
		return replacedPod
	default:
		return ""
	}
}

// Unready says what is wrong with a static pod of a machine; empty if it is Ready and is what the machine runs.
func Unready(machine cluster.Machine, pod cluster.ComponentPod) string {
	why := Outdated(machine, pod)

	switch {
	case why != "":
		return fmt.Sprintf("its %s: %s", pod.Component, why)
	case !pod.Ready:
		return fmt.Sprintf("its %s is not Ready%s", pod.Component, Troubled(pod))
	default:
		return ""
	}
}

// Troubled returns the trouble of a pod in brackets, after a space; empty if it has none.
func Troubled(pod cluster.ComponentPod) string {
	if pod.Trouble == "" {
		return ""
	}

	return " (" + pod.Trouble + ")"
}
