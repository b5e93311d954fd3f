// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

// The fields of the status that are ours.
const (
	fieldPhase      = "phase"
	fieldConditions = "conditions"
)

// desiredStatus is what the status of the object should say; zero where nothing is to
// be said of it.
type desiredStatus struct {
	// phase is empty where nothing is to be said of it.
	phase string
	// onlyOurs tells that only a phase of ours, or none, is replaced: nothing was done
	// that would tell that the cluster is ready.
	onlyOurs bool
	// conditions are that of Talos and that of Kubernetes.
	conditions [2]condition
}

// condition is what one of the two conditions should say.
type condition struct {
	kind string
	// reason is empty where nothing is to be said.
	reason  string
	message string
	// ended tells that a condition may not stand that speaks of an upgrade which goes
	// on, has failed or waits.
	ended bool
	// kept tells that what it speaks of stays as it was before the run, so that it is
	// only replaced where it says otherwise.
	kept bool
}

// status says the same as the annotations, of which those of before stand where
// nothing is to be said of a product.
func (s statement) status(wanted annotations, before map[string]string) desiredStatus {
	var (
		made    desiredStatus
		reasons []string
	)

	untouched := s.untouched(wanted, before, protocol.StatusCompleted, protocol.StatusFailed)

	for i, p := range products(cluster.Event{}) {
		made.conditions[i] = p.conditionOf(wanted)
		reasons = append(reasons, made.conditions[i].reason)

		if untouched[p.statusKey] != nil {
			made.conditions[i] = p.conditionOf(untouched)
			made.conditions[i].kept = true
		}
	}

	talos, kubernetes := made.conditions[0], made.conditions[1]

	switch {
	case !talos.speaks() && !kubernetes.speaks():
	case slices.Contains(reasons, protocol.ReasonFailed):
		made.phase = protocol.PhaseUpgradeFailed
	case reasons[0] == protocol.ReasonInProgress:
		made.phase = protocol.PhaseUpgradingTalos
	case reasons[1] == protocol.ReasonInProgress:
		made.phase = protocol.PhaseUpgradingKubernetes
	case talos.reason == protocol.ReasonFailed, kubernetes.reason == protocol.ReasonFailed:
		made.phase, made.onlyOurs = protocol.PhaseUpgradeFailed, !slices.Contains(reasons, protocol.ReasonCompleted)
	case !slices.Contains(reasons, protocol.ReasonBlocked):
		made.phase, made.onlyOurs = protocol.PhaseReady, !slices.Contains(reasons, protocol.ReasonCompleted)
	}

	return made
}

// conditionOf says the same as the annotations of the product.
func (p product) conditionOf(said annotations) condition {
	made := condition{kind: p.condition}
	if said[p.statusKey] == nil {
		return made
	}

	switch *said[p.statusKey] {
	case protocol.StatusInProgress, protocol.StatusRollingBack, protocol.StatusPending:
		made.reason = protocol.ReasonInProgress
	case protocol.StatusCompleted:
		made.reason = protocol.ReasonCompleted
	case protocol.StatusFailed:
		made.reason = protocol.ReasonFailed
	case protocol.StatusBlocked:
		made.reason = protocol.ReasonBlocked
	default:
		made.ended = true

		return made
	}

	if message := said[p.messageKey]; message != nil {
		made.message = *message
	}

	if count := said[p.progressKey]; count != nil {
		if text, counted := strings.CutSuffix(made.message, " ("+*count+")"); counted {
			made.message = text + " (" + *count + " nodes completed)"
		}
	}

	return made
}

// changes are the fields of the status that are to be written where it is as given.
func (s desiredStatus) changes(status map[string]any, now time.Time) map[string]any {
	fields := map[string]any{}

	if stands := stringField(status, fieldPhase); s.phase != "" && s.phase != stands && (!s.onlyOurs || isOurPhase(stands)) {
		fields[fieldPhase] = s.phase
	}

	found, isList := status[fieldConditions].([]any)
	if status[fieldConditions] != nil && !isList {
		// They mean something else there.
		return fields
	}

	list := found
	for _, c := range s.conditions {
		list = c.placeIn(list, now)
	}

	if !slices.EqualFunc(list, found, sameCondition) {
		fields[fieldConditions] = list
	}

	return fields
}

