// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const thingsList = `{"kind":"APIResourceList","groupVersion":"example.org/v1","resources":[
	{"name":"things","kind":"Thing","namespaced":true},{"name":"things/status","kind":"Thing","namespaced":true},
	{"name":"worlds","kind":"World"}]}`

var thing = cluster.Reference{APIVersion: "example.org/v1", Kind: "Thing", Namespace: "ns", Name: "a"}

// workshop answers for the kinds of example.org, and leaves the rest to the handler.
func workshop(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/example.org/v1" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, thingsList)

			return
		}

		handler(w, r)
	}
}

// writes are the changes, reduced to their errors.
func writes(api *kubeapi.Client) map[string]func(context.Context) error {
	read := cluster.Secret{Namespace: "ns", Name: "s", ResourceVersion: "1"}

	return map[string]func(context.Context) error{
		"an object": func(ctx context.Context) error {
			_, err := api.PatchObject(ctx, thing, "", map[string]any{})

			return err
		},
		"a status": func(ctx context.Context) error {
			_, err := api.PatchObject(ctx, thing, "status", map[string]any{})

			return err
		},
		"a Secret": func(ctx context.Context) error { return api.PatchSecret(ctx, read, nil) },
	}
}

func TestChangesAreNamedByMeaningAndSentOnce(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		want    error
		unknown bool
	}{
		"unauthorized":     {status(401, "Unauthorized", "Unauthorized"), cluster.ErrCredentials, false},
		"forbidden":        {status(403, "Forbidden", "User \"reader\" cannot patch resource"), cluster.ErrDenied, false},
		"a webhook":        {status(403, "Forbidden", `admission webhook "w" denied the request: no`), cluster.ErrRefused, false},
		"a race":           {status(409, "Conflict", "the object has been modified"), cluster.ErrConflict, false},
		"invalid":          {status(422, "Invalid", "is invalid: metadata.annotations: Too long"), cluster.ErrRefused, false},
		"strict":           {status(400, "BadRequest", `strict decoding error: unknown field "status.phase"`), cluster.ErrRefused, false},
		"too large":        {status(413, "RequestEntityTooLarge", "limit is 3145728"), cluster.ErrRefused, false},
		"too large for it": {status(500, "InternalError", "etcdserver: request is too large"), cluster.ErrRefused, false},
		"away":             {status(503, "ServiceUnavailable", "apiserver is shutting down"), cluster.ErrUnreachable, false},
		"no verdict":       {status(500, "InternalError", "etcdserver: request timed out"), cluster.ErrUnreachable, true},
		"cut off":          {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, cluster.ErrOutcomeUnknown, true},
	} {
		var sent atomic.Int32

		api, _ := connect(t, workshop(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPatch {
				t.Errorf("%s: %s %s", name, r.Method, r.URL)
			}

			sent.Add(1)
			test.answer(w, r)
		}))

		for what, write := range writes(api) {
			sent.Store(0)

			err := write(t.Context())
			if !errors.Is(err, test.want) || errors.Is(err, cluster.ErrOutcomeUnknown) != test.unknown || sent.Load() != 1 {
				t.Errorf("%s of %s, sent %d times: %v; want %v once, outcome unknown: %t", name, what, sent.Load(), err, test.want, test.unknown)
			}
		}
	}
}

func TestChangesGoWhereTheyBelong(t *testing.T) {
	t.Parallel()

	type sent struct{ method, url, kind, body string }

	last := make(chan sent, 1)

	api, _ := connect(t, workshop(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last <- sent{r.Method, r.URL.Path + "?" + r.URL.Query().Get("fieldValidation"), r.Header.Get("Content-Type"), string(body)}

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"8","managedFields":[{}],
			"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","k":"v"}},"spec":{"n":3}}`)
	}))

	after, err := api.PatchObject(t.Context(), thing, "", annotated(map[string]any{"k": "v", "gone": nil}))
	if err != nil || field(after, "metadata", "managedFields") != nil || field(after, "metadata", "annotations", corev1.LastAppliedConfigAnnotation) != nil || field(after, "spec", "n") != int64(3) {
		t.Errorf("%v, %v", after, err)
	}

	if got := <-last; got != (sent{"PATCH", "/apis/example.org/v1/namespaces/ns/things/a?", "application/merge-patch+json", `{"metadata":{"annotations":{"gone":null,"k":"v"}}}`}) {
		t.Errorf("of an object: %+v", got)
	}

	if _, err := api.PatchObject(t.Context(), thing, "status", map[string]any{"status": map[string]any{"phase": "Ready"}}); err != nil {
		t.Error(err)
	}

	if got := <-last; got != (sent{"PATCH", "/apis/example.org/v1/namespaces/ns/things/a/status?Strict", "application/merge-patch+json", `{"status":{"phase":"Ready"}}`}) {
		t.Errorf("of a status: %+v", got)
	}

	world := cluster.Reference{APIVersion: "example.org/v1", Kind: "World", Name: "w"}
	if _, err := api.Object(t.Context(), world); err != nil {
		t.Error(err)
	}

	if got := <-last; got.method != "GET" || got.url != "/apis/example.org/v1/worlds/w?" {
		t.Errorf("of what is in no namespace: %+v", got)
	}

	secret := cluster.Secret{Namespace: "ns", Name: "a", ResourceVersion: "7"}
	if err := api.PatchSecret(t.Context(), secret, map[string][]byte{"talos_version": []byte("1.13.4")}); err != nil {
		t.Error(err)
	}

	if got := <-last; got != (sent{"PATCH", "/api/v1/namespaces/ns/secrets/a?", "application/merge-patch+json", `{"data":{"talos_version":"MS4xMy40"},"metadata":{"resourceVersion":"7"}}`}) {
		t.Errorf("of a Secret: %+v", got)
	}
}

