// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	verbGet    = "get"
	verbList   = "list"
	verbPatch  = "patch"
	verbCreate = "create"

	secretKind = "Secret"
)

// Object implements [cluster.ObjectAccess].
func (m *Memory) Object(ctx context.Context, of cluster.Reference) (object map[string]any, err error) {
	err = m.through(ctx, Operation{Verb: verbGet, Of: of, By: byClient}, func() error {
		object, err = m.read(of)

		return err
	})

	return object, err
}

// Objects implements [cluster.Objects].
func (m *Memory) Objects(ctx context.Context, query cluster.ObjectQuery) (found []map[string]any, err error) {
	of := cluster.Reference{APIVersion: query.APIVersion, Kind: query.Kind, Namespace: query.Namespace, Name: query.Name}

	err = m.through(ctx, Operation{Verb: verbList, Of: of, By: byClient}, func() error {
		found, err = m.list(query)

		return err
	})

	return found, err
}

// PatchObject implements [cluster.ObjectAccess].
func (m *Memory) PatchObject(
	ctx context.Context, of cluster.Reference, part string, patch map[string]any,
) (object map[string]any, err error) {
	err = m.through(ctx, Operation{Verb: verbPatch, Of: of, Part: part, By: byClient}, func() error {
		if err := m.patch(of, part, patch, byClient); err != nil {
			return err
		}

		object, err = m.read(of)

		return err
	})
	if err != nil {
		return nil, err
	}

	return object, nil
}

// HasPart implements [cluster.ObjectAccess].
func (m *Memory) HasPart(ctx context.Context, of cluster.Reference, part string) (has bool, err error) {
	err = m.through(ctx, Operation{Verb: verbGet, Of: of, Part: part, By: byClient}, func() error {
		kind, served := m.kinds[kindKey{of.APIVersion, of.Kind}]
		if !served {
			return fmt.Errorf("unable to look up %s %s: %w: no such kind is served", of.APIVersion, of.Kind, cluster.ErrNotFound)
		}

		has = part == partStatus && kind.Status

		return nil
	})

	return has, err
}

// Secret implements [cluster.SecretAccess].
func (m *Memory) Secret(ctx context.Context, namespace, name string) (secret cluster.Secret, err error) {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: namespace, Name: name}

	err = m.through(ctx, Operation{Verb: verbGet, Of: of, By: byClient}, func() error {
		standing, found := m.secrets[secretKey{namespace, name}]
		if !found {
			return fmt.Errorf("unable to read %s: %w", of, cluster.ErrNotFound)
		}

		secret = standing.copy()

		return nil
	})

	return secret, err
}

// Secrets implements [cluster.SecretAccess].
func (m *Memory) Secrets(ctx context.Context, namespace, selector string) (found []cluster.Secret, err error) {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: namespace}

	err = m.through(ctx, Operation{Verb: verbList, Of: of, By: byClient}, func() error {
		chosen, err := labels.Parse(selector)
		if err != nil {
			return fmt.Errorf("unable to list Secrets: %w: %w", cluster.ErrRefused, err)
		}

		for _, name := range m.sortedSecrets(namespace) {
			if standing := m.secrets[secretKey{namespace, name}]; chosen.Matches(labels.Set(standing.labels)) {
				found = append(found, standing.copy())
			}
		}

		return nil
	})

	return found, err
}

// PatchSecret implements [cluster.SecretAccess].
func (m *Memory) PatchSecret(ctx context.Context, read cluster.Secret, data map[string][]byte) error {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: read.Namespace, Name: read.Name}

	return m.through(ctx, Operation{Verb: verbPatch, Of: of, By: byClient}, func() error {
		standing, found := m.secrets[secretKey{read.Namespace, read.Name}]

		switch {
		case !found:
			return fmt.Errorf("unable to write %s: %w", of, cluster.ErrNotFound)
		case read.ResourceVersion != "" && read.ResourceVersion != standing.ResourceVersion:
			return fmt.Errorf("unable to write %s: %w", of, cluster.ErrConflict)
		}

		m.setSecret(standing, data)

		return nil
	})
}

func (s *storedSecret) copy() cluster.Secret {
	copied := s.Secret
	copied.Data = make(map[string][]byte, len(s.Data))

	for key, value := range s.Data {
		copied.Data[key] = slices.Clone(value)
	}

	return copied
}

// setSecret sets keys of a Secret; with the lock held.
func (m *Memory) setSecret(standing *storedSecret, data map[string][]byte) {
	changed := false

	for key, value := range data {
		if before, has := standing.Data[key]; !has || !slices.Equal(before, value) {
			standing.Data[key], changed = slices.Clone(value), true
		}
	}

	if changed {
		standing.ResourceVersion = m.next()
	}
}

// list is what a query finds; with the lock held.
func (m *Memory) list(query cluster.ObjectQuery) ([]map[string]any, error) {
	what := fmt.Sprintf("unable to list %s %s", query.APIVersion, query.Kind)

	if _, served := m.kinds[kindKey{query.APIVersion, query.Kind}]; !served {
		return nil, fmt.Errorf("%s: %w: no such kind is served", what, cluster.ErrNotFound)
	}

	chosen, err := labels.Parse(query.Selector)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", what, cluster.ErrRefused, err)
	}

	var found []map[string]any

	for _, of := range slices.SortedFunc(maps.Keys(m.objects), byNamespaceAndName) {
		switch {
		case of.APIVersion != query.APIVersion || of.Kind != query.Kind:
		case query.Namespace != "" && of.Namespace != query.Namespace:
		case query.Name != "" && of.Name != query.Name:
		case !chosen.Matches(labels.Set(stringsOf(section(m.objects[of], keyMetadata, keyLabels)))):
		default:
			object, err := copyOf(m.objects[of])
			if err != nil {
				return nil, err
			}

			found = append(found, object)
		}
	}

	return found, nil
}

func byNamespaceAndName(a, b cluster.Reference) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
