// SPDX-License-Identifier: MPL-2.0

package real

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// machinesVariable names the parts of make machines that run.
const machinesVariable = "TALOSUPGRADE_MACHINES"

// The releases to which machines are upgraded, in ascending order. Each part has its own, so that it runs after any
// of those before it.
const (
	brokenTalos  = "1.13.11"
	powerTalos   = "1.13.12"
	coldTalos    = "1.13.13"
	unreadyTalos = "1.13.14"
	wayBackTalos = "1.13.15"
	bareTalos    = "1.13.16"
	lostTalos    = "1.13.17"
	renamedTalos = "1.13.18"
	hangingTalos = "1.13.19"
)

// The minor releases before and after the one that internal/tools/talos pins, which are real.
const (
	olderTalos = "1.12.6"
	newerTalos = "1.14.1"
)

// emptySchematic is the Image Factory's ID of an image without additions. From Talos 1.14 on, every image is from a
// schematic.
const emptySchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// The schematic of the release whose node never becomes ready, and that of the release that lacks its extensions.
const (
	schematicOfUnready = "c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac"
	schematicOfBare    = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
)

// part is a part of make machines. It runs alone, or after any of those before it.
type part struct {
	name, what string
	ground     ground
	// systems are the systems to which its machines are upgraded.
	systems []toolchain.MachineSystem
	// actions is true if it invokes actions.
	actions bool
	run     func(w *world, ctx context.Context, t *testing.T)
}

// parts returns the parts in the order in which they run.
func parts() []part {
	system := func(version string) toolchain.MachineSystem { return toolchain.MachineSystem{Version: "v" + version} }
	flawed := func(version string, flaw toolchain.MachineFlaw) toolchain.MachineSystem {
		return toolchain.MachineSystem{Version: "v" + version, Flaw: flaw}
	}

	unready := flawed(unreadyTalos, toolchain.FlawNetwork)
	unready.Schematic = schematicOfUnready

	bare := flawed(bareTalos, toolchain.FlawBare)
	bare.Schematic = schematicOfBare
	whole := bare
	whole.Flaw = ""

	// The first worker keeps the schematic of the part before.
	lost := system(lostTalos)
	lost.Schematic = schematicOfBare

	return []part{
		{name: "contract", what: "Talos and Kubernetes on machines keep the contract of the simulator", ground: workers, run: (*world).holdsContracts},
		{
			name: "upgrade", what: "Talos is upgraded on both workers, in an apply that is killed and in the next",
			ground: workers, systems: []toolchain.MachineSystem{system(nextTalos)}, run: (*world).upgradesTalos,
		},
		{
			name: "fallback", what: "the second worker falls back, and is tried again once that is allowed",
			ground: workers, systems: []toolchain.MachineSystem{flawed(brokenTalos, toolchain.FlawBoot), system(brokenTalos)}, run: (*world).fallsBack,
		},
		{
			name: "power", what: "one worker loses its power while it installs, the other while it reboots, in one apply",
			ground: workers, systems: []toolchain.MachineSystem{system(powerTalos)}, run: (*world).losesPower,
		},
		{
			name: "firmware", what: "the machines lose their power, and the firmware boots what they ran; one is upgraded through the firmware",
			ground: workers, systems: []toolchain.MachineSystem{system(coldTalos)}, run: (*world).startsAnew,
		},
		{
			name: "unready", what: "the first worker never gets ready with a version of another schematic, and is sent back",
			ground: workers, systems: []toolchain.MachineSystem{unready}, run: (*world).isSentBackAsUnready,
		},
		{
			name: "rollback", what: "the second worker is sent back by the action",
			ground: workers, systems: []toolchain.MachineSystem{system(wayBackTalos)}, actions: true, run: (*world).isSentBackByAction,
		},
		{
			name: "by-hand", what: "the first worker is rolled back by hand before it has confirmed its system",
			ground: workers, systems: []toolchain.MachineSystem{system(wayBackTalos)}, run: (*world).isRolledBackByHand,
		},
		{
			name: "extension", what: "the first worker comes up without the extensions that its image is named after, and is installed once more",
			ground: workers, systems: []toolchain.MachineSystem{bare, whole}, run: (*world).lacksExtensions,
		},
		{
			name: "maintenance", what: "the first worker loses its configuration while it reboots, and comes up without",
			ground: workers, systems: []toolchain.MachineSystem{system(lostTalos), lost}, run: (*world).comesBackInMaintenance,
		},
		{
			name: "renamed", what: "the second worker comes back under another name",
			ground: workers, systems: []toolchain.MachineSystem{system(renamedTalos)}, run: (*world).comesBackRenamed,
		},
		{
			name: "hang", what: "the second worker never comes back, and does not after a loss of power either",
			ground: workers, systems: []toolchain.MachineSystem{flawed(hangingTalos, toolchain.FlawHang)}, run: (*world).hangs,
		},
		{
			name: "versions", what: "a worker goes through three minor releases of Talos",
			ground: older, run: (*world).upgradesMinors,
			systems: []toolchain.MachineSystem{{Version: "v" + newerTalos, Line: "1.14", Schematic: emptySchematic}},
		},
		{
			name: "control-plane", what: "a control plane that is alone upgrades Talos, in an apply that is killed and in the next, and then Kubernetes",
			ground: single, systems: []toolchain.MachineSystem{system(nextTalos)}, run: (*world).upgradesControlPlane,
		},
		{
			name: "quorum", what: "one of three control planes upgrades Talos, in an apply that is killed and in the next, and then all three Kubernetes",
			ground: quorum, systems: []toolchain.MachineSystem{system(nextTalos)}, run: (*world).keepsQuorum,
		},
	}
}

