// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// candidate is a node that could take a pod.
type candidate struct {
	name string
	// away is true for a worker if the pod belongs on a control plane.
	away bool
	// siblings is the number of pods of the same controller, all that of all pods.
	siblings, all int
}

// schedule binds a pod to a node if one can take it. Otherwise the pod waits until a node changes.
func (p *play) schedule(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return p.removePod(ctx, pod)
	}

	node := p.choose(pod)
	if node == "" {
		return nil
	}

	err := p.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})

	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}

	if err != nil {
		p.mutex.Lock()
		delete(p.assumed, string(pod.UID))
		p.mutex.Unlock()

		return fmt.Errorf("binding pod %s/%s to %s: %w", pod.Namespace, pod.Name, node, err)
	}

	return nil
}

// choose returns the node with the fewest pods of the same controller, then the fewest pods, and remembers the
// choice until the cache shows it. It returns an empty name if no node fits, or if the pod was bound already.
func (p *play) choose(pod *corev1.Pod) string {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	if p.assumed[string(pod.UID)] != "" {
		return ""
	}

	placed := p.placements()

	var candidates []candidate

	for _, node := range p.nodes.all() {
		if fits(pod, node) {
			candidates = append(candidates, weigh(node, pod, placed[node.Name]))
		}
	}

	if len(candidates) == 0 {
		return ""
	}

	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.name, b.name) })

	// The first control plane stays free, because it is the one that people look at.
	if attached(pod) {
		slices.Reverse(candidates)
	}

	best := slices.MinFunc(candidates, func(a, b candidate) int {
		return cmp.Or(compare(a.away, b.away), cmp.Compare(a.siblings, b.siblings), cmp.Compare(a.all, b.all))
	})

	p.assumed[string(pod.UID)] = best.name

	return best.name
}

// placements returns the pods on each node, with the bindings that the cache does not show yet. The lock is held.
func (p *play) placements() map[string][]*corev1.Pod {
	placed := map[string][]*corev1.Pod{}

	for _, pod := range p.pods.all() {
		node := pod.Spec.NodeName
		if node == "" {
			node = p.assumed[string(pod.UID)]
		} else {
			delete(p.assumed, string(pod.UID))
		}

		// Pods that are being deleted make room, as for the real scheduler.
		if node != "" && pod.DeletionTimestamp == nil {
			placed[node] = append(placed[node], pod)
		}
	}

	return placed
}

// compare orders false before true.
func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

func weigh(node *corev1.Node, pod *corev1.Pod, others []*corev1.Pod) candidate {
	_, controlPlane := node.Labels[labelControlPlane]
	weighed := candidate{name: node.Name, all: len(others), away: !controlPlane && attached(pod)}
	owner := metav1.GetControllerOf(pod)

	for _, other := range others {
		if theirs := metav1.GetControllerOf(other); owner != nil && theirs != nil && theirs.UID == owner.UID {
			weighed.siblings++
		}
	}

	return weighed
}

// attached reports whether a pod belongs on a control plane: whether it tolerates its taint by name. The real
// scheduler does not care, but the workers of the simulation are for the users' workloads.
func attached(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == labelControlPlane })
}

// fits reports whether a node may run a pod: it matches the pod's affinity, and the pod tolerates its taints, a
// cordon, and that it is not ready.
func fits(pod *corev1.Pod, node *corev1.Node) bool {
	if node.DeletionTimestamp != nil {
		return false
	}

	// The node controller adds these a moment later.
	taints := slices.Clone(node.Spec.Taints)
	if node.Spec.Unschedulable {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}

	if readyStatus(node) != corev1.ConditionTrue {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	}

	keepsOut := func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }
	if _, kept := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), taints, pod.Spec.Tolerations, keepsOut, false); kept {
		return false
	}

	wanted, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)

	return err == nil && wanted
}
