// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are chosen from below the ranges from which systems take the local
// ports of outgoing connections, so that a port which is closed for a while,
// because its machine is down, is still ours afterwards.
const (
	lowestPort  = 20000
	highestPort = 32000
)

const loopback = "127.0.0.1"

// listenAnywhere listens on a random free port.
func listenAnywhere() (net.Listener, error) {
	const attempts = 100

	var last error

	for range attempts {
		port := lowestPort + rand.IntN(highestPort-lowestPort)

		listener, err := net.Listen("tcp", hostPort(port))
		if err == nil {
			return listener, nil
		}

		last = err
	}

	return nil, fmt.Errorf("finding a free port between %d and %d on %s: %w", lowestPort, highestPort, loopback, last)
}

// freePorts chooses ports that are free now. Somebody may be faster, so who
// uses them must be able to try again.
func freePorts(count int) ([]int, error) {
	var (
		ports     []int
		listeners []net.Listener
		failed    error
	)

	for range count {
		listener, err := listenAnywhere()
		if err != nil {
			failed = err

			break
		}

		listeners = append(listeners, listener)
		ports = append(ports, portOf(listener))
	}

	for _, listener := range listeners {
		failed = errors.Join(failed, listener.Close())
	}

	return ports, failed
}

// portOf is the port of a TCP listener.
func portOf(listener net.Listener) int {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		panic(fmt.Sprintf("%s is no TCP address", listener.Addr()))
	}

	return address.Port
}

func hostPort(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
