// SPDX-License-Identifier: MPL-2.0

//go:build linux

// Command kubelet stands in front of the kubelet and prepares its container, then becomes
// the kubelet.
//
// Where cgroups are of version 1, Talos binds /sys/fs/cgroup into the container without what
// is mounted below, so the hierarchies are mounted there again. And a kubelet sets parameters
// of the whole kernel, which is not this machine's alone: it gets copies of them to set.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// next is the real one, beside this program.
const next = "kubelet.real"

const (
	cgroups = "/sys/fs/cgroup"
	// copies are the parameters as far as the kubelet is concerned.
	copies     = "/parameters"
	parameters = "/proc/sys"
)

// tunables are what a kubelet sets and no namespace keeps to itself.
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

		// Those that the machine has not, its kubelet has not either.
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
