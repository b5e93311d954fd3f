// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	// replicas is how many pods a Deployment has, except the last one.
	replicas = 3
	// labelApp selects the pods of one Deployment.
	labelApp = "app.kubernetes.io/name"
	// settlePoll is how often the caches are checked until everything is settled.
	settlePoll = 10 * time.Millisecond
)

// foundation waits for what the API server itself creates, and adds what the rest needs.
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

// deploy creates the workloads: Deployments of up to three pods, of which one may be missing at a time.
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

// settled waits until unsettled returns an empty name.
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

		node, found := p.nodes.get("", machine.Name)
		if !found || machine.Kubelet.Ready != (readyStatus(node) == corev1.ConditionTrue) {
			return "node " + machine.Name
		}

		if machine.Kubelet.Ready && len(node.Spec.Taints) != len(nodeTaints(node, p.now())) {
			return "the taints of node " + machine.Name
		}
	}

	return ""
}

// unsettled names something that is not yet as it should be; empty if there is nothing.
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

	for _, pod := range p.pods.all() {
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

// expectReady reports whether a pod of the system can become ready now.
func (p *play) expectReady(pod *corev1.Pod) bool {
	machine, found := p.options.World.Machine(pod.Spec.NodeName)

	return found && machine.Kubelet.Ready && (!mirrors(pod) || staticReady(machine, componentOf(pod)))
}

func (p *play) unsettledBudgets() string {
	counted := 0

	for _, budget := range p.budgets.all() {
		if budget.Namespace == namespaceWorkload && budget.Status.DisruptionsAllowed > 0 && budget.Status.ObservedGeneration == budget.Generation {
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

// labelBlocked marks the objects of the scripted fault in which a PodDisruptionBudget blocks a drain; its value is
// the node.
const labelBlocked = "talossim.vitistack.io/blocks-drain-of"

func blockName(node string) string { return "blocks-drain-of-" + node }

// reconcileBlock keeps a pod that may not be evicted on the node, for as long as the script says so. The pod
// belongs to a ReplicaSet, because a drain treats pods without an owner differently, and can run only on this node.
func (p *play) reconcileBlock(ctx context.Context, node string) error {
	if !slices.Contains(p.options.World.BlockedDrains(), node) {
		return p.removeBlock(ctx, node)
	}

	sets := p.client.AppsV1().ReplicaSets(namespaceWorkload)

	_, err := sets.Get(ctx, blockName(node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = sets.Create(ctx, newBlockSet(node), metav1.CreateOptions{})
	}

	if err != nil {
		return fmt.Errorf("creating the pod that blocks the drain of %s: %w", node, err)
	}

	budgets := p.client.PolicyV1().PodDisruptionBudgets(namespaceWorkload)

	_, err = budgets.Get(ctx, blockName(node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = budgets.Create(ctx, newBlockBudget(node), metav1.CreateOptions{})
	}

	if err != nil {
		return fmt.Errorf("creating the budget that blocks the drain of %s: %w", node, err)
	}

	return nil
}

// removeBlock removes the pod, its ReplicaSet and its budget.
func (p *play) removeBlock(ctx context.Context, node string) error {
	budget, found := p.budgets.get(namespaceWorkload, blockName(node))
	if !found {
		return nil
	}

	// The ReplicaSet goes first, because its controller would start another pod; the budget goes last, because
	// removeBlock looks for it.
	err := p.client.AppsV1().ReplicaSets(namespaceWorkload).Delete(ctx, blockName(node), metav1.DeleteOptions{})
	failed := gone(err)

	for _, pod := range p.blockPods(node) {
		failed = errors.Join(failed, p.removePod(ctx, pod))
	}

	if failed == nil {
		err = p.client.PolicyV1().PodDisruptionBudgets(namespaceWorkload).Delete(ctx, budget.Name, metav1.DeleteOptions{})
		failed = gone(err)
	}

	if failed != nil {
		return fmt.Errorf("removing what blocks the drain of %s: %w", node, failed)
	}

	return nil
}

// gone ignores the error of a deletion of what does not exist.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}

func (p *play) blockPods(node string) []*corev1.Pod {
	return slices.DeleteFunc(p.pods.all(), func(pod *corev1.Pod) bool {
		return pod.Namespace != namespaceWorkload || pod.Labels[labelBlocked] != node
	})
}

// blockStands reports whether an eviction on the node would be refused now.
func (p *play) blockStands(node string) bool {
	budget, found := p.budgets.get(namespaceWorkload, blockName(node))
	if !found || budget.Status.ObservedGeneration != budget.Generation || budget.Status.ExpectedPods == 0 {
		return false
	}

	return slices.ContainsFunc(p.blockPods(node), podReady)
}

func newBlockSet(node string) *appsv1.ReplicaSet {
	set := map[string]string{labelBlocked: node}
	one := int32(1)

	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceWorkload, Name: blockName(node), Labels: set},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &one,
			Selector: &metav1.LabelSelector{MatchLabels: set},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: set},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{corev1.LabelHostname: node},
					Tolerations: []corev1.Toleration{{
						Key: labelControlPlane, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
					}},
					Containers: []corev1.Container{workloadContainer()},
				},
			},
		},
	}
}

