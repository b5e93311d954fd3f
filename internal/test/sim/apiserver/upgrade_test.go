// SPDX-License-Identifier: MPL-2.0

package apiserver_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// A whole upgrade of Talos with the real adapter ends well, breaks no rule, and
// leaves the history that one over the ports leaves.
func TestUpgrade_OverTheWireEndsAsOverThePorts(t *testing.T) {
	var kinds [2]map[string]int

	for i, wire := range []bool{true, false} {
		inBubble(t, apiserver.Options{}, func(r *rig) {
			r.cluster.AddApp("web", 4, nil)
			r.cluster.AddApp("db", 2, nil)

			client := r.cluster.Client("run-1")
			options := engine.Options{
				Talos: client, Kubernetes: client, Workloads: client, Removals: client, Manifests: client, Run: "run-1", ClusterName: "test",
			}

			if wire {
				options.Kubernetes, options.Workloads = r.api, r.api
			}

			began := time.Now()

			_, err := engine.New(options).Upgrade(r.Context(), engine.Request{
				Target: cluster.Target{Talos: version.MustParse("1.13.4")},
				Policy: cluster.DefaultPolicy(),
			})
			if err != nil {
				r.Fatal(err)
			}

			judged := r.log.judged()
			if len(judged.Violations()) > 0 {
				r.Errorf("after %s: %+v", time.Since(began), judged.Violations())
			}

			for _, state := range r.cluster.World().Nodes() {
				if state.Talos != "1.13.4" {
					r.Errorf("%s runs %s", state.Name, state.Talos)
				}
			}

			kinds[i] = r.log.changes()
		})
	}

	// Only over the wire nodes are followed by a watch, which takes claims.
	for i := range kinds {
		delete(kinds[i], "write nodes")
	}

	if fmt.Sprint(kinds[0]) != fmt.Sprint(kinds[1]) || kinds[0]["cordon true"] != 5 {
		t.Errorf("the history over the wire has %v, over the ports %v", kinds[0], kinds[1])
	}
}

// judged is what the checker says about the history.
func (r *record) judged() *checker.Checker {
	r.mu.Lock()
	defer r.mu.Unlock()

	made := checker.New()
	for _, event := range r.events {
		made.Add(event)
	}

	return made
}

// changes counts the records of what clients changed in Kubernetes, but for the
// renewals of the lease, whose number hangs on the time.
func (r *record) changes() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()

	counts := map[string]int{}

	for _, event := range r.events {
		switch event.Kind {
		case history.KindCordon:
			counts["cordon "+event.Detail["unschedulable"]]++
		case history.KindLease:
			if event.Detail["action"] != "renew" {
				counts["lease "+event.Detail["action"]]++
			}
		case history.KindJournal:
			counts["journal "+event.Detail["phase"]]++
		case history.KindWrite:
			counts["write "+event.Detail["resource"]]++
		default:
		}
	}

	return counts
}

// What the publisher writes is in the history as the annotations that changed.
func TestUpgrade_PublishedAnnotationsAreRecorded(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		store, err := publish.NewConfigMapStore(r.api.Config(), r.api.HTTPClient(), "the-id")
		if err != nil {
			r.Fatal(err)
		}

		say := func(text string) *string { return &text }

		for _, changes := range []map[string]*string{
			{"upgrade.vitistack.io/status": say("in-progress"), "upgrade.vitistack.io/message": say("")},
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
		if err != nil || len(kept) != 2 || kept["talosupgrade.vitistack.io/cluster-id"] != "the-id" {
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
