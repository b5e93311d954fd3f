// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"errors"
	"testing"
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

	claims.Release("a", "second")

	if claims.Claim("a", "second") == nil {
		t.Error("the claim of another resource was given up")
	}

	claims.Release("a", "first")

	if err := claims.Claim("a", "second"); err != nil {
		t.Errorf("after the release: %v", err)
	}
}
