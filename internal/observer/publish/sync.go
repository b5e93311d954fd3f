// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

const (
	// heartbeat is the interval at which the time of the last update is refreshed and foreign changes are
	// corrected.
	heartbeat = 10 * time.Second
	// syncTimeout bounds one request about annotations, and one attempt at the status.
	syncTimeout = 10 * time.Second
)

// desiredState is what the object should say.
type desiredState struct {
	// silent is true if there is nothing to say.
	silent bool
	// annotations and status are empty until it is known what the object said before.
	annotations annotations
	status      desiredStatus
	// running is true while the run and its heartbeat go on.
	running bool
}

// part is a part of an object that is kept up to date.
type part interface {
	// name is what people call the part.
	name() string
	// sync reads the part if that is due and writes what differs from the desired state. At the end of a run, it
	// returns an error unless the part is seen to say what it should. due is when to look again, zero if only a
	// change of the desired state is a reason to.
	sync(ctx context.Context, desired func() desiredState, atEnd bool) (due time.Time, err error)
	// notes are those of [Publisher.Notes].
	notes() []string
}

// annotationPart are those annotations of an object that this provider writes.
type annotationPart struct {
	store Store
	// before is what the object said when the run first looked, nil until then.
	before map[string]string
	// known is what the object is known to say. A key is missing while that is unknown, for example after a
	// failed attempt.
	known annotations
	// overwritten counts by key how often somebody else changed it.
	overwritten map[string]int
	// uncertain are the keys for which an earlier attempt may still take effect.
	uncertain map[string]bool
	// tight is the reason why the object does not accept all annotations, nil while it does.
	tight error
	// uid is the UID of the object that known is about.
	uid string
	// written is when the annotations were last written, read when they were last read in sync.
	written, read time.Time
}

func newAnnotationPart(store Store) *annotationPart {
	return &annotationPart{store: store, known: annotations{}, overwritten: map[string]int{}, uncertain: map[string]bool{}}
}

func (*annotationPart) name() string { return "annotations" }

// sync writes the annotations that are not known to be on the object. If the object does not accept them all, it
// writes shortened ones. It reads the object before the first write, with every heartbeat and at the end, because
// somebody else may have written to it, and an attempt that was given up may have arrived late.
func (a *annotationPart) sync(ctx context.Context, desired func() desiredState, atEnd bool) (due time.Time, err error) {
	want := desired()
	if want.silent {
		return due, nil
	}

	if first := a.before == nil; first || want.running && time.Since(a.read) >= heartbeat {
		_, err := a.compare(ctx, desired)
		a.read = time.Now()

		if first && err != nil && !errors.Is(err, cluster.ErrDenied) {
			return due, err
		}

		// Whoever may not read may still write, and if the object cannot be read now, it may not have changed.
		if a.before == nil {
			a.before = map[string]string{}
		}
	}

	err = a.write(ctx, desired())
	if errors.Is(err, cluster.ErrRefused) && a.tight == nil {
		a.tight = err
		err = a.write(ctx, desired())
	}

	if err == nil && atEnd {
		err = a.verify(ctx, desired)
	}

	if want.running {
		due = a.written.Add(heartbeat)
	}

	return due, err
}

// compare reads the annotations and notes what somebody else changed. It returns the keys whose values are not
// the desired ones.
func (a *annotationPart) compare(ctx context.Context, desired func() desiredState) (differing []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	found, err := a.store.Read(ctx)
	if err != nil {
		return nil, err
	}

	a.recognise(found)

	for key, value := range desired().annotations {
		stands := lookup(found, key)

		if known, isKnown := a.known[key]; isKnown {
			if !equal(known, stands) {
				delete(a.known, key)

				if !a.uncertain[key] {
					a.overwritten[key]++
				}
			}

			delete(a.uncertain, key)
		}

		if !equal(value, stands) {
			differing = append(differing, key)
		}
	}

	return differing, nil
}

// recognise notices an object that was deleted, and perhaps created again: what the old object said is neither
// known of the new one nor a change by somebody else.
func (a *annotationPart) recognise(found map[string]string) {
	uid := ""
	if store, ok := a.store.(identifier); ok {
		uid = store.Identity()
	}

	if a.before == nil || a.uid != "" && a.uid != uid {
		clear(a.known)
		clear(a.uncertain)

		a.before = maps.Collect(maps.All(found))
	}

	a.uid = uid
}

// write patches what is not known to be on the object, and the heartbeat.
func (a *annotationPart) write(ctx context.Context, want desiredState) error {
	changes, now := annotations{}, time.Now()

	for key, value := range want.annotations {
		if known, isKnown := a.known[key]; !isKnown || !equal(known, value) {
			changes[key] = value
		}
	}

	if len(changes) == 0 && (!want.running || now.Sub(a.written) < heartbeat) {
		return nil
	}

	changes[protocol.KeyLastUpdate] = textValue(now.UTC().Format(time.RFC3339))

	if err := cluster.Ended(ctx); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	if err := a.store.Patch(ctx, changes); err != nil {
		// The patch may have been applied nevertheless.
		for key := range changes {
			delete(a.known, key)
			a.uncertain[key] = true
		}

		return err
	}

	maps.Copy(a.known, changes)
	a.written = time.Now()

	return nil
}

