// SPDX-License-Identifier: MPL-2.0

package front

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// eventually bounds what must happen soon.
const eventually = 30 * time.Second

// echo starts a server that returns what it is sent, and returns its address.
func echo(t *testing.T) string {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() })

	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}

			go func() {
				_, _ = io.Copy(connection, connection)
				_ = connection.Close()
			}()
		}
	}()

	return listener.Addr().String()
}

// converse opens a connection and checks that it works.
func converse(t *testing.T, port int) net.Conn {
	t.Helper()

	connection, err := net.Dial("tcp", HostPort(port))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = connection.Close() })

	if err := connection.SetDeadline(time.Now().Add(eventually)); err != nil {
		t.Fatal(err)
	}

	if _, err := connection.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}

	if _, err := io.ReadFull(connection, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	return connection
}

func TestFront_ClosedGateRefusesAndCuts(t *testing.T) {
	g, err := NewGate(echo(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()

	connection := converse(t, g.port)

	g.Close()

	if _, err := connection.Read(make([]byte, 1)); err == nil {
		t.Error("the live connection survived")
	}

	if _, err := net.Dial("tcp", HostPort(g.port)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialing a closed gate: %v, want connection refused", err)
	}

	if err := g.Open("cp-0"); err != nil {
		t.Fatal(err)
	}

	converse(t, g.port)
}

func TestFront_SharedGateCutsConnectionsOfItsFormerOwnerOnly(t *testing.T) {
	g, err := NewGate(echo(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()

	old := converse(t, g.port)

	if err := g.Open("cp-1"); err != nil {
		t.Fatal(err)
	}

	if _, err := old.Read(make([]byte, 1)); err == nil {
		t.Error("a connection through the former owner survived")
	}

	current := converse(t, g.port)

	if err := g.Open("cp-1"); err != nil {
		t.Fatal(err)
	}

	if _, err := current.Write([]byte("x")); err != nil {
		t.Error("a connection through the present owner was cut:", err)
	}
}

func TestFront_StoppedGateLeavesNothingRunning(t *testing.T) {
	g, err := NewGate(echo(t), nil)
	if err != nil {
		t.Fatal(err)
	}

	converse(t, g.port)

	stopped := make(chan struct{})

	go func() { g.Stop(); close(stopped) }()

	select {
	case <-stopped:
	case <-time.After(eventually):
		t.Fatal("the gate did not stop")
	}
}

// TestFront_LossCutsBeforeAnotherAnswerPasses: once an answer shows that a reply has to be lost, the next one may
// be that reply.
func TestFront_LossCutsBeforeAnotherAnswerPasses(t *testing.T) {
	var (
		judged sync.Mutex
		losing atomic.Bool
	)

	g, err := NewGate(echo(t), func(cut func()) bool {
		judged.Lock()
		defer judged.Unlock()

		if !losing.CompareAndSwap(true, false) {
			return false
		}

		cut()

		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()

	for range 50 {
		connections := []net.Conn{converse(t, g.port), converse(t, g.port)}

		losing.Store(true)

		var (
			both    sync.WaitGroup
			arrived atomic.Int32
		)

		for _, connection := range connections {
			both.Go(func() {
				_, _ = connection.Write([]byte("x"))

				if _, err := io.ReadFull(connection, make([]byte, 1)); err == nil {
					arrived.Add(1)
				}
			})
		}

		both.Wait()

		if losing.Load() {
			t.Fatal("nothing was lost")
		}

		if count := arrived.Load(); count > 0 {
			t.Fatalf("%d answers arrived", count)
		}
	}
}
