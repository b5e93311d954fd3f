// SPDX-License-Identifier: MPL-2.0

//go:build unix

package workspace

import (
	"os/exec"
	"syscall"
	"time"
)

// Isolate gives a command a process group of its own, so that a Ctrl-C in the
// terminal reaches only the program that started it. The end of the command's
// context interrupts it; after grace it is killed. [Reap] ends the rest of the
// group.
func Isolate(command *exec.Cmd, grace time.Duration) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.WaitDelay = grace
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
}

// Reap kills whatever an isolated command that has ended left of its process
// group, such as the plugins of a Terraform that was killed.
func Reap(command *exec.Cmd) {
	if command.Process != nil {
		// No such group is the ordinary case.
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	}
}
