// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// cable is the way to the endpoints whose address has the prefix. They can go
// silent the way a machine without power does: nothing arrives, and nobody
// says so.
type cable struct {
	prefix string
	dial   func(context.Context, string) (net.Conn, error)
	silent chan struct{}
	cut    sync.Once

	mutex sync.Mutex
	// swallowed are the endpoints to which something was sent in vain.
	swallowed map[string]bool
}

func newCable(prefix string) *cable {
	return &cable{prefix: prefix, silent: make(chan struct{}), swallowed: map[string]bool{}}
}

func (w *cable) dialContext(ctx context.Context, address string) (net.Conn, error) {
	if !strings.HasPrefix(address, w.prefix) {
		return w.dial(ctx, address)
	}

	select {
	case <-w.silent:
		<-ctx.Done()

		return nil, ctx.Err()
	default:
	}

	conn, err := w.dial(ctx, address)

	return &strand{Conn: conn, cable: w, address: address, closed: make(chan struct{})}, err
}

func (w *cable) goSilent() { w.cut.Do(func() { close(w.silent) }) }

type strand struct {
	net.Conn

	cable   *cable
	address string
	closed  chan struct{}
	end     sync.Once
}

func (w *strand) Read(into []byte) (int, error) {
	n, err := w.Conn.Read(into)

	select {
	case <-w.cable.silent:
		<-w.closed

		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (w *strand) Write(from []byte) (int, error) {
	select {
	case <-w.cable.silent:
		w.cable.mutex.Lock()
		defer w.cable.mutex.Unlock()

		w.cable.swallowed[w.address] = true

		return len(from), nil
	default:
		return w.Conn.Write(from)
	}
}

func (w *strand) Close() error {
	w.end.Do(func() { close(w.closed) })

	return w.Conn.Close()
}

func (r *rig) clientOver(w *cable) *talosapi.Client {
	r.Helper()

	text, err := r.server.Talosconfig()
	if err != nil {
		r.Fatal(err)
	}

	config, err := talosapi.ParseConfig(text, "")
	if err != nil {
		r.Fatal(err)
	}

	w.dial = r.server.Dialer()

	made, err := talosapi.New(config, talosapi.Options{DialContext: w.dialContext})
	if err != nil {
		r.Fatal(err)
	}

	r.Cleanup(func() {
		if err := made.Close(); err != nil {
			r.Error(err)
		}
	})

	return made
}

func TestAnEndpointThatSwallowsPacketsDelaysNobody(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		through := newCable(cp0 + ":")
		through.goSilent()

		c := r.clientOver(through)
		started := time.Now()

		r.machine(c, worker0)

		if took := time.Since(started); took > time.Second {
			r.Errorf("the first look took %s", took)
		}
	})
}

func TestAnEndpointThatLostItsPowerIsLeft(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		through := newCable(cp0 + ":")
		c := r.clientOver(through)

		// Through cp-0, as long as it lives.
		r.machine(c, worker0)
		through.goSilent()

		started := time.Now()

		r.machine(c, worker0)

		if took := time.Since(started); took > 20*time.Second {
			r.Errorf("it took %s to go another way", took)
		}

		started = time.Now()

		r.machine(c, worker0)

		if took := time.Since(started); took > time.Second {
			r.Errorf("the next look took %s", took)
		}
	})
}

func TestAChangeIsNotRepeatedThroughAnotherEndpoint(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		through := newCable("")
		c := r.clientOver(through)

		r.machine(c, worker0)
		// What the connections still have to say about that is not meant.
		synctest.Wait()
		through.goSilent()

		err := c.Reboot(r.Context(), worker0, cluster.RebootDefault)
		if !errors.Is(err, cluster.ErrOutcomeUnknown) {
			r.Errorf("%v, want the outcome to be unknown", err)
		}

		through.mutex.Lock()
		defer through.mutex.Unlock()

		if len(through.swallowed) != 1 {
			r.Errorf("the reboot was asked for through %v, want one endpoint", through.swallowed)
		}
	})
}

func TestTheIdentityOfAClusterIsNotForgotten(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		through := newCable("")
		c := r.clientOver(through)

		before, err := c.ClusterID(r.Context())
		if err != nil || before == "" {
			r.Fatalf("cluster ID %q, %v", before, err)
		}

		through.goSilent()

		if after, err := c.ClusterID(r.Context()); err != nil || after != before {
			r.Errorf("cluster ID %q, %v; want %q", after, err, before)
		}
	})
}
