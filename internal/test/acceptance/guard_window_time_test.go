// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccClosedWindowSaysWhenItOpens: people are told a time that they need not
// compute from a cron and a time zone.
func TestAccClosedWindowSaysWhenItOpens(t *testing.T) {
	full(t)

	zone, err := time.LoadLocation("Europe/Oslo")
	if err != nil {
		t.Fatal(err)
	}

	// As window has it.
	month := time.Now().AddDate(0, 6, 0)
	opens := time.Date(month.Year(), month.Month(), 1, 3, 0, 0, 0, zone).UTC().Format(time.RFC3339)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`+window(false))

	w.plan().mustSucceed(2).mustWarn(opens)
	w.apply().mustFail("maintenance-window", opens)
	w.ask(s, `talos_version = "1.13.4"`+window(false)).want("maintenance-window", "failed", "error", "", opens)
	s.unchanged()
}

// TestAccWindowIsInItsTimeZone: the same cron is open in one zone and closed in
// another, wherever Terraform runs.
func TestAccWindowIsInItsTimeZone(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	// A zone of the machine's own would make the window open.
	w := newWorkspace(t, "TZ=Asia/Tokyo")

	// It opened half an hour ago in Tokyo. Each process of the provider begins to
	// count at the time on the wall.
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now().In(tokyo).Add(-30 * time.Minute)
	in := func(zone string) string {
		return fmt.Sprintf("talos_version = \"1.13.4\"\nmaintenance_window = {\n cron = \"%d %d * * *\"\n duration = \"3h\"%s\n}", began.Minute(), began.Hour(), zone)
	}

	w.write(use(s), in(""))
	w.apply().mustFail("maintenance-window", "UTC")

	w.write(use(s), in("\n time_zone = \"Europe/Oslo\""))
	w.apply().mustFail("maintenance-window", "Europe/Oslo")
	s.unchanged()

	w.write(use(s), in("\n time_zone = \"Asia/Tokyo\""))
	w.plan().mustSucceed(2).mustNotWarn("maintenance-window")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 0))
	w.plan().mustSucceed(0)
}

// TestAccWindowErrorsPointAtTheirPlace is about windows that could be meant in a
// way that they are not understood.
func TestAccWindowErrorsPointAtTheirPlace(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	w := newWorkspace(t)

	for title, test := range map[string]struct {
		window string
		says   []string
	}{
		"a field for seconds":   {`{ cron = "0 0 2 * * *", duration = "1h" }`, []string{"maintenance_window.cron", "0 0 2 * * *", "minute, hour"}},
		"a zone in the cron":    {`{ cron = "TZ=Europe/Oslo 0 2 * * *", duration = "1h" }`, []string{"maintenance_window.cron", "set time_zone"}},
		"a name for a cron":     {`{ cron = "@daily", duration = "1h" }`, []string{"maintenance_window.cron", "@daily", "five fields"}},
		"a day that never is":   {`{ cron = "0 2 30 2 *", duration = "1h" }`, []string{"maintenance_window.cron", "never comes"}},
		"no time at all":        {`{ cron = "0 2 * * *", duration = "0s" }`, []string{"maintenance_window.duration", "0s"}},
		"less than no time":     {`{ cron = "0 2 * * *", duration = "-1h" }`, []string{"maintenance_window.duration", "-1h"}},
		"a number for a time":   {`{ cron = "0 2 * * *", duration = "6" }`, []string{"maintenance_window.duration", "6"}},
		"the machine's zone":    {`{ cron = "0 2 * * *", duration = "1h", time_zone = "Local" }`, []string{"maintenance_window.time_zone", "Local"}},
		"an abbreviated zone":   {`{ cron = "0 2 * * *", duration = "1h", time_zone = "CEST" }`, []string{"maintenance_window.time_zone", "CEST"}},
		"an offset for a zone":  {`{ cron = "0 2 * * *", duration = "1h", time_zone = "+02:00" }`, []string{"maintenance_window.time_zone", "+02:00"}},
		"skipping it is firm":   {"{ cron = \"0 2 * * *\", duration = \"1h\" }\npreflight = { skip = [\"maintenance-window\"] }", []string{"maintenance-window", "leaving maintenance_window out"}},
		"a cron that is absent": {`{ duration = "1h" }`, []string{"cron"}},
	} {
		t.Run(title, func(t *testing.T) {
			w.t = t
			w.write(use(s), "talos_version = \"1.13.4\"\nmaintenance_window = "+test.window)
			w.plan().mustFail(test.says...)
		})
	}

	w.t = t
	s.unchanged()
}

// TestAccWindowThatClosesBetweenComponents: an upgrade of Kubernetes stops between
// two components, and the next run goes on with the second one.
func TestAccWindowThatClosesBetweenComponents(t *testing.T) {
	full(t)

	// The window is a few seconds of the wall, and preflight has to fit into it.
	const slow = 30

	s := start(t, sim.Options{ControlPlanes: 3, Workers: 3, Talos: talosTarget, Speed: slow})
	w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, slow))

	// It takes a quarter of an hour at least. Each process of the provider begins
	// to count at the time on the wall.
	now := time.Now().UTC()
	w.write(use(s), fmt.Sprintf("kubernetes_version = %q\nmaintenance_window = {\n cron = \"%d %d * * *\"\n duration = \"9m\"\n}", kubernetesTarget, now.Minute(), now.Hour()))
	w.apply().mustFail("maintenance window", "closed", "The next would have been", "every node is in service")

	before := s.configured()
	if len(before) == 0 {
		t.Error("nothing was done while the window was open")
	}

	w.write(use(s), "kubernetes_version = "+quote(kubernetesTarget)+window(true))
	w.apply().mustSucceed(0)
	s.wantKubernetes(kubernetesTarget)
	s.notRebooted()

	// What was there already was not touched again.
	changes := s.configured()
	if once := slices.Compact(slices.Sorted(slices.Values(changes))); len(once) != len(changes) {
		t.Errorf("some components were configured more than once: %v", changes)
	}

	w.plan().mustSucceed(0)
}
