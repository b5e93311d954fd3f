// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	gadgetGroup   = "/apis/workshop.example.org/"
	gadgetsCustom = "gadgets.workshop.example.org"
)

// gadget is an object of a kind whose version v1 has a status with a few fields,
// and whose version v2 has none.
func gadget(name string) cluster.Reference {
	return cluster.Reference{APIVersion: "workshop.example.org/v1", Kind: "Gadget", Namespace: "default", Name: name}
}

// defineGadgets adds the kind, for the time of the test.
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

// field is what stands at the path in an object; nil where nothing does.
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

func TestAnObjectIsReadAndChanged(t *testing.T) {
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

	// As it was read first it is not any more.
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

func TestAStatusHasTheFieldsOfItsKind(t *testing.T) {
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

// TestAnObjectThatBecomesTooLargeIsRefused, whichever limit it meets first.
func TestAnObjectThatBecomesTooLargeIsRefused(t *testing.T) {
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

// TestAKindThatMovedIsFoundAgain: what is remembered of it may be out of date.
func TestAKindThatMovedIsFoundAgain(t *testing.T) {
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
