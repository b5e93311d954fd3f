// SPDX-License-Identifier: MPL-2.0

package release

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// embedded is the built-in list.
type embedded struct {
	product version.Product
	options Options
}

// Versions implements [Source].
func (e embedded) Versions(context.Context) (List, error) {
	table := e.options.table()

	name := Embedded
	if table.Source != "" {
		name += ", " + table.Source
	}

	list, err := newOffer(name, e.product, tags(table.Releases(e.product)), e.options)
	list.AsOf = table.AsOf

	return list, err
}
