// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// objects are those of any kind that a test put into the cluster, by
// "apiVersion/Kind" and "namespace/name". Only these kinds are served.
type objects map[string]map[string]map[string]any

func kindKey(apiVersion, kind string) string { return apiVersion + "/" + kind }

// ServeKind has the cluster serve a kind of objects, of which there may be none.
func (c *Cluster) ServeKind(apiVersion, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.objects.serve(kindKey(apiVersion, kind))
}

func (o objects) serve(key string) {
	if o[key] == nil {
		o[key] = map[string]map[string]any{}
	}
}

// SetObject puts an object into the cluster, or another one in its place; the
// cluster then serves its kind. The object need not repeat what the arguments
// say, and has to be one that JSON can express.
func (c *Cluster) SetObject(apiVersion, kind, namespace, name string, object map[string]any) {
	stored := jsonCopy(object)
	if stored == nil {
		stored = map[string]any{}
	}

	metadata, _ := stored["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}

	metadata["name"] = name
	if namespace != "" {
		metadata["namespace"] = namespace
	}

	stored["apiVersion"], stored[keyKind], stored["metadata"] = apiVersion, kind, metadata

	c.mu.Lock()
	defer c.mu.Unlock()

	c.objects.serve(kindKey(apiVersion, kind))
	c.objects[kindKey(apiVersion, kind)][namespace+"/"+name] = stored
}

// RemoveObject takes an object away; its kind is still served.
func (c *Cluster) RemoveObject(apiVersion, kind, namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	delete(c.objects[kindKey(apiVersion, kind)], namespace+"/"+name)
}

// Objects implements [cluster.Objects].
func (c *Client) Objects(ctx context.Context, query cluster.ObjectQuery) (found []map[string]any, err error) {
	err = c.look(ctx, "Objects", "", func() error {
		found, err = c.cluster.query(query)

		return err
	})

	return found, err
}

// query lists the objects that a query is about, by namespace and name.
func (c *Cluster) query(query cluster.ObjectQuery) ([]map[string]any, error) {
	what := fmt.Sprintf("unable to list %s %s", query.APIVersion, query.Kind)

	if query.APIVersion == "v1" && query.Kind == "Secret" {
		return nil, fmt.Errorf("%s: %w: secrets are not read", what, cluster.ErrRefused)
	}

	chosen, err := labels.Parse(query.Selector)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, cluster.ErrRefused, err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	kept, served := c.objects[kindKey(query.APIVersion, query.Kind)]
	if !served {
		return nil, fmt.Errorf("%s: %w: the cluster serves no such kind", what, cluster.ErrNotFound)
	}

	nowhere := func(key string) bool { return strings.HasPrefix(key, "/") }
	if query.Namespace != "" && slices.ContainsFunc(slices.Collect(maps.Keys(kept)), nowhere) {
		return nil, fmt.Errorf("%s: %w: objects of the kind are in no namespace; leave the namespace out", what, cluster.ErrRefused)
	}

	var found []map[string]any

	for _, key := range slices.SortedFunc(maps.Keys(kept), byNamespaceAndName) {
		namespace, name, _ := strings.Cut(key, "/")

		switch {
		case query.Namespace != "" && namespace != query.Namespace:
		case query.Name != "" && name != query.Name:
		case !chosen.Matches(labels.Set(labelsOf(kept[key]))):
		default:
			found = append(found, jsonCopy(kept[key]))
		}
	}

	return found, nil
}

func byNamespaceAndName(a, b string) int {
	return slices.Compare(strings.SplitN(a, "/", 2), strings.SplitN(b, "/", 2))
}

func labelsOf(object map[string]any) map[string]string {
	metadata, _ := object["metadata"].(map[string]any)
	given, _ := metadata["labels"].(map[string]any)
	read := make(map[string]string, len(given))

	for key, value := range given {
		read[key], _ = value.(string)
	}

	return read
}

// jsonCopy is an object as it would come over the wire: whole numbers are int64,
// all others float64. It is nil for what JSON cannot express.
func jsonCopy(object map[string]any) map[string]any {
	text, err := json.Marshal(object)
	if err != nil {
		return nil
	}

	var read map[string]any
	if utiljson.Unmarshal(text, &read) != nil {
		return nil
	}

	return read
}
