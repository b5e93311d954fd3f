// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestBoot_NodeThatWentThroughItIsNotRebootedAgain: a node takes so long to go
// down that the reboot is about to be asked for again, and does so while the
// guards are waited for.
func TestBoot_NodeThatWentThroughItIsNotRebootedAgain(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
		var asked atomic.Int32

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method != "Reboot" || call.Node != "worker-0" || asked.Add(1) > 1 {
				return next(ctx)
			}

			time.AfterFunc(50*time.Second, func() {
				faults := silent("cp-2")
				faults[0].Times, faults[0].For = 1, 8*time.Minute
				r.World().SetFaults(faults)
			})
			time.AfterFunc(2*time.Minute, func() { _ = next(context.WithoutCancel(ctx)) })

			return nil
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// bootless is a cluster in which the boot ID of a machine cannot be read for a
// while.
type bootless struct {
	*ports.Client

	address string
	on      atomic.Bool
}

func (c *bootless) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	machine, err := c.Client.Machine(ctx, address, known, extent)
	if address == c.address && c.on.Load() {
		machine.BootID = ""
	}

	return machine, err
}

// TestBoot_UnreadableIsNoOtherBoot: no reboot is believed in because of it,
// and no install is recorded on it. The machine is blind from one call on until
// three minutes later or, where it comes first, the journal has been written.
func TestBoot_UnreadableIsNoOtherBoot(t *testing.T) {
	t.Parallel()

	for _, hop := range []struct{ method, from, to string }{
		{"Pull", fromLifecycle, toLifecycle},
		{"Cordon", fromLifecycle, toLifecycle},
		{"Install", fromLifecycle, toLifecycle},
		{"Reboot", fromLifecycle, toLifecycle},
		{"Pull", fromLegacy, toLegacy},
		{"Cordon", fromLegacy, toLegacy},
		{"Upgrade", fromLegacy, toLegacy},
	} {
		t.Run(hop.method+" from "+hop.from, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 41}}, func(r *rig) {
				client := r.Client("run-1")
				blind := &bootless{Client: client, address: r.State("worker-0").Address}
				w := r.WorkerOver(client, blind, client)

				var begun sync.Once

				client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					err := next(ctx)

					switch {
					case call.Method == hop.method && call.Node == "worker-0":
						begun.Do(func() {
							blind.on.Store(true)
							time.AfterFunc(3*time.Minute, func() { blind.on.Store(false) })
						})
					case call.Method == "WriteJournal":
						blind.on.Store(false)
					}

					return err
				})

				r.Must(w, to(hop.to))
				r.At(hop.to)
				r.Once()
			})
		})
	}
}

// TestBoot_BetweenTwoLooksIsNoticed: a node whose downtime nobody saw, and that is not well
// with its new system, is neither on its old boot nor one whose upgrade never began.
func TestBoot_BetweenTwoLooksIsNoticed(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		for _, node := range []string{"worker-0", "cp-1"} {
			t.Run(name+" "+node, func(t *testing.T) {
				options := model.Options{Talos: hop.from, QuickReboots: true, Faults: []model.Fault{neverReady(node)}}

				inCluster(t, setup{Options: options}, func(r *rig) {
					failed := failure(t, r.Worker("run-1").Apply(context.Background(), to(hop.to)), say.ErrUnhealthy, node)
					if !strings.Contains(failed.State, "The node runs the new system and is not back in service yet") {
						t.Errorf("the state is %q", failed.State)
					}

					r.Sound()
					r.stopped(node, true)

					if entry := r.entryOf(node); entry.Phase != cluster.PhaseRebooting {
						t.Errorf("the journal says %+v, want it rebooting", entry)
					}
				})
			})
		}
	}
}

// TestBoot_EntryWithoutOneProvesNoReboot: a run was killed after the install, and
// what it wrote does not say on which boot that was.
func TestBoot_EntryWithoutOneProvesNoReboot(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
		r.killedAt("run-1", "Reboot", 1, to(toLifecycle))

		client := r.Client("run-2")
		w := r.WorkerOver(client, client, &unbooted{Client: client})
		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// unbooted is a cluster whose journal names no boots when it is read.
type unbooted struct{ *ports.Client }

func (u *unbooted) Journal(ctx context.Context) (cluster.Journal, error) {
	journal, err := u.Client.Journal(ctx)
	for uuid, entry := range journal.Entries {
		entry.BootID = ""
		journal = journal.With(uuid, entry)
	}

	return journal, err
}

// killedAt runs an upgrade that is killed before its n-th call of a method.
func (r *rig) killedAt(run, method string, nth int32, request engine.Request) {
	r.T.Helper()
	r.killed(r.Worker(run), method, nth, request)
}

// killed is [rig.killedAt] for a worker.
func (r *rig) killed(w *worker, method string, nth int32, request engine.Request) {
	r.T.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	var calls atomic.Int32

	hit := newStrike(dieBefore, atWill, cancel)
	w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == method && calls.Add(1) == nth {
			hit.Kill()
		}

		return hit.Intercept(ctx, call, next)
	})

	if err := w.Apply(ctx, request); err == nil {
		r.T.Fatal("the killed run reports success")
	}
}

// naming is a request that has the machine configurations follow.
func naming(target string) engine.Request {
	request := to(target)
	request.Policy.SyncInstallImage = true

	return request
}

