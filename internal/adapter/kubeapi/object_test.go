// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	gadgetGroup   = "/apis/workshop.example.org/"
	gadgetsCustom = "gadgets.workshop.example.org"
)

// gadget returns an object of a kind whose version v1 has a status with a few fields,
// and whose version v2 has none.
func gadget(name string) cluster.Reference {
	return cluster.Reference{APIVersion: "workshop.example.org/v1", Kind: "Gadget", Namespace: "default", Name: name}
}

// defineGadgets adds the kind for the duration of the test.
func defineGadgets(t *testing.T, other kubernetes.Interface) {
	t.Helper()

	body, err := os.ReadFile("testdata/gadgets.json")
	if err != nil {
		t.Fatal(err)
	}

	client := other.Discovery().RESTClient()

	if err := client.Post().AbsPath(definitions).Body(body).SetHeader("Content-Type", "application/json").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())

		if err := client.Delete().AbsPath(definitions, gadgetsCustom).Do(ctx).Error(); err != nil {
			t.Error(err)
		}

		eventually(t, "the kind to be gone", func() (bool, error) {
			return client.Get().AbsPath(gadgetGroup+"v1", "gadgets").Do(ctx).Error() != nil, nil
		})
	})

	eventually(t, "the new kind to be served", func() (bool, error) {
		served, err := other.Discovery().ServerResourcesForGroupVersion("workshop.example.org/v1")

		return err == nil && len(served.APIResources) == 2, err
	})
}

func addGadget(t *testing.T, other kubernetes.Interface, name string) {
	t.Helper()

	body := `{"apiVersion":"workshop.example.org/v1","kind":"Gadget","metadata":{"name":"` + name + `","annotations":{"theirs":"yes"}},"spec":{"filling":"air"}}`

	if err := other.Discovery().RESTClient().Post().AbsPath(gadgetGroup+"v1", "namespaces", "default", "gadgets").
		Body([]byte(body)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

// field returns the value at the path in an object; nil if there is none.
func field(object map[string]any, path ...string) any {
	var found any = object

	for _, name := range path {
		inner, _ := found.(map[string]any)
		found = inner[name]
	}

	return found
}

func annotated(changes map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": changes}}
}

func TestObject_IsReadAndChanged(t *testing.T) {
	api, other := live(t)

	if _, err := api.Object(t.Context(), gadget("a")); !errors.Is(err, cluster.ErrNotFound) || !strings.Contains(err.Error(), "serves no such kind") {
		t.Errorf("before it is defined: %v, want the kind not found", err)
	}

	defineGadgets(t, other)

	if _, err := api.Object(t.Context(), gadget("a")); !errors.Is(err, cluster.ErrNotFound) || !strings.Contains(err.Error(), "Gadget default/a") || !strings.Contains(err.Error(), "no such object") {
		t.Errorf("before there is one: %v, want the object not found", err)
	}

	if _, err := api.PatchObject(t.Context(), gadget("a"), "", annotated(nil)); !errors.Is(err, cluster.ErrNotFound) || !strings.Contains(err.Error(), "no such object") {
		t.Errorf("changing what is not there: %v, want the object not found", err)
	}

	addGadget(t, other, "a")

	before, err := api.Object(t.Context(), gadget("a"))
	if err != nil {
		t.Fatal(err)
	}

	if field(before, "metadata", "uid") == nil || field(before, "metadata", "resourceVersion") == nil || field(before, "metadata", "annotations", "theirs") != "yes" {
		t.Errorf("read %v, want its UID, version and annotations", before["metadata"])
	}

	if field(before, "metadata", "managedFields") != nil || field(before, "kind") != "Gadget" || field(before, "spec", "filling") != "air" {
		t.Errorf("read %v", before)
	}

	after, err := api.PatchObject(t.Context(), gadget("a"), "", annotated(map[string]any{"ours": "1", "never": nil}))
	if err != nil || field(after, "metadata", "annotations", "ours") != "1" || field(after, "metadata", "annotations", "theirs") != "yes" {
		t.Fatalf("annotated: %v, %v", after, err)
	}

	if after, err = api.PatchObject(t.Context(), gadget("a"), "", annotated(map[string]any{"ours": nil})); err != nil || field(after, "metadata", "annotations", "ours") != nil {
		t.Errorf("annotation removed: %v, %v", after, err)
	}

	// The object is no longer as it was first read.
	conditional := func(read map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{"ours": "2"}, "resourceVersion": field(read, "metadata", "resourceVersion"),
		}}
	}

	if _, err := api.PatchObject(t.Context(), gadget("a"), "", conditional(before)); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("with an old version: %v, want a conflict", err)
	}

	if after, err = api.PatchObject(t.Context(), gadget("a"), "", conditional(after)); err != nil || field(after, "metadata", "annotations", "ours") != "2" {
		t.Errorf("with the version that stands: %v, %v", after, err)
	}
}

