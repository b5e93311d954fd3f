// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// leased changes the cluster under the lease of a run, and is the only way to do so: a call is refused, before it
// has any effect, unless the lease is ours and was renewed recently. A short call is not cut off once it has
// begun. Three things are done without the lease: nodes pull images, which disturbs nobody, an operator is
// released, and a request to it is withdrawn.
type leased struct {
	engine *Engine
	lock   *lock
}

// errRefusedByLease is the error of a call that was certainly not made, because the lease is not ours or could
// not be renewed. It is wrapped beside [say.ErrLeaseLost] or [cluster.ErrUnreachable].
var errRefusedByLease = errors.New("no lease")

// leaseError is [errRefusedByLease] with the text of its reason.
type leaseError struct {
	text   string
	reason error
}

func (l *leaseError) Error() string { return l.text }

func (l *leaseError) Unwrap() []error { return []error{errRefusedByLease, l.reason} }

// allow refuses a call unless the lease is ours and was renewed less than [leaseFresh] ago. The lease is renewed
// in the background during the call.
func (l leased) allow(ctx context.Context) error {
	ok, seen, err := l.lock.holds(ctx)

	switch {
	case err != nil:
		return &leaseError{text: err.Error(), reason: err}
	case !ok:
		return &leaseError{text: seen, reason: cluster.ErrUnreachable}
	default:
		return nil
	}
}

// whole makes a short call, which is not cut off once it has begun.
func (l leased) whole(ctx context.Context, call func(context.Context) error) error {
	if err := l.allow(ctx); err != nil {
		return err
	}

	return l.engine.callWhole(ctx, call)
}

// cordon is [cluster.Kubernetes.Cordon].
func (l leased) cordon(ctx context.Context, node string) (ours bool, err error) {
	err = l.whole(ctx, func(ctx context.Context) (err error) {
		ours, err = l.engine.kubernetes.Cordon(ctx, node, l.engine.runID)

		return err
	})

	return ours, err
}

// uncordon is [cluster.Kubernetes.Uncordon].
func (l leased) uncordon(ctx context.Context, node string) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.kubernetes.Uncordon(ctx, node) })
}

// evict is [cluster.Kubernetes.Evict].
func (l leased) evict(ctx context.Context, pod cluster.Pod) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.kubernetes.Evict(ctx, pod) })
}

// deletePod is [cluster.Kubernetes.DeletePod].
func (l leased) deletePod(ctx context.Context, pod cluster.Pod) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.kubernetes.DeletePod(ctx, pod) })
}

// nodesNow is [cluster.Kubernetes.NodesNow]. The claim is a write: without the lease it is left out, and the
// nodes are listed.
func (l leased) nodesNow(ctx context.Context, claim string) ([]cluster.KubeNode, error) {
	if _, fresh, lost := l.lock.state(); !fresh || lost != nil {
		claim = ""
	}

	return l.engine.kubernetes.NodesNow(ctx, claim)
}

// writeJournal is [cluster.Kubernetes.WriteJournal].
func (l leased) writeJournal(ctx context.Context, changed cluster.Journal) (written cluster.Journal, err error) {
	err = l.whole(ctx, func(ctx context.Context) (err error) {
		written, err = l.engine.kubernetes.WriteJournal(ctx, changed)

		return err
	})

	return written, err
}

// install is [cluster.Talos.Install]. It ends with its context.
func (l leased) install(ctx context.Context, address, image string) (cluster.Installation, error) {
	if err := l.allow(ctx); err != nil {
		return cluster.Installation{}, err
	}

	return l.engine.talos.Install(ctx, address, image)
}

// upgrade is [cluster.Talos.Upgrade]. It ends with its context.
func (l leased) upgrade(ctx context.Context, address, image string, mode cluster.RebootMode, accepted func()) (cluster.Installation, error) {
	if err := l.allow(ctx); err != nil {
		return cluster.Installation{}, err
	}

	return l.engine.talos.Upgrade(ctx, address, image, mode, accepted)
}

// reboot is [cluster.Talos.Reboot].
func (l leased) reboot(ctx context.Context, address string, mode cluster.RebootMode) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.talos.Reboot(ctx, address, mode) })
}

// rollBack is [cluster.Talos.Rollback].
func (l leased) rollBack(ctx context.Context, address string) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.talos.Rollback(ctx, address) })
}

// forfeitLeadership is [cluster.Talos.ForfeitLeadership].
func (l leased) forfeitLeadership(ctx context.Context, address string) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.talos.ForfeitLeadership(ctx, address) })
}

// configure is [cluster.Talos.Configure]. If it fails, it is unknown what the configuration names, and the
// machine is forgotten.
func (l leased) configure(ctx context.Context, address string, change cluster.ImageChange) error {
	return l.whole(ctx, func(ctx context.Context) error {
		err := l.engine.talos.Configure(ctx, address, change)
		if err != nil {
			l.engine.facts.Forget(address)

			return err
		}

		l.engine.facts.Configured(address, change)

		return nil
	})
}

// applyManifests is [cluster.BootstrapManifests.Apply]. It ends with its context.
func (l leased) applyManifests(ctx context.Context, address string, options cluster.ManifestOptions) ([]cluster.ManifestChange, error) {
	if err := l.allow(ctx); err != nil {
		return nil, err
	}

	return l.engine.manifests.Apply(ctx, address, options)
}

// hold is [cluster.Operator.Hold].
func (l leased) hold(ctx context.Context, before string) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.operator.Hold(ctx, l.engine.runID, before) })
}

// releaseHold is [cluster.Operator.Release].
func (l leased) releaseHold(ctx context.Context, held string) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.operator.Release(ctx, held) })
}

// settle is [cluster.Operator.Settle].
func (l leased) settle(ctx context.Context, talos, kubernetes version.Version) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.operator.Settle(ctx, talos, kubernetes) })
}

// ask is [cluster.Operator.Ask].
func (l leased) ask(ctx context.Context, product version.Product, to version.Version) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.operator.Ask(ctx, product, to) })
}

// withdraw is [cluster.Operator.Withdraw].
func (l leased) withdraw(ctx context.Context, product version.Product, to version.Version) error {
	return l.whole(ctx, func(ctx context.Context) error { return l.engine.operator.Withdraw(ctx, product, to) })
}
