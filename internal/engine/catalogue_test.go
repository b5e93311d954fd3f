// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// once is a fault that strikes one time, for that long.
func once(step model.Step, effect model.Effect, lasts time.Duration) model.Fault {
	return model.Fault{Step: step, Effect: effect, Times: 1, For: lasts}
}

// soon is when a run has to have failed that cannot succeed.
const soon = 2 * time.Minute

func TestCatalogue01_UnreachableNodeRefusesTheRun(t *testing.T) {
	t.Parallel()

	row{
		fault: once(model.StepObserve, model.EffectUnreachable, 0),
		want:  say.ErrBlocked, says: []string{"did not answer", "Nothing was touched"}, untouched: true, most: soon,
	}.tried(t)
}

// A look at a node that swallows packets takes its time; it ends all the same.
func TestCatalogue02_BlackHoledNodeRefusesTheRun(t *testing.T) {
	t.Parallel()

	row{
		twist: func(_ *rig, seen *twisted) {
			seen.machine = func(*cluster.Machine) error {
				time.Sleep(10 * time.Second)

				return saying(cluster.ErrUnreachable, "dial tcp: i/o timeout")
			}
		},
		want: say.ErrBlocked, says: []string{"i/o timeout"}, untouched: true, most: soon,
	}.tried(t)
}

func TestCatalogue03_BackOffAfterTheBootIsWaitedFor(t *testing.T) {
	t.Parallel()

	row{fault: once(model.StepBoot, model.EffectUnreachable, 15*time.Second)}.tried(t)
}

func TestCatalogue04_MissingImageFailsAtOnce(t *testing.T) {
	t.Parallel()

	for _, legacy := range []bool{false, true} {
		row{
			legacy: legacy, fault: model.Fault{Step: model.StepPull, Effect: model.EffectNotFound},
			want: cluster.ErrNotFound, says: []string{"v1.13.4", "No node was disturbed", "Check that the image exists"}, most: soon,
		}.tried(t)
	}
}