func TestInstallImage_FollowsAConfirmedUpgrade(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		setup  setup
		target string
	}{
		"in v1alpha1":  {setup: setup{Options: model.Options{Talos: fromLegacy}}, target: toLegacy},
		"in documents": {setup: setup{Options: model.Options{Talos: "1.14.0", Documents: true}}, target: "1.14.1"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, given.setup, func(r *rig) {
				r.Must(r.Worker("run-1"), naming(given.target))
				r.At(given.target)

				for _, node := range r.World().Nodes() {
					if !strings.HasSuffix(node.InstallImage, ":v"+given.target) {
						t.Errorf("the configuration of %s names %s", node.Name, node.InstallImage)
					}
				}

				again := r.Worker("run-2")
				r.Must(again, naming(given.target))

				if _, mutating := again.Client.Calls(); mutating > 0 {
					t.Errorf("another upgrade made %d mutating calls", mutating)
				}
			})
		})
	}
}

func TestInstallImage_LeftAloneUnlessAskedFor(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		before := r.State("worker-0").InstallImage
		r.Must(r.Worker("run-1"), to(toLifecycle))

		if after := r.State("worker-0").InstallImage; after != before || len(r.Judge.Of(history.KindConfig)) > 0 {
			t.Errorf("the configuration names %s, was %s", after, before)
		}
	})
}

// A configuration without an image means Talos' own choice.
func TestInstallImage_UnsetStaysUnset(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		before := r.State("worker-0").InstallImage

		err := r.World().SetConfigByHand("worker-0", func(old string) (string, error) {
			return strings.Replace(old, "    image: "+before+"\n", "", 1), nil
		})
		if err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-1"), naming(toLifecycle))
		r.At(toLifecycle)

		if after := r.State("worker-0").InstallImage; before == "" || after != "" {
			t.Errorf("the configuration names %q, named %q and then nothing", after, before)
		}
	})
}

// TestInstallImage_DoesNotFollowAnInstallThatNeverBegan: the node runs the version of the entry, as before, and not its
// schematic, which nobody wants any more.
func TestInstallImage_DoesNotFollowAnInstallThatNeverBegan(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		request := naming(fromLifecycle)
		request.Target.InstallerImage = "factory.talos.dev/metal-installer/" + schematicOfTests

		before := map[string]string{}
		for _, node := range r.World().Nodes() {
			before[node.Name] = node.InstallImage
		}

		r.killedAt("run-1", "Install", 1, request)
		r.Must(r.Worker("run-2"), naming(fromLifecycle))
		r.Tidy()

		for _, node := range r.World().Nodes() {
			if node.InstallImage != before[node.Name] {
				t.Errorf("the configuration of %s names %s, and %s before; it runs schematic %q", node.Name, node.InstallImage, before[node.Name], node.Schematic)
			}
		}
	})
}

// A fallback is no confirmed upgrade.
func TestInstallImage_DoesNotFollowAFallback(t *testing.T) {
	t.Parallel()

	faults := []model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback}}

	inCluster(t, setup{Options: model.Options{Faults: faults}}, func(r *rig) {
		if err := r.Worker("run-1").Apply(context.Background(), naming(toLifecycle)); err == nil {
			t.Fatal("the node did not fall back")
		}

		if image := r.State("worker-0").InstallImage; strings.Contains(image, toLifecycle) {
			t.Errorf("the configuration names %s", image)
		}
	})
}

// A run that dies between the confirmation and the change leaves it to the next.
func TestInstallImage_FollowsAfterACrash(t *testing.T) {
	t.Parallel()

	for _, kind := range harness.Crashes() {
		t.Run(string(kind), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1}}, func(r *rig) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				first := r.Worker("run-1")
				first.Client.Intercept(atMethod("Configure", newStrike(kind, atWill, cancel)))
				_ = first.Apply(ctx, naming(toLifecycle))

				r.Must(r.Worker("run-2"), naming(toLifecycle))
				r.At(toLifecycle)
				r.Once()

				if changes := r.configured(); len(changes) != 2 {
					t.Errorf("the configurations were changed %v, want each once", changes)
				}

				for _, node := range r.World().Nodes() {
					if !strings.HasSuffix(node.InstallImage, ":v"+toLifecycle) {
						t.Errorf("the configuration of %s names %s", node.Name, node.InstallImage)
					}
				}
			})
		})
	}
}

// To be refused costs a warning and nothing else: the upgrade is done.
func TestInstallImage_RefusalIsAWarning(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(withCall("Configure", cluster.ErrRefused))
		r.Must(w, naming(toLifecycle))
		r.At(toLifecycle)

		if warned := w.Texts(cluster.EventWarning); len(warned) != 5 || !strings.Contains(warned[0], "could not be made to name it") {
			t.Errorf("told %q, want a warning for each node", warned)
		}
	})
}

// TestPlatform_NodesKeepTheirs: the installer that everybody gets is built for
// metal, and a node that takes its kernel arguments from there must not get it.
func TestPlatform_NodesKeepTheirs(t *testing.T) {
	t.Parallel()

	const generic, factory = "ghcr.io/siderolabs/installer:v", "factory.talos.dev/aws-installer/" + model.EmptySchematic + ":v"

	for name, test := range map[string]struct {
		options  model.Options
		to, want string
	}{
		"a UKI":                             {model.Options{UKI: true}, toLifecycle, factory},
		"a UKI, from a version without it":  {model.Options{UKI: true, Talos: fromLegacy}, toLegacy, factory},
		"GRUB that reads the UKI":           {model.Options{GrubUseUKICmdline: true}, toLifecycle, factory},
		"GRUB with kernel arguments of its": {model.Options{}, toLifecycle, generic},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Platform = "aws"
			inCluster(t, setup{Options: test.options}, func(r *rig) {
				r.Must(r.Worker("run-1"), to(test.to))
				r.At(test.to)
				r.Once()

				for _, node := range r.World().Nodes() {
					if node.Platform != "aws" || node.Image != test.want+test.to {
						t.Errorf("%s runs %s on platform %s", node.Name, node.Image, node.Platform)
					}
				}
			})
		})
	}
}

