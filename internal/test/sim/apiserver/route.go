// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The verbs of requests.
const (
	verbGet      = "get"
	verbList     = "list"
	verbWatch    = "watch"
	verbCreate   = "create"
	verbUpdate   = "update"
	verbPatch    = "patch"
	verbDelete   = "delete"
	verbEvict    = "evict"
	verbDiscover = "discover"
)

// target is what the path of a request leads to.
type target struct {
	version                   schema.GroupVersion
	resource, namespace, name string
	subresource               string
}

// targetOf takes a path apart; false where it leads nowhere.
func targetOf(path string) (target, bool) {
	var found target

	parts := strings.Split(strings.Trim(path, "/"), "/")

	switch {
	case len(parts) >= 2 && parts[0] == "api":
		found.version, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		found.version, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return target{}, false
	}

	if slices.Contains(parts, "") {
		return target{}, false
	}

	// A namespace itself is an object without one.
	if len(parts) > 2 && parts[0] == "namespaces" {
		found.namespace, parts = parts[1], parts[2:]
	}

	for i, into := range []*string{&found.resource, &found.name, &found.subresource} {
		if i < len(parts) {
			*into = parts[i]
		}
	}

	return found, len(parts) <= 3
}

// verb is what a request wants with its target; empty where there is no such
// thing.
func (t target) verb(method string) string {
	switch {
	case t.resource == "" && method == http.MethodGet:
		return verbDiscover
	case t.resource == "":
		return ""
	case t.subresource != "":
		if method == http.MethodPost && t.resource == resourcePods && t.subresource == "eviction" {
			return verbEvict
		}

		return ""
	case t.name == "":
		return map[string]string{http.MethodGet: verbList, http.MethodPost: verbCreate}[method]
	default:
		return map[string]string{
			http.MethodGet: verbGet, http.MethodPut: verbUpdate, http.MethodPatch: verbPatch, http.MethodDelete: verbDelete,
		}[method]
	}
}

func mutates(verb string) bool {
	switch verb {
	case verbCreate, verbUpdate, verbPatch, verbDelete, verbEvict:
		return true
	default:
		return false
	}
}