func TestObject_IsCreatedOnce(t *testing.T) {
	api, other := live(t)

	defineGadgets(t, other)

	object := map[string]any{
		"apiVersion": gadget("made").APIVersion, "kind": "Gadget", "spec": map[string]any{"filling": "air"},
		"metadata": map[string]any{"namespace": "default", "name": "made"},
	}

	created, err := api.CreateObject(t.Context(), gadget("made"), object)
	if err != nil || field(created, "metadata", "uid") == nil || field(created, "spec", "filling") != "air" {
		t.Fatalf("created %v, %v", created, err)
	}

	if _, err := api.CreateObject(t.Context(), gadget("made"), object); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("once more: %v, want a conflict", err)
	}

	secret := cluster.Reference{APIVersion: "v1", Kind: "Secret", Namespace: "default", Name: "made"}
	if _, err := api.CreateObject(t.Context(), secret, map[string]any{}); !errors.Is(err, cluster.ErrRefused) {
		t.Errorf("a Secret: %v, want a refusal", err)
	}
}

func TestObject_StatusHasTheFieldsOfItsKind(t *testing.T) {
	api, other := live(t)

	defineGadgets(t, other)
	addGadget(t, other, "b")

	second := gadget("b")
	second.APIVersion = "workshop.example.org/v2"

	for name, test := range map[string]struct {
		of   cluster.Reference
		part string
		want bool
	}{
		"status": {gadget("b"), "status", true}, "another part": {gadget("b"), "scale", false}, "a version without": {second, "status", false},
		"of the core": {cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "x"}, "status", false},
		"of a node":   {cluster.Reference{APIVersion: "v1", Kind: "Node", Name: "cp-0"}, "status", true},
	} {
		if found, err := api.HasPart(t.Context(), test.of, test.part); err != nil || found != test.want {
			t.Errorf("%s: %t, %v; want %t", name, found, err, test.want)
		}
	}

	after, err := api.PatchObject(t.Context(), gadget("b"), "status", map[string]any{"status": map[string]any{"phase": "Turning", "count": 3}})
	if err != nil || field(after, "status", "phase") != "Turning" || field(after, "status", "count") != int64(3) {
		t.Fatalf("status %v, %v", after["status"], err)
	}

	for name, test := range map[string]struct {
		status map[string]any
		says   string
	}{
		"a field that the kind does not have": {map[string]any{"phase": "Stopped", "conditions": []any{}}, "conditions"},
		"a value of another type":             {map[string]any{"count": "many"}, "count"},
	} {
		if _, err := api.PatchObject(t.Context(), gadget("b"), "status", map[string]any{"status": test.status}); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want it refused with %q", name, err, test.says)
		}
	}

	if _, err := api.PatchObject(t.Context(), second, "status", map[string]any{"status": map[string]any{}}); !errors.Is(err, cluster.ErrNotFound) || !strings.Contains(err.Error(), "no status") {
		t.Errorf("a kind without a status: %v, want the part not found", err)
	}

	found, err := api.Object(t.Context(), gadget("b"))
	if err != nil || field(found, "status", "phase") != "Turning" || field(found, "spec", "filling") != "air" {
		t.Errorf("afterwards %v, %v; want nothing of what was refused", found, err)
	}
}

