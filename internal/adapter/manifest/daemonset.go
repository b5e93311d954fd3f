// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// daemonSetLacks returns what a DaemonSet lacks; empty if it is rolled out, or if its pods are only updated once
// somebody deletes them. Its status counts pods on nodes that are down, which cannot be updated: if the numbers in
// the status are too low, the pods are counted without those.
func daemonSetLacks(ctx context.Context, client kubernetes.Interface, object *appsv1.DaemonSet) (string, error) {
	status := object.Status
	numbers := daemons{
		wanted: status.DesiredNumberScheduled, updated: status.UpdatedNumberScheduled,
		ready: min(status.NumberReady, status.NumberAvailable, status.CurrentNumberScheduled),
	}

	switch {
	case object.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType:
		return "", nil
	case object.Generation != status.ObservedGeneration:
		return unobserved, nil
	case numbers.lack() == "":
		return "", nil
	}

	numbers, err := count(ctx, client, object)

	return numbers.lack(), err
}

// daemons are numbers of pods of a DaemonSet.
type daemons struct{ wanted, updated, ready int32 }

func (d daemons) lack() string {
	switch {
	case d.updated < d.wanted:
		return fmt.Sprintf("%d of %d pods are updated", d.updated, d.wanted)
	case d.ready < d.wanted:
		return fmt.Sprintf("%d of %d pods are ready", d.ready, d.wanted)
	default:
		return ""
	}
}

// count counts the pods of a DaemonSet on nodes that are Ready. The other nodes do not hold up a rollout.
func count(ctx context.Context, client kubernetes.Interface, object *appsv1.DaemonSet) (daemons, error) {
	down, err := nodesDown(ctx, client)
	if err != nil {
		return daemons{}, err
	}

	selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
	if err != nil {
		return daemons{}, err
	}

	pods, err := client.CoreV1().Pods(object.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return daemons{}, err
	}

	revision, err := revisionOf(ctx, client, object, selector.String())
	if err != nil {
		return daemons{}, err
	}

	counted := daemons{wanted: object.Status.DesiredNumberScheduled}
	excused := map[string]bool{}

	for i := range pods.Items {
		pod := &pods.Items[i]

		isDown, exists := down[pod.Spec.NodeName]

		switch {
		case !exists || !metav1.IsControlledBy(pod, object):
		case isDown:
			excused[pod.Spec.NodeName] = true
		case pod.DeletionTimestamp == nil:
			counted.add(pod, made(pod, object, revision))
		}
	}

	counted.wanted -= int32(len(excused))

	return counted, nil
}

func (d *daemons) add(pod *corev1.Pod, updated bool) {
	if updated {
		d.updated++
	}

	if slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	}) {
		d.ready++
	}
}

// nodesDown reports for every node whether it is not Ready.
func nodesDown(ctx context.Context, client kubernetes.Interface) (map[string]bool, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	down := map[string]bool{}

	for i := range nodes.Items {
		down[nodes.Items[i].Name] = !slices.ContainsFunc(nodes.Items[i].Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
	}

	return down, nil
}

// revisionOf returns the hash label of pods of the current template; empty if the DaemonSet has no history.
func revisionOf(ctx context.Context, client kubernetes.Interface, object *appsv1.DaemonSet, selector string) (string, error) {
	history, err := client.AppsV1().ControllerRevisions(object.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return "", err
	}

	var (
		latest int64
		name   string
	)

	for i := range history.Items {
		revision := &history.Items[i]
		if metav1.IsControlledBy(revision, object) && revision.Revision > latest {
			latest, name = revision.Revision, revision.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}

	return name, nil
}

// made reports whether the pod was made from the current template of the DaemonSet. Without a history it compares
// the images.
func made(pod *corev1.Pod, object *appsv1.DaemonSet, revision string) bool {
	if revision != "" {
		return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == revision
	}

	return slices.EqualFunc(pod.Spec.Containers, object.Spec.Template.Spec.Containers, func(is, wanted corev1.Container) bool {
		return is.Name == wanted.Name && is.Image == wanted.Image
	})
}
