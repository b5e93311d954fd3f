// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/history"
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

	lease.ResourceVersion = c.next()
	c.lease, c.hasLease = lease, true
	c.record("", history.KindLease, map[string]string{"holder": lease.Holder, "action": action, "by": by})

	return lease, nil
}

// HoldLease writes the lease as another program does, whoever had it before.
// Renewing it is the caller's affair; an empty holder releases it.
func (c *Cluster) HoldLease(holder string) error {
	c.mu.Lock()
	lease := c.lease
	c.mu.Unlock()

	if lease.Holder != holder {
		lease.Acquired = c.now()
	}

	lease.Holder, lease.Renewed, lease.Duration = holder, c.now(), 30*time.Second

	_, err := c.writeLease("other", lease)

	return err
}

// Lease is the lease as it stands.
func (c *Cluster) Lease() cluster.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.lease
}

// Journal is the journal as it stands.
func (c *Cluster) Journal() cluster.Journal {
	c.mu.Lock()
	defer c.mu.Unlock()

	return cluster.Journal{Entries: maps.Clone(c.journal.Entries), ResourceVersion: c.journal.ResourceVersion}
}

// entry is an entry of the journal as the history shows it.
type entry struct {
	Node              string    `json:"node"`
	Phase             string    `json:"phase"`
	Attempt           int       `json:"attempt"`
	BootID            string    `json:"bootID"`
	Image             string    `json:"image"`
	Target            string    `json:"target"`
	Previous          string    `json:"previous"`
	PreviousSchematic string    `json:"previousSchematic,omitempty"`
	Run               string    `json:"run"`
	Cordoned          bool      `json:"cordoned"`
	Written           time.Time `json:"written"`
}

func encode(e cluster.Entry) (string, error) {
	text, err := json.Marshal(entry{
		Node: e.Node, Phase: string(e.Phase), Attempt: e.Attempt, BootID: e.BootID, Image: e.Image,
		Target: e.Target.String(), Previous: e.Previous.String(), PreviousSchematic: e.PreviousSchematic,
		Run: e.Run, Cordoned: e.Cordoned, Written: e.Written.UTC(),
	})

	return string(text), err
}

func (c *Cluster) writeJournal(client string, journal cluster.Journal) (cluster.Journal, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	standing := c.journal.ResourceVersion
	if err := check("the journal kube-system/talosupgrade-journal", journal.ResourceVersion, standing, standing != ""); err != nil {
		return cluster.Journal{}, err
	}

	keys := map[string]bool{}
	for key := range c.journal.Entries {
		keys[key] = true
	}

	for key := range journal.Entries {
		keys[key] = true
	}

	for _, key := range slices.Sorted(maps.Keys(keys)) {
		before, had := c.journal.Entries[key]
		after, has := journal.Entries[key]

		if had == has && before == after {
			continue
		}

		if err := c.recordEntry(client, key, before, after, has); err != nil {
			return cluster.Journal{}, err
		}
	}

	c.journal = cluster.Journal{Entries: maps.Clone(journal.Entries), ResourceVersion: c.next()}

	return cluster.Journal{Entries: journal.Entries, ResourceVersion: c.journal.ResourceVersion}, nil
}

func (c *Cluster) recordEntry(client, key string, before, after cluster.Entry, has bool) error {
	detail := map[string]string{"key": key, "by": "client", "client": client, "run": before.Run, "phase": "", "value": ""}
	name := before.Node

	if has {
		value, err := encode(after)
		if err != nil {
			return err
		}

		name = after.Node
		detail["phase"], detail["run"], detail["value"] = string(after.Phase), after.Run, value
	}

	c.record(name, history.KindJournal, detail)

	return nil
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

	if len(kept) == 0 {
		for key, closed := range c.journal.Entries {
			if err := c.recordEntry(client, key, closed, cluster.Entry{}, false); err != nil {
				c.mu.Unlock()

				return nil, err
			}
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