// TestPlatform_RollStopsAtANodeThatLostIts: the name of an image does not say what
// it is built for. The node that came back on another platform is the only one, it
// stays as it is, also for the next run, and goes on from its old system.
func TestPlatform_RollStopsAtANodeThatLostIts(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle},
		"legacy":    {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: hop.from, Platform: "aws", UKI: true}}, func(r *rig) {
				request := to(hop.to)
				request.Target.InstallerImage = "registry.example.com/talos/installer"

				for _, run := range []string{"run-1", "run-2"} {
					err := r.Worker(run).Apply(context.Background(), request)
					if !errors.Is(err, say.ErrPlatform) {
						t.Fatalf("%s: %v", run, err)
					}

					for _, part := range []string{
						"ran on platform aws and came back on metal", request.Target.InstallerImage + ":v" + hop.to,
						"talosctl -n " + r.State("worker-0").Address + " rollback", "its cordon stays",
					} {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("%s does not say %q: %v", run, part, err)
						}
					}

					for node, found := range r.Judge.Verdict().Nodes {
						if hit := node == "worker-0"; (found.Installs > 0) != hit || found.Cordoned != hit {
							t.Errorf("%s: %s: %d installs, cordoned %t", run, node, found.Installs, found.Cordoned)
						}
					}
				}

				if broken := r.Judge.Verdict().Broken(); !slices.Equal(broken, []checker.Invariant{checker.S5}) {
					t.Errorf("broke %v", broken)
				}

				if err := r.World().Rollback(context.Background(), "worker-0"); err != nil {
					t.Fatal(err)
				}

				r.Until("back", 10*time.Minute, func() bool { return r.State("worker-0").Talos == hop.from && r.State("worker-0").Ready })

				request.Target.InstallerImage = "registry.example.com/talos/aws-installer"
				if err := r.Worker("run-3").Apply(context.Background(), request); !errors.Is(err, say.ErrFallback) {
					t.Fatalf("run-3, which finds the node back with its old system: %v", err)
				}

				r.Must(r.Worker("run-4"), request)
				r.AllRun(hop.to)
				r.Tidy()

				for _, node := range r.World().Nodes() {
					if node.Platform != "aws" {
						t.Errorf("%s runs on platform %s", node.Name, node.Platform)
					}
				}
			})
		})
	}
}

// TestExtensions_RollStopsAtANodeThatLostOne: the name of an image of somebody's own says
// nothing of what is in it. The first node that comes back without an extension is the only
// one, it stays as it is, also for the next run, and goes on from its old system.
func TestExtensions_RollStopsAtANodeThatLostOne(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle},
		"legacy":    {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: hop.from, Extensions: []string{"qemu-guest-agent", "iscsi-tools"}}}, func(r *rig) {
				image := model.OwnRepository + ":v" + hop.to
				if err := r.World().PushBuild(image, model.Build{Extensions: []string{"qemu-guest-agent", "util-linux-tools"}}); err != nil {
					t.Fatal(err)
				}

				for _, run := range []string{"run-1", "run-2"} {
					err := r.Worker(run).Apply(context.Background(), to(hop.to))
					if !errors.Is(err, say.ErrExtensions) {
						t.Fatalf("%s: %v", run, err)
					}

					for _, part := range []string{
						"ran the extension iscsi-tools before and came back without: " + image + " does not have it",
						"talosctl -n " + r.State("worker-0").Address + " rollback", `skip = ["schematic"]`, "its cordon stays",
					} {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("%s does not say %q: %v", run, part, err)
						}
					}

					for node, found := range r.Judge.Verdict().Nodes {
						if hit := node == "worker-0"; (found.Installs > 0) != hit || found.Cordoned != hit {
							t.Errorf("%s: %s: %d installs, cordoned %t", run, node, found.Installs, found.Cordoned)
						}
					}
				}

				if err := r.World().Rollback(context.Background(), "worker-0"); err != nil {
					t.Fatal(err)
				}

				r.Until("back", 10*time.Minute, func() bool { return r.State("worker-0").Talos == hop.from && r.State("worker-0").Ready })

				if err := r.Worker("run-3").Apply(context.Background(), to(hop.to)); !errors.Is(err, say.ErrFallback) {
					t.Fatalf("run-3, which finds the node back with its old system: %v", err)
				}

				// The others have pulled that image, and keep it.
				const whole = "registry.example.com/whole/installer"
				if err := r.World().PushBuild(whole+":v"+hop.to, model.Build{Extensions: []string{"qemu-guest-agent", "iscsi-tools"}}); err != nil {
					t.Fatal(err)
				}

				request := to(hop.to)
				request.Target.InstallerImage, request.Policy.SkipChecks = whole, map[string]bool{cluster.CheckSchematic: true}

				r.Must(r.Worker("run-4"), request)
				r.AllRun(hop.to)
				r.Tidy()
			})
		})
	}
}

