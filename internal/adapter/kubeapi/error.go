// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// operation describes a request to the people who read its errors.
type operation struct {
	// what completes "unable to ...".
	what string
	// mutates tells that the request changes something.
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

// Unwrap gives the meanings and the cause.
func (e *callError) Unwrap() []error { return append(slices.Clone(e.meanings), e.cause) }

// Explain gives an error of another client of a Kubernetes API the meaning that
// this package gives to its own: it wraps one of the sentinels of package
// cluster. The context is the caller's, what completes "unable to ...", and
// mutates tells that the failed request changes something. An error that is
// explained already, and nil, are returned as they are.
func Explain(ctx context.Context, what string, mutates bool, err error) error {
	var explained *callError
	if err == nil || errors.As(err, &explained) {
		return err
	}

	return explain(ctx, operation{what: what, mutates: mutates}, true, err)
}

// explain gives an error of client-go its meaning.
func explain(ctx context.Context, op operation, sent bool, err error) error {
	failure := &callError{what: op.what, detail: err.Error(), cause: err}

	var answer apierrors.APIStatus

	switch {
	case errors.As(err, &answer):
		failure.meanings = meaningOfStatus(op, answer.Status())
		failure.detail = detailOfStatus(answer.Status())
	case ctx.Err() != nil:
		failure.cause = context.Cause(ctx)
		failure.meanings = interrupted(ctx, op, sent)
	case rejectsCredentials(err.Error()):
		failure.meanings = []error{cluster.ErrCredentials}
	default:
		failure.meanings = lost(op.mutates && sent)
	}

	return failure
}

// deniedByAdmission tells whether a webhook or a policy objected to what was asked
// for, and not to who asked: both answer with the code of a missing permission.
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
		// The API server may have lost etcd after it had written.
		return lost(op.mutates)
	}

	return []error{cluster.ErrRefused}
}

// tooLargeToStore tells whether etcd did not take an object because of its size,
// of which the API server says only that something went wrong.
func tooLargeToStore(message string) bool {
	return strings.Contains(message, "request is too large") || strings.Contains(message, "message larger than max")
}

// budgets are what the API server says about the disruption budgets that
// forbid an eviction.
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

	return fmt.Sprintf("%s (HTTP %d)", status.Message, status.Code)
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

// lost is the meaning of a missing answer.
func lost(outcomeUnknown bool) []error {
	if outcomeUnknown {
		return []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}
	}

	return []error{cluster.ErrUnreachable}
}

// rejectsCredentials tells a refused certificate, or a login that failed, from
// a connection that broke during the handshake.
func rejectsCredentials(text string) bool {
	return strings.Contains(text, "x509: ") || strings.Contains(text, "tls: failed to verify") ||
		strings.Contains(text, "remote error: tls: ") && !strings.Contains(text, "internal error") ||
		strings.Contains(text, "getting credentials: ")
}

// NewUnavailable stands in for a Kubernetes API to which there is no way, such
// as when the credentials may not ask Talos for a kubeconfig: every method
// answers the error, as it is. It is a [cluster.WorkloadReader], a
// [cluster.ObjectAccess] and a [cluster.SecretAccess] as well.
func NewUnavailable(err error) cluster.Kubernetes { return unavailable{err} }

type unavailable struct{ err error }

func (u unavailable) UID(context.Context) (string, error) { return "", u.err }

func (u unavailable) Nodes(context.Context) ([]cluster.KubeNode, error) { return nil, u.err }

func (u unavailable) ComponentPods(context.Context) ([]cluster.ComponentPod, error) {
	return nil, u.err
}

func (u unavailable) Cordon(context.Context, string, string) (bool, error) { return false, u.err }

func (u unavailable) Uncordon(context.Context, string) error { return u.err }

func (u unavailable) PodsToEvict(context.Context, string) ([]cluster.Pod, error) {
	return nil, u.err
}

func (u unavailable) Evict(context.Context, cluster.Pod) error { return u.err }

func (u unavailable) DeletePod(context.Context, cluster.Pod) error { return u.err }

func (u unavailable) Lease(context.Context) (cluster.Lease, error) { return cluster.Lease{}, u.err }

func (u unavailable) WriteLease(context.Context, cluster.Lease) (cluster.Lease, error) {
	return cluster.Lease{}, u.err
}

func (u unavailable) Journal(context.Context) (cluster.Journal, error) {
	return cluster.Journal{}, u.err
}

func (u unavailable) WriteJournal(context.Context, cluster.Journal) (cluster.Journal, error) {
	return cluster.Journal{}, u.err
}

// Workloads implements [cluster.WorkloadReader].
func (u unavailable) Workloads(context.Context) (cluster.Workloads, error) {
	return cluster.Workloads{}, u.err
}

// Objects implements [cluster.Objects].
func (u unavailable) Objects(context.Context, cluster.ObjectQuery) ([]map[string]any, error) {
	return nil, u.err
}

