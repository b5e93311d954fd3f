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

// confirmedAnnotation begins the names of the annotations that hold, as JSON, the upgrades
// that were confirmed last. They are no keys of the journal, as earlier versions of the
// provider take every key that they do not know for a machine with unfinished work.
// They drop the annotations when they write the journal, which is right as well: what
// they install, nobody has noted there.
const confirmedAnnotation = "talosupgrade.vitistack.io/confirmed-"

// confirmedParts is over how many annotations they are spread, by machine ID, so that
// closing one upgrade does not write all of them.
const confirmedParts = 16

// maxConfirmedBytes keeps the annotations below what an API server allows all
// annotations of an object to have together (256 KiB).
const maxConfirmedBytes = 200 << 10

// confirmedAlike are upgrades that differ in nothing but the machine, as most of a roll
// do: each version of etcd keeps all of the journal.
type confirmedAlike struct {
	// What they have in common is stored as an entry is, without a phase.
	journalEntry

	// Machines are by machine ID.
	Machines map[string]confirmedMachine `json:"machines"`
}

// confirmedMachine is what confirmed upgrades differ in; the fields are those of
// [journalEntry].
type confirmedMachine struct {
	Node            string    `json:"node"`
	BootID          string    `json:"bootID"`
	ConfirmedBootID string    `json:"confirmedBootID"`
	Written         time.Time `json:"written"`
}

// confirmedIn reads what was confirmed. What cannot be read is worth nothing, and keeps
// nobody from upgrading.
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

// recordConfirmed writes what was confirmed into the object; the oldest is left out
// where all of it is too much.
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

// confirmedPatch are the annotations that change with what was confirmed, nil for those
// that go.
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

// confirmedByPart are the confirmed upgrades that there is room for, the newest ones, by
// the annotation that they belong into and by machine ID.
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

// confirmedSize is about what a confirmed upgrade takes, in bytes, where no other one is
// like it.
func confirmedSize(entry cluster.Entry) int {
	const names = 400

	return names + len(entry.Node) + len(entry.BootID) + len(entry.ConfirmedBootID) + len(entry.Image) + len(entry.PreviousSchematic) +
		len(entry.Schematic) + len(entry.Extensions) + len(entry.Platform) + len(entry.PreviousEtcd) + len(entry.Run) + len(entry.Asked) + len(entry.Reason)
}

// encodeConfirmed is what an annotation says about the machines.
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
