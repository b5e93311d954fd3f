// SPDX-License-Identifier: MPL-2.0

//go:build !unix

package wire

import (
	"net"
	"syscall"
)

// holdPort finds a free port. If sockets cannot share a port, it is not kept between two listeners.
func holdPort() (port int, release func(), err error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}

	address, _ := listener.Addr().(*net.TCPAddr)

	return address.Port, func() {}, listener.Close()
}

func sharePort(syscall.RawConn) error { return nil }
