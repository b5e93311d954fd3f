// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// metadata returns the metadata of an object of ours.
func (c *Client) metadata(name, resourceVersion string) metav1.ObjectMeta {
	object := metav1.ObjectMeta{
		Namespace:       Namespace,
		Name:            name,
		ResourceVersion: resourceVersion,
		Labels:          map[string]string{ManagedByLabel: ManagedBy},
	}

	if id := c.ClusterID(); id != "" {
		object.Annotations = map[string]string{ClusterAnnotation: id}
	}

	return object
}

// foreign returns why an object must not be deleted; empty if it is ours and belongs to the cluster with the ID.
// Objects written before the ID was known carry none, and for them the label decides alone.
func foreign(object metav1.ObjectMeta, id string) string {
	if object.Labels[ManagedByLabel] != ManagedBy {
		return "it does not carry the label " + ManagedByLabel + "=" + ManagedBy
	}

	if about := object.Annotations[ClusterAnnotation]; about != "" && id != "" && about != id {
		return "it belongs to cluster " + about
	}

	return ""
}

const (
	// mostOfQuery bounds all answers to one query together, in bytes: decoded, they take several times as much.
	mostOfQuery = 64 << 20
	// mostOfPage bounds one page, in bytes, as long as smaller pages can be asked for.
	mostOfPage = 8 << 20
)

// Objects reads objects of any kind as decoded JSON, with whole numbers as int64 and others as float64, sorted by
// namespace and name. Finding none is no error. ErrNotFound means that the cluster does not serve the kind;
// ErrRefused that the query is not valid, that the objects are larger than 64 MiB together, or that they are
// Secrets, whose content could show in messages. Objects lack the records of who wrote them, metadata.managedFields
// and the annotation of "kubectl apply", which are often most of an object.
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

// objectsOf reads the objects of a resource. ErrNotFound means that the resource does not exist.
func (c *Client) objectsOf(ctx context.Context, what string, of servedKind, query cluster.ObjectQuery) ([]map[string]any, error) {
	if query.Namespace != "" && !of.namespaced {
		return nil, refuse(what, fmt.Sprintf("objects of the kind %s are in no namespace; leave the namespace out", query.Kind), cluster.ErrRefused)
	}

	request := func() *rest.Request {
		return c.core.Get().AbsPath(of.root).NamespaceIfScoped(query.Namespace, query.Namespace != "").Resource(of.name)
	}

	// One object is read by itself if its path is known: credentials may be allowed to get but not to list.
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
		// The API server answers for the resource, so only the object is missing.
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

// pageBody reads a page of at most limit objects, of which left bytes may still be read. The error wraps
// errTooLarge if smaller pages may help.
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

	if err := utiljson.Unmarshal(body, &page); err != nil {
		return nil, "", fmt.Errorf("unable to %s: %w", what, err)
	}

	items := slices.DeleteFunc(page.Items, func(object map[string]any) bool { return object == nil })

	for _, object := range items {
		// In lists, only objects of custom kinds have an apiVersion and a kind.
		object["apiVersion"], object["kind"] = query.APIVersion, query.Kind
		withoutWriters(object)
	}

	return items, page.Metadata.Continue, nil
}

// withoutWriters removes from an object the records of who wrote it.
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

// servedKind is the resource that serves the objects of a kind.
type servedKind struct {
	// root is the path of its group and version.
	root string
	// name is the plural.
	name       string
	namespaced bool
	// parts are the subresources of its objects, such as "status".
	parts map[string]bool
}

// kinds caches the resources of the kinds that were asked for. The zero value works.
type kinds struct {
	mutex sync.Mutex
	known map[string]servedKind
}

func (k *kinds) get(root, kind string) (servedKind, bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()

	found, ok := k.known[root+" "+kind]

	// Every cluster serves these, and every run writes them.
	switch {
	case ok || root != "/api/v1":
	case kind == "ConfigMap":
		return servedKind{root: root, name: "configmaps", namespaced: true}, true
	case kind == "Event":
		return servedKind{root: root, name: "events", namespaced: true}, true
	}

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

// discover asks the API server for the resource of a kind. ErrNotFound means that there is none.
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
		// The others are subresources, such as the status.
		if one.Kind == query.Kind && !strings.Contains(one.Name, "/") {
			found := servedKind{root: root, name: one.Name, namespaced: one.Namespaced, parts: partsOf(one.Name, served.APIResources)}
			c.kinds.set(root, query.Kind, found)

			return found, nil
		}
	}

	return servedKind{}, missing
}

