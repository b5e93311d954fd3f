// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// scheduleComponents adds the steps of the hop: one kind of component on all nodes, then the next. A step that
// only changes the repository of an image is part of the last hop of Kubernetes.
func (p *planner) scheduleComponents(index int, hop Hop, last bool) {
	ordered := p.componentNodes()
	to := hop.To.Kubernetes

	for _, component := range componentOrder() {
		for _, node := range ordered {
			at := slices.IndexFunc(node.parts, func(t componentState) bool { return t.component == component })
			if at < 0 {
				continue
			}

			part := &node.parts[at]
			from := part.lowest()

			// A component that is ahead of the target is refused, and gets no step for its image either.
			demanded := last && p.demandsImage(node, part) && version.Highest(part.running, part.named).Compare(to) <= 0

			if demanded || (!from.IsZero() && p.lags(from, to)) {
				p.made.Steps = append(p.made.Steps, p.componentStep(node, part, index, to))
				node.steps++
				node.restarts++
			}
		}
	}
}

// componentStep returns the step that moves the component to the end of the hop, and records the move.
func (p *planner) componentStep(node *plannedNode, t *componentState, index int, to version.Version) Step {
	step := Step{
		Hop: index, Component: t.component, Pool: node.poolName, Canary: node.canary && t.component == cluster.Kubelet, Estimate: componentEstimate(t.component, node.talos),
		Node: node.Name, Role: node.Role, Address: node.Address, Key: node.key, From: t.lowest(), To: to, Configured: t.image,
	}

	// If a node does not answer, or its configuration cannot be read, the image is not guessed.
	if node.Machine != nil && node.Machine.Config != nil {
		choice, err := image.Component(t.image, p.policy.Kubernetes.Images[t.component], string(t.component), to)
		if err != nil {
			p.checkComponentImage(node, t, err)
		}

		if choice.Digest != "" {
			node.digests = append(node.digests, t.component)
		}

		step.Image = choice.Reference
	}

	t.reaches(to, step.Image)

	return step
}

// lags reports whether a component with that version has a step in the hop to the other. An intermediate hop
// moves only components of older minor versions.
func (p *planner) lags(running, to version.Version) bool {
	if to.Equal(p.target.Kubernetes) {
		return running.Less(to)
	}

	return running.Minor().Compare(to.Minor()) < 0
}

// componentNodes returns the nodes in the order in which one kind of component moves: canaries, control planes,
// workers.
func (p *planner) componentNodes() []*plannedNode {
	ordered := make([]*plannedNode, 0, len(p.nodes))

	for i := range p.nodes {
		if node := &p.nodes[i]; !node.held && (node.Machine != nil || p.movable(node)) {
			ordered = append(ordered, node)
		}
	}

	slices.SortStableFunc(ordered, func(a, b *plannedNode) int {
		return cmp.Or(
			falseLast(a.canary, b.canary),
			falseLast(a.Role == cluster.ControlPlane, b.Role == cluster.ControlPlane),
			cmp.Compare(a.Name, b.Name),
		)
	})

	return ordered
}

// demandsImage reports whether the configuration sets another repository for the component than the machine
// configuration names.
func (p *planner) demandsImage(node *plannedNode, t *componentState) bool {
	wanted := p.policy.Kubernetes.Images[t.component]
	if wanted == "" || p.target.Kubernetes.IsZero() || node.Machine == nil || node.Machine.Config == nil {
		return false
	}

	if t.image == "" {
		return !image.SameRepository(image.DefaultComponent(string(t.component)), wanted)
	}

	return !image.SameRepository(t.image, wanted)
}

