// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// store is an API server in memory: merge patches, resource versions, and what goes
// wrong with them.
type store struct {
	t        *testing.T
	objects  map[string]map[string]any
	secrets  map[string]cluster.Secret
	labels   map[string]labels.Set
	revision int
	// requests are the requests that arrived, such as "patch Kind ns/name".
	requests []string
	// before runs before a request is carried out; if it returns an error, the request ends with that.
	before func(request string) error
	// after runs after a request was carried out; its error replaces the reply.
	after func(request string) error
}

func newStore(t *testing.T, objects ...map[string]any) *store {
	t.Helper()

	s := &store{t: t, objects: map[string]map[string]any{}, secrets: map[string]cluster.Secret{}, labels: map[string]labels.Set{}}
	for _, object := range objects {
		s.put(object)
	}

	return s
}

func (s *store) put(object map[string]any) {
	s.t.Helper()

	metadata := dig(object, "metadata")
	metadata["resourceVersion"] = s.next()
	s.objects[identify(object)] = cloned(s.t, object)
}

func (s *store) keep(namespace, name string, marks labels.Set, data map[string]string) {
	secret := cluster.Secret{Namespace: namespace, Name: name, ResourceVersion: s.next(), Data: map[string][]byte{}}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}

	s.secrets[namespace+"/"+name], s.labels[namespace+"/"+name] = secret, marks
}

// annotate writes annotations as another writer does.
func (s *store) annotate(of cluster.Reference, key, value string) {
	s.t.Helper()

	object := s.objects[of.String()]
	metadata := dig(object, "metadata")
	dig(metadata, "annotations")[key] = value
	metadata["resourceVersion"] = s.next()
}

func (s *store) annotation(of cluster.Reference, key string) (string, bool) {
	value, stands := dig(dig(s.objects[of.String()], "metadata"), "annotations")[key].(string)

	return value, stands
}

func (s *store) spec(of cluster.Reference, key string) string {
	value, ok := dig(s.objects[of.String()], "spec")[key].(string)
	if !ok {
		return ""
	}

	return value
}

func (s *store) changes() []string {
	return slices.DeleteFunc(slices.Clone(s.requests), func(request string) bool { return !strings.HasPrefix(request, "patch ") })
}

func (s *store) next() string {
	s.revision++

	return strconv.Itoa(s.revision)
}

func (s *store) through(request string, do func() error) error {
	s.requests = append(s.requests, request)

	if s.before != nil {
		if err := s.before(request); err != nil {
			return err
		}
	}

	if err := do(); err != nil {
		return err
	}

	if s.after != nil {
		return s.after(request)
	}

	return nil
}

func (s *store) Object(_ context.Context, of cluster.Reference) (map[string]any, error) {
	var found map[string]any

	err := s.through("get "+of.String(), func() error {
		object, ok := s.objects[of.String()]
		if !ok || object["apiVersion"] != of.APIVersion {
			return fmt.Errorf("unable to read %s: %w", of, cluster.ErrNotFound)
		}

		found = cloned(s.t, object)

		return nil
	})

	return found, err
}

func (s *store) Objects(_ context.Context, query cluster.ObjectQuery) ([]map[string]any, error) {
	var found []map[string]any

	err := s.through("list "+query.Kind, func() error {
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			object := s.objects[name]
			if object["kind"] == query.Kind && object["apiVersion"] == query.APIVersion && dig(object, "metadata")["namespace"] == query.Namespace {
				found = append(found, cloned(s.t, object))
			}
		}

		if len(found) == 0 {
			return fmt.Errorf("unable to list: the cluster serves no kind %s: %w", query.Kind, cluster.ErrNotFound)
		}

		return nil
	})

	return found, err
}

