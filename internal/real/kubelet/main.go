// SPDX-License-Identifier: MPL-2.0

//go:build linux

// Command kubelet stands in front of the kubelet where cgroups are of version 1: Talos
// binds /sys/fs/cgroup into the kubelet's container without what is mounted below, so this
// mounts the hierarchies there again, and then becomes the kubelet.
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

const cgroups = "/sys/fs/cgroup"

func main() {
	path, err := os.Executable()
	if err == nil {
		err = mount()
	}

	if err == nil {
		err = syscall.Exec(filepath.Join(filepath.Dir(path), next), os.Args, os.Environ())
	}

	fmt.Fprintln(os.Stderr, "kubelet:", err)
	os.Exit(1)
}

func mount() error {
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
