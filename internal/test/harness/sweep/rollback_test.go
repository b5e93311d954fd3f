// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// returned wants the victim sent back: by the first run, or where that was killed
// by the next one, which finishes what the first one began and then fails just as
// well.
func (l *life) returned() {
	err := l.done.failed
	if err == nil {
		err = l.apply("run-2", nil)
	}

	switch {
	case errors.Is(err, engine.ErrRolledBack), errors.Is(err, engine.ErrBlocked) && len(l.told()) > 0:
		l.sentBack()
	case err == nil && l.recorded(cluster.PhaseRollingBack) && l.State(l.unit.victim).Reboots > 1:
		// Where nobody knows whether it was told to start its old system, it is
		// rebooted to find out; it started the new one again, and is well now.
	case err == nil || l.recorded(cluster.PhaseInstalled):
		l.T.Errorf("the run ended with %v, want a node that was sent back\n%s", err, l.Judge.Text())
	default:
		// Where nobody saw the end of the installer, it is not certain what the
		// other slot holds, and the node is left to a person.
	}
}

// recorded tells that the journal has had the victim in a phase.
func (l *life) recorded(phase cluster.Phase) bool {
	return slices.ContainsFunc(l.Judge.Of(history.KindJournal), func(event history.Event) bool {
		return event.Node == l.unit.victim && event.Detail["phase"] == string(phase)
	})
}

// sentBack fails the case unless the victim runs its old system, in service, and
// is recorded as one that was sent back, once.
func (l *life) sentBack() {
	victim := l.State(l.unit.victim)
	entry := l.Journal().Entries[victim.MachineID]

	if victim.Talos != l.unit.options.Talos || victim.Unschedulable || !victim.Kubelet.Ready || victim.Reboots != 2 {
		l.T.Errorf("%s runs Talos %s after %d reboots, cordoned %t, ready %t, want Talos %s again, and in service\n%s",
			victim.Name, victim.Talos, victim.Reboots, victim.Unschedulable, victim.Kubelet.Ready, l.unit.options.Talos, l.Judge.Text())
	}

	if entry.Phase != cluster.PhaseRolledBack || entry.BootID != victim.BootID {
		l.T.Errorf("the journal says of %s: %+v, want it rolled back on boot %s\n%s", victim.Name, entry, victim.BootID, l.Judge.Text())
	}
}

// upgraded is the upgrade that a person sends a node back from.
func (l *life) upgraded() {
	if err := l.apply("run-0", nil); err != nil {
		l.T.Fatalf("the upgrade before the rollback failed: %v\n%s", err, l.Judge.Text())
	}

	time.Sleep(time.Minute)
}

// obeyed wants the node sent back that a person asked for: by the first run, or where that
// was killed by another rollback, or by an apply, which finishes what was begun and then
// says that the node is kept as it is.
func (l *life) obeyed() {
	if l.unit.applies {
		l.explainedBy(l.apply("run-2", nil))

		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), runMost)
	defer cancel()

	err := l.Worker("run-2").RollBack(ctx, l.unit.asked)
	l.ended("run-2", err)

	if err != nil {
		l.T.Fatalf("the rollback was not finished: %v\n%s", err, l.Judge.Text())
	}

	l.keptBack()
}

// explainedBy wants an apply after a rollback that was killed to say what became of it.
func (l *life) explainedBy(err error) {
	rolledBack := l.rollbacks() > 0

	switch {
	case err == nil && rolledBack:
		l.T.Errorf("%s was rolled back, and the next run reports success\n%s", l.unit.asked, l.Judge.Text())
	case err == nil:
		// Nothing was begun, or a reboot has shown that the node was not told.
	case !strings.Contains(err.Error(), "was rolled back to Talos") || !strings.Contains(err.Error(), " asked at "):
		l.T.Errorf("the next run does not say who asked for the rollback: %v\n%s", err, l.Judge.Text())
	default:
		l.keptBack()
	}
}

// rollbacks counts the calls that a node obeyed.
func (l *life) rollbacks() (count int) {
	for _, event := range l.Judge.Of(history.KindBoot) {
		if event.Detail["cause"] == "rollback" {
			count++
		}
	}

	return count
}

// keptBack fails the case unless the node runs its old system, in service, was sent back
// once and is recorded as that.
func (l *life) keptBack() {
	node := l.State(l.unit.asked)
	entry := l.Journal().Entries[node.MachineID]

	if node.Talos != l.unit.options.Talos || node.Unschedulable || !node.Kubelet.Ready {
		l.T.Errorf("%s runs Talos %s, cordoned %t, ready %t, want Talos %s again, and in service\n%s",
			node.Name, node.Talos, node.Unschedulable, node.Kubelet.Ready, l.unit.options.Talos, l.Judge.Text())
	}

	if entry.Phase != cluster.PhaseRolledBack || entry.BootID != node.BootID || entry.Asked == "" {
		l.T.Errorf("the journal says of %s: %+v, want it rolled back on boot %s, and who asked\n%s", node.Name, entry, node.BootID, l.Judge.Text())
	}

	if count := l.rollbacks(); count != 1 {
		l.T.Errorf("%s was rolled back %d times\n%s", node.Name, count, l.Judge.Text())
	}
}
