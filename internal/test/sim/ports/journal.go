// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// Journal is the journal as it stands.
func (c *Cluster) Journal() cluster.Journal {
	c.mu.Lock()
	defer c.mu.Unlock()

	return copyJournal(c.journal)
}

func copyJournal(journal cluster.Journal) cluster.Journal {
	another := cluster.Journal{
		Holder: journal.Holder, Entries: maps.Clone(journal.Entries), Manifests: copied(journal.Manifests), Snapshot: copied(journal.Snapshot),
		Confirmed: maps.Clone(journal.Confirmed), ResourceVersion: journal.ResourceVersion,
	}

	if kept := another.Snapshot; kept != nil {
		// Of the target, only what tells one roll from another is written down.
		kept.Target = cluster.Target{
			Talos: kept.Target.Talos, Kubernetes: kept.Target.Kubernetes, InstallerImage: kept.Target.InstallerImage,
		}
	}

	return another
}

// copied is another one of the same value; nil of nil.
func copied[T any](original *T) *T {
	if original == nil {
		return nil
	}

	another := *original

	return &another
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
	Platform          string    `json:"platform,omitempty"`
	Run               string    `json:"run"`
	Cordoned          bool      `json:"cordoned"`
	Written           time.Time `json:"written"`
}

func encode(e cluster.Entry) (string, error) {
	text, err := json.Marshal(entry{
		Node: e.Node, Phase: string(e.Phase), Attempt: e.Attempt, BootID: e.BootID, Image: e.Image,
		Target: e.Target.String(), Previous: e.Previous.String(), PreviousSchematic: e.PreviousSchematic, Platform: e.Platform,
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

	c.recordHolder("client", client, journal.Holder)

	if err := c.recordDue(client, c.journal.Manifests, journal.Manifests); err != nil {
		return cluster.Journal{}, err
	}

	journal = copyJournal(journal)
	if err := c.recordSnapshot(client, c.journal.Snapshot, journal.Snapshot); err != nil {
		return cluster.Journal{}, err
	}

	c.journal = journal
	c.journal.ResourceVersion = c.next()

	return copyJournal(c.journal), nil
}

// recordHolder adds to the history whose name the journal carries from now on.
func (c *Cluster) recordHolder(by, client, holder string) {
	if holder != c.journal.Holder {
		c.record("", history.KindJournal, map[string]string{"key": "holder", "by": by, "client": client, "run": "", "phase": "", "value": holder})
	}
}

// recordDue adds to the history that a sync of the manifests became due, or
// that it is done.
func (c *Cluster) recordDue(client string, before, after *cluster.ManifestsDue) error {
	var run string

	switch {
	case before == nil && after == nil, before != nil && after != nil && *before == *after:
		return nil
	case before != nil:
		run = before.Run
	}

	detail := map[string]string{"key": "manifests", "by": "client", "client": client, "run": run, "phase": "", "value": ""}

	if after != nil {
		value, err := json.Marshal(due{Run: after.Run, Written: after.Written.UTC()})
		if err != nil {
			return fmt.Errorf("the journal: %w", err)
		}

		detail["phase"], detail["run"], detail["value"] = "due", after.Run, string(value)
	}

	c.record("", history.KindJournal, detail)

	return nil
}

// due is the record of a sync that has to follow, as the history shows it.
type due struct {
	Run     string    `json:"run"`
	Written time.Time `json:"written"`
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

// keySnapshot is where the journal remembers the last snapshot of etcd.
const keySnapshot = "etcd-snapshot"

// taken is the record of a snapshot as the history shows it.
type taken struct {
	Path           string    `json:"path"`
	Size           int64     `json:"size"`
	SHA256         string    `json:"sha256"`
	Taken          time.Time `json:"taken"`
	Talos          string    `json:"talos,omitempty"`
	Kubernetes     string    `json:"kubernetes,omitempty"`
	InstallerImage string    `json:"installerImage,omitempty"`
	Run            string    `json:"run"`
	Closed         bool      `json:"closed,omitempty"`
}

// recordSnapshot adds to the history that the journal remembers another
// snapshot, or none any more. It is no unfinished work, so it has no phase.
func (c *Cluster) recordSnapshot(client string, before, after *cluster.EtcdSnapshot) error {
	var run string

	switch {
	case before == nil && after == nil, before != nil && after != nil && *before == *after:
		return nil
	case before != nil:
		run = before.Run
	}

	detail := map[string]string{"key": keySnapshot, "by": "client", "client": client, "run": run, "phase": "", "value": ""}

	if after != nil {
		remembered := taken{
			Path: after.Path, Size: after.Size, SHA256: after.SHA256, Taken: after.Taken.UTC(), Run: after.Run,
			InstallerImage: after.Target.InstallerImage, Closed: after.Closed,
		}
		if !after.Target.Talos.IsZero() {
			remembered.Talos = after.Target.Talos.String()
		}

		if !after.Target.Kubernetes.IsZero() {
			remembered.Kubernetes = after.Target.Kubernetes.String()
		}

		value, err := json.Marshal(remembered)
		if err != nil {
			return fmt.Errorf("the journal: %w", err)
		}

		detail["run"], detail["value"] = after.Run, string(value)
	}

	c.record("", history.KindJournal, detail)

	return nil
}
