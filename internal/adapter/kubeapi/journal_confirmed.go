// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// confirmedAnnotation is the prefix of the annotations that hold, as JSON, the upgrades that were confirmed last.
// They are not keys of the journal, because earlier versions of the provider take every unknown key for a machine
// with unfinished work. Those versions drop the annotations when they write the journal, which is correct, because
// the annotations do not record what those versions install.
const confirmedAnnotation = "talosupgrade.vitistack.io/confirmed-"

// confirmedParts is how many annotations the upgrades are spread over, by machine ID, so that closing one upgrade
// does not write all of them.
const confirmedParts = 16

// maxConfirmedBytes keeps the annotations below what an API server allows for all annotations of an object together
// (256 KiB).
const maxConfirmedBytes = 200 << 10

// confirmedAlike are upgrades that differ only in the machine, as most upgrades of a roll do. They are stored
// together because etcd keeps the whole journal for each of its versions.
type confirmedAlike struct {
	// The common part is stored like an entry, without a phase.
	journalEntry

	// Machines are keyed by machine ID.
	Machines map[string]confirmedMachine `json:"machines"`
}

// confirmedMachine is the part in which confirmed upgrades differ; the fields are those of [journalEntry].
type confirmedMachine struct {
	Node            string    `json:"node"`
	BootID          string    `json:"bootID"`
	ConfirmedBootID string    `json:"confirmedBootID"`
	Written         time.Time `json:"written"`
}

// confirmedIn reads the confirmed upgrades. What cannot be read is ignored, so that it does not block an upgrade.
func confirmedIn(object *corev1.ConfigMap) map[string]cluster.Entry {
	confirmed := map[string]cluster.Entry{}

	for name, text := range object.Annotations {
		var stored []confirmedAlike
		if !strings.HasPrefix(name, confirmedAnnotation) || json.Unmarshal([]byte(text), &stored) != nil {
			continue
		}

		for _, alike := range stored {
			for key, machine := range alike.Machines {
				one := alike.journalEntry
				one.Node, one.BootID, one.ConfirmedBootID, one.Written = machine.Node, machine.BootID, machine.ConfirmedBootID, machine.Written

				if entry, err := one.entry(); err == nil && one.Phase == "" {
					confirmed[key] = entry
				}
			}
		}
	}

	return confirmed
}

// recordConfirmed writes the confirmed upgrades into the object. If they are too large, the oldest are left out.
func recordConfirmed(object *corev1.ConfigMap, confirmed map[string]cluster.Entry) error {
	for name, part := range confirmedByPart(confirmed) {
		text, err := encodeConfirmed(part)
		if err != nil {
			return err
		}

		if object.Annotations == nil {
			object.Annotations = map[string]string{}
		}

		object.Annotations[name] = text
	}

	return nil
}

// confirmedPatch returns the annotations that change with the confirmed upgrades; nil for those to remove.
func confirmedPatch(before, after map[string]cluster.Entry) (map[string]*string, error) {
	changes := map[string]*string{}
	if maps.Equal(before, after) {
		return changes, nil
	}

	stands := confirmedByPart(before)
	wanted := confirmedByPart(after)

	for name := range stands {
		if wanted[name] == nil {
			changes[name] = nil
		}
	}

	for name, part := range wanted {
		if maps.Equal(stands[name], part) {
			continue
		}

		text, err := encodeConfirmed(part)
		if err != nil {
			return nil, err
		}

		changes[name] = &text
	}

	return changes, nil
}

// confirmedByPart returns the newest confirmed upgrades that fit into maxConfirmedBytes, by the name of their
// annotation and by machine ID.
func confirmedByPart(confirmed map[string]cluster.Entry) map[string]map[string]cluster.Entry {
	newest := slices.SortedFunc(maps.Keys(confirmed), func(a, b string) int {
		return cmp.Or(confirmed[b].Written.Compare(confirmed[a].Written), cmp.Compare(a, b))
	})

	parts, size := map[string]map[string]cluster.Entry{}, 0

	for _, key := range newest {
		if size += len(key) + confirmedSize(confirmed[key]); size > maxConfirmedBytes {
			break
		}

		sum := fnv.New32a()
		_, _ = sum.Write([]byte(key))

		name := fmt.Sprintf("%s%x", confirmedAnnotation, sum.Sum32()%confirmedParts)
		if parts[name] == nil {
			parts[name] = map[string]cluster.Entry{}
		}

		parts[name][key] = confirmed[key]
	}

	return parts
}

// confirmedSize estimates how many bytes a confirmed upgrade takes if no other one is like it.
func confirmedSize(entry cluster.Entry) int {
	const names = 400

	return names + len(entry.Node) + len(entry.BootID) + len(entry.ConfirmedBootID) + len(entry.Image) + len(entry.PreviousSchematic) +
		len(entry.Schematic) + len(entry.Extensions) + len(entry.Platform) + len(entry.PreviousEtcd) + len(entry.Run) + len(entry.Asked) + len(entry.Reason)
}

// encodeConfirmed returns the value of an annotation for the given machines.
func encodeConfirmed(confirmed map[string]cluster.Entry) (string, error) {
	machines := map[journalEntry]map[string]confirmedMachine{}

	for key, entry := range confirmed {
		stored := storedEntry(entry)
		machine := confirmedMachine{Node: stored.Node, BootID: stored.BootID, ConfirmedBootID: stored.ConfirmedBootID, Written: stored.Written}
		stored.Node, stored.BootID, stored.ConfirmedBootID, stored.Written = "", "", "", time.Time{}

		if machines[stored] == nil {
			machines[stored] = map[string]confirmedMachine{}
		}

		machines[stored][key] = machine
	}

	alike := make([]confirmedAlike, 0, len(machines))
	for common, of := range machines {
		alike = append(alike, confirmedAlike{journalEntry: common, Machines: of})
	}

	text, err := json.Marshal(alike)

	return string(text), err
}