func TestCatalogue05_RegistryIsAskedAgain(t *testing.T) {
	t.Parallel()

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

func TestCatalogue06_DeniedSignatureFailsAtOnce(t *testing.T) {
	t.Parallel()

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

func TestCatalogue07_SlowPullIsWaitedFor(t *testing.T) {
	t.Parallel()

	row{fault: once(model.StepPull, model.EffectStall, 20*time.Minute)}.tried(t)
	row{
		fault: model.Fault{Step: model.StepPull, Effect: model.EffectStall},
		says:  []string{"Unable to pull", "No node was disturbed"}, most: cluster.PullTimeout + soon,
	}.tried(t)
}

// A node that was started anew since it pulled, or has dropped the image, pulls it once more.
func TestCatalogue08_ImageGoneBeforeTheInstallIsPulledAgain(t *testing.T) {
	t.Parallel()

	gone := saying(errors.Join(cluster.ErrRefused, cluster.ErrNotPulled), `installer image "x" not found in containerd store`)

	row{twist: answers("Install", 1, gone)}.tried(t)
	row{twist: answers("Install", always, gone), want: cluster.ErrNotPulled, says: []string{"not found in containerd store", "is not cordoned by this run"}}.tried(t)

	for _, node := range []string{"worker-1", "cp-1"} {
		inCluster(t, setup{Options: model.Options{Talos: fromLifecycle, Seed: 3}}, func(r *rig) {
			var once sync.Once

			w := r.Worker("run-1")
			w.Client.Intercept(func(inner context.Context, call ports.Call, next func(context.Context) error) error {
				if call.Method == "Install" && call.Node == node {
					once.Do(func() {
						if err := r.World().RemoveImage(inner, node, installer+":v"+toLifecycle, model.NamespaceOwn); err != nil {
							t.Error(err)
						}
					})
				}

				return next(inner)
			})

			r.Must(w, to(toLifecycle))
			r.At(toLifecycle)
			r.Once()
		})
	}
}

// An image of something else is named as such.
func TestCatalogue08_ImageWithoutAnInstallerArmsNothing(t *testing.T) {
	t.Parallel()

	row{
		twist: answers("Install", 1, saying(errors.Join(cluster.ErrRefused, cluster.ErrNoInstaller), `exec: "/bin/installer": stat /bin/installer: no such file or directory`)),
		want:  cluster.ErrNoInstaller, says: []string{"stat /bin/installer", "is not cordoned by this run", "The image is no installer of Talos.", "image remove --namespace inmem"},
	}.tried(t)
}

// An install that certainly wrote nothing leaves the node as it was: in service,
// with nothing open in the journal, and without a reboot.
func TestCatalogue08_InstallThatWroteNothingDisturbsNoMore(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]row{
		"no container for the installer": {
			fault: once(model.StepInstall, model.EffectNotStarted, 0), want: cluster.ErrRefused, says: []string{"failed to create container", "is not cordoned by this run"},
		},
		"the installer's code says so": {
			from: "1.14.0", to: "1.14.1", fault: once(model.StepInstall, model.EffectRefuse, 0), want: say.ErrInstaller,
			says: []string{"exited with code 4", "pre-flight checks failed", "is not cordoned by this run", "Fix what the installer reports, or choose another talos_version or installer_image, then run terraform apply again."},
		},
	} {
		t.Run(name, func(t *testing.T) { given.tried(t) })
	}
}

func TestCatalogue09_RefusalOfTheInstallerIsTold(t *testing.T) {
	t.Parallel()

	const text = "host version 1.10.0 is too old to upgrade to Talos 1.13.0"

	fault := once(model.StepInstall, model.EffectFail, 0)
	fault.Message = text

	row{fault: fault, want: say.ErrInstaller, says: []string{text, "exited with code"}, armed: true, again: true}.tried(t)
}

// What a crashed installer has written nobody knows, so that its node counts as
// armed. Where even that is not known, a reboot tells.
func TestCatalogue10_CrashedInstallerMayHaveArmed(t *testing.T) {
	t.Parallel()

	row{
		fault: once(model.StepInstall, model.EffectFailArmed, 0), want: say.ErrInstaller,
		says: []string{"exited with code", "stays cordoned"}, armed: true, again: true,
	}.tried(t)
	row{twist: answers("Install", 1, saying(nil, "upgrade failed: task exited with error")), again: true}.tried(t)
}

func TestCatalogue11_InstallerOfSomebodyElseIsNamed(t *testing.T) {
	t.Parallel()

	row{
		twist: answers("Install", 1, saying(cluster.ErrBusy, "another installation/upgrade is already in progress")),
		want:  cluster.ErrBusy, says: []string{"already in progress", "Somebody else is installing on this node"},
	}.tried(t)
}

func TestCatalogue13_UpgradeMutexIsNamed(t *testing.T) {
	t.Parallel()

	row{
		legacy: true,
		twist:  answers("Upgrade", 1, saying(cluster.ErrRefused, "failed to acquire upgrade mutex: mutex: Locked by another session")),
		want:   cluster.ErrRefused, says: []string{"Locked by another session", "terraform apply again"},
	}.tried(t)
}

func TestCatalogue18_NodeThatNeverReturnsIsNamed(t *testing.T) {
	t.Parallel()

	for _, legacy := range []bool{false, true} {
		row{
			legacy: legacy, fault: once(model.StepBoot, model.EffectNeverReturns, 0), want: say.ErrNeverReturned, armed: true,
			says: []string{"did not come back online", "Look at its console"}, most: time.Hour + 30*time.Minute,
		}.tried(t)
	}
}

// Whoever applies again while the node is still away is told the same.
func TestCatalogue18_NodeThatIsStillAwayIsNamedAgain(t *testing.T) {
	t.Parallel()

	for _, node := range []string{"worker-1", "cp-1"} {
		fault := once(model.StepBoot, model.EffectNeverReturns, 0)
		fault.Node = node

		inCluster(t, setup{Options: model.Options{Seed: 3, Faults: []model.Fault{fault}}}, func(r *rig) {
			for _, run := range []string{"run-1", "run-2"} {
				failed := failure(t, r.Worker(run).Apply(context.Background(), to(toLifecycle)), say.ErrNeverReturned, node)
				if !strings.Contains(failed.Seen, "did not come back online") || !strings.Contains(failed.Remedy, "Look at its console") {
					t.Errorf("%s saw: %s\nand wants: %s", run, failed.Seen, failed.Remedy)
				}
			}

			r.Sound()

			r.World().SetFaults(nil)
			r.Until("back", 15*time.Minute, func() bool { return r.State(node).Ready })
			r.Must(r.Worker("run-3"), to(toLifecycle))
			r.At(toLifecycle)
		})
	}
}

// A node that fell back is not sent into the same boot again.
func TestCatalogue19_FallbackIsNamedAndNotRepeated(t *testing.T) {
	t.Parallel()

	for _, node := range []string{"worker-1", "cp-1"} {
		fault := once(model.StepBoot, model.EffectFallback, 0)
		fault.Node = node

		inCluster(t, setup{Options: model.Options{Seed: 3, Faults: []model.Fault{fault}}}, func(r *rig) {
			row{want: say.ErrFallback, says: []string{"fell back to Talos " + fromLifecycle, "boot ID", "retry"}}.failed(
				r, node, r.Worker("run-1").Apply(context.Background(), to(toLifecycle)), 0)

			_ = failure(t, r.Worker("run-2").Apply(context.Background(), to(toLifecycle)), say.ErrBlocked, node)
			r.Sound()

			told := to(toLifecycle)
			told.Policy.Retry = map[string]string{node: r.State(node).BootID}
			r.Must(r.Worker("run-3"), told)
			r.At(toLifecycle)
		})
	}
}

func TestCatalogue20_FailedSequenceIsNamed(t *testing.T) {
	t.Parallel()

	row{
		legacy: true, fault: once(model.StepInstall, model.EffectFail, 0), want: say.ErrInstaller,
		says: []string{"sequence failed", "upgrade sequence"}, again: true,
	}.tried(t)
}

// An upgrade that was accepted and never begun is begun again, once that is
// certain, and also if the node says that it is too busy for it.
func TestCatalogue21_LockedSequenceIsBegunAgain(t *testing.T) {
	t.Parallel()

	row{legacy: true, twist: answers("Upgrade", 1, lostReply("it had not begun after 1m30s"))}.tried(t)
	row{legacy: true, twist: answers("Upgrade", 1, saying(cluster.ErrBusy, "sequence not started: locked"))}.tried(t)
}

// A request whose answer was lost takes effect when the next one has been accepted, which the node says it is
// too busy for: it is on its way to the new system, and stays cordoned until then.
func TestCatalogue21_EarlierRequestLocksTheSequence(t *testing.T) {
	t.Parallel()

	row{legacy: true, twist: func(_ *rig, seen *twisted) {
		seen.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Node != seen.node || call.Method != "Upgrade" || !seen.on() {
				return next(ctx)
			}

			seen.mu.Lock()
			seen.calls["Upgrade"]++
			first := seen.calls["Upgrade"] == 1
			seen.mu.Unlock()

			if first {
				return lostReply("the connection ended")
			}

			if err := next(ctx); err != nil {
				return err
			}

			return saying(cluster.ErrBusy, "sequence not started: locked")
		})
	}}.tried(t)
}

