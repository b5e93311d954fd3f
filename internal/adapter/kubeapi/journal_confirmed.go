// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// confirmedAnnotation holds, as JSON, the upgrades that were confirmed last by machine ID,
// each stored as an entry is. It is no key of the journal, as earlier versions of the
// provider take every key that they do not know for a machine with unfinished work.
// They drop the annotation when they write the journal, which is right as well: what
// they install, nobody has noted there.
const confirmedAnnotation = "talosupgrade.vitistack.io/confirmed"

// maxConfirmedBytes keeps the annotation below what an API server allows all
// annotations of an object to have together (256 KiB).
const maxConfirmedBytes = 200 << 10

// confirmedIn reads what was confirmed. What cannot be read is worth nothing, and keeps
// nobody from upgrading.
func confirmedIn(object *corev1.ConfigMap) map[string]cluster.Entry {
	var stored map[string]journalEntry
	if json.Unmarshal([]byte(object.Annotations[confirmedAnnotation]), &stored) != nil {
		return nil
	}

	confirmed := map[string]cluster.Entry{}

	for key, one := range stored {
		if entry, err := one.entry(); err == nil && one.Phase == "" {
			confirmed[key] = entry
		}
	}

	return confirmed
}

// recordConfirmed writes what was confirmed into the object; the oldest is left out
// where all of it is too much.
func recordConfirmed(object *corev1.ConfigMap, confirmed map[string]cluster.Entry) error {
	newest := slices.SortedFunc(maps.Keys(confirmed), func(a, b string) int {
		return cmp.Or(confirmed[b].Written.Compare(confirmed[a].Written), cmp.Compare(a, b))
	})

	stored, size := map[string]json.RawMessage{}, 0

	for _, key := range newest {
		text, err := encodeEntry(confirmed[key])
		if err != nil {
			return err
		}

		if size += len(key) + len(text) + len(`"":,`); size > maxConfirmedBytes {
			break
		}

		stored[key] = json.RawMessage(text)
	}

	if len(stored) == 0 {
		return nil
	}

	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}

	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}

	object.Annotations[confirmedAnnotation] = string(text)

	return nil
}
