// SPDX-License-Identifier: MPL-2.0

//go:build linux

// Command pause does nothing until it is told to end. With the argument "stubborn" it ignores that.
package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	asked := make(chan os.Signal, 1)

	if slices.Contains(os.Args[1:], "stubborn") {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	} else {
		signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	}

	// As the first process of a Pod it has to reap orphans.
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)

	for {
		select {
		case <-asked:
			return
		case <-orphans:
			for pid := 1; pid > 0; {
				pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			}
		}
	}
}
