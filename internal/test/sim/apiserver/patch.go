// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patched returns an object after a patch. Its errors are answers.
func patched(header http.Header, of *table, current object, patch []byte) (object, error) {
	media := types.PatchType(mediaOf(header.Get("Content-Type")))
	after, _ := current.DeepCopyObject().(object)

	if media == types.JSONPatchType {
		steps, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}

		return changed(of, after, nil, func(content map[string]any) (map[string]any, error) { return edited(content, steps) })
	}

	if media != types.MergePatchType && (media != types.StrategicMergePatchType || of.custom != nil) {
		return nil, unsupportedMedia(header.Get("Content-Type"))
	}

	var change map[string]any
	if err := utiljson.Unmarshal(patch, &change); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	return changed(of, after, change, func(content map[string]any) (map[string]any, error) {
		if media == types.MergePatchType {
			return merged(content, change), nil
		}

		return strategicpatch.StrategicMergeMapPatch(content, change, of.empty())
	})
}

// changed changes an object. change names the fields concerned; nil means all of them.
func changed(
	of *table, subject object, change map[string]any, how func(content map[string]any) (map[string]any, error),
) (object, error) {
	if custom, is := subject.(*unstructured.Unstructured); is {
		content, err := how(custom.Object)
		if err != nil {
			return nil, unpatchable(err)
		}

		custom.Object = content

		return custom, nil
	}

	// It takes long to convert an object, so only the fields of the change are converted.
	part := subject
	if change != nil {
		part = of.empty()
		assign(part, subject, change)
	}

	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	if content, err = how(content); err != nil {
		return nil, unpatchable(err)
	}

	const strictly = true

	part = of.empty()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, part, strictly); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	if change == nil {
		return part, nil
	}

	assign(subject, part, change)

	return subject, nil
}

// unpatchable returns the answer to a patch that cannot be applied.
func unpatchable(err error) error {
	if errors.As(err, new(apierrors.APIStatus)) {
		return err
	}

	return apierrors.NewBadRequest(err.Error())
}

// assign copies the fields of an object that the change names.
func assign(into, from object, change map[string]any) {
	to, source := reflect.ValueOf(into).Elem(), reflect.ValueOf(from).Elem()

	for index := range to.NumField() {
		name, _, _ := strings.Cut(to.Type().Field(index).Tag.Get("json"), ",")
		if _, named := change[name]; named {
			to.Field(index).Set(source.Field(index))
		}
	}
}

// edited applies a JSON patch (RFC 6902). Its errors are answers.
func edited(content map[string]any, steps jsonpatch.Patch) (after map[string]any, err error) {
	before, err := json.Marshal(content)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	text, err := steps.Apply(before)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
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
