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

// desiredStatus is what the status of the object should say.
type desiredStatus struct {
	// phase is empty where nothing is to be said of it.
	phase string
	// gentle tells that only a phase of ours, or none, is replaced: nothing was done
	// that would tell that the cluster is ready.
	gentle bool
	// talos and kubernetes are the two conditions.
	talos, kubernetes condition
}

// condition is one of the two conditions.
type condition struct {
	// kind is its type.
	kind string
	// reason is empty where nothing is to be said.
	reason  string
	message string
	// over tells that a condition may not stand that speaks of an upgrade which goes
	// on, has failed or waits.
	over bool
	// kept tells that what it speaks of stays as it was before the run, so that it is
	// only replaced where it says otherwise.
	kept bool
}

// desiredStatus is what the status should say now, and whether the run goes on.
func (p *Publisher) desiredStatus() (wanted desiredStatus, running bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	effective := p.effective()
	if len(effective) == 0 {
		return desiredStatus{}, false
	}

	return desiredStatusOf(effective, p.rests, p.before), p.course.running
}

// desiredStatusOf says the same as the annotations, of which those of before stand where
// nothing is to be said of a product.
func desiredStatusOf(annotations map[string]*string, rests map[string]idleProduct, before map[string]string) desiredStatus {
	old := kept(annotations, rests, before, protocol.StatusCompleted, protocol.StatusFailed)
	made := desiredStatus{
		talos:      conditionOf(protocol.ConditionTalos, annotations[protocol.KeyTalosStatus], annotations[protocol.KeyTalosMessage], annotations[protocol.KeyTalosProgress]),
		kubernetes: conditionOf(protocol.ConditionKubernetes, annotations[protocol.KeyKubernetesStatus], annotations[protocol.KeyKubernetesMessage], annotations[protocol.KeyKubernetesProgress]),
	}

	reasons := []string{made.talos.reason, made.kubernetes.reason}

	if old[protocol.KeyTalosStatus] != nil {
		made.talos = conditionOf(protocol.ConditionTalos, old[protocol.KeyTalosStatus], old[protocol.KeyTalosMessage], old[protocol.KeyTalosProgress])
		made.talos.kept = true
	}

	if old[protocol.KeyKubernetesStatus] != nil {
		made.kubernetes = conditionOf(protocol.ConditionKubernetes, old[protocol.KeyKubernetesStatus], old[protocol.KeyKubernetesMessage], old[protocol.KeyKubernetesProgress])
		made.kubernetes.kept = true
	}

	switch {
	case !made.talos.told() && !made.kubernetes.told():
	case slices.Contains(reasons, protocol.ReasonFailed):
		made.phase = protocol.PhaseUpgradeFailed
	case reasons[0] == protocol.ReasonInProgress:
		made.phase = protocol.PhaseUpgradingTalos
	case reasons[1] == protocol.ReasonInProgress:
		made.phase = protocol.PhaseUpgradingKubernetes
	case made.talos.reason == protocol.ReasonFailed, made.kubernetes.reason == protocol.ReasonFailed:
		made.phase, made.gentle = protocol.PhaseUpgradeFailed, !slices.Contains(reasons, protocol.ReasonCompleted)
	case !slices.Contains(reasons, protocol.ReasonBlocked):
		made.phase, made.gentle = protocol.PhaseReady, !slices.Contains(reasons, protocol.ReasonCompleted)
	}

	return made
}

// conditionOf says the same as the annotations of a product.
func conditionOf(kind string, status, message, progress *string) condition {
	made := condition{kind: kind}
	if status == nil {
		return made
	}

	switch *status {
	case protocol.StatusInProgress, protocol.StatusRollingBack, protocol.StatusPending:
		made.reason = protocol.ReasonInProgress
	case protocol.StatusCompleted:
		made.reason = protocol.ReasonCompleted
	case protocol.StatusFailed:
		made.reason = protocol.ReasonFailed
	case protocol.StatusBlocked:
		made.reason = protocol.ReasonBlocked
	default:
		made.over = true

		return made
	}

	if message != nil {
		made.message = *message
	}

	if progress != nil {
		if before, counted := strings.CutSuffix(made.message, " ("+*progress+")"); counted {
			made.message = before + " (" + *progress + " nodes completed)"
		}
	}

	return made
}

