// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

const (
	// snapshotTimeout bounds one snapshot: etcd's database has a few GiB at most, and a stream that stalls is
	// ended long before.
	snapshotTimeout = time.Hour
	// snapshotAttempts is the number of attempts in all: a stream that breaks may be started again, from another
	// member.
	snapshotAttempts = 3
	snapshotBackoff  = 5 * time.Second
)

// snapshotFor returns the snapshot that the journal has for the target; nil if there is none.
func snapshotFor(journal cluster.Journal, target cluster.Target) *cluster.EtcdSnapshot {
	if journal.Snapshot == nil || !journal.Snapshot.Covers(target) {
		return nil
	}

	return journal.Snapshot
}

// observedSnapshotFor returns the snapshot that the observed journal has for the target.
func observedSnapshotFor(observed cluster.Observation, target cluster.Target) *cluster.EtcdSnapshot {
	if observed.Journal == nil {
		return nil
	}

	return snapshotFor(*observed.Journal, target)
}

// snapshotLeft reports whether the journal still offers a snapshot, as after a roll that was completed by
// something other than a run of ours.
func snapshotLeft(observed cluster.Observation) bool {
	return observed.Journal != nil && observed.Journal.Snapshot != nil && !observed.Journal.Snapshot.Closed
}

// backUp saves a snapshot of etcd before anything is touched. There is one for each target: a run that continues
// where another one stopped takes none.
func (r *run) backUp(ctx context.Context, observed cluster.Observation) error {
	if r.request.Snapshots == nil {
		return nil
	}

	current, _ := r.journal.read()
	if found := snapshotFor(current, r.request.Target); found != nil {
		r.engine.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("a snapshot of etcd for this target was taken at %s: %s",
			found.Taken.UTC().Format(time.RFC3339), found.Path)})

		return nil
	}

	saved, err := r.engine.snapshotAny(ctx, observed, r.request.Snapshots)

	switch {
	case err != nil && ctx.Err() != nil:
		return say.Undisturbed(r.stopped(ctx, "while a snapshot of etcd was being taken; no node was disturbed"))
	case err != nil:
		return say.Undisturbed(snapshotFailure(err, "etcd_snapshot.directory", "run terraform apply again"))
	}

	saved.Target = cluster.Target{
		Talos: r.request.Target.Talos, Kubernetes: r.request.Target.Kubernetes, InstallerImage: r.request.Target.InstallerImage,
	}

	kept, cancel := r.engine.recordContext(ctx)
	defer cancel()

	if err := r.journal.change(kept, "", func(j cluster.Journal) cluster.Journal { return j.WithSnapshot(&saved) }); err != nil {
		return &say.Failure{
			Summary: "Unable to record the snapshot of etcd", Seen: say.Sentence(err.Error()),
			State: fmt.Sprintf("No node was disturbed. The snapshot is in %s.", saved.Path), Remedy: say.WritableRemedy, Err: err,
		}
	}

	return nil
}

// snapshotFailure returns the failure of a snapshot for the directory that the attribute names.
func snapshotFailure(err error, attribute, again string) *say.Failure {
	failed := &say.Failure{
		Summary: "Unable to take a snapshot of etcd", Seen: say.Sentence(err.Error()), State: "No node was disturbed.",
		Remedy: "Look at etcd (talosctl etcd status) and at " + attribute + ", then " + again + ".", Err: errors.Join(say.ErrSnapshot, err),
	}

	if errors.Is(err, cluster.ErrUnsaved) {
		failed.Summary = "Unable to save a snapshot of etcd"
		failed.Remedy = "Look at " + attribute + " on the machine that runs terraform apply: it needs room for the snapshot, and has to be writable. Then " + again + "."
	}

	return failed
}

// SaveSnapshot saves a snapshot of etcd now. It only reads from the cluster and disturbs no run, so it needs no
// lease and does not wait for a run that holds it. The journal does not record it: a roll that begins with a
// snapshot takes its own, because the cluster may have changed since this one. Errors are a [*say.Failure], or
// the cause of the context.
func (e *Engine) SaveSnapshot(ctx context.Context, store cluster.SnapshotStore) (cluster.EtcdSnapshot, error) {
	const attribute, again = "directory", "invoke the action again"

	exposed, err := store.Check(ctx)

	switch {
	case ctx.Err() != nil:
		return cluster.EtcdSnapshot{}, cluster.Ended(ctx)
	case err != nil:
		return cluster.EtcdSnapshot{}, snapshotFailure(err, attribute, again)
	case exposed != "":
		e.warn(exposedText(exposed))
	}

	observed, err := e.Observe(ctx)
	if err != nil {
		return cluster.EtcdSnapshot{}, err
	}

	saved, err := e.snapshotAny(ctx, observed, store)

	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(cluster.Ended(ctx), context.DeadlineExceeded):
		return cluster.EtcdSnapshot{}, cluster.Ended(ctx)
	case err != nil:
		return cluster.EtcdSnapshot{}, snapshotFailure(err, attribute, again)
	default:
		return saved, nil
	}
}

