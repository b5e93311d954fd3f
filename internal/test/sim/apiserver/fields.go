// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/yaml"
)

// tracked reports whether an object remembers who wrote which of its fields, by the library of the real API server.
// Unless control planes bring manifests into the cluster, that takes time for nothing, except for objects that were
// applied.
func (s *Server) tracked(of *table, current object) bool {
	return s.bootstrapped || current != nil && !of.owned && len(current.GetManagedFields()) > 0
}

// schemas returns the types by which fields are merged. It takes a moment to read them.
var schemas = sync.OnceValue(func() managedfields.TypeConverter {
	made, err := newCodec()
	if err != nil {
		return managedfields.NewDeducedTypeConverter()
	}

	return applyconfigurations.NewTypeConverter(made.scheme)
})

// defaulter leaves objects as they are.
type defaulter struct{}

// Default implements [runtime.ObjectDefaulter].
func (defaulter) Default(runtime.Object) {}

// untyped converts objects without a Go type, which have one version each, to just that.
type untyped struct{ runtime.ObjectConvertor }

// ConvertToVersion implements [runtime.ObjectConvertor].
func (untyped) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// New implements [runtime.ObjectCreater].
func (untyped) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(kind)

	return made, nil
}

// fields returns the manager that tracks who has written the fields of the objects of a resource.
func (s *Server) fields(of *table) (*managedfields.FieldManager, error) {
	if of.fields != nil {
		return of.fields, nil
	}

	var err error

	if kind := of.version.WithKind(of.kind); of.custom == nil {
		of.fields, err = managedfields.NewDefaultFieldManager(schemas(), s.codec.scheme, defaulter{}, s.codec.scheme, kind, of.version, "", nil)
	} else {
		of.fields, err = managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), untyped{}, defaulter{}, untyped{}, kind, of.version, "", nil)
	}

	return of.fields, err
}

// live returns an object as the library wants it: a copy that it may change, with its kind; an empty one if there
// is none.
func (t *table) live(current object) object {
	made := t.empty()
	if current != nil {
		made, _ = current.DeepCopyObject().(object)
	}

	made.GetObjectKind().SetGroupVersionKind(t.version.WithKind(t.kind))

	return made
}

// track makes an object remember who has written which fields. Its errors are answers.
func (s *Server) track(of *table, asked *call, current, wanted object) (object, error) {
	fields, err := s.fields(of)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	tracked, ok := fields.UpdateNoErrors(of.live(current), of.live(wanted), asked.manager()).(object)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s %s is no object any more", of.kind, wanted.GetName()))
	}

	return tracked, nil
}

// apply merges an applied configuration into an object, or creates the object. Its errors are answers.
func (s *Server) apply(of *table, asked *call) (answer, error) {
	if !of.allows(verbPatch) {
		return answer{}, apierrors.NewMethodNotSupported(of.group(), asked.Verb)
	}

	applied := &unstructured.Unstructured{}

	manager := asked.query.Get("fieldManager")
	if manager == "" {
		return answer{}, invalid(&table{version: metav1.SchemeGroupVersion, kind: "PatchOptions"}, "", "fieldManager: Required value: is required for apply patch")
	}

	if err := yaml.Unmarshal(asked.body, &applied.Object); err != nil {
		return answer{}, apierrors.NewBadRequest(err.Error())
	}

	if applied.GroupVersionKind() != of.version.WithKind(of.kind) || applied.GetName() != asked.Name {
		return answer{}, apierrors.NewBadRequest(fmt.Sprintf("%s %s is not what the path leads to", applied.GroupVersionKind(), applied.GetName()))
	}

	fields, err := s.fields(of)
	if err != nil {
		return answer{}, apierrors.NewInternalError(err)
	}

	current, err := s.one(of, key{asked.Namespace, asked.Name})
	if err != nil && (!apierrors.IsNotFound(err) || !of.allows(verbCreate)) {
		return answer{}, err
	}

	merged, err := fields.Apply(of.live(current), applied, manager, asked.query.Get("force") == "true")
	if err != nil {
		return answer{}, err
	}

	wanted, ok := merged.(object)
	if !ok {
		return answer{}, apierrors.NewInternalError(fmt.Errorf("%s %s is no object any more", of.kind, asked.Name))
	}

	if wanted.GetNamespace() == "" {
		wanted.SetNamespace(asked.Namespace)
	}

	if current == nil {
		return s.add(of, asked, wanted)
	}

	return s.replace(of, asked, current, wanted)
}

// applies reports whether a patch is a server-side apply.
func applies(header http.Header) bool {
	return mediaOf(header.Get("Content-Type")) == "application/apply-patch+yaml"
}

// sameFields reports whether the same managers own the same fields, whenever they have written them.
func sameFields(one, other []metav1.ManagedFieldsEntry) bool {
	return maps.Equal(owners(one), owners(other))
}

func owners(of []metav1.ManagedFieldsEntry) map[string]string {
	found := map[string]string{}

	for i := range of {
		entry := of[i]
		if entry.FieldsV1 != nil {
			found[fmt.Sprint(entry.Manager, "\n", entry.Operation, "\n", entry.APIVersion, "\n", entry.Subresource)] = string(entry.FieldsV1.GetRawBytes())
		}
	}

	return found
}