// systemsOf returns the systems with which some parts begin, and those to which they upgrade.
func systemsOf(pinned string, chosen []part) []toolchain.MachineSystem {
	var all []toolchain.MachineSystem

	for _, one := range chosen {
		wanted := append([]toolchain.MachineSystem{one.ground.first(pinned)}, one.systems...)
		if one.ground == older {
			wanted = append(wanted, toolchain.MachineSystem{Version: pinned})
		}

		for _, system := range wanted {
			if !slices.Contains(all, system) {
				all = append(all, system)
			}
		}
	}

	return all
}

// TestMachines runs Talos on machines with disks and firmware, and does what container mode refuses. If a part fails,
// its world ends.
func TestMachines(t *testing.T) {
	need(t)
	needMachines(t)

	wanted, err := chosenParts()
	if err != nil {
		t.Fatal(err)
	}

	for _, on := range []ground{workers, older, single, quorum} {
		here := slices.DeleteFunc(slices.Clone(wanted), func(one part) bool { return one.ground != on })
		if len(here) > 0 {
			t.Run(on.String(), func(t *testing.T) { runParts(t, on, here) })
		}
	}
}

func (g ground) String() string {
	return [...]string{containers: "in containers", workers: "workers", older: "an older worker", single: "one control plane", quorum: "three control planes"}[g]
}

// runParts runs some parts in one world.
func runParts(t *testing.T, on ground, some []part) {
	t.Helper()

	ctx := t.Context()
	w := openWorld(ctx, t, on)

	w.say("the machines boot")

	if !t.Run("the machines boot", func(t *testing.T) { w.boots(ctx, t) }) {
		t.FailNow()
	}

	for _, one := range some {
		w.say("%s: %s", one.name, one.what)

		if !t.Run(one.name, func(t *testing.T) { one.run(w, ctx, t) }) {
			t.FailNow()
		}
	}
}

// chosenParts returns the parts that [machinesVariable] names; none if it is not set.
func chosenParts() ([]part, error) {
	names, set := os.LookupEnv(machinesVariable)
	if !set {
		return nil, nil
	}

	return choose(parts(), names)
}

// choose returns the named parts, in their own order; "all" selects every part.
func choose(parts []part, names string) ([]part, error) {
	if names == "all" {
		return parts, nil
	}

	var chosen []part

	all := strings.Split(names, ",")

	for _, one := range parts {
		if slices.Contains(all, one.name) {
			chosen = append(chosen, one)
			all = slices.DeleteFunc(all, func(name string) bool { return name == one.name })
		}
	}

	if len(all) > 0 {
		known := make([]string, 0, len(parts))
		for _, one := range parts {
			known = append(known, one.name)
		}

		return nil, fmt.Errorf("%s is %q: want all, or some of %s with a comma between them", machinesVariable, names, strings.Join(known, ", "))
	}

	return chosen, nil
}