// TestObject_TooLargeIsRefused, whichever limit it meets first.
func TestObject_TooLargeIsRefused(t *testing.T) {
	api, other := live(t)

	defineGadgets(t, other)
	addGadget(t, other, "c")

	for name, patch := range map[string]map[string]any{
		"annotations":        annotated(map[string]any{"ours": strings.Repeat("x", 300<<10)}),
		"what etcd stores":   {"spec": map[string]any{"filling": strings.Repeat("x", 2<<20)}},
		"what is sent at it": {"spec": map[string]any{"filling": strings.Repeat("x", 4<<20)}},
	} {
		_, err := api.PatchObject(t.Context(), gadget("c"), "", patch)
		if !errors.Is(err, cluster.ErrRefused) || errors.Is(err, cluster.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want it refused", name, err)
		}

		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: the error is %d bytes long", name, len(err.Error()))
		}
	}
}

// TestObject_KindThatMovedIsFoundAgain: what the client remembers about it may be out of date.
func TestObject_KindThatMovedIsFoundAgain(t *testing.T) {
	api, other := live(t)

	defineGadgets(t, other)
	addGadget(t, other, "d")

	if found, err := api.HasPart(t.Context(), gadget("d"), "status"); err != nil || !found {
		t.Fatalf("%t, %v", found, err)
	}

	patch := `[{"op":"remove","path":"/spec/versions/0/subresources"}]`
	if err := other.Discovery().RESTClient().Patch(types.JSONPatchType).AbsPath(definitions, gadgetsCustom).Body([]byte(patch)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the status to be gone", func() (bool, error) {
		_, err := api.PatchObject(t.Context(), gadget("d"), "status", map[string]any{"status": map[string]any{"phase": "x"}})

		return errors.Is(err, cluster.ErrNotFound) && strings.Contains(err.Error(), "no status"), nil
	})

	eventually(t, "that to be known", func() (bool, error) {
		found, err := api.HasPart(t.Context(), gadget("d"), "status")

		return !found, err
	})
}

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

// writes returns the changes, reduced to their errors.
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

