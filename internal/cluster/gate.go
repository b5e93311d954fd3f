// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"time"
)

// Gate is a condition of the user's own that has to hold before the roll, and
// before each node that is disturbed.
type Gate interface {
	// String is how people recognise it, such as "gates[0] (longhorn)".
	String() string
	// Timeout is how long it may take to come to hold.
	Timeout() time.Duration
	// Holds asks once. The node is the one about to be disturbed, empty before
	// the roll. Where it does not hold, seen says what is missing; an error means
	// that nobody can tell, which counts as not holding.
	Holds(ctx context.Context, node string) (holds bool, seen string, err error)
}

// Window is when nodes may be disturbed.
type Window interface {
	// String is how people recognise it.
	String() string
	// Open tells whether it is open at the time, and until when it stays the way
	// it is; the zero time where that never ends.
	Open(at time.Time) (open bool, until time.Time)
}

// ObjectQuery is which objects of the Kubernetes API a gate is about.
type ObjectQuery struct {
	// APIVersion is as in manifests: "v1" or "longhorn.io/v1beta2".
	APIVersion, Kind string
	// Namespace is empty for all of them, and for objects without one.
	Namespace string
	// Name is of one object; empty for all that the selector, a label selector
	// that may be empty too, lets through.
	Name, Selector string
}

// Objects reads objects of any kind.
type Objects interface {
	// Objects are those of the query as decoded JSON, sorted by namespace and
	// name; none where there are none. ErrNotFound means that the cluster serves
	// no such kind.
	Objects(ctx context.Context, query ObjectQuery) ([]map[string]any, error)
}
