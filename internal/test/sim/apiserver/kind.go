// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// loose are the resources, in a group and version, of the objects that tests put
// into the cluster. They can be read in JSON.
func (s *Server) loose(version schema.GroupVersion) []*resource {
	var found []*resource

	for _, key := range s.cluster.KindsServed() {
		cut := strings.LastIndexByte(key, '/')
		apiVersion, kind := key[:cut], key[cut+1:]

		if apiVersion != version.String() || slices.ContainsFunc(s.resources, func(r *resource) bool {
			return r.version == version && r.kind == kind
		}) {
			continue
		}

		objects := func() ([]object, error) { return s.looseObjects(apiVersion, kind) }

		found = append(found, &resource{
			version: version, name: plural(kind), kind: kind, namespaced: s.namespaced(apiVersion, kind), objects: objects,
			list: func() runtime.Object {
				list := &unstructured.UnstructuredList{}
				list.SetAPIVersion(apiVersion)
				list.SetKind(kind + "List")

				return list
			},
		})
	}

	return found
}

func (s *Server) looseObjects(apiVersion, kind string) ([]object, error) {
	contents, err := s.cluster.ObjectsOf(apiVersion, kind)
	if err != nil {
		return nil, err
	}

	objects := make([]object, 0, len(contents))
	for _, content := range contents {
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}

	return objects, nil
}

// namespaced tells whether objects of a kind are in namespaces; where there are
// none, they would be.
func (s *Server) namespaced(apiVersion, kind string) bool {
	objects, err := s.looseObjects(apiVersion, kind)

	return err == nil && !slices.ContainsFunc(objects, func(one object) bool { return one.GetNamespace() == "" })
}

// plural is the name of the resource of a kind.
func plural(kind string) string {
	name := strings.ToLower(kind)

	switch {
	case strings.HasSuffix(name, "s"):
		return name + "es"
	case strings.HasSuffix(name, "y"):
		return strings.TrimSuffix(name, "y") + "ies"
	default:
		return name + "s"
	}
}

// discovered lists the resources of a group and version.
func (s *Server) discovered(version schema.GroupVersion) (answer, error) {
	list := &metav1.APIResourceList{GroupVersion: version.String()}

	for _, one := range slices.Concat(s.loose(version), s.resources) {
		if one.version == version {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: one.name, SingularName: strings.ToLower(one.kind), Kind: one.kind, Namespaced: one.namespaced, Verbs: one.verbs(),
			})
		}
	}

	if len(list.APIResources) == 0 {
		return answer{}, notServed()
	}

	return answer{http.StatusOK, corev1.SchemeGroupVersion, list}, nil
}

func (r *resource) verbs() []string {
	verbs := []string{verbGet, verbList}
	if r.name == resourceNodes {
		verbs = append(verbs, verbWatch)
	}

	for verb, allowed := range map[string]bool{
		verbCreate: r.create != nil, verbUpdate: r.update != nil, verbPatch: r.update != nil, verbDelete: r.remove != nil,
	} {
		if allowed {
			verbs = append(verbs, verb)
		}
	}

	slices.Sort(verbs)

	return verbs
}
