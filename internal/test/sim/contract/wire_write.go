// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"net/http"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func writesAreCompared(t *testing.T, f WireFixture) {
	maps := f.Wire().CoreV1().ConfigMaps(namespace)

	_, err := maps.Update(t.Context(), configMap(journalName, nil), metav1.UpdateOptions{})
	refused(t, "an update of what is not there", err, http.StatusNotFound, metav1.StatusReasonNotFound)

	made := create(t, f)

	changed := made.DeepCopy()
	changed.Data["uuid-2"] = "not JSON at all"

	after, err := maps.Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil || after.UID != made.UID || after.ResourceVersion == made.ResourceVersion || after.Data["uuid-2"] != "not JSON at all" ||
		!after.CreationTimestamp.Equal(&made.CreationTimestamp) {
		t.Errorf("updated: %+v, %v", after, err)
	}

	changed.Data["uuid-3"] = "{}"
	_, err = maps.Update(t.Context(), changed, metav1.UpdateOptions{})
	refused(t, "an update with an old version", err, http.StatusConflict, metav1.StatusReasonConflict)

	other := read(t, f)
	other.UID = "22222222-0000-0000-0000-000000000000"
	_, err = maps.Update(t.Context(), other, metav1.UpdateOptions{})
	refused(t, "an update of another object", err, http.StatusConflict, metav1.StatusReasonConflict)

	if _, err := maps.Update(t.Context(), configMap(journalName, map[string]string{"uuid-9": "{}"}), metav1.UpdateOptions{}); err != nil {
		t.Errorf("an update whatever stands there: %v", err)
	}

	if found := read(t, f); len(found.Data) != 1 || found.UID != made.UID {
		t.Errorf("in the end there is %+v", found)
	}
}

func patchesAreCompared(t *testing.T, f WireFixture) {
	nodes, name := f.Wire().CoreV1().Nodes(), worker(t, f, 0)

	patch := func(text string) (*corev1.Node, error) {
		return nodes.Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
	}

	before, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	f.CordonAsPerson(t, name, true)

	_, err = patch(`{"metadata":{"uid":"` + string(before.UID) + `","resourceVersion":"` + before.ResourceVersion + `"},"spec":{"unschedulable":null}}`)
	refused(t, "a patch of an old version", err, http.StatusConflict, metav1.StatusReasonConflict)

	_, err = patch(`{"metadata":{"uid":"22222222-0000-0000-0000-000000000000"},"spec":{"unschedulable":null}}`)
	refused(t, "a patch of another node", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)

	_, err = nodes.Patch(t.Context(), "never-there", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	refused(t, "a patch of what is not there", err, http.StatusNotFound, metav1.StatusReasonNotFound)

	_, err = patch(`{"spec":{"unschedulable":"yes"}}`)
	if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		t.Errorf("a patch that makes no sense: %v", err)
	}

	after, err := patch(`{"spec":{"unschedulable":null}}`)
	if err != nil || after.Spec.Unschedulable || after.UID != before.UID {
		t.Errorf("patched: %+v, %v", after, err)
	}
}

func emptyWritesMakeNoVersion(t *testing.T, f WireFixture) {
	made := create(t, f)

	after, err := f.Wire().CoreV1().ConfigMaps(namespace).Update(t.Context(), made, metav1.UpdateOptions{})
	if err != nil || after.ResourceVersion != made.ResourceVersion {
		t.Errorf("version %s, %v, want %s", after.ResourceVersion, err, made.ResourceVersion)
	}

	name := worker(t, f, 0)
	f.CordonAsPerson(t, name, true)

	one, err := f.Wire().CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	if err != nil || !one.Spec.Unschedulable {
		t.Errorf("patched a node: %v", err)
	}

	f.CordonAsPerson(t, name, false)
}

func objectsAreCreatedOnce(t *testing.T, f WireFixture) {
	create(t, f)

	_, err := f.Wire().CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap(journalName, nil), metav1.CreateOptions{})
	refused(t, "a second creation", err, http.StatusConflict, metav1.StatusReasonAlreadyExists)

	leases := f.Wire().CoordinationV1().Leases(namespace)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName, Labels: map[string]string{"kept": "yes"}}}

	made, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	if err != nil || made.Labels["kept"] != "yes" {
		t.Errorf("created %+v, %v", made, err)
	}

	_, err = leases.Create(t.Context(), lease, metav1.CreateOptions{})
	refused(t, "a second creation", err, http.StatusConflict, metav1.StatusReasonAlreadyExists)

	elsewhere := configMap(publishedName, nil)
	elsewhere.Namespace = "default"
	_, err = f.Wire().CoreV1().ConfigMaps(namespace).Create(t.Context(), elsewhere, metav1.CreateOptions{})
	refused(t, "a creation in another namespace", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)

	published := configMap(publishedName, nil)
	published.Annotations = map[string]string{"upgrade.vitistack.io/status": "completed", "example.org/other": "kept"}

	if _, err := f.Wire().CoreV1().ConfigMaps(namespace).Create(t.Context(), published, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	patch := []byte(`{"metadata":{"annotations":{"upgrade.vitistack.io/status":null,"upgrade.vitistack.io/message":"","upgrade.vitistack.io/target":"1.13.4"}}}`)

	patched, err := f.Wire().CoreV1().ConfigMaps(namespace).Patch(t.Context(), publishedName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{"upgrade.vitistack.io/message": "", "upgrade.vitistack.io/target": "1.13.4", "example.org/other": "kept"}
	for key, value := range want {
		if got, has := patched.Annotations[key]; !has || got != value {
			t.Errorf("%s is %q, %t, want %q", key, got, has, value)
		}
	}

	if len(patched.Annotations) != len(want) {
		t.Errorf("annotations %v, want %v", patched.Annotations, want)
	}
}

func deletionsAreCompared(t *testing.T, f WireFixture) {
	maps := f.Wire().CoreV1().ConfigMaps(namespace)

	remove := func(uid types.UID, version string) error {
		return maps.Delete(t.Context(), journalName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	}

	made := create(t, f)
	refused(t, "a deletion of another object", remove("22222222-0000-0000-0000-000000000000", made.ResourceVersion), http.StatusConflict, metav1.StatusReasonConflict)

	changed := made.DeepCopy()
	changed.Data["uuid-2"] = "{}"

	after, err := maps.Update(t.Context(), changed, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	refused(t, "a deletion of an old version", remove(made.UID, made.ResourceVersion), http.StatusConflict, metav1.StatusReasonConflict)

	if err := remove(made.UID, after.ResourceVersion); err != nil {
		t.Error(err)
	}

	refused(t, "a second deletion", remove(made.UID, made.ResourceVersion), http.StatusNotFound, metav1.StatusReasonNotFound)
}

func impossibleObjectsAreRefused(t *testing.T, f WireFixture) {
	maps := f.Wire().CoreV1().ConfigMaps(namespace)

	for what, data := range map[string]map[string]string{
		"a key that is none": {"a/b": "{}"},
		"too much":           {"uuid-1": strings.Repeat("a", 1<<20+1)},
	} {
		_, err := maps.Create(t.Context(), configMap(journalName, data), metav1.CreateOptions{})
		refused(t, what, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}

	zero := int32(0)
	_, err := f.Wire().CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &zero},
	}, metav1.CreateOptions{})
	refused(t, "a lease of no time", err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
}
