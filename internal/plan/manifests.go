// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// proxyPod returns the version of the node's kube-proxy pod; zero if it does not count. Only a sync of the
// manifests moves it.
func (p *planner) proxyPod(node *cluster.Node) version.Version {
	if !p.syncs || p.proxyless || health.Disables(*node, cluster.Proxy) {
		return version.Version{}
	}

	return node.Versions[cluster.Proxy]
}

// allHeld reports whether there are control planes and the policy holds all of them: then none may render
// manifests.
func allHeld(observed cluster.Observation, policy cluster.Policy) bool {
	held := false

	for i := range observed.Nodes {
		node := &observed.Nodes[i]
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

// withoutProxy reports whether Talos does not manage kube-proxy: at least one configuration of a control plane
// could be read, and each of them disables it. Held control planes count only if all are held.
func withoutProxy(observed cluster.Observation, policy cluster.Policy) bool {
	disabled, nobody := false, allHeld(observed, policy)

	for i := range observed.Nodes {
		node := &observed.Nodes[i]
		if node.Gone || node.Role != cluster.ControlPlane || node.Machine == nil || node.Machine.Config == nil {
			continue
		}

		switch {
		case policy.Holds(node.Name) && !nobody:
		case health.Disables(*node, cluster.Proxy):
			disabled = true
		default:
			return false
		}
	}

	return disabled
}

// namedProxy returns the lowest version of kube-proxy that a machine configuration names, which is the least that
// the next sync applies.
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

// proxy returns the kube-proxy that the configuration of the node controls; nil if it controls none.
func (s *plannedNode) proxy() *componentState {
	at := slices.IndexFunc(s.parts, func(t componentState) bool { return t.component == cluster.Proxy })
	if at < 0 {
		return nil
	}

	return &s.parts[at]
}

// names reports whether the machine configuration names an image for the component.
func (s *plannedNode) names(component cluster.Component) bool {
	return slices.ContainsFunc(s.parts, func(t componentState) bool { return t.component == component && t.image != "" })
}

// podFrom returns the version from which a pod of kube-proxy starts. A pod several minor versions behind follows
// what is named in one go, so no hops are needed for it.
func podFrom(pod, named version.Version) version.Version {
	if !named.IsZero() && pod.Minor().Next().Compare(named.Minor()) < 0 {
		return named
	}

	return pod
}

// podsLag reports whether a kube-proxy pod is behind the version.
func (p *planner) podsLag(to version.Version) bool { return len(p.lagging(to)) > 0 }

// takesPods reports whether a pod can be replaced on the node: it is Ready, or will be once its step of Talos is
// done.
func (p *planner) takesPods(node *plannedNode) bool {
	rebooted := func(s Step) bool { return s.Component == "" && s.Node == node.Name }

	return node.Kube != nil && (node.Kube.Ready || slices.ContainsFunc(p.made.Steps, rebooted))
}

// lagging returns the nodes whose kube-proxy pods are behind the version.
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

// scheduleManifests adds a sync of the bootstrap manifests at the end of a hop: after each hop of Kubernetes that
// leaves pods of kube-proxy behind, because they must not fall further behind the kubelets, and at the end of the
// path, because Talos has manifests of its own.
func (p *planner) scheduleManifests(index int, hop Hop) {
	if !p.syncs {
		return
	}

	moves := hop.Product == version.Kubernetes && p.podsLag(hop.To.Kubernetes)
	ends := index == len(p.made.Hops)-1 && len(p.made.Steps) > 0

	if moves || ends {
		p.syncManifests(index, hop)
	}
}

// waitsForPods reports whether a sync waits until its changes are rolled out.
func (p *planner) waitsForPods() bool { return p.policy.Kubernetes.Manifests.Timeout > 0 }

// manifestsDue reports whether an earlier run left a sync to do.
func (p *planner) manifestsDue() bool {
	return p.snapshot.Journal != nil && p.snapshot.Journal.Manifests != nil
}

// dropSync removes syncs that are needed only for pods of kube-proxy if nothing waits for the pods: every apply
// would repeat them until the pods have followed.
func (p *planner) dropSync() {
	moves := func(s Step) bool { return s.Component != cluster.Manifests }
	if p.waitsForPods() || p.manifestsDue() || len(p.made.Steps) == 0 || slices.ContainsFunc(p.made.Steps, moves) {
		return
	}

	p.made.Steps, p.synced = nil, version.Version{}
	p.made.Hops = slices.DeleteFunc(p.made.Hops, p.onlyForPods)
}

// syncManifests adds the step. If the previous step is a sync too, it is replaced by this one.
func (p *planner) syncManifests(index int, hop Hop) {
	step := Step{
		Hop: index, Component: cluster.Manifests, Estimate: manifestsEstimate,
		From: hop.From.Kubernetes, To: hop.To.Kubernetes,
	}

	if last := len(p.made.Steps) - 1; last >= 0 && p.made.Steps[last].Component == cluster.Manifests {
		step.From = p.made.Steps[last].From
		p.made.Steps = p.made.Steps[:last]
	}

	p.made.Steps = append(p.made.Steps, step)
	p.synced = version.Highest(p.synced, hop.To.Kubernetes)
}

// scheduleSync adds a sync of the manifests if there is nothing else to do: one that an earlier run left, or one
// that only kube-proxy needs.
func (p *planner) scheduleSync() {
	if len(p.made.Steps) > 0 || p.blocked || !p.syncs {
		return
	}

	if !p.manifestsDue() && (p.target.Kubernetes.IsZero() || !p.podsLag(p.target.Kubernetes)) {
		return
	}

	hop := Hop{Product: version.Kubernetes, From: p.start, To: p.start}
	if hops := p.made.Hops; len(hops) > 0 {
		hop = hops[len(hops)-1]
	} else {
		p.made.Hops = []Hop{hop}
	}

	p.syncManifests(len(p.made.Hops)-1, hop)
}

// addImageHop adds a hop without a change of version if components only get images from another repository.
func (p *planner) addImageHop() {
	if p.target.Kubernetes.IsZero() || p.start.Kubernetes.IsZero() || slices.ContainsFunc(p.made.Hops, func(h Hop) bool { return h.Product == version.Kubernetes }) {
		return
	}

	wanting := slices.ContainsFunc(p.nodes, func(node plannedNode) bool {
		return !node.held && slices.ContainsFunc(node.parts, func(t componentState) bool { return p.demandsImage(&node, &t) })
	})
	if !wanting {
		return
	}

	at := p.start
	if hops := p.made.Hops; len(hops) > 0 {
		at = hops[len(hops)-1].To
	}

	p.made.Hops = append(p.made.Hops, Hop{Product: version.Kubernetes, From: at, To: at})
}

// checkManifests checks what a sync of the bootstrap manifests would do, or says why there is none although one
// is needed.
func (p *planner) checkManifests() {
	if slices.ContainsFunc(p.made.Steps, func(s Step) bool { return s.Component == cluster.Manifests }) {
		p.checkProxyDisabled()
		p.checkProxyBack()

		return
	}

	p.checkUnrendered()
	p.checkPodsBehind()
}

// checkUnrendered reports that the manifests are not synced because every control plane is held.
func (p *planner) checkUnrendered() {
	wanted := p.policy.Kubernetes.Manifests.Sync && (len(p.made.Steps) > 0 || p.manifestsDue())
	if p.syncs || !wanted {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckManifests, Severity: cluster.Advice, Attribute: attributeOverrides,
		Found:  "the bootstrap manifests are not synced, because every control plane is held and none of them may render them",
		Remedy: "Take the hold from a control plane and apply, so that kube-proxy and CoreDNS follow.",
	})
}

// checkPodsBehind reports pods of kube-proxy that are behind the target if no sync waits for them and there is
// nothing else to do.
func (p *planner) checkPodsBehind() {
	if p.waitsForPods() || p.target.Kubernetes.IsZero() || len(p.made.Steps) > 0 {
		return
	}

	behind := p.lagging(p.target.Kubernetes)
	if len(behind) == 0 {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckManifests, Severity: cluster.Advice, Attribute: attributeKubernetesOf, Within: []cluster.Within{cluster.Field("manifests"), cluster.Field("timeout")},
		Found:  fmt.Sprintf("the pods of kube-proxy are behind %s on %s, and no sync of the bootstrap manifests waits for them", p.target.Kubernetes, readable.List(behind)),
		Remedy: "Look at kubectl -n kube-system rollout status daemonset kube-proxy. With another kubernetes.manifests.timeout than 0 an apply syncs once more and waits.",
	})
}

