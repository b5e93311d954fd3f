// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// fakeHome is a Kubernetes API with one object in it. It refuses to be written
// to, and counts what it is asked for.
type fakeHome struct {
	operator.Access

	object map[string]any
	err    error
	// away is an API that does not answer.
	away  bool
	asked atomic.Int32
}

// Object implements [cluster.ObjectAccess].
func (h *fakeHome) Object(ctx context.Context, _ cluster.Reference) (map[string]any, error) {
	h.asked.Add(1)

	if h.away {
		<-ctx.Done()

		return nil, ctx.Err()
	}

	return h.object, h.err
}

// Objects implements [cluster.Objects].
func (h *fakeHome) Objects(context.Context, cluster.ObjectQuery) ([]map[string]any, error) {
	return nil, h.err
}

// HasPart implements [cluster.ObjectAccess].
func (h *fakeHome) HasPart(context.Context, cluster.Reference, string) (bool, error) {
	return false, h.err
}

// PatchObject implements [cluster.ObjectAccess].
func (h *fakeHome) PatchObject(context.Context, cluster.Reference, string, map[string]any) (map[string]any, error) {
	return nil, cmp.Or(h.err, cluster.ErrDenied)
}

// Secret implements [cluster.SecretAccess].
func (h *fakeHome) Secret(context.Context, string, string) (cluster.Secret, error) {
	return cluster.Secret{}, cluster.ErrDenied
}

// Secrets implements [cluster.SecretAccess].
func (h *fakeHome) Secrets(context.Context, string, string) ([]cluster.Secret, error) {
	return nil, cluster.ErrDenied
}
