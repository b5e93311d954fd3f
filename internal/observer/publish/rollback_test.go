// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestANodeThatIsRolledBack is told while it goes on, and then that the run
// failed.
func TestANodeThatIsRolledBack(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2")}
	behind, old := left(5, 1, 5, "1.13.2"), left(20, 0, 5, "1.34.2")

	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		publisher := publish.New(store, publish.Options{})

		for _, step := range []struct {
			event cluster.Event
			want  map[string]string
		}{
			{cluster.Event{Kind: cluster.EventNodeStarted, Node: "cp-1", Talos: behind, Kubernetes: old}, map[string]string{
				talosStatus: "in-progress", kubernetesStatus: "blocked", protocol.KeyFailedNodes: "absent",
			}},
			{cluster.Event{Kind: cluster.EventRollingBack, Node: "cp-1", To: version.MustParse("1.13.2"), Text: "etcd did not become healthy\nmore", Err: errDown}, map[string]string{
				talosStatus: "rolling-back", talosMessage: "Rolling back node cp-1 to 1.13.2: etcd did not become healthy",
				kubernetesStatus: "blocked", protocol.KeyTalosProgress: "1/5", protocol.KeyTalosCurrent: "1.13.2", protocol.KeyFailedNodes: "absent",
			}},
			{cluster.Event{Kind: cluster.EventRunFailed, Node: "cp-1", Text: "node cp-1 was rolled back", Talos: behind, Kubernetes: old}, map[string]string{
				talosStatus: "failed", talosMessage: "Talos upgrade failed: node cp-1 was rolled back", protocol.KeyFailedNodes: "cp-1",
			}},
		} {
			step.event.Target = target
			publisher.Observe(step.event)
			synctest.Wait()

			for key, want := range step.want {
				if got := store.get(key); got != want {
					t.Errorf("after %s: %s is %q, want %q", step.event.Kind, key, got, want)
				}
			}

			// The heartbeat beats until the run has ended.
			before := store.get(protocol.KeyLastUpdate)

			time.Sleep(time.Minute)
			synctest.Wait()

			if beats := store.get(protocol.KeyLastUpdate) != before; beats != (step.event.Kind != cluster.EventRunFailed) {
				t.Errorf("after %s: it is told that the run goes on: %t", step.event.Kind, beats)
			}
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestARollbackInAHalfThatIsNotManagedIsNotTold(t *testing.T) {
	store := told(t, cluster.Target{Kubernetes: version.MustParse("1.35.2")},
		cluster.Event{Kind: cluster.EventRollingBack, Node: "cp-1", To: version.MustParse("1.13.2"), Text: "why"})

	for _, key := range []string{talosStatus, talosMessage, kubernetesStatus, kubernetesMessage, protocol.KeyLastUpdate} {
		if got := store.get(key); got != "absent" {
			t.Errorf("%s is %q", key, got)
		}
	}
}

// TestFailedNodesAreListedUntilARunBeginsOrCompletes, and never as nothing.
func TestFailedNodesAreListedUntilARunBeginsOrCompletes(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}

	for name, test := range map[string]struct {
		nodes string
		next  cluster.EventKind
		want  string
	}{
		"one":                    {"cp-1", "", "cp-1"},
		"several":                {"worker-2,worker-0", "", "worker-2,worker-0"},
		"named twice":            {"worker-2, worker-0,worker-2", "", "worker-2,worker-0"},
		"none":                   {"", "", "absent"},
		"nothing but commas":     {" ,, ", "", "absent"},
		"then a node begins":     {"cp-1", cluster.EventNodeStarted, "cp-1"},
		"then a run begins":      {"cp-1", cluster.EventRunStarted, "absent"},
		"then a run completes":   {"cp-1,cp-2", cluster.EventRunDone, "absent"},
		"then a run fails again": {"cp-1,cp-2", cluster.EventRunFailed, "absent"},
	} {
		events := []cluster.Event{{Kind: cluster.EventRunFailed, Node: test.nodes, Text: "why"}}
		if test.next != "" {
			events = append(events, cluster.Event{Kind: test.next})
		}

		store := told(t, target, events...)
		if got := store.get(protocol.KeyFailedNodes); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}

		empty := func(changes map[string]*string) bool {
			value := changes[protocol.KeyFailedNodes]

			return value != nil && strings.Trim(*value, " ,") == ""
		}
		if slices.ContainsFunc(store.patches, empty) {
			t.Errorf("%s: a list of nothing was published", name)
		}
	}
}

// TestARollbackThatAPersonAsksForIsNoUpgrade: what is said is the rollback, and what runs.
func TestARollbackThatAPersonAsksForIsNoUpgrade(t *testing.T) {
	to := version.MustParse("1.13.2")
	begun := cluster.Event{Kind: cluster.EventRollingBack, Node: "cp-1", To: to, Text: "as ola asked", Asked: true}
	done := cluster.Event{Kind: cluster.EventRolledBack, Node: "cp-1", To: to, Text: "as ola asked", Talos: cluster.Progress{Lowest: to}}
	failed := done
	failed.Text, failed.Err, failed.Talos = "it did not come back", errDown, cluster.Progress{Lowest: version.MustParse("1.13.4")}

	for name, test := range map[string]struct {
		events []cluster.Event
		want   map[string]string
	}{
		"while it goes on": {[]cluster.Event{begun}, map[string]string{
			talosStatus: "rolling-back", talosMessage: "Rolling back node cp-1 to 1.13.2: as ola asked", kubernetesStatus: "absent",
		}},
		"done": {[]cluster.Event{begun, done}, map[string]string{
			talosStatus: "idle", talosMessage: "Rolled back node cp-1 to 1.13.2: as ola asked", protocol.KeyTalosCurrent: "1.13.2",
			protocol.KeyTalosProgress: "absent", kubernetesStatus: "absent", protocol.KeyTalosTarget: "absent", protocol.KeyFailedNodes: "absent",
		}},
		"failed": {[]cluster.Event{begun, failed}, map[string]string{
			talosStatus: "failed", talosMessage: "Unable to roll back node cp-1 to 1.13.2: it did not come back", protocol.KeyTalosCurrent: "1.13.4", kubernetesStatus: "absent",
		}},
	} {
		store := told(t, cluster.Target{}, test.events...)

		for key, want := range test.want {
			if got := store.get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
}
