// SPDX-License-Identifier: MPL-2.0

package cluster

import "context"

// Reference names one object of a Kubernetes API.
type Reference struct {
	// APIVersion is as in manifests: "v1" or "vitistack.io/v1alpha1".
	APIVersion, Kind string
	// Namespace is empty for objects without one.
	Namespace, Name string
}

// String returns a text such as "KubernetesCluster tenant-a/prod".
func (r Reference) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}

	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// ObjectAccess reads and changes single objects of any kind but Secrets.
type ObjectAccess interface {
	Objects
	// Object returns the object as decoded JSON. ErrNotFound means that there is no such object, or that the
	// cluster serves no such kind.
	Object(ctx context.Context, of Reference) (map[string]any, error)
	// PatchObject sends a JSON merge patch to the object or, if part is not empty, to the part of it with that
	// name that is changed separately, such as "status". A metadata.resourceVersion in the patch makes it
	// conditional: ErrConflict then means that somebody else wrote the object. ErrRefused means that the patched
	// object would be invalid or, for a part, that the kind has no such field.
	PatchObject(ctx context.Context, of Reference, part string, patch map[string]any) (map[string]any, error)
	// HasPart reports whether the kind of the object has the part.
	HasPart(ctx context.Context, of Reference, part string) (bool, error)
}

// Secret is a Secret of a Kubernetes API. Its data never appears in messages.
type Secret struct {
	Namespace, Name string
	Data            map[string][]byte
	ResourceVersion string
}

// SecretAccess reads and changes Secrets.
type SecretAccess interface {
	// Secret returns the Secret with the name; ErrNotFound if there is none.
	Secret(ctx context.Context, namespace, name string) (Secret, error)
	// Secrets returns the Secrets that match the label selector, sorted by name.
	Secrets(ctx context.Context, namespace, selector string) ([]Secret, error)
	// PatchSecret sets keys of the Secret as it was read; ErrConflict means that somebody else wrote it since.
	PatchSecret(ctx context.Context, read Secret, data map[string][]byte) error
}
