// SPDX-License-Identifier: MPL-2.0

package real

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

const (
	// runPrefix is the prefix of the names of a run's directory and of its cgroups.
	runPrefix = "talosupgrade-real-"
	// stateDir is where a world has what its machines write.
	stateDir = "state"
	lockFile = "lock"
	noteFile = "outside.json"
	// sweepPatience bounds how long the kernel may take to end a world.
	sweepPatience = time.Minute
)

// tunables are parameters of the whole kernel that machined and a kubelet set.
var tunables = []string{
	"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom",
}

const tunablesDir = "/proc/sys/"

// outside is what a run has outside of its world.
type outside struct {
	Programs programs
	Cgroups  cgroups
}

// run is one run of the suite, as seen from outside of its world.
type run struct {
	dir     string
	lock    *os.File
	cgroups cgroups
}

// runsDir returns the directory with the directories of all runs.
func runsDir() (string, error) {
	cache, err := toolchain.CacheDir()
	if err != nil {
		return "", err
	}

	dir := filepath.Join(cache, "real")

	return dir, os.MkdirAll(dir, 0o755)
}

// openRun removes what earlier runs have left behind, and begins a run.
func openRun(made programs) (*run, error) {
	parent, err := runsDir()
	if err != nil {
		return nil, err
	}

	if err := sweepOld(parent); err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp(parent, runPrefix)
	if err != nil {
		return nil, fmt.Errorf("making the directory of the run: %w", err)
	}

	opened := &run{dir: dir}

	if opened.lock, err = os.Create(filepath.Join(dir, lockFile)); err != nil {
		return nil, fmt.Errorf("making the lock of the run: %w", err)
	}

	if err := syscall.Flock(int(opened.lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("locking the run: %w", err)
	}

	if err := os.Mkdir(filepath.Join(dir, stateDir), 0o755); err != nil {
		return nil, fmt.Errorf("making the state of the run: %w", err)
	}

	all, err := hierarchies()
	if err != nil {
		return nil, err
	}

	// They are recorded before they exist: the sweeper must know all of them.
	note := outside{Programs: made}
	for _, one := range all {
		note.Cgroups = append(note.Cgroups, filepath.Join(one.Parent, filepath.Base(dir)))
	}

	if err := writeNote(dir, note); err != nil {
		return nil, err
	}

	opened.cgroups, err = makeCgroups(filepath.Base(dir))

	return opened, errors.Join(err, func() error {
		if err != nil {
			return sweep(dir)
		}

		return nil
	}())
}

func writeNote(dir string, note outside) error {
	content, err := json.Marshal(note)
	if err != nil {
		return fmt.Errorf("writing what the run has outside: %w", err)
	}

	return os.WriteFile(filepath.Join(dir, noteFile), content, 0o600)
}

func readNote(dir string) (outside, error) {
	var note outside

	content, err := os.ReadFile(filepath.Join(dir, noteFile))
	if errors.Is(err, fs.ErrNotExist) {
		return note, nil
	}

	if err == nil {
		err = json.Unmarshal(content, &note)
	}

	return note, err
}

// sweepOld removes what is left of runs that ended together with their sweepers.
func sweepOld(parent string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, runPrefix+"*"))
	if err != nil {
		return fmt.Errorf("listing earlier runs: %w", err)
	}

	for _, dir := range dirs {
		lock := flock.New(filepath.Join(dir, lockFile))

		free, err := lock.TryLock()
		if err != nil {
			return fmt.Errorf("looking whether an earlier run goes on: %w", err)
		}

		if free {
			fmt.Fprintf(os.Stderr, "removing what an earlier run left in %s\n", dir)

			if err := errors.Join(sweep(dir), lock.Close()); err != nil {
				return err
			}
		}
	}

	return nil
}

// sweep removes what is left of a run that has ended: its cgroups and its directory.
func sweep(dir string) error {
	note, err := readNote(dir)
	if err != nil {
		return fmt.Errorf("reading what the run in %s has outside: %w", dir, err)
	}

	if err := note.Cgroups.remove(sweepPatience); err != nil {
		return err
	}

	return os.RemoveAll(dir)
}

