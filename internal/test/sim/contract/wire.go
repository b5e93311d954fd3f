// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// WireFixture is one whose cluster can be spoken to in the protocol itself.
type WireFixture interface {
	Fixture
	// Wire is a client that does not correct what the API server answers.
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
		{"a watch can begin with what there is", watchesBeginWithWhatThereIs},
		{"a look at nodes that are followed costs one write", claimsAreWritten},
	}
}

// refused makes sure that the API server answers with a code, and gives a

// reason, where there is one.
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

// create creates a journal that holds nothing that could be read.
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

// raw makes a request of its own, and returns what comes back.
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

	// What is no answer of the API itself has its code in the error only.
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
