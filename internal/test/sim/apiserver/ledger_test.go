// SPDX-License-Identifier: MPL-2.0

package apiserver_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// If a journal is written as a whole, the history has the records that changed, and whose they are.
func TestLedger_TellsOfEachRecordOfTheJournal(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		journal := cluster.Journal{Holder: "run-1 (test)"}.WithManifests(&cluster.ManifestsDue{Run: "run-1", Written: time.Now()}).
			With("machine", cluster.Entry{Node: "worker-0", Phase: cluster.PhaseIntent, Run: "run-1"})

		written, err := r.api.WriteJournal(r.Context(), journal)
		if err != nil {
			r.Fatal(err)
		}

		changed := written.With("machine", cluster.Entry{Node: "worker-0", Phase: cluster.PhaseInstalled, Run: "run-1"}).WithManifests(nil)
		if _, err = r.api.WriteJournal(r.Context(), changed); err != nil {
			r.Fatal(err)
		}

		r.cluster.EditJournalAsPerson(func(journal cluster.Journal) cluster.Journal { return journal.Without("machine") })

		var told []string

		for _, event := range r.log.of(history.KindJournal) {
			d := event.Detail
			told = append(told, fmt.Sprintf("%s[%s] %s of %s by %s", d["key"], event.Node, d["phase"], d["run"], d["by"]+d["client"]))
		}

		want := []string{
			"format[]  of  by clientrun-1", "holder[]  of  by clientrun-1", "machine[worker-0] intent of run-1 by clientrun-1", "manifests[] due of run-1 by clientrun-1",
			"machine[worker-0] installed of run-1 by clientrun-1", "manifests[]  of run-1 by clientrun-1",
			"machine[worker-0]  of run-1 by other",
		}
		if !slices.Equal(told, want) {
			r.Errorf("the history tells\n%q, want\n%q", told, want)
		}
	})
}

// A write that changes neither the holder nor the time of the last renewal is no renewal.
func TestLedger_TellsWhoHoldsTheLease(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		reason := "not before Monday"

		lease, err := r.api.WriteLease(r.Context(), cluster.Lease{Holder: "run-1", Renewed: time.Now(), Duration: time.Minute})
		if err != nil {
			r.Fatal(err)
		}

		if lease, err = r.api.WriteSuspension(r.Context(), lease, &reason); err != nil {
			r.Fatal(err)
		}

		lease.Renewed = time.Now().Add(time.Second)
		if lease, err = r.api.WriteLease(r.Context(), lease); err != nil || lease.Suspended == nil || lease.Suspended.By == "" {
			r.Fatalf("%+v, %v", lease, err)
		}

		if err := r.cluster.HoldLease("somebody"); err != nil {
			r.Fatal(err)
		}

		r.cluster.DeleteLeaseAsPerson()

		var told []string
		for _, event := range r.log.of(history.KindLease) {
			told = append(told, event.Detail["action"]+" of "+event.Detail["holder"]+" by "+event.Detail["by"])
		}

		want := []string{"acquire of run-1 by client", "renew of run-1 by client", "acquire of somebody by other", "release of  by other"}
		if !slices.Equal(told, want) {
			r.Errorf("the history tells %q, want %q", told, want)
		}
	})
}

// What the publisher writes is in the history as the annotations that changed.
func TestLedger_TellsOfPublishedAnnotations(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		store := publish.NewConfigMapStore(r.api, "the-id")
		say := func(text string) *string { return &text }

		for _, changes := range []map[string]*string{
			{"upgrade.vitistack.io/status": say("in-progress")},
			{"upgrade.vitistack.io/status": say("completed")},
			{"upgrade.vitistack.io/status": say("completed"), "upgrade.vitistack.io/failed": nil},
			{"upgrade.vitistack.io/status": nil},
		} {
			if err := store.Patch(r.Context(), changes); err != nil {
				r.Fatal(err)
			}
		}

		var told []string
		for _, event := range r.log.of(history.KindAnnotation) {
			told = append(told, fmt.Sprintf("%s %s=%s by %s", event.Detail["object"], event.Detail["key"], event.Detail["value"], event.Detail["client"]))
		}

		const object = "ConfigMap/kube-system/talosupgrade status="
		if want := []string{object + "in-progress by run-1", object + "completed by run-1", object + " by run-1"}; !slices.Equal(told, want) {
			r.Errorf("the history tells %q, want %q", told, want)
		}

		kept, err := store.Read(r.Context())
		if err != nil || len(kept) != 1 || kept["talosupgrade.vitistack.io/cluster-id"] != "the-id" {
			r.Errorf("there is %v, %v", kept, err)
		}

		if kept, err := r.api.Forget(r.Context(), "the-id"); err != nil || len(kept) > 0 {
			r.Errorf("forgotten, keeping %q, %v", kept, err)
		}

		if kept, err := store.Read(r.Context()); err != nil || len(kept) > 0 {
			r.Errorf("there still is %v, %v", kept, err)
		}
	})
}
