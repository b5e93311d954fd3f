// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"fmt"
	"slices"
	"strings"
)

// rollingBack is both the phase of the journal and the status in annotations, phaseRolledBack the phase that
// follows it.
const (
	rollingBack     = "rolling-back"
	phaseRolledBack = "rolled-back"
)

// cures reports whether a call to go down is to help a node whose new system does not become healthy: a rollback,
// or a reboot after one.
func (c *Checker) cures(n *node, method string) bool {
	return method == methodRollback || method == methodReboot && c.phases[n.name] == rollingBack
}

// mayRollBack reports whether a node may run an older version again to which it did not fall back by itself: the
// journal says so, and it is the first time since our installer ran there.
func (c *Checker) mayRollBack(n *node, talos string) bool {
	if !parse(talos).Less(parse(n.talos)) {
		return false
	}

	may := n.returnable && c.phases[n.name] == rollingBack
	n.returnable = false

	return may
}

// checkReverted asserts S4 for a rollback: a second one in the same boot starts the new system again. One that is
// recorded late belongs to an earlier boot.
func (c *Checker) checkReverted(n *node, late bool) {
	if n.reverted {
		c.violate(S4, n.name, "rolled back a second time since its boot %s, which undoes the first", n.bootID)
	}

	n.reverted = !late
}

// publishing is how many seconds a publisher may need to write what was true when it was told, while API servers
// are away.
const publishing = 60

// checkRollingBack asserts S8 for a status: some node is being rolled back, or was a moment ago.
func (c *Checker) checkRollingBack(status string) {
	if status != rollingBack {
		return
	}

	for _, phase := range c.phases {
		if phase == rollingBack {
			return
		}
	}

	if c.rolledAt == (moment{}) || c.at-c.rolledAt.at > publishing {
		c.violate(S8, "", "talos-status says %s, but no node is being rolled back", status)
	}
}

// checkFailedNodes asserts S8 for the list of nodes that failed.
func (c *Checker) checkFailedNodes(list string) {
	var unknown []string

	// A list that is too long ends with something that is not a name.
	for name := range strings.SplitSeq(strings.TrimSuffix(list, ",..."), ",") {
		if n := c.nodes[strings.TrimSpace(name)]; n == nil || !n.introduced {
			unknown = append(unknown, fmt.Sprintf("%q", name))
		}
	}

	slices.Sort(unknown)

	if len(unknown) > 0 {
		c.violate(S8, "", "failed-nodes says %q, but no node is called %s", list, strings.Join(unknown, ", "))
	}
}
