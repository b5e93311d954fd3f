// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/action"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// newLockStatusAction is talosupgrade_lock_status.
func newLockStatusAction() action.Action {
	return &clusterAction{
		name: "lock_status", doing: "find out who may upgrade the cluster", limit: 5 * time.Minute,
		text: "Says who upgrades the cluster now, since when, and whether they are still alive; whether upgrades are suspended, by whom and why; and which nodes are in the middle of an upgrade. " +
			"It writes nothing, and does not fail because somebody upgrades the cluster.",
		invoke: sayLockStatus,
	}
}

func sayLockStatus(ctx context.Context, on *invocation) error {
	options := on.clusters.engine(on.reached, nil)
	options.Observers = []cluster.Observer{on}

	status, err := engine.New(options).LockStatus(ctx)
	if err != nil {
		return err
	}

	for _, line := range lockLines(status) {
		on.say("%s", line)
	}

	return nil
}

// lockLines are what there is to say of the status, each a sentence.
func lockLines(status engine.LockStatus) []string {
	lines := []string{holderLine(status)}

	if status.Lease.Suspended != nil {
		lines = append(lines, "Upgrades of this cluster are suspended "+status.Lease.Suspended.String()+".")
	} else {
		lines = append(lines, "Upgrades of this cluster are not suspended.")
	}

	return append(lines, journalLines(status.Journal)...)
}

// holderLine says who holds the lease, and what that means for the next apply.
func holderLine(status engine.LockStatus) string {
	const name = "The lease kube-system/talosupgrade "

	held := fmt.Sprintf("is held by %s since %s", status.Lease.Holder, status.Lease.Acquired.UTC().Format(time.RFC3339))

	switch {
	case status.Alive:
		return name + held + " and is being renewed: that run is alive."
	case status.Lease.Holder != "":
		return name + held + ", and stood still for as long as it is good for: that run is gone, and the next apply takes it over."
	case status.LastHolder != "":
		return "Nobody holds the lease kube-system/talosupgrade. " + status.LastHolder + " held it last, and did not give it back: the next apply waits for half a minute before it takes it."
	default:
		return "Nobody holds the lease kube-system/talosupgrade."
	}
}

// journalLines say what runs have left unfinished.
func journalLines(journal cluster.Journal) []string {
	var lines []string

	for _, key := range slices.SortedFunc(maps.Keys(journal.Entries), func(a, b string) int {
		return cmp.Or(cmp.Compare(journal.Entries[a].Node, journal.Entries[b].Node), cmp.Compare(a, b))
	}) {
		entry := journal.Entries[key]
		switch {
		case entry.Returned() && entry.Retry:
			lines = append(lines, fmt.Sprintf("%s: it runs Talos %s again, and the next apply may try %s once more (phase %s).", entry.Node, entry.Previous, entry.Target, entry.Phase))
		case entry.Returned() && entry.Asked != "":
			lines = append(lines, fmt.Sprintf("%s: it was rolled back to Talos %s, %s (phase %s). It is left alone until it is to be tried again.",
				entry.Node, entry.Previous, plan.AskedFor(entry), entry.Phase))
		case entry.Returned():
			lines = append(lines, fmt.Sprintf("%s: Talos %s failed on it, and it runs %s again (phase %s). It is left alone until it is to be tried again.",
				entry.Node, entry.Target, entry.Previous, entry.Phase))
		case entry.Phase == cluster.PhaseRollingBack:
			lines = append(lines, fmt.Sprintf("%s: it is being rolled back to Talos %s (phase %s).", entry.Node, entry.Previous, entry.Phase))
		default:
			lines = append(lines, fmt.Sprintf("%s: its upgrade to Talos %s is unfinished (phase %s).", entry.Node, entry.Target, entry.Phase))
		}
	}

	if len(lines) == 0 {
		lines = append(lines, "No node is in the middle of an upgrade.")
	}

	if due := journal.Manifests; due != nil {
		lines = append(lines, "The bootstrap manifests have not been synced since the roll of "+due.Run+".")
	}

	return lines
}
