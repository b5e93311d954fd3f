// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// partStatus is the part of an object in which phase and conditions are.
const partStatus = "status"

// errDeleting is said of an object on its way out: nobody needs to be told there,
// and what deletes it is not to be held up.
var errDeleting = errors.New("it is being deleted")

// ObjectStore keeps the annotations on an object of any kind, which it never
// creates, and phase and conditions where the kind has them. Of kinds that come
// with Kubernetes the status is left alone: a phase means something else there.
type ObjectStore struct {
	access cluster.ObjectAccess
	of     cluster.Reference

	mutex sync.Mutex
	// deleting tells that the object was on its way out when it was last seen.
	deleting bool
	// identity is its UID then.
	identity string
	// part tells whether the kind has a status; nil as long as nobody knows.
	part *bool
}

var (
	_ StatusStore = (*ObjectStore)(nil)
	_ identifier  = (*ObjectStore)(nil)
)

// NewObjectStore is a store on the object.
func NewObjectStore(access cluster.ObjectAccess, of cluster.Reference) *ObjectStore {
	return &ObjectStore{access: access, of: of}
}

// String names the object.
func (s *ObjectStore) String() string { return s.of.String() }

// Patch implements [Store].
func (s *ObjectStore) Patch(ctx context.Context, changes map[string]*string) error {
	// It may have been replaced by another one of that name since.
	if s.wasDeleting() {
		if _, err := s.object(ctx); err != nil {
			return err
		}
	}

	annotations := make(map[string]any, len(changes))

	for key, value := range changes {
		annotations[key] = nil

		if value != nil {
			annotations[key] = *value
		}
	}

	object, err := s.access.PatchObject(ctx, s.of, "", map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err == nil {
		s.see(object)
	}

	return err
}

// Read implements [Store]. An object that does not exist is an error that wraps
// ErrNotFound.
func (s *ObjectStore) Read(ctx context.Context) (map[string]string, error) {
	object, err := s.object(ctx)
	if err != nil {
		return nil, err
	}

	annotations := map[string]string{}

	found, _ := metadata(object)["annotations"].(map[string]any)
	for key, value := range found {
		if text, ok := value.(string); ok {
			annotations[key] = text
		}
	}

	return annotations, nil
}

// Status implements [StatusStore].
func (s *ObjectStore) Status(ctx context.Context) (status map[string]any, version string, err error) {
	if builtin(s.of.APIVersion) {
		return nil, "", fmt.Errorf("the status of a %s is its own: %w", s.of.Kind, cluster.ErrUnsupported)
	}

	has, err := s.hasStatus(ctx)
	if err != nil {
		return nil, "", err
	}

	if !has {
		return nil, "", fmt.Errorf("a %s has no status: %w", s.of.Kind, cluster.ErrUnsupported)
	}

	object, err := s.object(ctx)
	if err != nil {
		return nil, "", err
	}

	status, _ = object[partStatus].(map[string]any)
	version, _ = metadata(object)["resourceVersion"].(string)

	return status, version, nil
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

// object reads the object, unless it is on its way out.
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

// hasStatus asks once.
func (s *ObjectStore) hasStatus(ctx context.Context) (bool, error) {
	s.mutex.Lock()
	known := s.part
	s.mutex.Unlock()

	if known != nil {
		return *known, nil
	}

	has, err := s.access.HasPart(ctx, s.of, partStatus)
	if err != nil {
		return false, err
	}

	s.mutex.Lock()
	defer s.mutex.Unlock()

	s.part = &has

	return has, nil
}

func (s *ObjectStore) see(object map[string]any) {
	since, _ := metadata(object)["deletionTimestamp"].(string)
	identity, _ := metadata(object)["uid"].(string)

	s.mutex.Lock()
	defer s.mutex.Unlock()

	s.deleting, s.identity = since != "", identity
}

// Identity is the UID of the object as it was last seen.
func (s *ObjectStore) Identity() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.identity
}

func (s *ObjectStore) wasDeleting() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.deleting
}

func metadata(object map[string]any) map[string]any {
	found, _ := object["metadata"].(map[string]any)

	return found
}

// builtin tells whether kinds of the API version come with Kubernetes: their groups
// have no dot, or are below k8s.io.
func builtin(apiVersion string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")

	return !grouped || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
