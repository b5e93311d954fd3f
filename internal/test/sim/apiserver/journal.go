// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"encoding/json"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The keys of the journal that are not named after a machine.
const (
	keyHolder    = "holder"
	keyManifests = "manifests"
	keySnapshot  = "etcd-snapshot"
	keyFormat    = "format"
	// format is the one of journals whose entries are named after machine IDs.
	format = 2
	// phaseUnreadable is what the cluster knows about an entry that cannot be
	// read. The ConfigMap has it as it was written.
	phaseUnreadable cluster.Phase = "unreadable"
)

// storedEntry is an entry as clients write it.
type storedEntry struct {
	Node              string        `json:"node"`
	Phase             cluster.Phase `json:"phase"`
	Attempt           int           `json:"attempt"`
	BootID            string        `json:"bootID"`
	Image             string        `json:"image"`
	TargetText        string        `json:"target"`
	PreviousText      string        `json:"previous,omitempty"`
	PreviousSchematic string        `json:"previousSchematic,omitempty"`
	PreviousEtcd      string        `json:"previousEtcd,omitempty"`
	Schematic         string        `json:"schematic,omitempty"`
	Told              bool          `json:"told,omitempty"`
	Asked             string        `json:"asked,omitempty"`
	Reason            string        `json:"reason,omitempty"`
	Retry             bool          `json:"retry,omitempty"`
	ConfirmedBootID   string        `json:"confirmedBootID,omitempty"`
	Run               string        `json:"run"`
	Cordoned          bool          `json:"cordoned"`
	Written           time.Time     `json:"written"`
}

type storedManifests struct {
	Run     string    `json:"run"`
	Written time.Time `json:"written"`
}

type storedSnapshot struct {
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

// journalData is the journal as a ConfigMap holds it.
func journalData(journal cluster.Journal) (map[string]string, error) {
	stored := map[string]any{keyFormat: format}

	for key, entry := range journal.Entries {
		stored[key] = storedEntry{
			Node: entry.Node, Phase: entry.Phase, Attempt: entry.Attempt, BootID: entry.BootID, Image: entry.Image,
			TargetText: text(entry.Target), PreviousText: text(entry.Previous),
			PreviousSchematic: entry.PreviousSchematic, PreviousEtcd: entry.PreviousEtcd,
			Schematic: entry.Schematic, Told: entry.Told,
			Asked: entry.Asked, Reason: entry.Reason, Retry: entry.Retry, ConfirmedBootID: entry.ConfirmedBootID,
			Run: entry.Run, Cordoned: entry.Cordoned, Written: entry.Written.UTC(),
		}
	}

	if due := journal.Manifests; due != nil {
		stored[keyManifests] = storedManifests{Run: due.Run, Written: due.Written.UTC()}
	}

	if taken := journal.Snapshot; taken != nil {
		stored[keySnapshot] = storedSnapshot{
			Path: taken.Path, Size: taken.Size, SHA256: taken.SHA256, Taken: taken.Taken.UTC(),
			Talos: text(taken.Target.Talos), Kubernetes: text(taken.Target.Kubernetes), InstallerImage: taken.Target.InstallerImage,
			Run: taken.Run, Closed: taken.Closed,
		}
	}

	data := make(map[string]string, len(stored))

	for key, value := range stored {
		written, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}

		data[key] = string(written)
	}

	if journal.Holder != "" {
		data[keyHolder] = journal.Holder
	}

	return data, nil
}

// journalFrom reads what clients write. The API server takes anything, so what
// cannot be read is no error.
func journalFrom(data map[string]string) cluster.Journal {
	journal := cluster.Journal{Entries: map[string]cluster.Entry{}}

	for key, value := range data {
		switch key {
		case keyHolder:
			journal.Holder = value
		case keyManifests:
			var stored storedManifests
			if json.Unmarshal([]byte(value), &stored) == nil {
				journal.Manifests = &cluster.ManifestsDue{Run: stored.Run, Written: stored.Written}
			}
		case keySnapshot:
			var stored storedSnapshot
			if json.Unmarshal([]byte(value), &stored) == nil {
				journal.Snapshot = &cluster.EtcdSnapshot{
					Path: stored.Path, Size: stored.Size, SHA256: stored.SHA256, Taken: stored.Taken, Run: stored.Run, Closed: stored.Closed,
					Target: cluster.Target{
						Talos: parsed(stored.Talos), Kubernetes: parsed(stored.Kubernetes), InstallerImage: stored.InstallerImage,
					},
				}
			}
		case keyFormat:
		default:
			journal.Entries[key] = entryFrom(value)
		}
	}

	return journal
}

func entryFrom(value string) cluster.Entry {
	var stored storedEntry
	if json.Unmarshal([]byte(value), &stored) != nil {
		return cluster.Entry{Phase: phaseUnreadable}
	}

	return cluster.Entry{
		Node: stored.Node, Phase: stored.Phase, Attempt: stored.Attempt, BootID: stored.BootID, Image: stored.Image,
		Target: parsed(stored.TargetText), Previous: parsed(stored.PreviousText),
		PreviousSchematic: stored.PreviousSchematic, PreviousEtcd: stored.PreviousEtcd,
		Schematic: stored.Schematic, Told: stored.Told,
		Asked: stored.Asked, Reason: stored.Reason, Retry: stored.Retry, ConfirmedBootID: stored.ConfirmedBootID,
		Run: stored.Run, Cordoned: stored.Cordoned, Written: stored.Written,
	}
}

// text is a version as it is stored; empty for none.
func text(of version.Version) string {
	if of.IsZero() {
		return ""
	}

	return of.String()
}

// parsed is a stored version, zero for what is none.
func parsed(stored string) version.Version {
	read, err := version.Parse(stored)
	if err != nil {
		return version.Version{}
	}

	return read
}
