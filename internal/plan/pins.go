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
	patch := pinPatch(pins)
	if patch == "" {
		paths := make([]string, 0, len(pins))
		for i := range pins {
			paths = append(paths, pathOf(pins[i].component))
		}

		return fmt.Sprintf("Pin what is to run in the machine configuration (%s), with talosctl -n %s patch machineconfig.", strings.Join(paths, ", "), node.Address)
	}

	return fmt.Sprintf("Pin what runs: talosctl -n %s patch machineconfig --patch '%s'. It restarts nothing that runs these images already; each node named by this check needs a command of its own.",
		node.Address, patch)
}

// pinPatch is the part of a machine configuration that names what runs, in JSON;
// empty where nobody knows what runs.
func pinPatch(pins []part) string {
	var sections []string

	for _, section := range []string{"machine", "cluster"} {
		var fields []string

		for i := range pins {
			name, within := strings.CutPrefix(strings.TrimSuffix(pathOf(pins[i].component), ".image"), section+".")
			if !within || pins[i].running.IsZero() {
				continue
			}

			// Neither names nor versions hold anything that JSON escapes.
			fields = append(fields, fmt.Sprintf(`%q:{"image":%q}`, name, image.DefaultComponent(string(pins[i].component))+":"+pins[i].running.Tag()))
		}

		if len(fields) > 0 {
			sections = append(sections, fmt.Sprintf(`%q:{%s}`, section, strings.Join(fields, ",")))
		}
	}

	if len(sections) == 0 {
		return ""
	}

	return "{" + strings.Join(sections, ",") + "}"
}

// pathOf is where a machine configuration names the image of the component.
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
	case cluster.Manifests:
		return ""
	default:
		return ""
	}
}
