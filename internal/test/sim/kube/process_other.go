// SPDX-License-Identifier: MPL-2.0

//go:build !unix

package kube

import (
	"os"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return nil }

func kill(process *os.Process) error { return process.Kill() }
