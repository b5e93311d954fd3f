// SPDX-License-Identifier: MPL-2.0

package health_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

func TestBudget_EvictionsThatFailAreForeseen(t *testing.T) {
	t.Parallel()

	many := newYard()
	for i := range 12 {
		many.pod("worker-1", fmt.Sprintf("solo-%02d", i), func(p *cluster.WorkloadPod) { p.Owner, p.Replicas = fmt.Sprintf("ReplicaSet/solo-%02d", i), 1 })
		many.workloads.Pods[i].CPU = 1
	}

	many.budget("all", 0, 12, 12, 12)
	many.last(func(b *cluster.Budget) {
		for i := range 12 {
			b.Pods = append(b.Pods, fmt.Sprintf("uid-solo-%02d", i))
		}
	})

	check(t, map[string]sight{
		"a single replica behind minAvailable 1 never goes": {
			yard:     newYard().pod("worker-2", "db-0", func(p *cluster.WorkloadPod) { p.Owner, p.Replicas = "StatefulSet/db", 1 }).budget("db", 0, 1, 1, 1, "db-0"),
			severity: cluster.Observed, node: "worker-2",
			says: []string{"pod shop/db-0 cannot be evicted", "budget shop/db wants 1 healthy of 1 pods", "never allows an eviction", "StatefulSet/db has 1", "minAvailable", "maxUnavailable", "kubectl -n shop edit pdb db"},
		},
		"a pod elsewhere is not healthy": {
			yard:    newYard().pod("worker-1", "web-1").pod("worker-3", "web-2", unready, staying).budget("web", 0, 2, 2, 3, "web-1", "web-2"),
			passing: true, severity: cluster.Observed, node: "worker-1",
			says: []string{"cannot be evicted now", "budget shop/web wants 2 healthy pods, and 2 of 3 are", "not Ready: shop/web-2", "Bring its pods back to health first"},
		},
		"a pod that is not Ready is held back while too few are healthy": {
			yard:    newYard().pod("worker-1", "web-1", unready).budget("web", 0, 1, 2, 3, "web-1"),
			passing: true, severity: cluster.Observed, node: "worker-1", says: []string{"cannot be evicted now"},
		},
		"budgets over one pod": {
			yard:     newYard().pod("worker-1", "web-1").budget("web", 1, 3, 2, 3, "web-1").budget("everything", 5, 9, 4, 9, "web-1"),
			severity: cluster.Observed, node: "worker-1", says: []string{"several budgets cover one pod", "shop/web, shop/everything", "selectors"},
		},
		"a budget whose numbers are old": {
			yard:    newYard().pod("worker-1", "web-1").budget("web", 1, 3, 2, 3, "web-1").last(func(b *cluster.Budget) { b.Stale = true }),
			passing: true, severity: cluster.Observed, node: "worker-1", unknown: true, says: []string{"not known", "budget shop/web", "out of date", "describe pdb web"},
		},
		"pods of one controller on several nodes are one finding": {
			yard: newYard().pod("worker-1", "web-1").pod("worker-1", "web-2").pod("worker-2", "web-3").budget("web", 0, 3, 3, 3, "web-1", "web-2", "web-3"),
			node: "worker-1", severity: cluster.Observed, says: []string{"3 pods of ReplicaSet/web (such as shop/web-1) cannot", "the same on worker-2 ("},
		},
		"of many only some are named": {yard: many, node: "worker-1", severity: cluster.Observed, says: []string{"pod shop/solo-00, ", "pod shop/solo-09 and 2 more cannot"}},
		"they are deleted after the timeout where that is wanted": {
			yard: newYard().pod("worker-1", "web-1").budget("web", 0, 3, 3, 3, "web-1").change(func(y *yard) { y.policy.OnTimeout = cluster.DrainDelete }),
			node: "worker-1", severity: cluster.Advice, attribute: "drain", says: []string{"deleted after 5m0s", "drain.on_timeout", "run more replicas"},
		},
		"an earlier run may be why a budget is short": {
			yard: newYard().pod("worker-1", "web-1").pod("worker-3", "web-2", unready).budget("web", 0, 2, 2, 3, "web-1", "web-2").
				change(func(y *yard) { y.node("worker-2").Unschedulable, y.node("worker-2").CordonedBy = true, "run-1" }),
			node: "worker-1", passing: true, severity: cluster.Advice, says: []string{"stopped while it drained worker-2", "passes by itself", "bring its pods back"},
		},
		"a pod that waits for something else than a node is told of": {
			yard: newYard().pod("worker-1", "web-1").pod("worker-3", "web-2", unready).budget("web", 0, 2, 2, 3, "web-1", "web-2").
				change(func(y *yard) { y.node("worker-2").Unschedulable, y.node("worker-2").CordonedBy = true, "run-1" }),
			node: "worker-1", passing: true, severity: cluster.Advice, says: []string{"stopped while it drained worker-2"},
		},
		"a node that the roll brings back may be why a budget is short": {
			yard: newYard().pod("worker-1", "web-1").pod("worker-2", "web-2", unready).budget("web", 0, 2, 2, 3, "web-1", "web-2").
				change(func(y *yard) { y.node("worker-2").Ready = false; y.drained = []string{"worker-2", "worker-1"} }),
			node: "worker-1", passing: true, severity: cluster.Advice, says: []string{"worker-2 is not Ready, which the roll brings back", "bring its pods back"},
		},
		"a node that is left as it is does not": {
			yard: newYard().pod("worker-1", "web-1").pod("worker-2", "web-2", unready).budget("web", 0, 2, 2, 3, "web-1", "web-2").
				change(func(y *yard) { y.node("worker-2").Ready = false; y.drained = []string{"worker-1"} }),
			node: "worker-1", passing: true, severity: cluster.Observed, says: []string{"cannot be evicted now"},
		},
		"an earlier run is no reason for a budget that never gives": {
			yard: newYard().pod("worker-1", "web-1").budget("web", 0, 3, 3, 3, "web-1").
				change(func(y *yard) { y.node("worker-2").Unschedulable, y.node("worker-2").CordonedBy = true, "run-1" }),
			node: "worker-1", severity: cluster.Observed, says: []string{"never allows an eviction"},
		},
		"what is not known stays unknown where pods are deleted": {
			yard: newYard().pod("worker-1", "web-1").budget("web", 1, 3, 2, 3, "web-1").last(func(b *cluster.Budget) { b.Stale = true }).
				change(func(y *yard) { y.policy.OnTimeout = cluster.DrainDelete }),
			node: "worker-1", passing: true, severity: cluster.Advice, attribute: "drain", unknown: true,
		},
	})
}

