// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// componentOrder is the order in which the parts of Kubernetes move: no part is
// ever newer than the API servers, and kubelets come last.
func componentOrder() [5]cluster.Component {
	return [...]cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Proxy, cluster.Kubelet}
}

// componentState is a component on a node that the machine configuration of the node
// decides about: it is as far as the lower of what runs and what is named.
type componentState struct {
	component cluster.Component
	// image is what the machine configuration names, empty where it names
	// nothing or cannot be read.
	image string
	// running is what runs. For kube-proxy, whose pods are moved by the
	// manifests, it counts only where nothing is named.
	running version.Version
	// named is the version that image stands for; zero where it says none.
	named version.Version
}

// lowest is what the component is at; zero where nobody can tell.
func (t *componentState) lowest() version.Version { return version.Lowest(t.running, t.named) }

// differs tells that what runs is not what the machine configuration names.
func (t *componentState) differs() bool {
	return !t.running.IsZero() && !t.named.IsZero() && !t.running.Equal(t.named)
}

// unreported tells that nobody can say what the component is at. The kube-proxy of a
// node that names nothing readable is no matter of the node.
func (s *plannedNode) unreported(t *componentState) bool {
	return t.lowest().IsZero() && (s.read() || t.component != cluster.Proxy)
}

// read tells whether the machine configuration of the node could be read.
func (s *plannedNode) read() bool { return s.Machine != nil && s.Machine.Config != nil }

// reaches moves the component, as a step does. Without a reference it is not
// known what is named then.
func (t *componentState) reaches(to version.Version, reference string) {
	t.running, t.named = to, to

	if reference != "" {
		t.image = reference
	}
}

// componentStates are the components of the node, in the order in which they move. What
// the machine configuration switches off is none, whatever still runs of it.
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
		// Where its tag stands for no version, what runs has to be enough.
		t.named = image.Version(t.image)

		switch {
		case component != cluster.Proxy:
		case !s.read():
			// Nobody knows what the node names, and its pod may be left behind on
			// purpose.
			t.running = s.pod
		case !t.named.IsZero():
			t.running = version.Version{}
		}

		parts = append(parts, t)
	}

	return parts
}

// below is a target that is older than what runs. A suffix that people take for
// a variant, such as -slim, makes it that: it is explained.
func below(target, running version.Version) string {
	if target.Core().Equal(running.Core()) {
		return fmt.Sprintf("%s (a pre-release, which comes before %s)", target, target.Core())
	}

	return target.String()
}

// imageField leads from the attribute kubernetes to the image of a component.
func imageField(component cluster.Component) []cluster.Within {
	return []cluster.Within{cluster.Field("images"), cluster.Field(strings.ReplaceAll(string(component), "-", "_"))}
}

// patchOf are the arguments with which talosctl has the machine configuration of
// the node name images, in JSON: a patch for what v1alpha1 names, and one for each
// document that it has.
func patchOf(node *plannedNode, named map[cluster.Component]string) string {
	var sections, patches []string

	for _, section := range []string{"machine", "cluster"} {
		var fields []string

		for _, component := range cluster.Components(node.Role) {
			name, within := strings.CutPrefix(strings.TrimSuffix(pathOf(component), ".image"), section+".")
			if !within || named[component] == "" || documentOf(node.Machine, component) != "" {
				continue
			}

			// Neither names nor versions hold anything that JSON escapes.
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

// fieldOf is where the machine configuration that a node has names the image of a
// component, or would.
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

// documentOf is the kind of the document that names the image of a component in
// place of v1alpha1; empty where there is none.
func documentOf(machine *cluster.Machine, component cluster.Component) string {
	if machine == nil || machine.Config == nil {
		return ""
	}

	return machine.Config.Documents[component]
}

// inDocument names a field of a document as v1alpha1 names its own.
func inDocument(field, kind string) string { return kind + "." + field }

// pathOf is where v1alpha1 names the image of the component.
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