func newBlockBudget(node string) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	set := map[string]string{labelBlocked: node}

	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceWorkload, Name: blockName(node), Labels: set},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one,
			Selector:     &metav1.LabelSelector{MatchLabels: set},
		},
	}
}

// budgets remembers what each PodDisruptionBudget allowed at which moment. A request is in the audit log only after
// it took effect, and its budget may allow something else by then.
type budgets struct {
	mutex sync.Mutex
	known map[string]*budget
}

type budget struct {
	namespace, name string
	selector        labels.Selector
	// fault is the node whose drain the budget was made to block.
	fault   string
	allowed []allowance
}

type allowance struct {
	since time.Time
	// disruptions is how many disruptions are still allowed.
	disruptions int32
}

func newBudgets() *budgets { return &budgets{known: map[string]*budget{}} }

func (b *budget) String() string { return b.namespace + "/" + b.name }

// observe takes a new state of a budget.
func (b *budgets) observe(object *policyv1.PodDisruptionBudget) {
	selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
	if err != nil {
		// Such a budget covers nothing; the API server treats it the same.
		return
	}

	b.mutex.Lock()
	defer b.mutex.Unlock()

	key := object.Namespace + "/" + object.Name

	known := b.known[key]
	if known == nil {
		known = &budget{namespace: object.Namespace, name: object.Name, fault: object.Labels[labelBlocked]}
		b.known[key] = known
	}

	known.selector = selector

	last := len(known.allowed) - 1
	if last < 0 || known.allowed[last].disruptions != object.Status.DisruptionsAllowed {
		known.allowed = append(known.allowed, allowance{time.Now(), object.Status.DisruptionsAllowed})
		known.allowed = known.allowed[max(0, len(known.allowed)-allowancesKept):]
	}
}

// allowancesKept is how many states of a budget are remembered: more than can arise between a request and its line
// in the audit log.
const allowancesKept = 64

func (b *budgets) remove(object *policyv1.PodDisruptionBudget) {
	b.mutex.Lock()
	defer b.mutex.Unlock()

	delete(b.known, object.Namespace+"/"+object.Name)
}

// exhausted lists the budgets that cover a pod and allowed no disruption at the moment, sorted.
func (b *budgets) exhausted(namespace string, pod labels.Set, moment time.Time) []*budget {
	b.mutex.Lock()
	defer b.mutex.Unlock()

	var found []*budget

	for _, known := range b.known {
		if known.namespace == namespace && known.selector.Matches(pod) && known.at(moment) <= 0 {
			found = append(found, known)
		}
	}

	slices.SortFunc(found, func(a, b *budget) int { return strings.Compare(a.name, b.name) })

	return found
}

// at returns what the budget allowed at the moment; before the first observation, what was observed first.
func (b *budget) at(moment time.Time) int32 {
	allowed := b.allowed[0].disruptions

	for _, later := range b.allowed[1:] {
		if later.since.After(moment) {
			break
		}

		allowed = later.disruptions
	}

	return allowed
}
