// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func labelled(labels map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": labels}}
}

// nameOf is "namespace/name" of an object.
func nameOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	name, _ := metadata["name"].(string)

	return namespace + "/" + name
}

func TestObject_QueryReturnsItsObjects(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		const version, kind = "example.org/v1", "Volume"

		s.ServeKind(version, "Backup")
		s.SetObject(version, kind, "b", "two", labelled(map[string]any{"tier": "gold", "zone": "x"}))
		s.SetObject(version, kind, "b", "one", labelled(map[string]any{"tier": "silver"}))
		s.SetObject(version, kind, "a-b", "three", nil)
		s.SetObject("v1", "Node", "", "worker-0", labelled(map[string]any{"tier": "gold"}))

		for name, given := range map[string]struct {
			query cluster.ObjectQuery
			want  string
		}{
			"all":                {cluster.ObjectQuery{Kind: kind}, "a-b/three b/one b/two"},
			"of a namespace":     {cluster.ObjectQuery{Kind: kind, Namespace: "b"}, "b/one b/two"},
			"of an empty one":    {cluster.ObjectQuery{Kind: kind, Namespace: "c"}, ""},
			"by name":            {cluster.ObjectQuery{Kind: kind, Namespace: "b", Name: "two"}, "b/two"},
			"by a missing name":  {cluster.ObjectQuery{Kind: kind, Namespace: "b", Name: "three"}, ""},
			"by name and label":  {cluster.ObjectQuery{Kind: kind, Name: "one", Selector: "tier=gold"}, ""},
			"none of a kind":     {cluster.ObjectQuery{Kind: "Backup"}, ""},
			"without namespaces": {cluster.ObjectQuery{APIVersion: "v1", Kind: "Node"}, "/worker-0"},
			"equal":              {cluster.ObjectQuery{Kind: kind, Selector: "tier=gold"}, "b/two"},
			"twice equal":        {cluster.ObjectQuery{Kind: kind, Selector: "tier == gold, zone=x"}, "b/two"},
			"both":               {cluster.ObjectQuery{Kind: kind, Selector: "tier=silver,zone=x"}, ""},
			"not equal":          {cluster.ObjectQuery{Kind: kind, Selector: "tier!=gold"}, "a-b/three b/one"},
			"there":              {cluster.ObjectQuery{Kind: kind, Selector: "tier"}, "b/one b/two"},
			"not there":          {cluster.ObjectQuery{Kind: kind, Selector: "!tier"}, "a-b/three"},
			"in":                 {cluster.ObjectQuery{Kind: kind, Selector: "tier in (gold, silver),zone"}, "b/two"},
			"not in":             {cluster.ObjectQuery{Kind: kind, Selector: "tier notin (gold)"}, "a-b/three b/one"},
		} {
			if given.query.APIVersion == "" {
				given.query.APIVersion = version
			}

			objects, err := c.Objects(context.Background(), given.query)

			var names []string
			for _, object := range objects {
				names = append(names, nameOf(object))
			}

			if err != nil || strings.Join(names, " ") != given.want {
				t.Errorf("%s: got %q, %v, want %q", name, names, err, given.want)
			}
		}

		s.RemoveObject(version, kind, "b", "two")

		if left, err := c.Objects(context.Background(), cluster.ObjectQuery{APIVersion: version, Kind: kind}); err != nil || len(left) != 2 {
			t.Errorf("after one went away there are %v, %v", left, err)
		}
	})
}

func TestObject_InvalidQueriesAreRefused(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		s.SetObject("v1", "Secret", "a", "b", nil)
		s.ServeKind("v1", "Widget")
		s.SetObject("v1", "Node", "", "worker-0", nil)

		for name, given := range map[string]struct {
			query cluster.ObjectQuery
			want  error
		}{
			"of no such kind":   {cluster.ObjectQuery{APIVersion: "v1", Kind: "Gadget"}, cluster.ErrNotFound},
			"of another group":  {cluster.ObjectQuery{APIVersion: "v2", Kind: "Widget"}, cluster.ErrNotFound},
			"in no namespace":   {cluster.ObjectQuery{APIVersion: "v1", Kind: "Node", Namespace: "a"}, cluster.ErrRefused},
			"secrets":           {cluster.ObjectQuery{APIVersion: "v1", Kind: "Secret"}, cluster.ErrRefused},
			"a bad operator":    {cluster.ObjectQuery{APIVersion: "v1", Kind: "Widget", Selector: "a among (b)"}, cluster.ErrRefused},
			"an open list":      {cluster.ObjectQuery{APIVersion: "v1", Kind: "Widget", Selector: "a in (b"}, cluster.ErrRefused},
			"a missing label":   {cluster.ObjectQuery{APIVersion: "v1", Kind: "Widget", Selector: "=b"}, cluster.ErrRefused},
			"an empty term":     {cluster.ObjectQuery{APIVersion: "v1", Kind: "Widget", Selector: "a,,b"}, cluster.ErrRefused},
			"words of no sense": {cluster.ObjectQuery{APIVersion: "v1", Kind: "Widget", Selector: "a b"}, cluster.ErrRefused},
		} {
			if _, err := c.Objects(context.Background(), given.query); err == nil {
				t.Errorf("%s: they were listed", name)
			} else {
				means(t, err, given.want)
			}
		}
	})
}

