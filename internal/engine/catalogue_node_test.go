// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// once is a fault that strikes one time, for that long.
func once(step model.Step, effect model.Effect, lasts time.Duration) model.Fault {
	return model.Fault{Step: step, Effect: effect, Times: 1, For: lasts}
}

// soon is when a run has to have failed that cannot succeed.
const soon = 2 * time.Minute

func TestCatalogue01UnreachableNodeRefusesTheRun(t *testing.T) {
	row{
		fault: once(model.StepObserve, model.EffectUnreachable, 0),
		want:  engine.ErrBlocked, says: []string{"did not answer", "Nothing was touched"}, untouched: true, most: soon,
	}.tried(t)
}

// A look at a node that swallows packets takes its time; it ends all the same.
func TestCatalogue02BlackHoledNodeRefusesTheRun(t *testing.T) {
	row{
		twist: func(_ *rig, seen *twisted) {
			seen.machine = func(*cluster.Machine) error {
				time.Sleep(10 * time.Second)

				return saying(cluster.ErrUnreachable, "dial tcp: i/o timeout")
			}
		},
		want: engine.ErrBlocked, says: []string{"i/o timeout"}, untouched: true, most: soon,
	}.tried(t)
}

func TestCatalogue03BackOffAfterTheBootIsWaitedFor(t *testing.T) {
	row{fault: once(model.StepBoot, model.EffectUnreachable, 15*time.Second)}.tried(t)
}

func TestCatalogue04MissingImageFailsAtOnce(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		row{
			legacy: legacy, fault: model.Fault{Step: model.StepPull, Effect: model.EffectNotFound},
			want: cluster.ErrNotFound, says: []string{"v1.13.4", "No node was disturbed", "Check that the image exists"}, most: soon,
		}.tried(t)
	}
}

func TestCatalogue05RegistryIsAskedAgain(t *testing.T) {
	row{fault: once(model.StepPull, model.EffectFail, 0)}.tried(t)
	row{
		fault: model.Fault{Step: model.StepPull, Effect: model.EffectFail},
		says:  []string{"503 Service Unavailable", "No node was disturbed", "reach its registry"}, most: cluster.PullTimeout + soon,
	}.tried(t)

	enough := model.Fault{Step: model.StepPull, Effect: model.EffectFail, Times: 4, Message: "unexpected status from HEAD request: 429 Too Many Requests"}
	row{from: "1.14.0", to: "1.14.1", fault: enough}.tried(t)

	enough.Times = 0
	row{
		from: "1.14.0", to: "1.14.1", fault: enough,
		says: []string{"429 Too Many Requests", "No node was disturbed"}, most: 10 * time.Minute,
	}.tried(t)
}

func TestCatalogue06DeniedSignatureFailsAtOnce(t *testing.T) {
	var seen *twisted

	row{
		twist: func(r *rig, twisted *twisted) {
			seen = twisted
			answers("Pull", always, saying(cluster.ErrRefused, "verification denied by matched rule (0010-registry)"))(r, twisted)
		},
		want: cluster.ErrRefused, says: []string{"verification denied by matched rule (0010-registry)", "No node was disturbed"}, most: soon,
	}.tried(t)

	if count := seen.count("Pull"); count != 1 {
		t.Errorf("%d pulls of an image that is denied, want one", count)
	}
}

func TestCatalogue07SlowPullIsWaitedFor(t *testing.T) {
	row{fault: once(model.StepPull, model.EffectStall, 20*time.Minute)}.tried(t)
	row{
		fault: model.Fault{Step: model.StepPull, Effect: model.EffectStall},
		says:  []string{"Unable to pull", "No node was disturbed"}, most: cluster.PullTimeout + soon,
	}.tried(t)
}

// An image that is gone again when its turn comes arms nothing.
func TestCatalogue08ImageGoneBeforeTheInstall(t *testing.T) {
	row{
		twist: answers("Install", 1, saying(cluster.ErrRefused, `installer image "x" not found in containerd store`)),
		want:  cluster.ErrRefused, says: []string{"not found in containerd store"},
	}.tried(t)
}

// An install that certainly wrote nothing leaves the node as it was: in service,
// with nothing open in the journal, and without a reboot.
func TestCatalogue08InstallThatWroteNothingDisturbsNoMore(t *testing.T) {
	for name, given := range map[string]row{
		"no container for the installer": {
			fault: once(model.StepInstall, model.EffectNotStarted, 0), want: cluster.ErrRefused, says: []string{"failed to create container", "is not cordoned by this run"},
		},
		"the installer's code says so": {
			from: "1.14.0", to: "1.14.1", fault: once(model.StepInstall, model.EffectRefuse, 0), want: engine.ErrInstaller,
			says: []string{"exited with code 4", "pre-flight checks failed", "is not cordoned by this run", "Fix what the installer reports, or choose another talos_version or installer_image, then run terraform apply again."},
		},
	} {
		t.Run(name, func(t *testing.T) { given.tried(t) })
	}
}

func TestCatalogue09RefusalOfTheInstallerIsTold(t *testing.T) {
	const text = "host version 1.10.0 is too old to upgrade to Talos 1.13.0"

	fault := once(model.StepInstall, model.EffectFail, 0)
	fault.Message = text

	row{fault: fault, want: engine.ErrInstaller, says: []string{text, "exited with code"}, armed: true, again: true}.tried(t)
}

