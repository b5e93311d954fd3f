// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"errors"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestClaim_KeepsResourcesOfOneClusterApart(t *testing.T) {
	claims := NewClaims()

	for _, step := range []struct {
		cluster, claimant string
		refused           bool
	}{
		{"a", "first", false},
		{"b", "second", false},
		{"a", "second", true},
		{"a", "first", false},
	} {
		if err := claims.Claim(step.cluster, step.claimant); errors.Is(err, errClaimed) != step.refused || (err != nil) != step.refused {
			t.Errorf("%s claims %s: %v", step.claimant, step.cluster, err)
		}
	}

	if !claims.Release("a", "second") {
		t.Error("a resource that is destroyed does not learn that another has its cluster")
	}

	if claims.Claim("a", "second") == nil {
		t.Error("the claim of another resource was given up")
	}

	if claims.Release("a", "first") {
		t.Error("a resource that is destroyed learns that another has its cluster, which is its own")
	}

	if err := claims.Claim("a", "second"); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// TestRecordPlan_TellsResourcesOfOneClusterApart: by the names that they have once they are applied.
func TestRecordPlan_TellsResourcesOfOneClusterApart(t *testing.T) {
	low, high := cluster.Target{Talos: version.MustParse("1.13.3")}, cluster.Target{Talos: version.MustParse("1.13.4")}

	const none = cluster.Severity(-1)

	type step struct {
		// claims is true for an apply of the claimant, and destroys for its end.
		claims, destroys bool
		// idle is true if there is nothing to do.
		idle           bool
		claimant, name string
		target         cluster.Target
		want           cluster.Severity
	}

	for name, steps := range map[string][]step{
		"one, again": {
			{claimant: "a", name: "north", target: low, want: none},
			{claimant: "a", name: "north", target: high, want: none},
			{claimant: "a", name: "south", target: high, want: none},
			{claimant: "a", name: "south", target: low, want: none},
		},
		"one, before and after it is created": {
			{name: "north", target: low, want: none},
			{claims: true, claimant: "a"},
			{claimant: "a", name: "north", target: high, want: none},
		},
		"two that are new": {
			{name: "north", target: low, want: none},
			{name: "north", target: high, want: cluster.Permanent},
			{name: "north", target: low, want: none},
			{name: "south", target: low, want: cluster.Observed},
		},
		"two": {
			{claimant: "a", name: "north", target: low, want: none},
			{claimant: "b", name: "north", target: high, want: cluster.Permanent},
			{claimant: "b", name: "north", target: low, want: cluster.Permanent},
			{claimant: "b", name: "south", target: low, want: cluster.Permanent},
			{claimant: "b", name: "south", target: low, idle: true, want: cluster.Observed},
			{claimant: "a", name: "north", target: high, want: none},
			{claimant: "b", name: "north", target: low, want: cluster.Permanent},
		},
		"a new one beside another": {
			{claimant: "a", name: "north", target: low, want: none},
			{name: "north", target: high, want: cluster.Permanent},
			{name: "north", target: low, idle: true, want: cluster.Permanent},
		},
		"one beside another that is new": {
			{name: "north", target: low, want: none},
			{claimant: "a", name: "north", target: high, want: cluster.Permanent},
		},
		"a new one beside another that was just created": {
			{name: "north", target: low, want: none},
			{claims: true, claimant: "a"},
			{name: "north", target: high, want: cluster.Permanent},
			{name: "north", target: low, want: cluster.Permanent},
		},
		"one after another": {
			{claimant: "a", name: "north", target: low, want: none},
			{destroys: true, claimant: "a"},
			{name: "north", target: high, want: none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			claims := NewClaims()

			for index, step := range steps {
				switch {
				case step.claims:
					if err := claims.Claim("c", step.claimant); err != nil {
						t.Fatal(err)
					}
				case step.destroys:
					claims.Release("c", step.claimant)
				default:
					got, found := none, claims.RecordPlan("c", step.claimant, step.name, step.target, !step.idle)
					wording.NoteFindings(t, found)

					if len(found) > 0 {
						got = found[0].Severity
					}

					if got != step.want {
						t.Errorf("step %d: severity %d, want %d", index, got, step.want)
					}
				}
			}
		})
	}
}
