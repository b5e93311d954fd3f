// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Objects is what a player and the seeds need of an API: [Memory] or [Live].
// Errors wrap the sentinels of package cluster.
type Objects interface {
	// Get is the object as decoded JSON; ErrNotFound where there is none.
	Get(ctx context.Context, of cluster.Reference) (map[string]any, error)
	// List are the objects of a kind in a namespace, by name; ErrNotFound where the
	// kind is not served.
	List(ctx context.Context, apiVersion, kind, namespace string) ([]map[string]any, error)
	// Patch sends a JSON merge patch to the object or to a part of it: "status".
	Patch(ctx context.Context, of cluster.Reference, part string, patch map[string]any) error
	// Create creates an object, with its status where it has one.
	Create(ctx context.Context, object map[string]any) error
	// SecretOf is the one Secret of the namespace with the label.
	SecretOf(ctx context.Context, namespace, label, value string) (cluster.Secret, error)
	// WriteSecret sets keys of a Secret.
	WriteSecret(ctx context.Context, namespace, name string, data map[string]string) error
	// CreateSecret creates a Secret of type Opaque.
	CreateSecret(ctx context.Context, secret cluster.Secret, labels map[string]string) error
}

// byPlayer and byClient are who made a change, as the history says it.
const (
	byPlayer = "other"
	byClient = "client"
)

// referenceOf names an object by what it says of itself.
func referenceOf(object map[string]any) cluster.Reference {
	return cluster.Reference{
		APIVersion: text(object, "apiVersion"), Kind: text(object, "kind"),
		Namespace: text(object, keyMetadata, "namespace"), Name: text(object, keyMetadata, keyName),
	}
}