// checkComponentImage reports why no image can be chosen for a component.
func (p *planner) checkComponentImage(node *plannedNode, t *componentState, refused error) {
	override := p.policy.Kubernetes.Images[t.component]
	finding := cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Permanent, Attribute: attributeKubernetesOf, Within: imageField(t.component), Err: refused,
		Found:  refused.Error(),
		Remedy: "Name a registry, a path and a name, without a tag.",
	}

	// What a node names is at fault only if nothing overrides it.
	_, err := image.ParseRepository(override)
	if override == "" || err == nil {
		finding.Node = node.Name
		field := fieldOf(node.Machine, t.component)
		finding.Found = fmt.Sprintf("%s in the machine configuration: %s", field, finding.Found)
		finding.Remedy = fmt.Sprintf("Correct %s of this node (talosctl -n %s edit machineconfig), or set the repository here.", field, node.Address)
	}

	// A component has a step in each hop, and an override is for all nodes: report it once.
	said := func(f cluster.Finding) bool { return f.Node == finding.Node && slices.Equal(f.Within, finding.Within) }
	if !slices.ContainsFunc(p.made.Findings, said) {
		p.add(finding)
	}
}

// checkProxyImage refuses an image for kube-proxy if Talos does not manage kube-proxy.
func (p *planner) checkProxyImage() {
	if !p.proxyless || p.policy.Kubernetes.Images[cluster.Proxy] == "" {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Permanent, Attribute: attributeKubernetesOf, Within: imageField(cluster.Proxy),
		Found:  "kube-proxy is disabled in the machine configuration of every control plane" + p.thatIsNotHeld() + ", so this image would be used nowhere",
		Remedy: "Leave it out, or enable kube-proxy (" + p.proxySwitch() + ") first.",
	})
}

// thatIsNotHeld returns words that narrow "every control plane" if some of them are held.
func (p *planner) thatIsNotHeld() string {
	for i := range p.nodes {
		if node := &p.nodes[i]; node.held && node.Role == cluster.ControlPlane && !allHeld(p.snapshot, p.policy) {
			return " that is not held"
		}
	}

	return ""
}

// checkUnreported refuses to move Kubernetes past components whose version is unknown.
func (p *planner) checkUnreported() {
	if p.target.Kubernetes.IsZero() {
		return
	}

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held || node.Machine == nil {
			continue
		}

		var untold, paths, bare []string

		for j := range node.parts {
			t := &node.parts[j]
			if !node.unreported(t) {
				continue
			}

			named := "no image is named"
			if t.image != "" {
				named = "image " + t.image
			}

			untold = append(untold, fmt.Sprintf("%s (%s)", t.component, named))
			paths = append(paths, fieldOf(node.Machine, t.component))
			bare = append(bare, string(t.component))
		}

		if len(untold) == 0 {
			continue
		}

		if !node.read() {
			p.add(p.unread(node, bare))

			continue
		}

		p.add(cluster.Finding{
			Check: cluster.CheckComponentImages, Severity: cluster.Observed, Unknown: true, Node: node.Name,
			Found: fmt.Sprintf("the version of %s cannot be told, neither from what runs nor from the machine configuration, and nothing may overtake it unseen", strings.Join(untold, ", ")),
			Remedy: fmt.Sprintf("Name an image with a version tag in %s (talosctl -n %s edit machineconfig), or wait until it runs.",
				strings.Join(paths, ", "), node.Address),
		})
	}
}

// unread returns the finding about components of a node whose version is unknown because Kubernetes does not
// report it and the machine configuration cannot be read.
func (p *planner) unread(node *plannedNode, components []string) cluster.Finding {
	roles := "these credentials"
	if len(p.snapshot.Roles) > 0 {
		roles += " (" + readable.List(p.snapshot.Roles) + ")"
	}

	return cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Observed, Unknown: true, Node: node.Name, Err: p.snapshot.KubernetesError,
		Found: fmt.Sprintf("the version of %s cannot be told: Kubernetes does not tell what runs, and the node does not show its machine configuration to %s",
			strings.Join(components, ", "), roles),
		Remedy: "Set kubeconfig in the provider block, so that Kubernetes tells, or use a talosconfig with the role " + adminRole + ", which an upgrade needs anyway.",
	}
}

