// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"regexp"

	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	"github.com/siderolabs/talos/pkg/machinery/textdiff"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	// longestAnswer bounds how many bytes of an error answer are read.
	longestAnswer = 1 << 20
	// sealedMessage replaces what the API server says about a Secret.
	sealedMessage = "what the API server says about a Secret is not shown"
	// hidden and hiddenAfter replace the values of annotations, the latter if the value changes.
	hidden      = "(not shown)"
	hiddenAfter = "(not shown, another one)"
)

// aboutSecrets matches the paths of requests for Secrets, whatever precedes them.
var aboutSecrets = regexp.MustCompile(`/api/v1/(namespaces/[^/]+/)?secrets(/|$)`)

// discreet removes everything but the reason and the code from error answers about Secrets: the API server quotes
// values that it does not understand, and the libraries repeat and log its messages.
type discreet struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (d discreet) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := d.next.RoundTrip(request)
	if err != nil || response.StatusCode < http.StatusBadRequest || !aboutSecrets.MatchString(request.URL.Path) {
		return response, err
	}

	return sealed(response)
}

func sealed(response *http.Response) (*http.Response, error) {
	var said metav1.Status

	// Without a status there is no reason. The decoding error is dropped, because it might quote the text.
	text, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer))
	if err == nil {
		_ = json.Unmarshal(text, &said)
	}

	if err := response.Body.Close(); err != nil {
		return nil, err
	}

	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: said.Reason, Code: int32(response.StatusCode), Message: sealedMessage,
	})
	if err != nil {
		return nil, err
	}

	quiet := *response
	quiet.Header = maps.Clone(response.Header)
	quiet.Header.Set("Content-Type", "application/json")
	quiet.Header.Del("Content-Length")
	// Warnings may quote values, too.
	quiet.Header.Del("Warning")
	quiet.Body, quiet.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))

	return &quiet, nil
}

// marks returns how the labels and annotations of a Secret change, as a unified diff; empty if anything else
// changes, or nothing does. Of annotations, except that of the inventory, only the name is shown: kubectl keeps
// whole objects in them.
func marks(existing, merged *unstructured.Unstructured) string {
	if existing == nil || merged == nil || !reflect.DeepEqual(content(existing), content(merged)) {
		return ""
	}

	before, err := yaml.Marshal(shown(existing, existing))
	if err != nil {
		return ""
	}

	after, err := yaml.Marshal(shown(merged, existing))
	if err != nil {
		return ""
	}

	path := ssa.FormatObjectPathWithGV(merged)

	diff, err := textdiff.DiffWithCustomPaths(string(before), string(after), "a/"+path, "b/"+path)
	if err != nil {
		return ""
	}

	return diff
}

// content returns a Secret without its labels, its annotations and the metadata that changes with every write.
func content(secret *unstructured.Unstructured) map[string]any {
	rest := secret.DeepCopy()
	for _, field := range []string{"labels", "annotations", "resourceVersion", "generation", "managedFields"} {
		unstructured.RemoveNestedField(rest.Object, "metadata", field)
	}

	return rest.Object
}

// shown returns the metadata of a Secret that may be shown.
func shown(secret, before *unstructured.Unstructured) map[string]any {
	metadata := map[string]any{"name": secret.GetName(), "namespace": secret.GetNamespace()}

	if labels := secret.GetLabels(); len(labels) > 0 {
		metadata["labels"] = labels
	}

	annotations, old := secret.GetAnnotations(), before.GetAnnotations()

	for key, value := range annotations {
		switch {
		case key == ssa.InventoryAnnotationKey:
		case value == old[key]:
			annotations[key] = hidden
		default:
			annotations[key] = hiddenAfter
		}
	}

	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}

	return map[string]any{"apiVersion": secret.GetAPIVersion(), "kind": secret.GetKind(), "metadata": metadata}
}