// A node that is at work each time is left as it is, and it is said that somebody else is at work there.
func TestCatalogue21_SequenceThatIsAlwaysLocked(t *testing.T) {
	t.Parallel()

	row{
		legacy: true, twist: answers("Upgrade", always, saying(cluster.ErrBusy, "sequence not started: locked")),
		want: cluster.ErrBusy, says: []string{"the node was asked", "the node runs its old system as before", "sequence not started: locked", "Somebody else is installing on this node"},
	}.tried(t)
}

// Somebody else upgrades the node to another version at the same moment: that is named once the node is back.
func TestCatalogue21_SomebodyElseLocksTheSequence(t *testing.T) {
	t.Parallel()

	row{
		legacy: true, node: "worker-1", armed: true, again: true, want: cluster.ErrBusy, says: []string{"came back with Talos 1.13.3", "sequence not started: locked", "Somebody else is installing on this node"},
		twist: func(r *rig, seen *twisted) {
			seen.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
				if call.Node != seen.node || call.Method != "Upgrade" || !seen.on() {
					return next(ctx)
				}

				if err := r.World().UpgradeByHand(seen.node, "ghcr.io/siderolabs/installer:v1.13.3"); err != nil {
					return err
				}

				return saying(cluster.ErrBusy, "sequence not started: locked")
			})
		},
	}.tried(t)
}

func TestCatalogue22_ReplyLostInTheRebootIsLookedInto(t *testing.T) {
	t.Parallel()

	row{fault: once(model.StepReboot, model.EffectConnectionLost, 0)}.tried(t)
	row{legacy: true, fault: once(model.StepLegacyUpgrade, model.EffectConnectionLost, 0)}.tried(t)
}

func TestCatalogue25_ReplyLostInTheInstallIsLookedInto(t *testing.T) {
	t.Parallel()

	row{fault: once(model.StepInstall, model.EffectConnectionLostEarly, 0)}.tried(t)
	row{fault: once(model.StepInstall, model.EffectConnectionLost, 0)}.tried(t)
}

