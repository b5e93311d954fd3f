// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"time"
)

// Gate is a condition of the user that must hold before the roll, and before each node that is disturbed.
type Gate interface {
	// String is how people recognise it, such as "gates[0] (longhorn)".
	String() string
	// Timeout is how long to wait for the condition to hold.
	Timeout() time.Duration
	// Holds asks once. Node is the node about to be disturbed; empty before the roll. If the condition does not
	// hold, seen says what is missing; an error means that the answer is unknown, which counts as not holding.
	Holds(ctx context.Context, node string) (holds bool, seen string, err error)
}

// Window is when nodes may be disturbed.
type Window interface {
	// String is how people recognise it.
	String() string
	// Open reports whether the window is open at the time, and until when it stays open or closed; until is zero
	// if that never changes.
	Open(at time.Time) (open bool, until time.Time)
}

// ObjectQuery selects the objects of the Kubernetes API that a gate is about.
type ObjectQuery struct {
	// APIVersion is as in manifests: "v1" or "longhorn.io/v1beta2".
	APIVersion, Kind string
	// Namespace is empty for all namespaces, and for objects without one.
	Namespace string
	// Name is the name of one object. If it is empty, the query is for all objects that match Selector, a label
	// selector that may be empty too.
	Name, Selector string
}

// Objects reads objects of any kind.
type Objects interface {
	// Objects returns the objects of the query as decoded JSON, sorted by namespace and name; empty if there are
	// none. ErrNotFound means that the cluster serves no such kind.
	Objects(ctx context.Context, query ObjectQuery) ([]map[string]any, error)
}
