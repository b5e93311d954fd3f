// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"context"
	"io"
	"net"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccFirstApplyWaitsForAClusterThatComesUp: the resource is created right after the machines were bootstrapped,
// and their endpoint answers only later. The apply has to wait for it; a plan must not wait.
func TestAccFirstApplyWaitsForAClusterThatComesUp(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	credentials := clientConfiguration(t, s)
	endpoint := regexp.MustCompile(`endpoints = \["([^"]+)"[^\]]*\]`)

	booting := boot(t, endpoint.FindStringSubmatch(credentials)[1])

	w := newWorkspace(t)
	w.write(endpoint.ReplaceAllString(credentials, "endpoints = [\""+booting.address+"\"]"), `talos_version = "1.13.0"`)
	w.plan().mustSucceed(2).mustWarn("The apply finds out whether anything has to be upgraded")

	// This is more than the connections of a single observation.
	booting.patience.Store(40)
	w.apply().mustSucceed(0)
	s.unchanged()

	if state := w.attributes(); at(state, "nodes", "cp-0", "talos_version") != talosModern {
		t.Errorf("in state is %v", state)
	}

	w.mustPlan()
}

// machine is an endpoint that closes connections until its patience is used up, and then forwards them to a cluster.
type machine struct {
	address  string
	patience atomic.Int64
}

func boot(t *testing.T, endpoint string) *machine {
	t.Helper()

	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() })

	booting := &machine{address: listener.Addr().String()}
	booting.patience.Store(1 << 40)

	go func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}

			if booting.patience.Add(-1) >= 0 {
				_ = caller.Close()
			} else {
				go connect(t.Context(), caller, endpoint)
			}
		}
	}()

	return booting
}

// connect forwards between the caller and the first of the addresses that answers, until one of them closes the
// connection or the context ends.
func connect(ctx context.Context, caller net.Conn, addresses ...string) {
	var called net.Conn

	for _, address := range addresses {
		answered, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			called = answered

			break
		}
	}

	if called == nil {
		_ = caller.Close()

		return
	}

	hangUp := func() {
		_, _ = caller.Close(), called.Close()
	}

	defer context.AfterFunc(ctx, hangUp)()
	defer hangUp()

	go func() {
		defer hangUp()

		// Any error ends the connection.
		_, _ = io.Copy(called, caller)
	}()

	_, _ = io.Copy(caller, called)
}
