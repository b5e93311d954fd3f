// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestABudgetCoversThePodsThatItsSelectorMeans(t *testing.T) {
	t.Parallel()

	always := policyv1.AlwaysAllow

	pods := []corev1.Pod{
		one(),
		one(func(p *corev1.Pod) {
			p.Name, p.UID, p.Labels = "db", "uid-db", map[string]string{"app": "db", "tier": "back"}
		}),
		one(func(p *corev1.Pod) { p.Name, p.UID, p.Namespace = "far", "uid-far", "other" }),
		one(func(p *corev1.Pod) { p.Name, p.UID, p.Status.Phase = "new", "uid-new", corev1.PodPending }),
		one(func(p *corev1.Pod) { p.Name, p.UID, p.Status.Phase = "done", "uid-done", corev1.PodSucceeded }),
	}

	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}

	conditions := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{
			{Type: "Other", Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "another condition"},
			{Type: policyv1.DisruptionAllowedCondition, Status: status, Reason: reason, Message: message},
		}
	}

	for name, test := range map[string]struct {
		selector   *metav1.LabelSelector
		generation int64
		observed   int64
		policy     *policyv1.UnhealthyPodEvictionPolicyType
		pods       string
		stale      bool
		conditions []metav1.Condition
		unsynced   string
	}{
		"a label":              {selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, generation: 1, observed: 1, pods: "uid-web"},
		"two labels":           {selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db", "tier": "back"}}, generation: 1, observed: 1, pods: "uid-db"},
		"one of two":           {selector: expression("app", metav1.LabelSelectorOpIn, "web", "db"), generation: 1, observed: 1, pods: "uid-db uid-web"},
		"one of one":           {selector: expression("app", metav1.LabelSelectorOpIn, "db"), generation: 1, observed: 1, pods: "uid-db"},
		"not":                  {selector: expression("app", metav1.LabelSelectorOpNotIn, "db"), generation: 1, observed: 1, pods: "uid-web"},
		"without":              {selector: expression("tier", metav1.LabelSelectorOpDoesNotExist), generation: 1, observed: 1, pods: "uid-web"},
		"all":                  {selector: &metav1.LabelSelector{}, generation: 1, observed: 1, pods: "uid-db uid-web"},
		"none":                 {selector: nil, generation: 1, observed: 1},
		"nonsense":             {selector: expression("app", "Near", "web"), generation: 1, observed: 1},
		"never worked out":     {selector: nil, generation: 0, observed: 0, stale: true},
		"of an earlier state":  {selector: nil, generation: 3, observed: 2, stale: true},
		"lenient to unhealthy": {selector: nil, generation: 1, observed: 1, policy: &always},
		"that gives":           {generation: 1, observed: 1, conditions: conditions(metav1.ConditionTrue, policyv1.SufficientPodsReason, "")},
		"that gives nothing":   {generation: 1, observed: 1, conditions: conditions(metav1.ConditionFalse, policyv1.InsufficientPodsReason, "too few")},
		"that synced again":    {generation: 1, observed: 1, conditions: conditions(metav1.ConditionTrue, policyv1.SyncFailedReason, "old")},
		"that is not synced": {
			generation: 1, observed: 1, conditions: conditions(metav1.ConditionFalse, policyv1.SyncFailedReason, "found no controllers\n for  pod \"web\""),
			unsynced: `found no controllers for pod "web"`,
		},
		"that is not synced, without a word": {
			generation: 1, observed: 1, conditions: conditions(metav1.ConditionFalse, policyv1.SyncFailedReason, ""), unsynced: "SyncFailed",
		},
		"that is not synced, at length": {
			generation: 1, observed: 1, conditions: conditions(metav1.ConditionFalse, policyv1.SyncFailedReason, strings.Repeat("no ", 200)),
			unsynced: strings.Repeat("no ", 100) + "...",
		},
	} {
		given := newSmall()
		given.pods = pods
		given.budgets = []policyv1.PodDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pdb", Generation: test.generation},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: test.selector, UnhealthyPodEvictionPolicy: test.policy},
			Status: policyv1.PodDisruptionBudgetStatus{
				ObservedGeneration: test.observed, DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4, Conditions: test.conditions,
			},
		}}

		found, _, err := given.workloads(t)
		if err != nil || len(found.Budgets) != 1 {
			t.Errorf("%s: %d budgets, %v", name, len(found.Budgets), err)

			continue
		}

		got := found.Budgets[0]
		if strings.Join(got.Pods, " ") != test.pods || got.Stale != test.stale || got.AlwaysAllow != (test.policy != nil) {
			t.Errorf("%s: %+v, want the pods %q, stale %t", name, got, test.pods, test.stale)
		}

		if got.Unsynced != test.unsynced {
			t.Errorf("%s: not synced because of %q, want %q", name, got.Unsynced, test.unsynced)
		}

		if got.Allowed != 1 || got.Healthy != 3 || got.Desired != 2 || got.Expected != 4 || got.String() != "default/pdb" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
