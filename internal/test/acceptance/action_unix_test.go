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
action "talosupgrade_resume" "this" {}

action "talosupgrade_suspend" "this" {
  config {
    reason = "ola: storage is degraded"
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
	by.invoke("resume.this").mustSay("Upgrades of this cluster were not suspended.")

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

	by.invoke("suspend.this").mustSay("are suspended: ola")
	by.invoke("etcd_snapshot.this").mustSay("Taking a snapshot of etcd", "Saved "+snapshots, "SHA-256 ")
	s.onlyLocked()

	// Once the last suspension is lifted, the apply goes on.
	by.invoke("resume.this").mustSay("are no longer suspended")
	s.allow("yes")

	run.wait().mustSay("action_trigger", "Saved "+filepath.Join(snapshots, "after"))
	s.wantUpgraded(talosTarget, once(1, 2))

	for _, dir := range []string{snapshots, filepath.Join(snapshots, "after")} {
		saved, err := filepath.Glob(filepath.Join(dir, "*.db"))
		if err != nil || len(saved) != 1 {
			t.Errorf("%s holds %q, %v", dir, saved, err)
		}
	}

	s.nothingLeft()
}

// TestAccActionsRefuseWhatVariablesTurnOutToBe: Terraform validates an action while its variables are unknown, and not
// again. An empty context would be that of the provider block, and "false" no suspension.
func TestAccActionsRefuseWhatVariablesTurnOutToBe(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := withActions(t)

	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n" + `
variable "value" {
  type = string
}

action "talosupgrade_suspend" "reason" {
  config {
    reason = var.value
  }
}

action "talosupgrade_suspend" "context" {
  config {
    context = var.value
    reason  = "ola: storage is degraded"
  }
}

action "talosupgrade_etcd_snapshot" "directory" {
  config {
    directory = var.value
  }
}

action "talosupgrade_rollback" "kind" {
  config {
    node       = "worker-0"
    publish_to = { kind = var.value, namespace = "tenant-a", name = "prod" }
  }
}

action "talosupgrade_rollback" "volumes" {
  config {
    node  = "worker-0"
    drain = { wait_for_volumes = var.value }
  }
}
`)

	for name, test := range map[string]struct{ value, says string }{
		"suspend.reason":          {"false", "which is as good as no suspension"},
		"suspend.context":         {"", "string length must be at least 1"},
		"etcd_snapshot.directory": {"~/b", "Write pathexpand("},
		"rollback.kind":           {"TalosControlPlane", "it would undo the rollback"},
		"rollback.volumes":        {"Required", "value must be one of"},
	} {
		w.apply("-invoke=action.talosupgrade_"+name, "-var=value="+test.value).mustFail(test.says)
	}

	if changed := s.changes(); len(changed) > 0 {
		t.Errorf("something was changed: %v", changed)
	}
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
