// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// What follows is called with the lock held.

// read is a copy of an object.
func (m *Memory) read(of cluster.Reference) (map[string]any, error) {
	if _, served := m.kinds[kindKey{of.APIVersion, of.Kind}]; !served {
		return nil, fmt.Errorf("unable to read %s: %w: the kind %s of %s is not served", of, cluster.ErrNotFound, of.Kind, of.APIVersion)
	}

	object, found := m.objects[of]
	if !found {
		return nil, fmt.Errorf("unable to read %s: %w", of, cluster.ErrNotFound)
	}

	return copyOf(object)
}

// patch sends a JSON merge patch the way the API server takes it: the object and
// its status are each changed by themselves, and what changes nothing is no write.
func (m *Memory) patch(of cluster.Reference, part string, patch map[string]any, by string) error {
	what := "unable to patch " + of.String()
	kind, served := m.kinds[kindKey{of.APIVersion, of.Kind}]
	object, found := m.objects[of]

	switch {
	case !served:
		return fmt.Errorf("%s: %w: the kind %s of %s is not served", what, cluster.ErrNotFound, of.Kind, of.APIVersion)
	case part != "" && (part != partStatus || !kind.Status):
		return fmt.Errorf("%s: %w: the kind has no %s that is changed by itself", what, cluster.ErrRefused, part)
	case !found:
		return fmt.Errorf("%s: %w", what, cluster.ErrNotFound)
	}

	if asked := text(patch, keyMetadata, keyResourceVersion); asked != "" && asked != text(object, keyMetadata, keyResourceVersion) {
		return fmt.Errorf("%s: %w", what, cluster.ErrConflict)
	}

	patch, err := copyOf(patch)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", what, cluster.ErrRefused, err)
	}

	wanted := merged(object, kind.effective(part, patch))
	wanted[keyMetadata] = merged(section(wanted, keyMetadata), map[string]any{keyResourceVersion: text(object, keyMetadata, keyResourceVersion)})

	if reflect.DeepEqual(object, wanted) {
		return nil
	}

	if err := kind.check(object, wanted); err != nil {
		return fmt.Errorf("%s: %w: %w", what, cluster.ErrRefused, err)
	}

	metadata := section(wanted, keyMetadata)
	metadata[keyResourceVersion] = m.next()

	if generation, _ := metadata[keyGeneration].(int64); !reflect.DeepEqual(object[keySpec], wanted[keySpec]) {
		metadata[keyGeneration] = generation + 1
	}

	m.objects[of] = wanted
	m.record(of, object, wanted, by)

	return nil
}

// effective is what the API server takes of a patch.
func (k Kind) effective(part string, patch map[string]any) map[string]any {
	switch {
	case part == partStatus:
		return map[string]any{partStatus: patch[partStatus]}
	case k.Status:
		patch = maps.Clone(patch)
		delete(patch, partStatus)
	}

	return patch
}

// check is what the API server wants of an object before it stores it.
func (k Kind) check(old, wanted map[string]any) error {
	for _, field := range slices.Sorted(maps.Keys(section(wanted, partStatus))) {
		if len(k.Fields) > 0 && !slices.Contains(k.Fields, field) {
			return fmt.Errorf("unknown field \"status.%s\"", field)
		}
	}

	if k.Check == nil {
		return nil
	}

	return k.Check(old, wanted)
}

// put stores a new object.
func (m *Memory) put(of cluster.Reference, object map[string]any, by string) error {
	kind, served := m.kinds[kindKey{of.APIVersion, of.Kind}]
	_, found := m.objects[of]

	switch {
	case !served:
		return fmt.Errorf("unable to create %s: %w: the kind is not served", of, cluster.ErrNotFound)
	case found:
		return fmt.Errorf("unable to create %s: %w: it exists already", of, cluster.ErrConflict)
	}

	stored, err := copyOf(object)
	if err != nil {
		return fmt.Errorf("unable to create %s: %w: %w", of, cluster.ErrRefused, err)
	}

	if err := kind.check(nil, stored); err != nil {
		return fmt.Errorf("unable to create %s: %w: %w", of, cluster.ErrRefused, err)
	}

	metadata := section(stored, keyMetadata)
	metadata["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", m.version+1)
	metadata["creationTimestamp"] = m.now().Format(time.RFC3339)
	metadata[keyGeneration] = int64(1)
	metadata[keyResourceVersion] = m.next()

	m.objects[of] = stored
	m.record(of, nil, stored, by)

	return nil
}
