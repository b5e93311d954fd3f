// SPDX-License-Identifier: MPL-2.0

//go:build !unix

package workspace

import (
	"os/exec"
	"time"
)

// Isolate kills the command when its context ends: here there are neither process groups nor interrupts.
func Isolate(command *exec.Cmd, grace time.Duration) { command.WaitDelay = grace }

// Reap has nothing to do without process groups.
func Reap(*exec.Cmd) {}
