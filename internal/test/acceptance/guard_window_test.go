// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

func TestAccMaintenanceWindow(t *testing.T) {
	full(t)

	zone, err := time.LoadLocation("Europe/Oslo")
	if err != nil {
		t.Fatal(err)
	}

	// A message has a time that people do not have to compute from a cron and a time zone; here that of the closed
	// window.
	month := time.Now().AddDate(0, 6, 0)
	opens := time.Date(month.Year(), month.Month(), 1, 3, 0, 0, 0, zone).UTC().Format(time.RFC3339)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)

	w.write(use(s), `talos_version = "1.13.4"`+window(false))
	w.plan().mustSucceed(2).mustWarn(opens)
	w.apply().mustFail("maintenance-window", "Europe/Oslo", opens)
	s.unchanged()

	answer := w.ask(s, `talos_version = "1.13.4"`+window(false))
	answer.want("maintenance-window", "failed", "error", "", "closed", opens)

	w.write(use(s), `talos_version = "1.13.4"`+window(true))
	w.plan().mustSucceed(2).mustNotWarn("maintenance-window")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))

	// There is nothing to do, so there is nothing to wait for.
	w.write(use(s), `talos_version = "1.13.4"`+window(false))
	w.apply().mustSucceed(0).mustNotWarn("maintenance-window")
}

// TestAccWindowThatClosesInTheMiddle: the node in progress has to be finished, no other may start, and the next run
// has to go on.
func TestAccWindowThatClosesInTheMiddle(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 7, Talos: talosModern})
	w := newWorkspace(t)

	// The roll takes half an hour, and some seconds pass before it begins. Each process of the provider starts its
	// clock at the real time.
	now := time.Now().UTC()
	w.write(use(s), fmt.Sprintf("talos_version = \"1.13.4\"\nmaintenance_window = {\n cron = \"%d %d * * *\"\n duration = \"16m\"\n}", now.Minute(), now.Hour()))
	w.apply().mustFail("maintenance window", "closed")

	done := 0

	for name, node := range s.verdict().Nodes {
		if node.Cordoned || node.Installs != node.Reboots {
			t.Errorf("%s was left in the middle of its turn", name)
		}

		done += node.Installs
	}

	if done == 0 || done == 8 {
		t.Errorf("%d of 8 nodes were upgraded while the window was open", done)
	}

	w.write(use(s), `talos_version = "1.13.4"`+window(true))
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 7))
}

// TestAccWindowErrorsPointAtTheirPlace checks windows that could be misunderstood.
func TestAccWindowErrorsPointAtTheirPlace(t *testing.T) {
	full(t)

	w := newWorkspace(t)

	for title, test := range map[string]struct {
		window string
		says   []string
	}{
		"a field for seconds":   {`{ cron = "0 0 2 * * *", duration = "1h" }`, []string{"maintenance_window.cron", "0 0 2 * * *", "minute, hour"}},
		"a misspelt time zone":  {`{ cron = "0 2 * * *", duration = "1h", time_zone = "Europe/Olso" }`, []string{"maintenance_window.time_zone", "Europe/Olso"}},
		"a number for a time":   {`{ cron = "0 2 * * *", duration = "6" }`, []string{"maintenance_window.duration", "6"}},
		"skipping it is firm":   {"{ cron = \"0 2 * * *\", duration = \"1h\" }\npreflight = { skip = [\"maintenance-window\"] }", []string{"maintenance-window", "leaving maintenance_window out"}},
		"a cron that is absent": {`{ duration = "1h" }`, []string{"cron"}},
	} {
		t.Run(title, func(t *testing.T) {
			w.t = t
			w.write("", "talos_version = \"1.13.4\"\nmaintenance_window = "+test.window)
			w.plan().mustFail(test.says...)
		})
	}
}
