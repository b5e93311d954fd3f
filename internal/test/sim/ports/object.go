// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// check compares resource versions the way the API server does: an object that
// exists cannot be created, and one that was written since cannot be updated.
func check(what, given, standing string, exists bool) error {
	if exists != (given != "") || exists && given != standing {
		return fmt.Errorf("unable to write %s: %w", what, cluster.ErrConflict)
	}

	return nil
}

func (c *Cluster) writeLease(by string, lease cluster.Lease) (cluster.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.putLease(by, lease)
}

// putLease writes the lease. The caller holds the mutex.
func (c *Cluster) putLease(by string, lease cluster.Lease) (cluster.Lease, error) {
	if err := check("the lease kube-system/talosupgrade", lease.ResourceVersion, c.lease.ResourceVersion, c.hasLease); err != nil {
		return cluster.Lease{}, err
	}

	action := "renew"

	switch {
	case lease.Holder == "":
		action = "release"
	case lease.Holder != c.lease.Holder:
		action = "acquire"
	}

	// Who writes the lease leaves the annotation of others as it is.
	lease.Suspended = c.lease.Suspended
	lease.ResourceVersion = c.next()
	c.lease, c.hasLease = lease, true
	c.record("", history.KindLease, map[string]string{"holder": lease.Holder, "action": action, "by": by})

	return lease, nil
}

// HoldLease writes the lease as another program does, whoever had it before.
// Renewing it is the caller's affair; an empty holder releases it.
func (c *Cluster) HoldLease(holder string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	lease := c.lease
	if lease.Holder != holder {
		lease.Acquired = c.now()
	}

	lease.Holder, lease.Renewed, lease.Duration = holder, c.now(), 30*time.Second

	_, err := c.putLease("other", lease)

	return err
}

// Suspend annotates the lease as a person does with kubectl; nil takes the annotation
// away. There must be a lease.
func (c *Cluster) Suspend(suspension *cluster.Suspension) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.lease.Suspended, c.lease.ResourceVersion = suspension, c.next()
}

// writeSuspension annotates the lease, or takes the annotation away, and makes a lease
// where there is none.
func (c *Cluster) writeSuspension(by string, lease cluster.Lease, reason *string) (cluster.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err := check("the lease kube-system/talosupgrade", lease.ResourceVersion, c.lease.ResourceVersion, c.hasLease); err != nil {
		return cluster.Lease{}, err
	}

	c.lease.Suspended = nil
	if reason != nil {
		c.lease.Suspended = &cluster.Suspension{Reason: *reason, By: by, Since: c.now()}
	}

	c.lease.ResourceVersion, c.hasLease = c.next(), true

	return c.lease, nil
}

// Lease is the lease as it stands.
func (c *Cluster) Lease() cluster.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.lease
}

// Annotations are those of the published object, by key without prefix.
func (c *Cluster) Annotations() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return maps.Clone(c.noted)
}

func (c *Cluster) annotate(client string, changes map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, key := range slices.Sorted(maps.Keys(changes)) {
		value := changes[key]
		if c.noted[key] == value {
			continue
		}

		if value == "" {
			delete(c.noted, key)
		} else {
			c.noted[key] = value
		}

		c.record("", history.KindAnnotation, map[string]string{
			"object": "ConfigMap/kube-system/talosupgrade", "key": key, "value": value, "by": "client", "client": client,
		})
	}
}

// watchInterval is how often a lease is looked at to see whether it moves.
const watchInterval = time.Second

// forget removes what is left of an upgrade, and says what stays and why.
func (c *Cluster) forget(ctx context.Context, client string) (kept []string, err error) {
	standing := c.Lease()

	for waited := time.Duration(0); standing.Holder != "" && waited < 30*time.Second; waited += watchInterval {
		if err := c.world.Clock().Sleep(ctx, watchInterval); err != nil {
			return nil, err
		}

		if current := c.Lease(); current.ResourceVersion != standing.ResourceVersion && current.Holder != "" {
			return []string{"lease kube-system/talosupgrade: " + current.Holder + " holds it and is at work"}, nil
		}
	}

	c.mu.Lock()
	if c.hasLease {
		c.lease, c.hasLease = cluster.Lease{}, false
		c.record("", history.KindLease, map[string]string{"holder": "", "action": "release", "by": "client"})
	}

	for _, open := range c.journal.Entries {
		if open.Open() {
			kept = append(kept, fmt.Sprintf("ConfigMap kube-system/talosupgrade-journal: the upgrade of node %s is unfinished", open.Node))
		}
	}

	if due := c.journal.Manifests; due != nil {
		kept = append(kept, "ConfigMap kube-system/talosupgrade-journal: the bootstrap manifests have not been synced since the roll of run "+due.Run)
	}

	if len(kept) == 0 {
		for key, closed := range c.journal.Entries {
			if err := c.recordEntry(client, key, closed, cluster.Entry{}, false); err != nil {
				c.mu.Unlock()

				return nil, err
			}
		}

		c.recordHolder("client", client, "")

		if err := c.recordSnapshot(client, c.journal.Snapshot, nil); err != nil {
			c.mu.Unlock()

			return nil, err
		}

		c.journal = cluster.Journal{}
	}
	c.mu.Unlock()

	gone := map[string]string{}
	for key := range c.Annotations() {
		gone[key] = ""
	}

	c.annotate(client, gone)

	return kept, nil
}
