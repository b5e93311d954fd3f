// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Store is the object that carries the annotations.
type Store interface {
	// Patch sets the given annotations and removes those that are nil, in one request. Others stay as they are.
	// ErrRefused means that the object may not have these values, for example because the annotations become too
	// large.
	Patch(ctx context.Context, changes map[string]*string) error
	// Read returns the annotations of the object. They are empty if it does not exist and Patch creates it.
	Read(ctx context.Context) (map[string]string, error)
	// String names the object for people.
	String() string
}

// identifier is a store that can distinguish two objects of the same name.
type identifier interface {
	// Identity returns the identity of the object as last seen, empty if there was none.
	Identity() string
}

// StatusStore is a store whose object may also have a status.
type StatusStore interface {
	Store
	// Status returns the status of the object, empty if there is none yet, and the version of the object.
	// ErrUnsupported means that the kind has no status that this provider may write.
	Status(ctx context.Context) (status map[string]any, version string, err error)
	// PatchStatus sets fields in the status of the object at the given version and returns the new status.
	// ErrConflict means that the object was written since, ErrRefused that the kind does not have such a field,
	// or not with such a value.
	PatchStatus(ctx context.Context, version string, fields map[string]any) (map[string]any, error)
}

// partStatus is the part of an object that holds phase and conditions.
const partStatus = "status"

// errDeleting is the error about an object that is being deleted: nobody reads it any more, and its deletion must
// not be delayed.
var errDeleting = errors.New("it is being deleted")

// ObjectStore keeps the annotations on an object of any kind, and phase and conditions if the kind has them. It does not
// create the object, except for that of [NewConfigMapStore]. The status of kinds that come with Kubernetes is left
// alone, because a phase means something else there.
type ObjectStore struct {
	access cluster.ObjectAccess
	of     cluster.Reference
	// create creates the object with annotations if it is missing. It is nil if the object is never created.
	create func(ctx context.Context, values map[string]any) (map[string]any, error)
	// seen is the object as last seen, nil if there was none.
	seen atomic.Pointer[map[string]any]
	// hasStatus points to whether the kind has a status, nil while that is unknown.
	hasStatus atomic.Pointer[bool]
}

var (
	_ StatusStore = (*ObjectStore)(nil)
	_ identifier  = (*ObjectStore)(nil)
)

// NewObjectStore returns a store for the object.
func NewObjectStore(access cluster.ObjectAccess, of cluster.Reference) *ObjectStore {
	return &ObjectStore{access: access, of: of}
}

// String returns the reference of the object.
func (s *ObjectStore) String() string { return s.of.String() }

// Identity returns the UID of the object as last seen.
func (s *ObjectStore) Identity() string { return s.seenField("uid") }

// Read implements [Store]. If the object does not exist and Patch does not create it, the error wraps
// ErrNotFound.
func (s *ObjectStore) Read(ctx context.Context) (map[string]string, error) {
	object, err := s.object(ctx)

	switch {
	case s.create != nil && errors.Is(err, cluster.ErrNotFound):
		s.seen.Store(nil)

		return nil, nil
	case err != nil:
		return nil, err
	}

	annotations := map[string]string{}
	metadata, _ := object["metadata"].(map[string]any)
	found, _ := metadata["annotations"].(map[string]any)

	for key := range found {
		if text, ok := found[key].(string); ok {
			annotations[key] = text
		}
	}

	return annotations, nil
}

// Patch implements [Store]. It leaves labels alone: annotating somebody else's object does not make it ours.
func (s *ObjectStore) Patch(ctx context.Context, changes map[string]*string) error {
	// It may have been replaced by another object of that name.
	if s.wasDeleting() {
		if _, err := s.object(ctx); err != nil {
			return err
		}
	}

	values := make(map[string]any, len(changes))

	for key, value := range changes {
		values[key] = nil

		if value != nil {
			values[key] = *value
		}
	}

	patch := map[string]any{"metadata": map[string]any{"annotations": values}}
	object, err := s.access.PatchObject(ctx, s.of, "", patch)

	if s.create != nil && errors.Is(err, cluster.ErrNotFound) {
		object, err = s.create(ctx, values)

		if errors.Is(err, cluster.ErrConflict) {
			// Somebody else created it in between.
			object, err = s.access.PatchObject(ctx, s.of, "", patch)
		}
	}

	if err == nil {
		s.see(object)
	}

	return err
}

