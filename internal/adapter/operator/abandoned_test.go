// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"maps"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
)

// TestAStatusThatARunLeftIsNoWork: the run died, somebody ended its hold, and the
// operator, by its own Secret, is at nothing. Whatever is less certain than that
// counts as work.
func TestAStatusThatARunLeftIsNoWork(t *testing.T) {
	t.Parallel()

	const beat = "2026-11-22T03:04:05Z"

	for name, test := range map[string]struct {
		annotations, secret map[string]string
		busy                bool
	}{
		"by a run":             {map[string]string{"talosupgrade-last-update": beat}, nil, false},
		"by nobody of ours":    {nil, nil, true},
		"with a target":        {map[string]string{"talosupgrade-last-update": beat, "talos-target": "1.13.4"}, nil, true},
		"and the operator too": {map[string]string{"talosupgrade-last-update": beat}, atWork("talos", "1.13.4", ""), true},
		"the other half":       {map[string]string{"talosupgrade-last-update": beat}, atWork("kubernetes", "1.35.2", ""), true},
	} {
		said := map[string]string{"talos-status": "in-progress", "talos-current": "1.12.6"}
		maps.Copy(said, test.annotations)

		report, err := operator.New(prod(), vitistack(t, said, test.secret)).Report(t.Context())
		if err != nil || report.Talos.Status.Busy() != test.busy {
			t.Errorf("%s: %v %+v", name, err, report.Talos)
		}
	}
}
