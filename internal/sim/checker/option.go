// SPDX-License-Identifier: MPL-2.0

package checker

import "time"

// Option tells a checker what the history does not: which policy was in force.
type Option func(*options)

type options struct {
	drainDelete  bool
	drainTimeout float64
	leaseSeconds float64
	// maxUnavailable is 0 for the default, which is 1.
	maxUnavailable int
	// maxUnavailableKubelets is 0 for the default, which is 1.
	maxUnavailableKubelets int
	syncsManifests         bool
	held, canary           map[string]bool
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

// MaxUnavailable says how many workers may be unavailable at a time; without it
// that is one. Numbers below one count as one.
func MaxUnavailable(workers int) Option {
	return func(o *options) { o.maxUnavailable = workers }
}

// MaxUnavailableKubelets says how many kubelets of workers may restart at a
// time; without it that is one. Numbers below one count as one.
func MaxUnavailableKubelets(workers int) Option {
	return func(o *options) { o.maxUnavailableKubelets = workers }
}

// SyncsManifests says that the pods of kube-proxy follow in the same run, so
// that annotations speak of them from the beginning. Without it they do so once
// the first of them has moved.
func SyncsManifests() Option {
	return func(o *options) { o.syncsManifests = true }
}

// Held names the nodes that had to be left alone. Annotations do not speak of
// them, and still they count among the workers that are unavailable.
func Held(nodes ...string) Option {
	return func(o *options) { o.held = add(o.held, nodes) }
}

// Canary names the nodes that had to move, and to be back in service, before
// any other one was disturbed.
func Canary(nodes ...string) Option {
	return func(o *options) { o.canary = add(o.canary, nodes) }
}

func add(set map[string]bool, names []string) map[string]bool {
	if set == nil {
		set = map[string]bool{}
	}

	for _, name := range names {
		set[name] = true
	}

	return set
}