// checkProxyDisabled requires the control planes to agree on whether there is a kube-proxy: they render one set
// of objects for the cluster.
func (p *planner) checkProxyDisabled() {
	var without, with []string

	for i := range p.nodes {
		node := &p.nodes[i]

		switch {
		case node.held, node.Role != cluster.ControlPlane, node.Machine == nil, node.Machine.Config == nil:
		case health.Disables(*node.Node, cluster.Proxy):
			without = append(without, node.Name)
		default:
			with = append(with, node.Name)
		}
	}

	if len(without) == 0 || len(with) == 0 {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Observed,
		Found: fmt.Sprintf("kube-proxy is disabled in the machine configuration of %s and not in that of %s, so what a sync of the bootstrap manifests does to it depends on who renders them",
			readable.List(without), readable.List(with)),
		Remedy: "Make the configurations agree (" + p.proxySwitch() + "), or set kubernetes.manifests.sync = false.",
	})
}

// checkProxyBack refuses a sync of the manifests that would take kube-proxy back to a version that a control
// plane still names when all steps are done.
func (p *planner) checkProxyBack() {
	var pods, named version.Version

	for i := range p.nodes {
		node := &p.nodes[i]
		pods = version.Highest(pods, node.pod)

		if t := node.proxy(); t != nil && !node.held {
			named = version.Highest(named, t.named)
		}
	}

	highest := version.Highest(pods, named)
	if !p.target.Kubernetes.IsZero() && highest.Compare(p.target.Kubernetes) > 0 {
		// A component that is ahead is refused in any case.
		return
	}

	for i := range p.nodes {
		node := &p.nodes[i]

		t := node.proxy()
		if t == nil || node.held || node.Role != cluster.ControlPlane || p.missesImages(node.Name) {
			continue
		}

		if found := p.rendersOther(node, t, pods, named); found != "" {
			p.add(cluster.Finding{
				Check: cluster.CheckComponentImages, Severity: cluster.Observed, Node: node.Name, Found: found,
				Remedy: fmt.Sprintf("Bring it up: talosctl -n %s patch machineconfig %s. Or set kubernetes.manifests.sync = false.", node.Address, proxyPatch(node, t, highest)),
			})
		}
	}
}

