// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"encoding/json"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patched is what a patch makes of an object. Its errors are answers.
func patched(header http.Header, of *table, current object, patch []byte) (object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current.DeepCopyObject())
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	media := types.PatchType(mediaOf(header.Get("Content-Type")))

	switch {
	case media == types.JSONPatchType:
		content, err = edited(content, patch)
	case media == types.MergePatchType, media == types.StrategicMergePatchType && of.custom == nil:
		var change map[string]any
		if err := utiljson.Unmarshal(patch, &change); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}

		if media == types.MergePatchType {
			content = merged(content, change)
		} else {
			content, err = strategicpatch.StrategicMergeMapPatch(content, change, of.empty())
		}
	default:
		return nil, unsupportedMedia(header.Get("Content-Type"))
	}

	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	after := of.empty()
	if custom, is := after.(*unstructured.Unstructured); is {
		custom.Object = content

		return custom, nil
	}

	const strictly = true
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, after, strictly); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	return after, nil
}

// edited applies a JSON patch (RFC 6902).
func edited(content map[string]any, patch []byte) (after map[string]any, err error) {
	steps, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}

	before, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}

	text, err := steps.Apply(before)
	if err != nil {
		return nil, err
	}

	return after, utiljson.Unmarshal(text, &after)
}

// merged applies a JSON merge patch (RFC 7386) to an object, which it changes.
func merged(object, patch map[string]any) map[string]any {
	if object == nil {
		object = map[string]any{}
	}

	for field, wanted := range patch {
		switch change := wanted.(type) {
		case nil:
			delete(object, field)
		case map[string]any:
			standing, _ := object[field].(map[string]any)
			object[field] = merged(standing, change)
		default:
			object[field] = change
		}
	}

	return object
}
