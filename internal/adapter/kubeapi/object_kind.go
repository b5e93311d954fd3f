// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// servedKind is under which path the objects of a kind are.
type servedKind struct {
	// root is the path of its group and version.
	root string
	// name is the plural.
	name       string
	namespaced bool
	// parts are what of its objects is read and changed by itself, such as "status".
	parts map[string]bool
}

// kinds remembers the resources of the kinds that somebody asked about. The zero
// value works.
type kinds struct {
	mutex sync.Mutex
	known map[string]servedKind
}

func (k *kinds) get(root, kind string) (servedKind, bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	found, ok := k.known[root+" "+kind]

	return found, ok
}

func (k *kinds) set(root, kind string, found servedKind) {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	if k.known == nil {
		k.known = map[string]servedKind{}
	}

	k.known[root+" "+kind] = found
}

func (k *kinds) forget(root, kind string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	delete(k.known, root+" "+kind)
}

// discover asks the API server for the resource of a kind. ErrNotFound means
// that it serves none.
func (c *Client) discover(ctx context.Context, root string, query cluster.ObjectQuery) (servedKind, error) {
	what := fmt.Sprintf("look up the kind %s of %s", query.Kind, query.APIVersion)
	missing := &callError{
		what: what, meanings: []error{cluster.ErrNotFound}, detail: "the cluster serves no such kind", cause: cluster.ErrNotFound,
	}

	body, err := readRaw(ctx, what, c.core.Get().AbsPath(root), mostOfQuery)
	if errors.Is(err, cluster.ErrNotFound) {
		return servedKind{}, missing
	}

	if err != nil {
		return servedKind{}, err
	}

	var served metav1.APIResourceList
	if err := json.Unmarshal(body, &served); err != nil {
		return servedKind{}, fmt.Errorf("unable to %s: %w", what, err)
	}

	for _, one := range served.APIResources {
		// The others are parts of objects, such as their status.
		if one.Kind == query.Kind && !strings.Contains(one.Name, "/") {
			found := servedKind{root: root, name: one.Name, namespaced: one.Namespaced, parts: partsOf(one.Name, served.APIResources)}
			c.kinds.set(root, query.Kind, found)

			return found, nil
		}
	}

	return servedKind{}, missing
}

// partsOf are the parts of the objects of a resource.
func partsOf(plural string, served []metav1.APIResource) map[string]bool {
	parts := map[string]bool{}

	for _, one := range served {
		if part, found := strings.CutPrefix(one.Name, plural+"/"); found {
			parts[part] = true
		}
	}

	return parts
}

// rootOf is the path of a group and version. What does not belong into a path
// could lead to another one.
func rootOf(apiVersion string) (string, error) {
	parsed, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return "", err
	}

	if parsed.Version == "" {
		return "", fmt.Errorf("%q names no version", apiVersion)
	}

	for _, segment := range []string{parsed.Group, parsed.Version} {
		if faults := rest.IsValidPathSegmentName(segment); len(faults) > 0 {
			return "", fmt.Errorf("%q is no API version: it %s", apiVersion, strings.Join(faults, ", "))
		}
	}

	if parsed.Group == "" {
		return "/api/" + parsed.Version, nil
	}

	return "/apis/" + parsed.Group + "/" + parsed.Version, nil
}

// refuse is the error of a request that is not made.
func refuse(what, detail string, cause error) error {
	return &callError{what: what, meanings: []error{cluster.ErrRefused}, detail: detail, cause: cause}
}
