// SPDX-License-Identifier: MPL-2.0

package checker

import "time"

// Option tells a checker what the history does not: which policy was in force.
type Option func(*options)

type options struct {
	drainDelete  bool
	drainTimeout float64
	leaseSeconds float64
}

// DrainDelete says that pods which could not be evicted within the timeout may
// be deleted. Without it no budget may ever be broken, as by default.
func DrainDelete(timeout time.Duration) Option {
	return func(o *options) { o.drainDelete, o.drainTimeout = true, timeout.Seconds() }
}

// LeaseDuration also demands that the lease was renewed within the duration
// before each mutating call. It is meant for virtual time: a scaled clock turns
// every hiccup of the computer into minutes.
func LeaseDuration(d time.Duration) Option {
	return func(o *options) { o.leaseSeconds = d.Seconds() }
}
