// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// codec speaks JSON and protobuf.
type codec struct {
	codecs serializer.CodecFactory
}

func newCodec() (*codec, error) {
	scheme := runtime.NewScheme()

	err := errors.Join(
		corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), policyv1.AddToScheme(scheme),
		appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme),
	)

	return &codec{codecs: serializer.NewCodecFactory(scheme)}, err
}

// accepted is the first media type, of those that a client accepts, that there
// is; empty where there is none. Views of objects are none, but for [tableOf].
func accepted(header http.Header) string {
	wanted := header.Get("Accept")
	if wanted == "" {
		return runtime.ContentTypeJSON
	}

	for one := range strings.SplitSeq(wanted, ",") {
		media, params, err := mime.ParseMediaType(one)

		switch {
		case err != nil || params["as"] != "":
		case media == "*/*" || media == "application/*" || media == runtime.ContentTypeJSON:
			return runtime.ContentTypeJSON
		case media == runtime.ContentTypeProtobuf:
			return media
		}
	}

	return ""
}

// tableOf is the view of one object that a client prefers which wants nothing of it but
// its version, a table without rows of objects; false where it wants something else.
func tableOf(asked *http.Request, of runtime.Object) (*metav1.Table, bool) {
	wanted, _, _ := strings.Cut(asked.Header.Get("Accept"), ",")
	media, params, err := mime.ParseMediaType(wanted)
	one, isObject := of.(object)

	if err != nil || media != runtime.ContentTypeJSON || params["as"] != "Table" || !isObject ||
		asked.URL.Query().Get("includeObject") != string(metav1.IncludeNone) {
		return nil, false
	}

	return &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: metav1.SchemeGroupVersion.String()},
		ListMeta: metav1.ListMeta{ResourceVersion: one.GetResourceVersion()},
	}, true
}

// encode is an object in a media type; JSON for an object of no known kind.
func (c *codec) encode(media string, version schema.GroupVersion, object runtime.Object) (body []byte, written string, err error) {
	switch object.(type) {
	case runtime.Unstructured, *metav1.Table:
		body, err = json.Marshal(object)

		return body, runtime.ContentTypeJSON, err
	}

	info, found := runtime.SerializerInfoForMediaType(c.codecs.SupportedMediaTypes(), media)
	if !found {
		return nil, "", fmt.Errorf("no serializer for %s", media)
	}

	body, err = runtime.Encode(c.codecs.WithoutConversion().EncoderForVersion(info.Serializer, version), object)

	return body, media, err
}

// stream writes the events of a watch to a client, in a media type.
func (c *codec) stream(
	media string, version schema.GroupVersion, w http.ResponseWriter,
) (write func(watch.EventType, runtime.Object) error, err error) {
	info, found := runtime.SerializerInfoForMediaType(c.codecs.SupportedMediaTypes(), media)
	flusher, flushes := w.(http.Flusher)

	if !found || info.StreamSerializer == nil || !flushes {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "",
			"only the media types JSON and protobuf are served", 0, true)
	}

	w.Header().Set("Content-Type", media)

	if media == runtime.ContentTypeProtobuf {
		w.Header().Set("Content-Type", media+";stream=watch")
	}

	w.WriteHeader(http.StatusOK)
	flusher.Flush()

	frames := info.StreamSerializer.NewFrameWriter(w)

	return func(kind watch.EventType, object runtime.Object) error {
		embedded, _, err := c.encode(media, version, object.DeepCopyObject())
		if err != nil {
			return err
		}

		event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: embedded}}
		if err := info.StreamSerializer.Encode(event, frames); err != nil {
			return err
		}

		flusher.Flush()

		return nil
	}, nil
}

// decode reads what a client sent. Its errors are answers.
func (c *codec) decode(header http.Header, body []byte, into runtime.Object) error {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || media != runtime.ContentTypeJSON && media != runtime.ContentTypeProtobuf {
		return unsupportedMedia(header.Get("Content-Type"))
	}

	if _, _, err := c.codecs.UniversalDeserializer().Decode(body, nil, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}

	return nil
}

func unsupportedMedia(given string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
		fmt.Sprintf("the body of the request was in an unknown format %q", given), 0, true)
}

// patched is a copy of an object with a JSON merge patch applied. Its errors are
// answers.
func patched(header http.Header, current object, patch []byte) (object, error) {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || types.PatchType(media) != types.MergePatchType {
		return nil, unsupportedMedia(header.Get("Content-Type"))
	}

	text, err := json.Marshal(current)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	var before, change any

	if err := errors.Join(decodeNumbers(text, &before), decodeNumbers(patch, &change)); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	text, err = json.Marshal(merged(before, change))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	after := emptyLike(current)

	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()

	if err := decoder.Decode(after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	return after, nil
}

func decodeNumbers(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()

	return decoder.Decode(into)
}

// merged applies a JSON merge patch (RFC 7386).
func merged(current, patch any) any {
	changes, isMap := patch.(map[string]any)
	if !isMap {
		return patch
	}

	result := map[string]any{}

	if standing, isMap := current.(map[string]any); isMap {
		for key, value := range standing {
			result[key] = value
		}
	}

	for key, change := range changes {
		if change == nil {
			delete(result, key)
		} else {
			result[key] = merged(result[key], change)
		}
	}

	return result
}

// emptyLike is a new object of the same type.
func emptyLike(of object) object {
	switch of.(type) {
	case *corev1.Node:
		return &corev1.Node{}
	case *corev1.ConfigMap:
		return &corev1.ConfigMap{}
	case *coordinationv1.Lease:
		return &coordinationv1.Lease{}
	default:
		return &unstructured.Unstructured{}
	}
}
