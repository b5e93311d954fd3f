// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

const (
	// labelComponent is the label by which Talos names the pods of the control
	// plane and of kube-proxy.
	labelComponent = "k8s-app"
	// annotationConfigVersion is the annotation in which Talos records the version of the configuration that a
	// static pod was made from.
	annotationConfigVersion = "talos.dev/config-version"
	// annotationFilesVersion is the annotation in which it records, for the API server, the version of the files at
	// that time.
	annotationFilesVersion = "talos.dev/config-file-version"
)

// ComponentPods lists the pods of the control plane and of kube-proxy.
func (c *Client) ComponentPods(ctx context.Context) ([]cluster.ComponentPod, error) {
	return c.podsOf(ctx, "", cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Proxy)
}

// StaticPods lists the pods of the control plane: those on the named node, or on all nodes if
// the name is empty; those of the components, or of all if none is given.
func (c *Client) StaticPods(ctx context.Context, node string, components ...cluster.Component) ([]cluster.ComponentPod, error) {
	if len(components) == 0 {
		components = []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler}
	}

	return c.podsOf(ctx, node, components...)
}

// podsOf lists the pods of the components, none of which is the kubelet, on a node or on all. Pods that have
// finished or are being deleted are left out.
func (c *Client) podsOf(ctx context.Context, node string, components ...cluster.Component) ([]cluster.ComponentPod, error) {
	names := make([]string, 0, len(components))
	for _, component := range components {
		names = append(names, string(component))
	}

	var list corev1.PodList

	request := c.core.Get().Namespace(Namespace).Resource("pods").
		Param("labelSelector", labelComponent+" in ("+strings.Join(names, ",")+")")
	if node != "" {
		request = request.Param("fieldSelector", "spec.nodeName="+node)
	}

	if err := read(ctx, "list the pods of the control plane", request, &list); err != nil {
		return nil, err
	}

	var pods []cluster.ComponentPod

	for i := range list.Items {
		pod := &list.Items[i]

		component := pod.Labels[labelComponent]

		index := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == component })
		if index < 0 || finished(pod) || pod.DeletionTimestamp != nil {
			continue
		}

		pods = append(pods, cluster.ComponentPod{
			Node:      pod.Spec.NodeName,
			Component: cluster.Component(component),
			Image:     pod.Spec.Containers[index].Image,
			Ready:     ready(pod),

			ConfigVersion: pod.Annotations[annotationConfigVersion],
			FilesVersion:  pod.Annotations[annotationFilesVersion],
			Started:       startedAt(pod, component),
			Trouble:       trouble(pod, component),
		})
	}

	return pods, nil
}

// PodsToEvict lists the pods that a drain of the node removes.
func (c *Client) PodsToEvict(ctx context.Context, node string) ([]cluster.Pod, error) {
	var list corev1.PodList

	what := "list the pods on node " + node

	request := c.core.Get().Resource("pods").Param("fieldSelector", "spec.nodeName="+node)
	if err := read(ctx, what, request, &list); err != nil {
		return nil, err
	}

	var pods []cluster.Pod

	exists := c.daemonSets(ctx)

	for i := range list.Items {
		pod := &list.Items[i]
		if finished(pod) {
			continue
		}

		stays, err := staysBehind(pod, func(name string) (bool, error) { return exists(pod.Namespace, name) })
		if err != nil {
			return nil, err
		}

		if !stays {
			pods = append(pods, cluster.Pod{
				Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Terminating: pod.DeletionTimestamp != nil,
			})
		}
	}

	return pods, nil
}

// daemonSets returns a function that reports whether a DaemonSet exists, and asks for each of them once.
func (c *Client) daemonSets(ctx context.Context) func(namespace, name string) (bool, error) {
	known := map[string]bool{}

	return func(namespace, name string) (bool, error) {
		full := namespace + "/" + name
		if exists, ok := known[full]; ok {
			return exists, nil
		}

		err := read(ctx, "read the DaemonSet "+full,
			c.core.Get().AbsPath("/apis/apps/v1/namespaces", namespace, "daemonsets", name), nil)
		if err != nil && !errors.Is(err, cluster.ErrNotFound) {
			return false, err
		}

		known[full] = err == nil

		return known[full], nil
	}
}