func readTunables() map[string]string {
	found := map[string]string{}

	for _, name := range tunables {
		if content, err := os.ReadFile(tunablesDir + name); err == nil {
			found[name] = strings.TrimSpace(string(content))
		}
	}

	return found
}

// sweeper is a process that removes what is left of a run once the run has ended, however it ended: the input of the
// process ends with the run.
type sweeper struct {
	command *exec.Cmd
	input   io.Closer
	said    bytes.Buffer
}

func (r *run) startSweeper() (*sweeper, error) {
	command, err := self(roleSweeper)
	if err != nil {
		return nil, err
	}

	made := &sweeper{command: command}

	command.Dir = "/"
	command.Env = append(command.Env, worldVariable+"="+r.dir)
	command.Stderr = &made.said
	// Its copy of the lock keeps the next run from sweeping at the same time.
	command.ExtraFiles = []*os.File{r.lock}
	// An interrupt from the terminal, and a signal to the process group of the tests, must not reach it.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	if made.input, err = command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}

	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting what sweeps up: %w", err)
	}

	return made, nil
}

// finish ends its input, and waits until everything is removed.
func (s *sweeper) finish() error {
	_ = s.input.Close()

	if err := s.command.Wait(); err != nil {
		return fmt.Errorf("sweeping up: %w\n%s", err, &s.said)
	}

	return nil
}

func beSweeper() error {
	// An error ends the input as well.
	_, _ = io.Copy(io.Discard, os.Stdin)

	return sweep(os.Getenv(worldVariable))
}

// surroundings are what a run could leave behind, each under a name by which a person can find it.
type surroundings map[string]struct{}

// lookAround returns the namespaces, mounts, links, cgroups and parameters of the machine. It leaves out runs other
// than the one with the name, since another run may be in progress.
func lookAround(name string) (surroundings, error) {
	found := surroundings{}

	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}

	for _, process := range processes {
		// It may have ended.
		if own, err := os.ReadFile(filepath.Join(process, "cgroup")); err != nil || ofAnotherRun(string(own), name) {
			continue
		}

		spaces, err := filepath.Glob(filepath.Join(process, "ns", "*"))
		if err != nil {
			return nil, fmt.Errorf("listing namespaces: %w", err)
		}

		for _, path := range spaces {
			if space, err := os.Readlink(path); err == nil {
				found["namespace "+space] = struct{}{}
			}
		}
	}

	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}

	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			found["mount "+fields[4]] = struct{}{}
		}
	}

	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return nil, fmt.Errorf("listing links: %w", err)
	}

	for _, link := range links {
		found["link "+link.Name()] = struct{}{}
	}

	for name, value := range readTunables() {
		found["parameter "+name+"="+value] = struct{}{}
	}

	// Only cgroups of runs count: those of other programs come and go.
	return found, filepath.WalkDir(cgroupMount, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, runPrefix) && !ofAnotherRun(path, name) {
			found["cgroup "+path] = struct{}{}
		}

		return nil
	})
}

// ofAnotherRun reports whether cgroups are those of a run, and not of the one with the name.
func ofAnotherRun(cgroups, name string) bool {
	return strings.Contains(cgroups, runPrefix) && (name == "" || !strings.Contains(cgroups, name))
}

// leftSince returns what exists in addition to what was there before. Another program may just be starting or ending,
// so it looks again for a while.
func leftSince(before surroundings, name string) ([]string, error) {
	const patience = 10 * time.Second

	for end := time.Now().Add(patience); ; time.Sleep(time.Second) {
		after, err := lookAround(name)
		if err != nil {
			return nil, err
		}

		if left := after.beside(before); len(left) == 0 || time.Now().After(end) {
			return left, nil
		}
	}
}

// beside returns what exists now and did not exist before.
func (s surroundings) beside(before surroundings) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(name string) bool {
		_, there := before[name]

		return there
	})
}
