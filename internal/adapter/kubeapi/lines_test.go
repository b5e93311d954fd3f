// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// slowDial makes connections when it is told to, whether or not anybody still
// waits for them, and counts those that are open.
type slowDial struct {
	begun, goes chan struct{}
	to          string
	made, ended atomic.Int32
}

func (s *slowDial) dial(_ context.Context, network, _ string) (net.Conn, error) {
	s.begun <- struct{}{}
	<-s.goes

	conn, err := net.Dial(network, s.to)
	if err != nil {
		return nil, err
	}

	s.made.Add(1)

	return &countedConn{Conn: conn, of: s}, nil
}

type countedConn struct {
	net.Conn

	of   *slowDial
	once atomic.Bool
}

func (c *countedConn) Close() error {
	if c.once.CompareAndSwap(false, true) {
		c.of.ended.Add(1)
	}

	return c.Conn.Close()
}

// TestNoConnectionOutlivesTheClient: a request that nobody waits for any more has
// its connection made all the same.
func TestNoConnectionOutlivesTheClient(t *testing.T) {
	t.Parallel()

	for name, alternatives := range map[string]func() []string{"with alternatives": func() []string { return nil }, "without": nil} {
		server := newServer(t, nil)
		slow := &slowDial{begun: make(chan struct{}), goes: make(chan struct{}), to: server.address()}
		authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))

		client, err := kubeapi.New([]byte(fmt.Sprintf(
			"clusters: [{name: c, cluster: {server: \"https://%s\", certificate-authority-data: %s}}]\ncontexts: [{name: a, context: {cluster: c}}]\n", own, authority,
		)), "", kubeapi.Options{DialContext: slow.dial, Alternatives: alternatives})
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)

		go func() {
			_, err := client.UID(ctx)
			answered <- err
		}()

		<-slow.begun
		cancel()

		if err := <-answered; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}

		client.Close()
		close(slow.goes)

		eventually(t, "the end of the connection", func() (bool, error) {
			return slow.made.Load() == 1 && slow.ended.Load() == 1, nil
		})

		if _, err := client.UID(t.Context()); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("%s: %v from a client that is closed", name, err)
		}
	}
}
