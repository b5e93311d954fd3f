// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"encoding/json"
	"errors"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// manifestsKey is one of the keys of the journal that are not named after a
// machine: the record that the bootstrap manifests have to be synced.
const manifestsKey = "manifests"

// journalManifests is that record as it is stored.
type journalManifests struct {
	// Run names the run that wrote it.
	Run string `json:"run"`
	// Written is RFC 3339 in UTC.
	Written time.Time `json:"written"`
}

// manifestsDue reads the record; nil where there is none.
func manifestsDue(object *corev1.ConfigMap) (*cluster.ManifestsDue, error) {
	text, ok := object.Data[manifestsKey]
	if !ok {
		return nil, nil
	}

	var stored journalManifests
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}

	if stored.Run == "" {
		return nil, errors.New("it names no run")
	}

	return &cluster.ManifestsDue{Run: stored.Run, Written: stored.Written}, nil
}

// recordManifests writes the record into the object.
func recordManifests(object *corev1.ConfigMap, due *cluster.ManifestsDue) error {
	if due == nil {
		return nil
	}

	text, err := json.Marshal(journalManifests{Run: due.Run, Written: due.Written.UTC()})
	if err != nil {
		return err
	}

	object.Data[manifestsKey] = string(text)

	return nil
}

// entriesOf are the entries of machines, by key.
func entriesOf(object *corev1.ConfigMap) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for key, text := range object.Data {
			switch key {
			case formatKey, holderKey, manifestsKey, snapshotKey:
			default:
				if !yield(key, text) {
					return
				}
			}
		}
	}
}