var errOverwritten = errors.New("somebody else changes them at the same time")

// verify checks that the object says what it should.
func (a *annotationPart) verify(ctx context.Context, desired func() desiredState) error {
	differing, err := a.compare(ctx, desired)
	if errors.Is(err, cluster.ErrDenied) {
		// Whoever may write but not read has to trust the answer of the API server.
		return nil
	}

	if err != nil || len(differing) == 0 {
		return err
	}

	for _, key := range differing {
		delete(a.known, key)
	}

	slices.Sort(differing)

	return fmt.Errorf("%w: %s", errOverwritten, strings.Join(differing, ", "))
}

func (a *annotationPart) notes() []string {
	var notes []string

	if len(a.overwritten) > 0 {
		var counts []string

		for _, key := range slices.Sorted(maps.Keys(a.overwritten)) {
			counts = append(counts, key+" ("+readable.Times(a.overwritten[key])+")")
		}

		notes = append(notes, fmt.Sprintf("Somebody else writes the annotations of %s too, and changed what was published there: %s. "+
			"Only one of them can be believed: have the other one stop, or publish to another object.", a.store, strings.Join(counts, ", ")))
	}

	if a.tight != nil {
		notes = append(notes, fmt.Sprintf("%s did not take all annotations (%v). Messages were cut to %d characters, and the failed nodes and the available versions left out. "+
			"All annotations of an object together may have 256 KiB: remove some that nobody needs.", a.store, a.tight, shortLimit))
	}

	return notes
}

// statusAttempts is how often a status is read and written again, without a pause, if somebody else writes the
// object in between or part of it is refused.
const statusAttempts = 8

// errNoField is the error about a field that the API server accepted but dropped.
var errNoField = errors.New("unknown field: it was left out")

// statusPart are the phase and the conditions in the status of an object.
type statusPart struct {
	store StatusStore
	// none is true if the kind has no status that this provider may write.
	none bool
	// refused are the fields that the kind does not accept, and why.
	refused map[string]error
	// apart is true if fields are written one at a time.
	apart bool
	// known is what the status is known to say, as of the time in seen.
	known desiredStatus
	seen  time.Time
}

func newStatusPart(store StatusStore) *statusPart {
	return &statusPart{store: store, refused: map[string]error{}}
}

func (*statusPart) name() string { return "status" }

// sync reads the status and writes the differences until there are none. It does so again with every heartbeat of
// the annotations.
func (s *statusPart) sync(ctx context.Context, desired func() desiredState, atEnd bool) (due time.Time, err error) {
	want := desired()
	if s.none || !atEnd && want.status == s.known && (!want.running || time.Since(s.seen) < heartbeat) {
		return due, nil
	}

	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	s.known = desiredStatus{}

	for range statusAttempts {
		// Another run may have taken over meanwhile.
		wanted := desired().status
		if wanted == (desiredStatus{}) {
			return due, nil
		}

		written, err := s.write(ctx, wanted)

		switch {
		case errors.Is(err, cluster.ErrConflict):
		case err != nil || s.none:
			return due, err
		case !written:
			s.known, s.seen = wanted, time.Now()

			return due, nil
		}
	}

	return due, cluster.ErrConflict
}

// write reads the status and writes the differences, if there are any.
func (s *statusPart) write(ctx context.Context, wanted desiredStatus) (written bool, err error) {
	status, version, err := s.store.Status(ctx)
	if err != nil {
		if s.none = errors.Is(err, cluster.ErrUnsupported); s.none {
			err = nil
		}

		return false, err
	}

	fields := wanted.changes(status, time.Now())
	maps.DeleteFunc(fields, func(name string, _ any) bool { return s.refused[name] != nil })

	if s.apart && len(fields) > 1 {
		delete(fields, fieldConditions)
	}

	if len(fields) == 0 {
		return false, nil
	}

	stands, err := s.store.PatchStatus(ctx, version, fields)

	switch {
	case errors.Is(err, cluster.ErrRefused) && len(fields) > 1:
		// The kind may lack only one of them.
		s.apart, err = true, nil
	case errors.Is(err, cluster.ErrRefused):
		for name := range fields {
			s.refused[name] = err
		}

		err = nil
	case err == nil:
		for name := range fields {
			if list, isList := fields[name].([]any); stands[name] == nil && (!isList || len(list) > 0) {
				s.refused[name] = errNoField
			}
		}
	}

	return true, err
}

// notes name the fields that a kind has but does not accept. Fields that it does not have are not worth a note.
func (s *statusPart) notes() []string {
	var notes []string

	for _, name := range slices.Sorted(maps.Keys(s.refused)) {
		if err := s.refused[name]; !strings.Contains(err.Error(), "unknown field") {
			notes = append(notes, fmt.Sprintf("status.%s of %s could not be kept up to date, the annotations are not concerned: %v", name, s.store, err))
		}
	}

	return notes
}
