// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Notes are sentences about what a person should know of the object, although
// everything that is to stand there may stand: that somebody else writes the same
// annotations, or that the object does not take everything. They are complete after
// [Publisher.Close].
func (p *Publisher) Notes() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	var notes []string

	if len(p.meddled) > 0 {
		var counts []string

		for _, key := range slices.Sorted(maps.Keys(p.meddled)) {
			counts = append(counts, key+" ("+times(p.meddled[key])+")")
		}

		notes = append(notes, fmt.Sprintf("Somebody else writes the annotations of %s too, and changed what was published there: %s. "+
			"Only one of them can be believed: have the other one stop, or publish to another object.", p.store, strings.Join(counts, ", ")))
	}

	if p.tight != nil {
		notes = append(notes, fmt.Sprintf("%s did not take all annotations (%v). Messages were cut to %d characters, and the failed nodes and the available versions left out. "+
			"All annotations of an object together may have 256 KiB: remove some that nobody needs.", p.store, p.tight, shortLimit))
	}

	if p.status != nil {
		notes = append(notes, p.status.notes()...)
	}

	return notes
}

func times(count int) string {
	if count == 1 {
		return "once"
	}

	return fmt.Sprintf("%d times", count)
}

// Announces implements [cluster.Announcer]: it tells whether the object lacks what
// an event of a run with nothing to do would have it say, and whether its status
// says something else. In what other words or of
// which newer version it speaks is no reason to announce anything: an operator that
// says it in its own way would be contradicted for ever.
func (p *Publisher) Announces(ctx context.Context, event cluster.Event) bool {
	if talos, kubernetes := halves(event); !p.options.Announce || !talos.settled() || !kubernetes.settled() {
		return false
	}

	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()

	found, err := p.store.Read(ctx)
	if err != nil {
		return false
	}

	so := course{begun: true, idle: true}
	said, _ := translate(event, so, p.options.Available)
	wanted := resolved(said.changes, said.rests, so, found)

	for key, value := range wanted {
		if news(key, value, found) {
			return true
		}
	}

	if p.status == nil || len(wanted) == 0 {
		return false
	}

	status, _, err := p.status.store.Status(ctx)

	return err == nil && statureOf(wanted, said.rests, found).contradicts(status)
}

// news tells whether the annotation would tell something that does not stand.
func news(key string, value *string, found map[string]string) bool {
	stands, exists := found[key]

	switch key {
	case KeyMessage, KeyKubernetesMessage:
		return !exists
	case KeyProgress, KeyKubernetesProgress:
		// Nodes come and go where nothing is upgraded.
		return exists != (value != nil)
	case KeyCurrent, KeyKubernetesCurrent:
		return !sameText(stands, *value)
	case KeyAvailable, KeyKubernetesAvailable:
		current := found[KeyCurrent]
		if key == KeyKubernetesAvailable {
			current = found[KeyKubernetesCurrent]
		}

		// An operator may take it away each time that nothing is asked of it.
		return exists && !newerText(stands, current)
	default:
		return !same(value, reading(found, key))
	}
}

// sameText tells whether two texts are one version, in either spelling.
func sameText(a, b string) bool {
	v, err := version.Parse(b)

	return err == nil && sameVersion(a, v)
}

// newerText tells whether a is a newer version than b.
func newerText(a, b string) bool {
	left, err := version.Parse(a)
	if err != nil {
		return false
	}

	right, err := version.Parse(b)

	return err == nil && right.Less(left)
}
