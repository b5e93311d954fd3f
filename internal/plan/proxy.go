// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// disables tells whether the machine configuration of the node, as far as it can
// be read, switches the component off.
func disables(node *cluster.Node, component cluster.Component) bool {
	return node.Machine != nil && node.Machine.Config != nil && node.Machine.Config.Disabled[component]
}

// proxyPod is the version of the node's kube-proxy pod, as far as it counts: the
// sync of the manifests moves it, and nothing else does.
func (p *planner) proxyPod(node *cluster.Node) version.Version {
	if !p.syncs || p.proxyless || disables(node, cluster.Proxy) {
		return version.Version{}
	}

	return node.Versions[cluster.Proxy]
}

// allHeld tells whether there are control planes and the policy leaves each of
// them alone: then none may render anything.
func allHeld(snapshot cluster.Snapshot, policy cluster.Policy) bool {
	held := false

	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if node.Gone || node.Role != cluster.ControlPlane {
			continue
		}

		if !policy.Holds(node.Name) {
			return false
		}

		held = true
	}

	return held
}

// withoutProxy tells whether Talos manages kube-proxy nowhere: no control plane
// that could be asked and may be renders it.
func withoutProxy(snapshot cluster.Snapshot, policy cluster.Policy) bool {
	disabled, nobody := false, allHeld(snapshot, policy)

	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if node.Gone || node.Role != cluster.ControlPlane || node.Machine == nil || node.Machine.Config == nil {
			continue
		}

		switch {
		case policy.Holds(node.Name) && !nobody:
		case disables(node, cluster.Proxy):
			disabled = true
		default:
			return false
		}
	}

	return disabled
}

// namedProxy is the lowest version of kube-proxy that a machine configuration
// names, and with that what the next sync brings at least.
func (p *planner) namedProxy() version.Version {
	var named version.Version

	for i := range p.nodes {
		if node := &p.nodes[i]; !node.held {
			if t := node.proxy(); t != nil {
				named = version.Lowest(named, t.named)
			}
		}
	}

	return named
}

// proxy is the kube-proxy that the node decides about; nil where it does not.
func (s *subject) proxy() *part {
	at := slices.IndexFunc(s.parts, func(t part) bool { return t.component == cluster.Proxy })
	if at < 0 {
		return nil
	}

	return &s.parts[at]
}

// names tells whether the machine configuration names an image for the component.
func (s *subject) names(component cluster.Component) bool {
	return slices.ContainsFunc(s.parts, func(t part) bool { return t.component == component && t.image != "" })
}

// podFrom is where a pod of kube-proxy sets out from. Pods that were left several
// release lines behind follow what is named in one go: they need not be walked
// there.
func podFrom(pod, named version.Version) version.Version {
	if !named.IsZero() && pod.Minor().Next().Compare(named.Minor()) < 0 {
		return named
	}

	return pod
}

// podsLag tells whether a kube-proxy pod is behind the version.
func (p *planner) podsLag(to version.Version) bool { return len(p.lagging(to)) > 0 }

// takesPods tells whether a pod can be replaced on the node: it is Ready, or is
// once its turn of Talos is over.
func (p *planner) takesPods(node *subject) bool {
	rebooted := func(s Step) bool { return s.Component == "" && s.Node == node.Name }

	return node.Kube != nil && (node.Kube.Ready || slices.ContainsFunc(p.made.Steps, rebooted))
}

// lagging are the nodes whose kube-proxy pods are behind the version.
func (p *planner) lagging(to version.Version) []string {
	var names []string

	for i := range p.nodes {
		node := &p.nodes[i]
		if pod := version.Highest(node.pod, p.synced); !node.held && !node.pod.IsZero() && p.lags(pod, to) && p.takesPods(node) {
			names = append(names, node.Name)
		}
	}

	return names
}