// holdsContracts checks Talos and Kubernetes against the contract of the simulator.
func (w *world) holdsContracts(ctx context.Context, t *testing.T) {
	t.Run("Talos", func(t *testing.T) { w.holdsTalos(ctx, t) })
	t.Run("Kubernetes", func(t *testing.T) { w.holdsKubernetes(ctx, t) })
}

// Lines that machines print: machined when an installer begins and when it has succeeded, and the kernel when it
// starts the next one.
const (
	installing = "starting upgrade: installer_image"
	installed  = "upgrade completed successfully"
	rebooting  = "Starting new kernel"
)

// request has the arguments of a resource.
type request struct {
	talos string
	// arguments are lines of the resource, overrides lines of its node_overrides.
	arguments, overrides string
	held                 []*machine
}

func (r request) resource() string {
	var overrides strings.Builder

	for _, m := range r.held {
		fmt.Fprintf(&overrides, "    %q = { hold = true }\n", m.name)
	}

	return fmt.Sprintf("resource \"talosupgrade_cluster\" \"this\" {\n  talos_version = %q\n%s\n  node_overrides = {\n%s%s  }\n}\n",
		r.talos, r.arguments, &overrides, r.overrides)
}

// upgradesTalos kills the CLI and the provider once the first worker has the next version on its disk but has not
// booted it, and applies again.
func (w *world) upgradesTalos(ctx context.Context, t *testing.T) {
	f := w.terraform(t, request{talos: nextTalos, held: w.machines[:1]}.resource())
	before := w.boot(ctx, t)

	f.plan(ctx, t).must(somethingToDo, nextTalos)

	apply := f.begin(ctx, t)
	apply.during(w, "a worker has installed", func() bool {
		return slices.ContainsFunc(w.workers(), func(m *machine) bool { return m.printed(t, installed) > 0 })
	})
	apply.kill()

	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	for _, m := range w.workers() {
		w.mustHaveUpgraded(ctx, t, m, nextTalos, 1, before[m.name])
		w.mustHaveBothSystems(ctx, t, m)

		for _, once := range []string{installing, rebooting} {
			if found := m.printed(t, once); found != 1 {
				t.Errorf("%s has printed %q %d times, want once", m.name, once, found)
			}
		}
	}

	w.mustHaveNoJournal(ctx, t)
}

// mustHaveBothSystems checks what an upgrade leaves on a machine that had one system: both in the boot partition, and
// no fallback entry in META once the machine was healthy.
func (w *world) mustHaveBothSystems(ctx context.Context, t *testing.T, m *machine) {
	t.Helper()

	for _, line := range []string{
		fmt.Sprintf("found UKI files: [Talos-v%s.efi Talos-%s.efi]", nextTalos, w.programs.Talos.Version),
		fmt.Sprintf("using Talos-v%s.efi as default entry", nextTalos),
	} {
		if m.printed(t, line) == 0 {
			t.Errorf("%s has not printed %q", m.name, line)
		}
	}

	// Talos removes the entry once it considers itself healthy, which may be later than Kubernetes does.
	w.until(ctx, t, m.name+" has no way back in META", time.Minute, func(ctx context.Context) error {
		notes, err := w.talosctl(ctx, "--nodes", m.address.String(), "get", "metakeys")
		if err == nil && (strings.Contains(notes, "0x06") || m.printed(t, "removing fallback entry") == 0) {
			err = fmt.Errorf("META has:\n%s", notes)
		}

		return err
	})
}

// retryAdvice matches the setting with which, as an error says, an image is retried.
var retryAdvice = regexp.MustCompile(`retry_boot_id = "[^"]+"`)

