// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindDefinition is the kind that defines other kinds.
const kindDefinition = "CustomResourceDefinition"

func groupOfDefinitions() schema.GroupVersion {
	return schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
}

// Serve makes the API serve a kind of custom objects, or serve it in another way.
func (s *Server) Serve(kind Kind) error {
	version, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return err
	}

	plural, _ := meta.UnsafeGuessKindToResource(version.WithKind(kind.Kind))

	s.lock()
	defer s.mu.Unlock()

	s.serveKind(plural, true, kind)

	return nil
}

func (s *Server) serveKind(resource schema.GroupVersionResource, namespaced bool, kind Kind) {
	if known := s.table(resource.GroupVersion(), resource.Resource); known != nil {
		known.custom = &kind

		return
	}

	s.tables = append(s.tables, &table{
		version: resource.GroupVersion(), name: resource.Resource, kind: kind.Kind, namespaced: namespaced, custom: &kind,
		verbs:   []string{verbCreate, verbUpdate, verbPatch, verbDelete},
		empty:   func() object { return &unstructured.Unstructured{} },
		objects: map[key]object{},
		list: func() runtime.Object {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(kind.APIVersion)
			list.SetKind(kind.Kind + "List")

			return list
		},
	})
}

// Unserve makes the API stop serving a kind; its objects are gone.
func (s *Server) Unserve(apiVersion, kind string) {
	s.lock()
	defer s.mu.Unlock()

	s.tables = without(s.tables, apiVersion, kind)
}

func without(tables []*table, apiVersion, kind string) []*table {
	var kept []*table

	for _, of := range tables {
		if of.kind != kind || of.version.String() != apiVersion {
			kept = append(kept, of)
		}
	}

	return kept
}

// serveDefinitions lets clients define their own kinds.
func (s *Server) serveDefinitions() {
	s.serveKind(groupOfDefinitions().WithResource("customresourcedefinitions"), false,
		Kind{APIVersion: groupOfDefinitions().String(), Kind: kindDefinition, Status: true})
}

// define serves what a definition says from now on, and stops serving what it said before; now is nil if it was
// deleted. Each version has its own objects, because nothing is converted.
func (s *Server) define(of *table, before, now object) {
	if of.version != groupOfDefinitions() {
		return
	}

	defined := definedBy(now)

	for _, one := range definedBy(before) {
		if !slices.ContainsFunc(defined, func(other definedKind) bool { return other.resource == one.resource }) {
			s.tables = without(s.tables, one.kind.APIVersion, one.kind.Kind)
		}
	}

	for _, one := range defined {
		s.serveKind(one.resource, one.namespaced, one.kind)
	}

	definition, ok := now.(*unstructured.Unstructured)
	if !ok || len(defined) == 0 {
		return
	}

	shown := definition.DeepCopy()
	names, _, _ := unstructured.NestedMap(shown.Object, "spec", "names")
	shown.Object["status"] = map[string]any{
		"acceptedNames": names, "storedVersions": []any{defined[0].resource.Version},
		"conditions": []any{
			map[string]any{"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
			map[string]any{"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
		},
	}

	s.show(of, shown)
}

// definedKind is a version of a kind from a definition.
type definedKind struct {
	resource   schema.GroupVersionResource
	namespaced bool
	kind       Kind
}

// definedBy returns the versions of a kind that are served.
func definedBy(of object) (found []definedKind) {
	definition, ok := of.(*unstructured.Unstructured)
	if !ok {
		return nil
	}

	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(definition.Object, append([]string{"spec"}, fields...)...)

		return value
	}

	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, listed := range versions {
		version, _ := listed.(map[string]any)
		name, _, _ := unstructured.NestedString(version, "name")
		_, status, _ := unstructured.NestedMap(version, "subresources", "status")

		if served, _, _ := unstructured.NestedBool(version, "served"); served {
			resource := schema.GroupVersionResource{Group: text("group"), Version: name, Resource: text("names", "plural")}
			found = append(found, definedKind{
				resource: resource, namespaced: text("scope") == "Namespaced",
				kind: Kind{APIVersion: resource.GroupVersion().String(), Kind: text("names", "kind"), Status: status},
			})
		}
	}

	return found
}
