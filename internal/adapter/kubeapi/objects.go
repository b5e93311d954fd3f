// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// mostOfQuery bounds the answers to one query together, in bytes: decoded, they
	// take several times that.
	mostOfQuery = 64 << 20
	// mostOfPage is how large an answer may be that could be had in smaller ones.
	mostOfPage = 8 << 20
)

// Objects reads objects of any kind as decoded JSON, with whole numbers as int64
// and others as float64, sorted by namespace and name. None is no error.
// ErrNotFound means that the cluster serves no such kind; ErrRefused that the
// query makes no sense, that the objects are larger than 64 MiB together, or that
// they are Secrets, whose content could show in messages. What the API server and
// kubectl keep in objects about who wrote them is left out, metadata.managedFields
// and the annotation of "kubectl apply": often it is most of an object.
func (c *Client) Objects(ctx context.Context, query cluster.ObjectQuery) ([]map[string]any, error) {
	what := "read " + described(query)

	root, err := rootOf(query.APIVersion)
	if err != nil {
		return nil, refuse(what, err.Error(), err)
	}

	if root == "/api/v1" && query.Kind == "Secret" {
		return nil, refuse(what, "Secrets are not read, because what they hold could show in messages", cluster.ErrRefused)
	}

	if err := validSegments(what, query.Namespace, query.Name); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	if found, remembered := c.kinds.get(root, query.Kind); remembered {
		objects, err := c.objectsOf(ctx, what, found, query)
		if !errors.Is(err, cluster.ErrNotFound) {
			return objects, err
		}

		// The kind may have left the cluster, or moved to another resource.
		c.kinds.forget(root, query.Kind)
	}

	found, err := c.discover(ctx, root, query)
	if err != nil {
		return nil, err
	}

	return c.objectsOf(ctx, what, found, query)
}

func described(query cluster.ObjectQuery) string {
	text := "the " + query.Kind + " objects of " + query.APIVersion

	if query.Namespace != "" {
		text += " in the namespace " + query.Namespace
	}

	if query.Name != "" {
		text += " named " + query.Name
	}

	if query.Selector != "" {
		text += " with the labels " + query.Selector
	}

	return text
}

// objectsOf reads the objects of a resource. ErrNotFound means that the resource
// is not there.
func (c *Client) objectsOf(ctx context.Context, what string, of servedKind, query cluster.ObjectQuery) ([]map[string]any, error) {
	if query.Namespace != "" && !of.namespaced {
		return nil, refuse(what, fmt.Sprintf("objects of the kind %s are in no namespace; leave the namespace out", query.Kind), cluster.ErrRefused)
	}

	request := func() *rest.Request {
		return c.core.Get().AbsPath(of.root).NamespaceIfScoped(query.Namespace, query.Namespace != "").Resource(of.name)
	}

	// One object is read by itself where its path is known, which credentials may
	// be allowed that cannot list.
	if query.Name != "" && query.Selector == "" && (query.Namespace != "" || !of.namespaced) {
		return oneObject(ctx, what, request().Name(query.Name))
	}

	var held int64

	objects, err := pages(ctx, request, func(ctx context.Context, request *rest.Request, asked page) ([]map[string]any, string, error) {
		if asked.from == "" {
			held = 0
		}

		if query.Selector != "" {
			request = request.Param("labelSelector", query.Selector)
		}

		if query.Name != "" {
			request = request.Param("fieldSelector", "metadata.name="+query.Name)
		}

		body, err := pageBody(ctx, what, request, asked.limit, mostOfQuery-held)
		if err != nil {
			return nil, "", err
		}

		held += int64(len(body))

		return decodedPage(what, body, query)
	})

	slices.SortStableFunc(objects, func(a, b map[string]any) int {
		return cmp.Or(cmp.Compare(named(a, "namespace"), named(b, "namespace")), cmp.Compare(named(a, "name"), named(b, "name")))
	})

	return objects, err
}

func oneObject(ctx context.Context, what string, request *rest.Request) ([]map[string]any, error) {
	body, err := readRaw(ctx, what, request, mostOfQuery)
	if errors.Is(err, errTooLarge) {
		return nil, tooMuch(what)
	}

	if errors.Is(err, cluster.ErrNotFound) && !unserved(err) {
		// The API server answers for a resource that is there.
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	object, err := decodedObject(what, body)
	if err != nil {
		return nil, err
	}

	return []map[string]any{object}, nil
}

// pageBody reads a page of at most so many objects, for which so many bytes are
// left. The error wraps errTooLarge where smaller pages would do.
func pageBody(ctx context.Context, what string, request *rest.Request, limit int, left int64) ([]byte, error) {
	most := left
	if limit > smallestPage {
		most = min(left, mostOfPage)
	}

	body, err := readRaw(ctx, what, request, most)
	if most == left && errors.Is(err, errTooLarge) {
		return nil, tooMuch(what)
	}

	return body, err
}

func tooMuch(what string) error {
	return refuse(what, fmt.Sprintf("it is more than %d MiB; narrow it by namespace, name or selector", mostOfQuery>>20), cluster.ErrRefused)
}

func decodedPage(what string, body []byte, query cluster.ObjectQuery) ([]map[string]any, string, error) {
	var page struct {
		Metadata metav1.ListMeta  `json:"metadata"`
		Items    []map[string]any `json:"items"`
	}

	if err := json.Unmarshal(body, &page); err != nil {
		return nil, "", fmt.Errorf("unable to %s: %w", what, err)
	}

	items := slices.DeleteFunc(page.Items, func(object map[string]any) bool { return object == nil })

	for _, object := range items {
		// Only objects of custom kinds say in lists what they are.
		object["apiVersion"], object["kind"] = query.APIVersion, query.Kind
		withoutWriters(object)
	}

	return items, page.Metadata.Continue, nil
}

// withoutWriters takes away what an object says about who wrote it.
func withoutWriters(object map[string]any) {
	metadata, _ := object["metadata"].(map[string]any)
	delete(metadata, "managedFields")

	annotations, _ := metadata["annotations"].(map[string]any)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
}

func named(object map[string]any, field string) string {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata[field].(string)

	return name
}
