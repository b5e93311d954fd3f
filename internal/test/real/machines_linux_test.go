// SPDX-License-Identifier: MPL-2.0

package real

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
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
	w := openWorld(ctx, t, true)

	for _, part := range []struct {
		name string
		run  func(ctx context.Context, t *testing.T)
	}{
		{"the machines boot", w.boots},
		{"Talos is upgraded on both workers, in an apply that is killed and in the next", w.upgradesTalos},
		{"the second worker falls back, and is tried again once that is allowed", w.fallsBack},
	} {
		w.say("%s", part.name)

		if !t.Run(part.name, func(t *testing.T) { part.run(ctx, t) }) {
			t.FailNow()
		}
	}
}

// installed is what machined prints when an installer has ended well.
const installed = "upgrade completed successfully"

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

	var first *machine

	for end := time.Now().Add(applyPatience); first == nil; time.Sleep(20 * time.Millisecond) {
		for _, m := range w.workers() {
			if w.installations(t, m) > 0 {
				first = m
			}
		}

		if time.Now().After(end) {
			t.Fatalf("after %s no installer has ended", applyPatience)
		}
	}

	apply.kill()
	w.say("the apply was killed when %s had installed", first.name)

	f.apply(ctx, t).must(nothingToDo)
	f.plan(ctx, t).must(nothingToDo)

	for _, m := range w.workers() {
		w.mustHaveUpgraded(ctx, t, m, nextTalos, 1, before[m.name])
	}

	w.mustHaveNoJournal(ctx, t)
}

// retryAdvice is what an error says about how an image is tried again.
var retryAdvice = regexp.MustCompile(`retry_boot_id = "[^"]+"`)

// fallsBack gives the second worker a version that does not come up, applies again, and
// again once the image is mended and another try is allowed.
func (w *world) fallsBack(ctx context.Context, t *testing.T) {
	m, held := w.machines[2], w.machines[:2]
	before := w.boot(ctx, t)
	f := w.terraform(t, resource(brokenTalos, "", held...))

	stopped := f.apply(ctx, t).must(failed, "fell back", nextTalos)
	w.mustHaveUpgraded(ctx, t, m, nextTalos, 2, before[m.name])

	advice := retryAdvice.FindString(stopped.output)
	if advice == "" {
		t.Fatal("it does not say how the image is tried again")
	}

	f.apply(ctx, t).must(failed, advice)

	if found := w.installations(t, m); found != 2 {
		t.Fatalf("on %s %d installations have ended, want 2: it was tried again and nobody had allowed it", m.name, found)
	}

	mended := w.programs.Machines.Versions[len(w.programs.Machines.Versions)-1]
	if err := w.images.push(ctx, installerOf(mended.Version), installerLayer(mended), v1.Config{}); err != nil {
		t.Fatal(err)
	}

	before = w.boot(ctx, t)

	f.write(t, "  talosconfig_path = "+quote(w.talosconfig)+"\n", resource(brokenTalos, fmt.Sprintf("    %q = { %s }\n", m.name, advice), held...))
	f.apply(ctx, t).must(nothingToDo)
	w.mustHaveUpgraded(ctx, t, m, brokenTalos, 3, before[m.name])
	w.mustHaveNoJournal(ctx, t)
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

	return found
}

// installations is how many installers have ended well on the machine.
func (w *world) installations(t *testing.T, m *machine) int {
	t.Helper()

	said, err := os.ReadFile(m.log())
	if err != nil {
		t.Fatal(err)
	}

	return bytes.Count(said, []byte(installed))
}

// mustHaveUpgraded wants a version, the number of installations on the machine until now,
// a new boot and a node that takes pods.
func (w *world) mustHaveUpgraded(ctx context.Context, t *testing.T, m *machine, version string, installations int, before string) {
	t.Helper()

	if found := w.installations(t, m); found != installations {
		t.Errorf("on %s %d installations have ended, want %d", m.name, found, installations)
	}

	answer, err := w.talosctl(ctx, "--nodes", m.address.String(), "version", "--short")
	if err != nil || !strings.Contains(answer, "v"+version) {
		t.Errorf("%s says it runs (%v), want %s:\n%s", m.name, err, version, answer)
	}

	w.until(ctx, t, m.name+" takes pods", bootPatience, func(ctx context.Context) error {
		node, err := w.client(t).CoreV1().Nodes().Get(ctx, m.name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		if node.Status.NodeInfo.BootID == before {
			t.Errorf("%s has not booted since", m.name)
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