// TestExtensions_LossThatWasAcceptedIsSaid: the roll goes on, and each node that lost one is
// named.
func TestExtensions_LossThatWasAcceptedIsSaid(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		setup     setup
		installer string
		renamed   bool
	}{
		"it has another name in the next release": {
			setup:     setup{Options: model.Options{Schematic: schematicOfTests}},
			installer: "factory.talos.dev/metal-installer/" + schematicOfTests, renamed: true,
		},
		"the check is skipped": {
			setup:     setup{Options: model.Options{Extensions: []string{"iscsi-tools"}}, Judging: skipping(cluster.CheckSchematic)},
			installer: "registry.example.com/other/installer",
		},
		"another schematic is asked for": {
			setup:     setup{Options: model.Options{Schematic: schematicOfTests}},
			installer: "factory.talos.dev/metal-installer/" + model.EmptySchematic,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, test.setup, func(r *rig) {
				request := to(toLifecycle)
				request.Target.InstallerImage = test.installer

				if test.setup.Judging != nil {
					request.Policy.SkipChecks = map[string]bool{cluster.CheckSchematic: true}
				}

				if test.renamed {
					if err := r.World().PushBuild(test.installer+":v"+toLifecycle, model.Build{Schematic: schematicOfTests, Extensions: []string{"iscsi"}}); err != nil {
						t.Fatal(err)
					}
				}

				w := r.Worker("run-1")
				r.Must(w, request)
				r.AllRun(toLifecycle)
				r.Tidy()

				want := "the node ran the extension iscsi-tools before and came back without: " + test.installer + ":v" + toLifecycle + " does not have it"
				if said := strings.Count(strings.Join(w.Texts(cluster.EventWarning), "\n"), want); said != len(r.World().Nodes()) {
					t.Errorf("it was said of %d nodes, want of each of %d, once", said, len(r.World().Nodes()))
				}
			})
		})
	}
}

// TestExtensions_ImageThatIsNotWhatItsNameSays: the node stays cordoned, also for the next run,
// until it runs its old system again, or until what it runs is accepted.
func TestExtensions_ImageThatIsNotWhatItsNameSays(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Schematic: schematicOfTests}}, func(r *rig) {
		const image = "factory.talos.dev/metal-installer/" + schematicOfTests + ":v" + toLifecycle
		if err := r.World().PushBuild(image, model.Build{}); err != nil {
			t.Fatal(err)
		}

		for _, run := range []string{"run-1", "run-2"} {
			err := r.Worker(run).Apply(context.Background(), to(toLifecycle))
			if !errors.Is(err, say.ErrExtensions) {
				t.Fatalf("%s: %v", run, err)
			}

			for _, part := range []string{
				"came back with Talos " + toLifecycle + " without a schematic, and " + image + " is named after schematic " + schematicOfTests,
				"talosctl -n " + r.State("worker-0").Address + " rollback", "its cordon stays",
			} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s does not say %q: %v", run, part, err)
				}
			}

			for node, found := range r.Judge.Verdict().Nodes {
				if hit := node == "worker-0"; (found.Installs > 0) != hit || found.Cordoned != hit {
					t.Errorf("%s: %s: %d installs, cordoned %t", run, node, found.Installs, found.Cordoned)
				}
			}
		}

		if err := r.World().Rollback(context.Background(), "worker-0"); err != nil {
			t.Fatal(err)
		}

		r.Until("back", 10*time.Minute, func() bool { return r.State("worker-0").Talos == fromLifecycle && r.State("worker-0").Ready })

		if err := r.Worker("run-3").Apply(context.Background(), to(toLifecycle)); !errors.Is(err, say.ErrFallback) {
			t.Fatalf("run-3, which finds the node back with its old system: %v", err)
		}

		// The others have pulled that image, and keep it.
		request := to(toLifecycle)
		request.Target.InstallerImage = "registry.example.com/metal-installer/" + schematicOfTests

		r.Must(r.Worker("run-4"), request)
		r.AllRun(toLifecycle)
		r.Tidy()
	})
}

// TestExtensions_SystemThatSomebodyGaveTheNodeIsAccepted, if the check is skipped.
func TestExtensions_SystemThatSomebodyGaveTheNodeIsAccepted(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Schematic: schematicOfTests}, Judging: skipping(cluster.CheckSchematic)}, func(r *rig) {
		if err := r.World().PushBuild("factory.talos.dev/metal-installer/"+schematicOfTests+":v"+toLifecycle, model.Build{}); err != nil {
			t.Fatal(err)
		}

		if err := r.Worker("run-1").Apply(context.Background(), to(toLifecycle)); !errors.Is(err, say.ErrExtensions) {
			t.Fatal(err)
		}

		request := to(toLifecycle)
		request.Target.InstallerImage = "registry.example.com/plain/installer"
		request.Policy.SkipChecks = map[string]bool{cluster.CheckSchematic: true}

		w := r.Worker("run-2")
		r.Must(w, request)
		r.AllRun(toLifecycle)
		r.Tidy()

		if told := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(told, "which no run of ours installed") {
			t.Errorf("it is not said that the node runs something else: %s", told)
		}
	})
}

// restarts notes how nodes are restarted.
type restarts struct {
	*ports.Client

	rig   *rig
	mu    sync.Mutex
	modes map[string]cluster.RebootMode
}

func (r *restarts) Reboot(ctx context.Context, address string, mode cluster.RebootMode) error {
	r.note(address, mode)

	return r.Client.Reboot(ctx, address, mode)
}

func (r *restarts) Upgrade(ctx context.Context, address, image string, mode cluster.RebootMode, accepted func()) (cluster.Installation, error) {
	r.note(address, mode)

	return r.Client.Upgrade(ctx, address, image, mode, accepted)
}

func (r *restarts) note(address string, mode cluster.RebootMode) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, node := range r.rig.World().Nodes() {
		if node.Address == address {
			r.modes[node.Name] = mode
		}
	}
}

