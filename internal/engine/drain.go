// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// drain evicts the workloads from a cordoned node, which respects their budgets, and waits until they are gone.
func (u *nodeUpgrade) drain(ctx context.Context) error {
	policy := u.run.request.Policy.Drain
	if !policy.Enabled {
		return nil
	}

	elsewhere, err := u.roomElsewhere(ctx)
	if err != nil {
		return err
	}

	if !elsewhere {
		u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "no other node can take workloads, so the node is only cordoned and its pods stop with it"})

		return nil
	}

	u.enterStep(cluster.StepDrain, "")

	left, err := u.evictAll(ctx)

	var unguarded *say.GuardError

	switch {
	case err == nil:
		return u.awaitVolumes(ctx)
	case u.untimed.Err() != nil || !errors.Is(err, context.DeadlineExceeded), errors.As(err, &unguarded):
		return err
	case ctx.Err() != nil && len(left) > 0:
		return &say.DrainError{Timeout: u.run.request.Policy.NodeTimeout.String(), Left: left, OfNode: true}
	case ctx.Err() != nil:
		return err
	}

	if policy.OnTimeout == cluster.DrainDelete {
		if err := u.deleteAll(ctx); err != nil {
			return err
		}

		return u.awaitVolumes(ctx)
	}

	return &say.DrainError{Timeout: policy.Timeout.String(), Left: left}
}

// roomElsewhere reports whether another node could take a pod, now or once this run is done with it: until then,
// the budgets prevent the eviction.
func (u *nodeUpgrade) roomElsewhere(ctx context.Context) (bool, error) {
	var nodes []cluster.KubeNode

	err := u.run.engine.wait(ctx, u.step.Node, "the list of nodes", func(ctx context.Context) (bool, string, error) {
		var err error

		nodes, err = u.run.leased.nodesNow(ctx, u.step.Node)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		return true, "", nil
	})

	others, now := u.run.shared.beside(u.step.Node), u.run.engine.clock.Now()

	return slices.ContainsFunc(nodes, func(n cluster.KubeNode) bool {
		_, busy := others[n.Name]

		// One that was Ready a moment ago may be so again at once, and pods wait for it.
		n.Ready = n.Ready || now.Sub(n.ReadySince) < cluster.GoneAfter

		// A cordon that an earlier run left is taken away by another upgrade of this run.
		left := n.Ready && n.CordonedBy != "" && !n.ExcludesWorkloads && !u.run.policy().Holds(n.Name)

		return n.Name != u.step.Node && (left || rule.RoomOn(n, u.run.engine.runID, busy) != rule.NoRoom)
	}), err
}

// evictAll requests evictions until no pod is left or the drain times out. It returns the pods that are left and
// why.
func (u *nodeUpgrade) evictAll(ctx context.Context) (left map[string]string, err error) {
	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, u.run.request.Policy.Drain.Timeout)
	defer cancel()

	err = u.removeUntilEmpty(bounded, func(ctx context.Context, pods []cluster.Pod) error {
		left = map[string]string{}

		for _, pod := range pods {
			left[pod.String()] = say.ShuttingDown
		}

		for _, pod := range pods {
			if pod.Terminating {
				continue
			}

			if err := u.run.leased.evict(ctx, pod); err != nil {
				left[pod.String()] = err.Error()

				// Without the lease no other pod can be evicted either.
				if errors.Is(err, errRefusedByLease) {
					return permanentOnly(err)
				}

				// A pod that can never be evicted is deleted in the end, if the policy says so.
				if deletes := u.run.request.Policy.Drain.OnTimeout == cluster.DrainDelete; permanentOnly(err) != nil && !(deletes && errors.Is(err, cluster.ErrOverlap)) {
					return fmt.Errorf("evicting pod %s: %w", pod, err)
				}
			}
		}

		return nil
	})

	return left, err
}

// deleteAll deletes the pods that could not be evicted in time, without regard to budgets, as the configuration
// requested.
func (u *nodeUpgrade) deleteAll(ctx context.Context) error {
	u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "the drain timed out, deleting the pods that are left, as drain.on_timeout says"})

	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, u.run.request.Policy.Drain.Timeout)
	defer cancel()

	return u.removeUntilEmpty(bounded, func(ctx context.Context, pods []cluster.Pod) error {
		for _, pod := range pods {
			if pod.Terminating {
				continue
			}

			switch err := u.run.leased.deletePod(ctx, pod); {
			case errors.Is(err, errRefusedByLease):
				return permanentOnly(err)
			case permanentOnly(err) != nil:
				return fmt.Errorf("deleting pod %s: %w", pod, err)
			}
		}

		return nil
	})
}