// changes are the fields of the status that are to be written where it is as given.
func (s desiredStatus) changes(status map[string]any, now time.Time) map[string]any {
	fields := map[string]any{}

	standing, _ := status[fieldPhase].(string)
	if s.phase != "" && s.phase != standing && (!s.gentle || ourPhase(standing)) {
		fields[fieldPhase] = s.phase
	}

	found, isList := status[fieldConditions].([]any)
	if status[fieldConditions] != nil && !isList {
		// They mean something else there.
		return fields
	}

	list := s.kubernetes.placed(s.talos.placed(found, now), now)
	if !slices.EqualFunc(list, found, sameCondition) {
		fields[fieldConditions] = list
	}

	return fields
}

// contradicts tells whether the status says what is not so. What it says in other
// words, or does not say, is no contradiction.
func (s desiredStatus) contradicts(status map[string]any) bool {
	standing, _ := status[fieldPhase].(string)
	if s.phase != "" && standing != "" && s.phase != standing && ourPhase(standing) {
		return true
	}

	list, _ := status[fieldConditions].([]any)

	for _, c := range [...]condition{s.talos, s.kubernetes} {
		for _, entry := range list {
			if fieldOf(entry, "type") == c.kind && c.contradicts(entry) {
				return true
			}
		}
	}

	return false
}

func ourPhase(phase string) bool {
	return slices.Contains([]string{"", protocol.PhaseReady, protocol.PhaseUpgradingTalos, protocol.PhaseUpgradingKubernetes, protocol.PhaseUpgradeFailed}, phase)
}

// told tells whether something is to be said of the product.
func (c condition) told() bool { return c.reason != "" || c.over }

// contradicts tells whether the entry says by its status, or by a reason of ours,
// what is not so.
func (c condition) contradicts(entry any) bool {
	if !c.told() {
		return false
	}

	status, reason := fieldOf(entry, "status"), fieldOf(entry, "reason")
	if (status == "True") != (c.reason == protocol.ReasonInProgress) {
		return true
	}

	ours := []string{protocol.ReasonInProgress, protocol.ReasonFailed, protocol.ReasonBlocked}
	if c.reason != "" {
		ours = append(ours, protocol.ReasonCompleted)
	}

	return reason != c.reason && slices.Contains(ours, reason)
}

// placed is the list with the condition as it should be in it. Conditions of others
// stay as and where they are.
func (c condition) placed(list []any, now time.Time) []any {
	at := slices.IndexFunc(list, func(entry any) bool { return fieldOf(entry, "type") == c.kind })

	switch {
	case c.kept && (at < 0 || !c.contradicts(list[at])):
		return list
	case c.reason != "" && at < 0:
		return append(slices.Clone(list), any(c.entry(nil, now)))
	case c.reason != "":
		list = slices.Clone(list)
		standing, _ := list[at].(map[string]any)
		list[at] = c.entry(standing, now)

		return list
	case c.over && at >= 0 && (c.contradicts(list[at]) || fieldOf(list[at], "reason") != protocol.ReasonCompleted):
		return slices.Delete(slices.Clone(list), at, at+1)
	default:
		return list
	}
}

// entry is the condition as it is written in place of the standing one. It has
// moved only where its status is another one.
func (c condition) entry(standing map[string]any, now time.Time) map[string]any {
	status := "False"
	if c.reason == protocol.ReasonInProgress {
		status = "True"
	}

	moved := fieldOf(standing, "lastTransitionTime")
	if moved == "" || fieldOf(standing, "status") != status {
		moved = now.UTC().Format(time.RFC3339)
	}

	made := map[string]any{}
	maps.Copy(made, standing)

	made["type"], made["status"], made["reason"], made["message"], made["lastTransitionTime"] = c.kind, status, c.reason, c.message, moved

	return made
}

func fieldOf(entry any, name string) string {
	fields, _ := entry.(map[string]any)
	value, _ := fields[name].(string)

	return value
}

// sameCondition tells whether two entries say the same as far as it is ours to say.
func sameCondition(a, b any) bool {
	for _, name := range []string{"type", "status", "reason", "message", "lastTransitionTime"} {
		if fieldOf(a, name) != fieldOf(b, name) {
			return false
		}
	}

	return true
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