// fallsBack gives the second worker a version that does not come up, applies again, and once more when the image is
// fixed and a retry is allowed.
func (w *world) fallsBack(ctx context.Context, t *testing.T) {
	m, asked := w.machines[2], request{talos: brokenTalos, held: w.machines[:2]}
	before, running := w.boot(ctx, t), w.runs(ctx, t, m)
	f := w.terraform(t, asked.resource())

	begun := m.printed(t, installed)

	stopped := f.apply(ctx, t).must(failed, "fell back to Talos "+running)
	w.mustHaveUpgraded(ctx, t, m, running, begun+1, before[m.name])

	advice := retryAdvice.FindString(flat(stopped.output))
	if advice == "" {
		t.Fatal("it does not say how the image is tried again")
	}

	f.apply(ctx, t).must(failed, advice)

	if found := m.printed(t, installed); found != begun+1 {
		t.Fatalf("on %s %d installations have ended, want %d: it was tried again and nobody had allowed it", m.name, found, begun+1)
	}

	// The node has booted since it pulled the image, so it now pulls what is under the tag.
	w.mend(ctx, t, toolchain.MachineSystem{Version: "v" + brokenTalos})

	before = w.boot(ctx, t)
	asked.overrides = fmt.Sprintf("    %q = { %s }\n", m.name, advice)

	f.ask(t, asked)
	f.apply(ctx, t).must(nothingToDo)
	w.mustHaveUpgraded(ctx, t, m, brokenTalos, begun+2, before[m.name])
	w.mustHaveNoJournal(ctx, t)
}

// ask replaces the configuration by that of another request.
func (f terraform) ask(t *testing.T, asked request) {
	t.Helper()

	f.write(t, "  talosconfig_path = "+quote(f.w.talosconfig)+"\n", asked.resource())
}

// mend makes the registry serve a system instead of the one that has its name and a flaw.
func (w *world) mend(ctx context.Context, t *testing.T, system toolchain.MachineSystem) {
	t.Helper()

	all := w.programs.Machines.Versions
	at := slices.IndexFunc(all, func(one toolchain.MachineVersion) bool { return one.MachineSystem == system })

	if err := w.images.push(ctx, installerOf(system), installerLayer(all[at]), v1.Config{}); err != nil {
		t.Fatal(err)
	}
}

// installerNamed returns the image that installs a release without a schematic.
func installerNamed(release string) string {
	return installerOf(toolchain.MachineSystem{Version: "v" + release})
}

// startsAnew cuts the power of both workers and starts them. Reboots go from kernel to kernel, without firmware and
// boot loader, which have to boot the same system as well.
func (w *world) startsAnew(ctx context.Context, t *testing.T) {
	before, running := w.boot(ctx, t), map[string]string{}

	for _, m := range w.workers() {
		running[m.name] = w.runs(ctx, t, m)
	}

	for _, m := range w.workers() {
		m.cut()

		if err := m.power(w); err != nil {
			t.Fatal(err)
		}
	}

	for _, m := range w.workers() {
		w.mustTakePods(ctx, t, m, before[m.name])

		if found := w.runs(ctx, t, m); found != running[m.name] {
			t.Errorf("%s runs %s, want %s: the boot loader has booted another system", m.name, found, running[m.name])
		}
	}

	w.upgradesThroughFirmware(ctx, t)
}

// firmwareBoots is what the firmware prints when it starts the boot loader.
const firmwareBoots = "BdsDxe: starting Boot"

// upgradesThroughFirmware makes the first worker restart as after a loss of power.
func (w *world) upgradesThroughFirmware(ctx context.Context, t *testing.T) {
	m := w.machines[1]
	before, begun := w.boot(ctx, t), m.printed(t, installed)
	kernels, starts := m.printed(t, rebooting), m.printed(t, firmwareBoots)

	f := w.terraform(t, request{
		talos: coldTalos, held: []*machine{w.machines[0], w.machines[2]},
		overrides: fmt.Sprintf("    %q = { reboot_mode = \"powercycle\" }\n", m.name),
	}.resource())
	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	w.mustHaveUpgraded(ctx, t, m, coldTalos, begun+1, before[m.name])
	w.mustHaveNoJournal(ctx, t)

	if m.printed(t, rebooting) != kernels || m.printed(t, firmwareBoots) != starts+1 {
		t.Errorf("%s has started %d kernels from its kernel and %d boots from its firmware, want %d and %d",
			m.name, m.printed(t, rebooting), m.printed(t, firmwareBoots), kernels, starts+1)
	}
}