// TestReboot_RestsOnALookAfterItsRecord: while the record of it takes its time, somebody reboots another control
// plane. That one has to be back first.
func TestReboot_RestsOnALookAfterItsRecord(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		var struck atomic.Bool

		installed := func(entry cluster.Entry) bool { return entry.Node == "cp-0" && entry.Phase == cluster.PhaseInstalled }

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteJournal" && slices.ContainsFunc(slices.Collect(maps.Values(r.Journal().Entries)), installed) && !struck.Swap(true) {
				if err := r.World().RebootByHand("cp-2", model.RebootDefault); err != nil {
					t.Error(err)
				}

				time.Sleep(permit.MostAge + time.Second)
			}

			return next(ctx)
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)
		r.Sound()

		if !struck.Load() {
			t.Error("nothing was recorded before the reboot of cp-0")
		}
	})
}

// TestReboot_ModeIsThatOfTheNode: by its name, by its labels, or of all.
func TestReboot_ModeIsThatOfTheNode(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle},
		"legacy":    {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: hop.from, ControlPlanes: 1, Workers: 3}}, func(r *rig) {
				if err := r.LabelAsPerson("worker-1", "firmware", "old"); err != nil {
					t.Fatal(err)
				}

				request := to(hop.to)
				request.Policy.RebootMode = cluster.RebootDefault
				request.Policy.RebootModes = map[string]cluster.RebootMode{"worker-0": cluster.RebootPowercycle, "worker-2": cluster.RebootDefault}
				request.Policy.SelectorOverrides = []cluster.SelectorOverride{{Selector: label{"firmware", "old"}, RebootMode: cluster.RebootPowercycle}}

				client := &restarts{Client: r.Client("run-1"), rig: r, modes: map[string]cluster.RebootMode{}}
				r.Must(r.WorkerOver(client.Client, client, client), request)

				want := map[string]cluster.RebootMode{
					"worker-0": cluster.RebootPowercycle, "worker-1": cluster.RebootPowercycle, "worker-2": cluster.RebootDefault, "cp-0": cluster.RebootDefault,
				}
				if !maps.Equal(client.modes, want) {
					t.Errorf("they restarted by %v, want %v", client.modes, want)
				}
			})
		})
	}
}

// renamer is a cluster in which a node comes back from its upgrade under another name.
type renamer struct {
	*ports.Client

	rig      *rig
	old, now string
	// registers is true if there is a Node object of the new name.
	registers bool
}

func (r *renamer) back() bool { return r.rig.State(r.old).Talos == toLifecycle }

func (r *renamer) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	machine, err := r.Client.Machine(ctx, address, known, extent)
	if machine.NodeName == r.old && r.back() {
		machine.NodeName = r.now
	}

	return machine, err
}

func (r *renamer) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	asked := name
	if name == r.now && r.registers && r.back() {
		asked = r.old
	}

	node, err := r.Client.Node(ctx, asked)

	if r.back() && name == r.old {
		node.Ready, node.ReadyReason, node.BootID = false, "NodeStatusUnknown", "another"
	}

	node.Name = name

	return node, err
}

