// SPDX-License-Identifier: MPL-2.0

package real

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// These tests need no world, but for the one that writes cgroups.

func TestHierarchiesAreFoundWhereTheyAreMounted(t *testing.T) {
	const mounts = `30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /docker/a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`

	for controllers, want := range map[string][2]string{
		"cpu,cpuacct":  {"/sys/fs/cgroup/cpu,cpuacct", "/"},
		"memory":       {"/sys/fs/cgroup/memory", "/docker/a"},
		"name=systemd": {"/sys/fs/cgroup/systemd", "/"},
		"":             {"/sys/fs/cgroup/unified", "/"},
		"pids":         {"", ""},
	} {
		if mount, root := cgroupMountOf([]byte(mounts), controllers); mount != want[0] || root != want[1] {
			t.Errorf("%q is mounted at %q from %q, want %q", controllers, mount, root, want)
		}
	}
}

// TestUnifiedCgroupsOfAMachineHaveControllers wants a machine to be given what its kubelet needs: with cgroup v2, the
// cgroup that is the root for the machine has to have controllers.
func TestUnifiedCgroupsOfAMachineHaveControllers(t *testing.T) {
	need(t)

	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}

	mount, root := cgroupMountOf(mounts, "")
	if mount == "" {
		t.Skip("cgroup2 is not mounted here")
	}

	available := strings.Fields(string(readCgroup(t, mount, "cgroup.controllers")))
	before := strings.Fields(string(readCgroup(t, mount, "cgroup.subtree_control")))

	if len(available) == 0 {
		t.Skip("cgroup2 has no controllers here: all of them are in v1")
	}

	run := cgroups{filepath.Join(mount, runPrefix+"controllers")}

	t.Cleanup(func() {
		if err := run.remove(sweepPatience); err != nil {
			t.Error(err)
		}

		for _, controller := range available {
			if !slices.Contains(before, controller) {
				_ = os.WriteFile(filepath.Join(mount, "cgroup.subtree_control"), []byte("-"+controller), 0o644)
			}
		}
	})

	if err := handDown(mount); err != nil {
		t.Fatal(err)
	}

	if err := makeCgroup(run[0]); err != nil {
		t.Fatal(err)
	}

	command := exec.CommandContext(t.Context(), "sleep", "60")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := command.Start(); err != nil {
		t.Fatal(err)
	}

	defer func() { _, _ = command.Process.Kill(), command.Wait() }()

	leaves, err := run.leaves()
	if err != nil {
		t.Fatal(err)
	}

	if err := leaves.enter(command.Process.Pid); err != nil {
		t.Fatal(err)
	}

	machine, err := run.below("machine")
	if err != nil {
		t.Fatal(err)
	}

	if err := machine.enter(command.Process.Pid); err != nil {
		t.Fatal(err)
	}

	_, place, _ := strings.Cut("\n"+string(readCgroup(t, "/proc", strconv.Itoa(command.Process.Pid), "cgroup")), "\n0::")
	place, _, _ = strings.Cut(place, "\n")
	given := strings.Fields(string(readCgroup(t, mount, strings.TrimPrefix(place, root), "cgroup.controllers")))

	if diff := cmp.Diff(available, given); diff != "" {
		t.Errorf("the machine is in %s, which has other controllers than there are (-there are +it has):\n%s", place, diff)
	}
}

func readCgroup(t *testing.T, path ...string) []byte {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}

	return content
}

func TestWhatBelongsToAnotherRunIsNotCounted(t *testing.T) {
	const own = runPrefix + "1"

	for cgroups, want := range map[string]bool{
		"4:memory:/user.slice":                                false,
		"4:memory:/user.slice/" + own:                         false,
		"4:memory:/" + own + "/" + runPrefix + "2/worker":     false,
		"4:memory:/user.slice/" + runPrefix + "2":             true,
		"4:memory:/user.slice/" + runPrefix + "2/worker/init": true,
	} {
		if got := ofAnotherRun(cgroups, own); got != want {
			t.Errorf("%s is of another run: %t, want %t", cgroups, got, want)
		}
	}
}

func TestLayerIsWhatItWasMeasuredAs(t *testing.T) {
	l := &layer{files: []file{{path: "etc/passwd", mode: 0o644, content: []byte("root\n")}, {path: "lib", link: "usr/lib"}}}
	if err := l.measure(); err != nil {
		t.Fatal(err)
	}

	first, err := l.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()

	var read bytes.Buffer
	if _, err := read.ReadFrom(first); err != nil {
		t.Fatal(err)
	}

	again := l.digest
	if err := l.measure(); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]any{again, int64(read.Len())}, []any{l.digest, l.size}); diff != "" {
		t.Errorf("measured (-first +second):\n%s", diff)
	}
}

// TestPullThatWasCutOffGoesOn: containerd requests the rest of a layer, even if it has all of it, and if the registry
// rejects that, the machine can never pull the image.
func TestPullThatWasCutOffGoesOn(t *testing.T) {
	made := &images{layers: map[v1.Hash]*layer{}, memory: registry.NewInMemoryBlobHandler()}
	l := &layer{files: []file{{path: "etc/passwd", mode: 0o644, content: []byte("root\n")}}}

	if err := l.measure(); err != nil {
		t.Fatal(err)
	}

	made.layers[l.digest] = l

	server := httptest.NewServer(made.handler(io.Discard))
	defer server.Close()

	for _, start := range []int64{1, l.size} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v2/etcd/blobs/"+l.digest.String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", start))

		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}

		content, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}

		_ = response.Body.Close()

		if response.StatusCode != http.StatusOK || int64(len(content)) != l.size {
			t.Errorf("from byte %d of %d: %s and %d bytes", start, l.size, response.Status, len(content))
		}
	}
}

func TestPartsAreInTheTable(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}

	var listed []string

	for line := range strings.Lines(string(page)) {
		if name, isRow := strings.CutPrefix(line, "| `"); isRow {
			name, _, _ = strings.Cut(name, "`")
			listed = append(listed, name)
		}
	}

	var run []string
	for _, one := range parts() {
		run = append(run, one.name)
	}

	if diff := cmp.Diff(run, listed); diff != "" {
		t.Errorf("README.md does not list the parts that there are (-parts +README.md):\n%s", diff)
	}
}
