// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// meaning gives an error of client-go that of one of the sentinels of package
// cluster. What completes "unable to ...", and mutates tells that the request
// changes something.
func meaning(what string, mutates bool, err error) error {
	var answer apierrors.APIStatus

	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		return fmt.Errorf("unable to %s: %w: %w", what, sentinel(answer.Status(), mutates), err)
	case rejected(err.Error()):
		return fmt.Errorf("unable to %s: %w: %w", what, cluster.ErrCredentials, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("unable to %s: %w", what, err)
	default:
		return fmt.Errorf("unable to %s: %w: %w", what, lost(mutates), err)
	}
}

// sentinel is what the answer of the API server means.
func sentinel(status metav1.Status, mutates bool) error {
	switch status.Code {
	case http.StatusUnauthorized:
		return cluster.ErrCredentials
	case http.StatusForbidden:
		if strings.Contains(status.Message, "admission webhook") || strings.Contains(status.Message, "ValidatingAdmissionPolicy") {
			// They object to what was asked for, and not to who asked.
			return cluster.ErrRefused
		}

		return cluster.ErrDenied
	case http.StatusNotFound, http.StatusGone:
		return cluster.ErrNotFound
	case http.StatusConflict:
		return cluster.ErrConflict
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return cluster.ErrUnreachable
	}

	tooLarge := strings.Contains(status.Message, "request is too large") || strings.Contains(status.Message, "message larger than max")
	if status.Code >= http.StatusInternalServerError && !tooLarge {
		return lost(mutates)
	}

	return cluster.ErrRefused
}

// lost is the meaning of an answer that did not come.
func lost(mutates bool) error {
	if mutates {
		return fmt.Errorf("%w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
	}

	return cluster.ErrUnreachable
}

// rejected tells a refused certificate, or a login that failed, from a connection
// that broke.
func rejected(text string) bool {
	return strings.Contains(text, "x509: ") || strings.Contains(text, "tls: failed to verify") || strings.Contains(text, "getting credentials: ") ||
		strings.Contains(text, "remote error: tls: ") && !strings.Contains(text, "internal error")
}