// TestCatalogue46_NodeUnderAnotherNameIsNamedAtOnce, and its kubelet is not blamed.
func TestCatalogue46_NodeUnderAnotherNameIsNamedAtOnce(t *testing.T) {
	t.Parallel()

	for registers, within := range map[bool]time.Duration{true: 40 * time.Second, false: 100 * time.Second} {
		t.Run(fmt.Sprintf("registered: %t", registers), func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{}, func(r *rig) {
				renamed := &renamer{Client: r.Client("run-1"), rig: r, old: "worker-0", now: "ip-10-0-0-4", registers: registers}
				w := r.WorkerOver(renamed.Client, renamed, renamed)

				failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrRenamed, "worker-0")
				took := r.World().Clock().Now().Sub(r.State("worker-0").BootedAt)

				for _, part := range []string{"its machine came back as ip-10-0-0-4", "kubectl delete node worker-0", "HostnameConfig"} {
					if !strings.Contains(failed.Detail(), part) {
						t.Errorf("it lacks %q: %s", part, failed.Detail())
					}
				}

				if pods := strings.Contains(failed.Detail(), "pods may have started there"); pods != registers {
					t.Errorf("it speaks of pods: %t: %s", pods, failed.Detail())
				}

				// A boot of its own takes a while.
				if took > within+2*time.Minute {
					t.Errorf("it took %s from the boot on", took)
				}

				if touched := r.installed(); len(touched) != 1 {
					t.Errorf("installed on %v", touched)
				}

				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestCatalogue45_MaintenanceModeIsNamedAtOnce, also the only control plane, and the next run goes
// on with it. One that finds its configuration after all is waited for.
func TestCatalogue45_MaintenanceModeIsNamedAtOnce(t *testing.T) {
	t.Parallel()

	single := setup{Options: model.Options{ControlPlanes: 1, Workers: 1}}

	for name, test := range map[string]struct {
		setup
		node  string
		stays time.Duration
		says  string
	}{
		"a worker":                    {setup{}, "worker-0", 0, "what answers has no certificate of this cluster"},
		"a control plane":             {setup{}, "cp-1", 0, "what answers has no certificate of this cluster"},
		"the only control plane":      {single, "cp-0", 0, "the endpoint is in maintenance mode"},
		"a worker, for half a minute": {setup{}, "worker-0", 30 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			test.Faults = []model.Fault{{Node: test.node, Step: model.StepBoot, Effect: model.EffectMaintenance, Times: 1, For: test.stays}}

			inCluster(t, test.setup, func(r *rig) {
				err := r.Worker("run-1").Apply(context.Background(), to(toLifecycle))
				if test.stays > 0 {
					if err != nil {
						t.Fatal(err)
					}

					r.At(toLifecycle)
					r.Once()

					return
				}

				failed := failure(t, err, say.ErrUnconfigured, test.node)

				for _, part := range []string{test.says, "talosctl get disks --insecure --nodes " + r.State(test.node).Address, "continues with this node"} {
					if !strings.Contains(failed.Detail(), part) {
						t.Errorf("it lacks %q: %s", part, failed.Detail())
					}
				}

				installs := r.Judge.Of(history.KindInstall)
				if took := r.World().Now().Seconds() - installs[len(installs)-1].Sim; took > 6*60 {
					t.Errorf("it took %.0f s from the install on", took)
				}

				r.World().SetFaults(nil)
				r.Until(test.node+" is back", 10*time.Minute, func() bool {
					state := r.State(test.node)

					return state.Reachable && state.Ready
				})
				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// restless is a cluster in which a person reboots a node in mid-drain, and the
// run is killed as soon as the installer has ended.
type restless struct {
	*ports.Client

	rig      *rig
	rebooted atomic.Bool
	kill     context.CancelFunc
}

func (r *restless) PodsToEvict(ctx context.Context, node string) ([]cluster.Pod, error) {
	if !r.rebooted.Swap(true) {
		before := r.rig.State(node).BootID

		if _, err := r.rig.World().Reboot(ctx, node, model.RebootDefault); err != nil {
			return nil, err
		}

		for r.rig.State(node).BootID == before || !r.rig.State(node).Ready {
			if err := r.rig.World().Clock().Sleep(ctx, 1777*time.Millisecond); err != nil {
				return nil, err
			}
		}
	}

	return r.Client.PodsToEvict(ctx, node)
}

func (r *restless) Install(ctx context.Context, address, image string) (cluster.Installation, error) {
	_, _ = r.Client.Install(ctx, address, image)
	r.kill()

	return cluster.Installation{}, cluster.ErrOutcomeUnknown
}

// TestBoot_RebootInMidTurnIsNotTheOneAfterTheInstall: the journal must name
// the boot on which the installer ran. Naming an earlier one, it would let the
// next run believe that the node has been through its reboot, and install again.
func TestBoot_RebootInMidTurnIsNotTheOneAfterTheInstall(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		disturbed := &restless{Client: r.Client("run-1"), rig: r, kill: cancel}
		first := r.WorkerOver(disturbed.Client, disturbed, disturbed)

		if _, err := first.Upgrade(ctx, to(toLifecycle)); err == nil {
			t.Error("the killed run reports success")
		}

		first.Notes.Finish()

		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Sound()

		for name, found := range r.Judge.Verdict().Nodes {
			if found.Installs != 1 {
				t.Errorf("%s was installed %d times", name, found.Installs)
			}
		}
	})
}

// slow is a cluster whose members take their time to be listed until the run
// has begun.
type slow struct {
	*ports.Client

	looks atomic.Int32
}

func (s *slow) Members(ctx context.Context) ([]cluster.Member, error) {
	if s.looks.Add(1) <= 2 {
		if err := engine.RealClock().Sleep(ctx, 45*time.Second); err != nil {
			return nil, err
		}
	}

	return s.Client.Members(ctx)
}

// pulledFirst fails the test when an installer ran on a node after a boot, or
// after the run before, without a pull of its image in between.
func (r *rig) pulledFirst(since float64) {
	r.T.Helper()

	pulled := map[string]bool{}

	for _, event := range r.Judge.Of(history.KindPull, history.KindInstall) {
		key := event.Node + " " + event.Detail["image"]

		switch {
		case event.Sim < since:
		case event.Kind == history.KindPull:
			pulled[key] = true
		case !pulled[key]:
			r.T.Errorf("%s was installed without a pull\n%s", key, r.Judge.Text())
		}
	}
}

// TestInstall_ThatNeverTookIsPlannedAnew: a run was killed on its way into the
// installer. What the next one installs instead is what its plan then says, and
// its image is there before.
func TestInstall_ThatNeverTookIsPlannedAnew(t *testing.T) {
	t.Parallel()

	for _, given := range []struct {
		from, target, next string
		pause              time.Duration
	}{
		{fromLifecycle, toLifecycle, toLifecycle, 0},
		{fromLifecycle, toLifecycle, toLifecycle, 8 * time.Hour},
		{fromLifecycle, toLifecycle, "1.13.5", 0},
		{fromLegacy, toLegacy, "1.13.5", 0},
	} {
		t.Run(fmt.Sprintf("%s, after %s to %s", given.from, given.pause, given.next), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: given.from, Seed: 7}}, func(r *rig) {
				method := "Install"
				if given.from == fromLegacy {
					method = "Upgrade"
				}

				r.killedAt("run-1", method, 1, to(given.target))
				time.Sleep(given.pause)

				begun := r.World().Now().Seconds()
				second := r.Worker("run-2")
				r.Must(second, to(given.next))
				r.At(given.next)
				r.pulledFirst(begun)

				// What is left for the next plan is not said to be done.
				for _, event := range second.Events() {
					if event.Kind == cluster.EventNodeDone && event.Component == "" && event.To.String() != given.next {
						t.Errorf("%s is said to be done with %s", event.Node, event.To)
					}
				}

				for name, node := range r.Judge.Verdict().Nodes {
					if node.Installs != 1 {
						t.Errorf("%s was installed %d times", name, node.Installs)
					}
				}
			})
		})
	}
}

// TestInstall_ManyThatNeverTookAreFinishedInOneApply is about a run that was
// killed while the connection to all its nodes stood still.
func TestInstall_ManyThatNeverTookAreFinishedInOneApply(t *testing.T) {
	t.Parallel()

	given := setup{Options: model.Options{ControlPlanes: 3, Workers: 6, Seed: 5}, Judging: []checker.Option{checker.MaxUnavailable(4)}}

	inCluster(t, given, func(r *rig) {
		const together = 4

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		var calls atomic.Int32

		hit := newStrike(dieBefore, atWill, cancel)
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method != "Install" {
				return hit.Intercept(ctx, call, next)
			}

			if calls.Add(1) == together {
				hit.Kill()
			}

			<-hit.Killed()

			return harness.ErrKilled
		})

		if err := w.Apply(ctx, sharing(t, toLifecycle, "4")); err == nil {
			t.Error("the killed run reports success")
		}

		if entries := r.Journal().Entries; len(entries) != together {
			t.Fatalf("the journal holds %+v", entries)
		}

		time.Sleep(8 * time.Hour)

		begun := r.World().Now().Seconds()
		r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "4"))
		r.At(toLifecycle)
		r.pulledFirst(begun)
	})
}