// exposedText says what is wrong with a directory that others can read.
func exposedText(exposed string) string {
	return exposed + ", and a snapshot of etcd holds every secret of the cluster"
}

// snapshotAny tries to take a snapshot from one control plane after the other, [snapshotAttempts] times in all.
func (e *Engine) snapshotAny(ctx context.Context, observed cluster.Observation, store cluster.SnapshotStore) (cluster.EtcdSnapshot, error) {
	sources := members(observed)
	if len(sources) == 0 {
		return cluster.EtcdSnapshot{}, errors.New("no member of etcd can be asked for one")
	}

	var last error

	for attempt := range snapshotAttempts {
		if attempt > 0 && e.clock.Sleep(ctx, snapshotBackoff) != nil {
			break
		}

		source := sources[attempt%len(sources)]

		saved, err := e.snapshotFrom(ctx, source, store)
		if err == nil {
			return saved, nil
		}

		if errors.Is(err, cluster.ErrUnsaved) {
			// The member of etcd is not the reason.
			return cluster.EtcdSnapshot{}, err
		}

		// An attempt that was cut off says less than the one before it.
		if last == nil || ctx.Err() == nil {
			last = fmt.Errorf("from %s: %w", source.Name, err)
		}

		if ctx.Err() != nil || pointless(err) {
			break
		}

		e.emit(cluster.Event{Kind: cluster.EventWaiting, Node: source.Name, Text: "a snapshot of etcd could not be taken " + last.Error()})
	}

	return cluster.EtcdSnapshot{}, last
}

// pointless reports whether another attempt would end the same way: the directory cannot be written, or the
// credentials are not sufficient.
func pointless(err error) bool {
	return errors.Is(err, cluster.ErrRefused) || errors.Is(err, cluster.ErrDenied) || errors.Is(err, cluster.ErrCredentials)
}

// closeBackup records in the journal that the roll for which a snapshot was taken is over, so that the next one
// takes another.
func (r *run) closeBackup(ctx context.Context) {
	current, _ := r.journal.read()
	if current.Snapshot == nil || current.Snapshot.Closed {
		return
	}

	closed := *current.Snapshot
	closed.Closed = true

	if err := r.journal.change(ctx, "", func(j cluster.Journal) cluster.Journal { return j.WithSnapshot(&closed) }); err != nil {
		r.engine.emit(cluster.Event{Kind: cluster.EventWarning, Text: "the journal goes on to offer the snapshot of etcd for this target: " + err.Error()})
	}
}

func (e *Engine) snapshotFrom(ctx context.Context, source cluster.Node, store cluster.SnapshotStore) (cluster.EtcdSnapshot, error) {
	bounded, cancel := e.clock.WithTimeout(ctx, snapshotTimeout)
	defer cancel()

	now := e.clock.Now()

	e.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: source.Name, Step: cluster.StepSnapshot})

	saved, err := store.Save(bounded, e.name, now, func(ctx context.Context, to io.Writer) error {
		return e.talos.EtcdSnapshot(ctx, source.Address, to)
	})
	if err != nil {
		return cluster.EtcdSnapshot{}, err
	}

	saved.Taken, saved.Run = now, e.runID

	return saved, nil
}

// members returns the control planes that can provide a snapshot: those that do not lead first, because a leader
// has more to do, and then by how much they have applied.
func members(observed cluster.Observation) []cluster.Node {
	found := slices.DeleteFunc(observed.ControlPlanes(), func(n cluster.Node) bool { return n.Etcd == nil || n.Machine == nil || n.Etcd.Status.Learner })

	slices.SortStableFunc(found, func(a, b cluster.Node) int {
		return cmp.Or(cmp.Compare(leads(a), leads(b)), cmp.Compare(b.Etcd.Status.Applied, a.Etcd.Status.Applied))
	})

	return found
}

func leads(node cluster.Node) int {
	if node.Etcd.Status.Leader == node.Etcd.Status.MemberID {
		return 1
	}

	return 0
}

// withSnapshot adds the location of the snapshot that was taken for the roll to a failure.
func withSnapshot(err error, saved *cluster.EtcdSnapshot) error {
	var failure *say.Failure
	if saved == nil || !errors.As(err, &failure) {
		return err
	}

	note := fmt.Sprintf("The snapshot of etcd that was taken at %s, before that run disturbed anything, is in %s (SHA-256 %s).",
		saved.Taken.UTC().Format(time.RFC3339), saved.Path, saved.SHA256)

	if failure.State != "" {
		note = failure.State + "\n\n" + note
	}

	failure.State = note

	return err
}