// checkAgreement reports the nodes on which another version runs than the machine configuration names. The pods
// of kube-proxy are no such case, because they follow only with a sync.
func (p *planner) checkAgreement() {
	var (
		names []string
		one   []string
	)

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held {
			continue
		}

		var differing []string

		for j := range node.parts {
			if t := &node.parts[j]; t.differs() && !p.beyond(t) {
				differing = append(differing, fmt.Sprintf("%s runs %s while the machine configuration names %s", t.component, t.running, t.named))
			}
		}

		if len(differing) > 0 {
			names, one = append(names, node.Name), differing
		}
	}

	finding := cluster.Finding{Check: cluster.CheckComponentImages, Severity: cluster.Advice, Remedy: p.agreementRemedy()}

	switch len(names) {
	case 0:
		return
	case 1:
		finding.Node = names[0]
		finding.Found = strings.Join(one, ", ") + "; the lower of the two is what counts"
	default:
		finding.Found = fmt.Sprintf("components run other versions than the machine configuration names on %s; the lower of the two is what counts", readable.List(names))
	}

	p.add(finding)
}

// beyond reports whether the component is ahead of the target, which is a finding of its own.
func (p *planner) beyond(t *componentState) bool {
	return !p.target.Kubernetes.IsZero() && version.Highest(t.running, t.named).Compare(p.target.Kubernetes) > 0
}

func (p *planner) agreementRemedy() string {
	if p.target.Kubernetes.IsZero() {
		return "Restart what does not follow its configuration, or correct the configuration; a reboot starts what it names."
	}

	return fmt.Sprintf("An apply brings both to %s.", p.target.Kubernetes)
}

// checkDigests reports the nodes whose configuration pins an image by its digest: afterwards it has only a tag.
func (p *planner) checkDigests() {
	var names, components []string

	for i := range p.nodes {
		node := &p.nodes[i]
		if len(node.digests) == 0 {
			continue
		}

		names = append(names, node.Name)

		for _, component := range node.digests {
			if !slices.Contains(components, string(component)) {
				components = append(components, string(component))
			}
		}
	}

	if len(names) == 0 {
		return
	}

	finding := cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Advice,
		Found:  fmt.Sprintf("the machine configuration names the image of %s with a digest on %s, which belongs to the present version and is dropped", strings.Join(components, ", "), readable.List(names)),
		Remedy: "Add the digest of the new image afterwards if it is to be pinned by it.",
	}

	if len(names) == 1 {
		finding.Node = names[0]
		finding.Found = fmt.Sprintf("the machine configuration names the image of %s with a digest, which belongs to the present version and is dropped", strings.Join(components, ", "))
	}

	p.add(finding)
}

// checkComponentsAhead refuses a target below what runs, or below what machine configurations name, which will
// run at the next restart. All nodes share one finding, because a target that is too low concerns them all.
func (p *planner) checkComponentsAhead(highest version.Version) {
	if p.target.Kubernetes.IsZero() {
		return
	}

	var running, named []ahead

	nodes := map[string]bool{}

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held {
			continue
		}

		if found := p.newerRunning(node); len(found.components) > 0 {
			running, nodes[node.Name] = append(running, found), true
		}

		if found := p.newerNamed(node); len(found.components) > 0 {
			named, nodes[node.Name] = append(named, found), true
		}
	}

	if len(nodes) == 0 {
		return
	}

	finding := cluster.Finding{
		Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: attributeKubernetes,
		Remedy: fmt.Sprintf("Set kubernetes_version to %s or newer.", highest),
	}

	if len(running) == 0 {
		finding.Remedy = fmt.Sprintf("Set kubernetes_version to %s or newer, or correct the machine configuration.", highest)
	}

	var seen []string

	if len(nodes) == 1 {
		for name := range nodes {
			finding.Node = name
		}

		seen = append(aheadOfOne("the node runs", running), aheadOfOne("the machine configuration names", named)...)
	} else {
		seen = append(aheadOfMany("Kubernetes up to %s runs on %s", running), aheadOfMany("the machine configuration names Kubernetes up to %s on %s", named)...)
	}

	finding.Found = fmt.Sprintf("%s, newer than the target %s, and downgrades are not done", strings.Join(seen, ", and "), below(p.target.Kubernetes, highest))
	p.add(finding)
}

// ahead lists the components of a node that are newer than the target.
type ahead struct {
	node       string
	components []string
	highest    version.Version
}

func (a *ahead) note(component cluster.Component, v version.Version) {
	a.components = append(a.components, fmt.Sprintf("%s %s", component, v))
	a.highest = version.Highest(a.highest, v)
}