// What a crashed installer has written nobody knows, so that its node counts as
// armed. Where even that is not known, a reboot tells.
func TestCatalogue10CrashedInstallerMayHaveArmed(t *testing.T) {
	row{
		fault: once(model.StepInstall, model.EffectFailArmed, 0), want: engine.ErrInstaller,
		says: []string{"exited with code", "stays cordoned"}, armed: true, again: true,
	}.tried(t)
	row{twist: answers("Install", 1, saying(nil, "upgrade failed: task exited with error")), again: true}.tried(t)
}

func TestCatalogue11InstallerOfSomebodyElse(t *testing.T) {
	row{
		twist: answers("Install", 1, saying(cluster.ErrBusy, "another installation/upgrade is already in progress")),
		want:  cluster.ErrBusy, says: []string{"already in progress", "Somebody else is installing on this node"},
	}.tried(t)
}

func TestCatalogue13UpgradeMutexIsNamed(t *testing.T) {
	row{
		legacy: true,
		twist:  answers("Upgrade", 1, saying(cluster.ErrRefused, "failed to acquire upgrade mutex: mutex: Locked by another session")),
		want:   cluster.ErrRefused, says: []string{"Locked by another session", "terraform apply again"},
	}.tried(t)
}

func TestCatalogue18NodeThatNeverReturnsIsNamed(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		row{
			legacy: legacy, fault: once(model.StepBoot, model.EffectNeverReturns, 0), want: engine.ErrNeverReturned, armed: true,
			says: []string{"did not come back online", "Look at its console"}, most: time.Hour + 30*time.Minute,
		}.tried(t)
	}
}

// A node that fell back is not sent into the same boot again.
func TestCatalogue19FallbackIsNamedAndNotRepeated(t *testing.T) {
	for _, node := range []string{"worker-1", "cp-1"} {
		fault := once(model.StepBoot, model.EffectFallback, 0)
		fault.Node = node

		inCluster(t, setup{Options: model.Options{Seed: 3, Faults: []model.Fault{fault}}}, func(r *rig) {
			row{want: engine.ErrFallback, says: []string{"fell back to Talos " + fromLifecycle, "boot ID", "retry"}}.failed(
				r, node, r.Worker("run-1").Apply(context.Background(), to(toLifecycle)), 0)

			_ = failure(t, r.Worker("run-2").Apply(context.Background(), to(toLifecycle)), engine.ErrBlocked, node)
			r.Sound()

			told := to(toLifecycle)
			told.Policy.Retry = map[string]string{node: r.State(node).BootID}
			r.Must(r.Worker("run-3"), told)
			r.At(toLifecycle)
		})
	}
}

func TestCatalogue20FailedSequenceIsNamed(t *testing.T) {
	row{
		legacy: true, fault: once(model.StepInstall, model.EffectFail, 0), want: engine.ErrInstaller,
		says: []string{"sequence failed", "upgrade sequence"}, again: true,
	}.tried(t)
}

// An upgrade that was accepted and never begun is begun again, once that is
// certain; one that the node says it is too busy for is not.
func TestCatalogue21LockedSequenceLeavesNothingBehind(t *testing.T) {
	row{legacy: true, twist: answers("Upgrade", 1, lostReply("it had not begun after 1m30s"))}.tried(t)
	row{
		legacy: true, twist: answers("Upgrade", 1, saying(cluster.ErrBusy, "sequence not started: locked")),
		want: cluster.ErrBusy, says: []string{"sequence not started: locked"},
	}.tried(t)
}

func TestCatalogue22ReplyLostInTheReboot(t *testing.T) {
	row{fault: once(model.StepReboot, model.EffectConnectionLost, 0)}.tried(t)
	row{legacy: true, fault: once(model.StepLegacyUpgrade, model.EffectConnectionLost, 0)}.tried(t)
}

func TestCatalogue25ReplyLostInTheInstall(t *testing.T) {
	row{fault: once(model.StepInstall, model.EffectConnectionLostEarly, 0)}.tried(t)
	row{fault: once(model.StepInstall, model.EffectConnectionLost, 0)}.tried(t)
}

// The installer that a cancelled run has begun runs on; the next run waits for
// it and reboots, and installs nothing.
func TestCatalogue26CancelledWhileInstalling(t *testing.T) {
	for _, node := range []string{"worker-1", "cp-1"} {
		inCluster(t, setup{Options: model.Options{Seed: 3}}, func(r *rig) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()

			var asked time.Time

			w := r.Worker("run-1")
			w.Client.Intercept(func(inner context.Context, call ports.Call, next func(context.Context) error) error {
				if call.Method == "Install" && call.Node == node {
					time.AfterFunc(2*time.Second, func() { asked = time.Now(); cancel() })
				}

				return next(inner)
			})

			err := w.Apply(ctx, to(toLifecycle))
			if took := time.Since(asked); !errors.Is(err, context.Canceled) || took > 15*time.Second {
				t.Errorf("%s after the cancel: %v", took, err)
			}

			r.Sound()

			if holder := r.Lease().Holder; holder != "" {
				t.Errorf("the lease is still held by %s", holder)
			}

			r.Must(r.Worker("run-2"), to(toLifecycle))
			r.At(toLifecycle)
			r.Once()
		})
	}
}