// A node that loses its power while it installs has nothing of the image in its memory: it pulls
// it again before it installs again, and what its disk lacks of it is not looked at.
func TestCatalogue25_PowerLostInTheInstallIsPulledAgain(t *testing.T) {
	t.Parallel()

	row{fault: once(model.StepInstall, model.EffectPowerLost, 0), again: true}.tried(t)

	// A node without pods installs what it has just pulled.
	for _, node := range []string{"worker-0", "cp-0"} {
		fault := once(model.StepInstall, model.EffectPowerLost, 0)
		fault.Node = node

		inCluster(t, setup{Options: model.Options{Talos: fromLifecycle, Seed: 3, Faults: []model.Fault{fault}}}, func(r *rig) {
			r.Must(r.Worker("run-1"), to(toLifecycle))
			r.At(toLifecycle)
		})
	}
}

// The installer that a cancelled run has begun runs on; the next run waits for
// it and reboots, and installs nothing.
func TestCatalogue26_InstallerOfACancelledRunIsWaitedFor(t *testing.T) {
	t.Parallel()

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

// Nodes below Talos 1.13 refuse what the guards refuse before they ask: of two
// members neither may go, and none while another has not started.
func TestCatalogue12_EtcdIsCheckedBeforeTheNodesDo(t *testing.T) {
	t.Parallel()

	for _, talos := range []string{fromLegacy, fromLifecycle} {
		inCluster(t, setup{Options: model.Options{Talos: talos, ControlPlanes: 2, Workers: 1}}, func(r *rig) {
			w := r.Worker("run-1")

			err := w.Apply(context.Background(), to(toLifecycle))
			if !errors.Is(err, say.ErrBlocked) || !strings.Contains(err.Error(), cluster.CheckTwoMembers) {
				t.Errorf("%s: got %v, want it refused", talos, err)
			}

			if _, mutating := w.Client.Calls(); mutating != 0 {
				t.Errorf("%s: the refused run made %d mutating calls", talos, mutating)
			}
		})
	}

	for _, legacy := range []bool{false, true} {
		row{
			node: "cp-1", legacy: legacy, want: say.ErrBlocked, says: []string{"has never started", "talosctl etcd members"}, untouched: true, most: soon,
			twist: func(_ *rig, seen *twisted) {
				seen.etcd = func(view *cluster.EtcdView) error {
					for index := range view.Members {
						if view.Members[index].ID == view.Status.MemberID {
							view.Members[index].Name = ""
						}
					}

					return nil
				}
			},
		}.tried(t)
	}
}

func TestCatalogue14_EtcdWithoutLeaderIsNotTouched(t *testing.T) {
	t.Parallel()

	row{
		node: "cp-1", fault: model.Fault{Step: model.StepEtcd, Effect: model.EffectNoLeader}, want: say.ErrBlocked,
		says: []string{"leader", "talosctl"}, untouched: true, most: soon,
	}.tried(t)
}

func TestCatalogue15_AlarmIsNotRolledOver(t *testing.T) {
	t.Parallel()

	row{
		node: "cp-1", fault: model.Fault{Step: model.StepEtcd, Effect: model.EffectAlarmNoSpace}, want: say.ErrBlocked,
		says: []string{"NOSPACE", "talosctl etcd alarm disarm"}, untouched: true, most: soon,
	}.tried(t)
}

func TestCatalogue16_LearnerIsNotRolledOver(t *testing.T) {
	t.Parallel()

	row{
		node: "cp-1", fault: model.Fault{Step: model.StepEtcd, Effect: model.EffectLearner}, want: say.ErrBlocked,
		says: []string{"learner", "talosctl etcd members"}, untouched: true, most: soon,
	}.tried(t)
}

// absent is a member of etcd that does not answer after the boot of its node.
func absent(lasts time.Duration) func(*rig, *twisted) {
	return func(r *rig, seen *twisted) {
		var since time.Time

		seen.etcd = func(*cluster.EtcdView) error {
			if r.State(seen.node).BootID == seen.boot {
				return nil
			}

			seen.mu.Lock()
			defer seen.mu.Unlock()

			if since.IsZero() {
				since = time.Now()
			}

			if lasts != 0 && time.Since(since) > lasts {
				return nil
			}

			return saying(cluster.ErrUnreachable, "failed to create etcd client: no answer in time")
		}
	}
}

// No other control plane is touched before the member is back.
func TestCatalogue17_MemberIsWaitedFor(t *testing.T) {
	t.Parallel()

	row{node: "cp-1", twist: absent(12 * time.Minute)}.tried(t)
	row{
		node: "cp-1", twist: absent(0), armed: true, want: context.DeadlineExceeded,
		says: []string{"etcd to be healthy with cp-1", "failed to create etcd client", "terraform apply again"}, most: time.Hour + 30*time.Minute,
	}.tried(t)
}

func TestCatalogue29_MissingRoleIsNamedBeforeAnyCall(t *testing.T) {
	t.Parallel()

	for _, role := range []string{"os:reader", "os:operator"} {
		inCluster(t, setup{}, func(r *rig) {
			client := r.Client("run-1").WithRoles(role)

			failed := failure(t, r.WorkerOver(client, client, client).Apply(context.Background(), to(toLifecycle)), say.ErrBlocked, "")
			if !strings.Contains(failed.Error(), role) || !strings.Contains(failed.Error(), "os:admin") {
				t.Errorf("%s: %v, want it to name the role that is there and the one that is missing", role, failed)
			}

			if _, mutating := client.Calls(); mutating != 0 {
				t.Errorf("%s: the refused run made %d mutating calls", role, mutating)
			}

			r.Must(r.Worker("run-2"), to(toLifecycle))
			r.At(toLifecycle)
		})
	}
}

func TestCatalogue33_BusyConfigurationIsAskedAgain(t *testing.T) {
	t.Parallel()

	row{kubernetes: true, fault: model.Fault{Step: model.StepApply, Effect: model.EffectBusy, Times: 2}}.tried(t)
	row{
		kubernetes: true, fault: once(model.StepApply, model.EffectFail, 0), want: cluster.ErrRefused,
		says: []string{"refused"}, most: time.Hour,
	}.tried(t)
}

func TestCatalogue34_OtherWriterIsNamed(t *testing.T) {
	t.Parallel()

	row{
		node: "cp-1", kubernetes: true, fault: once(model.StepApply, model.EffectOverwritten, 0), want: say.ErrForeignWriter,
		says: []string{"data.talosupgrade_current_versions"},
	}.tried(t)
}

func TestCatalogue35_FlappingAPIServerIsWaitedFor(t *testing.T) {
	t.Parallel()

	for _, kubernetes := range []bool{false, true} {
		row{node: "cp-1", kubernetes: kubernetes, fault: model.Fault{Step: model.StepAPIServer, Effect: model.EffectFlap, Times: 2, For: 45 * time.Second}}.tried(t)
		row{kubernetes: kubernetes, fault: model.Fault{Step: model.StepPatch, Effect: model.EffectConnectionLost, Times: 3}}.tried(t)
	}
}

func TestCatalogue36_StaticPodThatNeverUpdatesIsNamed(t *testing.T) {
	t.Parallel()

	for effect, says := range map[model.Effect]string{model.EffectNeverReady: "kube-apiserver", model.EffectCrashLoop: "CrashLoopBackOff"} {
		fault := once(model.StepStaticPod, effect, 0)
		fault.Component = model.APIServerName

		row{node: "cp-1", kubernetes: true, fault: fault, want: context.DeadlineExceeded, says: []string{says, "kube-apiserver"}}.tried(t)
	}
}

func TestCatalogue37_KubeletThatIsNotReadyIsNamed(t *testing.T) {
	t.Parallel()

	row{kubernetes: true, node: "worker-1", fault: once(model.StepKubeletRestart, model.EffectStaysDown, 0), want: context.DeadlineExceeded, says: []string{"kubelet"}}.tried(t)
	row{kubernetes: true, node: "worker-1", fault: once(model.StepKubeletRestart, model.EffectNotReady, 0), want: context.DeadlineExceeded, says: []string{"KubeletNotReady"}}.tried(t)
	row{
		fault: once(model.StepBoot, model.EffectNotReady, 0), want: say.ErrUnhealthy, armed: true,
		says: []string{"not ready"}, most: time.Hour + 30*time.Minute,
	}.tried(t)
}

func TestCatalogue38_BlockedDrainIsNamed(t *testing.T) {
	t.Parallel()

	fault := model.Fault{Node: "worker-1", Step: model.StepDrain, Effect: model.EffectBlockedByBudget}

	inCluster(t, setup{Options: model.Options{Seed: 3, Faults: []model.Fault{fault}}}, func(r *rig) {
		begun := time.Now()
		w := r.Worker("run-1")
		row{want: say.ErrDrain, says: []string{"PodDisruptionBudget", "drain.on_timeout"}}.failed(r, "worker-1", w.Apply(context.Background(), undrained(to(toLifecycle))), time.Since(begun))
		r.Sound()

		// Each try costs a budget nothing, and the API server something.
		const most = 5*60/5 + 15

		if tries := len(r.Judge.Of(history.KindEvict)); tries == 0 || tries > most {
			t.Errorf("%d evictions were tried, want at most %d", tries, most)
		}

		r.World().SetFaults(nil)
		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// A machine that registers no Node object cannot be cordoned, drained or seen to
// be Ready, so that it is named and left to its owner.
func TestCatalogue39_MachineWithoutNodeObjectIsNamed(t *testing.T) {
	t.Parallel()

	row{
		node: "worker-1", want: say.ErrBlocked, says: []string{"no Node object", "Let it join"}, untouched: true, most: soon,
		twist: func(_ *rig, seen *twisted) {
			seen.machine = func(machine *cluster.Machine) error {
				machine.NodeName = ""

				return nil
			}
			seen.nodes = func(nodes []cluster.KubeNode) []cluster.KubeNode { return without(nodes, seen.node) }
		},
	}.tried(t)
}

func without(nodes []cluster.KubeNode, name string) []cluster.KubeNode {
	var left []cluster.KubeNode

	for _, node := range nodes {
		if node.Name != name {
			left = append(left, node)
		}
	}

	return left
}

// What discovery says is late: it misses machines that are there, and lists those
// that are not. Versions and addresses come from elsewhere.
func TestCatalogue44_LateDiscoveryLeadsNobodyAstray(t *testing.T) {
	t.Parallel()

	row{node: "worker-1", twist: func(_ *rig, seen *twisted) {
		seen.members = func(members []cluster.Member) ([]cluster.Member, error) {
			var left []cluster.Member

			for _, member := range members {
				if member.Hostname != seen.node {
					left = append(left, member)
				}
			}

			return left, nil
		}
	}}.tried(t)
	row{node: "worker-1", twist: func(_ *rig, seen *twisted) {
		seen.members = func([]cluster.Member) ([]cluster.Member, error) {
			return nil, saying(cluster.ErrUnreachable, "discovery does not answer")
		}
	}}.tried(t)

	// A machine that went for good is named, so that nobody takes it for one that
	// was forgotten. Of control planes that has to be certain.
	for node, role := range map[string]cluster.Role{"worker-9": cluster.Worker, "cp-9": cluster.ControlPlane} {
		inCluster(t, setup{}, func(r *rig) {
			client := r.Client("run-1")

			seen := &twisted{Client: client, members: func(members []cluster.Member) ([]cluster.Member, error) {
				return append(members, cluster.Member{Hostname: node, Role: role, Addresses: []string{"10.5.0.99"}}), nil
			}}

			if role == cluster.Worker {
				w := r.WorkerOver(client, seen, seen)
				r.Must(w, to(toLifecycle))
				r.At(toLifecycle)

				return
			}

			failed := failure(t, r.WorkerOver(client, seen, seen).Apply(context.Background(), to(toLifecycle)), say.ErrBlocked, node)
			if !strings.Contains(failed.Error(), "10.5.0.99") || !strings.Contains(failed.Error(), "until discovery forgets it") {
				t.Errorf("%v, want the address and what to do", failed)
			}

			if _, mutating := client.Calls(); mutating != 0 {
				t.Errorf("the refused run made %d mutating calls", mutating)
			}

			r.Must(r.Worker("run-2"), to(toLifecycle))
			r.At(toLifecycle)
		})
	}
}

// Credentials that are refused in the middle of a turn end it at once, and what
// was begun is finished with better ones.
func TestCatalogue27_ExpiredCredentialsFailFast(t *testing.T) {
	t.Parallel()

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
func TestCatalogue28_UnsynchronisedClockIsWaitedFor(t *testing.T) {
	t.Parallel()

	row{
		fault: model.Fault{Step: model.StepClock, Effect: model.EffectUnsynced}, want: say.ErrBlocked,
		says: []string{"clock is not synchronised", "talosctl time"}, untouched: true, most: 30 * time.Minute,
	}.tried(t)
	row{twist: booting(3*time.Minute, unmet(cluster.StageBooting, "time: time is not synced"))}.tried(t)
}

func TestCatalogue30_CallThatTheNodeDoesNotHaveIsNamed(t *testing.T) {
	t.Parallel()

	row{
		twist: answers("Install", 1, saying(cluster.ErrUnsupported, "unknown service machine.LifecycleService")),
		want:  cluster.ErrUnsupported, says: []string{"unknown service machine.LifecycleService"},
	}.tried(t)
}

func TestCatalogue32_ContainerModeRefusesTheInstall(t *testing.T) {
	t.Parallel()

	row{
		twist: answers("Install", always, saying(cluster.ErrRefused, "method is not supported in container mode")),
		want:  cluster.ErrRefused, says: []string{"container mode"},
	}.tried(t)
}

func TestCatalogue40_FullDiskIsNamed(t *testing.T) {
	t.Parallel()

	row{
		fault: model.Fault{Step: model.StepDisk, Effect: model.EffectFull}, want: say.ErrBlocked,
		says: []string{"free for images", "Free space there"}, untouched: true, most: soon,
	}.tried(t)
	row{
		twist: answers("Pull", always, saying(cluster.ErrRefused, "failed to pull image: no space left on device")),
		want:  cluster.ErrRefused, says: []string{"no space left on device", "No node was disturbed", "make room on its disk"}, most: soon,
	}.tried(t)
}

// A node with a mount that hangs, such as that of an NFS server that is gone, does
// not tell about its disk. Its kubelet does.
func TestCatalogue40_UnknownDiskStopsNothing(t *testing.T) {
	t.Parallel()

	row{fault: model.Fault{Step: model.StepDisk, Effect: model.EffectStall}}.tried(t)
	row{fault: model.Fault{Step: model.StepDisk, Effect: model.EffectUnreadable}}.tried(t)
}

// A person's staged upgrade boots twice. The first boot is none that counts.
func TestCatalogue41_InstallingBootIsWaitedOut(t *testing.T) {
	t.Parallel()

	row{twist: booting(2*time.Minute, func(machine *cluster.Machine) { machine.Stage = cluster.StageInstalling })}.tried(t)
}

func TestCatalogue42_NodeStuckInBootingIsNamed(t *testing.T) {
	t.Parallel()

	row{
		twist: booting(0, unmet(cluster.StageBooting, "network: waiting on: connectivity")), armed: true,
		want: say.ErrUnhealthy, says: []string{"network: waiting on: connectivity", "booting"}, most: time.Hour + 30*time.Minute,
	}.tried(t)
	row{twist: booting(10*time.Minute, unmet(cluster.StageBooting, "network: waiting on: connectivity"))}.tried(t)
}

// What was sent into a connection that a node closed is looked for.
func TestCatalogue43_ClosedConnectionIsLookedInto(t *testing.T) {
	t.Parallel()

	row{twist: answers("Reboot", 1, lostReply("ENHANCE_YOUR_CALM, debug data: too_many_pings"))}.tried(t)
}

// row is a fault of the catalogue that strikes a node in the middle of a roll,
// and what comes of it.
type row struct {
	// node is the one that is struck; empty is a worker first and a control plane
	// then.
	node   string
	legacy bool
	// from and to replace the versions of Talos.
	from, to string
	// kubernetes rolls Kubernetes instead of Talos.
	kubernetes bool
	// fault is played by the simulator, unless it is empty.
	fault model.Fault
	// twist distorts what the engine sees of the cluster until the fault is lifted.
	twist func(*rig, *twisted)
	// want is the sentinel of the failure and says what must be in its text;
	// without either the run gets over it.
	want error
	says []string
	// armed is true if the node stays cordoned, again if it needs another
	// install or reboot later.
	armed, again bool
	// untouched is true if the run must not have changed anything.
	untouched bool
	// most bounds the run that fails, in virtual time; 0 is two hours.
	most time.Duration
}

// twisted is a cluster that is seen wrongly.
type twisted struct {
	*ports.Client

	node, address string
	// boot is the boot ID of the node when the run begins.
	boot string

	machine func(*cluster.Machine) error
	etcd    func(*cluster.EtcdView) error
	members func([]cluster.Member) ([]cluster.Member, error)
	nodes   func([]cluster.KubeNode) []cluster.KubeNode

	mu     sync.Mutex
	lifted bool
	calls  map[string]int
}

func (c *twisted) on() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return !c.lifted
}

// count is how often a method was called about the node.
func (c *twisted) count(method string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.calls[method]
}

func (c *twisted) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	machine, err := c.Client.Machine(ctx, address, known, extent)
	if err == nil && c.machine != nil && address == c.address && c.on() {
		err = c.machine(&machine)
	}

	return machine, err
}

func (c *twisted) Etcd(ctx context.Context, address string, members bool) (cluster.EtcdView, error) {
	view, err := c.Client.Etcd(ctx, address, members)
	if err == nil && c.etcd != nil && address == c.address && c.on() {
		err = c.etcd(&view)
	}

	return view, err
}

func (c *twisted) Members(ctx context.Context) ([]cluster.Member, error) {
	members, err := c.Client.Members(ctx)
	if err == nil && c.members != nil && c.on() {
		return c.members(members)
	}

	return members, err
}

func (c *twisted) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return c.Nodes(ctx)
}

func (c *twisted) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	return named(ctx, name, c.Nodes)
}

func (c *twisted) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := c.Client.Nodes(ctx)
	if err == nil && c.nodes != nil && c.on() {
		nodes = c.nodes(nodes)
	}

	return nodes, err
}

