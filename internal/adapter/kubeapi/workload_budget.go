// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"

	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// budget is a disruption budget with what selects its pods.
type budget struct {
	cluster.Budget
	selector labels.Selector
}

func newBudget(object *policyv1.PodDisruptionBudget) *budget {
	policy := object.Spec.UnhealthyPodEvictionPolicy

	made := &budget{Budget: cluster.Budget{
		Namespace: object.Namespace, Name: object.Name,
		Allowed: int(object.Status.DisruptionsAllowed), Healthy: int(object.Status.CurrentHealthy),
		Desired: int(object.Status.DesiredHealthy), Expected: int(object.Status.ExpectedPods),
		// The API server refuses evictions until the controller has caught up.
		Stale:       object.Status.ObservedGeneration == 0 || object.Status.ObservedGeneration < object.Generation,
		Unsynced:    unsynced(object),
		AlwaysAllow: policy != nil && *policy == policyv1.AlwaysAllow,
	}}

	// An empty selector covers all pods, a missing one none, and so does one that
	// cannot be understood: the API server leaves it out of account.
	selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}

	made.selector = selector

	return made
}

// unsynced is why the disruption controller could not work out the numbers, in
// one line; empty when it could. It then leaves the old ones in place and lets no
// disruption pass (disruption.go of Kubernetes, failSafe).
func unsynced(object *policyv1.PodDisruptionBudget) string {
	condition := apimeta.FindStatusCondition(object.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != policyv1.SyncFailedReason {
		return ""
	}

	return cmp.Or(oneLine(condition.Message), condition.Reason)
}

// cover fills in which pods each budget covers. Pods that have never run are left
// out, because the API server asks no budget before it evicts one.
func cover(budgets []*budget, drafts []*draft) []cluster.Budget {
	// Most selectors ask for one label to have one value. Comparing each pod with
	// each budget would take seconds in large clusters.
	byLabel := map[string][]*budget{}

	for _, one := range budgets {
		byLabel[one.indexed()] = append(byLabel[one.indexed()], one)
	}

	for _, pod := range drafts {
		if pod.unguarded {
			continue
		}

		namespace := pod.meta.Namespace + "\n"
		pod.coveredBy(byLabel[namespace])

		for key, value := range pod.meta.Labels {
			pod.coveredBy(byLabel[namespace+key+"="+value])
		}
	}

	covered := make([]cluster.Budget, 0, len(budgets))
	for _, one := range budgets {
		covered = append(covered, one.Budget)
	}

	return covered
}

// indexed is the namespace and, where the selector asks for a label to have one
// value, that label.
func (b *budget) indexed() string {
	requirements, _ := b.selector.Requirements()

	for _, requirement := range requirements {
		switch requirement.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
		default:
			continue
		}

		if values := requirement.ValuesUnsorted(); len(values) == 1 {
			return b.Namespace + "\n" + requirement.Key() + "=" + values[0]
		}
	}

	return b.Namespace + "\n"
}

func (d *draft) coveredBy(budgets []*budget) {
	for _, one := range budgets {
		if one.selector.Matches(labels.Set(d.meta.Labels)) {
			one.Pods = append(one.Pods, d.pod.UID)
		}
	}
}
