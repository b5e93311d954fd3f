// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// recordTimeout bounds how long the journal may be unwritable before the run gives up: without a record nothing
// may be installed.
const recordTimeout = 2 * time.Minute

// journal is the journal of a run as last read or written, with its resource version. All upgrades of the run
// share it.
type journal struct {
	// leased writes it while the lease is ours.
	leased leased
	// writing is held during a write, first come, first served.
	writing semaphore

	mu sync.Mutex
	// pending are the changes that are not written yet, in order.
	pending []*journalChange
	// over is closed when the next write ends.
	over    chan struct{}
	current cluster.Journal
	// stale is true if the stored journal may differ from current.
	stale bool
	// nodes are those of the last observation, whose machine IDs become the keys of the entries that are read.
	nodes []cluster.Node
}

func newJournal(under leased) *journal {
	return &journal{leased: under, writing: newSemaphore(1), over: make(chan struct{}), stale: true}
}

// read returns the journal as the run knows it.
func (j *journal) read() (current cluster.Journal, stale bool) {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.current, j.stale
}

// journalChange is a change of the journal that is to be written. A write contains all pending changes, so that a
// hundred upgrades do not wait for a hundred writes.
type journalChange struct {
	apply func(cluster.Journal) cluster.Journal
	// under is true during a write that contains the change, written once such a write succeeded.
	under, written bool
}

// add adds a change to the next write.
func (j *journal) add(apply func(cluster.Journal) cluster.Journal) *journalChange {
	j.mu.Lock()
	defer j.mu.Unlock()

	made := &journalChange{apply: apply}
	j.pending = append(j.pending, made)

	return made
}

// beginWrite returns the changes for a write that begins now.
func (j *journal) beginWrite() []*journalChange {
	j.mu.Lock()
	defer j.mu.Unlock()

	for _, change := range j.pending {
		change.under = true
	}

	return slices.Clone(j.pending)
}

// endWrite records the end of a write with these changes.
func (j *journal) endWrite(changes []*journalChange, written bool) {
	j.mu.Lock()
	defer j.mu.Unlock()

	for _, change := range changes {
		change.under, change.written = false, written
	}

	j.pending = slices.DeleteFunc(j.pending, func(change *journalChange) bool { return change.written })
	close(j.over)
	j.over = make(chan struct{})
}

// isWritten reports whether a change was written.
func (j *journal) isWritten(change *journalChange) bool {
	j.mu.Lock()
	defer j.mu.Unlock()

	return change.written
}

// withdraw takes a change back, and reports whether it was written all the same. If a write that contains it is
// in progress, it waits for the end of the write.
func (j *journal) withdraw(change *journalChange) (written bool) {
	for {
		j.mu.Lock()
		under, over := change.under, j.over

		if !under {
			j.pending = slices.DeleteFunc(j.pending, func(other *journalChange) bool { return other == change })
		}

		written = change.written
		j.mu.Unlock()

		if !under {
			return written
		}

		<-over
	}
}

// adopt records the journal that was read or written.
func (j *journal) adopt(current cluster.Journal) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.current, j.stale = current, false
}

// setNodes records the observed nodes.
func (j *journal) setNodes(nodes []cluster.Node) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.nodes = nodes
}

// known returns the nodes of the last observation.
func (j *journal) known() []cluster.Node {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.nodes
}

// keyed returns the journal with the machine IDs of the nodes as keys.
func (j *journal) keyed(current cluster.Journal) cluster.Journal {
	j.mu.Lock()
	defer j.mu.Unlock()

	return current.Keyed(j.nodes)
}

func (j *journal) markStale() {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.stale = true
}

// entry returns the journal's entry of a machine.
func (j *journal) entry(key string) (cluster.Entry, bool) {
	current, _ := j.read()
	found, ok := current.Entries[key]

	return found, ok
}

// ours returns the entry that this run has written about a node, found by its name; zero if it has written none.
func (j *journal) ours(node string) (entry cluster.Entry) {
	current, _ := j.read()
	for _, one := range current.Entries {
		if one.Node == node && one.Run == j.leased.engine.runID {
			entry = one
		}
	}

	return entry
}

// adoptObserved records the journal of an observation. If another run has put its name there, the journal is
// marked stale instead, and the next write examines that.
func (j *journal) adoptObserved(seen cluster.Journal) {
	if seen.Holder != j.leased.engine.holder() {
		j.markStale()

		return
	}

	j.adopt(seen)
}

// claimedByUs reports whether the run may overwrite the journal that it has just read. If the journal has another
// holder, the lease decides, which must be read after the journal: a run that takes the lease later changes the
// journal first, and a run that put its name there before can no longer have the lease if it is ours.
func (j *journal) claimedByUs(ctx context.Context, read cluster.Journal) (ok bool, seen string, err error) {
	if read.Holder == j.leased.engine.holder() {
		return true, "", nil
	}

	return j.leased.lock.stillOurs(ctx)
}

