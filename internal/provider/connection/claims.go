// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
)

// errClaimed is wrapped if another resource has changed the cluster already.
var errClaimed = errors.New("another " + attrname.TypeName + "_cluster resource has upgraded it in this apply, or is upgrading it")

// Claims are the clusters that resources of one configured provider have changed, with the resource that did.
// Terraform creates or updates a resource once in an apply, so a second one for the same cluster is a mistake,
// whether or not the first is still running. The lease in the cluster keeps other processes away.
type Claims struct {
	mu sync.Mutex
	by map[string]string
	// files maps each file that a resource writes to that resource.
	files map[string]string
	// planned is the plan of one resource for each cluster.
	planned map[string]plannedResource
}

// plannedResource is a resource as described by its plan.
type plannedResource struct {
	// claimant is the name of the resource among claims; empty if it has none, as before it is created.
	claimant string
	// name is the name of the connection.
	name   string
	target cluster.Target
}

// NewClaims returns claims of nothing.
func NewClaims() *Claims {
	return &Claims{by: map[string]string{}, files: map[string]string{}, planned: map[string]plannedResource{}}
}

// Claim gives the cluster to the claimant, which is the name of a resource among claims, until the resource is
// destroyed. The error wraps [errClaimed].
func (c *Claims) Claim(id, claimant string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if holder, taken := c.by[id]; taken && holder != claimant {
		return fmt.Errorf("cluster %s: %w", id, errClaimed)
	}

	c.by[id] = claimant

	// A resource without a name has been given one since it was planned.
	if planned, found := c.planned[id]; found && planned.claimant == "" {
		planned.claimant = claimant
		c.planned[id] = planned
	}

	return nil
}

// ClaimFile gives the file at the path to the claimant, and reports whether no other claimant has it.
func (c *Claims) ClaimFile(path, claimant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if holder, taken := c.files[path]; taken && holder != claimant {
		return false
	}

	c.files[path] = claimant

	return true
}

// RecordPlan records that a plan of the claimant brings the cluster to the target through the named connection, and
// returns what conflicts with it: a plan of another resource. The claimant is empty for a resource without a name among
// claims.
//
// Terraform may plan a resource more than once through one configured provider, each time with another target, as the
// runs of a test do. Once the resource is created, it is known by its name. Two resources without a name are known to be
// two only by their targets; if there is work, they are suspected to be two if they reach the cluster through two
// connections.
func (c *Claims) RecordPlan(id, claimant, name string, target cluster.Target, work bool) []cluster.Finding {
	c.mu.Lock()
	defer c.mu.Unlock()

	if id == "" {
		return nil
	}

	own := plannedResource{claimant: claimant, name: name, target: target}
	first, planned := c.planned[id]

	if !planned || claimant != "" && claimant == first.claimant {
		c.planned[id] = own

		return nil
	}

	conflict := cluster.Finding{Check: cluster.CheckLock, Severity: cluster.Permanent, Remedy: "Keep one resource per cluster."}
	conflict.Found = fmt.Sprintf("another %s_cluster resource is for this cluster", attrname.TypeName)

	if first.name != name {
		conflict.Attribute = attrname.Context
		conflict.Found += ", which it reaches through " + first.name
	}

	apart := claimant != "" || first.claimant != ""
	idle := !work && claimant != "" && first.claimant != ""

	switch same := first.target.Talos.Equal(target.Talos) && first.target.Kubernetes.Equal(target.Kubernetes); {
	case !same:
		conflict.Attribute = ""
		conflict.Found = fmt.Sprintf("this resource is to bring the cluster to %s, and another %s_cluster resource of the same provider block brings it to %s",
			wanted(target), attrname.TypeName, wanted(first.target))
	case apart && !idle:
	case apart, first.name != name && work:
		// Two that exist and have nothing to do harm nobody yet, and two without a name may be one.
		conflict.Severity = cluster.Observed
	default:
		return nil
	}

	return []cluster.Finding{conflict}
}

// wanted returns the target as text: "Talos 1.13.4, Kubernetes 1.35.2".
func wanted(target cluster.Target) string {
	return plan.State{Talos: target.Talos, Kubernetes: target.Kubernetes}.String()
}

// Release gives up the cluster of a resource that is destroyed. If another resource has claimed it, as with
// create_before_destroy, true is returned, and the claim of the other one stays.
func (c *Claims) Release(id, claimant string) (another bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	holder, taken := c.by[id]
	another = taken && holder != claimant

	if !another {
		delete(c.by, id)
	}

	if c.planned[id].claimant == claimant {
		delete(c.planned, id)
	}

	return another
}

// keyClaimant is the key of the resource's name among claims in its private state.
const keyClaimant = "claimant"

// private is the private state of a resource.
type private interface {
	comparable

	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// ClaimantOf returns the name among claims of the resource with the private state; empty if it has none yet.
func ClaimantOf[P private](ctx context.Context, kept P) (string, diag.Diagnostics) {
	var name string

	stored, diagnostics := kept.GetKey(ctx, keyClaimant)
	if json.Unmarshal(stored, &name) != nil {
		return "", diagnostics
	}

	return name, diagnostics
}

// ClaimantIn returns the name among claims of the resource with the private state: a random text that it keeps for
// life, and that is created if it has none yet.
func ClaimantIn[P private](ctx context.Context, kept P) (string, diag.Diagnostics) {
	var none P

	name, diagnostics := ClaimantOf(ctx, kept)
	if name != "" {
		return name, diagnostics
	}

	name = rand.Text()

	if kept != none {
		diagnostics.Append(kept.SetKey(ctx, keyClaimant, []byte(`"`+name+`"`))...)
	}

	return name, diagnostics
}
