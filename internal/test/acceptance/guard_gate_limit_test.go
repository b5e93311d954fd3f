// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// onlyLocked asserts that the lease was taken, and that otherwise only the
// progress was published.
func (s *simulated) onlyLocked() {
	s.t.Helper()

	locked := false

	for _, event := range s.changes() {
		switch {
		case event.Kind == history.KindLease:
			locked = true
		// Who takes the lease says so in the journal.
		case event.Kind == history.KindJournal && (event.Detail["key"] == "format" || event.Detail["key"] == "holder"):
		case event.Kind == history.KindAnnotation, event.Kind == history.KindWrite && event.Detail["name"] == "talosupgrade":
		case event.Kind == history.KindWrite && event.Detail["resource"] == "events":
		default:
			s.t.Errorf("changed while the gate did not hold: %s %s %v", event.Kind, event.Node, event.Detail)
		}
	}

	if !locked {
		s.t.Error("the lease was not taken: nothing was waited for")
	}
}

// TestAccWaitingForAGateIsLimited is about what ends before the patience of a gate
// does: the window, and the time of the whole apply.
func TestAccWaitingForAGateIsLimited(t *testing.T) {
	full(t)

	for title, test := range map[string]struct {
		limit func(now time.Time) string
		says  []string
	}{
		"maintenance window": {
			func(now time.Time) string {
				return fmt.Sprintf("\nmaintenance_window = {\n cron = \"%d %d * * *\"\n duration = \"15m\"\n}", now.Minute(), now.Hour())
			},
			[]string{"maintenance window", "closed", "opens at", "No node was disturbed"},
		},
		"time of the apply": {
			func(time.Time) string { return "\ntimeouts = { create = \"2m\" }" },
			[]string{"timeouts", "gates", "No node was disturbed"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
			s.allow("no")

			w := newWorkspace(t)
			w.write(use(s), `talos_version = "1.13.4"`+test.limit(time.Now().UTC())+switched("12h"))
			w.apply().mustFail(test.says...)
			s.untouched("cp-0")
			s.onlyLocked()

			s.allow("yes")
			w.write(use(s), `talos_version = "1.13.4"`+switched("12h"))
			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, once(1, 0))
		})
	}
}
