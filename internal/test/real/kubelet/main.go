// SPDX-License-Identifier: MPL-2.0

//go:build linux

// Command kubelet prepares the container of the kubelet, and then becomes the kubelet.
//
// With cgroups of version 1, Talos binds /sys/fs/cgroup into the container without the mounts below it, so the
// hierarchies are mounted there again. And a kubelet sets parameters of the whole kernel, which other machines use as
// well, so it gets copies of them.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// next is the real kubelet, beside this program.
const next = "kubelet.real"

const (
	cgroups = "/sys/fs/cgroup"
	// copies is the directory with the copies of the parameters for the kubelet.
	copies     = "/parameters"
	parameters = "/proc/sys"
)

// tunables are the parameters that a kubelet sets and that have no namespace.
var tunables = [...]string{
	"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom",
}

func main() {
	path, err := os.Executable()
	if err == nil {
		err = mountCgroups()
	}

	if err == nil {
		err = coverTunables()
	}

	if err == nil {
		err = syscall.Exec(filepath.Join(filepath.Dir(path), next), os.Args, os.Environ())
	}

	fmt.Fprintln(os.Stderr, "kubelet:", err)
	os.Exit(1)
}

func mountCgroups() error {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}

	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] == "" {
			continue
		}

		options, target := parts[1], filepath.Join(cgroups, strings.TrimPrefix(parts[1], "name="))
		if strings.HasPrefix(options, "name=") {
			options = "none," + options
		}

		// A hierarchy that the machine does not have, its kubelet does not have either.
		if _, err := os.Stat(target); err != nil {
			continue
		}

		if err := syscall.Mount("cgroup", target, "cgroup", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, options); err != nil {
			return fmt.Errorf("mounting %s: %w", target, err)
		}
	}

	return nil
}

func coverTunables() error {
	for _, name := range tunables {
		own, copied := filepath.Join(parameters, name), filepath.Join(copies, name)

		value, err := os.ReadFile(own)
		if err != nil {
			return err
		}

		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return err
		}

		if err := os.WriteFile(copied, value, 0o644); err != nil {
			return err
		}

		if err := syscall.Mount(copied, own, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("covering %s: %w", own, err)
		}
	}

	return nil
}
