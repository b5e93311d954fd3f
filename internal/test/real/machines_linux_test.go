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
)

// TestMachines is a cluster whose workers are machines with disks and firmware: what a
// control plane in container mode refuses is done to them. A part that fails ends the run.
func TestMachines(t *testing.T) {
	need(t)
	needMachines(t)

	ctx := t.Context()
	w := &world{}
	parts := []part{
		{"upgrade", "Talos is upgraded on both workers, in an apply that is killed and in the next", w.upgradesTalos},
		{"fallback", "the second worker falls back, and is tried again once that is allowed", w.fallsBack},
		{"firmware", "the machines lose their power, and the firmware boots what they ran", w.startsAnew},
	}

	wanted, err := choose(parts, os.Getenv(machinesVariable))
	if err != nil {
		t.Fatal(err)
	}

	w.open(ctx, t, true)
	w.say("the machines boot")

	if !t.Run("the machines boot", func(t *testing.T) { w.boots(ctx, t) }) {
		t.FailNow()
	}

	for _, one := range wanted {
		w.say("%s: %s", one.name, one.what)

		if !t.Run(one.name, func(t *testing.T) { one.run(ctx, t) }) {
			t.FailNow()
		}
	}
}

// part is one of make machines. It runs alone, or after any of those that come before it.
type part struct {
	name, what string
	run        func(ctx context.Context, t *testing.T)
}

// choose takes the named parts, in their own order; "all" is every one of them.
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

// What machines print: machined when an installer begins and when it has ended well, and the
// kernel when it starts the one after it.
const (
	installing = "starting upgrade: installer_image"
	installed  = "upgrade completed successfully"
	rebooting  = "Starting new kernel"
)

// resource asks for a version on all machines but the held ones.
func resource(version, more string, held ...*machine) string {
	var overrides strings.Builder

	for _, m := range held {
		fmt.Fprintf(&overrides, "    %q = { hold = true }\n", m.name)
	}

	return fmt.Sprintf("resource \"talosupgrade_cluster\" \"this\" {\n  talos_version = %q\n\n  node_overrides = {\n%s%s  }\n}\n",
		version, &overrides, more)
}

// upgradesTalos kills the CLI and the provider when the first worker has the next version
// on its disk and has not booted it, and applies again.
func (w *world) upgradesTalos(ctx context.Context, t *testing.T) {
	f := w.terraform(t, resource(nextTalos, "", w.machines[0]))
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

// mustHaveBothSystems looks at what an upgrade leaves on a machine that had one system: both
// in the boot partition, no note of a way back once the machine was healthy, and the
// installer in the store.
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

	// Talos takes the note away once it finds itself healthy, which is not when Kubernetes does.
	w.until(ctx, t, m.name+" has no way back in META", time.Minute, func(ctx context.Context) error {
		notes, err := w.talosctl(ctx, "--nodes", m.address.String(), "get", "metakeys")
		if err == nil && (strings.Contains(notes, "0x06") || m.printed(t, "removing fallback entry") == 0) {
			err = fmt.Errorf("META has:\n%s", notes)
		}

		return err
	})

	images, err := w.talosctl(ctx, "--nodes", m.address.String(), "image", "list", "--namespace", "system")
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(images, installerOf("v"+nextTalos)) {
		t.Errorf("%s has not kept %s:\n%s", m.name, installerOf("v"+nextTalos), images)
	}
}

// retryAdvice is what an error says about how an image is tried again.
var retryAdvice = regexp.MustCompile(`retry_boot_id = "[^"]+"`)

// fallsBack gives the second worker a version that does not come up, applies again, and
// again once the image is mended and another try is allowed.
func (w *world) fallsBack(ctx context.Context, t *testing.T) {
	m, held := w.machines[2], w.machines[:2]
	before, running := w.boot(ctx, t), w.runs(ctx, t, m)
	f := w.terraform(t, resource(brokenTalos, "", held...))

	begun := m.printed(t, installed)

	stopped := f.apply(ctx, t).must(failed, "fell back to Talos "+running, "image remove --namespace system "+installerOf("v"+brokenTalos))
	w.mustHaveUpgraded(ctx, t, m, running, begun+1, before[m.name])

	advice := retryAdvice.FindString(flat(stopped.output))
	if advice == "" {
		t.Fatal("it does not say how the image is tried again")
	}

	f.apply(ctx, t).must(failed, advice)

	if found := m.printed(t, installed); found != begun+1 {
		t.Fatalf("on %s %d installations have ended, want %d: it was tried again and nobody had allowed it", m.name, found, begun+1)
	}

	w.mend(ctx, t)

	// A node downloads nothing under a tag that it has: the error says how it is removed.
	if _, err := w.talosctl(ctx, "--nodes", m.address.String(), "image", "remove", "--namespace", "system", installerOf("v"+brokenTalos)); err != nil {
		t.Fatal(err)
	}

	before = w.boot(ctx, t)

	f.write(t, "  talosconfig_path = "+quote(w.talosconfig)+"\n", resource(brokenTalos, fmt.Sprintf("    %q = { %s }\n", m.name, advice), held...))
	f.apply(ctx, t).must(nothingToDo)
	w.mustHaveUpgraded(ctx, t, m, brokenTalos, begun+2, before[m.name])
	w.mustHaveNoJournal(ctx, t)
}

// mend has the registry serve the version that does not come up as one that does.
func (w *world) mend(ctx context.Context, t *testing.T) {
	t.Helper()

	mended := w.programs.Machines.Versions[len(w.programs.Machines.Versions)-1]
	if err := w.images.push(ctx, installerOf(mended.Version), installerLayer(mended), v1.Config{}); err != nil {
		t.Fatal(err)
	}
}

// startsAnew takes the power from both workers. Reboots go from kernel to kernel, past
// firmware and boot loader, which have to boot the same system nevertheless.
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
}

func (w *world) workers() []*machine { return w.machines[1:] }

// boot reads the boot ID that the kubelet of each machine tells.
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

// printed is how often the machine has printed a text since it was made.
func (m *machine) printed(t *testing.T, text string) int {
	t.Helper()

	said, err := os.ReadFile(m.log())
	if err != nil {
		t.Fatal(err)
	}

	return bytes.Count(said, []byte(text))
}

// mustHaveUpgraded wants a version, the number of installations on the machine until now,
// a new boot and a node that takes pods.
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

// serverVersion is what talosctl prints of a machine.
var serverVersion = regexp.MustCompile(`(?s)Server:.*Tag:\s+v(\S+)`)

// runs asks a machine which Talos it runs. The apid of the control plane, through which it
// asks, first finds out that a connection to a machine without power has ended.
func (w *world) runs(ctx context.Context, t *testing.T, m *machine) string {
	t.Helper()

	var running string

	w.until(ctx, t, m.name+" says which Talos it runs", time.Minute, func(ctx context.Context) error {
		answer, err := w.talosctl(ctx, "--nodes", m.address.String(), "version")
		if err != nil {
			return err
		}

		found := serverVersion.FindStringSubmatch(answer)
		if found == nil {
			return fmt.Errorf("it says:\n%s", answer)
		}

		running = found[1]

		return nil
	})

	return running
}

// mustTakePods wants a node that has booted since it had the boot ID, and takes pods.
func (w *world) mustTakePods(ctx context.Context, t *testing.T, m *machine, before string) {
	t.Helper()

	w.until(ctx, t, m.name+" takes pods", bootPatience, func(ctx context.Context) error {
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
