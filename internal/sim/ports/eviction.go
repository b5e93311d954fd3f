// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// actor is who asks.
type actor struct{ by, client string }

func (a actor) detail(pod cluster.Pod) map[string]string {
	detail := map[string]string{"namespace": pod.Namespace, "pod": pod.Name, "by": a.by}
	if a.client != "" {
		detail["client"] = a.client
	}

	return detail
}

// evict is an eviction request.
func (c *Cluster) evict(who actor, asked cluster.Pod) error {
	node, found, exhausted := c.find(asked)
	detail := who.detail(asked)

	switch {
	case !found:
		detail["outcome"] = "gone"
		c.record(node, history.KindEvict, detail)

		return nil
	case exhausted != "":
		detail["outcome"], detail["budget"] = "blocked", exhausted
		c.record(node, history.KindEvict, detail)

		if asked.Name == blockerName(node) {
			c.tell(node, exhausted)
		}

		return fmt.Errorf("unable to evict pod %s: %w: %s", asked, cluster.ErrBudget, exhausted)
	}

	detail["outcome"] = "evicted"
	c.record(node, history.KindEvict, detail)
	c.terminate(asked)

	return nil
}

// tell records, once, that the scripted budget has blocked a drain.
func (c *Cluster) tell(node, budget string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if _, told := c.struck[node]; told {
		return
	}

	c.struck[node] = false
	c.record(node, history.KindFault, map[string]string{
		"step": string(model.StepDrain), "effect": string(model.EffectBlockedByBudget), "info": budget,
	})
}

// delete is the deletion of a pod without asking its budgets.
func (c *Cluster) delete(who actor, asked cluster.Pod) {
	node, found, exhausted := c.find(asked)
	if !found {
		return
	}

	detail := who.detail(asked)
	if exhausted != "" {
		detail["budget"] = exhausted
	}

	c.record(node, history.KindDelete, detail)
	c.terminate(asked)
}

// find tells where a pod runs and which of its budgets has nothing to give.
func (c *Cluster) find(asked cluster.Pod) (node string, found bool, exhausted string) {
	for _, state := range c.world.Nodes() {
		if asked.Name == blockerName(state.Name) {
			blocked := c.blocked(state.Name)

			return state.Name, blocked, namespaceWorkload + "/" + asked.Name
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.settle()

	index := slices.IndexFunc(c.pods, func(p *pod) bool { return p.uid == asked.UID })
	if index < 0 {
		return "", false, ""
	}

	asking := c.pods[index]

	// A pod that does not serve costs its budget nothing, and may go while the
	// others are enough.
	cost := 0
	if c.serves(asking) {
		cost = 1
	}

	for _, budget := range c.budgets {
		if budget.App == asking.app && asking.goneAt.IsZero() && c.healthy(budget.App)-cost < budget.MinAvailable {
			exhausted = budget.String()
		}
	}

	return asking.node, true, exhausted
}

// healthy counts the pods of an app that serve.
func (c *Cluster) healthy(app string) int {
	count := 0

	for _, p := range c.pods {
		if p.app == app && c.serves(p) {
			count++
		}
	}

	return count
}

func (c *Cluster) serves(p *pod) bool {
	object := c.nodes[p.node]

	return p.goneAt.IsZero() && object != nil && object.ready && !c.now().Before(p.readyAt)
}

// terminate stops a pod and starts another one in its place.
func (c *Cluster) terminate(asked cluster.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, state := range c.world.Nodes() {
		if asked.Name == blockerName(state.Name) {
			c.struck[state.Name] = true

			return
		}
	}

	for _, p := range c.pods {
		if p.uid != asked.UID || !p.goneAt.IsZero() {
			continue
		}

		p.goneAt = c.now().Add(graceTime)

		if p.bound {
			return
		}

		c.startPod(p.app, c.place(), c.now().Add(startTime))

		return
	}
}