// answers has the first calls of a method about the node end with an error, and
// nothing done.
func answers(method string, times int, err error) func(*rig, *twisted) {
	return func(_ *rig, seen *twisted) {
		seen.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Node != seen.node || call.Method != method || !seen.on() {
				return next(ctx)
			}

			seen.mu.Lock()
			seen.calls[method]++
			count := seen.calls[method]
			seen.mu.Unlock()

			if count > times {
				return next(ctx)
			}

			return err
		})
	}
}

// always is more often than anything is tried.
const always = 1 << 20

// saying is an error of an adapter: its meaning, and the text of the wire.
func saying(meaning error, text string) error {
	if meaning == nil {
		return fmt.Errorf("unable to ask: %s", text)
	}

	return fmt.Errorf("unable to ask: %w: %s", meaning, text)
}

// lostReply is a call that was sent and whose answer is lost.
func lostReply(text string) error {
	return fmt.Errorf("unable to ask: %w: %w: %s", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable, text)
}

// tried rolls a cluster in which the fault strikes, looks at how that ends, lifts
// the fault, and rolls again.
func (given row) tried(t *testing.T) {
	t.Helper()

	nodes := []string{given.node}
	if given.node == "" {
		nodes = []string{"worker-1", "cp-1"}
	}

	for _, node := range nodes {
		t.Run(node, func(t *testing.T) { given.on(t, node) })
	}
}