// TestBudget_ThatGivesNothingForAWhileIsTold: a number of minAvailable is compared with
// the pods there are now, which are less than there are to be while one is away.
func TestBudget_ThatGivesNothingForAWhileIsTold(t *testing.T) {
	t.Parallel()

	of := func(owner string, replicas int) func(*cluster.WorkloadPod) {
		return func(p *cluster.WorkloadPod) { p.Owner, p.Replicas = owner, replicas }
	}

	check(t, map[string]sight{
		"one of three is away, of which two have to be there": {
			yard:    newYard().pod("worker-1", "db-0", of("StatefulSet/db", 3)).pod("worker-2", "db-1", of("StatefulSet/db", 3), staying).budget("db", 0, 2, 2, 2, "db-0", "db-1"),
			passing: true, severity: cluster.Observed, node: "worker-1",
			says: []string{"pod shop/db-0 cannot be evicted now", "budget shop/db wants 2 healthy pods, and 2 of 3 are", "Bring its pods back"},
		},
		"one of three is away, of which three have to be there": {
			yard:     newYard().pod("worker-1", "db-0", of("StatefulSet/db", 3)).pod("worker-2", "db-1", of("StatefulSet/db", 3), staying).budget("db", 0, 2, 3, 2, "db-0", "db-1"),
			severity: cluster.Observed, node: "worker-1", says: []string{"wants 3 healthy of 3 pods, so it never allows an eviction", "StatefulSet/db has 3"},
		},
		"the controllers of all its pods count": {
			yard: newYard().pod("worker-1", "db-0", of("StatefulSet/db", 1)).pod("worker-2", "web-1", of("ReplicaSet/web", 2), staying).pod("worker-2", "own", unowned, staying).
				budget("all", 0, 3, 3, 3, "db-0", "web-1", "own"),
			passing: true, severity: cluster.Observed, node: "worker-1", says: []string{"wants 3 healthy pods, and 3 of 4 are"},
		},
		"each of them once": {
			yard: newYard().pod("worker-1", "db-0", of("StatefulSet/db", 2)).pod("worker-2", "db-1", of("StatefulSet/db", 2), staying).pod("worker-2", "own", unowned, staying, leaving).
				budget("all", 0, 2, 2, 2, "db-0", "db-1", "own"),
			severity: cluster.Observed, node: "worker-1", says: []string{"wants 2 healthy of 2 pods, so it never"},
		},
		"one of which nobody knows how many it wants": {
			yard:     newYard().pod("worker-1", "own-0", of("Database/own", 0)).budget("own", 0, 1, 1, 1, "own-0"),
			severity: cluster.Observed, node: "worker-1", says: []string{"wants 1 healthy of 1 pods, so it never"},
		},
		"it gave one a moment ago": {
			yard:    newYard().pod("worker-1", "web-1").budget("web", 0, 3, 2, 3, "web-1"),
			passing: true, severity: cluster.Observed, node: "worker-1", says: []string{"cannot be evicted now", "budget shop/web has just allowed all the evictions that it can", "describe pdb web"},
		},
		"its pods are so new that it has counted none": {
			yard:    newYard().pod("worker-1", "web-1").budget("web", 0, 0, 2, 0, "web-1"),
			passing: true, severity: cluster.Observed, node: "worker-1", says: []string{"cannot be evicted now", "budget shop/web has not counted its pods yet", "describe pdb web"},
		},
		"and has them all to be there": {
			yard:     newYard().pod("worker-1", "web-1").budget("web", 0, 0, 3, 0, "web-1"),
			severity: cluster.Observed, node: "worker-1", says: []string{"wants 3 healthy of 3 pods, so it never"},
		},
	})
}

