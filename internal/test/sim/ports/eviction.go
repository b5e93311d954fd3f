// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
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
	node, found, covered := c.find(asked)
	exhausted := covered.exhausted
	detail := who.detail(asked)

	switch {
	case !found:
		detail["outcome"] = "gone"
		c.record(node, history.KindEvict, detail)

		return nil
	case len(covered.by) > 1:
		detail["outcome"], detail["budget"] = "blocked", strings.Join(covered.by, ", ")
		c.record(node, history.KindEvict, detail)

		return fmt.Errorf("unable to evict pod %s: %w: %w: Kubernetes evicts no pod that two of them cover; leave it to one of them",
			asked, cluster.ErrRefused, cluster.ErrOverlap)
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
	node, found, covered := c.find(asked)
	if !found {
		return
	}

	detail := who.detail(asked)
	if covered.exhausted != "" {
		detail["budget"] = covered.exhausted
	}

	c.record(node, history.KindDelete, detail)
	c.terminate(asked)
}

// cover is what the budgets of a pod say.
type cover struct {
	// by are their names.
	by []string
	// exhausted is one that has nothing to give, empty where all have.
	exhausted string
}

// find tells where a pod runs and which of its budgets has nothing to give.
func (c *Cluster) find(asked cluster.Pod) (node string, found bool, covered cover) {
	for _, state := range c.world.Nodes() {
		if asked.Name == blockerName(state.Name) {
			name := namespaceWorkload + "/" + asked.Name

			return state.Name, c.blocked(state.Name), cover{by: []string{name}, exhausted: name}
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.settle()

	index := slices.IndexFunc(c.pods, func(p *pod) bool { return p.uid == asked.UID })
	if index < 0 {
		return "", false, cover{}
	}

	asking := c.pods[index]
	if !asking.goneAt.IsZero() {
		// It is on its way already, and no budget is asked.
		return asking.node, true, cover{}
	}

	for _, budget := range c.budgets {
		if budget.App != asking.App {
			continue
		}

		covered.by = append(covered.by, budget.String())
		if c.exhausted(budget, asking) {
			covered.exhausted = budget.String()
		}
	}

	return asking.node, true, covered
}

// exhausted tells whether a budget has nothing to give for a pod. One that does
// not serve costs nothing, and may go while the others are enough, be that an old
// number.
func (c *Cluster) exhausted(budget *Budget, asking *pod) bool {
	serves := c.serves(asking)

	switch {
	case !serves && budget.AlwaysAllow:
		return false
	case budget.Stale, budget.Unsynced != "" && serves:
		return true
	case serves:
		return c.healthy(budget.App)-1 < budget.MinAvailable
	default:
		return c.healthy(budget.App) < budget.MinAvailable
	}
}

// healthy counts the pods of an app that serve.
func (c *Cluster) healthy(app string) int {
	count := 0

	for _, p := range c.pods {
		if p.App == app && c.serves(p) {
			count++
		}
	}

	return count
}

func (c *Cluster) serves(p *pod) bool {
	object := c.nodes[p.node]

	return p.goneAt.IsZero() && !p.NotReady && object != nil && object.ready && !c.now().Before(p.readyAt)
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

		if p.bound || p.Unmanaged {
			return
		}

		c.startPod(p.PodSpec, c.place(p.PodSpec), c.now().Add(startTime))

		return
	}
}
