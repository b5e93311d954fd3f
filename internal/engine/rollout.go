// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// rolloutsMost is how often something may be seen to have moved before that no
// longer gives a rollout new time: a thousand nodes with two pods each, and not
// pods that flap for ever.
const rolloutsMost = 2000

// awaitDaemonSets waits until what was applied runs everywhere, if that is asked for.
// Pods of a DaemonSet are replaced one after the other, so the time begins anew
// whenever something is seen to have moved.
func (r *run) awaitDaemonSets(ctx context.Context, step plan.Step) error {
	timeout := r.request.Policy.Kubernetes.Manifests.Timeout
	if timeout <= 0 {
		return nil
	}

	r.emit(cluster.Event{Kind: cluster.EventNodeStep, Component: cluster.Manifests, Step: cluster.StepRollout})

	seen, standing, last := map[string]bool{}, false, ""

	for again := rolloutsMost; ; again-- {
		bounded, cancel := r.engine.clock.WithTimeout(ctx, timeout)
		moved := false

		err := r.engine.wait(bounded, "", "the bootstrap manifests to be rolled out", func(ctx context.Context) (bool, string, error) {
			lacking, answered, err := r.notRolledOut(ctx, step)
			if err != nil || !answered {
				return false, lacking, err
			}

			// What was seen before is no progress, or a flapping pod would have all
			// the time in the world.
			moved = standing && !seen[lacking]
			seen[lacking], standing, last = true, true, lacking

			return lacking == "" || moved, lacking, nil
		})

		cancel()

		if err != nil || !moved || seen[""] {
			return err
		}

		if again == 0 || r.deadlinePassed() {
			return fmt.Errorf("the bootstrap manifests are still being rolled out: %w; last seen: %s", ErrDeadline, last)
		}
	}
}

// notRolledOut is what is not rolled out yet, empty when everything is.
func (r *run) notRolledOut(ctx context.Context, step plan.Step) (text string, answered bool, err error) {
	snapshot, err := r.engine.observe(ctx, func(cluster.Node) bool { return true })
	if err != nil {
		return err.Error(), false, permanentOnly(err)
	}

	renderer, _, missing := r.renders(snapshot)
	if missing != "" {
		return missing, false, nil
	}

	unready, err := r.engine.manifests.Unready(ctx, renderer.Address)
	if err != nil {
		return err.Error(), false, permanentOnly(err)
	}

	unready = append(unready, r.oldProxies(snapshot, step)...)
	if away := notReady(snapshot); len(unready) > 0 && len(away) > 0 {
		unready = append(unready, "a rollout that replaces one pod at a time waits for nodes that are not Ready: "+strings.Join(away, ", "))
	}

	return strings.Join(unready, "; "), true, nil
}

func notReady(snapshot cluster.Snapshot) []string {
	var away []string

	for _, node := range snapshot.Managed() {
		if node.Kube != nil && !node.Kube.Ready {
			away = append(away, node.Name)
		}
	}

	return away
}

// oldProxies are the nodes on which kube-proxy does not run what the hop leads
// to. Where Talos alone was moved that is none. Of nodes that are not there, or
// to be left alone, nothing is expected.
func (r *run) oldProxies(snapshot cluster.Snapshot, step plan.Step) []string {
	var old []string

	for _, node := range snapshot.Managed() {
		running, known := node.Versions[cluster.Proxy]
		if !known || !running.Less(step.To) || step.From.Equal(step.To) {
			continue
		}

		if node.Kube != nil && node.Kube.Ready && !r.request.Policy.Holds(node.Name) {
			old = append(old, fmt.Sprintf("kube-proxy on %s runs %s", node.Name, running))
		}
	}

	return old
}
