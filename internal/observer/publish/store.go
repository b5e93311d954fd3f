// SPDX-License-Identifier: MPL-2.0

package publish

import "context"

// Store is the object that carries the annotations.
type Store interface {
	// Patch sets the given annotations and removes those that are nil, in one
	// request. Others stay as they are. ErrRefused means that the object may not
	// look like that, as where the annotations become too large.
	Patch(ctx context.Context, changes map[string]*string) error
	// Read are the annotations of the object; empty where it does not exist and
	// Patch makes it.
	Read(ctx context.Context) (map[string]string, error)
	// String names the object for people.
	String() string
}

// identifier is a store that tells an object from another one of that name.
type identifier interface {
	// Identity is that of the object that was seen last; empty where there was none.
	Identity() string
}

// StatusStore is a store whose object may have a status as well.
type StatusStore interface {
	Store
	// Status is the status of the object, empty where there is none yet, and the
	// version of the object. ErrUnsupported means that the kind has none that is
	// ours to write.
	Status(ctx context.Context) (status map[string]any, version string, err error)
	// PatchStatus sets fields of the status of the object, as it was at the
	// version, and returns the status that stands then. ErrConflict means that
	// somebody else wrote the object since, ErrRefused that the kind has no such
	// field, or not with such a value.
	PatchStatus(ctx context.Context, version string, fields map[string]any) (map[string]any, error)
}
