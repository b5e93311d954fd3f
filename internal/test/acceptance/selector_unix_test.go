// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// labelled is a roll in which labels decide which nodes are held, which are first, and how many of a pool may be
// unavailable.
const labelled = `talos_version   = "1.13.4"
max_unavailable = "2"
canary_selector = "upgrade=first"

selector_overrides = [{ selector = "upgrade in (hold, later)", hold = true }]

pools = {
  storage = { selector = "pool=storage", max_unavailable = "1" }
}`

// TestAccLabelsDecide labels nodes with kubectl, before a roll and in the middle of it.
func TestAccLabelsDecide(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 6, Talos: talosModern})
	s.policy = []checker.Option{checker.MaxUnavailable(2), checker.Held("worker-5", "worker-3"), checker.Canary("worker-4")}

	k := newKubectl(t, s.Kubeconfig())
	k.says("kubectl label node worker-5 upgrade=hold")
	k.says("kubectl label node worker-4 upgrade=first")
	k.says("kubectl label node worker-0 worker-1 worker-2 pool=storage")

	w := newWorkspace(t)
	w.write(use(s), labelled)

	planned := w.plan().mustSucceed(2)
	planned.mustWarn("Rolling upgrade of 6 of 7 nodes, 1 held")
	planned.mustWarn(`Held by selector_overrides "upgrade in (hold,later)" and left alone: worker-5.`)
	planned.mustWarn("worker-4 (canary)")
	planned.mustWarn("Of the 3 workers in the pool storage no more than 1 at a time.")

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("worker-4 being installed", func(e history.Event) bool { return e.Kind == history.KindInstall && e.Node == "worker-4" })
	k.says("kubectl label node worker-3 upgrade=later")

	run.wait().mustSucceed(0).mustWarn("worker-3 is held from now on")
	s.untouched("worker-5")
	s.untouched("worker-3")
	s.times(map[string]int{"cp-0": 1, "worker-0": 1, "worker-1": 1, "worker-2": 1, "worker-4": 1})

	status, _ := w.attributes()["status"].(map[string]any)
	if talos, _ := status["talos"].(map[string]any); talos["lowest"] != talosTarget || talos["status"] != "completed" {
		t.Errorf("the status counts held nodes: %v", status)
	}

	w.plan().mustSucceed(0)

	// storage has the turns of the pool, from cordon to uncordon.
	storage := map[string]bool{}

	for _, event := range s.history() {
		if event.Kind != history.KindCordon || !slices.Contains([]string{"worker-0", "worker-1", "worker-2"}, event.Node) {
			continue
		}

		set(storage, event.Node, event.Detail["unschedulable"] == "true")

		if len(storage) > 1 {
			t.Errorf("%d workers of the pool were out of service at a time: %v", len(storage), storage)
		}
	}

	// A node that is no longer held has to be upgraded.
	k.says("kubectl label node worker-3 upgrade-")
	w.plan().mustSucceed(2).mustWarn("Rolling upgrade of 1 of 7 nodes, 1 held")
}

// TestAccLabelsThatContradict: what is wrong with selectors has to be reported by validate if it can be known there,
// and otherwise by the plan. A selector that matches nothing has to be a warning.
func TestAccLabelsThatContradict(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	k := newKubectl(t, s.Kubeconfig())
	w := newWorkspace(t)

	w.write(use(s), "talos_version = \"1.13.4\"\npools = { gpu = { selector = \"pool==gpu=\", max_unavailable = \"1\" } }")
	w.plan().mustFail(`pools["gpu"].selector is "pool==gpu="`)

	w.write(use(s), `talos_version = "1.13.4"
pools = {
  a = { selector = "pool=a", max_unavailable = "1" }
  b = { selector = "disk", max_unavailable = "1" }
}`)
	w.plan().mustSucceed(2).mustWarn(`no worker of the cluster has labels that the selector "pool=a" matches`)

	k.says("kubectl label node worker-1 pool=a disk=nvme")
	w.plan().mustFail("worker-1", "The node is in more than one pool: a (pool=a), b (disk)")
	s.unchanged()
}

// TestAccRollOfPoolsIsData wants the data source to have the pool of each step.
func TestAccRollOfPoolsIsData(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 3, Talos: talosModern})
	k := newKubectl(t, s.Kubeconfig())
	k.says("kubectl label node worker-1 pool=storage")
	k.says("kubectl label node worker-2 upgrade=later")

	w := newWorkspace(t)
	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n\ndata \"talosupgrade_preflight\" \"roll\" {\n" + labelled + "\n}\n")

	file := filepath.Join(w.dir, "roll.tfplan")
	w.run("plan", "-json", "-input=false", "-out="+file).mustSucceed(0)

	roll, steps := w.roll(file), []string(nil)
	for _, step := range roll.Steps {
		steps = append(steps, step.Node+" "+step.Pool)
	}

	if want := []string{"worker-0 ", "worker-1 storage", "cp-0 "}; !slices.Equal(steps, want) || !slices.Equal(roll.Held, []string{"worker-2"}) {
		t.Errorf("the steps are %q and %q is held, want %q and worker-2", steps, roll.Held, want)
	}
}