func (given row) request() (from string, request engine.Request) {
	switch {
	case given.from != "":
		return given.from, to(given.to)
	case given.kubernetes:
		return fromLifecycle, kube(toKubernetes)
	case given.legacy:
		return fromLegacy, to(toLegacy)
	default:
		return fromLifecycle, to(toLifecycle)
	}
}

func (given row) on(t *testing.T, node string) {
	t.Helper()

	from, request := given.request()
	options := model.Options{Talos: from, Seed: 3}

	if given.kubernetes {
		options.Kubernetes = fromKubernetes
	}

	if given.fault.Step != "" {
		given.fault.Node = node
		options.Faults = []model.Fault{given.fault}
	}

	inCluster(t, setup{Options: options}, func(r *rig) {
		r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})

		client, state := r.Client("run-1"), r.State(node)
		seen := &twisted{Client: client, node: node, address: state.Address, boot: state.BootID, calls: map[string]int{}}

		if given.twist != nil {
			given.twist(r, seen)
		}

		begun := time.Now()
		err := r.WorkerOver(client, seen, seen).Apply(context.Background(), request)
		took := time.Since(begun)

		r.Sound()

		if given.want == nil && given.says == nil {
			if err != nil {
				r.T.Fatalf("the run did not get over it: %v\n%s", err, r.Judge.Text())
			}
		} else {
			given.failed(r, node, err, took)
		}

		if _, mutating := client.Calls(); given.untouched && mutating > 0 {
			r.T.Errorf("the refused run made %d mutating calls", mutating)
		}

		seen.mu.Lock()
		seen.lifted = true
		seen.mu.Unlock()
		r.World().SetFaults(nil)
		r.Until("whole again", 15*time.Minute, r.whole)

		r.Must(r.Worker("run-2"), request)

		if given.kubernetes {
			r.atKubernetes(toKubernetes, request)

			return
		}

		r.At(request.Target.Talos.String())

		if !given.again {
			r.Once()
		}
	})
}

// failed looks at the run that the fault ended.
func (given row) failed(r *rig, node string, err error, took time.Duration) {
	r.T.Helper()

	failed := failure(r.T, err, given.want, node)

	for _, part := range slices.Concat(given.says, []string{node}) {
		if text := failed.Error(); !strings.Contains(text, part) {
			r.T.Errorf("the failure does not say %q: %s", part, text)
		}
	}

	most := given.most
	if most == 0 {
		most = 2 * time.Hour
	}

	if took > most {
		r.T.Errorf("it took %s to fail, want at most %s", took, most)
	}

	if !given.kubernetes && !given.untouched {
		r.stopped(node, given.armed)
	}
}