// removeUntilEmpty calls remove for the pods of the node until none is left.
func (u *nodeUpgrade) removeUntilEmpty(ctx context.Context, remove func(context.Context, []cluster.Pod) error) error {
	return u.run.engine.wait(ctx, u.step.Node, "the pods to leave "+u.step.Node, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := u.keepCordoned(ctx); err != nil || !ok {
			return false, seen, err
		}

		pods, err := u.run.engine.kubernetes.PodsToEvict(ctx, u.step.Node)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		if len(pods) == 0 {
			return true, "", nil
		}

		if err := remove(ctx, pods); err != nil {
			return false, "", err
		}

		abandoned, err := u.abandoned(ctx, pods)

		return abandoned, fmt.Sprintf("%d pods are left", len(pods)), err
	})
}

// volumesMost is the longest time that a drain waits for volumes. A driver detaches a volume within seconds of
// its last pod. If the node reboots before that, its kubelet no longer reports that the volume is unused, and
// Kubernetes detaches it after 6 minutes at the earliest (maxWaitForUnmountDuration), while pods elsewhere wait
// for it.
const volumesMost = 2 * time.Minute

// awaitVolumes waits until the only volumes attached to the node are those that pods on it use. It detaches no
// volume, and deletes no object.
func (u *nodeUpgrade) awaitVolumes(ctx context.Context) error {
	policy := u.run.request.Policy.Drain
	if policy.Volumes == cluster.IgnoreVolumes {
		return nil
	}

	most := min(volumesMost, policy.Timeout)
	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, most)

	defer cancel()

	var (
		left []cluster.Volume
		// uncordoned is why the cordon could not be kept, without which the drain must not go on.
		uncordoned error
	)

	err := u.run.engine.wait(bounded, u.step.Node, "the volumes to leave "+u.step.Node, func(ctx context.Context) (bool, string, error) {
		found, err := u.run.engine.kubernetes.VolumesLeft(ctx, u.step.Node)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		left = found
		if len(left) == 0 {
			return true, "", nil
		}

		ok, seen, err := u.keepCordoned(ctx)
		if err != nil || !ok {
			uncordoned = err

			return false, seen, err
		}

		return false, "still attached: " + say.VolumeNames(left), nil
	})

	stuck := &say.VolumesError{After: most, Left: left, Err: err}

	switch {
	case err == nil || ctx.Err() != nil || uncordoned != nil:
		return err
	case policy.Volumes == cluster.RequireVolumes:
		return stuck
	}

	warning := cluster.Event{
		Kind: cluster.EventWarning, Node: u.step.Node,
		Text: stuck.Error() + ". The upgrade goes on, and pods on other nodes may have to wait for these volumes.",
	}

	if errors.Is(err, cluster.ErrDenied) {
		warning.Text = "whether volumes are still attached to the node is not known: " + err.Error() + ". Allow it, or set drain.wait_for_volumes = false."
		// What is denied on one node is denied on all.
		u.run.engine.emitOnce(cluster.CheckDrain+" volumes", warning)

		return nil
	}

	u.run.engine.emit(warning)

	return nil
}

// keepCordoned keeps a node cordoned while it is being drained: otherwise pods come back as quickly as they are
// evicted. If somebody takes the cordon away, it is set once more, because that may have been a mistake; the
// second time is taken as intended.
func (u *nodeUpgrade) keepCordoned(ctx context.Context) (ok bool, seen string, err error) {
	node, err := u.run.engine.kubernetes.Node(ctx, u.step.Node)

	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return true, "", nil
	case err != nil:
		return false, err.Error(), permanentOnly(err)
	case node.Unschedulable:
		return true, "", nil
	}

	lifted := &say.UncordonedError{By: node.LastWriter}
	if u.cordonRemoved {
		return false, "", lifted
	}

	if err := u.cordonGuarded(ctx); err != nil {
		return false, "", err
	}

	u.cordonRemoved = true
	u.run.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "somebody uncordoned the node while it was being drained" + lifted.Who() + "; it was cordoned again"})

	return true, "", nil
}

// abandoned reports whether all pods are terminating and the node has not been Ready for a minute: its kubelet then
// confirms no deletion, and waiting for that might never end.
func (u *nodeUpgrade) abandoned(ctx context.Context, pods []cluster.Pod) (bool, error) {
	if slices.ContainsFunc(pods, func(p cluster.Pod) bool { return !p.Terminating }) {
		return false, nil
	}

	node, err := u.run.engine.kubernetes.Node(ctx, u.step.Node)

	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return false, nil
	case err != nil:
		return false, permanentOnly(err)
	default:
		return !node.Ready && u.run.engine.clock.Now().Sub(node.ReadySince) > awayAfter, nil
	}
}