// Status implements [StatusStore].
func (s *ObjectStore) Status(ctx context.Context) (status map[string]any, version string, err error) {
	if builtin(s.of.APIVersion) {
		return nil, "", fmt.Errorf("the status of a %s is its own: %w", s.of.Kind, cluster.ErrUnsupported)
	}

	if s.hasStatus.Load() == nil {
		has, err := s.access.HasPart(ctx, s.of, partStatus)
		if err != nil {
			return nil, "", err
		}

		s.hasStatus.Store(&has)
	}

	if !*s.hasStatus.Load() {
		return nil, "", fmt.Errorf("a %s has no status: %w", s.of.Kind, cluster.ErrUnsupported)
	}

	object, err := s.object(ctx)
	if err != nil {
		return nil, "", err
	}

	status, _ = object[partStatus].(map[string]any)

	return status, stringField(object["metadata"], "resourceVersion"), nil
}

// PatchStatus implements [StatusStore].
func (s *ObjectStore) PatchStatus(ctx context.Context, version string, fields map[string]any) (map[string]any, error) {
	object, err := s.access.PatchObject(ctx, s.of, partStatus, map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		partStatus: fields,
	})
	if err != nil {
		return nil, err
	}

	s.see(object)

	status, _ := object[partStatus].(map[string]any)

	return status, nil
}

// object reads the object. It returns an error that wraps errDeleting if the object is being deleted.
func (s *ObjectStore) object(ctx context.Context) (map[string]any, error) {
	object, err := s.access.Object(ctx, s.of)
	if err != nil {
		return nil, err
	}

	s.see(object)

	if s.wasDeleting() {
		return nil, fmt.Errorf("%s cannot be written: %w", s.of, errDeleting)
	}

	return object, nil
}

func (s *ObjectStore) see(object map[string]any) { s.seen.Store(&object) }

// wasDeleting reports whether the object was being deleted when last seen. For an object that this store creates,
// it is false: it is written until it is gone.
func (s *ObjectStore) wasDeleting() bool {
	return s.create == nil && s.seenField("deletionTimestamp") != ""
}

// seenField returns a field of the object's metadata as last seen.
func (s *ObjectStore) seenField(name string) string {
	if object := s.seen.Load(); object != nil {
		return stringField((*object)["metadata"], name)
	}

	return ""
}

// builtin reports whether kinds of the API version come with Kubernetes: their groups have no dot, or end in
// .k8s.io.
func builtin(apiVersion string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")

	return !grouped || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// The published object. A destroy recognizes it by the label and by the ID of its cluster.
const (
	ConfigMapNamespace = "kube-system"
	ConfigMapName      = "talosupgrade"
	managedByLabel     = "app.kubernetes.io/managed-by"
	managedBy          = "terraform-provider-talosupgrade"
	clusterAnnotation  = "talosupgrade.vitistack.io/cluster-id"
)

// ObjectCreator is a [cluster.ObjectAccess] that creates objects as well.
type ObjectCreator interface {
	cluster.ObjectAccess
	// CreateObject creates the object with the reference and returns it as it is stored. ErrConflict means that there
	// is one already.
	CreateObject(ctx context.Context, of cluster.Reference, object map[string]any) (map[string]any, error)
}

// NewConfigMapStore returns a store that keeps the annotations on the ConfigMap kube-system/talosupgrade, which it
// creates if it is missing: labelled as ours, and with the ID of the cluster unless that is empty.
func NewConfigMapStore(access ObjectCreator, clusterID string) *ObjectStore {
	of := cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: ConfigMapNamespace, Name: ConfigMapName}

	return &ObjectStore{access: access, of: of, create: func(ctx context.Context, values map[string]any) (map[string]any, error) {
		annotations := map[string]any{}
		if clusterID != "" {
			annotations[clusterAnnotation] = clusterID
		}

		for key, value := range values {
			if value != nil {
				annotations[key] = value
			}
		}

		return access.CreateObject(ctx, of, map[string]any{
			"apiVersion": of.APIVersion, "kind": of.Kind,
			"metadata": map[string]any{
				"namespace": of.Namespace, "name": of.Name, "annotations": annotations,
				"labels": map[string]any{managedByLabel: managedBy},
			},
		})
	}}
}
