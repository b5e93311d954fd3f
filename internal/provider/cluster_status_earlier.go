// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// failed is the status after an upgrade that stopped, in the second half where
// the first was done.
func (s status) failed(message string, second bool) status {
	s.Phase, s.Message = phaseFailed, message

	if second {
		s.Kubernetes.Status = statusFailed
	} else {
		s.Talos.Status = statusFailed
	}

	return s
}

// since keeps what state says of a failed upgrade for as long as the nodes do
// not all run what is desired: an observation does not tell why they do not.
func (s status) since(earlier types.Object) types.Object {
	if earlier.IsNull() || earlier.IsUnknown() || (s.Phase != phaseReady && s.Phase != phaseKubernetes) {
		return s.value()
	}

	attributes := earlier.Attributes()

	phase, ok := attributes["phase"].(types.String)
	if !ok || phase.ValueString() != phaseFailed {
		return s.value()
	}

	message, ok := attributes["message"].(types.String)
	if !ok {
		return s.value()
	}

	switch {
	case s.Talos.Status == statusPending && earlierStatus(earlier, "talos") == statusFailed:
		return s.failed(message.ValueString(), false).value()
	case !s.Kubernetes.arrived() && earlierStatus(earlier, "kubernetes") == statusFailed:
		return s.failed(message.ValueString(), true).value()
	default:
		return s.value()
	}
}

// earlierStatus is the status of a half in an earlier status.
func earlierStatus(earlier types.Object, half string) string {
	object, ok := earlier.Attributes()[half].(types.Object)
	if !ok {
		return ""
	}

	text, ok := object.Attributes()["status"].(types.String)
	if !ok {
		return ""
	}

	return text.ValueString()
}

// earlierVersion is a version in the Kubernetes half of a status; zero where
// there is none.
func earlierVersion(earlier types.Object, name string) version.Version {
	object, ok := earlier.Attributes()["kubernetes"].(types.Object)
	if !ok {
		return version.Version{}
	}

	text, ok := object.Attributes()[name].(types.String)
	if !ok {
		return version.Version{}
	}

	// Null and unknown read as the empty text, which is no version.
	parsed, err := version.Parse(text.ValueString())
	if err != nil {
		return version.Version{}
	}

	return parsed
}

// include counts what the state says of nodes that were not seen: they are as far
// as they were.
func (h *half) include(earlier types.Map, names []string) {
	seen := []version.Version{h.Lowest, h.Highest}

	for _, name := range names {
		node, ok := earlier.Elements()[name].(types.Object)
		if !ok {
			continue
		}

		text, _ := node.Attributes()["talos_version"].(types.String)
		if parsed, err := version.Parse(text.ValueString()); err == nil {
			seen = append(seen, parsed)
		}
	}

	h.Lowest, h.Highest = version.Lowest(seen...), version.Highest(seen...)
}
