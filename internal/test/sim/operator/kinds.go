// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// partStatus is the part of an object that is changed by itself.
const partStatus = "status"

// Kind is how [Memory] serves a kind of objects.
type Kind struct {
	APIVersion, Kind string
	// Status tells that the status is a part that is changed by itself.
	Status bool
	// Fields are the fields that a status may have; any where empty.
	Fields []string
	// Check looks at an object before it is stored; old is nil where there was
	// none.
	Check func(old, wanted map[string]any) error
}

// operatorKinds are ConfigMaps and what both operators bring.
func operatorKinds() []Kind {
	return []Kind{
		{APIVersion: "v1", Kind: "ConfigMap"},
		{
			APIVersion: VitistackAPIVersion, Kind: VitistackKind, Status: true,
			Fields: []string{"phase", "message", "conditions"}, Check: checkConditions,
		},
		{APIVersion: DeclarativeAPIVersion, Kind: ControlPlaneKind, Status: true, Check: checkDeclarative},
		{APIVersion: DeclarativeAPIVersion, Kind: WorkerKind, Status: true, Check: checkDeclarative},
		{APIVersion: DeclarativeAPIVersion, Kind: MachineKind, Status: true, Check: checkDeclarative},
	}
}

// checkConditions wants every condition to be whole.
func checkConditions(_, wanted map[string]any) error {
	conditions, _ := section(wanted, partStatus)["conditions"].([]any)

	for i, condition := range conditions {
		fields, _ := condition.(map[string]any)

		for _, field := range []string{"lastTransitionTime", "message", "reason", "status", "type"} {
			if _, given := fields[field].(string); !given {
				return fmt.Errorf("status.conditions[%d].%s: Required value", i, field)
			}
		}
	}

	return nil
}

// checkDeclarative wants versions with "v", and no way back for kubeVersion.
func checkDeclarative(old, wanted map[string]any) error {
	const pattern = `^v\d+\.\d+\.\d+(-\w+)?$`

	shape := regexp.MustCompile(pattern)

	for _, field := range []string{keyVersion, keyKubeVersion} {
		given, set := section(wanted, "spec")[field]
		if text, _ := given.(string); set && !shape.MatchString(text) {
			return fmt.Errorf("spec.%s: Invalid value: %q: should match '%s'", field, text, pattern)
		}
	}

	before, beforeErr := version.Parse(strings.TrimPrefix(text(old, "spec", keyKubeVersion), "v"))
	after, afterErr := version.Parse(strings.TrimPrefix(text(wanted, "spec", keyKubeVersion), "v"))

	if beforeErr == nil && afterErr == nil && after.Less(before) {
		return errors.New("spec.kubeVersion: Invalid value: kubeVersion cannot be decreased")
	}

	return checkConditions(old, wanted)
}
