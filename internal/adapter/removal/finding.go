// SPDX-License-Identifier: MPL-2.0

package removal

import (
	"cmp"
	"slices"

	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// removals returns the findings of one check.
func removals(found upgrade.ComponentRemovedItemsError, to version.Version) []cluster.Removal {
	var all []cluster.Removal

	for _, group := range []struct {
		kind  string
		items []upgrade.ComponentItem
	}{
		{KindFlag, found.CLIFlags}, {KindFeatureGate, found.FeatureGates}, {KindAdmissionPlugin, found.AdmissionFlags},
	} {
		for _, item := range group.items {
			all = append(all, cluster.Removal{
				Kind: group.kind, Name: item.Value, Address: item.Node, Component: cluster.Component(item.Component), In: to,
			})
		}
	}

	for resource, objects := range found.APIResources {
		all = append(all, cluster.Removal{Kind: KindAPI, Name: resource, Objects: objects, In: to})
	}

	return all
}

// sorted returns the removals in a stable order, by kind, name, node and component, without duplicates.
func sorted(all []cluster.Removal) []cluster.Removal {
	kinds := []string{KindFlag, KindFeatureGate, KindAdmissionPlugin, KindStaticPod, KindAPI}

	slices.SortFunc(all, func(a, b cluster.Removal) int {
		return cmp.Or(
			cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Component, b.Component),
		)
	})

	return slices.Compact(all)
}