// missesImages reports whether there is already a finding about the images in the configuration of the node.
func (p *planner) missesImages(node string) bool {
	return slices.ContainsFunc(p.made.Findings, func(f cluster.Finding) bool {
		return f.Check == cluster.CheckComponentImages && f.Severity != cluster.Advice && f.Node == node
	})
}

// rendersOther says how a control plane renders another kube-proxy than it should, given the highest version that
// runs and the highest that any configuration names; empty if it does not.
func (p *planner) rendersOther(node *plannedNode, t *componentState, pods, named version.Version) string {
	switch {
	case node.Machine == nil || node.Machine.Config == nil:
		return ""
	case t.image == "":
		// Only the minor version of the default is known; it depends on Talos. A newer one is correct if the API
		// server follows Talos too, or runs that version already.
		_, brings, err := compat.KubernetesMinors(node.talos.Minor())
		runs := version.Highest(pods, named)

		if err != nil || runs.IsZero() || brings.Compare(runs.Minor()) == 0 {
			return ""
		}

		if server := node.Versions[cluster.APIServer]; brings.Compare(runs.Minor()) > 0 &&
			(!node.names(cluster.APIServer) || server.Minor().Compare(brings) >= 0) {
			return ""
		}

		return fmt.Sprintf("the machine configuration names no image for kube-proxy, so a sync of the bootstrap manifests brings the default of Talos %s, which is of Kubernetes %s, in place of %s",
			node.talos, brings, runs)
	case t.named.IsZero():
		return ""
	case t.named.Less(pods):
		return fmt.Sprintf("the machine configuration names kube-proxy %s while %s runs, so a sync of the bootstrap manifests would take it back", t.named, pods)
	case t.named.Less(named):
		return fmt.Sprintf("the machine configuration names kube-proxy %s while other control planes name %s, so a sync of the bootstrap manifests may take it back", t.named, named)
	default:
		return ""
	}
}

// proxyPatch returns the arguments that set kube-proxy in a machine configuration to the version, from its
// present repository.
func proxyPatch(node *plannedNode, t *componentState, to version.Version) string {
	reference := image.DefaultComponent(string(cluster.Proxy)) + ":" + to.Tag()
	if choice, err := image.Component(t.image, "", string(cluster.Proxy), to); err == nil {
		reference = choice.Reference
	}

	return patchOf(node, map[cluster.Component]string{cluster.Proxy: reference})
}

// proxySwitch returns the fields of the machine configurations that say whether there is a kube-proxy, on control
// planes that are not held.
func (p *planner) proxySwitch() string {
	var found []string

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held || node.Role != cluster.ControlPlane || node.Machine == nil || node.Machine.Config == nil {
			continue
		}

		field := "cluster.proxy.disabled"
		if kind := node.Machine.Config.Documents[cluster.Proxy]; kind != "" {
			field = inDocument("enabled", kind)
		}

		if !slices.Contains(found, field) {
			found = append(found, field)
		}
	}

	return cmp.Or(strings.Join(found, ", "), "cluster.proxy.disabled")
}