// trying is a cluster in which a machine seems to boot the new system, until it
// turns out to have returned to the old one long ago.
type trying struct {
	*ports.Client

	address string
	on      atomic.Bool
}

func (c *trying) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	machine, err := c.Client.Machine(ctx, address, known, extent)
	if err == nil && address == c.address && c.on.Load() {
		machine.Talos, machine.Stage, machine.Ready, machine.UpgradePending = version.MustParse("1.12.6"), cluster.StageBooting, false, true
	}

	return machine, err
}

// TestInstall_NotFromAPlanOlderThanTheReturnOfTheNode: the plan takes the node
// to be on the system that it could not boot, so an install from it would skip
// a minor version, or have no image at all.
func TestInstall_NotFromAPlanOlderThanTheReturnOfTheNode(t *testing.T) {
	t.Parallel()

	for name, order := range map[string]cluster.Order{"first of its hop": cluster.WorkersFirst, "last of its hop": cluster.ControlPlanesFirst} {
		t.Run(name, func(t *testing.T) {
			fallen := model.Fault{Node: "worker-2", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}
			given := setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Talos: walkFrom, Seed: 79, Faults: []model.Fault{fallen}}}

			inCluster(t, given, func(r *rig) {
				request := walk(t, "1")
				request.Policy.Order = order

				r.killedAfter("run-1", "Upgrade", "worker-2", request)

				entry := r.entryOf("worker-2")
				r.Until("back on the old system", 20*time.Minute, func() bool {
					node := r.State("worker-2")

					return node.Reachable && node.BootID != entry.BootID
				})

				client := r.Client("run-2")
				tries := &trying{Client: client, address: r.State("worker-2").Address}
				tries.on.Store(true)

				second := r.WorkerOver(client, tries, client)
				client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "Machine" && call.Node == "worker-2" && len(second.Texts(cluster.EventNodeStarted)) > 0 {
						tries.on.Store(false)
					}

					return next(ctx)
				})

				r.Must(second, request)
				r.AllRun(walkTo)
				r.Tidy()

				for _, violation := range r.Judge.Verdict().Violations {
					// What is told of the cluster is as true as what the node says.
					if violation.Invariant != checker.S8 {
						t.Errorf("%+v", violation)
					}
				}

				if walked := r.walked("worker-2"); !slices.Equal(walked[len(walked)-3:], []string{"1.12.6", "1.13.4", walkTo}) {
					t.Errorf("worker-2 booted %v", walked)
				}
			})
		})
	}
}

// entryOf is what the journal holds about a node.
func (r *rig) entryOf(node string) cluster.Entry {
	r.T.Helper()

	for _, entry := range r.Journal().Entries {
		if entry.Node == node {
			return entry
		}
	}

	r.T.Fatalf("the journal holds nothing about %s: %+v", node, r.Journal().Entries)

	return cluster.Entry{}
}

// killedAfter runs an upgrade that is killed after its first call of a method on
// a node.
func (r *rig) killedAfter(run, method, node string, request engine.Request) {
	r.T.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	var once atomic.Bool

	hit := newStrike(dieBefore, atWill, cancel)
	w := r.Worker(run)
	w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == method && call.Node == node && !once.Swap(true) {
			_ = next(ctx)

			hit.Kill()
		}

		return hit.Intercept(ctx, call, next)
	})

	if err := w.Apply(ctx, request); err == nil {
		r.T.Fatal("the killed run reports success")
	}
}

// TestNodeUpgrade_NodeIsSaidToHaveReachedWhatItRuns: a turn that only closes what an earlier
// run left open is no proof of the version that comes next.
func TestNodeUpgrade_NodeIsSaidToHaveReachedWhatItRuns(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2, Talos: walkFrom, Seed: 79}}, func(r *rig) {
		r.killedAfter("run-1", "Uncordon", "cp-2", walk(t, "1"))

		second := r.Worker("run-2")
		r.Must(second, walk(t, "1"))
		r.At(walkTo)

		for _, event := range second.Events() {
			if event.Kind == cluster.EventNodeDone {
				if event.Node != "cp-2" || event.To.String() != "1.12.6" {
					t.Errorf("%s was first said to have reached %s, want cp-2 and 1.12.6", event.Node, event.To)
				}

				return
			}
		}
	})
}

