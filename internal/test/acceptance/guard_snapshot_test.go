// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// saved returns the names of the files in a directory, which may be missing.
func saved(t *testing.T, dir string) []string {
	t.Helper()

	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}

	return names
}

// verified returns the path of the only snapshot in the directory, which has to be complete, and readable by nobody
// else.
func verified(t *testing.T, dir string) string {
	t.Helper()

	names := saved(t, dir)
	if len(names) != 2 || names[1] != names[0]+".sha256" || !strings.HasSuffix(names[0], ".db") {
		t.Fatalf("saved %q, want one snapshot and its checksum", names)
	}

	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}

		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %s", name, info.Mode())
		}
	}

	path := filepath.Join(dir, names[0])

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	noted, err := os.ReadFile(path + ".sha256")
	if err != nil {
		t.Fatal(err)
	}

	sum := sha256.Sum256(content)
	if want := hex.EncodeToString(sum[:]) + "  " + names[0] + "\n"; string(noted) != want {
		t.Errorf("the checksum is %q, want %q", noted, want)
	}

	return path
}

func TestAccSnapshotBeforeAnythingIsTouched(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	s.policy = []checker.Option{checker.SnapshotFirst()}
	dir := filepath.Join(t.TempDir(), "of", "etcd")
	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nnode_timeout = \"12m\"\netcd_snapshot = { directory = "+quote(dir)+" }")

	// A plan saves nothing, and creates no directories.
	w.plan().mustSucceed(2)

	if names := saved(t, filepath.Dir(dir)); len(names) != 0 {
		t.Errorf("the plan left %q", names)
	}

	// The run that takes the snapshot fails later, and the error says where it is.
	s.faults(`faults: [{node: worker-0, step: boot, effect: never-returns}]`)
	w.apply().mustFail("worker-0", dir, ".db")

	path := verified(t, dir)

	// The next run does not take it again, and the state has its path.
	s.faults("")
	s.settle()
	w.apply().mustSucceed(0)

	if again := verified(t, dir); again != path {
		t.Errorf("the snapshot is %s, and was %s", again, path)
	}

	attributes := w.attributes()
	if got := at(attributes, "snapshot", "path"); got != path {
		t.Errorf("the path in state is %v, want %s", got, path)
	}

	if got := at(attributes, "snapshot", "talos_version"); got != talosTarget {
		t.Errorf("the snapshot in state is of %v", got)
	}

	s.wantUpgraded(talosTarget, once(1, 1))
	w.plan().mustSucceed(0)

	// The snapshot comes before the first cordon.
	events := s.history()
	streamed := slices.IndexFunc(events, func(e history.Event) bool {
		return e.Kind == history.KindSnapshot && e.Detail["whole"] == "true"
	})
	cordoned := slices.IndexFunc(events, func(e history.Event) bool {
		return e.Kind == history.KindCordon && e.Detail["by"] == "client"
	})

	if streamed < 0 || cordoned < streamed {
		t.Errorf("the snapshot is event %d, the first cordon %d", streamed, cordoned)
	}
}

func TestAccSnapshotThatFailsStopsEverything(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	dir := filepath.Join(t.TempDir(), "etcd")
	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\netcd_snapshot = { directory = "+quote(dir)+" }")

	s.faults("faults: [{node: cp-0, step: etcd-snapshot, effect: cut, times: 0}]")
	w.apply().mustFail("Unable to take a snapshot of etcd", "No node was disturbed")

	if names := saved(t, dir); len(names) != 0 {
		t.Errorf("left %q", names)
	}

	s.untouched("cp-0", "worker-0")

	if cordons := s.cordons(); cordons != 0 {
		t.Errorf("%d nodes were cordoned", cordons)
	}
}

func TestAccSnapshotThatCannotBeSaved(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})

	// There is a file in place of the directory.
	taken := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\netcd_snapshot = { directory = "+quote(filepath.Join(taken, "etcd"))+" }")
	w.plan().mustSucceed(2).mustWarn("etcd-snapshot")
	w.apply().mustFail("etcd-snapshot", taken)
	s.unchanged()

	answer := w.ask(s, "talos_version = \"1.13.4\"\netcd_snapshot = { directory = "+quote(taken)+" }")
	answer.want("etcd-snapshot", "failed", "error", "", taken)
}
