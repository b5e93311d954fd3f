// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// published is the object of a [shelf].
func published() cluster.Reference {
	return cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "tenant-a", Name: "prod"}
}

// annotationsMost is what an API server allows all annotations of an object
// together, in bytes.
const annotationsMost = 256 << 10

// shelf is access to a single object, which behaves as an API server does: it counts
// versions, merges patches, refuses what is too large or not in the schema, and takes
// fields that it does not know for errors in parts only.
type shelf struct {
	mutex sync.Mutex
	// found is nil while there is no object.
	found map[string]any
	// fields are those of the status; nil where the kind has no status.
	fields []string
	// refuses is a field of the status that may not look as it is wanted.
	refuses string
	// pruning drops unknown fields instead of refusing them.
	pruning bool
	version int
	// calls lists the patches in order, with the part in front.
	calls []string
	// reads counts reads.
	reads int
	// answer is asked before each call of that name, and errors are returned.
	answer func(call string) error
	// before runs before each patch of a part, unlocked, as another writer does.
	before func(part string)
}

func newShelf(fields ...string) *shelf {
	s := &shelf{fields: fields, version: 1}
	s.found = map[string]any{
		"apiVersion": published().APIVersion, "kind": published().Kind, "spec": map[string]any{"topology": "x"},
		"metadata": map[string]any{"namespace": published().Namespace, "name": published().Name, "annotations": map[string]any{"theirs": "yes"}},
	}
	s.stamp()

	return s
}

func (s *shelf) stamp() {
	s.version++
	s.metadata()["resourceVersion"] = strconv.Itoa(s.version)
}

func (s *shelf) metadata() map[string]any { return inner(s.found, "metadata") }

// inner is the object in a field of another one; nil where there is none.
func inner(object any, name string) map[string]any {
	fields, _ := object.(map[string]any)
	found, _ := fields[name].(map[string]any)

	return found
}

// list are the conditions that stand.
func (s *shelf) list() []map[string]any {
	entries, _ := s.status()["conditions"].([]any)
	list := make([]map[string]any, len(entries))

	for i, entry := range entries {
		list[i], _ = entry.(map[string]any)
	}

	return list
}

func (s *shelf) Objects(context.Context, cluster.ObjectQuery) ([]map[string]any, error) {
	return nil, cluster.ErrUnsupported
}

func (s *shelf) Object(_ context.Context, of cluster.Reference) (map[string]any, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	s.reads++

	if err := s.asked("read"); err != nil {
		return nil, err
	}

	if of != published() || s.found == nil {
		return nil, fmt.Errorf("unable to read %s: no such object: %w", of, cluster.ErrNotFound)
	}

	return copied(s.found), nil
}

func (s *shelf) HasPart(context.Context, cluster.Reference, string) (bool, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.fields != nil, s.asked("part")
}

func (s *shelf) PatchObject(_ context.Context, of cluster.Reference, part string, patch map[string]any) (map[string]any, error) {
	if s.before != nil {
		s.before(part)
	}

	s.mutex.Lock()
	defer s.mutex.Unlock()

	if err := s.asked("patch " + part); err != nil {
		return nil, err
	}

	if of != published() || s.found == nil {
		return nil, fmt.Errorf("unable to change %s: no such object: %w", of, cluster.ErrNotFound)
	}

	text, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}

	s.calls = append(s.calls, part+" "+string(text))
	patch = copied(patch)

	if asked, _ := patch["metadata"].(map[string]any); asked["resourceVersion"] != nil {
		if asked["resourceVersion"] != s.metadata()["resourceVersion"] {
			return nil, fmt.Errorf("the object has been modified: %w", cluster.ErrConflict)
		}

		delete(asked, "resourceVersion")
	}

	next := copied(s.found)

	if part == "" {
		delete(patch, "status")
		merge(next, patch)
	} else if err := s.mergeStatus(next, patch); err != nil {
		return nil, err
	}

	size := 0
	for key, value := range inner(inner(next, "metadata"), "annotations") {
		size += len(key) + len(fmt.Sprint(value))
	}

	if size > annotationsMost {
		return nil, fmt.Errorf("metadata.annotations: Too long: may not be more than %d bytes: %w", annotationsMost, cluster.ErrRefused)
	}

	s.found = next
	s.stamp()

	return copied(s.found), nil
}

func (s *shelf) mergeStatus(next, patch map[string]any) error {
	fields, _ := patch["status"].(map[string]any)
	for name := range fields {
		known := false
		for _, field := range s.fields {
			known = known || field == name
		}

		switch {
		case name == s.refuses:
			return fmt.Errorf("status.%s: Unsupported value: %w", name, cluster.ErrRefused)
		case known:
		case s.pruning:
			delete(fields, name)
		default:
			return fmt.Errorf("strict decoding error: unknown field %q: %w", "status."+name, cluster.ErrRefused)
		}
	}

	merge(next, map[string]any{"status": fields})

	return nil
}

func (s *shelf) asked(call string) error {
	if s.answer == nil {
		return nil
	}

	return s.answer(call)
}

// write changes the object as somebody else does.
func (s *shelf) write(patch map[string]any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	merge(s.found, copied(patch))
	s.stamp()
}

func (s *shelf) annotate(values map[string]any) {
	s.write(map[string]any{"metadata": map[string]any{"annotations": values}})
}

// get is an annotation.
func (s *shelf) get(key string) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	annotations, _ := s.metadata()["annotations"].(map[string]any)

	value, exists := annotations[key].(string)
	if !exists {
		return "absent"
	}

	return value
}

// status is the status of the object.
func (s *shelf) status() map[string]any {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	status, _ := copied(s.found)["status"].(map[string]any)

	return status
}

// condition is "status reason message" of the condition with the type.
func (s *shelf) condition(kind string) string {
	for _, fields := range s.list() {
		if fields["type"] == kind {
			return fmt.Sprintf("%v %v %v", fields["status"], fields["reason"], fields["message"])
		}
	}

	return "absent"
}

// moved is when the condition with the type last changed its status.
func (s *shelf) moved(t *testing.T, kind string) time.Time {
	t.Helper()

	for _, fields := range s.list() {
		if fields["type"] != kind {
			continue
		}

		moved, err := time.Parse(time.RFC3339, fmt.Sprint(fields["lastTransitionTime"]))
		if err != nil {
			t.Error(err)
		}

		return moved
	}

	t.Errorf("there is no condition %s", kind)

	return time.Time{}
}

func copied(value map[string]any) map[string]any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}

	var made map[string]any
	if err := json.Unmarshal(text, &made); err != nil {
		panic(err)
	}

	return made
}

// merge is RFC 7386.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)

		switch {
		case value == nil:
			delete(into, key)
		case isMap:
			standing, _ := into[key].(map[string]any)
			if standing == nil {
				standing = map[string]any{}
			}

			merge(standing, inner)
			into[key] = standing
		default:
			into[key] = value
		}
	}
}

var _ cluster.ObjectAccess = (*shelf)(nil)