// partsOf returns the subresources of a resource.
func partsOf(plural string, served []metav1.APIResource) map[string]bool {
	parts := map[string]bool{}

	for _, one := range served {
		if part, found := strings.CutPrefix(one.Name, plural+"/"); found {
			parts[part] = true
		}
	}

	return parts
}

// rootOf returns the path of a group and version. It rejects segments that could lead to another path.
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

// Object reads one object by its path, which credentials may be allowed to do even if they cannot list. It leaves
// out and refuses the same as [Client.Objects].
func (c *Client) Object(ctx context.Context, of cluster.Reference) (map[string]any, error) {
	what := "read " + of.String()

	found, err := c.locate(ctx, what, of)
	if err != nil {
		return nil, err
	}

	object, err := c.get(ctx, what, found, of)
	if !unserved(err) {
		return object, missingObject(err)
	}

	// The kind may have left the cluster, or moved to another resource.
	if found, err = c.relocate(ctx, what, of); err != nil {
		return nil, err
	}

	object, err = c.get(ctx, what, found, of)

	return object, missingObject(err)
}

func (c *Client) get(ctx context.Context, what string, found servedKind, of cluster.Reference) (map[string]any, error) {
	body, err := readRaw(ctx, what, found.object(c.core.Get(), of), mostOfQuery)
	if errors.Is(err, errTooLarge) {
		return nil, refuse(what, fmt.Sprintf("it is more than %d MiB", mostOfQuery>>20), err)
	}

	if err != nil {
		return nil, err
	}

	return decodedObject(what, body)
}

// PatchObject sends the patch once. For a part, the API server is asked to refuse fields that the kind does not
// have, which it otherwise drops without an error. It refuses Secrets.
func (c *Client) PatchObject(ctx context.Context, of cluster.Reference, part string, patch map[string]any) (map[string]any, error) {
	what := "change " + of.String()
	if part != "" {
		what = "change the " + part + " of " + of.String()
	}

	body, err := json.Marshal(patch)
	if err != nil {
		return nil, refuse(what, err.Error(), err)
	}

	found, err := c.locatePart(ctx, what, of, part)
	if err != nil {
		return nil, err
	}

	request := found.object(c.core.Patch(types.MergePatchType), of).Body(body)
	if part != "" {
		request = request.SubResource(part).Param("fieldValidation", metav1.FieldValidationStrict)
	}

	answer, err := changeRaw(ctx, what, request)
	if err != nil {
		return nil, c.missing(ctx, what, of, part, err)
	}

	return decodedObject(what, answer)
}

// CreateObject creates the object with the reference and returns it as it is stored. It sends it once, and refuses
// Secrets. ErrConflict means that there is one already.
func (c *Client) CreateObject(ctx context.Context, of cluster.Reference, object map[string]any) (map[string]any, error) {
	what := "create " + of.String()

	body, err := json.Marshal(object)
	if err != nil {
		return nil, refuse(what, err.Error(), err)
	}

	found, err := c.locate(ctx, what, of)
	if err != nil {
		return nil, err
	}

	answer, err := changeRaw(ctx, what, found.collection(c.core.Post(), of).SetHeader("Content-Type", "application/json").Body(body))
	if err != nil {
		return nil, err
	}

	return decodedObject(what, answer)
}

// changeRaw sends a request that changes something, with a body of JSON, and returns the answer as it came.
func changeRaw(ctx context.Context, what string, request *rest.Request) (answer []byte, err error) {
	err = do(ctx, operation{what: what, mutates: true}, func(ctx context.Context) (err error) {
		result := request.SetHeader("Accept", "application/json").MaxRetries(0).Do(ctx)
		// Only Error decodes what the answer says about a failure; Raw does not.
		if err := result.Error(); err != nil {
			return err
		}

		answer, err = result.Raw()

		return err
	})

	return answer, err
}