func (s *store) PatchObject(_ context.Context, of cluster.Reference, part string, patch map[string]any) (map[string]any, error) {
	if part != "" {
		s.t.Errorf("the part %q of %s is patched", part, of)
	}

	var patched map[string]any

	err := s.through("patch "+of.String(), func() error {
		object, ok := s.objects[of.String()]
		if !ok {
			return fmt.Errorf("unable to change %s: %w", of, cluster.ErrNotFound)
		}

		patch = cloned(s.t, patch)

		metadata := dig(patch, "metadata")
		if wanted, given := metadata["resourceVersion"]; !given {
			s.t.Errorf("%s is changed without a condition", of)
		} else if wanted != dig(object, "metadata")["resourceVersion"] {
			return fmt.Errorf("unable to change %s: %w", of, cluster.ErrConflict)
		}

		metadata["resourceVersion"] = s.next()
		merge(object, patch)

		patched = cloned(s.t, object)

		return nil
	})

	return patched, err
}

func (s *store) HasPart(context.Context, cluster.Reference, string) (bool, error) {
	s.t.Error("parts are of no use here")

	return false, nil
}

func (s *store) Secret(_ context.Context, namespace, name string) (cluster.Secret, error) {
	var found cluster.Secret

	err := s.through("get Secret "+namespace+"/"+name, func() error {
		secret, ok := s.secrets[namespace+"/"+name]
		if !ok {
			return fmt.Errorf("unable to read Secret %s/%s: %w", namespace, name, cluster.ErrNotFound)
		}

		found = secret
		found.Data = maps.Clone(secret.Data)

		return nil
	})

	return found, err
}

func (s *store) Secrets(_ context.Context, namespace, selector string) ([]cluster.Secret, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		s.t.Errorf("no selector: %v", err)
	}

	var found []cluster.Secret

	err = s.through("list Secret", func() error {
		for _, name := range slices.Sorted(maps.Keys(s.secrets)) {
			if secret := s.secrets[name]; secret.Namespace == namespace && parsed.Matches(s.labels[name]) {
				secret.Data = maps.Clone(secret.Data)
				found = append(found, secret)
			}
		}

		return nil
	})

	return found, err
}

func (s *store) PatchSecret(_ context.Context, read cluster.Secret, data map[string][]byte) error {
	name := read.Namespace + "/" + read.Name

	return s.through("patch Secret "+name, func() error {
		standing := s.secrets[name]
		if standing.ResourceVersion != read.ResourceVersion {
			return fmt.Errorf("unable to change Secret %s: %w", name, cluster.ErrConflict)
		}

		maps.Copy(standing.Data, data)
		standing.ResourceVersion = s.next()
		s.secrets[name] = standing

		return nil
	})
}

// once makes the first requests that begin with the text fail.
func once(prefix string, times int, fault func() error) func(string) error {
	return func(request string) error {
		if times == 0 || !strings.HasPrefix(request, prefix) {
			return nil
		}

		times--

		return fault()
	}
}

func identify(object map[string]any) string {
	metadata := dig(object, "metadata")

	return fmt.Sprintf("%v %v/%v", object["kind"], metadata["namespace"], metadata["name"])
}

func dig(object map[string]any, key string) map[string]any {
	if found, ok := object[key].(map[string]any); ok {
		return found
	}

	made := map[string]any{}
	if object != nil {
		object[key] = made
	}

	return made
}

func merge(into, patch map[string]any) {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(into, key)
		case map[string]any:
			merge(dig(into, key), value)
		default:
			into[key] = value
		}
	}
}

func cloned(t *testing.T, object map[string]any) map[string]any {
	t.Helper()

	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}

	var made map[string]any
	if err := json.Unmarshal(text, &made); err != nil {
		t.Fatal(err)
	}

	return made
}

func annotated(of cluster.Reference, annotations map[string]string) map[string]any {
	noted := map[string]any{}
	for key, value := range annotations {
		noted["upgrade.vitistack.io/"+key] = value
	}

	return map[string]any{
		"apiVersion": of.APIVersion, "kind": of.Kind,
		"metadata": map[string]any{"namespace": of.Namespace, "name": of.Name, "annotations": noted},
		"spec":     map[string]any{"data": map[string]any{"clusterId": "prod-x1"}},
	}
}

func prod() cluster.Reference {
	return cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "tenant-a", Name: "prod"}
}

func parsed(text string) version.Version { return version.MustParse(text) }