// hangs gives the second worker a version whose kernel starts and does nothing. Nothing reverts
// that: the boot loader starts it again.
func (w *world) hangs(ctx context.Context, t *testing.T) {
	m := w.machines[2]
	f := w.terraform(t, request{
		talos: hangingTalos, arguments: "  node_timeout = \"4m\"\n", held: w.machines[:2],
	}.resource())

	const never = "did not come back online"

	f.apply(ctx, t).must(failed, m.name+" "+never, "Look at its console")

	m.cut()

	if err := m.power(w); err != nil {
		t.Fatal(err)
	}

	installations := m.printed(t, installed)

	f.apply(ctx, t).must(failed, m.name, "Look at its console")

	if found := m.printed(t, installed); found != installations {
		t.Errorf("%s was installed %d times more", m.name, found-installations)
	}
}

// lacksExtensions gives the first worker a version whose image is named after a schematic and has nothing of it. The
// node is rolled back by hand, and upgraded once the image is fixed.
func (w *world) lacksExtensions(ctx context.Context, t *testing.T) {
	m, asked := w.machines[1], request{
		talos: bareTalos, held: []*machine{w.machines[0], w.machines[2]},
		arguments: fmt.Sprintf("  installer_image = %q\n", factoryRepository+schematicOfBare),
	}
	begun, running := m.printed(t, installed), w.runs(ctx, t, m)
	f := w.terraform(t, asked.resource())

	for range 2 {
		f.apply(ctx, t).must(failed, m.name, "came back with Talos "+bareTalos+" without a schematic", "is named after schematic "+schematicOfBare, "its cordon stays")
	}

	if found := m.printed(t, installed); found != begun+1 {
		t.Errorf("on %s %d installations have ended, want %d", m.name, found, begun+1)
	}

	if _, err := w.talosctl(ctx, "--nodes", m.address.String(), "rollback"); err != nil {
		t.Fatal(err)
	}

	w.awaitSystem(ctx, t, m, running)

	stopped := f.apply(ctx, t).must(failed, "fell back to Talos "+running)
	before := w.boot(ctx, t)

	w.mend(ctx, t, toolchain.MachineSystem{Version: "v" + bareTalos, Schematic: schematicOfBare})

	asked.overrides = fmt.Sprintf("    %q = { %s }\n", m.name, retryAdvice.FindString(flat(stopped.output)))

	f.ask(t, asked)
	f.apply(ctx, t).must(nothingToDo)
	w.mustHaveUpgraded(ctx, t, m, bareTalos, begun+2, before[m.name])
	w.mustHaveNoJournal(ctx, t)

	if said := w.schematic(ctx, t, m); said != schematicOfBare {
		t.Errorf("%s has the schematic %q, want %s", m.name, said, schematicOfBare)
	}
}

// upgradesMinors upgrades the worker from the minor version before to the one after, in two applies.
func (w *world) upgradesMinors(ctx context.Context, t *testing.T) {
	m := w.machines[1]

	for _, to := range []request{
		{talos: strings.TrimPrefix(w.programs.Talos.Version, "v")},
		{talos: newerTalos, arguments: fmt.Sprintf("  installer_image = %q\n", factoryRepository+emptySchematic)},
	} {
		before := w.boot(ctx, t)

		to.held = w.machines[:1]
		f := w.terraform(t, to.resource())
		f.apply(ctx, t).must(nothingToDo)
		f.plan(ctx, t).must(nothingToDo)

		if found := w.runs(ctx, t, m); found != to.talos {
			t.Fatalf("%s runs %s, want %s", m.name, found, to.talos)
		}

		w.mustTakePods(ctx, t, m, before[m.name])
		w.mustHaveNoJournal(ctx, t)
	}
}

// losesPower cuts the power of both workers, each at another moment, during one apply that goes on. What the first
// one had just pulled never reaches its disk, and the container of its installer keeps it from being pulled there
// again.
func (w *world) losesPower(ctx context.Context, t *testing.T) {
	f := w.terraform(t, request{talos: powerTalos, held: w.machines[:1]}.resource())
	first, second := w.workers()[0], w.workers()[1]
	begun, rebooted := first.printed(t, installing), second.printed(t, rebooting)
	apply := f.begin(ctx, t)

	for _, moment := range []struct {
		m    *machine
		what string
		come func() bool
	}{
		{first, "runs an installer", func() bool { return first.printed(t, installing) > begun && w.runsInstaller(ctx, first) }},
		{second, "reboots", func() bool { return second.printed(t, rebooting) > rebooted }},
	} {
		apply.during(w, moment.m.name+" "+moment.what, moment.come)
		moment.m.cut()

		if err := moment.m.power(w); err != nil {
			t.Fatal(err)
		}
	}

	apply.end(w).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	for _, m := range w.workers() {
		w.mustTakePods(ctx, t, m, "")

		if found := w.runs(ctx, t, m); found != powerTalos {
			t.Errorf("%s runs %s, want %s", m.name, found, powerTalos)
		}
	}

	w.mustHaveNoJournal(ctx, t)
}

