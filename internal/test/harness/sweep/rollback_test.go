// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"errors"
	"slices"

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
