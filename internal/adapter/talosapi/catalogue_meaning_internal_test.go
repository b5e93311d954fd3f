// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// check fails the test unless the error means what it must, and says so in
// words that name the node.
func (m meant) check(t *testing.T, what string, err error) {
	t.Helper()

	if err == nil {
		t.Errorf("%s: no error, want %v", what, m.is)

		return
	}

	for _, sentinel := range m.is {
		if !errors.Is(err, sentinel) {
			t.Errorf("%s: %v, want it to be %q", what, err, sentinel)
		}
	}

	for _, sentinel := range m.not {
		if errors.Is(err, sentinel) {
			t.Errorf("%s: %v, want it not to be %q", what, err, sentinel)
		}
	}

	if heals := cluster.Heals(err); heals != m.heals {
		t.Errorf("%s: %v: heals is %t, want %t", what, err, heals, m.heals)
	}

	for _, part := range append([]string{"node " + catalogueNode}, m.says...) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want it to say %q", what, err, part)
		}
	}

	if strings.Contains(err.Error(), "rpc error") {
		t.Errorf("%s: the text is gRPC's own: %v", what, err)
	}
}

// The other side goes by its own clock. Whether it means the clock only its
// earlier answers tell, and where the certificate is out of date by ours, none.
func TestCatalogue28OtherSideTakesOursForExpired(t *testing.T) {
	t.Parallel()

	expired := status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: expired certificate"`)

	for name, test := range map[string]struct {
		proven bool
		valid  time.Duration
		want   error
		says   string
	}{
		"never accepted":          {false, time.Hour, cluster.ErrCredentials, "a clock is wrong"},
		"accepted before":         {true, time.Hour, cluster.ErrUnreachable, "a clock is wrong"},
		"expired by ours as well": {true, -time.Hour, cluster.ErrCredentials, "the client certificate expired on"},
	} {
		c := &Client{config: Config{certificate: Certificate{notAfter: time.Now().Add(test.valid)}}}
		c.proven.Store(test.proven)

		err := c.explain(context.Background(), operation{what: "look at node " + catalogueNode}, &endpoint{name: "10.5.0.2"}, false, expired)
		only(test.want, test.says).check(t, name, err)
	}
}
