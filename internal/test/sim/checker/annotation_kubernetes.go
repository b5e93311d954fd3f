// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const completed = "completed"

// keyManifests is the entry of the journal that is not about a node.
const keyManifests = "manifests"

// counted returns the versions of the components of a node that annotations are about. The pods of kube-proxy are
// among them once they are known to follow: kube-proxy may be disabled, or the run may not sync the manifests. What
// somebody leaves out is not counted.
func (c *Checker) counted(n *node, without ...string) []version.Version {
	var versions []version.Version

	for _, name := range slices.Sorted(maps.Keys(n.parts)) {
		if slices.Contains(without, name) {
			continue
		}

		if running := parse(n.runs(name)); c.speaks(name) && !running.IsZero() {
			versions = append(versions, running)
		}
	}

	return versions
}

func (c *Checker) checkKubernetesCurrent(label, value string) {
	claimed := parse(value)

	for _, n := range c.members() {
		if lowest := version.Lowest(c.counted(n)...); lowest.Less(claimed) && !lowest.IsZero() {
			c.violate(S8, n.name, "%s says %s, but a component of the node runs %s", label, value, lowest)

			return
		}
	}
}

// checkKubernetesProgress asserts that no more nodes are claimed than run any one version with all components of their
// own. The pods of kube-proxy follow all at once, and are only part of what is completed.
func (c *Checker) checkKubernetesProgress(value string) {
	var done, of int
	if _, err := fmt.Sscanf(value, "%d/%d", &done, &of); err != nil {
		c.violate(S8, "", "kubernetes-progress says %q, which is no progress", value)

		return
	}

	counts, total, most := map[string]int{}, 0, 0

	for _, n := range c.members() {
		total++

		versions := c.counted(n, proxy)
		if lowest := version.Lowest(versions...); lowest.Equal(version.Highest(versions...)) {
			counts[lowest.String()]++
			most = max(most, counts[lowest.String()])
		}
	}

	if done > most || done >= of && most < total {
		c.violate(S8, "", "kubernetes-progress says %s, but %d of %d nodes run one version", value, most, total)
	}
}

func (c *Checker) checkKubernetesStatus(label, value string) {
	if value != completed {
		return
	}

	newest := c.highestKubernetes()

	for _, n := range c.members() {
		if lowest := version.Lowest(c.counted(n)...); lowest.Less(newest) {
			c.violate(S8, n.name, "%s says completed, but a component of the node runs %s", label, lowest)
		}

		if busy := n.underway(); len(busy) > 0 {
			c.violate(S8, n.name, "%s says completed while %v restarted", label, busy)
		}
	}

	if c.phases[keyManifests] != "" {
		c.violate(S8, "", "%s says completed, but the manifests are still to be synced", label)
	}
}
