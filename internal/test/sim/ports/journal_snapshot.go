// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

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
