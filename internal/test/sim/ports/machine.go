// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"time"
)

// machines is what machines do in the Kubernetes API during a legacy upgrade.
type machines struct{ cluster *Cluster }

// Cordon implements [model.Kubernetes].
func (m machines) Cordon(_ context.Context, node string, on bool) error {
	c := m.cluster
	if err := c.serving(); err != nil {
		return err
	}

	c.mu.Lock()

	object, found := c.nodes[node]
	if !found || on == object.unschedulable || !on && !object.byMachine {
		c.mu.Unlock()

		return nil
	}

	object.set(on)
	object.byMachine = on
	c.recordCordon(node, on, map[string]string{"by": "machine"})
	c.mu.Unlock()

	c.world.SetUnschedulable(node, on)

	return nil
}

// drainPause is how often a machine looks whether its pods are gone.
const drainPause = 1013 * time.Millisecond

// Drain implements [model.Kubernetes].
func (m machines) Drain(ctx context.Context, node string, timeout time.Duration) error {
	c := m.cluster
	deadline := c.now().Add(timeout)

	for {
		left := 1

		if c.serving() == nil {
			pods := c.podsOn(node)
			left = len(pods)

			for _, pod := range pods {
				if !pod.Terminating {
					// A budget that says no is asked again.
					_ = c.evict(actor{by: "machine"}, pod)
				}
			}
		}

		if left == 0 {
			return nil
		}

		if c.now().After(deadline) {
			return fmt.Errorf("draining %s: %d pods left after %s", node, left, timeout)
		}

		if err := c.world.Clock().Sleep(ctx, drainPause); err != nil {
			return err
		}
	}
}
