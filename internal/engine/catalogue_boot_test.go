// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Credentials that are refused in the middle of a turn end it at once, and what
// was begun is finished with better ones.
func TestCatalogue27ExpiredCredentialsFailFast(t *testing.T) {
	row{
		twist: answers("Reboot", always, saying(cluster.ErrCredentials, "tls: expired certificate")), armed: true,
		want: cluster.ErrCredentials, says: []string{"expired certificate", "Renew or correct the credentials"}, most: 30 * time.Minute,
	}.tried(t)
	row{
		twist: answers("Machine", always, saying(cluster.ErrCredentials, "x509: certificate has expired")),
		want:  cluster.ErrCredentials, says: []string{"x509: certificate has expired", "Nothing was touched"}, untouched: true, most: soon,
	}.tried(t)
}

// booting distorts what the node says of itself once it is on another boot.
func booting(lasts time.Duration, change func(*cluster.Machine)) func(*rig, *twisted) {
	return func(_ *rig, seen *twisted) {
		var since time.Time

		seen.machine = func(machine *cluster.Machine) error {
			// Who did not ask for its boot looks for something else.
			if machine.BootID == "" || machine.BootID == seen.boot {
				return nil
			}

			seen.mu.Lock()
			defer seen.mu.Unlock()

			if since.IsZero() {
				since = time.Now()
			}

			if lasts == 0 || time.Since(since) < lasts {
				change(machine)
			}

			return nil
		}
	}
}

// unmet is a machine that has not finished its boot.
func unmet(stage cluster.Stage, condition string) func(*cluster.Machine) {
	return func(machine *cluster.Machine) {
		machine.Stage, machine.Ready, machine.Unmet = stage, false, []string{condition}
	}
}

// A clock that is not synchronised holds up a machine, which is told before it is
// touched and waited for after its boot.
func TestCatalogue28UnsynchronisedClock(t *testing.T) {
	row{
		fault: model.Fault{Step: model.StepClock, Effect: model.EffectUnsynced}, want: engine.ErrBlocked,
		says: []string{"clock is not synchronised", "talosctl time"}, untouched: true, most: 30 * time.Minute,
	}.tried(t)
	row{twist: booting(3*time.Minute, unmet(cluster.StageBooting, "time: time is not synced"))}.tried(t)
}

func TestCatalogue30CallThatTheNodeDoesNotHave(t *testing.T) {
	row{
		twist: answers("Install", 1, saying(cluster.ErrUnsupported, "unknown service machine.LifecycleService")),
		want:  cluster.ErrUnsupported, says: []string{"unknown service machine.LifecycleService"},
	}.tried(t)
}

func TestCatalogue32ContainerModeRefusesTheInstall(t *testing.T) {
	row{
		twist: answers("Install", always, saying(cluster.ErrRefused, "method is not supported in container mode")),
		want:  cluster.ErrRefused, says: []string{"container mode"},
	}.tried(t)
}

func TestCatalogue40FullDiskIsNamed(t *testing.T) {
	row{
		fault: model.Fault{Step: model.StepDisk, Effect: model.EffectFull}, want: engine.ErrBlocked,
		says: []string{"free for images", "Free space there"}, untouched: true, most: soon,
	}.tried(t)
	row{
		twist: answers("Pull", always, saying(cluster.ErrRefused, "failed to pull image: no space left on device")),
		want:  cluster.ErrRefused, says: []string{"no space left on device", "No node was disturbed", "make room on its disk"}, most: soon,
	}.tried(t)
}

// A node with a mount that hangs, such as that of an NFS server that is gone, does
// not tell about its disk. Its kubelet does.
func TestCatalogue40DiskThatCannotBeToldStopsNothing(t *testing.T) {
	row{fault: model.Fault{Step: model.StepDisk, Effect: model.EffectStall}}.tried(t)
	row{fault: model.Fault{Step: model.StepDisk, Effect: model.EffectUnreadable}}.tried(t)
}

// A person's staged upgrade boots twice. The first boot is none that counts.
func TestCatalogue41InstallingBootIsWaitedOut(t *testing.T) {
	row{twist: booting(2*time.Minute, func(machine *cluster.Machine) { machine.Stage = cluster.StageInstalling })}.tried(t)
}

func TestCatalogue42StuckInBooting(t *testing.T) {
	row{
		twist: booting(0, unmet(cluster.StageBooting, "network: waiting on: connectivity")), armed: true,
		want: engine.ErrUnhealthy, says: []string{"network: waiting on: connectivity", "booting"}, most: time.Hour + 30*time.Minute,
	}.tried(t)
	row{twist: booting(10*time.Minute, unmet(cluster.StageBooting, "network: waiting on: connectivity"))}.tried(t)
}

// What was sent into a connection that a node closed is looked for.
func TestCatalogue43ClosedConnectionIsLookedInto(t *testing.T) {
	row{twist: answers("Reboot", 1, lostReply("ENHANCE_YOUR_CALM, debug data: too_many_pings"))}.tried(t)
}
