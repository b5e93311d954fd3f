// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// page returns the content of a file, such as the report of the last run.
func page(t *testing.T, path string) string {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(content)
}

// says fails the test unless the report has every text.
func says(t *testing.T, path string, texts ...string) {
	t.Helper()

	content := page(t, path)
	for _, text := range texts {
		if !strings.Contains(content, text) {
			t.Errorf("the report does not say %q", text)
		}
	}
}

// TestAccReport wants a failure, the findings of a refusal and the completed upgrade to be in a report each, without
// any of the credentials.
func TestAccReport(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	path := filepath.Join(t.TempDir(), "of", "the", "night", "upgrade.html")
	resource := "talos_version = \"1.13.4\"\nnode_timeout = \"12m\"\nreport_path = " + quote(path)
	w := newWorkspace(t)
	w.write(use(s), resource)

	// A plan writes no report.
	w.plan().mustSucceed(2)

	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("after a plan: %v", err)
	}

	s.faults(`faults: [{node: worker-1, step: boot, effect: never-returns}]`)
	w.apply().mustFail("worker-1")
	says(t, path, "Failed: Unable to upgrade node worker-1 to Talos 1.13.4", "failed here", "What to do now", "terraform apply again", "not begun")

	// A refusal replaces the report.
	w.apply().mustFail("worker-1")
	says(t, path, "worker-1", "What was seen")

	s.faults("")
	s.settle()
	w.apply().mustSucceed(0)
	says(t, path, "Completed: Talos 1.13.4", "worker-0", "worker-1", "cp-0", "ghcr.io/siderolabs/installer:v1.13.4", "wait for it to boot")

	done := page(t, path)

	// An apply with nothing to do does not change it.
	w.write(use(s), resource+"\nsettle = \"1s\"")
	w.apply().mustSucceed(0)

	if page(t, path) != done {
		t.Error("an apply without work wrote over the report")
	}

	// Another path is a change of the resource, but not an upgrade.
	elsewhere := filepath.Join(filepath.Dir(path), "elsewhere.html")
	w.write(use(s), strings.Replace(resource, quote(path), quote(elsewhere), 1)+"\nsettle = \"1s\"")
	w.apply().mustSucceed(0)
	says(t, elsewhere, "Nothing to do")

	var credentials any
	if err := yaml.Unmarshal([]byte(page(t, s.Talosconfig())), &credentials); err != nil {
		t.Fatal(err)
	}

	keys := keysIn(credentials)
	if len(keys) == 0 {
		t.Error("there is no key in the talosconfig that could be looked for")
	}

	for _, key := range keys {
		if strings.Contains(done, key) {
			t.Error("a key of the talosconfig is in the report")
		}
	}
}

// TestAccReportWithoutAPlace wants a path that cannot be written to be refused before anything is touched.
func TestAccReportWithoutAPlace(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)

	const wanted = "talos_version = \"1.13.4\"\nreport_path = "

	for path, text := range map[string]string{
		"":                     "empty",
		"~/upgrade.html":       "pathexpand",
		"https://example.com/": "address",
		"reports/":             "directory",
	} {
		w.write(use(s), wanted+quote(path))
		w.plan().mustFail("report_path", text)
	}

	mine := filepath.Join(w.dir, "main.tf")

	w.write(use(s), wanted+quote(mine))
	w.plan().mustFail("Unable to write the report", mine, "no report of this provider", "Nothing was touched", "report_path")

	w.write(use(s), wanted+quote(os.DevNull))
	w.plan().mustFail("Unable to write the report", "a device, a pipe or a socket")

	w.write(use(s), wanted+quote(filepath.Join(mine, "upgrade.html")))
	w.apply().mustFail("Unable to write the report", "Nothing was touched")

	s.untouched("cp-0", "worker-0")
}