func TestObject_IsDecodedJSONOfItsOwn(t *testing.T) {
	inCluster(t, model.Options{}, func(s *ports.Cluster, c *ports.Client) {
		given := map[string]any{"status": map[string]any{"ready": 3, "share": 0.5, "list": []any{1, "x", nil, true}}}
		s.SetObject("v1", "Widget", "a", "b", given)

		query := cluster.ObjectQuery{APIVersion: "v1", Kind: "Widget"}

		first, err := c.Objects(context.Background(), query)
		if err != nil || len(first) != 1 {
			t.Fatalf("got %v, %v", first, err)
		}

		status, _ := first[0]["status"].(map[string]any)
		list, _ := status["list"].([]any)

		if status["ready"] != int64(3) || status["share"] != 0.5 || !slices.Equal(list, []any{int64(1), "x", nil, true}) ||
			first[0]["apiVersion"] != "v1" || first[0]["kind"] != "Widget" {
			t.Errorf("got %#v", first[0])
		}

		status["ready"] = int64(0)
		given["status"] = nil

		again, err := c.Objects(context.Background(), query)
		if err != nil {
			t.Fatal(err)
		}

		if kept, _ := again[0]["status"].(map[string]any); kept["ready"] != int64(3) {
			t.Errorf("what somebody did to an answer shows in the next one: %v", again)
		}
	})
}

func TestJournal_RemembersWhatASnapshotWasTakenFor(t *testing.T) {
	var told kept

	inCluster(t, model.Options{Recorder: &told}, func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()
		target := cluster.Target{Talos: parse(t, "1.13.4"), Kubernetes: parse(t, "1.35.2"), InstallerImage: "mirror.example/installer", ImageFactory: "factory.example"}
		snapshot := cluster.EtcdSnapshot{Path: "/a.db", Size: 1056, SHA256: "ab", Taken: time.Now(), Target: target, Run: "run-1"}

		written, err := c.WriteJournal(ctx, cluster.Journal{}.WithSnapshot(&snapshot))
		if err != nil {
			t.Fatal(err)
		}

		snapshot.Path = "/other.db"

		read, err := c.Journal(ctx)
		if err != nil || read.Snapshot == nil || read.Snapshot.Path != "/a.db" || !read.Snapshot.Covers(target) || read.Snapshot.Target.ImageFactory != "" {
			t.Fatalf("got %+v, %v", read.Snapshot, err)
		}

		// Nothing about it has changed.
		if written, err = c.WriteJournal(ctx, written.With("uuid", cluster.Entry{Node: "worker-0", Phase: cluster.PhaseFallback})); err != nil {
			t.Fatal(err)
		}

		ended := *written.Snapshot
		ended.Closed = true

		if _, err := c.WriteJournal(ctx, written.WithSnapshot(&ended)); err != nil {
			t.Fatal(err)
		}

		if read, err := c.Journal(ctx); err != nil || read.Snapshot == nil || !read.Snapshot.Closed || read.Snapshot.Covers(target) {
			t.Errorf("of a roll that has ended it tells %+v, %v", read.Snapshot, err)
		}

		if left, err := c.Forget(ctx, s.World().ClusterID()); err != nil || len(left) != 0 || s.Journal().Snapshot != nil {
			t.Errorf("forgetting kept %q, %v: a snapshot is no unfinished work", left, err)
		}
	})

	const target = `"talos":"1.13.4","kubernetes":"1.35.2","installerImage":"mirror.example/installer","run":"run-1"`

	if len(told.values) != 3 || told.values[2] != "" {
		t.Fatalf("the history tells %q", told.values)
	}

	for i, ending := range []string{target + "}", target + `,"closed":true}`} {
		if !strings.Contains(told.values[i], `"path":"/a.db"`) || !strings.HasSuffix(told.values[i], ending) {
			t.Errorf("the history tells %s, want it to end with %s", told.values[i], ending)
		}
	}
}

// kept are the values that the journal had for the snapshot of etcd.
type kept struct{ values []string }

// Record implements [history.Recorder].
func (k *kept) Record(_ string, kind history.Kind, detail map[string]string) {
	if kind == history.KindJournal && detail["key"] == "etcd-snapshot" {
		k.values = append(k.values, detail["value"])
	}
}

func parse(t *testing.T, text string) version.Version {
	t.Helper()

	parsed, err := version.Parse(text)
	if err != nil {
		t.Fatal(err)
	}

	return parsed
}
