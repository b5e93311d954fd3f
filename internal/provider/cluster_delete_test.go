// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

func TestDelete_OfAResource(t *testing.T) {
	for name, test := range map[string]struct {
		change    func(*fakeCluster)
		want      []outcome
		forgotten []string
	}{
		"removes what is ours": {func(*fakeCluster) {}, nil, []string{"cluster-a"}},
		"says what it kept": {
			func(f *fakeCluster) { f.kept = []string{"the journal, because worker-0 is armed"} },
			[]outcome{{diag.SeverityWarning, "worker-0 is armed"}},
			[]string{"cluster-a"},
		},
		"refuses another cluster": {
			func(f *fakeCluster) { f.id = "cluster-b" },
			[]outcome{{diag.SeverityError, "The state belongs to cluster cluster-a"}},
			nil,
		},
		"lets go of a dead cluster and says what may be left": {
			func(f *fakeCluster) { f.down, f.forgetErr = cluster.ErrUnreachable, cluster.ErrUnreachable },
			[]outcome{{diag.SeverityWarning, "kube-system/talosupgrade-journal"}},
			nil,
		},
		"stops where other credentials would help": {
			func(f *fakeCluster) { f.forgetErr = cluster.ErrDenied },
			[]outcome{{diag.SeverityError, "terraform state rm"}},
			[]string{"cluster-a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			state := stateOf(t, stored(t, fake, "1.13.4", ""))
			test.change(fake)

			resp := resource.DeleteResponse{State: state}
			(&clusterResource{clusters: fake.clusters(t)}).Delete(t.Context(), resource.DeleteRequest{State: state}, &resp)

			check(t, told.Noted(t, resp.Diagnostics), test.want...)

			if !slices.Equal(fake.forgotten, test.forgotten) {
				t.Errorf("forgot %v", fake.forgotten)
			}
		})
	}
}

// TestDelete_LeavesTheObjectsOfTheResourceThatReplacesIt: with create_before_destroy, the new one is applied first.
func TestDelete_LeavesTheObjectsOfTheResourceThatReplacesIt(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state, clusters := stateOf(t, stored(t, fake, "1.13.4", "")), fake.clusters(t)

	if err := clusters.Claims.Claim("cluster-a", "the new one"); err != nil {
		t.Fatal(err)
	}

	resp := resource.DeleteResponse{State: state}
	(&clusterResource{clusters: clusters}).Delete(t.Context(), resource.DeleteRequest{State: state}, &resp)

	check(t, told.Noted(t, resp.Diagnostics))

	if len(fake.forgotten) > 0 {
		t.Errorf("forgot %v", fake.forgotten)
	}
}

// TestDelete_HasATimeLimit: three minutes, or what timeouts.delete says.
func TestDelete_HasATimeLimit(t *testing.T) {
	for name, test := range map[string]struct {
		change      func(*clusterModel)
		over, limit time.Duration
	}{
		"nothing is said": {nothingElse, time.Minute, defaultDeleteTimeout},
		"it is said":      {limited("delete", "1m"), 0, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			model := stored(t, fake, "1.13.4", "")
			test.change(model)

			state, began := stateOf(t, model), time.Now()
			resp := resource.DeleteResponse{State: state}
			(&clusterResource{clusters: fake.clusters(t)}).Delete(t.Context(), resource.DeleteRequest{State: state}, &resp)
			check(t, told.Noted(t, resp.Diagnostics))

			if limit := fake.forgetBy.Sub(began); limit <= test.over || time.Until(fake.forgetBy) > test.limit {
				t.Errorf("it had %s, want at most %s", limit, test.limit)
			}
		})
	}
}
