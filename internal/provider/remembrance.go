// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
)

// certificateReserve is for how long the client certificate of a kubeconfig must
// still be good where it is used again: longer than an upgrade takes.
const certificateReserve = 5 * time.Hour

// remembrance is what is known from earlier connections to the same cluster.
type remembrance struct {
	// kubeconfig is what the Talos API gave; nil where it was not asked yet.
	kubeconfig []byte
	servers    *serverBook
}

// kubeconfigAt is the remembered kubeconfig if its certificate lasts, and one that
// is asked for otherwise. Where there is no other to be had, what is remembered
// does as long as it is good.
func (r remembrance) kubeconfigAt(ctx context.Context, now time.Time, ask func(context.Context) ([]byte, error)) ([]byte, error) {
	expires := kubeapi.Expiry(r.kubeconfig)
	if r.kubeconfig != nil && (expires.IsZero() || expires.After(now.Add(certificateReserve))) {
		return r.kubeconfig, nil
	}

	asked, err := ask(ctx)
	if err != nil && r.kubeconfig != nil && expires.After(now) {
		return r.kubeconfig, nil
	}

	return asked, err
}
