// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// errClaimed is wrapped when another resource has changed the cluster already.
var errClaimed = errors.New("another " + typeName + "_cluster resource has upgraded it in this apply, or is at it")

// claims are the clusters that resources of one configured provider have changed,
// with which resource it was. Terraform creates or updates a resource once in an
// apply, so that a second one for the same cluster is a mistake whether the first
// is still at work or not. The lease in the cluster keeps other processes away.
type claims struct {
	mu sync.Mutex
	by map[string]string
	// files are those that resources write, by which resource does.
	files map[string]string
	// planned is through which connection a resource was planned first.
	planned map[string]string
}

func newClaims() *claims {
	return &claims{by: map[string]string{}, files: map[string]string{}, planned: map[string]string{}}
}

// claim gives the cluster to the claimant, the resource's name among claims, until
// that is destroyed. The error wraps [errClaimed].
func (c *claims) claim(id, claimant string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if holder, taken := c.by[id]; taken && holder != claimant {
		return fmt.Errorf("cluster %s: %w", id, errClaimed)
	}

	c.by[id] = claimant

	return nil
}

// write gives the file with the path to the claimant, and tells whether nobody else
// has it.
func (c *claims) write(path, claimant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if holder, taken := c.files[path]; taken && holder != claimant {
		return false
	}

	c.files[path] = claimant

	return true
}

// twin notes that an upgrade of the cluster was planned through the connection
// with the name, and finds what speaks against that: that one was planned through
// another connection, so that there are two resources.
func (c *claims) twin(id, name string) []cluster.Finding {
	c.mu.Lock()
	defer c.mu.Unlock()

	first, planned := c.planned[id]

	switch {
	case id == "" || first == name:
		return nil
	case !planned:
		c.planned[id] = name

		return nil
	default:
		return []cluster.Finding{{
			Check: cluster.CheckLock, Severity: cluster.Observed, Attribute: attrContext,
			Found:  fmt.Sprintf("another %s_cluster resource upgrades this cluster, which it reaches through %s", typeName, first),
			Remedy: "Keep one resource per cluster.",
		}}
	}
}

// release gives up the cluster of a resource that is destroyed; without effect
// where another one has it.
func (c *claims) release(id, claimant string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.by[id] == claimant {
		delete(c.by, id)
	}
}

// keyClaimant is where the private state of a resource keeps what it is called
// among claims.
const keyClaimant = "claimant"

// private is the private state of a resource.
type private interface {
	comparable

	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// claimantIn is what the resource with the private state is called among claims: a
// random text that it keeps for life. It gets one where it has none yet.
func claimantIn[P private](ctx context.Context, kept P) (string, diag.Diagnostics) {
	var (
		none P
		name string
	)

	stored, diagnostics := kept.GetKey(ctx, keyClaimant)
	if json.Unmarshal(stored, &name) == nil && name != "" {
		return name, diagnostics
	}

	name = rand.Text()

	if kept != none {
		diagnostics.Append(kept.SetKey(ctx, keyClaimant, []byte(`"`+name+`"`))...)
	}

	return name, diagnostics
}