// newerRunning returns the components of the node that run a newer version than the target.
func (p *planner) newerRunning(node *plannedNode) ahead {
	found := ahead{node: node.Name}

	for _, component := range cluster.Components(node.Role) {
		if health.Disables(*node.Node, component) {
			continue
		}

		running := node.Versions[component]
		if component == cluster.Proxy && running.Compare(node.pod) != 0 && !node.unnamed(component) {
			// The machine configuration names its version, and its pods do not count.
			continue
		}

		if running.Compare(p.target.Kubernetes) > 0 {
			found.note(component, running)
		}
	}

	return found
}

// unnamed reports whether the machine configuration names no version for the component, so that what runs counts.
func (s *plannedNode) unnamed(component cluster.Component) bool {
	for i := range s.parts {
		if s.parts[i].component == component {
			return s.parts[i].named.IsZero()
		}
	}

	return false
}

// newerNamed returns the components for which the machine configuration of the node names a newer version than
// the target, unless they already run a newer one.
func (p *planner) newerNamed(node *plannedNode) ahead {
	found := ahead{node: node.Name}

	for i := range node.parts {
		t := &node.parts[i]

		runs := t.running
		if t.component == cluster.Proxy {
			runs = version.Highest(runs, node.pod)
		}

		if t.named.Compare(p.target.Kubernetes) > 0 && runs.Compare(p.target.Kubernetes) <= 0 {
			found.note(t.component, t.named)
		}
	}

	return found
}

func aheadOfOne(says string, found []ahead) []string {
	if len(found) == 0 {
		return nil
	}

	return []string{says + " " + strings.Join(found[0].components, ", ")}
}

func aheadOfMany(format string, found []ahead) []string {
	if len(found) == 0 {
		return nil
	}

	var highest version.Version

	names := make([]string, 0, len(found))
	for i := range found {
		names = append(names, found[i].node)
		highest = version.Highest(highest, found[i].highest)
	}

	return []string{fmt.Sprintf(format, highest, readable.List(names))}
}

// checkPins refuses an upgrade that would move Kubernetes components along: the images that the machine
// configuration leaves unset follow the Talos version. Components that an earlier hop of Kubernetes sets are not
// affected.
func checkPins(node *plannedNode) (cluster.Finding, bool) {
	if node.Machine.Config == nil {
		return cluster.Finding{}, false
	}

	var (
		unset []string
		pins  []componentState
	)

	// In the usual order: the kubelet, which every node has, first.
	for _, component := range cluster.Components(node.Role) {
		for i := range node.parts {
			if t := &node.parts[i]; t.component == component && t.image == "" {
				unset, pins = append(unset, string(component)), append(pins, *t)
			}
		}
	}

	if len(unset) == 0 {
		return cluster.Finding{}, false
	}

	return cluster.Finding{
		Check: cluster.CheckComponentImages, Severity: cluster.Observed, Node: node.Name,
		Found:  fmt.Sprintf("the machine configuration does not pin the image of %s, so it would move to the default of the new Talos version during the upgrade, kubelets before API servers", strings.Join(unset, ", ")),
		Remedy: pinRemedy(node, pins),
	}, true
}

// pinRemedy returns the command that pins what runs on the node.
func pinRemedy(node *plannedNode, pins []componentState) string {
	named := map[cluster.Component]string{}
	fields := make([]string, 0, len(pins))

	for i := range pins {
		fields = append(fields, fieldOf(node.Machine, pins[i].component))

		if !pins[i].running.IsZero() {
			named[pins[i].component] = image.DefaultComponent(string(pins[i].component)) + ":" + pins[i].running.Tag()
		}
	}

	if len(named) == 0 {
		return fmt.Sprintf("Pin what is to run in the machine configuration (%s), with talosctl -n %s patch machineconfig.", strings.Join(fields, ", "), node.Address)
	}

	return fmt.Sprintf("Pin what runs: talosctl -n %s patch machineconfig %s. It restarts nothing that runs these images already; each node named by this check needs a command of its own.",
		node.Address, patchOf(node, named))
}
