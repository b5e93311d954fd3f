// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// annotationCordoned is how a machine remembers that it cordoned its node. Its value means nothing, and it
	// stays if somebody else lifts the cordon.
	annotationCordoned = "talos.dev/cordoned"
	// drainPause is how long a machine waits, in simulated time, before it checks its pods again.
	drainPause = 5 * time.Second
)

// errUnreachable is what a machine sees while no control plane serves.
var errUnreachable = errors.New("no kube-apiserver answers")

// Cordon is what a machine does to its own node around a legacy upgrade. If on is true, it makes the node
// unschedulable, unless it is already, and sets a mark; otherwise it lifts its own cordon and no other. Only the
// annotation says whose a cordon is (NodeApplyController.ApplyCordoned of Talos).
func (s *Server) Cordon(ctx context.Context, node string, on bool) error {
	if err := s.cordon(ctx, node, on); err != nil {
		return fmt.Errorf("changing the cordon of %s: %w", node, err)
	}

	return nil
}

func (s *Server) cordon(ctx context.Context, node string, on bool) error {
	if !s.front.Reachable() {
		return errUnreachable
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	nodes := s.machine.CoreV1().Nodes()

	object, err := nodes.Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}

	patch := `{"metadata":{"annotations":{"` + annotationCordoned + `":"true"}},"spec":{"unschedulable":true}}`
	pointless := object.Spec.Unschedulable

	if !on {
		patch = `{"metadata":{"annotations":{"` + annotationCordoned + `":null}},"spec":{"unschedulable":null}}`
		_, own := object.Annotations[annotationCordoned]
		pointless = !own || !object.Spec.Unschedulable
	}

	if pointless {
		return nil
	}

	_, err = nodes.Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})

	return err
}

// Drain is what a machine does before a legacy upgrade: it evicts its pods and gives up after timeout, in simulated
// time, with an error that names the pods that are left.
func (s *Server) Drain(ctx context.Context, node string, timeout time.Duration) error {
	deadline := s.options.Clock.Now().Add(timeout)

	for {
		left, err := s.evictAll(ctx, node)
		if err == nil && len(left) == 0 {
			return nil
		}

		if s.options.Clock.Now().After(deadline) {
			return errors.Join(fmt.Errorf("draining %s: %s left after %s", node, strings.Join(left, ", "), timeout), err)
		}

		if err := s.options.Clock.Sleep(ctx, drainPause); err != nil {
			return fmt.Errorf("draining %s: %w", node, err)
		}
	}
}

// evictAll requests the eviction of each pod once, and returns the names of those that are still there.
func (s *Server) evictAll(ctx context.Context, node string) ([]string, error) {
	if !s.front.Reachable() {
		return []string{"unknown pods"}, errUnreachable
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	pods, err := s.machine.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(indexNodeName, node).String(),
	})
	if err != nil {
		return []string{"unknown pods"}, err
	}

	var (
		left   []string
		failed error
	)

	for i := range pods.Items {
		pod := &pods.Items[i]
		if !evictable(pod) {
			continue
		}

		left = append(left, pod.Namespace+"/"+pod.Name)

		if pod.DeletionTimestamp == nil {
			failed = errors.Join(failed, s.evict(ctx, pod))
		}
	}

	return left, failed
}

// evict ignores a refusal by a budget: the eviction is requested again.
func (s *Server) evict(ctx context.Context, pod *corev1.Pod) error {
	err := s.machine.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) {
		return nil
	}

	return err
}

// evictable reports whether a drain evicts a pod: not static pods, pods of a DaemonSet and pods that have ended.
func evictable(pod *corev1.Pod) bool {
	if mirrors(pod) || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}

	return !slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "DaemonSet"
	})
}