// missing returns what a change did not find: the kind, the part or the object. The change is not repeated.
func (c *Client) missing(ctx context.Context, what string, of cluster.Reference, part string, err error) error {
	// The API server answers the same for a part that is not served as for an object that does not exist.
	if !unserved(err) && (part == "" || !errors.Is(err, cluster.ErrNotFound)) {
		return missingObject(err)
	}

	c.forgetKind(of)

	if _, lookup := c.locatePart(ctx, what, of, part); errors.Is(lookup, cluster.ErrNotFound) {
		return lookup
	}

	return missingObject(err)
}

// HasPart implements [cluster.ObjectAccess].
func (c *Client) HasPart(ctx context.Context, of cluster.Reference, part string) (bool, error) {
	found, err := c.locate(ctx, "look at "+of.String(), of)
	if err != nil {
		return false, err
	}

	return found.parts[part], nil
}

// locatePart is like locate, and also makes sure that the kind has the part.
func (c *Client) locatePart(ctx context.Context, what string, of cluster.Reference, part string) (servedKind, error) {
	found, err := c.locate(ctx, what, of)
	if err != nil || part == "" || found.parts[part] {
		return found, err
	}

	// The kind may have got the part since it was looked up.
	found, err = c.relocate(ctx, what, of)
	if err != nil || found.parts[part] {
		return found, err
	}

	return servedKind{}, &callError{
		what: what, meanings: []error{cluster.ErrNotFound}, cause: cluster.ErrNotFound,
		detail: fmt.Sprintf("objects of the kind %s of %s have no %s that is changed by itself", of.Kind, of.APIVersion, part),
	}
}

// locate returns the resource of an object. It refuses Secrets and names that are not valid.
func (c *Client) locate(ctx context.Context, what string, of cluster.Reference) (servedKind, error) {
	root, err := rootOf(of.APIVersion)
	if err != nil {
		return servedKind{}, refuse(what, err.Error(), err)
	}

	if root == "/api/v1" && of.Kind == "Secret" {
		return servedKind{}, refuse(what, "Secrets are neither read nor changed this way, because what they hold could show in messages", cluster.ErrRefused)
	}

	if err := validSegments(what, of.Namespace, of.Name); err != nil {
		return servedKind{}, err
	}

	if of.Name == "" {
		return servedKind{}, refuse(what, "it has no name", cluster.ErrRefused)
	}

	found, remembered := c.kinds.get(root, of.Kind)
	if !remembered {
		found, err = c.discover(ctx, root, cluster.ObjectQuery{APIVersion: of.APIVersion, Kind: of.Kind})
		if err != nil {
			return servedKind{}, err
		}
	}

	switch {
	case found.namespaced && of.Namespace == "":
		return servedKind{}, refuse(what, fmt.Sprintf("objects of the kind %s are in a namespace; name it", of.Kind), cluster.ErrRefused)
	case !found.namespaced && of.Namespace != "":
		return servedKind{}, refuse(what, fmt.Sprintf("objects of the kind %s are in no namespace; leave the namespace out", of.Kind), cluster.ErrRefused)
	}

	return found, nil
}

// relocate is like locate, but asks again for a kind that was looked up before.
func (c *Client) relocate(ctx context.Context, what string, of cluster.Reference) (servedKind, error) {
	c.forgetKind(of)

	return c.locate(ctx, what, of)
}

func (c *Client) forgetKind(of cluster.Reference) {
	if root, err := rootOf(of.APIVersion); err == nil {
		c.kinds.forget(root, of.Kind)
	}
}

// collection completes a request for the objects of the kind, in the namespace of the reference.
func (k servedKind) collection(request *rest.Request, of cluster.Reference) *rest.Request {
	return request.AbsPath(k.root).NamespaceIfScoped(of.Namespace, k.namespaced).Resource(k.name)
}

// object completes a request for one object of the kind.
func (k servedKind) object(request *rest.Request, of cluster.Reference) *rest.Request {
	return k.collection(request, of).Name(of.Name)
}

// validSegments refuses segments that would lead to another path.
func validSegments(what string, segments ...string) error {
	for _, segment := range segments {
		if faults := rest.IsValidPathSegmentName(segment); len(faults) > 0 {
			return refuse(what, fmt.Sprintf("%q is no name: it %s", segment, strings.Join(faults, ", ")), cluster.ErrRefused)
		}
	}

	return nil
}

func decodedObject(what string, body []byte) (map[string]any, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("unable to %s: %w", what, err)
	}

	withoutWriters(object)

	return object, nil
}
