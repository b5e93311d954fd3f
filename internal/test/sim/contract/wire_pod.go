// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"net/http"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func dryRunsChangeNothing(t *testing.T, f WireFixture) {
	maps, all := f.Wire().CoreV1().ConfigMaps(namespace), []string{metav1.DryRunAll}

	if _, err := maps.Create(t.Context(), configMap(journalName, nil), metav1.CreateOptions{DryRun: all}); err != nil {
		t.Error(err)
	}

	if _, err := maps.Get(t.Context(), journalName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}

	made := create(t, f)
	changed := made.DeepCopy()
	changed.Data = map[string]string{"uuid-2": "{}"}

	if after, err := maps.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: all}); err != nil || after.Data["uuid-2"] != "{}" {
		t.Errorf("updated: %+v, %v", after, err)
	}

	if err := maps.Delete(t.Context(), journalName, metav1.DeleteOptions{DryRun: all}); err != nil {
		t.Error(err)
	}

	if found := read(t, f); found.ResourceVersion != made.ResourceVersion || found.Data["uuid-1"] != "{}" {
		t.Errorf("it is %+v now", found)
	}

	name := worker(t, f, 0)
	pod := f.Pod(t, "rehearsed", name)
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &metav1.DeleteOptions{DryRun: all},
	}

	if err := f.Wire().PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), eviction); err != nil {
		t.Error(err)
	}

	if err := f.Wire().CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{DryRun: all}); err != nil {
		t.Error(err)
	}

	f.Budget(t, "rehearsed", "rehearsal", 1)

	err := f.Wire().PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), eviction)
	refused(t, "a dry run that a budget forbids", err, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)

	if !stands(t, f, name, pod) {
		t.Error("the pod is on its way out")
	}
}

func evictionsAreAnswered(t *testing.T, f WireFixture) {
	pod := f.Pod(t, "answered", worker(t, f, 0))

	evict := func(name string, uid types.UID) error {
		return f.Wire().PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		})
	}

	refused(t, "a pod that is not there", evict("never-there", ""), http.StatusNotFound, metav1.StatusReasonNotFound)

	err := evict(pod.Name, "22222222-0000-0000-0000-000000000000")
	refused(t, "another pod", err, http.StatusConflict, metav1.StatusReasonConflict)

	if !strings.Contains(errorText(err), "the UID in the precondition (22222222-0000-0000-0000-000000000000) does not match the UID in record ("+pod.UID+")") {
		t.Errorf("another pod: %v", err)
	}

	f.Budget(t, "answered", "answer", 1)

	err = evict(pod.Name, types.UID(pod.UID))
	refused(t, "an exhausted budget", err, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)

	cause, has := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	if !has || cause.Message != "The disruption budget answer needs 1 healthy pods and has 1 currently" {
		t.Errorf("the cause is %q, %t", cause.Message, has)
	}

	f.Budget(t, "answered", "second-answer", 0)

	err = evict(pod.Name, types.UID(pod.UID))
	if !strings.Contains(errorText(err), "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.") {
		t.Errorf("two budgets: %v", err)
	}

	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusInternalServerError {
		t.Errorf("two budgets: %v, want the code 500", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}
