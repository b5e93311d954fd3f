// SPDX-License-Identifier: MPL-2.0

//go:build unix && !linux

package kube

import (
	"errors"
	"os"
	"syscall"
)

// ownGroup keeps a Ctrl-C in the terminal away from the child, which is stopped
// in order instead.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func kill(process *os.Process) error {
	err := syscall.Kill(-process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}

	return err
}
