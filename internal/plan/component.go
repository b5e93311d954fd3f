// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// componentOrder returns the order in which the components of Kubernetes move: none is ever newer than the API
// servers, and kubelets come last.
func componentOrder() [5]cluster.Component {
	return [...]cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Proxy, cluster.Kubelet}
}

// componentState is a component that the machine configuration of a node controls. The lower of what runs and
// what is named counts.
type componentState struct {
	component cluster.Component
	// image is what the machine configuration names; empty if it names nothing or cannot be read.
	image string
	// running is what runs. For kube-proxy, whose pods are moved by the manifests, it counts only if nothing is
	// named.
	running version.Version
	// named is the version of image; zero if it has none.
	named version.Version
}

// lowest returns the version that the component is at; zero if it is unknown.
func (t *componentState) lowest() version.Version { return version.Lowest(t.running, t.named) }

// differs reports whether another version runs than the machine configuration names.
func (t *componentState) differs() bool {
	return !t.running.IsZero() && !t.named.IsZero() && !t.running.Equal(t.named)
}

// unreported reports whether the version of the component is unknown. A kube-proxy does not count as unknown on a
// node whose configuration cannot be read, because its pods do not depend on the node.
func (s *plannedNode) unreported(t *componentState) bool {
	return t.lowest().IsZero() && (s.read() || t.component != cluster.Proxy)
}

// read reports whether the machine configuration of the node could be read.
func (s *plannedNode) read() bool { return s.Machine != nil && s.Machine.Config != nil }

// reaches records that a step moves the component to the version. If the reference is empty, the image that is
// named afterwards is unknown.
func (t *componentState) reaches(to version.Version, reference string) {
	t.running, t.named = to, to

	if reference != "" {
		t.image = reference
	}
}

// componentStates returns the components of the node, in the order in which they move. Components that the
// machine configuration switches off are left out, even if they still run.
func (p *planner) componentStates(s *plannedNode) []componentState {
	var config cluster.MachineConfig

	if s.read() {
		config = *s.Machine.Config
	}

	ordered := componentOrder()
	parts := make([]componentState, 0, len(ordered))

	for _, component := range ordered {
		if !component.Configured(s.Role) || config.Disabled[component] || (component == cluster.Proxy && p.proxyless) {
			continue
		}

		t := componentState{component: component, image: config.Images[component], running: s.Versions[component]}
		// If its tag is no version, only what runs counts.
		t.named = image.Version(t.image)

		switch {
		case component != cluster.Proxy:
		case !s.read():
			// It is unknown what the node names, and its pod may be left behind on purpose.
			t.running = s.pod
		case !t.named.IsZero():
			t.running = version.Version{}
		}

		parts = append(parts, t)
	}

	return parts
}

// below returns a target that is older than what runs, as text. A suffix that people take for a variant, such as
// -slim, makes a version a pre-release, which is explained.
func below(target, running version.Version) string {
	if target.Core().Equal(running.Core()) {
		return fmt.Sprintf("%s (a pre-release, which comes before %s)", target, target.Core())
	}

	return target.String()
}

// imageField returns the way from the attribute kubernetes to the image of a component.
func imageField(component cluster.Component) []cluster.Within {
	return []cluster.Within{cluster.Field("images"), cluster.Field(strings.ReplaceAll(string(component), "-", "_"))}
}

// patchOf returns the arguments with which talosctl sets images in the machine configuration of the node, in
// JSON: one patch for the images of v1alpha1, and one for each document.
func patchOf(node *plannedNode, named map[cluster.Component]string) string {
	var sections, patches []string

	for _, section := range []string{"machine", "cluster"} {
		var fields []string

		for _, component := range cluster.Components(node.Role) {
			name, within := strings.CutPrefix(strings.TrimSuffix(pathOf(component), ".image"), section+".")
			if !within || named[component] == "" || documentOf(node.Machine, component) != "" {
				continue
			}

			// Neither names nor versions contain anything that JSON escapes.
			fields = append(fields, fmt.Sprintf(`%q:{"image":%q}`, name, named[component]))
		}

		if len(fields) > 0 {
			sections = append(sections, fmt.Sprintf(`%q:{%s}`, section, strings.Join(fields, ",")))
		}
	}

	if len(sections) > 0 {
		patches = append(patches, "{"+strings.Join(sections, ",")+"}")
	}

	for _, component := range cluster.Components(node.Role) {
		if kind := documentOf(node.Machine, component); kind != "" && named[component] != "" {
			patches = append(patches, fmt.Sprintf(`{"apiVersion":"v1alpha1","kind":%q,"image":%q}`, kind, named[component]))
		}
	}

	return "--patch '" + strings.Join(patches, "' --patch '") + "'"
}

// fieldOf returns the field of the node's machine configuration that names the image of a component, or would
// name it.
func fieldOf(machine *cluster.Machine, component cluster.Component) string {
	kind := documentOf(machine, component)

	switch {
	case kind != "" && component == cluster.Installer:
		return inDocument("installer.image", kind)
	case kind != "":
		return inDocument("image", kind)
	default:
		return pathOf(component)
	}
}

// documentOf returns the kind of the document that names the image of a component in place of v1alpha1; empty if
// there is none.
func documentOf(machine *cluster.Machine, component cluster.Component) string {
	if machine == nil || machine.Config == nil {
		return ""
	}

	return machine.Config.Documents[component]
}

// inDocument returns the path of a field of a document, in the notation of v1alpha1.
func inDocument(field, kind string) string { return kind + "." + field }

// pathOf returns the field of v1alpha1 that names the image of the component.
func pathOf(component cluster.Component) string {
	switch component {
	case cluster.Kubelet:
		return "machine.kubelet.image"
	case cluster.APIServer:
		return "cluster.apiServer.image"
	case cluster.ControllerManager:
		return "cluster.controllerManager.image"
	case cluster.Scheduler:
		return "cluster.scheduler.image"
	case cluster.Proxy:
		return "cluster.proxy.image"
	case cluster.Installer:
		return "machine.install.image"
	case cluster.Manifests:
		return ""
	default:
		return ""
	}
}
