// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// AllowRetry allows the next upgrade to try the image again on a node that fell back or was rolled back to its
// old system. It changes only that entry of the journal, under the lease, and changes nothing if a retry is
// allowed already. The permission ends with the next attempt. The returned entry names the image; the error is a
// [*say.Failure].
func (e *Engine) AllowRetry(ctx context.Context, request NodeRequest) (cluster.Entry, error) {
	e.shutdown.begin(ctx)

	observed, err := e.observeRequested(ctx, Request{ClusterID: request.ClusterID}, outdatedPod)
	if err != nil {
		return cluster.Entry{}, say.OfAction(err)
	}

	key, entry, err := returnedEntry(observed, request.Node)
	if err != nil || entry.Retry {
		return entry, err
	}

	held, err := e.acquire(ctx)
	if err != nil {
		return cluster.Entry{}, say.OfAction(say.NotAcquired(ctx.Err() != nil, err))
	}

	r := e.newRun(held, Request{Policy: request.Policy, ClusterID: request.ClusterID}, request.Policy)
	r.journal.setNodes(observed.Nodes)

	entry, err = r.allowRetry(ctx, request.Node, key)
	if errors.Is(err, say.ErrNotBegun) {
		err = say.OfAction(err)
	}

	if releaseErr := r.lock.release(ctx); releaseErr != nil && err == nil {
		e.warn("the lease could not be released: " + releaseErr.Error())
	}

	return entry, err
}

// returnedEntry returns the entry of a node that returned to its old system.
func returnedEntry(observed cluster.Observation, name string) (key string, entry cluster.Entry, err error) {
	summary := "Unable to allow another try on node " + name

	node, there := observed.Node(name)

	switch {
	case !there || node.Gone:
		return "", entry, unknownNode(summary, observed, name)
	case observed.Journal == nil:
		return "", entry, &say.Failure{
			Summary: summary, Node: name, Seen: fmt.Sprintf("The journal cannot be read: %v.", observed.JournalError), State: "Nothing was touched.",
			Remedy: say.WritableRemedyOfAction, Err: say.ErrBlocked,
		}
	}

	key, entry, found := observed.Journal.Of(node)

	return key, entry, refusesRetry(name, entry, found)
}

// refusesRetry returns why a retry cannot be allowed for the node; nil if it can.
func refusesRetry(name string, entry cluster.Entry, found bool) error {
	failure := &say.Failure{
		Summary: "Unable to allow another try on node " + name, Node: name, State: "Nothing was touched.", Err: say.ErrBlocked,
		Seen:   "The journal does not say that the node fell back, or was rolled back, to an old system: no image is kept from it.",
		Remedy: "Run terraform plan: it says what stands in the way of the node.",
	}

	switch {
	case found && entry.Open():
		failure.Seen = fmt.Sprintf("The node is in the middle of its upgrade to Talos %s, and it is not known yet how that ends.", entry.Target)
		failure.Remedy = "Run terraform apply: it finishes what was begun."

		return failure
	case !found:
		return failure
	default:
		return nil
	}
}

// allowRetry marks the entry as it is in the journal now.
func (r *run) allowRetry(ctx context.Context, node, key string) (entry cluster.Entry, err error) {
	leased, end := r.lock.bind(ctx)
	defer end()
	defer r.engine.shutdown.watch(leased)()

	if err := r.claimJournal(leased); err != nil {
		return entry, err
	}

	var refused error

	err = r.journal.change(leased, node, func(j cluster.Journal) cluster.Journal {
		found := false

		entry, found = j.Entries[key]
		if refused = refusesRetry(node, entry, found); refused != nil {
			return j
		}

		entry.Retry, entry.Run, entry.Written = true, r.engine.runID, r.engine.clock.Now()

		return j.With(key, entry)
	})
	if err != nil {
		return entry, retryFailure(ctx, node, err)
	}

	return entry, refused
}

// retryFailure returns the failure for an entry that could not be marked.
func retryFailure(ctx context.Context, node string, err error) *say.Failure {
	if ctx.Err() != nil {
		return say.Undisturbed(&say.Failure{
			Summary: "The action was cancelled", Seen: "It was interrupted before the journal was written.", State: "No node was disturbed.",
			Remedy: "Run it again.", Err: err,
		})
	}

	return say.Undisturbed(&say.Failure{
		Summary: "Unable to allow another try on node " + node, Node: node, Seen: say.Sentence(err.Error()), State: "No node was disturbed.",
		Remedy: say.WritableRemedyOfAction, Err: err,
	})
}
