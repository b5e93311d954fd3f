// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// embedded is the list that is built in.
type embedded struct {
	product version.Product
	options Options
}

// Versions implements [Source].
func (e embedded) Versions(context.Context) (List, error) {
	versions, kubernetes := compat.Releases()
	if e.product == version.Kubernetes {
		versions = kubernetes
	}

	list, err := newOffer(Embedded, e.product, tags(versions), e.options)
	list.AsOf = compat.ReleasesAsOf()

	return list, err
}
