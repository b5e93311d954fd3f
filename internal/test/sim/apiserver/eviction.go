// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

var errComponent = errors.New("the simulated cluster takes no component of a node away")

// overlap is what the API server says of a pod that two budgets cover.
const overlap = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."

// evict deletes a pod if its budget allows it. What becomes of the request is in
// the history in any case.
func (s *Server) evict(of *resource, asked *call) (answer, error) {
	var eviction policyv1.Eviction
	if err := s.codec.decode(asked.header, asked.body, &eviction); err != nil {
		return answer{}, err
	}

	if given := cmp.Or(eviction.Name, asked.Name); given != asked.Name {
		return answer{}, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}

	options, err := s.deleteOptions(asked)
	if err != nil {
		return answer{}, err
	}

	current, err := s.one(of, asked.Namespace, asked.Name)
	if err == nil {
		err = precondition(of, current, options)
	}

	if err != nil {
		s.evictGone(asked, options)

		return answer{}, err
	}

	if asked.Namespace == namespaceSystem {
		return answer{}, notTaken(asked)
	}

	attempt := s.cluster.EvictPod
	if asked.dry {
		attempt = s.cluster.TryEvictPod
	}

	err = attempt(asked.Client, podOf(current))

	switch {
	case errors.Is(err, cluster.ErrOverlap):
		return answer{http.StatusInternalServerError, corev1.SchemeGroupVersion, &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: overlap,
		}}, nil
	case errors.Is(err, cluster.ErrBudget):
		return answer{}, s.exhausted(podOf(current))
	case err != nil:
		return answer{}, err
	default:
		return answer{http.StatusCreated, corev1.SchemeGroupVersion, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}}, nil
	}
}

// evictGone has the history tell that a pod was to be evicted that is gone.
func (s *Server) evictGone(asked *call, options metav1.DeleteOptions) {
	gone := cluster.Pod{Namespace: asked.Namespace, Name: asked.Name}
	if wanted := options.Preconditions; wanted != nil && wanted.UID != nil {
		gone.UID = string(*wanted.UID)
	}

	if !asked.dry {
		// Of a pod that is not there it has nothing else to say.
		_ = s.cluster.EvictPod(asked.Client, gone)
	}
}

// exhausted is the answer where a budget has nothing to give.
func (s *Server) exhausted(pod cluster.Pod) error {
	refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)

	_, budgets := s.cluster.WorkloadView()

	index := slices.IndexFunc(budgets, func(budget ports.BudgetView) bool { return slices.Contains(budget.Pods, pod.UID) })
	if index < 0 {
		return refused
	}

	budget := budgets[index]
	text := fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", budget.Name, budget.Desired, budget.Healthy)

	switch {
	case budget.Stale:
		text = fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget.Name)
		refused.ErrStatus.Details.RetryAfterSeconds = 10
	case budget.Unsynced != "":
		text = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", budget.Name, budget.Unsynced)
	}

	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: policyv1.DisruptionBudgetCause, Message: text,
	})

	return refused
}
