// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkManifests looks at what a sync of the bootstrap manifests would do, and
// says why there is none where one is missed.
func (p *planner) checkManifests() {
	if slices.ContainsFunc(p.made.Steps, func(s Step) bool { return s.Component == cluster.Manifests }) {
		p.checkProxyDisabled()
		p.checkProxyBack()

		return
	}

	p.checkUnrendered()
	p.checkPodsBehind()
}

// checkUnrendered says that the manifests are left as they are because nobody may
// render them.
func (p *planner) checkUnrendered() {
	wanted := p.policy.Kubernetes.Manifests.Sync && (len(p.made.Steps) > 0 || p.manifestsDue())
	if p.syncs || !wanted {
		return
	}

	p.find(cluster.Finding{
		Check: cluster.CheckManifests, Severity: cluster.Advice, Attribute: attributeOverrides,
		Found:  "the bootstrap manifests are not synced, because every control plane is held and none of them may render them",
		Remedy: "Take the hold from a control plane and apply, so that kube-proxy and CoreDNS follow.",
	})
}

// checkPodsBehind says that pods of kube-proxy are behind the target, where nobody
// waits for them and nothing else is to be done.
func (p *planner) checkPodsBehind() {
	if p.waitsForPods() || p.target.Kubernetes.IsZero() || len(p.made.Steps) > 0 {
		return
	}

	behind := p.lagging(p.target.Kubernetes)
	if len(behind) == 0 {
		return
	}

	p.find(cluster.Finding{
		Check: cluster.CheckManifests, Severity: cluster.Advice, Attribute: attributeKubernetesOf, Within: []cluster.Within{cluster.Field("manifests"), cluster.Field("timeout")},
		Found:  fmt.Sprintf("the pods of kube-proxy are behind %s on %s, and no sync of the bootstrap manifests waits for them", p.target.Kubernetes, listed(behind)),
		Remedy: "Look at kubectl -n kube-system rollout status daemonset kube-proxy. With another kubernetes.manifests.timeout than 0 an apply syncs once more and waits.",
	})
}

// checkProxyDisabled wants the control planes to agree on whether there is a
// kube-proxy: what they render is one set of objects for the cluster.
func (p *planner) checkProxyDisabled() {
	var without, with []string

	for i := range p.nodes {
		node := &p.nodes[i]

		switch {
		case node.held, node.Role != cluster.ControlPlane, node.Machine == nil, node.Machine.Config == nil:
		case disables(node.Node, cluster.Proxy):
			without = append(without, node.Name)
		default:
			with = append(with, node.Name)
		}
	}

	if len(without) == 0 || len(with) == 0 {
		return
	}

	p.find(cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Observed,
		Found: fmt.Sprintf("kube-proxy is disabled in the machine configuration of %s and not in that of %s, so what a sync of the bootstrap manifests does to it depends on who renders them",
			listed(without), listed(with)),
		Remedy: "Make the configurations agree (" + p.proxySwitch() + "), or set kubernetes.manifests.sync = false.",
	})
}

// checkProxyBack refuses a sync of the manifests that would take kube-proxy back
// to what a control plane still names when all steps are done.
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
		// What is ahead is refused in any case.
		return
	}

	for i := range p.nodes {
		node := &p.nodes[i]

		t := node.proxy()
		if t == nil || node.held || node.Role != cluster.ControlPlane || p.missesImages(node.Name) {
			continue
		}

		if found := p.rendersOther(node, t, pods, named); found != "" {
			p.find(cluster.Finding{
				Check: cluster.CheckComponentImages, Severity: cluster.Observed, Node: node.Name, Found: found,
				Remedy: fmt.Sprintf("Bring it up: talosctl -n %s patch machineconfig %s. Or set kubernetes.manifests.sync = false.", node.Address, proxyPatch(node, t, highest)),
			})
		}
	}
}

// missesImages tells whether it was said already that the configuration of the
// node does not tell what it should.
func (p *planner) missesImages(node string) bool {
	return slices.ContainsFunc(p.made.Findings, func(f cluster.Finding) bool {
		return f.Check == cluster.CheckComponentImages && f.Severity != cluster.Advice && f.Node == node
	})
}

// rendersOther says in which way a control plane renders another kube-proxy than
// it should, given the highest version that runs and that any of them names; empty
// where it does not.
func (p *planner) rendersOther(node *subject, t *part, pods, named version.Version) string {
	switch {
	case node.Machine == nil || node.Machine.Config == nil:
		return ""
	case t.image == "":
		// Nothing tells its patch; the release line comes with Talos. What is newer
		// is right where the API server follows Talos too, or is there already.
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

// proxyPatch has a machine configuration name kube-proxy in the version, from the
// repository that it comes from.
func proxyPatch(node *subject, t *part, to version.Version) string {
	reference := image.DefaultComponent(string(cluster.Proxy)) + ":" + to.Tag()
	if choice, err := image.Component(t.image, "", string(cluster.Proxy), to); err == nil {
		reference = choice.Reference
	}

	return patchOf(node, map[cluster.Component]string{cluster.Proxy: reference})
}

// proxySwitch is where the machine configurations of the control planes that are
// not held say whether there is a kube-proxy.
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
