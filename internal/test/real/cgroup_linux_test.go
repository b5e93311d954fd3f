// SPDX-License-Identifier: MPL-2.0

package real

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupMount is where machines mount their cgroups.
const cgroupMount = "/sys/fs/cgroup"

// hierarchy is one of the kernel's trees of cgroups: there are a dozen with cgroup v1, and one with v2.
type hierarchy struct {
	// Options are its mount options, such as "cpu,cpuacct" or "name=systemd"; empty for v2.
	Options string
	// Parent is the directory in which the cgroups of a run are created.
	Parent string
}

func (h hierarchy) unified() bool { return h.Options == "" }

// dir returns where a machine mounts it.
func (h hierarchy) dir() string {
	return filepath.Join(cgroupMount, strings.TrimPrefix(h.Options, "name="))
}

// hierarchies returns those of v1, if there are any, from the cgroups of this process on, so a run has the limits of
// this process. Otherwise it returns that of v2 from its root on, because a cgroup that has processes, as this one,
// cannot delegate controllers to its children.
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}

	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("reading the cgroups of this process: %w", err)
	}

	var (
		found   []hierarchy
		unified string
	)

	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}

		mount, root := cgroupMountOf(mounts, parts[1])

		switch {
		case mount == "":
		case parts[1] == "":
			unified = mount
		default:
			found = append(found, hierarchy{Options: parts[1], Parent: filepath.Join(mount, strings.TrimPrefix(parts[2], root))})
		}
	}

	switch {
	case len(found) > 0:
		return found, nil
	case unified != "":
		return []hierarchy{{Parent: unified}}, nil
	default:
		return nil, errors.New("it needs cgroups, and none are mounted here")
	}
}

// cgroupMountOf returns where the hierarchy with these controllers is mounted, and which of its cgroups is at that
// mount.
func cgroupMountOf(mounts []byte, controllers string) (mount, root string) {
	scanner := bufio.NewScanner(bytes.NewReader(mounts))

	for scanner.Scan() {
		before, after, _ := strings.Cut(scanner.Text(), " - ")
		place, system := strings.Fields(before), strings.Fields(after)

		if len(place) < 5 || len(system) < 3 {
			continue
		}

		options := strings.Split(system[2], ",")

		switch {
		case controllers == "" && system[0] == "cgroup2":
		case controllers != "" && system[0] == "cgroup" &&
			!slices.ContainsFunc(strings.Split(controllers, ","), func(c string) bool { return !slices.Contains(options, c) }):
		default:
			continue
		}

		return place[4], place[3]
	}

	return "", ""
}

// cgroups are the directories of one run, or of a machine in it, in every hierarchy.
type cgroups []string

// makeCgroups creates the cgroups of a run.
func makeCgroups(name string) (cgroups, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}

	var made cgroups

	for _, one := range all {
		if one.unified() {
			if err := handDown(one.Parent); err != nil {
				return made, err
			}
		}

		dir := filepath.Join(one.Parent, name)
		made = append(made, dir)

		if err := makeCgroup(dir); err != nil {
			return made, err
		}
	}

	return made, nil
}

// below creates the cgroups of a machine.
func (c cgroups) below(name string) (cgroups, error) {
	var made cgroups

	for _, parent := range c {
		if isUnified(parent) {
			if err := handDown(parent); err != nil {
				return nil, err
			}
		}

		dir := filepath.Join(parent, name)
		if err := makeCgroup(dir); err != nil {
			return nil, err
		}

		made = append(made, dir)
	}

	return made, nil
}

func makeCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("making a cgroup: %w", err)
	}

	if isUnified(dir) {
		return nil
	}

	// A cpuset of v1 accepts no process before it has processors and memory of its own.
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}

		if err := os.WriteFile(filepath.Join(dir, name), value, 0o644); err != nil {
			return fmt.Errorf("giving the cgroup %s: %w", name, err)
		}
	}

	return nil
}

// handDown enables every controller of a v2 cgroup for its children.
func handDown(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the controllers of a cgroup: %w", err)
	}

	for controller := range strings.FieldsSeq(string(available)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("handing the controller %s down: %w", controller, err)
		}
	}

	return nil
}

func isUnified(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.subtree_control"))

	return err == nil
}

// leaves returns where the processes of a run are. In v2 that is a leaf, because only a cgroup without processes can
// delegate controllers, and the machines are below the run.
func (c cgroups) leaves() (cgroups, error) {
	var made cgroups

	for _, dir := range c {
		if isUnified(dir) {
			dir = filepath.Join(dir, "leaf")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, fmt.Errorf("making a cgroup: %w", err)
			}
		}

		made = append(made, dir)
	}

	return made, nil
}

// enter moves a process into the cgroups. That of a machine is the root of what it sees, as in a container runtime: init
// moves itself into a cgroup below before it delegates controllers.
func (c cgroups) enter(pid int) error {
	for _, dir := range c {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("moving a process into its cgroup: %w", err)
		}
	}

	return nil
}

// remove removes the cgroups and everything below, once their processes have ended.
func (c cgroups) remove(patience time.Duration) error {
	end := time.Now().Add(patience)

	for {
		err := c.removeOnce()
		if err == nil || time.Now().After(end) {
			return err
		}

		time.Sleep(50 * time.Millisecond)
	}
}

func (c cgroups) removeOnce() error {
	var all []error

	for _, root := range c {
		var dirs []string

		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}

			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}

			return err
		})
		all = append(all, err)

		// Children are removed before their parents.
		for _, dir := range slices.Backward(dirs) {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				all = append(all, fmt.Errorf("removing the cgroup %s: %w", dir, err))
			}
		}
	}

	return errors.Join(all...)
}
