// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// actions returns a configuration with all actions on the cluster, each under the name with which its type ends.
func actions(s *simulated, snapshots string) string {
	return "provider \"talosupgrade\" {\n" + use(s) + "\n}\n" + `
action "talosupgrade_lock_status" "this" {}
action "talosupgrade_follow" "this" {}
action "talosupgrade_resume" "this" {}

action "talosupgrade_suspend" "this" {
  config {
    reason = "ola: storage is degraded"
  }
}

action "talosupgrade_preflight" "this" {
  config {
    talos_version = "1.13.4"
  }
}

action "talosupgrade_preflight" "back" {
  config {
    talos_version = "1.11.0"
  }
}

action "talosupgrade_etcd_snapshot" "this" {
  config {
    directory = ` + quote(snapshots) + `
  }
}
`
}

// TestAccActions invokes actions with terraform apply -invoke before, during and after somebody else's apply.
func TestAccActions(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	snapshots := filepath.Join(t.TempDir(), "snapshots")

	by := withActions(t)
	by.raw(actions(s, snapshots))

	// It has never been upgraded.
	by.invoke("lock_status.this").mustSay("Nobody holds the lease kube-system/talosupgrade.", "are not suspended", "No node is in the middle of an upgrade.")
	by.invoke("follow.this").mustSay("Nobody upgrades this cluster now.")
	by.invoke("resume.this").mustSay("Upgrades of this cluster were not suspended.")
	by.invoke("preflight.this").mustSay("Planned: Rolling upgrade of 3 of 3 nodes", "Passed: ", "checks would stop an apply")
	by.invoke("preflight.back").mustFail("an apply would be refused", "Nothing was touched.")

	if changed := s.changes(); len(changed) > 0 {
		t.Errorf("something was changed: %v", changed)
	}

	// It is suspended before the first apply, which has to respect that.
	by.invoke("suspend.this").mustSay("Upgrades of this cluster are suspended: ola: storage is degraded.")
	by.invoke("suspend.this").mustSay("were suspended already", "(talosupgrade_suspend): ola: storage is degraded")

	w := withActions(t)
	w.write(use(s), `talos_version = "1.13.4"
on_suspend = "stop"`)
	w.apply().mustFail("(talosupgrade_suspend): ola: storage is degraded")

	by.invoke("resume.this").mustSay("are no longer suspended", "ola: storage is degraded")

	// Somebody's apply runs, and waits for a gate.
	s.allow("no")
	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n" + `
action "talosupgrade_etcd_snapshot" "after" {
  config {
    directory = ` + quote(filepath.Join(snapshots, "after")) + `
  }
}

resource "talosupgrade_cluster" "this" {
  talos_version = "1.13.4"
` + switched("12h") + `

  lifecycle {
    action_trigger {
      events  = [after_create]
      actions = [action.talosupgrade_etcd_snapshot.after]
    }
  }
}
`)

	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.renewals(aWhile)

	followed := withActions(t)
	followed.raw(actions(s, snapshots))

	following := followed.background("apply", "-json", "-auto-approve", "-input=false", "-invoke=action.talosupgrade_follow.this")

	by.invoke("lock_status.this").mustSay("(terraform resource talosupgrade_cluster) since", "and is being renewed: that run is alive.")
	by.invoke("suspend.this").mustSay("are suspended: ola")
	by.invoke("lock_status.this").mustSay("that run is alive.", "are suspended since", "(talosupgrade_suspend): ola: storage is degraded")
	by.invoke("etcd_snapshot.this").mustSay("Taking a snapshot of etcd", "Saved "+snapshots, "SHA-256 ")
	s.onlyLocked()

	// Once the last suspension is lifted, the apply goes on.
	by.invoke("resume.this").mustSay("are no longer suspended")
	s.allow("yes")

	run.wait().mustSay("action_trigger", "Saved "+filepath.Join(snapshots, "after"))
	following.wait().mustSay("Talos in-progress: ", "Talos completed: ", "The upgrade has ended.")
	s.wantUpgraded(talosTarget, once(1, 2))

	for _, dir := range []string{snapshots, filepath.Join(snapshots, "after")} {
		saved, err := filepath.Glob(filepath.Join(dir, "*.db"))
		if err != nil || len(saved) != 1 {
			t.Errorf("%s holds %q, %v", dir, saved, err)
		}
	}

	by.invoke("follow.this").mustSay("Nobody upgrades this cluster now.")
	by.invoke("lock_status.this").mustSay("Nobody holds the lease kube-system/talosupgrade.")
	s.nothingLeft()
}

// TestAccActionsAreNoneOfAnOlderCommandLine wants a command line without actions to accept the provider as before.
func TestAccActionsAreNoneOfAnOlderCommandLine(t *testing.T) {
	smoke(t)

	w := newWorkspace(t)
	w.raw("data \"talosupgrade_compatibility\" \"this\" {}\n")
	w.apply().mustSucceed(0)

	if schema := w.run("providers", "schema", "-json"); schema.exit != 0 || !strings.Contains(schema.output, "talosupgrade_cluster") {
		t.Errorf("the schema is %s", schema.output)
	}
}
