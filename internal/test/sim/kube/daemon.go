// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// nameProxy is the DaemonSet whose pods count as a component of Kubernetes.
const nameProxy = "kube-proxy"

func (p *play) daemonsSeen(set *appsv1.DaemonSet) {
	if set.Namespace == namespaceSystem {
		p.queue.Add(key{kind: kindDaemons, namespace: set.Namespace, name: set.Name})
	}
}

// wakeDaemons has each DaemonSet looked at: a node has changed.
func (p *play) wakeDaemons() {
	sets, err := p.informers.Apps().V1().DaemonSets().Lister().DaemonSets(namespaceSystem).List(labels.Everything())
	if err != nil {
		// The lister of a cache has nothing that could fail.
		return
	}

	for _, set := range sets {
		p.daemonsSeen(set)
	}
}

// daemons is a DaemonSet with what there is of it.
type daemons struct {
	set      *appsv1.DaemonSet
	revision string
	// nodes are those that are to have a pod, sorted; pods is what they have.
	nodes []string
	pods  map[string]*corev1.Pod
}

// reconcileDaemons is the DaemonSet controller for one DaemonSet of the system:
// a pod on each node that it tolerates, replaced node by node when the template
// changes.
func (p *play) reconcileDaemons(ctx context.Context, k key) error {
	set, err := p.informers.Apps().V1().DaemonSets().Lister().DaemonSets(k.namespace).Get(k.name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading DaemonSet %s: %w", k.name, err)
	}

	state := daemons{pods: map[string]*corev1.Pod{}}

	if err == nil && set.DeletionTimestamp == nil {
		if state, err = p.daemonsOf(set); err != nil {
			return err
		}
	}

	// What belongs to nobody any more goes, and with it what is on a node where
	// it has no business.
	left := 0

	for _, pod := range p.podsOf(k, "DaemonSet") {
		if state.takes(pod) {
			continue
		}

		left++

		if err := p.deletePod(ctx, pod); err != nil {
			return err
		}
	}

	if state.set != nil {
		return p.runDaemons(ctx, state)
	}

	p.tellNoProxies(k)

	if set != nil && left == 0 {
		return p.releaseDaemons(ctx, set)
	}

	return nil
}

// daemonsOf takes stock, except of the pods.
func (p *play) daemonsOf(set *appsv1.DaemonSet) (daemons, error) {
	nodes, err := p.informers.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return daemons{}, fmt.Errorf("listing nodes: %w", err)
	}

	template, err := json.Marshal(set.Spec.Template)
	if err != nil {
		return daemons{}, fmt.Errorf("encoding the template of DaemonSet %s: %w", set.Name, err)
	}

	sum := sha256.Sum256(template)
	state := daemons{set: set, revision: hex.EncodeToString(sum[:5]), pods: map[string]*corev1.Pod{}}

	selector := labels.SelectorFromSet(set.Spec.Template.Spec.NodeSelector)

	for _, node := range nodes {
		if selector.Matches(labels.Set(node.Labels)) && admits(node, set.Spec.Template.Spec) {
			state.nodes = append(state.nodes, node.Name)
		}
	}

	slices.Sort(state.nodes)

	return state, nil
}

// takes counts a pod in; false when it is none of the DaemonSet's.
func (d *daemons) takes(pod *corev1.Pod) bool {
	node := pod.Spec.NodeName

	if d.set == nil || metav1.GetControllerOf(pod).UID != d.set.UID || !d.wants(node) || d.pods[node] != nil {
		return false
	}

	d.pods[node] = pod

	return true
}

// wants tells whether a node is to have a pod.
func (d *daemons) wants(node string) bool {
	_, found := slices.BinarySearch(d.nodes, node)

	return found
}

// admits tells whether a DaemonSet has a pod on a node that it selects, which does not
// depend on how the node is.
func admits(node *corev1.Node, spec corev1.PodSpec) bool {
	if node.DeletionTimestamp != nil {
		return false
	}

	for _, taint := range node.Spec.Taints {
		if daemonsIgnore(taint) {
			continue
		}

		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(&corev1.Pod{Spec: spec}, taint) {
			return false
		}
	}

	return true
}

// daemonsIgnore tells whether a taint says how a node is, and nothing to a DaemonSet.
func daemonsIgnore(taint corev1.Taint) bool {
	switch taint.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeDiskPressure:
		return true
	default:
		return false
	}
}

func (p *play) runDaemons(ctx context.Context, state daemons) error {
	for _, node := range state.nodes {
		if state.pods[node] != nil {
			continue
		}

		if err := p.startDaemon(ctx, state, node); err != nil {
			return err
		}
	}

	if err := p.rollDaemons(ctx, state); err != nil {
		return err
	}

	p.tellProxies(state)

	return p.countDaemons(ctx, state)
}

// startDaemon creates the pod of a node. Its name follows from what it is, so
// that a cache which lags cannot make two of them.
func (p *play) startDaemon(ctx context.Context, state daemons, node string) error {
	set := state.set
	sum := sha256.Sum256([]byte(strings.Join([]string{string(set.UID), node, state.revision}, "/")))
	template := set.Spec.Template.DeepCopy()

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name + "-" + hex.EncodeToString(sum[:4]),
			Labels: map[string]string{}, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet")),
			},
		},
		Spec: template.Spec,
	}
	maps.Copy(pod.Labels, template.Labels)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = state.revision
	pod.Spec.NodeName = node

	_, err := p.client.CoreV1().Pods(set.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("starting %s on %s: %w", set.Name, node, err)
	}

	return nil
}

// rollDaemons ends pods of an older template: what does not serve at once, what
// serves only while no more are away than the DaemonSet allows.
func (p *play) rollDaemons(ctx context.Context, state daemons) error {
	if state.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return nil
	}

	allowed, away := mayBeAway(state.set, len(state.nodes)), 0

	for _, node := range state.nodes {
		if pod := state.pods[node]; pod == nil || pod.DeletionTimestamp != nil || !podReady(pod) {
			away++
		}
	}

	for _, node := range state.nodes {
		pod := state.pods[node]

		if pod == nil || pod.DeletionTimestamp != nil || pod.Labels[appsv1.ControllerRevisionHashLabelKey] == state.revision {
			continue
		}

		if podReady(pod) {
			if away >= allowed {
				continue
			}

			away++
		}

		if err := p.deletePod(ctx, pod); err != nil {
			return err
		}
	}

	return nil
}

// mayBeAway is how many pods of a DaemonSet may be missing while it is rolled.
func mayBeAway(set *appsv1.DaemonSet, nodes int) int {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil {
		return 1
	}

	allowed, err := intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, nodes, true)
	if err != nil {
		return 1
	}

	return max(allowed, 1)
}