func TestWhatMakesNoSenseIsNotSent(t *testing.T) {
	t.Parallel()

	api, _ := connect(t, workshop(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s %s", r.Method, r.URL) }))

	with := func(change func(*cluster.Reference)) cluster.Reference {
		of := thing
		change(&of)

		return of
	}

	for name, test := range map[string]struct {
		of   cluster.Reference
		part string
		want error
		says string
	}{
		"a Secret":             {cluster.Reference{APIVersion: "v1", Kind: "Secret", Namespace: "ns", Name: "s"}, "", cluster.ErrRefused, "Secrets"},
		"a Secret in disguise": {cluster.Reference{APIVersion: "/v1", Kind: "Secret", Namespace: "ns", Name: "s"}, "", cluster.ErrRefused, "Secrets"},
		"no name":              {with(func(r *cluster.Reference) { r.Name = "" }), "", cluster.ErrRefused, "no name"},
		"a path as a name":     {with(func(r *cluster.Reference) { r.Name = "../x" }), "", cluster.ErrRefused, `"../x" is no name`},
		"a path as namespace":  {with(func(r *cluster.Reference) { r.Namespace = "a/b" }), "", cluster.ErrRefused, `"a/b" is no name`},
		"no version":           {with(func(r *cluster.Reference) { r.APIVersion = "" }), "", cluster.ErrRefused, "names no version"},
		"no namespace":         {with(func(r *cluster.Reference) { r.Namespace = "" }), "", cluster.ErrRefused, "name it"},
		"a namespace too many": {cluster.Reference{APIVersion: "example.org/v1", Kind: "World", Namespace: "ns", Name: "w"}, "", cluster.ErrRefused, "leave the namespace out"},
		"no such kind":         {with(func(r *cluster.Reference) { r.Kind = "Nothing" }), "", cluster.ErrNotFound, "serves no such kind"},
		"no such part":         {with(func(*cluster.Reference) {}), "scale", cluster.ErrNotFound, "no scale"},
	} {
		_, err := api.PatchObject(t.Context(), test.of, test.part, map[string]any{})
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("changing %s: %v, want %v with %q", name, err, test.want, test.says)
		}

		if test.part != "" {
			continue
		}

		if _, err := api.Object(t.Context(), test.of); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("reading %s: %v, want %v with %q", name, err, test.want, test.says)
		}

		if _, err := api.HasPart(t.Context(), test.of, "status"); !errors.Is(err, test.want) {
			t.Errorf("asking for the status of %s: %v, want %v", name, err, test.want)
		}
	}

	for name, call := range map[string]func() error{
		"a Secret without a name":      func() error { _, err := api.Secret(t.Context(), "ns", ""); return err },
		"a Secret without a namespace": func() error { _, err := api.Secret(t.Context(), "", "s"); return err },
		"Secrets of everywhere":        func() error { _, err := api.Secrets(t.Context(), "", "a=b"); return err },
		"Secrets of a path":            func() error { _, err := api.Secrets(t.Context(), "a/b", "a=b"); return err },
		"a Secret that was not read": func() error {
			return api.PatchSecret(t.Context(), cluster.Secret{Namespace: "ns", Name: "s"}, nil)
		},
	} {
		if err := call(); !errors.Is(err, cluster.ErrRefused) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}

// TestAnAPIServerThatHidesWhatIsThere: an authorization that denies what it does
// not name denies the kinds too.
func TestAnAPIServerThatHidesWhatIsThere(t *testing.T) {
	t.Parallel()

	api, _ := connect(t, status(http.StatusForbidden, "Forbidden", "no"))

	calls := writes(api)
	calls["reading"] = func(ctx context.Context) error { _, err := api.Object(ctx, thing); return err }
	calls["asking"] = func(ctx context.Context) error { _, err := api.HasPart(ctx, thing, "status"); return err }
	calls["a Secret"] = func(ctx context.Context) error { _, err := api.Secret(ctx, "ns", "s"); return err }
	calls["Secrets"] = func(ctx context.Context) error { _, err := api.Secrets(ctx, "ns", "a=b"); return err }

	for name, call := range calls {
		if err := call(t.Context()); !errors.Is(err, cluster.ErrDenied) {
			t.Errorf("%s: %v, want it denied", name, err)
		}
	}
}

// TestAnErrorQuotesNothingOfASecret, also where the answer does.
func TestAnErrorQuotesNothingOfASecret(t *testing.T) {
	t.Parallel()

	read := cluster.Secret{Namespace: "ns", Name: "s", ResourceVersion: "1", Data: map[string][]byte{"kube.config": []byte("hunter2-of-old")}}
	data := map[string][]byte{"talosconfig": []byte("hunter2-of-new")}

	for name, answer := range map[string]string{
		"what stood":    "the webhook saw hunter2-of-old",
		"what was sent": `cannot take "hunter2-of-new"`,
		"encoded":       "cannot take aHVudGVyMi1vZi1uZXc=",
	} {
		api, _ := connect(t, status(http.StatusUnprocessableEntity, "Invalid", answer))

		err := api.PatchSecret(t.Context(), read, data)
		if !errors.Is(err, cluster.ErrRefused) {
			t.Fatalf("%s: %v, want it refused", name, err)
		}

		for _, one := range everyError(err) {
			if strings.Contains(one, "hunter2") || strings.Contains(one, "aHVudGVy") {
				t.Errorf("%s: the error says %q", name, one)
			}
		}
	}

	api, _ := connect(t, status(http.StatusUnprocessableEntity, "Invalid", "data[a b]: Invalid value"))

	if err := api.PatchSecret(t.Context(), read, data); err == nil || !strings.Contains(err.Error(), "data[a b]") {
		t.Errorf("%v, want it to say what is wrong where that gives nothing away", err)
	}
}

// everyError are the texts of the error and of all that it wraps.
func everyError(err error) []string {
	texts := []string{err.Error(), fmt.Sprintf("%+v", err)}

	switch wrapping := err.(type) { //nolint:errorlint // one layer after the other
	case interface{ Unwrap() error }:
		if inner := wrapping.Unwrap(); inner != nil {
			texts = append(texts, everyError(inner)...)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapping.Unwrap() {
			texts = append(texts, everyError(inner)...)
		}
	}

	return texts
}

// TestSecretsAreReadPageByPage and come sorted.
func TestSecretsAreReadPageByPage(t *testing.T) {
	t.Parallel()

	api, requests := connect(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.URL.Path != "/api/v1/namespaces/ns/secrets" || query.Get("labelSelector") != "a=b" {
			status(http.StatusBadRequest, "BadRequest", r.URL.String())(w, r)

			return
		}

		next, name := "2", "z"
		if query.Get("continue") != "" {
			next, name = "", "b"
		}

		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": "SecretList", "apiVersion": "v1", "metadata": map[string]any{"continue": next},
			"items": []any{map[string]any{"metadata": map[string]any{"namespace": "ns", "name": name, "resourceVersion": "5"}, "data": map[string]any{"k": "dg=="}}},
		})
	})

	found, err := api.Secrets(t.Context(), "ns", "a=b")
	if err != nil || len(found) != 2 || found[0].Name != "b" || found[1].Name != "z" || string(found[0].Data["k"]) != "v" || found[1].ResourceVersion != "5" || requests.Load() != 2 {
		t.Errorf("%d requests, %+v, %v", requests.Load(), found, err)
	}
}
