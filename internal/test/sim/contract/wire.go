// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	namespace = "kube-system"
	// The objects that an API server has to keep.
	leaseName     = "talosupgrade"
	journalName   = "talosupgrade-journal"
	publishedName = "talosupgrade"
)

// WireFixture is a fixture whose cluster can be accessed by the protocol itself.
type WireFixture interface {
	Fixture
	// Wire returns a client that does not correct what the API server answers.
	Wire() kubernetes.Interface
}

// WireCase is one clause about the protocol.
type WireCase struct {
	Name string
	Run  func(t *testing.T, f WireFixture)
}

// WireCases lists what an API server has to do for the adapters to be right.
func WireCases() []WireCase {
	return []WireCase{
		{"every object has an identity and a version", objectsHaveIdentity},
		{"what is written as it stood is written", writesAreCompared},
		{"a patch names what it changes", patchesAreCompared},
		{"a write that changes nothing makes no version", emptyWritesMakeNoVersion},
		{"an object is created once", objectsAreCreatedOnce},
		{"a deletion means one object", deletionsAreCompared},
		{"a dry run changes nothing", dryRunsChangeNothing},
		{"selectors are honoured", selectorsAreHonoured},
		{"pages add up", pagesAddUp},
		{"evictions are answered in detail", evictionsAreAnswered},
		{"what is not there is refused", strangeRequestsAreRefused},
		{"who wants nothing of a changed object but its version gets that", versionsAreToldAlone},
		{"both media types say the same", mediaTypesAgree},
		{"what cannot be is not stored", impossibleObjectsAreRefused},
		{"changes of nodes are watched", changesAreWatched},
		{"a watch tells of what it wants alone", selectedChangesAreWatched},
		{"a watch can begin with what there is", watchesBeginWithWhatThereIs},
		{"a field belongs to who has applied it", fieldsAreOwned},
		{"a field of what was created belongs to who has applied it", createdIsApplied},
		{"lists are applied by their keys", listsAreMerged},
		{"a patch is one of three kinds", patchesAreOfThreeKinds},
		{"objects are told in tables", tablesAreTold},
		{"resources are found", resourcesAreFound},
		{"a look at nodes that are followed costs one write", claimsAreWritten},
	}
}

// refused checks that the API server answers with a code and, if there is one, a reason.
func refused(t *testing.T, what string, err error, code int32, reason metav1.StatusReason) {
	t.Helper()

	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Errorf("%s: %v, want the code %d", what, err, code)

		return
	}

	if got := status.Status(); got.Code != code || got.Reason != reason {
		t.Errorf("%s: %d %s: %s, want %d %s", what, got.Code, got.Reason, got.Message, code, reason)
	}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

