// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"errors"
	"os"
	"syscall"
)

// ownGroup keeps a Ctrl-C in the terminal away from the child, which is stopped in order instead, and makes the
// kernel kill it when this process dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func kill(process *os.Process) error {
	err := syscall.Kill(-process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}

	return err
}
