// SPDX-License-Identifier: MPL-2.0

package real

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statePartition has the configuration of a machine.
const statePartition = "STATE"

// comesBackInMaintenance wipes the configuration of the first worker while it reboots into a version, and starts it
// without another one. Once it has its configuration again, the next apply has to go on with it.
func (w *world) comesBackInMaintenance(ctx context.Context, t *testing.T) {
	m := w.machines[1]
	before, begun, rebooted := w.boot(ctx, t), m.printed(t, installed), m.printed(t, rebooting)

	f := w.terraform(t, request{
		talos: lostTalos, held: []*machine{w.machines[0], w.machines[2]}, arguments: "  node_timeout = \"1h\"\n",
	}.resource())

	apply := f.begin(ctx, t)
	apply.during(w, m.name+" reboots", func() bool { return m.printed(t, rebooting) > rebooted })
	m.cut()
	m.wipe(ctx, t, w, statePartition)

	m.unconfigured = true
	if err := m.power(w); err != nil {
		t.Fatal(err)
	}

	apply.end(w).must(failed, m.name+" did not come back with its configuration",
		"what answers has no certificate of this cluster: it is Talos in maintenance mode (", "talosctl get disks --insecure --nodes "+m.address.String())

	// The command in the advice works.
	if said, err := w.talosctl(ctx, "get", "disks", "--insecure", "--nodes", m.address.String()); err != nil || !strings.Contains(said, "vda") {
		t.Errorf("talosctl says %q of its disks: %v", said, err)
	}

	m.cut()

	m.unconfigured = false
	if err := m.power(w); err != nil {
		t.Fatal(err)
	}

	f.apply(ctx, t).must(nothingToDo)
	w.mustHaveUpgraded(ctx, t, m, lostTalos, begun+1, before[m.name])
	w.mustHaveNoJournal(ctx, t)
}

// wipe overwrites a partition on the disk of a machine without power with zeroes.
func (m *machine) wipe(ctx context.Context, t *testing.T, w *world, label string) {
	t.Helper()

	disk, head := filepath.Join(m.dir, "disk.qcow2"), filepath.Join(m.dir, "head")
	call := func(name string, args ...string) {
		t.Helper()

		if said, err := w.programs.Machines.Tools.Command(ctx, name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, said)
		}
	}

	call("qemu-img", "dd", "-f", "qcow2", "-O", "raw", fmt.Sprintf("bs=%d", sector), "count=34", "if="+disk, "of="+head)

	table, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}

	first, last, found := partition(table, label)
	if !found {
		t.Fatalf("the disk of %s has no partition %s", m.name, label)
	}

	call("qemu-io", "-f", "qcow2", "-c", fmt.Sprintf("write -z %d %d", first*sector, (last+1-first)*sector), disk)
}

// sector is the unit of a partition table, in bytes.
const sector = 512

// partition returns the first and the last sector of a partition in a table (GPT, with 128 entries of 128 bytes from
// the third sector on).
func partition(table []byte, label string) (first, last uint64, found bool) {
	var name [72]byte
	for i, letter := range utf16.Encode([]rune(label)) {
		binary.LittleEndian.PutUint16(name[2*i:], letter)
	}

	for entry := range slices.Chunk(table[2*sector:], 128) {
		if bytes.Equal(entry[56:], name[:]) {
			return binary.LittleEndian.Uint64(entry[32:]), binary.LittleEndian.Uint64(entry[40:]), true
		}
	}

	return 0, 0, false
}

// comesBackRenamed gives the second worker another name, which it takes on its next boot, that of an upgrade. Once it
// has its own name again, the next apply has to go on with it.
func (w *world) comesBackRenamed(ctx context.Context, t *testing.T) {
	const now = "renamed"

	m := w.machines[2]
	before, begun := w.boot(ctx, t), m.printed(t, installed)

	w.name(ctx, t, m, now, "staged")

	f := w.terraform(t, request{talos: renamedTalos, held: w.machines[:2], arguments: "  node_timeout = \"1h\"\n"}.resource())
	f.apply(ctx, t).must(failed, "its machine came back as "+now, "kubectl delete node "+m.name)

	w.name(ctx, t, m, m.name, "reboot")

	if err := w.client(t).CoreV1().Nodes().Delete(ctx, now, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	f.apply(ctx, t).must(nothingToDo)
	w.mustHaveUpgraded(ctx, t, m, renamedTalos, begun+1, before[m.name])
	w.mustHaveNoJournal(ctx, t)
}

// name sets the name of a machine, in a mode of talosctl.
func (w *world) name(ctx context.Context, t *testing.T, m *machine, name, mode string) {
	t.Helper()

	patch := fmt.Sprintf(`{"apiVersion": "v1alpha1", "kind": "HostnameConfig", "auto": "off", "hostname": %q}`, name)
	if _, err := w.talosctl(ctx, "--nodes", m.address.String(), "patch", "machineconfig", "--mode", mode, "--patch", patch); err != nil {
		t.Fatal(err)
	}
}