// Evict requests the eviction of one pod. It is no error if the pod is gone, or if its namespace is being deleted.
// ErrOverlap is wrapped beside ErrRefused if more than one budget covers the pod.
func (c *Client) Evict(ctx context.Context, pod cluster.Pod) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: onlyThis(pod)},
	}

	err := change(ctx, "evict pod "+pod.String(), c.pod(c.core.Post(), pod).SubResource("eviction").Body(eviction), nil)
	if err == nil || isGone(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}

	// The API server never evicts a pod that two budgets cover: this is a matter of configuration, which waiting
	// does not cure.
	var failure *callError
	if errors.As(err, &failure) && strings.Contains(failure.detail, "more than one PodDisruptionBudget") {
		return &callError{
			what: failure.what, meanings: []error{cluster.ErrRefused, cluster.ErrOverlap},
			detail: "Kubernetes evicts no pod that two of them cover; leave it to one of them", cause: failure.cause,
		}
	}

	return err
}

// DeletePod deletes one pod with its own grace period, regardless of its budgets. It is no error if the pod is
// gone.
func (c *Client) DeletePod(ctx context.Context, pod cluster.Pod) error {
	err := change(ctx, "delete pod "+pod.String(),
		c.pod(c.core.Delete(), pod).Body(&metav1.DeleteOptions{Preconditions: onlyThis(pod)}), nil)
	if isGone(err) {
		return nil
	}

	return err
}

func (c *Client) pod(request *rest.Request, pod cluster.Pod) *rest.Request {
	return request.Namespace(pod.Namespace).Resource("pods").Name(pod.Name)
}

// onlyThis protects a later pod of the same name; nil if the UID is unknown.
func onlyThis(pod cluster.Pod) *metav1.Preconditions {
	if pod.UID == "" {
		return nil
	}

	uid := types.UID(pod.UID)

	return &metav1.Preconditions{UID: &uid}
}

// isGone reports whether the pod no longer exists, even if another one has taken its name.
func isGone(err error) bool {
	if errors.Is(err, cluster.ErrNotFound) {
		return true
	}

	// The wording differs between versions of Kubernetes. No other conflict mentions UIDs.
	return errors.Is(err, cluster.ErrConflict) && strings.Contains(err.Error(), "UID") && strings.Contains(err.Error(), "recondition")
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// startedAt returns when the container of a pod started; zero if it does not run.
func startedAt(pod *corev1.Pod, container string) time.Time {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == container && status.State.Running != nil {
			return status.State.Running.StartedAt.Time
		}
	}

	return time.Time{}
}

// maxTrouble bounds how much of a message is repeated, in characters: those of container runtimes quote whole
// chains of causes.
const maxTrouble = 300

// trouble says in one line why the container does not run; empty if it runs, if it is just being started, or if the
// kubelet has not reported.
func trouble(pod *corev1.Pod, container string) string {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name != container {
			continue
		}

		switch {
		case status.State.Waiting != nil:
			return waiting(status)
		case status.State.Terminated != nil:
			return readable.OneLine(terminated(status.State.Terminated), maxTrouble)
		}
	}

	return ""
}

func waiting(status *corev1.ContainerStatus) string {
	state, last := status.State.Waiting, status.LastTerminationState.Terminated

	switch {
	case state.Reason == "ContainerCreating" || state.Reason == "PodInitializing" || state.Reason == "":
		return ""
	case state.Reason == "CrashLoopBackOff" && last != nil:
		// The message of the state only says how long the pause is.
		return readable.OneLine(state.Reason+": "+terminated(last), maxTrouble)
	case state.Message == "":
		return readable.OneLine(state.Reason, maxTrouble)
	default:
		return readable.OneLine(state.Reason+": "+state.Message, maxTrouble)
	}
}

func terminated(state *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", state.ExitCode)

	for _, detail := range []string{state.Reason, state.Message} {
		if detail != "" {
			text += ": " + detail
		}
	}

	return text
}

// staysBehind reports whether a drain leaves the pod alone, by kubectl's rules: it is a mirror pod, or a DaemonSet
// would recreate it at once. A DaemonSet that no longer exists would not, and what is called a DaemonSet in another
// API group may or may not.
func staysBehind(pod metav1.Object, exists func(daemonSet string) (bool, error)) (bool, error) {
	if _, mirror := pod.GetAnnotations()[corev1.MirrorPodAnnotationKey]; mirror {
		return true, nil
	}

	owner := metav1.GetControllerOf(pod)
	if !isDaemonSet(owner) {
		return false, nil
	}

	return exists(owner.Name)
}

// isDaemonSet reports whether the owner is a DaemonSet. It compares the API version as well, as kubectl does.
func isDaemonSet(owner *metav1.OwnerReference) bool {
	return owner != nil && owner.Kind == kindDaemonSet && owner.APIVersion == appsv1.SchemeGroupVersion.String()
}