func TestObject_ChangesAreNamedByMeaningAndSentOnce(t *testing.T) {
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

func TestObject_ChangesGoToTheRightResource(t *testing.T) {
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

func TestObject_InvalidChangesAreNotSent(t *testing.T) {
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

// TestObject_APIServerMayHideKinds: an authorization that denies everything it does not name also denies reading the
// kinds.
func TestObject_APIServerMayHideKinds(t *testing.T) {
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

// TestObject_ErrorQuotesNothingOfASecret, even if the answer does.
func TestObject_ErrorQuotesNothingOfASecret(t *testing.T) {
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

// everyError returns the texts of the error and of all that it wraps.
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

// TestObject_SecretsAreReadPageByPage and come sorted.
func TestObject_SecretsAreReadPageByPage(t *testing.T) {
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

// things returns a query for objects of a kind that [serveThings] has.
func things() cluster.ObjectQuery {
	return cluster.ObjectQuery{APIVersion: "example.org/v1", Kind: "Thing"}
}

// serveThings returns a server of one kind, whose objects the handler answers.
func serveThings(t *testing.T, handler http.HandlerFunc) (*kubeapi.Client, *atomic.Int32) {
	t.Helper()

	return connect(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		if r.URL.Path == "/apis/example.org/v1" {
			// The transport itself repeats a request that fails on a connection used before.
			w.Header().Set("Connection", "close")

			_, _ = w.Write([]byte(`{"kind":"APIResourceList","resources":[{"name":"things","kind":"Thing"}]}`))

			return
		}

		handler(w, r)
	})
}

func TestObject_ComesWithoutManagedFields(t *testing.T) {
	t.Parallel()

	const object = `{"metadata":{"name":"a","managedFields":[{"manager":"kubectl"}],"annotations":
		{"kubectl.kubernetes.io/last-applied-configuration":"{}","example.org/kept":"yes"}},"spec":{"managedFields":"mine"}}`

	api, _ := serveThings(t, func(w http.ResponseWriter, r *http.Request) {
		body := object
		if strings.HasSuffix(r.URL.Path, "/things") {
			body = `{"metadata":{},"items":[` + object + `,{"metadata":{"name":"b"}},{"metadata":7}]}`
		}

		_, _ = w.Write([]byte(body))
	})

	for name, query := range map[string]cluster.ObjectQuery{"all": things(), "one": with(things(), "", "a", "")} {
		objects, err := api.Objects(t.Context(), query)
		if err != nil || len(objects) == 0 {
			t.Errorf("%s: %d objects, %v", name, len(objects), err)

			continue
		}

		// An object without a name comes first.
		got, err := json.Marshal(objects[len(objects)/2])
		if err != nil {
			t.Fatal(err)
		}

		for text, want := range map[string]bool{"kubectl": false, `"example.org/kept":"yes"`: true, `"managedFields":"mine"`: true, `"name":"a"`: true} {
			if strings.Contains(string(got), text) != want {
				t.Errorf("%s: %s, want %s in it: %t", name, got, text, want)
			}
		}
	}
}

// TestObject_LargeOnesAreReadInSmallerPages, so that little is held at once that is not kept.
func TestObject_LargeOnesAreReadInSmallerPages(t *testing.T) {
	t.Parallel()

	const objects, small, size = 530, 500, 400_000

	var (
		mutex  sync.Mutex
		limits []int
	)

	api, _ := serveThings(t, func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))

		mutex.Lock()
		limits = append(limits, limit)
		mutex.Unlock()

		page := map[string]any{"metadata": map[string]any{}}
		if from+limit < objects {
			page["metadata"] = map[string]any{"continue": strconv.Itoa(from + limit)}
		}

		var items []map[string]any
		for i := from; i < min(from+limit, objects); i++ {
			item := map[string]any{"metadata": map[string]any{"name": fmt.Sprintf("%03d", i)}}
			if i >= small {
				item["data"] = strings.Repeat("x", size)
			}

			items = append(items, item)
		}

		page["items"] = items

		_ = json.NewEncoder(w).Encode(page)
	})

	found, err := api.Objects(t.Context(), things())
	if err != nil || len(found) != objects {
		t.Fatalf("%d objects, %v", len(found), err)
	}

	for i, object := range found {
		if metadata, _ := object["metadata"].(map[string]any); metadata["name"] != fmt.Sprintf("%03d", i) {
			t.Errorf("object %d is %v", i, metadata["name"])
		}
	}

	// The second of 500 and the eleventh of 50 are too large.
	asked := map[int]int{}
	for _, limit := range limits {
		asked[limit]++
	}

	if want := map[int]int{500: 2, 50: 11, 5: objects / 5}; !maps.Equal(asked, want) {
		t.Errorf("asked for pages of %v, want %v", asked, want)
	}
}

func TestObject_MoreThanFitAreRefused(t *testing.T) {
	t.Parallel()

	const page = 6 << 20

	large := `{"metadata":{"name":"a"},"data":"` + strings.Repeat("x", page) + `"}`

	for name, test := range map[string]struct {
		query   cluster.ObjectQuery
		handler http.HandlerFunc
		most    int32
	}{
		// These are one more page than fit, and the request for the kind.
		"in many pages": {things(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"metadata":{"continue":"on"},"items":[` + large + `]}`))
		}, 12},
		// Some servers that do not support pages answer like this.
		"in one": {things(), func(w http.ResponseWriter, _ *http.Request) { endless(w, `{"items":[`+large, ","+large) }, 4},
		"in one object": {with(things(), "", "a", ""), func(w http.ResponseWriter, _ *http.Request) {
			endless(w, `{"data":"`, strings.Repeat("x", page))
		}, 2},
	} {
		api, requests := serveThings(t, test.handler)

		objects, err := api.Objects(t.Context(), test.query)
		if !errors.Is(err, cluster.ErrRefused) || objects != nil {
			t.Errorf("%s: %d objects, %v; want them refused", name, len(objects), err)

			continue
		}

		for _, want := range []string{"unable to read the Thing objects of example.org/v1", "64 MiB", "by namespace, name or selector"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want it to say %q", name, err, want)
			}
		}

		if requests.Load() > test.most {
			t.Errorf("%s: %d requests, want %d at most", name, requests.Load(), test.most)
		}
	}
}

// endless answers until nobody reads any more, and stops at a gigabyte.
func endless(w http.ResponseWriter, begin, more string) {
	_, err := w.Write([]byte(begin))

	for sent := 0; err == nil && sent < 1<<30; sent += len(more) {
		_, err = w.Write([]byte(more))
	}
}

// TestObject_ListThatExpiresIsCountedOnce: what was read before is no longer held.
func TestObject_ListThatExpiresIsCountedOnce(t *testing.T) {
	t.Parallel()

	const pages, size = 6, 7 << 20

	var expired atomic.Bool

	api, _ := serveThings(t, func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		if page == pages-1 && expired.CompareAndSwap(false, true) {
			status(http.StatusGone, "Expired", "the continue token is too old")(w, r)

			return
		}

		next := strconv.Itoa(page + 1)
		if page == pages-1 {
			next = ""
		}

		_, _ = fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[{"metadata":{"name":"%d"},"data":%q}]}`, next, page, strings.Repeat("x", size))
	})

	if found, err := api.Objects(t.Context(), things()); err != nil || len(found) != pages {
		t.Errorf("%d objects, %v", len(found), err)
	}
}

// TestObject_ReadIsRepeatedWhenItsConnectionBreaks, once, as all reads are.
func TestObject_ReadIsRepeatedWhenItsConnectionBreaks(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		breaks int32
		want   error
	}{"once": {1, nil}, "always": {1000, cluster.ErrUnreachable}} {
		var left atomic.Int32

		left.Store(test.breaks)

		api, requests := serveThings(t, func(w http.ResponseWriter, _ *http.Request) {
			if left.Add(-1) >= 0 {
				panic(http.ErrAbortHandler)
			}

			_, _ = w.Write([]byte(`{"items":[{"metadata":{"name":"a"}}]}`))
		})

		objects, err := api.Objects(t.Context(), things())
		if !errors.Is(err, test.want) || (err == nil) != (len(objects) == 1) {
			t.Errorf("%s: %v, %v; want %v", name, objects, err, test.want)
		}

		if requests.Load() > 6 {
			t.Errorf("%s: %d requests", name, requests.Load())
		}
	}
}

const (
	volumeGroup   = "/apis/storage.example.org/v1beta2"
	definitions   = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	volumesCustom = "volumes.storage.example.org"
)

// define adds a kind of objects, as an operator does when it is installed.
func define(t *testing.T, other kubernetes.Interface) {
	t.Helper()

	body := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + volumesCustom + `"},
		"spec":{"group":"storage.example.org","scope":"Namespaced","names":{"plural":"volumes","singular":"volume","kind":"Volume"},
		"versions":[{"name":"v1beta2","served":true,"storage":true,"subresources":{"status":{}},
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

	if err := other.Discovery().RESTClient().Post().AbsPath(definitions).Body([]byte(body)).SetHeader("Content-Type", "application/json").
		Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the new kind to be served", func() (bool, error) {
		served, err := other.Discovery().ServerResourcesForGroupVersion("storage.example.org/v1beta2")

		return err == nil && len(served.APIResources) > 0, err
	})
}

func undefine(t *testing.T, other kubernetes.Interface) {
	t.Helper()

	if err := other.Discovery().RESTClient().Delete().AbsPath(definitions, volumesCustom).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the kind to be gone", func() (bool, error) {
		return other.Discovery().RESTClient().Get().AbsPath(volumeGroup, "volumes").Do(t.Context()).Error() != nil, nil
	})
}

func addVolume(t *testing.T, other kubernetes.Interface, namespace, name, robustness string) {
	t.Helper()

	body := fmt.Sprintf(`{"apiVersion":"storage.example.org/v1beta2","kind":"Volume",
		"metadata":{"name":%q,"labels":{"robustness":%q}},"spec":{"replicas":3,"ratio":0.5}}`, name, robustness)

	if err := other.Discovery().RESTClient().Post().AbsPath(volumeGroup, "namespaces", namespace, "volumes").
		Body([]byte(body)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

// names returns the objects as "namespace/name".
func names(t *testing.T, objects []map[string]any) string {
	t.Helper()

	var found []string

	for _, object := range objects {
		metadata, _ := object["metadata"].(map[string]any)
		namespace, _ := metadata["namespace"].(string)
		name, _ := metadata["name"].(string)
		found = append(found, namespace+"/"+name)
	}

	return strings.Join(found, " ")
}

func TestObject_OfAnyKindIsRead(t *testing.T) {
	api, other := live(t)
	volumes := cluster.ObjectQuery{APIVersion: "storage.example.org/v1beta2", Kind: "Volume"}

	if _, err := api.Objects(t.Context(), volumes); !errors.Is(err, cluster.ErrNotFound) || !strings.Contains(err.Error(), "Volume of storage.example.org/v1beta2") {
		t.Errorf("before it is defined: %v, want the kind not found", err)
	}

	define(t, other)

	defined := true

	defer func() {
		if defined {
			undefine(t, other)
		}
	}()

	addVolume(t, other, "kube-system", "pvc-1", "healthy")
	addVolume(t, other, "default", "pvc-2", "degraded")
	addVolume(t, other, "default", "pvc-1", "healthy")

	for name, test := range map[string]struct {
		query cluster.ObjectQuery
		want  string
	}{
		"all":                          {volumes, "default/pvc-1 default/pvc-2 kube-system/pvc-1"},
		"of a namespace":               {with(volumes, "default", "", ""), "default/pvc-1 default/pvc-2"},
		"of a name":                    {with(volumes, "default", "pvc-2", ""), "default/pvc-2"},
		"of a name in all namespaces":  {with(volumes, "", "pvc-1", ""), "default/pvc-1 kube-system/pvc-1"},
		"with a label":                 {with(volumes, "", "", "robustness!=healthy"), "default/pvc-2"},
		"of a name and with a label":   {with(volumes, "default", "pvc-2", "robustness=healthy"), ""},
		"that are not there":           {with(volumes, "default", "pvc-9", ""), ""},
		"of a namespace not there":     {with(volumes, "nowhere", "", ""), ""},
		"of the core":                  {cluster.ObjectQuery{APIVersion: "v1", Kind: "Namespace", Name: "default"}, "/default"},
		"of the core, none":            {cluster.ObjectQuery{APIVersion: "v1", Kind: "Namespace", Name: "nowhere"}, ""},
		"of the core, with a selector": {cluster.ObjectQuery{APIVersion: "v1", Kind: "Node", Selector: "kubernetes.io/hostname in (worker-0,cp-0)"}, "/cp-0 /worker-0"},
		"of a group":                   {cluster.ObjectQuery{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "workload"}, "workload/app-0 workload/app-1"},
	} {
		// The second time the resource is known.
		for range 2 {
			objects, err := api.Objects(t.Context(), test.query)
			if err != nil || names(t, objects) != test.want {
				t.Errorf("objects %s: %s, %v; want %s", name, names(t, objects), err, test.want)
			}

			for _, object := range objects {
				if object["kind"] != test.query.Kind || object["apiVersion"] != test.query.APIVersion {
					t.Errorf("objects %s: one says that it is %v of %v", name, object["kind"], object["apiVersion"])
				}
			}
		}
	}

	objects, err := api.Objects(t.Context(), with(volumes, "default", "pvc-2", ""))
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}

	if spec, _ := objects[0]["spec"].(map[string]any); spec["replicas"] != int64(3) || spec["ratio"] != 0.5 {
		t.Errorf("numbers are %T and %T in %v", spec["replicas"], spec["ratio"], spec)
	}

	undefine(t, other)

	defined = false

	for name, query := range map[string]cluster.ObjectQuery{"all": volumes, "one": with(volumes, "default", "pvc-2", "")} {
		if _, err := api.Objects(t.Context(), query); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("%s of a kind that left the cluster: %v, want the kind not found", name, err)
		}
	}
}

func with(query cluster.ObjectQuery, namespace, name, selector string) cluster.ObjectQuery {
	query.Namespace, query.Name, query.Selector = namespace, name, selector

	return query
}

func TestObject_ThatGatesMayNotReadIsRefused(t *testing.T) {
	api, _ := live(t)

	for name, test := range map[string]struct {
		query cluster.ObjectQuery
		want  string
	}{
		"Secrets":              {cluster.ObjectQuery{APIVersion: "v1", Kind: "Secret"}, "Secrets are not read"},
		"Secrets in disguise":  {cluster.ObjectQuery{APIVersion: "/v1", Kind: "Secret"}, "Secrets are not read"},
		"a path in a name":     {cluster.ObjectQuery{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "../secrets"}, `"../secrets" is no name`},
		"a path of namespaces": {cluster.ObjectQuery{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system/secrets"}, `"kube-system/secrets" is no name`},
		"a path in a version":  {cluster.ObjectQuery{APIVersion: "../v1", Kind: "ConfigMap"}, `"../v1" is no API version`},
		"no version":           {cluster.ObjectQuery{Kind: "ConfigMap"}, "names no version"},
		"three parts":          {cluster.ObjectQuery{APIVersion: "a/b/c", Kind: "ConfigMap"}, "a/b/c"},
		"a namespace too many": {cluster.ObjectQuery{APIVersion: "v1", Kind: "Node", Namespace: "default"}, "leave the namespace out"},
		"no selector":          {cluster.ObjectQuery{APIVersion: "v1", Kind: "Node", Selector: "a=b=c"}, "a=b=c"},
	} {
		if objects, err := api.Objects(t.Context(), test.query); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v; want it refused with %q", name, objects, err, test.want)
		}
	}

	for _, query := range []cluster.ObjectQuery{
		{APIVersion: "v1", Kind: "Pods"}, {APIVersion: "v1", Kind: "PodExecOptions"}, {APIVersion: "v9", Kind: "Pod"}, {APIVersion: "nobody.example.org/v1", Kind: "Pod"},
	} {
		if _, err := api.Objects(t.Context(), query); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("%+v: %v, want the kind not found", query, err)
		}
	}
}

// TestObject_ManyAreReadPageByPage, and the kind is looked up once.
func TestObject_ManyAreReadPageByPage(t *testing.T) {
	t.Parallel()

	pages := map[string]string{"": "2", "2": "3", "3": ""}

	api, requests := connect(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		query := r.URL.Query()

		switch r.URL.Path {
		case "/apis/example.org/v1":
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","resources":[{"name":"things/status","kind":"Thing"},{"name":"things","kind":"Thing"}]}`))
		case "/apis/example.org/v1/things":
			if query.Get("limit") == "" || query.Get("labelSelector") != "a=b" {
				status(http.StatusBadRequest, "BadRequest", r.URL.RawQuery)(w, r)

				return
			}

			// Within a page they are out of order.
			items := []map[string]any{{"metadata": map[string]any{"name": "b" + query.Get("continue")}}, {"metadata": map[string]any{"name": "a" + query.Get("continue")}}}

			_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"continue": pages[query.Get("continue")]}, "items": items})
		}
	})

	for range 2 {
		objects, err := api.Objects(t.Context(), cluster.ObjectQuery{APIVersion: "example.org/v1", Kind: "Thing", Selector: "a=b"})
		if err != nil || names(t, objects) != "/a /a2 /a3 /b /b2 /b3" {
			t.Errorf("%s, %v", names(t, objects), err)
		}
	}

	if requests.Load() != 7 {
		t.Errorf("%d requests, want one for the kind and three for each list", requests.Load())
	}
}

func TestObject_ReadWithoutPermissionIsDenied(t *testing.T) {
	t.Parallel()

	api, _ := connect(t, status(http.StatusForbidden, "Forbidden", "no"))

	if _, err := api.Objects(t.Context(), cluster.ObjectQuery{APIVersion: "v1", Kind: "Pod"}); !errors.Is(err, cluster.ErrDenied) {
		t.Errorf("%v, want it denied", err)
	}
}