// contradicts tells whether the status says what is not so. What it says in other
// words, or does not say, is no contradiction.
func (s desiredStatus) contradicts(status map[string]any) bool {
	if stands := stringField(status, fieldPhase); s.phase != "" && stands != "" && s.phase != stands && isOurPhase(stands) {
		return true
	}

	list, _ := status[fieldConditions].([]any)

	return slices.ContainsFunc(list, func(entry any) bool {
		return slices.ContainsFunc(s.conditions[:], func(c condition) bool { return c.isOf(entry) && c.contradicts(entry) })
	})
}

func isOurPhase(phase string) bool {
	return slices.Contains([]string{"", protocol.PhaseReady, protocol.PhaseUpgradingTalos, protocol.PhaseUpgradingKubernetes, protocol.PhaseUpgradeFailed}, phase)
}

// speaks tells whether something is to be said of the product.
func (c condition) speaks() bool { return c.reason != "" || c.ended }

// isOf tells whether the entry of a list is the condition.
func (c condition) isOf(entry any) bool { return stringField(entry, "type") == c.kind }

// contradicts tells whether the entry says by its status, or by a reason of ours,
// what is not so.
func (c condition) contradicts(entry any) bool {
	if !c.speaks() {
		return false
	}

	status, reason := stringField(entry, "status"), stringField(entry, "reason")
	if (status == "True") != (c.reason == protocol.ReasonInProgress) {
		return true
	}

	ours := []string{protocol.ReasonInProgress, protocol.ReasonFailed, protocol.ReasonBlocked}
	if c.reason != "" {
		ours = append(ours, protocol.ReasonCompleted)
	}

	return reason != c.reason && slices.Contains(ours, reason)
}

// placeIn is the list with the condition as it should be in it. Conditions of others
// stay as and where they are.
func (c condition) placeIn(list []any, now time.Time) []any {
	at := slices.IndexFunc(list, c.isOf)

	switch {
	case c.kept && (at < 0 || !c.contradicts(list[at])):
		return list
	case c.reason != "" && at < 0:
		return append(slices.Clone(list), c.entry(nil, now))
	case c.reason != "":
		list = slices.Clone(list)
		list[at] = c.entry(list[at], now)

		return list
	case c.ended && at >= 0 && (c.contradicts(list[at]) || stringField(list[at], "reason") != protocol.ReasonCompleted):
		return slices.Delete(slices.Clone(list), at, at+1)
	default:
		return list
	}
}

// entry is the condition as it is written in place of the one that stands. It has
// moved only where its status is another one.
func (c condition) entry(stands any, now time.Time) map[string]any {
	status := "False"
	if c.reason == protocol.ReasonInProgress {
		status = "True"
	}

	moved := stringField(stands, "lastTransitionTime")
	if moved == "" || stringField(stands, "status") != status {
		moved = now.UTC().Format(time.RFC3339)
	}

	fields, _ := stands.(map[string]any)
	made := maps.Collect(maps.All(fields))
	made["type"], made["status"], made["reason"], made["message"], made["lastTransitionTime"] = c.kind, status, c.reason, c.message, moved

	return made
}

func stringField(object any, name string) string {
	fields, _ := object.(map[string]any)
	value, _ := fields[name].(string)

	return value
}

// sameCondition tells whether two entries say the same as far as it is ours to say.
func sameCondition(a, b any) bool {
	return !slices.ContainsFunc([]string{"type", "status", "reason", "message", "lastTransitionTime"}, func(name string) bool {
		return stringField(a, name) != stringField(b, name)
	})
}

// statusAttempts is how often a status is read and written anew, at once, when
// somebody else writes the object in between or refuses a part of it.
const statusAttempts = 8

// errNoField is a field that the API server took and left out.
var errNoField = errors.New("unknown field: it was left out")

// statusKeeper keeps the status of an object up to date. It works on its own time:
// its failures hold no annotation up.
type statusKeeper struct {
	store StatusStore

	mutex sync.Mutex
	// none tells that the kind has no status that is ours to write.
	none bool
	// refused are the fields that it does not have, and why.
	refused map[string]error
	// apart tells that fields are written one at a time.
	apart bool
	// standing is what the status is known to say, at the time it was seen.
	standing desiredStatus
	seen     time.Time
	// retry is when the next attempt is due after one that failed.
	retry   time.Time
	backoff time.Duration
}

