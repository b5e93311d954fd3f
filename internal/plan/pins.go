// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
)

// checkPins refuses an upgrade that would move Kubernetes components along:
// what the machine configuration leaves unset follows the Talos version. What an
// earlier hop of Kubernetes sets is none of that.
func checkPins(node *subject) (cluster.Finding, bool) {
	if node.Machine.Config == nil {
		return cluster.Finding{}, false
	}

	var (
		unset []string
		pins  []part
	)

	// As people list them: the kubelet, which every node has, first.
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

// pinRemedy is the command that pins what runs on the node.
func pinRemedy(node *subject, pins []part) string {
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

// patchOf are the arguments with which talosctl has the machine configuration of
// the node name images, in JSON: a patch for what v1alpha1 names, and one for each
// document that it has.
func patchOf(node *subject, named map[cluster.Component]string) string {
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
