// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestRemovalsAreThoseOfTheWay(t *testing.T) {
	flag := cluster.Removal{Kind: "flag", Name: "pod-infra-container-image", Address: workerAt, Component: cluster.Kubelet, In: version.MustParse("1.35.0")}
	api := cluster.Removal{Kind: "API", Name: "workloads.v1alpha2.scheduling.k8s.io", Objects: 3, In: version.MustParse("1.36.0")}

	for name, given := range map[string]struct {
		from, to string
		workers  []string
		want     []string
	}{
		"of the next minor": {runs, wanted, []string{workerAt}, []string{flag.Name}},
		"of another node":   {runs, wanted, []string{"10.5.0.6"}, nil},
		"of a later minor":  {wanted, "1.36.0", []string{workerAt}, []string{api.Name}},
		"of a patch":        {wanted, "1.35.9", []string{workerAt}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, on134(), func(s *ports.Cluster, c *ports.Client) {
				s.SetRemovals([]cluster.Removal{flag, api})

				found, err := c.Removals(context.Background(), version.MustParse(given.from), version.MustParse(given.to), []string{firstAt}, given.workers)
				if err != nil {
					t.Fatal(err)
				}

				var names []string
				for _, removal := range found {
					names = append(names, removal.Name)
				}

				if !slices.Equal(names, given.want) {
					t.Errorf("got %v, want %v", names, given.want)
				}
			})
		})
	}
}