func newStatusKeeper(store StatusStore) *statusKeeper {
	return &statusKeeper{store: store, refused: map[string]error{}}
}

// keep makes one attempt to have the status say what it should, if it is not known
// to say so. With every heartbeat it looks whether it still does.
func (k *statusKeeper) keep(ctx context.Context, desired func() (wanted desiredStatus, running bool)) {
	wanted, running := desired()

	k.mutex.Lock()
	current := wanted == k.standing && (!running || time.Since(k.seen) < heartbeat)
	idle := k.none || current || time.Until(k.retry) > 0

	if current {
		k.retry, k.backoff = time.Time{}, 0
	}
	k.mutex.Unlock()

	if idle {
		return
	}

	err := k.write(ctx, desired)

	k.mutex.Lock()
	defer k.mutex.Unlock()

	if err == nil {
		k.retry, k.backoff = time.Time{}, 0

		return
	}

	k.standing = desiredStatus{}
	k.backoff = longer(k.backoff)
	k.retry = time.Now().Add(k.backoff)
}

// settle makes one attempt to have the status say what it should, and to see it.
func (k *statusKeeper) settle(ctx context.Context, desired func() (wanted desiredStatus, running bool)) error {
	k.mutex.Lock()
	none := k.none
	k.retry, k.backoff = time.Time{}, 0
	k.mutex.Unlock()

	if none {
		return nil
	}

	return k.write(ctx, desired)
}

// until is the time until the next attempt after one that failed, 0 when none is
// due.
func (k *statusKeeper) until() time.Duration {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	if k.retry.IsZero() {
		return 0
	}

	return max(time.Until(k.retry), time.Nanosecond)
}

// write reads the status and writes what is different in it, until nothing is.
func (k *statusKeeper) write(ctx context.Context, desired func() (wanted desiredStatus, running bool)) error {
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()

	for range statusAttempts {
		// Another run may have taken over.
		wanted, _ := desired()
		if wanted == (desiredStatus{}) {
			return nil
		}

		status, version, err := k.store.Status(ctx)
		if errors.Is(err, cluster.ErrUnsupported) {
			k.giveUp()

			return nil
		}

		if err != nil {
			return err
		}

		fields := k.fields(wanted, status)
		if len(fields) == 0 {
			k.see(wanted)

			return nil
		}

		stands, err := k.store.PatchStatus(ctx, version, fields)

		switch {
		case err == nil:
			k.check(fields, stands)
		case errors.Is(err, cluster.ErrRefused):
			k.refuse(fields, err)
		case !errors.Is(err, cluster.ErrConflict):
			return err
		}
	}

	return cluster.ErrConflict
}

func (k *statusKeeper) giveUp() {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	k.none = true
}

func (k *statusKeeper) see(wanted desiredStatus) {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	k.standing, k.seen = wanted, time.Now()
}

// fields are those to write next.
func (k *statusKeeper) fields(wanted desiredStatus, status map[string]any) map[string]any {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	fields := wanted.changes(status, time.Now())
	maps.DeleteFunc(fields, func(name string, _ any) bool { return k.refused[name] != nil })

	if k.apart && len(fields) > 1 {
		delete(fields, fieldConditions)
	}

	return fields
}

// check takes note of fields that are not there although they were written.
func (k *statusKeeper) check(fields, stands map[string]any) {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	for name := range fields {
		list, isList := fields[name].([]any)
		if stands[name] == nil && (!isList || len(list) > 0) {
			k.refused[name] = errNoField
		}
	}
}

// refuse takes note of what the kind does not have. Of several fields it may be one.
func (k *statusKeeper) refuse(fields map[string]any, err error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	if len(fields) > 1 {
		k.apart = true

		return
	}

	for name := range fields {
		k.refused[name] = err
	}
}

// notes say which fields a kind has and does not take. That it has none is nothing
// to speak of.
func (k *statusKeeper) notes() []string {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	var notes []string

	for _, name := range slices.Sorted(maps.Keys(k.refused)) {
		if err := k.refused[name]; !strings.Contains(err.Error(), "unknown field") {
			notes = append(notes, fmt.Sprintf("status.%s of %s could not be kept up to date, the annotations are not concerned: %v", name, k.store, err))
		}
	}

	return notes
}