// TestBudget_ThatCannotCountIsTold: a percentage and maxUnavailable count what the
// controllers of the pods want.
func TestBudget_ThatCannotCountIsTold(t *testing.T) {
	t.Parallel()

	const why = "found no controllers for pod \"db-0\""

	unsynced := func(b *cluster.Budget) { b.Unsynced = why }

	check(t, map[string]sight{
		"the controller has no scale": {
			yard:     newYard().pod("worker-1", "db-0").budget("db", 0, 3, 2, 3, "db-0").last(unsynced),
			severity: cluster.Observed, node: "worker-1",
			says: []string{"pod shop/db-0 cannot be evicted", "budget shop/db allows no eviction", "could not be worked out: " + why + " (check", "Set its minAvailable to a number", "scale subresource", "kubectl -n shop edit pdb db"},
		},
		"whatever its numbers say": {
			yard: newYard().pod("worker-1", "db-0").budget("db", 2, 3, 1, 3, "db-0").last(unsynced), severity: cluster.Observed, node: "worker-1", says: []string{why},
		},
		"from the beginning": {
			yard: newYard().pod("worker-1", "db-0").budget("db", 0, 0, 0, 0, "db-0").last(unsynced).last(func(b *cluster.Budget) { b.Stale = true }), severity: cluster.Observed, node: "worker-1", says: []string{why},
		},
		"a pod that is not Ready is held back too": {
			yard: newYard().pod("worker-1", "db-0", unready).budget("db", 0, 1, 2, 3, "db-0").last(unsynced), severity: cluster.Observed, node: "worker-1", says: []string{why},
		},
		"no earlier run is the reason": {
			yard: newYard().pod("worker-1", "db-0").budget("db", 0, 1, 2, 3, "db-0").last(unsynced).
				change(func(y *yard) { y.node("worker-2").Unschedulable, y.node("worker-2").CordonedBy = true, "run-1" }),
			severity: cluster.Observed, node: "worker-1", says: []string{why},
		},
		"they are deleted after the timeout where that is wanted": {
			yard: newYard().pod("worker-1", "db-0").budget("db", 0, 3, 2, 3, "db-0").last(unsynced).change(func(y *yard) { y.policy.OnTimeout = cluster.DrainDelete }),
			node: "worker-1", severity: cluster.Advice, attribute: "drain", says: []string{why, "deleted after 5m0s", "set its minAvailable to a number"},
		},
		"a long reason of several lines is clipped": {
			yard: newYard().pod("worker-1", "db-0").budget("db", 0, 3, 2, 3, "db-0").last(func(b *cluster.Budget) { b.Unsynced = "first\n" + strings.Repeat("x", 2000) + "." }),
			node: "worker-1", severity: cluster.Observed, says: []string{"worked out: first xxx", "xxx… (check"},
		},
		"a reason that is a sentence": {
			yard: newYard().pod("worker-1", "db-0").budget("db", 0, 3, 2, 3, "db-0").last(func(b *cluster.Budget) { b.Unsynced = "No scale." }),
			node: "worker-1", severity: cluster.Observed, says: []string{"worked out: No scale (check"},
		},
	})
}

// TestBudget_OfPodsWithoutAControllerIsForeseen: the pods are worth a warning of
// their own.
func TestBudget_OfPodsWithoutAControllerIsForeseen(t *testing.T) {
	t.Parallel()

	found := newYard().pod("worker-1", "own-0", unowned).budget("own", 0, 1, 0, 0, "own-0").foresee()
	if len(found) != 2 || found[0].Severity != cluster.Observed || found[0].Passing || found[1].Severity != cluster.Advice {
		t.Fatalf("%+v", found)
	}

	for _, part := range []string{"pod shop/own-0 cannot be evicted", "budget shop/own counts only pods of controllers, and finds none", "Set its minAvailable to a number"} {
		if !strings.Contains(found[0].String(), part) {
			t.Errorf("it does not say %q: %s", part, found[0])
		}
	}
}

// TestBudget_ThatCountsNothingIsNamed: a percentage is of what controllers want.
func TestBudget_ThatCountsNothingIsNamed(t *testing.T) {
	t.Parallel()

	found := newYard().pod("worker-1", "debug", unowned).budget("all", 0, 0, 0, 0, "debug").foresee()
	wording.NoteFindings(t, found)

	if !slices.ContainsFunc(found, func(f cluster.Finding) bool {
		return f.Severity == cluster.Observed && strings.Contains(f.Found, "pod shop/debug cannot be evicted: budget shop/all counts only pods of controllers, and finds none")
	}) {
		t.Errorf("got %v", found)
	}
}
