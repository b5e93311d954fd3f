// SPDX-License-Identifier: MPL-2.0

package real

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// isSentBackAsUnready gives the first worker a version with another schematic that comes up, but whose node never
// becomes ready. It has to be rolled back.
func (w *world) isSentBackAsUnready(ctx context.Context, t *testing.T) {
	m, others := w.machines[1], []*machine{w.machines[0], w.machines[2]}
	before, running, begun := w.boot(ctx, t), w.runs(ctx, t, m), m.printed(t, installed)

	f := w.terraform(t, request{
		talos: unreadyTalos, held: others,
		arguments: fmt.Sprintf("  installer_image = %q\n  on_failure = \"rollback\"\n  node_timeout = \"6m\"\n", factoryRepository+schematicOfUnready),
	}.resource())

	stopped := f.apply(ctx, t).must(failed, m.name, "rolled back to Talos "+running)
	w.mustHaveUpgraded(ctx, t, m, running, begun+1, before[m.name])

	if advice := retryAdvice.FindString(flat(stopped.output)); advice == "" {
		t.Error("it does not say how the image is tried again")
	}

	if said := w.schematic(ctx, t, m); said != "" {
		t.Errorf("%s has the schematic %q, want none: that is of the other system", m.name, said)
	}

	f.apply(ctx, t).must(failed, "retry_boot_id")

	if found := m.printed(t, installed); found != begun+1 {
		t.Errorf("on %s %d installations have ended, want %d", m.name, found, begun+1)
	}
}

// schematic returns the schematic that the running system of a machine reports.
func (w *world) schematic(ctx context.Context, t *testing.T, m *machine) string {
	t.Helper()

	said, err := w.talosctl(ctx, "--nodes", m.address.String(), "get", "extensions", "--output", "jsonpath={.spec.metadata.version}")
	if err != nil {
		t.Fatal(err)
	}

	return strings.TrimSpace(said)
}

// isSentBackByAction upgrades the second worker and rolls it back by an action. If the action is invoked again, it
// must not roll back again, which would start the new system. No apply may touch the node until a retry is allowed.
func (w *world) isSentBackByAction(ctx context.Context, t *testing.T) {
	m := w.machines[2]
	running, begun := w.runs(ctx, t, m), m.printed(t, installed)

	f := w.terraformOf(t, *w.programs.Actions, request{talos: wayBackTalos, held: w.machines[:2]}.resource()+fmt.Sprintf(`
action "talosupgrade_rollback" "it" {
  config {
    node   = %[1]q
    reason = "its storage is slow"
  }
}

action "talosupgrade_retry_node" "it" {
  config {
    node = %[1]q
  }
}
`, m.name))

	f.apply(ctx, t).must(nothingToDo)

	upgraded := w.boot(ctx, t)

	f.run(ctx, t, "apply", "-auto-approve", "-input=false", "-invoke=action.talosupgrade_rollback.it").must(nothingToDo,
		m.name+" runs Talos "+running)
	w.mustHaveUpgraded(ctx, t, m, running, begun+1, upgraded[m.name])

	back := w.boot(ctx, t)

	f.run(ctx, t, "apply", "-auto-approve", "-input=false", "-invoke=action.talosupgrade_rollback.it").must(nothingToDo,
		m.name+" runs Talos "+running)

	f.apply(ctx, t).must(failed, "its storage is slow", "talosupgrade_retry_node")

	if after := w.boot(ctx, t); after[m.name] != back[m.name] {
		t.Errorf("%s has booted since it was sent back", m.name)
	}

	f.run(ctx, t, "apply", "-auto-approve", "-input=false", "-invoke=action.talosupgrade_retry_node.it").must(nothingToDo)
	f.apply(ctx, t).must(nothingToDo)
	w.mustHaveUpgraded(ctx, t, m, wayBackTalos, begun+2, back[m.name])
}

// isRolledBackByHand upgrades the first worker with talosctl and rolls it back before the new system has confirmed
// itself. After that an apply has to upgrade the node.
func (w *world) isRolledBackByHand(ctx context.Context, t *testing.T) {
	m := w.machines[1]
	running, begun, before := w.runs(ctx, t, m), m.printed(t, installed), w.boot(ctx, t)

	// The command waits until the node is healthy; this test does not.
	command := exec.CommandContext(ctx, w.programs.Talos.Talosctl, "--talosconfig", w.talosconfig, "--nodes", m.address.String(),
		"upgrade", "--image", installerNamed(wayBackTalos))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})

	w.awaitSystem(ctx, t, m, wayBackTalos)

	if _, err := w.talosctl(ctx, "--nodes", m.address.String(), "rollback"); err != nil {
		t.Fatal(err)
	}

	w.awaitSystem(ctx, t, m, running)

	f := w.terraform(t, request{talos: wayBackTalos, held: []*machine{w.machines[0], w.machines[2]}}.resource())

	// Until the old system has confirmed itself, the node still has a fallback entry.
	w.until(ctx, t, "an apply upgrades "+m.name, w.patience(), func(ctx context.Context) error {
		if tried := f.apply(ctx, t); tried.exit != nothingToDo {
			tried.must(failed, "Nothing was touched.")

			return fmt.Errorf("it was refused:\n%s", tried.output)
		}

		return nil
	})

	w.mustHaveUpgraded(ctx, t, m, wayBackTalos, begun+2, before[m.name])
}