// create creates a journal that has nothing that can be parsed.
func create(t *testing.T, f WireFixture) *corev1.ConfigMap {
	t.Helper()

	made, err := f.Wire().CoreV1().ConfigMaps(namespace).
		Create(t.Context(), configMap(journalName, map[string]string{"uuid-1": "{}"}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return made
}

func read(t *testing.T, f WireFixture) *corev1.ConfigMap {
	t.Helper()

	found, err := f.Wire().CoreV1().ConfigMaps(namespace).Get(t.Context(), journalName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return found
}

// raw makes a single request, and returns the answer.
func raw(ctx context.Context, client rest.Interface, verb, path string, headers map[string]string, body string) (answer []byte, code int, err error) {
	request := client.Verb(verb).AbsPath(path).MaxRetries(0)

	for key, value := range headers {
		request = request.SetHeader(key, value)
	}

	if body != "" {
		request = request.Body([]byte(body))
	}

	result := request.Do(ctx)
	result.StatusCode(&code)

	answer, err = result.Raw()

	// An answer that is not from the API itself has its code only in the error.
	if status, ok := err.(apierrors.APIStatus); ok {
		code = int(status.Status().Code)
	}

	return answer, code, err
}

func strangeRequestsAreRefused(t *testing.T, f WireFixture) {
	client, name := f.Wire().CoreV1().RESTClient(), worker(t, f, 0)

	for _, one := range []struct {
		verb, path string
		headers    map[string]string
		body       string
		code       int
	}{
		{verb: http.MethodGet, path: "/api/v1/nothings", code: http.StatusNotFound},
		{verb: http.MethodGet, path: "/apis/nothing.example.org/v1", code: http.StatusNotFound},
		{verb: http.MethodGet, path: "/apis/apps/v1/pods", code: http.StatusNotFound},
		{verb: http.MethodGet, path: "/api/v1/nodes/" + name + "/nothing", code: http.StatusNotFound},
		{verb: http.MethodGet, path: "/api/v1/namespaces/kube-system/nodes", code: http.StatusNotFound},
		{verb: http.MethodGet, path: "/api/v1/nodes/never-there", code: http.StatusNotFound},
		{verb: http.MethodGet, path: "/api/v1/namespaces/never-there", code: http.StatusNotFound},
		{verb: http.MethodGet, path: "/api/v1/namespaces/never-there/pods", code: http.StatusOK},
		{verb: http.MethodPost, path: "/api/v1/nodes/" + name, headers: map[string]string{"Content-Type": "application/json"}, body: "{}", code: http.StatusMethodNotAllowed},
		{
			verb: http.MethodPatch, path: "/api/v1/nodes/" + name, headers: map[string]string{"Content-Type": "text/plain"},
			body: `{"spec":{"unschedulable":true}}`, code: http.StatusUnsupportedMediaType,
		},
		{
			verb: http.MethodPost, path: "/api/v1/namespaces/kube-system/configmaps", headers: map[string]string{"Content-Type": "text/plain"},
			body: `{"metadata":{"name":"talosupgrade-journal"}}`, code: http.StatusUnsupportedMediaType,
		},
		{
			verb: http.MethodPost, path: "/api/v1/namespaces/kube-system/configmaps", headers: map[string]string{"Content-Type": "application/json"},
			body: `not JSON`, code: http.StatusBadRequest,
		},
		{verb: http.MethodGet, path: "/api/v1/nodes", headers: map[string]string{"Accept": "text/csv"}, code: http.StatusNotAcceptable},
		{verb: http.MethodGet, path: "/api/v1/nodes", headers: map[string]string{"Accept": "text/csv, */*"}, code: http.StatusOK},
	} {
		if _, code, err := raw(t.Context(), client, one.verb, one.path, one.headers, one.body); code != one.code {
			t.Errorf("%s %s with %v: %d, %v, want %d", one.verb, one.path, one.headers, code, err, one.code)
		}
	}
}

func versionsAreToldAlone(t *testing.T, f WireFixture) {
	made := create(t, f)

	answer, err := f.Wire().CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("/api/v1/namespaces/kube-system/configmaps/"+journalName).
		Param("includeObject", string(metav1.IncludeNone)).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").
		Body([]byte(`{"metadata":{"resourceVersion":"` + made.ResourceVersion + `"},"data":{"uuid-1":"changed"}}`)).DoRaw(t.Context())

	var table metav1.Table
	if err := errors.Join(err, json.Unmarshal(answer, &table)); err != nil || table.Kind != "Table" || strings.Contains(string(answer), "changed") {
		t.Errorf("%v, %s", err, answer)
	}

	if found := read(t, f); found.Data["uuid-1"] != "changed" || found.ResourceVersion != table.ResourceVersion || table.ResourceVersion == made.ResourceVersion {
		t.Errorf("told the version %s of %+v", table.ResourceVersion, found)
	}
}

func mediaTypesAgree(t *testing.T, f WireFixture) {
	create(t, f)

	client, path := f.Wire().CoreV1().RESTClient(), "/api/v1/namespaces/kube-system/configmaps/"+journalName

	var found [2]corev1.ConfigMap

	for i, media := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		answer, code, err := raw(t.Context(), client, http.MethodGet, path, map[string]string{"Accept": media}, "")
		if err != nil || code != http.StatusOK || strings.HasPrefix(string(answer), "k8s") != (i == 1) {
			t.Fatalf("%s: %d, %v, %q", media, code, err, answer)
		}

		if err := client.Get().AbsPath(path).SetHeader("Accept", media).Do(t.Context()).Into(&found[i]); err != nil {
			t.Fatal(err)
		}
	}

	for i := range found {
		found[i].ManagedFields = nil
	}

	if found[0].UID == "" || found[0].UID != found[1].UID || found[0].ResourceVersion != found[1].ResourceVersion ||
		found[0].Data["uuid-1"] != "{}" || found[1].Data["uuid-1"] != "{}" || !found[0].CreationTimestamp.Equal(&found[1].CreationTimestamp) {
		t.Errorf("in JSON %+v, in protobuf %+v", found[0], found[1])
	}
}

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

func objectsHaveIdentity(t *testing.T, f WireFixture) {
	f.Pod(t, "identified", worker(t, f, 0))

	first := create(t, f)
	f.DropJournal(t)

	second := create(t, f)
	if first.UID == second.UID || first.ResourceVersion == second.ResourceVersion {
		t.Errorf("created again, it is the same: %s, version %s", second.UID, second.ResourceVersion)
	}

	nodes, err := f.Wire().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	pods, err := f.Wire().CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	objects := []metav1.ObjectMeta{second.ObjectMeta}
	for i := range nodes.Items {
		objects = append(objects, nodes.Items[i].ObjectMeta)
	}

	for i := range pods.Items {
		objects = append(objects, pods.Items[i].ObjectMeta)
	}

	uids := map[types.UID]string{}

	for _, one := range objects {
		if one.UID == "" || one.ResourceVersion == "" || one.CreationTimestamp.IsZero() {
			t.Errorf("%s has UID %q, version %q and was created at %s", one.Name, one.UID, one.ResourceVersion, one.CreationTimestamp)
		}

		if other, taken := uids[one.UID]; taken {
			t.Errorf("%s and %s have the same UID", one.Name, other)
		}

		uids[one.UID] = one.Name
	}

	if nodes.ResourceVersion == "" {
		t.Error("the list has no version")
	}
}

func selectorsAreHonoured(t *testing.T, f WireFixture) {
	here, there := worker(t, f, 0), worker(t, f, 1)
	pod, other := f.Pod(t, "selected", here), f.Pod(t, "selected", there)
	pods := f.Wire().CoreV1().Pods("")

	for what, one := range map[string]struct {
		options metav1.ListOptions
		wanted  []string
	}{
		"a node":            {metav1.ListOptions{FieldSelector: "spec.nodeName=" + here, LabelSelector: "app=selected"}, []string{pod.Name}},
		"any node but one":  {metav1.ListOptions{FieldSelector: "spec.nodeName!=" + here, LabelSelector: "app in (selected)"}, []string{other.Name}},
		"a name":            {metav1.ListOptions{FieldSelector: "metadata.name=" + other.Name}, []string{other.Name}},
		"a node and a name": {metav1.ListOptions{FieldSelector: "spec.nodeName=" + here + ",metadata.name=" + other.Name}, nil},
		"a phase":           {metav1.ListOptions{FieldSelector: "status.phase=Pending", LabelSelector: "app=selected"}, nil},
		"a label":           {metav1.ListOptions{LabelSelector: "app=selected"}, []string{pod.Name, other.Name}},
		"no such label":     {metav1.ListOptions{LabelSelector: "app=selected,!app"}, nil},
	} {
		list, err := pods.List(t.Context(), one.options)
		if err != nil {
			t.Errorf("%s: %v", what, err)

			continue
		}

		var found []string
		for i := range list.Items {
			found = append(found, list.Items[i].Name)
		}

		slices.Sort(found)
		slices.Sort(one.wanted)

		if !slices.Equal(found, one.wanted) {
			t.Errorf("%s: found %v, want %v", what, found, one.wanted)
		}
	}

	_, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.image=a"})
	refused(t, "a field that nobody can ask for", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)

	_, err = f.Wire().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=a"})
	refused(t, "a field of another kind", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)

	_, err = pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app in selected"})
	refused(t, "a selector that makes no sense", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
}

func pagesAddUp(t *testing.T, f WireFixture) {
	nodes := f.Wire().CoreV1().Nodes()

	whole, err := nodes.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	var (
		found, wanted []string
		options       = metav1.ListOptions{Limit: 2}
		version       string
	)

	for i := range whole.Items {
		wanted = append(wanted, whole.Items[i].Name)
	}

	for pages := 1; ; pages++ {
		page, err := nodes.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}

		if len(page.Items) > 2 || version != "" && page.ResourceVersion != version || pages > len(wanted) {
			t.Fatalf("page %d has %d nodes of version %s, the first one is of %s", pages, len(page.Items), page.ResourceVersion, version)
		}

		version = page.ResourceVersion

		for i := range page.Items {
			found = append(found, page.Items[i].Name)
		}

		left := page.RemainingItemCount
		if want := int64(len(wanted) - len(found)); (left == nil) != (want == 0) || left != nil && *left != want {
			t.Errorf("after page %d %v are left, want %d", pages, left, want)
		}

		if page.Continue == "" {
			break
		}

		options.Continue = page.Continue
	}

	if !slices.Equal(found, wanted) {
		t.Errorf("the pages have %v, the list %v", found, wanted)
	}

	_, err = nodes.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: "nonsense"})
	refused(t, "a token that makes no sense", err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
}

func dryRunsChangeNothing(t *testing.T, f WireFixture) {
	maps, all := f.Wire().CoreV1().ConfigMaps(namespace), []string{metav1.DryRunAll}

	if _, err := maps.Create(t.Context(), configMap(journalName, nil), metav1.CreateOptions{DryRun: all}); err != nil {
		t.Error(err)
	}

	if _, err := maps.Get(t.Context(), journalName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}

	made := create(t, f)
	changed := made.DeepCopy()
	changed.Data = map[string]string{"uuid-2": "{}"}

	if after, err := maps.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: all}); err != nil || after.Data["uuid-2"] != "{}" {
		t.Errorf("updated: %+v, %v", after, err)
	}

	if err := maps.Delete(t.Context(), journalName, metav1.DeleteOptions{DryRun: all}); err != nil {
		t.Error(err)
	}

	if found := read(t, f); found.ResourceVersion != made.ResourceVersion || found.Data["uuid-1"] != "{}" {
		t.Errorf("it is %+v now", found)
	}

	name := worker(t, f, 0)
	pod := f.Pod(t, "rehearsed", name)
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &metav1.DeleteOptions{DryRun: all},
	}

	if err := f.Wire().PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), eviction); err != nil {
		t.Error(err)
	}

	if err := f.Wire().CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{DryRun: all}); err != nil {
		t.Error(err)
	}

	f.Budget(t, "rehearsed", "rehearsal", 1)

	err := f.Wire().PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), eviction)
	refused(t, "a dry run that a budget forbids", err, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)

	if !stands(t, f, name, pod) {
		t.Error("the pod is on its way out")
	}
}

