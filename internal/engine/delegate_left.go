// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// forgotten is what the operator is asked for in a half although every node runs
// it, and it is not at work: it, or a run that died, forgot to take it back.
func forgotten(snapshot cluster.Snapshot, report cluster.OperatorReport, half cluster.Half) (version.Version, bool) {
	said := report.Of(half)

	to, err := version.Parse(said.Target)
	if said.Target == "" || err != nil || said.Status.Busy() || snapshot.KubernetesError != nil {
		return version.Version{}, false
	}

	lowest, highest := snapshot.TalosVersions()
	if half == cluster.HalfKubernetes {
		lowest, highest = snapshot.KubernetesVersions()
	}

	return to, lowest.Equal(to) && highest.Equal(to)
}

// operatorNeedsCleanup tells whether a run that died left something on the object of a
// cluster in which nothing is to be done.
func (e *Engine) operatorNeedsCleanup(ctx context.Context, snapshot cluster.Snapshot) bool {
	report, err := e.operator.Report(ctx)
	if err != nil {
		return false
	}

	for _, half := range halves {
		if _, left := forgotten(snapshot, report, half); left {
			return true
		}
	}

	return cluster.IsRun(report.Hold)
}

// cleanUp takes back what nobody needs any more, once the cluster is at the target.
func (d *delegation) cleanUp(ctx context.Context) {
	bounded, cancel := d.run.engine.clock.WithTimeout(ctx, askPatience)
	defer cancel()

	err := d.run.engine.waitClosely(bounded, "", fmt.Sprintf("%s to be tidied up", d.run.engine.operator), pollOperator, func(ctx context.Context) (bool, string, error) {
		report, err := d.run.engine.operator.Report(ctx)
		if err == nil {
			_, err = d.cleanUpOne(ctx, report)
		}

		if err != nil && cluster.Heals(err) {
			return false, err.Error(), nil
		}

		return err == nil, "", err
	})
	if err != nil {
		d.run.engine.warn(fmt.Sprintf("what earlier runs left on %s could not be taken away: %v", d.run.engine.operator, err))
	}
}

// cleanUpOne takes one thing away that was left on the object, and tells whether there
// was one: the hold of a run that died (this one has the lease, so that nobody holds
// it any more), or what was reached and is still asked for.
func (d *delegation) cleanUpOne(ctx context.Context, report cluster.OperatorReport) (found bool, err error) {
	if cluster.IsRun(report.Hold) {
		return true, d.run.engine.callWhole(ctx, func(ctx context.Context) error { return d.run.engine.operator.Release(ctx, report.Hold) })
	}

	for _, half := range halves {
		to, left := forgotten(d.snapshot, report, half)
		if !left {
			continue
		}

		err := d.run.engine.callWhole(ctx, func(ctx context.Context) error { return d.run.engine.operator.Withdraw(ctx, half, to) })
		if !errors.Is(err, cluster.ErrUnsupported) {
			return true, err
		}
	}

	return false, nil
}
