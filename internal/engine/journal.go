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

// recordTimeout bounds how long the journal may be unwritable before the run
// gives up: without a record nothing may be installed.
const recordTimeout = 2 * time.Minute

// journal is the journal of a run as last read or written, with its resource
// version. All upgrades write the same object.
type journal struct {
	// leased writes it, for as long as the lease is ours.
	leased leased
	// writing is held while it is being written. Who has waited longest comes next.
	writing semaphore

	mu sync.Mutex
	// pending are the changes that are not written yet, in their order.
	pending []*journalChange
	// over is closed when the next write ends.
	over    chan struct{}
	current cluster.Journal
	// stale tells that what stands may be something else.
	stale bool
	// nodes are those of the last observation: what is read goes by their machine
	// IDs.
	nodes []cluster.Node
}

func newJournal(under leased) *journal {
	return &journal{leased: under, writing: newSemaphore(1), over: make(chan struct{}), stale: true}
}

// read is the journal as the run knows it.
func (j *journal) read() (current cluster.Journal, stale bool) {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.current, j.stale
}

// journalChange is a change of the journal that is to be written. Whoever writes writes
// all of them: a hundred upgrades need not wait for a hundred writes.
type journalChange struct {
	apply func(cluster.Journal) cluster.Journal
	// under tells that a write with the change is under way, written that it succeeded.
	under, written bool
}

// add has a change written with the next write.
func (j *journal) add(apply func(cluster.Journal) cluster.Journal) *journalChange {
	j.mu.Lock()
	defer j.mu.Unlock()

	made := &journalChange{apply: apply}
	j.pending = append(j.pending, made)

	return made
}

// beginWrite are the changes that a write is to make which begins now.
func (j *journal) beginWrite() []*journalChange {
	j.mu.Lock()
	defer j.mu.Unlock()

	for _, change := range j.pending {
		change.under = true
	}

	return slices.Clone(j.pending)
}

// endWrite takes note of the end of a write with these changes.
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

// isWritten tells whether a change was written.
func (j *journal) isWritten(change *journalChange) bool {
	j.mu.Lock()
	defer j.mu.Unlock()

	return change.written
}

// withdraw takes a change back, and tells whether it was written all the same: where a
// write with it is under way, that is known once it ends, which is as late as a call may take.
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

// adopt takes over what was read or written.
func (j *journal) adopt(current cluster.Journal) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.current, j.stale = current, false
}

// setNodes takes note of the nodes that were observed.
func (j *journal) setNodes(nodes []cluster.Node) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.nodes = nodes
}

// known are the nodes of the last observation.
func (j *journal) known() []cluster.Node {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.nodes
}

// keyed is what was read, by the machine IDs of the nodes.
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

// entry is what the journal holds about a machine.
func (j *journal) entry(key string) (cluster.Entry, bool) {
	current, _ := j.read()
	found, ok := current.Entries[key]

	return found, ok
}

// ours is what this run has written about a node, by its name; the zero entry if it has written none.
func (j *journal) ours(node string) (entry cluster.Entry) {
	current, _ := j.read()
	for _, one := range current.Entries {
		if one.Node == node && one.Run == j.leased.engine.runID {
			entry = one
		}
	}

	return entry
}

// adoptObserved takes over the journal of an observation, unless another run has put its
// name there: the next write looks into that.
func (j *journal) adoptObserved(seen cluster.Journal) {
	if seen.Holder != j.leased.engine.holder() {
		j.markStale()

		return
	}

	j.adopt(seen)
}

// claimedByUs tells whether the run may write over what it has just read of the journal.
// Where its own name does not stand there, the lease tells, as long as it is read
// after the journal: who takes it later than that changes the journal first, and
// who put a name there after this run has it.
func (j *journal) claimedByUs(ctx context.Context, read cluster.Journal) (ok bool, seen string, err error) {
	if read.Holder == j.leased.engine.holder() {
		return true, "", nil
	}

	return j.leased.lock.stillOurs(ctx)
}

// change changes the journal and has it written before it returns. What it does
// is applied to what is there now, so that a lost reply or a foreign write
// costs nothing. What another run of ours has written since is none of these.
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
