// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
)

// fieldsAreOwned makes two managers apply their fields of a ConfigMap.
func fieldsAreOwned(t *testing.T, f WireFixture) {
	objects := f.Wire().CoreV1().ConfigMaps(namespace)

	apply := func(manager string, force bool, data map[string]string) (*corev1.ConfigMap, error) {
		return objects.Apply(t.Context(), applycorev1.ConfigMap(journalName, namespace).WithData(data), metav1.ApplyOptions{FieldManager: manager, Force: force})
	}

	holds := func(what string, found *corev1.ConfigMap, err error, want map[string]string) {
		t.Helper()

		if err != nil || !maps.Equal(found.Data, want) {
			t.Fatalf("%s: %+v, %v, want %v", what, found, err, want)
		}
	}

	made, err := apply("one", false, map[string]string{"a": "1"})
	holds("created", made, err, map[string]string{"a": "1"})

	if len(made.ManagedFields) != 1 || made.ManagedFields[0].Manager != "one" || made.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("the fields belong to %+v", made.ManagedFields)
	}

	again, err := apply("one", false, map[string]string{"a": "1"})
	if holds("the same once more", again, err, map[string]string{"a": "1"}); again.ResourceVersion != made.ResourceVersion {
		t.Errorf("version %s, want %s", again.ResourceVersion, made.ResourceVersion)
	}

	_, err = apply("two", false, map[string]string{"a": "2"})
	refused(t, "what belongs to somebody else", err, http.StatusConflict, metav1.StatusReasonConflict)

	if cause, has := apierrors.StatusCause(err, metav1.CauseTypeFieldManagerConflict); !has || cause.Field != ".data.a" || !strings.Contains(cause.Message, `conflict with "one"`) {
		t.Errorf("the cause is %+v, %t", cause, has)
	}

	found, err := apply("two", false, map[string]string{"b": "2"})
	holds("one more field", found, err, map[string]string{"a": "1", "b": "2"})

	found, err = apply("two", true, map[string]string{"a": "2"})
	holds("by force, and without what it had", found, err, map[string]string{"a": "2"})

	found, err = apply("one", false, nil)
	holds("what was taken over stays", found, err, map[string]string{"a": "2"})

	// Whoever overwrites a field owns it, by any kind of write.
	patched, err := objects.Patch(t.Context(), journalName, types.MergePatchType, []byte(`{"data":{"a":"3"}}`), metav1.PatchOptions{FieldManager: "three"})
	holds("patched", patched, err, map[string]string{"a": "3"})

	_, err = apply("two", false, map[string]string{"a": "2"})
	if cause, has := apierrors.StatusCause(err, metav1.CauseTypeFieldManagerConflict); !has || !strings.Contains(cause.Message, `conflict with "three"`) {
		t.Errorf("after a patch: %v, %+v", err, cause)
	}

	_, err = apply("", false, nil)
	refused(t, "an apply by nobody", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
}

// createdIsApplied makes two managers apply the same field of an object that was created without it.
func createdIsApplied(t *testing.T, f WireFixture) {
	create(t, f)

	objects := f.Wire().CoreV1().ConfigMaps(namespace)

	apply := func(manager string) error {
		wanted := applycorev1.ConfigMap(journalName, namespace).WithData(map[string]string{"applied": manager})
		_, err := objects.Apply(t.Context(), wanted, metav1.ApplyOptions{FieldManager: manager})

		return err
	}

	if err := apply("one"); err != nil {
		t.Fatal(err)
	}

	refused(t, "what was applied by somebody else", apply("two"), http.StatusConflict, metav1.StatusReasonConflict)
}

