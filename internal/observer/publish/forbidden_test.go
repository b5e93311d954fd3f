// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

// refusing is an API server that answers reads, and patches, with a code; without
// one it does what it is asked for.
type refusing struct {
	read, patch int
	message     string
	patched     *atomic.Int32
}

func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	code := r.patch
	if request.Method == http.MethodGet {
		code = r.read
	}

	body := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"talosupgrade"}}`

	if code == 0 {
		code = http.StatusOK

		if request.Method != http.MethodGet {
			r.patched.Add(1)
		}
	} else {
		body = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":%q}`, code, r.message)
	}

	return &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// asked makes a store of it.
func (r refusing) asked(t *testing.T) *publish.ConfigMapStore {
	t.Helper()

	store, err := publish.NewConfigMapStore(&rest.Config{Host: "http://api.test"}, &http.Client{Transport: r}, "x")
	if err != nil {
		t.Fatal(err)
	}

	return store
}

func TestWhatTheAPIServerAnswersHasAMeaning(t *testing.T) {
	value := "x"

	for name, test := range map[string]struct {
		code        int
		message     string
		read, patch error
	}{
		"forbidden":         {http.StatusForbidden, "configmaps is forbidden", cluster.ErrDenied, cluster.ErrDenied},
		"a webhook":         {http.StatusForbidden, "admission webhook denied the request", cluster.ErrRefused, cluster.ErrRefused},
		"no credentials":    {http.StatusUnauthorized, "Unauthorized", cluster.ErrCredentials, cluster.ErrCredentials},
		"invalid":           {http.StatusUnprocessableEntity, "Too long", cluster.ErrRefused, cluster.ErrRefused},
		"too large":         {http.StatusRequestEntityTooLarge, "limit is 3145728", cluster.ErrRefused, cluster.ErrRefused},
		"too large to keep": {http.StatusInternalServerError, "etcdserver: request is too large", cluster.ErrRefused, cluster.ErrRefused},
		"a conflict":        {http.StatusConflict, "modified", cluster.ErrConflict, cluster.ErrConflict},
		"no namespace":      {http.StatusNotFound, "not found", nil, cluster.ErrNotFound},
		"it is away":        {http.StatusServiceUnavailable, "away", cluster.ErrUnreachable, cluster.ErrUnreachable},
		"it lost etcd":      {http.StatusInternalServerError, "etcdserver: leader changed", cluster.ErrUnreachable, cluster.ErrOutcomeUnknown},
	} {
		store := refusing{read: test.code, patch: test.code, message: test.message}.asked(t)

		if _, err := store.Read(t.Context()); !errors.Is(err, test.read) || err != nil && !strings.Contains(err.Error(), store.String()) {
			t.Errorf("%s: reading: %v", name, err)
		}

		if err := store.Patch(t.Context(), map[string]*string{protocol.KeyTalosStatus: &value}); !errors.Is(err, test.patch) || !strings.Contains(err.Error(), store.String()) {
			t.Errorf("%s: changing: %v", name, err)
		}
	}
}

// TestAForbiddenConfigMapHoldsNothingUp, and one that may only be written is.
func TestAForbiddenConfigMapHoldsNothingUp(t *testing.T) {
	for name, test := range map[string]struct {
		patch  int
		denied bool
	}{"at all": {http.StatusForbidden, true}, "to be read": {0, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := refusing{read: http.StatusForbidden, patch: test.patch, message: "it is forbidden", patched: &atomic.Int32{}}
				publisher := publish.New(api.asked(t), publish.Options{})

				for _, event := range story() {
					publisher.Observe(event)
					synctest.Wait()
				}

				begun := time.Now()

				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()

				publisher.Flush(ctx)

				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("flushing took %s", took)
				}

				if published := api.patched.Load() > 0; published == test.denied {
					t.Errorf("it was published: %t", published)
				}

				if err := publisher.Close(t.Context()); errors.Is(err, cluster.ErrDenied) != test.denied || !test.denied && err != nil {
					t.Errorf("closing: %v", err)
				}
			})
		})
	}
}

// TestWhatIsWrittenIsNotSaidToBeMissing where it cannot be read back.
func TestWhatIsWrittenIsNotSaidToBeMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		shelf.answer = func(call string) error {
			if call == "read" {
				return fmt.Errorf("forbidden: %w", cluster.ErrDenied)
			}

			return nil
		}

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		for _, event := range story() {
			publisher.Observe(event)
			synctest.Wait()
		}

		// The status is another matter: it cannot be written without being read.
		if err := publisher.Close(t.Context()); err == nil || strings.Contains(err.Error(), "annotations") || !strings.Contains(err.Error(), "the status of") {
			t.Errorf("closing: %v", err)
		}

		if got := shelf.get(talosStatus); got != "completed" {
			t.Errorf("status %q", got)
		}
	})
}
