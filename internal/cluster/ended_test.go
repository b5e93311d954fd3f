// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestEnded_SaysInWordsWhy, and is still told apart with errors.Is.
func TestEnded_SaysInWordsWhy(t *testing.T) {
	t.Parallel()

	reason := errors.New("the lease was taken over")

	for name, test := range map[string]struct {
		cause, is error
		says      string
	}{
		"interrupted":      {nil, context.Canceled, "it was interrupted"},
		"late":             {context.DeadlineExceeded, context.DeadlineExceeded, "no answer in time"},
		"late, with words": {cluster.Unanswered(10 * time.Second), context.DeadlineExceeded, "no answer within 10s"},
		"a reason":         {reason, reason, reason.Error()},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())

		if err := cluster.Ended(ctx); err != nil {
			t.Errorf("%s: it has not ended and says %v", name, err)
		}

		cancel(test.cause)

		if err := cluster.Ended(ctx); !errors.Is(err, test.is) || err.Error() != test.says {
			t.Errorf("%s: got %v, want it to say %q", name, err, test.says)
		}
	}
}

// TestEnded_OfADeadline: a context without a cause has words as well.
func TestEnded_OfADeadline(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()

	if err := cluster.Ended(ctx); !errors.Is(err, context.DeadlineExceeded) || err.Error() != "no answer in time" {
		t.Errorf("got %v", err)
	}
}

// TestWorded_IsTheSameErrorInWords.
func TestWorded_IsTheSameErrorInWords(t *testing.T) {
	t.Parallel()

	wrapped := fmt.Errorf("unable to patch: %w", context.DeadlineExceeded)
	if err := cluster.Worded(wrapped); err.Error() != "unable to patch: no answer in time" || !errors.Is(err, wrapped) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}

	other := errors.New("connection refused")
	if err := cluster.Worded(other); err != other || cluster.Worded(nil) != nil { //nolint:errorlint // it is the very same one
		t.Errorf("got %v", err)
	}
}

// TestPlain_KnowsEverySpelling that the libraries beneath have for the end of a context.
func TestPlain_KnowsEverySpelling(t *testing.T) {
	t.Parallel()

	for said, want := range map[string]string{
		"context deadline exceeded": "no answer in time",
		"context canceled":          "it was interrupted",
		"failed to create etcd client: context deadline exceeded":                                                  "failed to create etcd client: no answer in time",
		"10.5.0.2:6443: net/http: request canceled (Client.Timeout exceeded while awaiting headers)":               "10.5.0.2:6443: no answer in time",
		"context deadline exceeded (Client.Timeout exceeded while awaiting headers)":                               "no answer in time",
		"net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)": "no answer in time",
		"net/http: request canceled while waiting for connection":                                                  "it was interrupted",
		"client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline":                "no answer in time",
		"client rate limiter Wait returned an error: context canceled":                                             "it was interrupted",
		"dial tcp 10.5.0.2:6443: operation was canceled":                                                           "dial tcp 10.5.0.2:6443: it was interrupted",
		"Timeout: request did not complete within requested timeout - context deadline exceeded":                   "Timeout: request did not complete within requested timeout - no answer in time",
		"connection refused": "connection refused",
	} {
		if got := cluster.Plain(said); got != want {
			t.Errorf("%q became %q, want %q", said, got, want)
		}
	}
}