// change applies a change to the journal and returns once it is written. The change is applied to the stored
// journal, so a lost reply or a foreign write loses nothing. The journal is not written if another run has
// claimed it.
func (j *journal) change(ctx context.Context, node string, apply func(cluster.Journal) cluster.Journal) error {
	e := j.leased.engine

	bounded, cancel := e.clock.WithTimeout(ctx, recordTimeout)
	defer cancel()

	mine := j.add(apply)

	err := e.wait(bounded, node, "the journal to be written", func(ctx context.Context) (bool, string, error) {
		if err := j.writing.enter(ctx); err != nil {
			return false, "the upgrade of another node is writing it", err
		}

		defer j.writing.leave()

		if j.isWritten(mine) {
			return true, "", nil
		}

		current, stale := j.read()
		if stale {
			read, err := e.kubernetes.Journal(ctx)
			if err != nil {
				return false, err.Error(), permanentOnly(err)
			}

			if ok, seen, err := j.claimedByUs(ctx, read); err != nil || !ok {
				return false, seen, err
			}

			current = j.keyed(read)
			j.adopt(current)
		}

		due, changed := j.beginWrite(), current
		for _, change := range due {
			changed = change.apply(changed)
		}

		changed.Holder = e.holder()

		written, err := j.leased.writeJournal(ctx, changed)
		if err == nil {
			j.adopt(written)
			j.endWrite(due, true)

			return true, "", nil
		}

		j.markStale()
		j.endWrite(due, false)

		return false, err.Error(), permanentOnly(err)
	})
	if err != nil && j.withdraw(mine) {
		return nil
	}

	if err == nil || ctx.Err() != nil || errors.Is(err, say.ErrLeaseLost) {
		return err
	}

	if lost := j.leased.lock.takenMeanwhile(ctx); lost != nil {
		return lost
	}

	return fmt.Errorf("the journal kube-system/talosupgrade-journal could not be written: %w", err)
}

// record writes the entry of the upgrade to the journal.
func (u *nodeUpgrade) record(ctx context.Context, phase cluster.Phase) error {
	entry := u.entry
	entry.Phase, entry.Run, entry.Cordoned, entry.Written = phase, u.run.engine.runID, u.cordoned, u.run.engine.clock.Now()

	err := u.run.journal.change(ctx, u.step.Node, func(j cluster.Journal) cluster.Journal {
		if confirmed, known := j.Confirmed[u.step.Key]; known {
			u.former = confirmed
		}

		return j.With(u.step.Key, entry)
	})
	if err != nil {
		return err
	}

	u.entry = entry
	if !u.recorded() {
		u.phase = untouched
	}

	return nil
}

// forget removes the entry of the upgrade from the journal.
func (u *nodeUpgrade) forget(ctx context.Context) error {
	return u.remove(ctx, func(j cluster.Journal) cluster.Journal { return j.Without(u.step.Key) })
}

// restore removes the entry of an upgrade that was not acted on. The upgrade that was confirmed before, if there
// was one, is valid again.
func (u *nodeUpgrade) restore(ctx context.Context, former cluster.Entry) error {
	if former.ConfirmedBootID == "" {
		return u.forget(ctx)
	}

	return u.remove(ctx, func(j cluster.Journal) cluster.Journal {
		return j.WithConfirmed(u.step.Key, former, u.run.journal.known())
	})
}

// confirm removes the entry of a finished upgrade. The journal records what the other boot slot holds if that is
// certain: the installer was seen to succeed, and the following boot started what it had installed.
func (u *nodeUpgrade) confirm(ctx context.Context) error {
	installed := u.recorded() && (u.entry.Phase == cluster.PhaseInstalled || u.entry.Phase == cluster.PhaseRebooting)
	if !installed || !u.rebooted() || !u.result.runs.Equal(u.entry.Target) {
		return u.forget(ctx)
	}

	done := u.entry
	done.ConfirmedBootID, done.Written = u.booted, u.run.engine.clock.Now()

	return u.remove(ctx, func(j cluster.Journal) cluster.Journal {
		return j.WithConfirmed(u.step.Key, done, u.run.journal.known())
	})
}

// remove applies the change, which removes the entry of the upgrade from the journal.
func (u *nodeUpgrade) remove(ctx context.Context, change func(cluster.Journal) cluster.Journal) error {
	_, found := u.run.journal.entry(u.step.Key)
	if _, stale := u.run.journal.read(); !found && !stale {
		u.forgotten()

		return nil
	}

	if err := u.run.journal.change(ctx, u.step.Node, change); err != nil {
		return err
	}

	u.forgotten()

	return nil
}

// forgotten records that the journal has no entry of the upgrade.
func (u *nodeUpgrade) forgotten() {
	u.entry.Phase = ""

	if u.phase != inService {
		u.phase = untouched
	}
}
