// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// reserved is a cluster in which only some nodes take pods; the others are
// tainted.
type reserved struct {
	*ports.Client

	free []string
}

func (c *reserved) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return c.Nodes(ctx)
}

func (c *reserved) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	return named(ctx, name, c.Nodes)
}

func (c *reserved) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := c.Client.Nodes(ctx)
	for index := range nodes {
		nodes[index].ExcludesWorkloads = nodes[index].ExcludesWorkloads || !slices.Contains(c.free, nodes[index].Name)
	}

	return nodes, err
}

// TestOneNodeStaysForThePods: however many workers may be unavailable, no drain
// is left out because the run itself has all the others.
func TestOneNodeStaysForThePods(t *testing.T) {
	for name, given := range map[string]struct {
		workers  int
		free     []string
		from, to string
	}{
		"two workers, both at a time":         {2, []string{"worker-0", "worker-1"}, fromLifecycle, toLifecycle},
		"the same, legacy":                    {2, []string{"worker-0", "worker-1"}, fromLegacy, toLegacy},
		"only two of several are schedulable": {5, []string{"worker-0", "worker-1"}, fromLifecycle, toLifecycle},
	} {
		t.Run(name, func(t *testing.T) {
			judged := setup{
				Options: model.Options{ControlPlanes: 3, Workers: given.workers, Talos: given.from, Seed: 41},
				Judging: []checker.Option{checker.MaxUnavailable(2)},
			}

			inCluster(t, judged, func(r *rig) {
				r.AddApp("web", 3*given.workers, &ports.Budget{MinAvailable: 1})

				client := r.Client("run-1")
				w := r.WorkerOver(client, client, &reserved{Client: client, free: given.free})
				r.Must(w, sharing(t, given.to, "2"))
				r.At(given.to)
				r.Once()

				if warnings := strings.Join(w.Texts(cluster.EventWarning), "\n"); strings.Contains(warnings, "no other node") {
					t.Errorf("a drain was left out: %s", warnings)
				}

				for _, node := range given.free {
					if !slices.ContainsFunc(r.Judge.Of(history.KindEvict), func(e history.Event) bool { return e.Node == node }) {
						t.Errorf("%s was not drained", node)
					}
				}

				spans := slices.DeleteFunc(r.spans(), func(s span) bool { return !slices.Contains(given.free, s.node) })
				if together := most(spans); together != 1 {
					t.Errorf("%d of the two nodes that take pods were cordoned at a time: %+v", together, spans)
				}

				r.startedOnce(w, given.free[1])
			})
		})
	}
}

// startedOnce fails the test when a node that stood back was begun again and
// again.
func (r *rig) startedOnce(w *worker, node string) {
	r.T.Helper()
	const most = 2

	count := 0

	for _, event := range w.Events() {
		if event.Kind == cluster.EventNodeStarted && event.Node == node {
			count++
		}
	}

	if count > most {
		r.T.Errorf("%s was said to be started %d times", node, count)
	}
}

// TestOnlyWorkerIsNotDrainedIntoNothing: where no other node ever takes pods, a
// drain would wait for ever.
func TestOnlyWorkerIsNotDrainedIntoNothing(t *testing.T) {
	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.AddPod("precious", "worker-0", &ports.Budget{MinAvailable: 1})

		w := r.Worker("run-1")
		r.Must(w, sharing(t, toLifecycle, "3"))
		r.At(toLifecycle)
		r.Once()

		if warnings := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(warnings, "no other node") {
			t.Errorf("nobody was told that the drain was left out: %s", warnings)
		}
	})
}

// TestLastNodeThatTakesPodsIsNotTakenWithACordonedOne: of two workers one is cordoned
// by a person, and both may be unavailable. Before anything is touched it is said that
// the pods of the other one would have nowhere to go; who accepts that has them moved
// one after the other at least.
func TestLastNodeThatTakesPodsIsNotTakenWithACordonedOne(t *testing.T) {
	given := setup{Options: model.Options{ControlPlanes: 3, Workers: 2, Seed: 223}, Judging: []checker.Option{checker.MaxUnavailable(2)}}

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 3, nil)

		leave, back := cordoned(r, "worker-1")
		leave()

		refused := r.Worker("run-1")
		failed := failure(t, refused.Apply(context.Background(), sharing(t, toLifecycle, "2")), engine.ErrBlocked, "worker-0")

		if text := failed.Error(); !strings.Contains(text, "it is the only node that takes pods") || strings.Contains(text, "raise max_unavailable") {
			t.Errorf("it leads the wrong way: %v", failed)
		}

		if _, mutating := refused.Client.Calls(); mutating > 0 {
			t.Errorf("%d mutating calls, want none", mutating)
		}

		w := r.Worker("run-2")
		w.Client.Intercept(pullsSlowly("worker-0", 5*time.Second))
		r.Must(w, undrained(sharing(t, toLifecycle, "2")))
		r.Sound()
		r.Once()

		if waits := strings.Join(w.Texts(cluster.EventWaiting), "\n"); !strings.Contains(waits, "it is the last node that takes pods, and this run is at work on others that somebody else has cordoned: worker-1") {
			t.Errorf("nobody was told what worker-0 waits for: %s", waits)
		}

		gone := r.Judge.Of(history.KindDown)
		came := slices.IndexFunc(r.Judge.Of(history.KindBoot), func(e history.Event) bool { return e.Node == "worker-1" })
		taken := ofRole(r.spans(), "worker-0")

		if came < 0 || len(taken) != 1 || taken[0].begin < r.Judge.Of(history.KindBoot)[came].Sim || gone[0].Node != "worker-1" {
			t.Errorf("worker-0 did not wait for worker-1\n%s", r.Judge.Text())
		}

		back()
		r.At(toLifecycle)
	})
}
