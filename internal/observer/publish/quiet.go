// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// available is as [Options.Available].
type available func(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version)

// offer says which versions the halves could be upgraded to, as far as that is
// known, and returns them. A next version of Kubernetes is what the running Talos
// supports, which nobody can say while that is being upgraded.
func (a available) offer(changes map[string]*string, talos, kubernetes half) (nextTalos, nextKubernetes version.Version) {
	if a == nil {
		return nextTalos, nextKubernetes
	}

	running, components := talos.progress.Lowest, kubernetes.progress.Lowest
	if !running.IsZero() || !components.IsZero() {
		nextTalos, nextKubernetes = a(running, components)
	}

	nextTalos, nextKubernetes = newer(nextTalos, running), newer(nextKubernetes, components)

	if !running.IsZero() {
		changes[talos.available] = named(nextTalos)
	}

	switch {
	case moves(changes, talos):
		nextKubernetes = version.Version{}
		changes[kubernetes.available] = nil
	case !running.IsZero() && !components.IsZero():
		changes[kubernetes.available] = named(nextKubernetes)
	}

	return nextTalos, nextKubernetes
}

// known tells whether the next version of the half is known, if only that there is
// none.
func (a available) known(changes map[string]*string, h half) bool {
	_, said := changes[h.available]

	return a != nil && said && (h.available != KeyKubernetesAvailable || !moving(changes[KeyStatus]))
}

// newer is the version if it is one to upgrade to.
func newer(next, running version.Version) version.Version {
	if next.IsZero() || !running.Less(next) {
		return version.Version{}
	}

	return next
}

func named(v version.Version) *string {
	if v.IsZero() {
		return nil
	}

	return text(v.String())
}

// moves tells whether the half is said to be on its way.
func moves(changes map[string]*string, h half) bool { return moving(changes[h.status]) }

func moving(status *string) bool {
	return status != nil && (*status == StatusInProgress || *status == StatusRollingBack)
}

// quiet is a half in which nothing goes on: what is said of it depends on what the
// object said of it before the run.
type quiet struct {
	half half
}

// rests tells whether nothing goes on in the half as far as the event and the
// course of the run say.
func (h half) rests(event cluster.Event, so course) bool {
	if !h.known() || h.progress.Lowest.IsZero() {
		return false
	}

	if h.managed() {
		return so.idle && h.done()
	}

	switch event.Kind {
	case cluster.EventRunStarted, cluster.EventRunDone, cluster.EventRunFailed:
		return true
	default:
		return false
	}
}

// rest says that nothing goes on in the half; known tells whether its next version
// is.
func (w word) rest(h half, known bool) {
	w.rests[h.status] = quiet{half: h}

	h.say(w.changes, StatusIdle, h.standing(known))

	w.changes[h.current] = text(h.progress.Lowest.String())

	if !h.managed() {
		w.changes[h.count] = nil
	}
}

// standing is what there is to say of a half in which nothing goes on.
func (h half) standing(known bool) string {
	running := h.progress.Lowest

	switch {
	case !known:
		return fmt.Sprintf("Running %s", running)
	case h.next.IsZero():
		return fmt.Sprintf("Up to date: running %s", running)
	default:
		return fmt.Sprintf("Upgrade available: %s \u2192 %s", running, h.next)
	}
}

// resolve is what is to stand where the object said something else of the half
// before. An upgrade to the very version stays completed, and one that an earlier
// run has begun is completed now, unless it failed before it moved anything. A
// failure stands until somebody deals with that half.
func (q quiet) resolve(wanted map[string]*string, before map[string]string) {
	h, status := q.half, before[q.half.status]
	same := sameVersion(before[h.current], h.progress.Lowest)

	switch {
	case status == StatusCompleted && same, status == StatusFailed && !h.managed():
		delete(wanted, h.status)
		delete(wanted, h.message)
		delete(wanted, h.count)
	case status == StatusFailed && same:
	case h.managed() && slices.Contains([]string{StatusInProgress, StatusRollingBack, StatusPending, StatusBlocked, StatusFailed}, status):
		h.complete(wanted)
	}
}

// sameVersion tells whether the text is the version, in either spelling.
func sameVersion(text string, v version.Version) bool {
	found, err := version.Parse(strings.TrimSpace(text))

	return err == nil && found.Equal(v)
}

// resolved is what is to stand on an object that said that before the run.
func resolved(wanted map[string]*string, rests map[string]quiet, so course, before map[string]string) map[string]*string {
	made := maps.Clone(wanted)

	if !so.begun && occupied(before) {
		// A run that was refused for the sake of another upgrader has nothing to say
		// of what that one does.
		return map[string]*string{}
	}

	for _, r := range rests {
		r.resolve(made, before)
	}

	if len(kept(made, rests, before, StatusFailed)) > 0 && made[KeyFailedNodes] == nil {
		delete(made, KeyFailedNodes)
	}

	return made
}

// kept are the annotations of the halves that stay as they were before the run with
// one of the statuses: nothing is said of them. Of a half of which nothing is known
// that is of interest only where it failed.
func kept(wanted map[string]*string, rests map[string]quiet, before map[string]string, statuses ...string) map[string]*string {
	found := map[string]*string{}

	for _, keys := range [...][3]string{{KeyStatus, KeyMessage, KeyProgress}, {KeyKubernetesStatus, KeyKubernetesMessage, KeyKubernetesProgress}} {
		status := before[keys[0]]
		_, said := wanted[keys[0]]
		_, known := rests[keys[0]]

		if said || !slices.Contains(statuses, status) || !known && status != StatusFailed {
			continue
		}

		for _, key := range keys {
			if value, stands := before[key]; stands {
				found[key] = &value
			}
		}
	}

	return found
}

// occupied tells whether somebody else is upgrading the cluster, as far as the
// object tells.
func occupied(before map[string]string) bool {
	if before[keyTarget] != "" || before[keyKubernetesTarget] != "" {
		return true
	}

	if cluster.IsRun(before[keyHold]) || before[KeyLastUpdate] != "" {
		// It is what an earlier run of ours left behind.
		return false
	}

	busy := func(status string) bool { return status == StatusInProgress || status == StatusRollingBack }

	return busy(before[KeyStatus]) || busy(before[KeyKubernetesStatus])
}
