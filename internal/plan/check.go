// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Attributes that findings point at.
const (
	attributeTalos        = "talos_version"
	attributeKubernetes   = "kubernetes_version"
	attributeImage        = "installer_image"
	attributeDrain        = "drain"
	attributeKubernetesOf = "kubernetes"
	attributeOverrides    = "node_overrides"
	attributeCanary       = "canary"
	attributeIntermediate = "intermediate_versions"
)

// Fields of one entry of node_overrides.
const (
	fieldImage = cluster.Field("installer_image")
	fieldHold  = cluster.Field("hold")
)

// imageField leads from the attribute kubernetes to the image of a component.
func imageField(component cluster.Component) []cluster.Within {
	field := cluster.Field(component)

	switch component {
	case cluster.APIServer:
		field = "api_server"
	case cluster.ControllerManager:
		field = "controller_manager"
	case cluster.Scheduler:
		field = "scheduler"
	case cluster.Proxy:
		field = "proxy"
	case cluster.Kubelet, cluster.Manifests:
	}

	return []cluster.Within{cluster.Field("images"), field}
}

// adminRole may upgrade; no other role of Talos may.
const adminRole = "os:admin"

// checkInventory names what could not be observed or does not add up.
func (p *planner) checkInventory() {
	snapshot := &p.snapshot

	if snapshot.KubernetesError != nil {
		p.find(cluster.Finding{
			Check: cluster.CheckKubernetesAPI, Severity: cluster.Observed, Err: snapshot.KubernetesError,
			Found:  "the Kubernetes API did not answer: " + snapshot.KubernetesError.Error(),
			Remedy: "Make the Kubernetes API answer and apply again: without it nothing can be cordoned, drained or recorded.",
		})
	}

	if snapshot.DiscoveryError != nil && snapshot.KubernetesError == nil {
		p.find(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Advice, Unknown: true, Err: snapshot.DiscoveryError,
			Found:  "discovery did not list the members, so only nodes that are registered in Kubernetes are known: " + snapshot.DiscoveryError.Error(),
			Remedy: "Look at discovery (talosctl get members, cluster.discovery in the machine configurations): a machine that is in neither list is not upgraded.",
		})
	}

	// There is one in every cluster. Where none is known, to find nothing to do would
	// say that all is done.
	if !slices.ContainsFunc(p.nodes, func(node subject) bool { return node.Role == cluster.ControlPlane }) {
		p.find(cluster.Finding{
			Check: cluster.CheckEtcdMembers, Severity: cluster.Observed,
			Found:  "no control plane was found: neither discovery nor Kubernetes lists one that is there",
			Remedy: "Check that the endpoints belong to this cluster and that its control planes are listed (talosctl get members, kubectl get nodes).",
		})
	}

	if len(snapshot.Foreign) > 0 {
		p.find(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Advice,
			Found:  "not running Talos and left alone: " + listed(snapshot.Foreign),
			Remedy: "Upgrade them with the tools of their own system; nothing here waits for them.",
		})
	}

	for i := range snapshot.Nodes {
		switch node := &snapshot.Nodes[i]; {
		case node.Left():
			p.find(cluster.Finding{
				Check: cluster.CheckNodesReady, Severity: cluster.Advice, Node: node.Name, Err: node.Unreachable,
				Found: fmt.Sprintf("discovery still lists this worker, but it has no Node object in Kubernetes and its Talos API at %s does not answer; it is taken for removed and left alone",
					node.Address),
				Remedy: "Do nothing if it was removed: discovery forgets it within 30 minutes. Otherwise bring the machine back, and it is upgraded with the others.",
			})
		case node.Gone:
			p.find(cluster.Finding{
				Check: cluster.CheckNodesReady, Severity: cluster.Advice, Node: node.Name,
				Found:  "the node is registered but gone: NotReady for more than 5 minutes and unknown to discovery; it is left alone",
				Remedy: "Delete its Node object if it does not come back.",
			})
		}
	}

	for i := range p.nodes {
		p.checkPresence(&p.nodes[i])
	}
}

// checkPresence wants an answer from every node, except one that an earlier
// run may have sent into a reboot, and a worker that is to be left alone.
func (p *planner) checkPresence(node *subject) {
	switch {
	case node.open && !p.target.Talos.IsZero(), node.held && node.Role == cluster.Worker:
		return
	case cluster.Unaccepted(node.Unreachable) != "":
		p.find(Unaccepted(*node.Node))
	case node.Machine == nil:
		p.find(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Node: node.Name, Err: node.Unreachable,
			Found:  fmt.Sprintf("the Talos API of this %s at %s did not answer: %v", roleName(node.Role), node.Address, node.Unreachable),
			Remedy: "Bring the node back, or remove it from the cluster.",
		})
	case node.Machine.TalosTag != "" && !node.held:
		p.find(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Permanent, Node: node.Name,
			Found: fmt.Sprintf("this %s at %s runs Talos %q, which is not a semantic version, so that nobody can tell whether it is older or newer than others",
				roleName(node.Role), node.Address, node.Machine.TalosTag),
			Remedy: fmt.Sprintf("Upgrade it as its vendor says, and leave it alone here: node_overrides = { %q = { hold = true } }.", node.Name),
		})
	case node.Machine.Talos.IsZero() && !node.held:
		p.find(cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Unknown: true, Node: node.Name,
			Found:  fmt.Sprintf("this %s at %s does not say which version of Talos it runs", roleName(node.Role), node.Address),
			Remedy: "Check the node (talosctl version), or remove it from the cluster.",
		})
	case node.Kube == nil && p.snapshot.KubernetesError == nil:
		p.find(cluster.Finding{
			Check: cluster.CheckNodesReady, Severity: cluster.Observed, Node: node.Name,
			Found:  "discovery lists the machine, but it has no Node object in Kubernetes",
			Remedy: "Let it join, or take it out of the cluster.",
		})
	}
}

// Unaccepted is the finding about a node that does not accept the credentials. It
// says the same of every node, so that people are told once.
func Unaccepted(node cluster.Node) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Node: node.Name, Err: node.Unreachable,
		Found:  "its Talos API does not accept the credentials: " + cluster.Unaccepted(node.Unreachable),
		Remedy: "Use a talosconfig of this cluster, and renew its certificate if it expired; waiting does not help.",
	}
}

// roleName is the role as people write it.
func roleName(role cluster.Role) string {
	if role == cluster.ControlPlane {
		return "control plane"
	}

	return "worker"
}
