// SPDX-License-Identifier: MPL-2.0

package checker

import (
	"slices"
	"time"
)

// Option tells a checker what the history does not contain: the policy that was in force.
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
	held, canary, skips    map[string]bool
	// holds and leads are nil if no labels hold a node or make one a canary.
	holds, leads func(labels map[string]string) bool
	pools        []pool
	// openings are in seconds since the simulation began; none means always.
	openings      [][2]float64
	snapshotFirst bool
	settleSeconds float64
	delegated     bool
	// ignoresVolumes is true if nodes may reboot whatever is attached to them.
	ignoresVolumes bool
	// operated are objects by their names in the history.
	operated map[string]bool
}

// DrainDelete says that pods that could not be evicted within the timeout may be deleted. Without it no budget may
// ever be broken, which is the default.
func DrainDelete(timeout time.Duration) Option {
	return func(o *options) { o.drainDelete, o.drainTimeout = true, timeout.Seconds() }
}

// LeaseDuration also requires that the lease was renewed within the duration before each mutating call. It is meant
// for virtual time: a scaled clock turns every delay of the computer into minutes.
func LeaseDuration(d time.Duration) Option {
	return func(o *options) { o.leaseSeconds = d.Seconds() }
}

// IgnoresVolumes says that a reboot does not wait for volumes that are still attached to the node.
func IgnoresVolumes() Option {
	return func(o *options) { o.ignoresVolumes = true }
}

// MaxUnavailable says how many workers may be unavailable at a time, by default one. Numbers below one count as
// one.
func MaxUnavailable(workers int) Option {
	return func(o *options) { o.maxUnavailable = workers }
}

// MaxUnavailableKubelets says how many kubelets of workers may restart at a time, by default one. Numbers below one
// count as one.
func MaxUnavailableKubelets(workers int) Option {
	return func(o *options) { o.maxUnavailableKubelets = workers }
}

// SyncsManifests says that the pods of kube-proxy follow in the same run, so that annotations include them from the
// beginning. Without it they do so once the first of them has moved.
func SyncsManifests() Option {
	return func(o *options) { o.syncsManifests = true }
}

// Held names the nodes that had to be left alone. Annotations do not include them, but they count among the workers
// that are unavailable.
func Held(nodes ...string) Option {
	return func(o *options) { o.held = add(o.held, nodes) }
}

// HeldBy says which labels hold a node, from the first observation of a run that finds them until the run ends. A
// node whose turn had begun before is finished.
func HeldBy(matches func(labels map[string]string) bool) Option {
	return func(o *options) { o.holds = matches }
}

// CanaryBy says which labels make a worker a canary, as [Canary] does, from the first observation of a run that
// finds them until the run ends.
func CanaryBy(matches func(labels map[string]string) bool) Option {
	return func(o *options) { o.leads = matches }
}

// Pool says which labels put a worker into a pool, and how many of that many workers in it may be unavailable at a
// time, or have their kubelets restart.
func Pool(name string, matches func(labels map[string]string) bool, most func(workers int) int) Option {
	return func(o *options) { o.pools = append(o.pools, pool{name: name, matches: matches, most: most}) }
}

// Canary names the nodes that had to move, and to be back in service, before any other one was disturbed.
func Canary(nodes ...string) Option {
	return func(o *options) { o.canary = add(o.canary, nodes) }
}

// Settle says how long a node that was moved had to stay healthy before another one was disturbed; by default that
// is no time.
func Settle(d time.Duration) Option {
	return func(o *options) { o.settleSeconds = d.Seconds() }
}

// Skips names the checks whose findings the run may ignore: two-members, etcd-alarms, control-plane-components,
// external-changes and schematic matter here, the others change no judgement.
func Skips(checks ...string) Option {
	return func(o *options) { o.skips = add(o.skips, checks) }
}

// SnapshotFirst says that a snapshot of etcd had to be taken before anything was disturbed.
func SnapshotFirst() Option {
	return func(o *options) { o.snapshotFirst = true }
}

// Operated names objects, such as "KubernetesCluster/tenant-a/prod", on which an operator acts unless it is held.
// It had to be held whenever the run disturbed anything.
func Operated(objects ...string) Option {
	return func(o *options) { o.operated = add(o.operated, objects) }
}

// Delegated says that an operator was to upgrade the cluster, and the run was only to ask it.
func Delegated() Option {
	return func(o *options) { o.delegated = true }
}

// Opening is when a maintenance window is open: From is included, To is not.
type Opening struct{ From, To time.Time }

// Window says when nodes could begin to be disturbed; began is when the simulation began. Without it, or without
// openings, that is always.
func Window(began time.Time, openings ...Opening) Option {
	return func(o *options) {
		for _, opening := range openings {
			o.openings = append(o.openings, [2]float64{opening.From.Sub(began).Seconds(), opening.To.Sub(began).Seconds()})
		}
	}
}

// open reports whether the window is open at a simulated time, or was a moment ago.
func (o *options) open(at float64) bool {
	return slices.ContainsFunc(o.openings, func(opening [2]float64) bool { return at >= opening[0] && at < opening[1]+prompt })
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
