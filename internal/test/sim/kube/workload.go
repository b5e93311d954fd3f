// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// namespaceWorkload is where Options.Pods run.
	namespaceWorkload = "workload"
	// replicas is how many pods a Deployment has, but for the last one.
	replicas = 3
	// labelApp selects the pods of one Deployment.
	labelApp = "app.kubernetes.io/name"
	// settlePoll is how often the caches are looked at until all is well.
	settlePoll = 10 * time.Millisecond
)

// foundation waits for what the API server itself creates, and adds what the
// rest needs.
func (p *play) foundation(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, settlePoll, true, func(ctx context.Context) (bool, error) {
		_, err := p.client.CoreV1().Namespaces().Get(ctx, namespaceSystem, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}

		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("waiting for namespace %s: %w", namespaceSystem, err)
	}

	for _, name := range []string{corev1.NamespaceNodeLease, namespaceWorkload} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}

		_, err := p.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}

	return nil
}

// deploy asks for the workloads: Deployments of up to three pods, of which one
// may be missing at a time.
func (p *play) deploy(ctx context.Context) error {
	for first := 0; first < p.options.Pods; first += replicas {
		name := fmt.Sprintf("app-%d", first/replicas)
		count := int32(min(replicas, p.options.Pods-first))

		_, err := p.client.AppsV1().Deployments(namespaceWorkload).
			Create(ctx, newDeployment(name, count), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating deployment %s: %w", name, err)
		}

		_, err = p.client.PolicyV1().PodDisruptionBudgets(namespaceWorkload).
			Create(ctx, newBudget(name), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating the disruption budget of %s: %w", name, err)
		}
	}

	return nil
}

// settled waits until nothing is named any more that is not as it should be.
func settled(ctx context.Context, unsettled func() string) error {
	waiting := ""

	err := wait.PollUntilContextCancel(ctx, settlePoll, true, func(context.Context) (bool, error) {
		waiting = unsettled()

		return waiting == "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", waiting, err)
	}

	return nil
}

// unsettledNodes names a node that does not show yet what the model says.
func (p *play) unsettledNodes() string {
	for _, machine := range p.options.World.Machines() {
		if !machine.Kubelet.Running {
			continue
		}

		node, err := p.informers.Core().V1().Nodes().Lister().Get(machine.Name)
		if err != nil || machine.Kubelet.Ready != (readyStatus(node) == corev1.ConditionTrue) {
			return "node " + machine.Name
		}

		if machine.Kubelet.Ready && len(node.Spec.Taints) != len(nodeTaints(node, p.now())) {
			return "the taints of node " + machine.Name
		}
	}

	return ""
}

// unsettled names something that is not yet as it should be; empty when there
// is nothing.
func (p *play) unsettled() string {
	for _, unsettled := range []func() string{p.unsettledNodes, p.unsettledManifests, p.unsettledPods, p.unsettledBudgets} {
		if waiting := unsettled(); waiting != "" {
			return waiting
		}
	}

	for _, node := range p.options.World.BlockedDrains() {
		if !p.blockStands(node) {
			return "the pod that blocks the drain of " + node
		}
	}

	return ""
}

func (p *play) unsettledPods() string {
	ready := 0

	for _, object := range p.pods.List() {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			continue
		}

		switch {
		case pod.Namespace == namespaceWorkload && pod.Labels[labelApp] != "" && podReady(pod):
			ready++
		case pod.Namespace == namespaceSystem && !podReady(pod) && p.expectReady(pod):
			return "pod " + pod.Name
		}
	}

	if ready < p.options.Pods {
		return fmt.Sprintf("%d workload pods (%d are ready)", p.options.Pods, ready)
	}

	return ""
}

// expectReady tells whether a pod of the system can become ready now.
func (p *play) expectReady(pod *corev1.Pod) bool {
	machine, found := p.options.World.Machine(pod.Spec.NodeName)

	return found && machine.Kubelet.Ready && (!mirrors(pod) || staticReady(machine, componentOf(pod)))
}

func (p *play) unsettledBudgets() string {
	budgets, err := p.informers.Policy().V1().PodDisruptionBudgets().Lister().
		PodDisruptionBudgets(namespaceWorkload).List(labels.Everything())
	if err != nil {
		return errors.Join(errors.New("the disruption budgets"), err).Error()
	}

	counted := 0

	for _, budget := range budgets {
		if budget.Status.DisruptionsAllowed > 0 && budget.Status.ObservedGeneration == budget.Generation {
			counted++
		}
	}

	if wanted := (p.options.Pods + replicas - 1) / replicas; counted < wanted {
		return fmt.Sprintf("%d disruption budgets (%d are counted)", wanted, counted)
	}

	return ""
}

func newDeployment(name string, count int32) *appsv1.Deployment {
	set := map[string]string{labelApp: name}

	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceWorkload, Name: name, Labels: set},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count,
			Selector: &metav1.LabelSelector{MatchLabels: set},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: set},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{workloadContainer()}},
			},
		},
	}
}

func workloadContainer() corev1.Container {
	return corev1.Container{Name: "app", Image: "registry.k8s.io/pause:3.10"}
}

func newBudget(name string) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)

	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceWorkload, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &one,
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{labelApp: name}},
		},
	}
}
