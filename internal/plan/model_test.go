// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// carryOut changes the cluster as a successful turn does.
func (s *scene) carryOut(step plan.Step) {
	if step.Component == cluster.Manifests {
		s.sync(step.To)

		return
	}

	// A sync of the manifests has to follow what changes.
	if s.snapshot.Journal != nil && !s.unrendered() {
		s.due()
	}

	node := s.node(step.Node)

	if step.Component != "" {
		s.restart(node, step)

		return
	}

	machine := cluster.Machine{MachineID: step.Key, Role: node.Role, Platform: "metal", Config: s.pinned(*node)}
	if node.Machine != nil {
		machine = *node.Machine
	}

	machine.Talos = step.To
	if !step.Done && (s.target.InstallerImage == overrideB || s.policy.Images[step.Node] == overrideB) {
		machine.Schematic = schematicB
	}

	node.Machine, node.Unreachable = &machine, nil

	if s.snapshot.Journal != nil {
		delete(s.snapshot.Journal.Entries, step.Key)
	}

	if node.Kube != nil {
		node.Kube.Ready = true
		if node.Kube.CordonedBy != "" {
			node.Kube.Unschedulable, node.Kube.CordonedBy = false, ""
		}
	}
}

// restart names another image for a component, from which it then runs. The pods
// of kube-proxy follow with the manifests.
func (s *scene) restart(node *cluster.Node, step plan.Step) {
	if step.Component != cluster.Proxy {
		node.Versions[step.Component] = step.To
	}

	if node.Machine == nil || node.Machine.Config == nil {
		return
	}

	named := maps.Clone(node.Machine.Config.Images)
	if named == nil {
		named = map[cluster.Component]string{}
	}

	named[step.Component] = step.Image
	if step.Image == "" {
		named[step.Component] = s.reference(step.Component, step.To)
	}

	node.Machine.Config.Images = named
}

// pinned is the configuration of a node that pins what runs. Pods of kube-proxy
// that nothing syncs tell nothing about what is named.
func (s *scene) pinned(node cluster.Node) *cluster.MachineConfig {
	named := map[cluster.Component]string{}

	for component, running := range node.Versions {
		if left := !s.policy.Kubernetes.Manifests.Sync || s.unrendered(); left && component == cluster.Proxy {
			running = version.Highest(running, s.target.Kubernetes)
		}

		if component.Configured(node.Role) {
			named[component] = s.reference(component, running)
		}
	}

	return &cluster.MachineConfig{InstallImage: generic + ":v1.12.6", Images: named}
}

// reference is an image that satisfies the configuration.
func (s *scene) reference(component cluster.Component, v version.Version) string {
	repository := image.DefaultComponent(string(component))
	if wanted := s.policy.Kubernetes.Images[component]; wanted != "" {
		repository = wanted
	}

	return repository + ":" + v.Tag()
}

// unrendered tells that nobody may render the manifests.
func (s *scene) unrendered() bool {
	controlPlanes := s.snapshot.ControlPlanes()

	return len(controlPlanes) > 0 && !slices.ContainsFunc(controlPlanes, func(node cluster.Node) bool { return !s.policy.Hold[node.Name] })
}

// sync gives every node the kube-proxy that the control planes name. Where they
// do not tell, what lags comes to the version.
func (s *scene) sync(to version.Version) {
	if s.snapshot.Journal != nil {
		s.snapshot.Journal.Manifests = nil
	}

	var named version.Version

	for _, node := range s.snapshot.ControlPlanes() {
		if node.Machine == nil || node.Machine.Config == nil || s.policy.Hold[node.Name] {
			continue
		}

		if _, tag, found := strings.Cut(node.Machine.Config.Images[cluster.Proxy], ":v"); found {
			named = version.Lowest(named, version.MustParse(tag))
		}
	}

	for i := range s.snapshot.Nodes {
		pod, runs := s.snapshot.Nodes[i].Versions[cluster.Proxy]

		switch {
		case !runs:
		case !named.IsZero():
			s.snapshot.Nodes[i].Versions[cluster.Proxy] = named
		case pod.Minor().Compare(to.Minor()) < 0 || to.Equal(s.target.Kubernetes):
			s.snapshot.Nodes[i].Versions[cluster.Proxy] = to
		}
	}
}