func evictionsAreAnswered(t *testing.T, f WireFixture) {
	pod := f.Pod(t, "answered", worker(t, f, 0))

	evict := func(name string, uid types.UID) error {
		return f.Wire().PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		})
	}

	refused(t, "a pod that is not there", evict("never-there", ""), http.StatusNotFound, metav1.StatusReasonNotFound)

	err := evict(pod.Name, "22222222-0000-0000-0000-000000000000")
	refused(t, "another pod", err, http.StatusConflict, metav1.StatusReasonConflict)

	if !strings.Contains(errorText(err), "the UID in the precondition (22222222-0000-0000-0000-000000000000) does not match the UID in record ("+pod.UID+")") {
		t.Errorf("another pod: %v", err)
	}

	f.Budget(t, "answered", "answer", 1)

	err = evict(pod.Name, types.UID(pod.UID))
	refused(t, "an exhausted budget", err, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)

	cause, has := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	if !has || cause.Message != "The disruption budget answer needs 1 healthy pods and has 1 currently" {
		t.Errorf("the cause is %q, %t", cause.Message, has)
	}

	f.Budget(t, "answered", "second-answer", 0)

	err = evict(pod.Name, types.UID(pod.UID))
	if !strings.Contains(errorText(err), "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.") {
		t.Errorf("two budgets: %v", err)
	}

	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusInternalServerError {
		t.Errorf("two budgets: %v, want the code 500", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}