// Object implements [cluster.ObjectAccess].
func (u unavailable) Object(context.Context, cluster.Reference) (map[string]any, error) {
	return nil, u.err
}

// PatchObject implements [cluster.ObjectAccess].
func (u unavailable) PatchObject(context.Context, cluster.Reference, string, map[string]any) (map[string]any, error) {
	return nil, u.err
}

// HasPart implements [cluster.ObjectAccess].
func (u unavailable) HasPart(context.Context, cluster.Reference, string) (bool, error) {
	return false, u.err
}

// Secret implements [cluster.SecretAccess].
func (u unavailable) Secret(context.Context, string, string) (cluster.Secret, error) {
	return cluster.Secret{}, u.err
}

// Secrets implements [cluster.SecretAccess].
func (u unavailable) Secrets(context.Context, string, string) ([]cluster.Secret, error) {
	return nil, u.err
}

// PatchSecret implements [cluster.SecretAccess].
func (u unavailable) PatchSecret(context.Context, cluster.Secret, map[string][]byte) error {
	return u.err
}

func (u unavailable) Forget(context.Context, string) ([]string, error) { return nil, u.err }

// shortestValue is how long a value of a Secret must be to be looked for in the
// messages of an API server, in bytes: those of a few letters are in many texts.
const shortestValue = 4

// Secret implements [cluster.SecretAccess].
func (c *Client) Secret(ctx context.Context, namespace, name string) (cluster.Secret, error) {
	what := "read the Secret " + namespace + "/" + name

	if err := validSecret(what, namespace, name); err != nil {
		return cluster.Secret{}, err
	}

	var object corev1.Secret

	err := read(ctx, what, c.core.Get().Namespace(namespace).Resource("secrets").Name(name), &object)
	if err != nil {
		return cluster.Secret{}, missingObject(err)
	}

	return secretFrom(&object), nil
}

// Secrets implements [cluster.SecretAccess].
func (c *Client) Secrets(ctx context.Context, namespace, selector string) ([]cluster.Secret, error) {
	what := "list the Secrets in the namespace " + namespace + " with the labels " + selector

	if err := validSecret(what, namespace, "-"); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	request := func() *rest.Request {
		return c.core.Get().Namespace(namespace).Resource("secrets").Param("labelSelector", selector)
	}

	found, err := listOf(ctx, what, request, func() *corev1.SecretList { return &corev1.SecretList{} },
		func(list *corev1.SecretList) []cluster.Secret {
			secrets := make([]cluster.Secret, 0, len(list.Items))
			for i := range list.Items {
				secrets = append(secrets, secretFrom(&list.Items[i]))
			}

			return secrets
		})

	slices.SortFunc(found, func(a, b cluster.Secret) int { return cmp.Compare(a.Name, b.Name) })

	return found, err
}

// PatchSecret implements [cluster.SecretAccess]. A Secret that was deleted since
// is a conflict as well.
func (c *Client) PatchSecret(ctx context.Context, read cluster.Secret, data map[string][]byte) error {
	what := "change the Secret " + read.Namespace + "/" + read.Name

	if err := validSecret(what, read.Namespace, read.Name); err != nil {
		return err
	}

	if read.ResourceVersion == "" {
		return refuse(what, "it is changed only as it was read, and it was not", cluster.ErrRefused)
	}

	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": read.ResourceVersion},
		"data":     data,
	})
	if err != nil {
		return refuse(what, "the values cannot be encoded", cluster.ErrRefused)
	}

	err = change(ctx, what, c.core.Patch(types.MergePatchType).Namespace(read.Namespace).Resource("secrets").Name(read.Name).Body(body), nil)

	return withoutValues(vanished(read.ResourceVersion, missingObject(err)), read.Data, data)
}

func validSecret(what, namespace, name string) error {
	if namespace == "" {
		return refuse(what, "it has no namespace", cluster.ErrRefused)
	}

	if name == "" {
		return refuse(what, "it has no name", cluster.ErrRefused)
	}

	return validSegments(what, namespace, name)
}

func secretFrom(object *corev1.Secret) cluster.Secret {
	return cluster.Secret{
		Namespace: object.Namespace, Name: object.Name, Data: object.Data, ResourceVersion: object.ResourceVersion,
	}
}

// withoutValues takes from an error what it quotes of a Secret: what objects to a
// change, such as a webhook, may repeat it.
func withoutValues(err error, contents ...map[string][]byte) error {
	var failure *callError
	if !errors.As(err, &failure) {
		return err
	}

	text := failure.detail + " " + failure.cause.Error()

	for _, content := range contents {
		for _, value := range content {
			if len(value) < shortestValue {
				continue
			}

			if strings.Contains(text, string(value)) || strings.Contains(text, base64.StdEncoding.EncodeToString(value)) {
				failure.detail = "the answer is left out here, because it quotes what the Secret holds"
				failure.cause = errQuotes

				return err
			}
		}
	}

	return err
}

// errQuotes stands in for the answer that quotes a Secret.
var errQuotes = errors.New("answer left out")
