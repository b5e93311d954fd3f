// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"net/http"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How an eviction can end. The API server answers 500 for a pod with more than
// one budget, which no retry cures.
const (
	outcomeEvicted = "evicted"
	outcomeBlocked = "blocked"
	outcomeGone    = "gone"
	outcomeDryRun  = "dry-run"
	outcomeFailed  = "failed"
)

func evictionOutcome(event auditEvent) string {
	status := event.ResponseStatus

	switch {
	case event.dryRun():
		return outcomeDryRun
	case event.succeeded():
		return outcomeEvicted
	case status.Code == http.StatusTooManyRequests && blockedByBudget(event) != nil:
		return outcomeBlocked
	case status.Code == http.StatusNotFound,
		// Another pod with the same name: the one that was meant is gone.
		status.Code == http.StatusConflict && strings.Contains(status.Message, "UID"):
		return outcomeGone
	default:
		return outcomeFailed
	}
}

// blockedByBudget is the cause that the API server gives when a budget, and
// not the load, is why it answers 429.
func blockedByBudget(event auditEvent) *metav1.StatusCause {
	if event.ResponseStatus.Details == nil {
		return nil
	}

	for _, cause := range event.ResponseStatus.Details.Causes {
		if cause.Type == policyv1.DisruptionBudgetCause {
			return &cause
		}
	}

	return nil
}

// budgetNamed reads the name out of the API server's message: "The disruption
// budget NAME needs 2 healthy pods and has 2 currently".
func budgetNamed(namespace string, event auditEvent) string {
	cause := blockedByBudget(event)
	if cause == nil {
		return ""
	}

	_, rest, _ := strings.Cut(cause.Message, "disruption budget ")
	name, _, _ := strings.Cut(rest, " ")

	return namespace + "/" + name
}
