// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// report is what is to be written: what could not be is kept for the next pass.
type report struct {
	annotations map[string]any
	secret      map[string]string
	phase       string
	message     string
	// conditions are by type; only what the operator has to say of a half.
	conditions map[string]map[string]any
}

func newReport() report {
	return report{annotations: map[string]any{}, secret: map[string]string{}, conditions: map[string]map[string]any{}}
}

func (v *vitistack) say(product version.Product, name, value string) {
	v.unsaid.annotations[key(product, name)] = value
}

func (v *vitistack) unsay(product version.Product, name string) {
	v.unsaid.annotations[key(product, name)] = nil
}

// standing says what becomes of the half and, with it, of the cluster.
func (v *vitistack) standing(product version.Product, phase, status, reason, message string) {
	v.unsaid.phase, v.unsaid.message = phase, message

	kind := product.Name() + "Upgrade"
	v.unsaid.conditions[kind] = condition(v.options.Clock.Now(), kind, status, reason, message)
}

// write writes what is unsaid, and tells whether all of it was written.
func (v *vitistack) write(ctx context.Context) bool {
	if len(v.unsaid.secret) > 0 && v.secret.Name != "" {
		if v.options.Objects.WriteSecret(ctx, v.of.Namespace, v.secret.Name, v.unsaid.secret) != nil {
			return false
		}
	}

	clear(v.unsaid.secret)

	if len(v.unsaid.annotations) > 0 {
		patch := map[string]any{keyMetadata: map[string]any{keyAnnotations: v.unsaid.annotations}}
		if v.options.Objects.Patch(ctx, v.of, "", patch) != nil {
			return false
		}
	}

	clear(v.unsaid.annotations)

	if (v.unsaid.phase != "" || len(v.unsaid.conditions) > 0) && v.writeStatus(ctx) != nil {
		return false
	}

	v.unsaid = newReport()

	return true
}

// writeStatus writes phase and conditions, and leaves alone the conditions that
// are not about an upgrade.
func (v *vitistack) writeStatus(ctx context.Context) error {
	object, err := v.options.Objects.Get(ctx, v.of)
	if err != nil {
		return err
	}

	listed, _ := section(object, partStatus)["conditions"].([]any)
	conditions := make([]any, 0, len(listed)+len(halves()))
	said := map[string]bool{}

	for _, entry := range listed {
		standing, _ := entry.(map[string]any)
		kind := text(standing, "type")
		wanted, has := v.unsaid.conditions[kind]

		switch {
		case !has:
			conditions = append(conditions, standing)
		case text(standing, "status") == text(wanted, "status"):
			// The time is that of the last change of the status.
			wanted = merged(wanted, map[string]any{"lastTransitionTime": text(standing, "lastTransitionTime")})
			fallthrough
		default:
			said[kind] = true

			conditions = append(conditions, wanted)
		}
	}

	for _, product := range halves() {
		kind := product.Name() + "Upgrade"
		if wanted, has := v.unsaid.conditions[kind]; has && !said[kind] {
			conditions = append(conditions, wanted)
		}
	}

	status := map[string]any{"conditions": conditions}
	if v.unsaid.phase != "" {
		status["phase"], status[keyMessage] = v.unsaid.phase, v.unsaid.message
	}

	// Somebody else's write in between is seen at the next pass.
	err = v.options.Objects.Patch(ctx, v.of, partStatus, map[string]any{
		keyMetadata: map[string]any{keyResourceVersion: text(object, keyMetadata, keyResourceVersion)},
		partStatus:  status,
	})
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}

	return nil
}
