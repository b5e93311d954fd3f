// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// phases keeps what happened to the entry of the manifests.
type phases struct{ seen []string }

// Record implements [history.Recorder].
func (p *phases) Record(_ string, kind history.Kind, detail map[string]string) {
	if kind == history.KindJournal && detail["key"] == "manifests" {
		p.seen = append(p.seen, detail["phase"]+" by "+detail["run"])
	}
}

func TestJournal_KeepsThatManifestsAreDue(t *testing.T) {
	var told phases

	inCluster(t, model.Options{Recorder: &told}, func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		due := &cluster.ManifestsDue{Run: "run-1", Written: time.Now()}

		written, err := c.WriteJournal(ctx, cluster.Journal{}.WithManifests(due))
		if err != nil {
			t.Fatal(err)
		}

		if written, err = c.WriteJournal(ctx, written.With("uuid", cluster.Entry{Node: "worker-0", Phase: cluster.PhaseFallback})); err != nil {
			t.Fatal(err)
		}

		read, err := c.Journal(ctx)
		if err != nil || read.Manifests == nil || read.Manifests.Run != "run-1" || len(read.Entries) != 1 {
			t.Fatalf("got %+v, %v", read, err)
		}

		if kept, err := c.Forget(ctx, s.World().ClusterID()); err != nil || len(kept) != 1 {
			t.Errorf("forgetting kept %q, %v, want the journal", kept, err)
		}

		if _, err := c.WriteJournal(ctx, written.WithManifests(nil)); err != nil {
			t.Fatal(err)
		}

		if left := s.Journal(); left.Manifests != nil || len(left.Entries) != 1 {
			t.Errorf("left %+v, want the entry of the node only", left)
		}
	})

	if want := "due by run-1, by run-1"; len(told.seen) != 2 || told.seen[0]+","+told.seen[1] != want {
		t.Errorf("the history tells %q, want %q", told.seen, want)
	}
}