// runsInstaller reports whether an installer is among the processes of the machine.
func (w *world) runsInstaller(ctx context.Context, m *machine) bool {
	running, err := w.talosctl(ctx, "--nodes", m.address.String(), "processes")

	return err == nil && strings.Contains(running, "/bin/installer install")
}

func (w *world) workers() []*machine { return w.machines[1:] }

// boot returns the boot ID that the kubelet of each machine reports.
func (w *world) boot(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()

	nodes, err := w.client(t).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	found := map[string]string{}
	for _, node := range nodes.Items {
		found[node.Name] = node.Status.NodeInfo.BootID
	}

	for _, m := range w.machines {
		if found[m.name] == "" {
			t.Fatalf("the node of %s tells no boot ID", m.name)
		}
	}

	return found
}

// printed returns how often the machine has printed a text since it was created.
func (m *machine) printed(t *testing.T, text string) int {
	t.Helper()

	said, err := os.ReadFile(m.log())
	if err != nil {
		t.Fatal(err)
	}

	return bytes.Count(said, []byte(text))
}

// mustHaveUpgraded fails the test unless the machine runs the version, has so many installs so far, and its node has
// a new boot and takes Pods.
func (w *world) mustHaveUpgraded(ctx context.Context, t *testing.T, m *machine, version string, installations int, before string) {
	t.Helper()

	if found := m.printed(t, installed); found != installations {
		t.Errorf("on %s %d installations have ended, want %d", m.name, found, installations)
	}

	if found := w.runs(ctx, t, m); found != version {
		t.Errorf("%s runs %s, want %s", m.name, found, version)
	}

	w.mustTakePods(ctx, t, m, before)
}

// serverVersion matches the version of a machine in the output of talosctl.
var serverVersion = regexp.MustCompile(`(?s)Server:.*Tag:\s+v(\S+)`)

// runs returns which Talos a machine runs. The apid of the control plane, through which it is asked, first has to
// find out that a connection to a machine without power has ended.
func (w *world) runs(ctx context.Context, t *testing.T, m *machine) string {
	t.Helper()

	var running string

	w.until(ctx, t, m.name+" says which Talos it runs", time.Minute, func(ctx context.Context) (err error) {
		running, err = w.running(ctx, m)

		return err
	})

	return running
}

// running asks the machine once which Talos it runs.
func (w *world) running(ctx context.Context, m *machine) (string, error) {
	answer, err := w.talosctl(ctx, "--nodes", m.address.String(), "version")
	if err != nil {
		return "", err
	}

	found := serverVersion.FindStringSubmatch(answer)
	if found == nil {
		return "", fmt.Errorf("it says:\n%s", answer)
	}

	return found[1], nil
}

// awaitSystem waits until the machine has booted a release of Talos, for longer than it may be away meanwhile.
func (w *world) awaitSystem(ctx context.Context, t *testing.T, m *machine, release string) {
	t.Helper()

	w.until(ctx, t, m.name+" has booted Talos "+release, w.patience(), func(ctx context.Context) error {
		found, err := w.running(ctx, m)
		if err == nil && found != release {
			err = fmt.Errorf("it runs %s", found)
		}

		return err
	})
}

// mustTakePods waits until the node has another boot ID than before, and takes Pods.
func (w *world) mustTakePods(ctx context.Context, t *testing.T, m *machine, before string) {
	t.Helper()

	w.until(ctx, t, m.name+" takes pods", w.patience(), func(ctx context.Context) error {
		node, err := w.client(t).CoreV1().Nodes().Get(ctx, m.name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		if node.Status.NodeInfo.BootID == before {
			return errors.New("its kubelet has not told of another boot")
		}

		if node.Spec.Unschedulable {
			return errors.New("it is cordoned")
		}

		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
				return fmt.Errorf("it is not ready: %s", condition.Message)
			}
		}

		return nil
	})
}
