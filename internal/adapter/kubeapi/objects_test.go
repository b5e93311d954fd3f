// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

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

// names are "namespace/name" of the objects.
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

func TestObjectsOfAnyKindAreRead(t *testing.T) {
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

func TestObjectsThatGatesMayNotReadAreRefused(t *testing.T) {
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

// TestManyObjectsAreReadPageByPage, and the kind is looked up once.
func TestManyObjectsAreReadPageByPage(t *testing.T) {
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

func TestObjectsThatMayNotBeReadAreDenied(t *testing.T) {
	t.Parallel()

	api, _ := connect(t, status(http.StatusForbidden, "Forbidden", "no"))

	if _, err := api.Objects(t.Context(), cluster.ObjectQuery{APIVersion: "v1", Kind: "Pod"}); !errors.Is(err, cluster.ErrDenied) {
		t.Errorf("%v, want it denied", err)
	}
}