// TestNodeUpgrade_CordonOfAnEarlierRunIsNoWayAroundCanaries: a node on which nothing was
// installed yet goes back into service and waits, as all others do.
func TestNodeUpgrade_CordonOfAnEarlierRunIsNoWayAroundCanaries(t *testing.T) {
	t.Parallel()

	given := setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Seed: 7}, Judging: []checker.Option{checker.Canary("worker-2")}}

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 4, nil)
		r.killedAt("run-1", "Evict", 1, to(toLifecycle))

		request := to(toLifecycle)
		request.Policy.Canary = []string{"worker-2"}

		r.Must(r.Worker("run-2"), request)
		r.At(toLifecycle)
		r.Once()
	})
}

// A confirmed upgrade is none that failed because there was no time left to write
// the image into a configuration.
func TestInstallImage_MayOutlastTheTimeOfTheNode(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		request := naming(toLifecycle)
		request.Policy.NodeTimeout = 4 * time.Minute

		w := r.Worker("run-1")
		w.Client.Intercept(withCall("Configure", cluster.ErrUnreachable))
		r.Must(w, request)
		r.At(toLifecycle)

		if warned := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(warned, "could not be made to name it") {
			t.Errorf("told %q", warned)
		}
	})
}

// TestInstall_ThatNeverTookIsRepeatedAsOftenAsThePolicySays: the boot after it
// shows the old system, although the end of the installer was not seen.
func TestInstall_ThatNeverTookIsRepeatedAsOftenAsThePolicySays(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		lost, attempts int
		over, heard    bool
		says           string
	}{
		{1, 1, false, false, "the node was asked once to install"},
		{1, 2, true, false, ""},
		{2, 3, true, true, ""},
		{2, 2, false, false, "the node was asked 2 times to install"},
		{2, 2, false, true, "was installed 2 times and did not take"},
	} {
		t.Run(fmt.Sprintf("%d of %d, heard %t", test.lost, test.attempts, test.heard), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
				w := r.Worker("run-1")
				between := &lossy{Talos: w.Client, left: test.lost, heard: test.heard}
				w = r.WorkerOver(w.Client, between, w.Client)

				err := w.Apply(context.Background(), repeating(test.attempts, 31*time.Second))
				r.Sound()

				if !test.over {
					if failed := failure(t, err, say.ErrInstaller, "worker-0"); !strings.Contains(failed.Seen, test.says) {
						t.Errorf("seen is %q, want %q in it", failed.Seen, test.says)
					}

					r.stopped("worker-0", false)

					return
				}

				if err != nil {
					t.Fatalf("the run did not get over it: %v\n%s", err, r.Judge.Text())
				}

				r.At(toLifecycle)

				if reboots := r.Judge.Verdict().Nodes["worker-0"].Reboots; reboots != test.lost+1 {
					t.Errorf("%d reboots, want %d", reboots, test.lost+1)
				}
			})
		})
	}
}

// TestInstall_WithoutTimeToBeRepeatedSaysSo: the time of the node is up while
// the next attempt is waited for.
func TestInstall_WithoutTimeToBeRepeatedSaysSo(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		w := r.Worker("run-1")
		w = r.WorkerOver(w.Client, &lossy{Talos: w.Client, left: 1}, w.Client)

		failed := failure(t, w.Apply(context.Background(), repeating(2, 40*time.Minute)), context.DeadlineExceeded, "worker-0")
		if !strings.Contains(failed.Seen, "the node was asked once to install ghcr.io/siderolabs/installer:v1.13.4, and it is not known whether the installer started; "+
			"the next attempt, 40m0s later, was not made: the time for the node (30m0s) was up") {
			t.Errorf("seen is %q", failed.Seen)
		}

		r.Sound()
		r.stopped("worker-0", false)
		r.Tidy()
	})
}

// TestNodeUpgrade_CordonWhoseReplyIsLostIsLifted when the run is cancelled at that moment.
func TestNodeUpgrade_CordonWhoseReplyIsLostIsLifted(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)
			if call.Method == "Cordon" {
				cancel()

				return fmt.Errorf("%w: the reply was lost", cluster.ErrOutcomeUnknown)
			}

			return err
		})

		if err := w.Apply(ctx, to(toLifecycle)); err == nil {
			t.Error("a run that was cancelled ended well")
		}

		r.leftClean()
	})
}

// TestNodeUpgrade_InstallThatEndsWithTheRunIsJournalled: what the installer has written
// must be known to the next run.
func TestNodeUpgrade_InstallThatEndsWithTheRunIsJournalled(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		node := ""
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)
			if call.Method == "Install" {
				node = call.Node

				cancel()
			}

			return err
		})

		_ = w.Apply(ctx, to(toLifecycle))

		if entry := r.entryOf(node); entry.Phase != cluster.PhaseInstalled {
			t.Errorf("the journal says %q of %s", entry.Phase, node)
		}
	})
}

// TestInstallImage_FollowsWhenTheNodeRunsIt, and not before, although an earlier run has
// journalled its intent.
func TestInstallImage_FollowsWhenTheNodeRunsIt(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1}}, func(r *rig) {
		_, wait, _ := r.Crashing("run-1", naming(toLifecycle), dieBefore, func(call ports.Call) bool { return call.Method == "Install" })
		wait()

		changes := 0
		w := r.Worker("run-2")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Configure" {
				changes++

				if runs := r.State(call.Node).Talos; runs != toLifecycle {
					t.Errorf("%s runs %s when its configuration is changed", call.Node, runs)
				}
			}

			return next(ctx)
		})
		r.Must(w, naming(toLifecycle))

		if changes != 2 {
			t.Errorf("%d configurations were changed, want that of each node once", changes)
		}
	})
}
