// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"net"
	"testing"
)

// refuse is a dialler that must not be used.
func refuse(t *testing.T) func(context.Context, string) (net.Conn, error) {
	t.Helper()

	return func(_ context.Context, address string) (net.Conn, error) {
		t.Errorf("%s was dialled", address)

		return nil, net.ErrClosed
	}
}
