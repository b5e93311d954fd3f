// SPDX-License-Identifier: MPL-2.0

//go:build unix

package wire

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// holdPort binds a free port without listening there: connections to it are refused, nobody else gets it, and
// listeners with sharePort may come and go.
func holdPort() (port int, release func(), err error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("socket: %w", err)
	}

	release = func() { _ = unix.Close(socket) }

	unix.CloseOnExec(socket)

	err = errors.Join(
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
		unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
	)
	if err != nil {
		release()

		return 0, nil, fmt.Errorf("bind: %w", err)
	}

	bound, err := unix.Getsockname(socket)
	if err != nil {
		release()

		return 0, nil, fmt.Errorf("getsockname: %w", err)
	}

	inet, ok := bound.(*unix.SockaddrInet4)
	if !ok {
		release()

		return 0, nil, fmt.Errorf("getsockname: got %T", bound)
	}

	return inet.Port, release, nil
}

func sharePort(raw syscall.RawConn) error {
	var failed error

	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})

	return errors.Join(err, failed)
}
