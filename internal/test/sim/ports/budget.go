// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"cmp"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Budget is a PodDisruptionBudget over the pods of one app.
type Budget struct {
	App string
	// Name is that of the app when empty.
	Name string
	// MinAvailable is how many of its pods must stay ready.
	MinAvailable int
	// Stale budgets have numbers that were never worked out. They give nothing.
	Stale bool
	// Unsynced is why the numbers cannot be worked out any more: the budget gives
	// nothing, and the others are those of before. Empty where they can.
	Unsynced string
	// AlwaysAllow lets pods go that are not ready, whatever the numbers say.
	AlwaysAllow bool
}

// String is the name that the history shows.
func (b *Budget) String() string { return namespaceWorkload + "/" + cmp.Or(b.Name, b.App) }

// AddBudget puts one more budget over the pods of an app.
func (c *Cluster) AddBudget(budget Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.cover(budget.App, &budget)
}

// RemoveBudget takes all budgets of an app away.
func (c *Cluster) RemoveBudget(app string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.budgets = slices.DeleteFunc(c.budgets, func(b *Budget) bool { return b.App == app })
}

// cover puts a budget, if there is one, over the pods of an app; with the lock
// held.
func (c *Cluster) cover(app string, budget *Budget) {
	if budget == nil {
		return
	}

	added := *budget
	added.App = app
	c.budgets = append(c.budgets, &added)
}

// kubeBudget is a budget as its status shows it; with the lock held.
func (c *Cluster) kubeBudget(budget *Budget) cluster.Budget {
	shown := cluster.Budget{
		Namespace: namespaceWorkload, Name: cmp.Or(budget.Name, budget.App), Stale: budget.Stale, AlwaysAllow: budget.AlwaysAllow,
		Unsynced: budget.Unsynced,
	}

	expected := 0

	for _, p := range c.pods {
		if p.App != budget.App {
			continue
		}

		shown.Pods = append(shown.Pods, p.uid)

		if p.goneAt.IsZero() {
			expected++
		}
	}

	if !budget.Stale {
		shown.Healthy, shown.Desired, shown.Expected = c.healthy(budget.App), budget.MinAvailable, expected
		if budget.Unsynced == "" {
			shown.Allowed = max(0, shown.Healthy-shown.Desired)
		}
	}

	return shown
}
