// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// snapshotKey is one of the keys of the journal that are not named after a
// machine: the record of the last snapshot of etcd.
const snapshotKey = "etcd-snapshot"

// journalSnapshot is that record as it is stored. The names are part of what a
// newer version must be able to read.
type journalSnapshot struct {
	// Path is where the runner that took it has saved it.
	Path string `json:"path"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// SHA256 is in lower-case hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Taken is RFC 3339 in UTC.
	Taken time.Time `json:"taken"`
	// Talos and Kubernetes are the versions that the cluster was to be brought to,
	// without "v"; absent where that half was not managed.
	Talos      string `json:"talos,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	// InstallerImage is the installer image that was asked for, without tag; absent
	// where each node keeps its own.
	InstallerImage string `json:"installerImage,omitempty"`
	// Run names the run that took it.
	Run string `json:"run"`
	// Closed tells that the cluster got there since.
	Closed bool `json:"closed,omitempty"`
}

// snapshotTaken reads the record; nil where there is none.
func snapshotTaken(object *corev1.ConfigMap) (*cluster.EtcdSnapshot, error) {
	text, ok := object.Data[snapshotKey]
	if !ok {
		return nil, nil
	}

	var stored journalSnapshot
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}

	if stored.Path == "" {
		return nil, errors.New("it names no path")
	}

	if sum, err := hex.DecodeString(stored.SHA256); err != nil || len(sum) != 32 {
		return nil, fmt.Errorf("%q is no SHA-256 checksum", stored.SHA256)
	}

	taken := &cluster.EtcdSnapshot{
		Path: stored.Path, Size: stored.Size, SHA256: stored.SHA256, Taken: stored.Taken, Run: stored.Run,
		Target: cluster.Target{InstallerImage: stored.InstallerImage}, Closed: stored.Closed,
	}

	var err error

	if taken.Target.Talos, err = optionalVersion(stored.Talos); err != nil {
		return nil, fmt.Errorf("talos: %w", err)
	}

	if taken.Target.Kubernetes, err = optionalVersion(stored.Kubernetes); err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}

	return taken, nil
}

// recordSnapshot writes the record into the object.
func recordSnapshot(object *corev1.ConfigMap, taken *cluster.EtcdSnapshot) error {
	if taken == nil {
		return nil
	}

	text, err := json.Marshal(journalSnapshot{
		Path: taken.Path, Size: taken.Size, SHA256: taken.SHA256, Taken: taken.Taken.UTC(), Run: taken.Run,
		Talos: storedVersion(taken.Target.Talos), Kubernetes: storedVersion(taken.Target.Kubernetes),
		InstallerImage: taken.Target.InstallerImage, Closed: taken.Closed,
	})
	if err != nil {
		return err
	}

	object.Data[snapshotKey] = string(text)

	return nil
}

func storedVersion(of version.Version) string {
	if of.IsZero() {
		return ""
	}

	return of.String()
}
