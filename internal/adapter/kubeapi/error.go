// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// operation describes a request to the people who read its errors.
type operation struct {
	// what completes "unable to ...".
	what string
	// mutates is true if the request changes something.
	mutates bool
}

// callError is a failed request and what it means.
type callError struct {
	what     string
	meanings []error
	detail   string
	cause    error
}

func (e *callError) Error() string {
	parts := []string{"unable to " + e.what}
	for _, meaning := range e.meanings {
		parts = append(parts, meaning.Error())
	}

	return strings.Join(append(parts, e.detail), ": ")
}

// Unwrap returns the meanings and the cause.
func (e *callError) Unwrap() []error { return append(slices.Clone(e.meanings), e.cause) }

// Explain gives an error of another client of a Kubernetes API the meaning that this package gives to its own: it
// wraps one of the sentinels of package cluster. The context is the caller's, what completes "unable to ...", and
// mutates is true if the failed request changes something. Nil and an error that is already explained are returned
// unchanged.
func Explain(ctx context.Context, what string, mutates bool, err error) error {
	var explained *callError
	if err == nil || errors.As(err, &explained) {
		return err
	}

	return explain(ctx, operation{what: what, mutates: mutates}, true, err)
}

// explain gives an error of client-go its meaning.
func explain(ctx context.Context, op operation, sent bool, err error) error {
	failure := &callError{what: op.what, detail: detailOf(err), cause: err}

	var answer apierrors.APIStatus

	switch {
	case errors.As(err, &answer):
		failure.meanings = meaningOfStatus(op, answer.Status())
		failure.detail = detailOfStatus(answer.Status())
	case ctx.Err() != nil:
		failure.cause = cluster.Ended(ctx)
		failure.detail = failure.cause.Error()
		failure.meanings = interrupted(ctx, op, sent)
	case rejectsCredentials(err.Error()):
		failure.meanings = []error{cluster.ErrCredentials}
	default:
		failure.meanings = lost(op.mutates && sent)
	}

	return failure
}

// detailOf returns the text of a request's error without the path and the query, which are long and only repeat
// what was asked for: long messages are cut.
func detailOf(err error) string {
	var failed *url.Error
	if !errors.As(err, &failed) {
		return cluster.Plain(err.Error())
	}

	said := cluster.Plain(failed.Err.Error())
	if at, err := url.Parse(failed.URL); err == nil && !strings.Contains(said, at.Host) {
		return at.Host + ": " + said
	}

	return said
}

// deniedByAdmission reports whether a webhook or a policy objected to the content of a request and not to who sent
// it: both answer with the code of a missing permission.
func deniedByAdmission(message string) bool {
	return strings.Contains(message, "admission webhook") || strings.Contains(message, "ValidatingAdmissionPolicy")
}

func meaningOfStatus(op operation, status metav1.Status) []error {
	switch status.Code {
	case http.StatusUnauthorized:
		return []error{cluster.ErrCredentials}
	case http.StatusForbidden:
		if deniedByAdmission(status.Message) {
			return []error{cluster.ErrRefused}
		}

		return []error{cluster.ErrDenied}
	case http.StatusNotFound, http.StatusGone:
		return []error{cluster.ErrNotFound}
	case http.StatusConflict:
		return []error{cluster.ErrConflict}
	case http.StatusTooManyRequests:
		if len(budgets(status)) > 0 {
			return []error{cluster.ErrBudget}
		}

		return []error{cluster.ErrUnreachable}
	case http.StatusServiceUnavailable:
		return []error{cluster.ErrUnreachable}
	}

	if status.Code >= http.StatusInternalServerError && !tooLargeToStore(status.Message) {
		// The API server may have lost etcd after the write.
		return lost(op.mutates)
	}

	return []error{cluster.ErrRefused}
}

// tooLargeToStore reports whether etcd rejected an object because of its size, for which the API server returns
// only an internal error.
func tooLargeToStore(message string) bool {
	return strings.Contains(message, "request is too large") || strings.Contains(message, "message larger than max")
}

// budgets returns the API server's messages about the disruption budgets that forbid an eviction.
func budgets(status metav1.Status) []string {
	if status.Details == nil {
		return nil
	}

	var messages []string

	for _, cause := range status.Details.Causes {
		if cause.Type == policyv1.DisruptionBudgetCause {
			messages = append(messages, cause.Message)
		}
	}

	return messages
}

func detailOfStatus(status metav1.Status) string {
	if causes := budgets(status); len(causes) > 0 {
		return strings.Join(causes, "; ")
	}

	return fmt.Sprintf("%s (HTTP %d)", cluster.Plain(status.Message), status.Code)
}

func interrupted(ctx context.Context, op operation, sent bool) []error {
	if op.mutates && sent {
		return lost(true)
	}

	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return lost(false)
	}

	return nil
}

// lost returns the meanings of a missing answer.
func lost(outcomeUnknown bool) []error {
	if outcomeUnknown {
		return []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}
	}

	return []error{cluster.ErrUnreachable}
}

// rejectsCredentials reports whether a certificate was rejected or a login failed, as opposed to a connection that
// broke during the handshake.
func rejectsCredentials(text string) bool {
	return strings.Contains(text, "x509: ") || strings.Contains(text, "tls: failed to verify") ||
		strings.Contains(text, "remote error: tls: ") && !strings.Contains(text, "internal error") ||
		strings.Contains(text, "getting credentials: ")
}

// refuse returns the error of a request that is not sent.
func refuse(what, detail string, cause error) error {
	return &callError{what: what, meanings: []error{cluster.ErrRefused}, detail: detail, cause: cause}
}

// missingObject makes the error of a missing object different from that of a kind that is not served.
func missingObject(err error) error {
	var failure *callError
	if errors.Is(err, cluster.ErrNotFound) && !unserved(err) && errors.As(err, &failure) {
		failure.detail = "there is no such object"
	}

	return err
}

// vanished turns the update of an object that was deleted since it was read into a conflict.
func vanished(resourceVersion string, err error) error {
	var failure *callError
	if resourceVersion != "" && errors.As(err, &failure) && errors.Is(err, cluster.ErrNotFound) {
		failure.meanings = []error{cluster.ErrConflict}
	}

	return err
}

// unserved reports whether the API server has no such path, rather than no such object.
func unserved(err error) bool {
	return errors.Is(err, cluster.ErrNotFound) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
