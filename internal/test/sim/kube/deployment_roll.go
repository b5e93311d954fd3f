// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rollout is a Deployment with its pods that are not on their way out: those of
// its template and those of older ones.
type rollout struct {
	deployment *appsv1.Deployment
	// set is the ReplicaSet of the template.
	set        *appsv1.ReplicaSet
	fresh, old []*corev1.Pod
	// taken are the names of all pods of the set, of those on their way out too.
	taken map[string]bool
}

// runDeployment is the Deployment controller, with the ReplicaSet controller in
// it.
func (p *play) runDeployment(ctx context.Context, deployment *appsv1.Deployment, sets []*appsv1.ReplicaSet) error {
	set, err := p.currentReplicaSet(ctx, deployment, sets)
	if err != nil {
		return err
	}

	state := rollout{deployment: deployment, set: set, taken: map[string]bool{}}

	// One that was created just now is not among them.
	if !slices.Contains(sets, set) {
		sets = append(sets, set)
	}

	for _, known := range sets {
		pods := p.podsOf(key{namespace: known.Namespace, name: known.Name}, "ReplicaSet")
		state.count(known, pods)

		if err := p.countReplicaSet(ctx, known, pods, state.wantedOf(known)); err != nil {
			return err
		}
	}

	if err := p.growDeployment(ctx, state); err != nil {
		return err
	}

	if err := p.shrinkDeployment(ctx, state); err != nil {
		return err
	}

	return p.countDeployment(ctx, state)
}

func (r *rollout) count(set *appsv1.ReplicaSet, pods []*corev1.Pod) {
	for _, pod := range pods {
		if metav1.GetControllerOf(pod).UID != set.UID {
			continue
		}

		if set == r.set {
			r.taken[pod.Name] = true
		}

		switch {
		case pod.DeletionTimestamp != nil:
		case set == r.set:
			r.fresh = append(r.fresh, pod)
		default:
			r.old = append(r.old, pod)
		}
	}

	byReadiness := func(a, b *corev1.Pod) int {
		return cmp.Or(compare(podReady(a), podReady(b)), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(r.fresh, byReadiness)
	slices.SortFunc(r.old, byReadiness)
}

// wantedOf is how many pods a ReplicaSet is to have when the rollout is over.
func (r *rollout) wantedOf(set *appsv1.ReplicaSet) int32 {
	if set != r.set {
		return 0
	}

	return replicasOf(r.deployment)
}

// currentReplicaSet is the one of the template, created where it is missing.
func (p *play) currentReplicaSet(
	ctx context.Context, deployment *appsv1.Deployment, sets []*appsv1.ReplicaSet,
) (*appsv1.ReplicaSet, error) {
	wanted, err := newReplicaSet(deployment)
	if err != nil {
		return nil, err
	}

	index := slices.IndexFunc(sets, func(set *appsv1.ReplicaSet) bool { return set.Name == wanted.Name })
	if index >= 0 {
		return sets[index], nil
	}

	set, err := p.client.AppsV1().ReplicaSets(deployment.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		// Where it exists already, the cache shows it soon.
		return nil, fmt.Errorf("creating the ReplicaSet of %s: %w", deployment.Name, err)
	}

	return set, nil
}

func newReplicaSet(deployment *appsv1.Deployment) (*appsv1.ReplicaSet, error) {
	content, err := json.Marshal(deployment.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("encoding the template of Deployment %s: %w", deployment.Name, err)
	}

	sum := sha256.Sum256(append(content, deployment.UID...))
	hash := hex.EncodeToString(sum[:5])
	template := deployment.Spec.Template.DeepCopy()
	selector := deployment.Spec.Selector.DeepCopy()

	template.Labels = withLabel(template.Labels, hash)
	selector.MatchLabels = withLabel(selector.MatchLabels, hash)

	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: deployment.Namespace, Name: deployment.Name + "-" + hash, Labels: template.Labels,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment")),
			},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: deployment.Spec.Replicas, Selector: selector, Template: *template},
	}, nil
}

func withLabel(set map[string]string, hash string) map[string]string {
	labelled := maps.Clone(set)
	if labelled == nil {
		labelled = map[string]string{}
	}

	labelled[appsv1.DefaultDeploymentUniqueLabelKey] = hash

	return labelled
}

// growDeployment starts pods of the template as far as the surge allows. Their
// names are numbered, so that a cache which lags cannot make too many.
func (p *play) growDeployment(ctx context.Context, state rollout) error {
	wanted := int(replicasOf(state.deployment))
	surge, _ := state.leeway()
	missing := min(wanted, wanted+surge-len(state.old)) - len(state.fresh)

	for number := 0; missing > 0; number++ {
		name := state.set.Name + "-" + strconv.Itoa(number)
		if state.taken[name] {
			continue
		}

		missing--

		template := state.set.Spec.Template.DeepCopy()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: state.set.Namespace, Name: name, Labels: template.Labels, Annotations: template.Annotations,
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(state.set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
				},
			},
			Spec: template.Spec,
		}

		_, err := p.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("starting pod %s: %w", name, err)
		}
	}

	return nil
}

// shrinkDeployment ends pods of older templates, those that do not serve first,
// and of the template those that are too many.
func (p *play) shrinkDeployment(ctx context.Context, state rollout) error {
	wanted := int(replicasOf(state.deployment))
	_, away := state.leeway()
	serving := len(ready(state.fresh)) + len(ready(state.old))

	superfluous := state.fresh[:max(0, len(state.fresh)-wanted)]

	for _, pod := range append(slices.Clone(superfluous), state.old...) {
		if podReady(pod) {
			if serving <= wanted-away {
				continue
			}

			serving--
		}

		if err := p.deletePod(ctx, pod); err != nil {
			return err
		}
	}

	return nil
}

func ready(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !podReady(pod) })
}

// leeway is how many pods a rollout may have too many, and too few.
func (r *rollout) leeway() (surge, away int) {
	wanted := int(replicasOf(r.deployment))

	rolling := r.deployment.Spec.Strategy.RollingUpdate
	if rolling == nil {
		// Everything first ends, then begins.
		return 0, wanted
	}

	// The API server has refused what cannot be read.
	surge, _ = intstr.GetScaledValueFromIntOrPercent(rolling.MaxSurge, wanted, true)
	away, _ = intstr.GetScaledValueFromIntOrPercent(rolling.MaxUnavailable, wanted, false)

	if surge == 0 && away == 0 {
		away = 1
	}

	return surge, away
}
