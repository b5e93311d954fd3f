// SPDX-License-Identifier: MPL-2.0

//go:build unix

package workspace

import (
	"os/exec"
	"syscall"
	"time"
)

// Isolate gives a command its own process group, so that a Ctrl-C in the terminal reaches only the program that
// started it. The end of the command's context interrupts it; after grace it is killed. [Reap] ends the rest of the
// group.
func Isolate(command *exec.Cmd, grace time.Duration) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.WaitDelay = grace
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
}

// Reap kills what an isolated command that has ended left of its process group, such as the plugins of a Terraform
// that was killed.
func Reap(command *exec.Cmd) {
	if command.Process != nil {
		// Usually there is no such group.
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	}
}