// listsAreMerged makes two managers apply a port each of a Service.
func listsAreMerged(t *testing.T, f WireFixture) {
	services := f.Wire().CoreV1().Services(namespace)

	defer func() {
		if err := services.Delete(t.Context(), publishedName, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()

	var (
		found *corev1.Service
		err   error
	)

	for manager, port := range map[string]int32{"one": 80, "two": 443} {
		wanted := applycorev1.Service(publishedName, namespace).WithSpec(applycorev1.ServiceSpec().WithClusterIP("None").
			WithPorts(applycorev1.ServicePort().WithName(manager).WithPort(port)))

		if found, err = services.Apply(t.Context(), wanted, metav1.ApplyOptions{FieldManager: manager}); err != nil {
			t.Fatal(err)
		}
	}

	if len(found.Spec.Ports) != 2 {
		t.Errorf("it has the ports %+v, want two", found.Spec.Ports)
	}
}

// patchesAreOfThreeKinds changes an object in each of the ways of kubectl.
func patchesAreOfThreeKinds(t *testing.T, f WireFixture) {
	create(t, f)

	patch := func(kind types.PatchType, text string) (*corev1.ConfigMap, error) {
		return f.Wire().CoreV1().ConfigMaps(namespace).Patch(t.Context(), journalName, kind, []byte(text), metav1.PatchOptions{})
	}

	for _, one := range []struct {
		kind types.PatchType
		text string
	}{
		{types.StrategicMergePatchType, `{"data":{"a":"1","b":"1"},"metadata":{"finalizers":["example.org/a"]}}`},
		{types.StrategicMergePatchType, `{"metadata":{"finalizers":["example.org/b"]}}`},
		{types.MergePatchType, `{"data":{"a":null}}`},
		{types.JSONPatchType, `[{"op":"test","path":"/data/b","value":"1"},{"op":"add","path":"/data/c","value":"1"},{"op":"remove","path":"/data/uuid-1"}]`},
	} {
		if _, err := patch(one.kind, one.text); err != nil {
			t.Errorf("%s %s: %v", one.kind, one.text, err)
		}
	}

	if found := read(t, f); !maps.Equal(found.Data, map[string]string{"b": "1", "c": "1"}) || len(found.Finalizers) != 2 {
		t.Errorf("it is %+v now", found)
	}

	if after, err := patch(types.MergePatchType, `{"metadata":{"finalizers":null}}`); err != nil || len(after.Finalizers) > 0 {
		t.Errorf("it is %+v now, %v", after, err)
	}

	_, err := patch(types.JSONPatchType, `[{"op":"test","path":"/data/b","value":"2"}]`)
	refused(t, "what is not as it is to be", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)

	_, err = patch(types.JSONPatchType, `{"op":"test"}`)
	refused(t, "nonsense", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
}

// tablesAreTold reads what kubectl prints.
func tablesAreTold(t *testing.T, f WireFixture) {
	create(t, f)

	for path, want := range map[string]string{
		"/api/v1/nodes": "Name Status Roles Age Version",
		"/api/v1/pods":  "Name Ready Status Restarts Age",
		"/api/v1/namespaces/kube-system/configmaps":                "Name Data Age",
		"/apis/coordination.k8s.io/v1/leases":                      "Name Holder Age",
		"/apis/apps/v1/deployments":                                "Name Ready Up-to-date Available Age",
		"/apis/apps/v1/daemonsets":                                 "Name Desired Current Ready Up-to-date Available Node Selector Age",
		"/api/v1/namespaces/kube-system/configmaps/" + journalName: "Name Data Age",
	} {
		answer, code, err := raw(t.Context(), f.Wire().CoreV1().RESTClient(), http.MethodGet, path,
			map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}, "")

		var table metav1.Table
		if err := errors.Join(err, json.Unmarshal(answer, &table)); err != nil || code != http.StatusOK || table.Kind != "Table" {
			t.Fatalf("%s: %d, %v, %s", path, code, err, answer)
		}

		var names []string

		for _, column := range table.ColumnDefinitions {
			if column.Priority == 0 {
				names = append(names, column.Name)
			}
		}

		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: columns %q, want %q", path, got, want)
		}

		if path != "/api/v1/nodes" {
			continue
		}

		for _, row := range table.Rows {
			var told metav1.PartialObjectMetadata
			if err := json.Unmarshal(row.Object.Raw, &told); err != nil || told.Name != row.Cells[0] || row.Cells[1] != "Ready" || !slices.Contains(machineNames(f), told.Name) {
				t.Errorf("the row of a node is %v with %s, %v", row.Cells, row.Object.Raw, err)
			}
		}
	}
}

// resourcesAreFound reads what kubectl has to know before a request.
func resourcesAreFound(t *testing.T, f WireFixture) {
	groups, lists, err := f.Wire().Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}

	if !slices.ContainsFunc(groups, func(group *metav1.APIGroup) bool {
		return group.Name == "apps" && group.PreferredVersion.GroupVersion == "apps/v1"
	}) {
		t.Errorf("the groups are %v", groups)
	}

	found := map[string]metav1.APIResource{}

	for _, list := range lists {
		for _, resource := range list.APIResources {
			found[list.GroupVersion+" "+resource.Name] = resource
		}
	}

	for name, short := range map[string]string{"v1 nodes": "no", "v1 pods": "po", "v1 configmaps": "cm", "apps/v1 deployments": "deploy"} {
		if resource := found[name]; !slices.Contains(resource.ShortNames, short) || !slices.Contains(resource.Verbs, "watch") {
			t.Errorf("%s is %+v", name, resource)
		}
	}

	if part := found["v1 pods/eviction"]; part.Kind != "Eviction" || part.Group != "policy" {
		t.Errorf("evictions are %+v", part)
	}
}
