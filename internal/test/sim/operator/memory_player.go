// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Get implements [Objects].
func (m *Memory) Get(ctx context.Context, of cluster.Reference) (object map[string]any, err error) {
	err = m.through(ctx, Operation{Verb: verbGet, Of: of, By: byPlayer}, func() error {
		object, err = m.read(of)

		return err
	})

	return object, err
}

// List implements [Objects].
func (m *Memory) List(ctx context.Context, apiVersion, kind, namespace string) (found []map[string]any, err error) {
	of := cluster.Reference{APIVersion: apiVersion, Kind: kind, Namespace: namespace}

	err = m.through(ctx, Operation{Verb: verbList, Of: of, By: byPlayer}, func() error {
		found, err = m.list(cluster.ObjectQuery{APIVersion: apiVersion, Kind: kind, Namespace: namespace})

		return err
	})

	return found, err
}

// Patch implements [Objects].
func (m *Memory) Patch(ctx context.Context, of cluster.Reference, part string, patch map[string]any) error {
	return m.through(ctx, Operation{Verb: verbPatch, Of: of, Part: part, By: byPlayer}, func() error {
		return m.patch(of, part, patch, byPlayer)
	})
}

// Create implements [Objects].
func (m *Memory) Create(ctx context.Context, object map[string]any) error {
	of := referenceOf(object)

	return m.through(ctx, Operation{Verb: verbCreate, Of: of, By: byPlayer}, func() error {
		return m.put(of, object, byPlayer)
	})
}

// SecretOf implements [Objects].
func (m *Memory) SecretOf(ctx context.Context, namespace, label, value string) (secret cluster.Secret, err error) {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: namespace}

	err = m.through(ctx, Operation{Verb: verbList, Of: of, By: byPlayer}, func() error {
		for _, name := range m.sortedSecrets(namespace) {
			if standing := m.secrets[secretKey{namespace, name}]; standing.labels[label] == value {
				secret = standing.copy()

				return nil
			}
		}

		return noSecret(namespace, label, value)
	})

	return secret, err
}

func noSecret(namespace, label, value string) error {
	return fmt.Errorf("unable to find a Secret in %s with the label %s=%s: %w", namespace, label, value, cluster.ErrNotFound)
}

// WriteSecret implements [Objects].
func (m *Memory) WriteSecret(ctx context.Context, namespace, name string, data map[string]string) error {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: namespace, Name: name}

	return m.through(ctx, Operation{Verb: verbPatch, Of: of, By: byPlayer}, func() error {
		standing, found := m.secrets[secretKey{namespace, name}]
		if !found {
			return fmt.Errorf("unable to write %s: %w", of, cluster.ErrNotFound)
		}

		written := make(map[string][]byte, len(data))
		for key, value := range data {
			written[key] = []byte(value)
		}

		m.setSecret(standing, written)

		return nil
	})
}

// CreateSecret implements [Objects].
func (m *Memory) CreateSecret(ctx context.Context, secret cluster.Secret, labels map[string]string) error {
	of := cluster.Reference{APIVersion: "v1", Kind: secretKind, Namespace: secret.Namespace, Name: secret.Name}

	return m.through(ctx, Operation{Verb: verbCreate, Of: of, By: byPlayer}, func() error {
		at := secretKey{secret.Namespace, secret.Name}
		if m.secrets[at] != nil {
			return fmt.Errorf("unable to create %s: %w: it exists already", of, cluster.ErrConflict)
		}

		stored := &storedSecret{Secret: secret, labels: labels}
		stored.Secret = stored.copy()
		stored.ResourceVersion = m.next()
		m.secrets[at] = stored

		return nil
	})
}
