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
)

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
	standing stature
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
func (k *statusKeeper) keep(ctx context.Context, desired func() (wanted stature, running bool)) {
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

	k.standing = stature{}
	k.backoff = longer(k.backoff)
	k.retry = time.Now().Add(k.backoff)
}

// settle makes one attempt to have the status say what it should, and to see it.
func (k *statusKeeper) settle(ctx context.Context, desired func() (wanted stature, running bool)) error {
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
func (k *statusKeeper) write(ctx context.Context, desired func() (wanted stature, running bool)) error {
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()

	for range statusAttempts {
		// Another run may have taken over.
		wanted, _ := desired()
		if wanted == (stature{}) {
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

func (k *statusKeeper) see(wanted stature) {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	k.standing, k.seen = wanted, time.Now()
}

// fields are those to write next.
func (k *statusKeeper) fields(wanted stature, status map[string]any) map[string]any {
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
