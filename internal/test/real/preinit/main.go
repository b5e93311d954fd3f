// SPDX-License-Identifier: MPL-2.0

//go:build linux

// Command preinit is the first process of a machine's initial file system: it loads the modules of /modules in the
// order of their names and becomes Talos' own init. The kernel of Talos has them built in, that of Debian does not.
// If there is a file /hang, it does nothing instead.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

func main() {
	err := run()

	// If the first process ends, the kernel panics and restarts.
	fmt.Fprintln(os.Stderr, "preinit:", err)
	os.Exit(1)
}

func run() error {
	if _, err := os.Stat("/hang"); err == nil {
		fmt.Fprintln(os.Stderr, "preinit: this system starts nothing")

		for {
			// Only a signal would end it, and nothing sends one.
			_ = unix.Pause()
		}
	}

	modules, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}

	slices.Sort(modules)

	for _, module := range modules {
		if err := load(module); err != nil {
			fmt.Fprintf(os.Stderr, "preinit: %s: %v\n", module, err)
		}
	}

	// This frees the memory of the files.
	if err := os.RemoveAll("/modules"); err != nil {
		return err
	}

	return unix.Exec("/init.talos", []string{"/init"}, os.Environ())
}

func load(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()

	return unix.FinitModule(int(file.Fd()), "", 0)
}
