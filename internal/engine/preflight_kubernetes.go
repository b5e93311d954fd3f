// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

const (
	checkRemovals  = cluster.CheckRemovals
	checkManifests = cluster.CheckManifests
)

// refusesSync tells whether the error of a comparison says that a sync will be
// refused as well.
func refusesSync(err error) bool {
	return errors.Is(err, cluster.ErrDenied) || errors.Is(err, cluster.ErrCredentials) || errors.Is(err, errNoConnection)
}

func unsyncable(err error) cluster.Finding {
	return cluster.Finding{
		Check: checkManifests, Severity: cluster.Observed, Err: err,
		Found: fmt.Sprintf("the bootstrap manifests could not be synced after the roll: %v", err), Remedy: manifestRights,
	}
}

// outdated lists what a sync of the manifests would change now.
func (e *Engine) outdated(ctx context.Context, snapshot cluster.Snapshot, policy cluster.Policy) ([]cluster.ManifestChange, error) {
	if e.manifests == nil {
		return nil, errNoConnection
	}

	r := &run{engine: e, request: Request{Policy: policy}}

	renderer, options, seen := r.renders(snapshot)
	if seen != "" {
		return nil, errors.New(seen)
	}

	return e.manifests.Diff(ctx, renderer.Address, options)
}

// removed lists what is in use and gone in a release line on the way, for all
// hops of Kubernetes.
func (e *Engine) removed(ctx context.Context, snapshot cluster.Snapshot, made plan.Plan) []cluster.Finding {
	var findings []cluster.Finding

	controlPlanes, workers, names := asked(snapshot, made)

	for _, hop := range made.Hops {
		from, to := hop.From.Kubernetes, hop.To.Kubernetes
		if hop.Axis != plan.Kubernetes || from.Minor().Compare(to.Minor()) >= 0 {
			continue
		}

		if e.removals == nil {
			return []cluster.Finding{unchecked(errNoConnection, cluster.Observed)}
		}

		removals, err := e.askRemovals(ctx, hop, controlPlanes, workers)

		switch {
		case errors.Is(err, cluster.ErrUnsupported):
			findings = append(findings, unchecked(err, cluster.Advice))
		case err != nil:
			findings = append(findings, unchecked(err, cluster.Observed))
		}

		for _, removal := range removals {
			findings = append(findings, removalFinding(removal, names))
		}
	}

	return findings
}

// askAttempts is how often something is asked for whose answer got lost.
const askAttempts = 3

// askRemovals asks for what a hop removes, more than once where the answer got
// lost.
func (e *Engine) askRemovals(ctx context.Context, hop plan.Hop, controlPlanes, workers []string) ([]cluster.Removal, error) {
	for attempt := 1; ; attempt++ {
		found, err := e.removals.Removals(ctx, hop.From.Kubernetes, hop.To.Kubernetes, controlPlanes, workers)
		if err == nil || !cluster.Heals(err) || attempt == askAttempts {
			return found, err
		}

		if sleepErr := e.clock.Sleep(ctx, maxPoll); sleepErr != nil {
			return nil, err
		}
	}
}

// asked are the addresses of the nodes that the plan moves and that answer, and
// the names behind them.
func asked(snapshot cluster.Snapshot, made plan.Plan) (controlPlanes, workers []string, names map[string]string) {
	names = map[string]string{}

	for _, node := range snapshot.Managed() {
		if node.Machine == nil || slices.Contains(made.Held, node.Name) {
			continue
		}

		names[node.Address] = node.Name

		if node.Role == cluster.ControlPlane {
			controlPlanes = append(controlPlanes, node.Address)
		} else {
			workers = append(workers, node.Address)
		}
	}

	return controlPlanes, workers, names
}

func unchecked(err error, severity cluster.Severity) cluster.Finding {
	return cluster.Finding{
		Check: checkRemovals, Severity: severity, Err: err, Unknown: true,
		Found:  fmt.Sprintf("whether anything is in use that the next release of Kubernetes removes could not be found out: %v", err),
		Remedy: "Read its release notes before you go on, and make the Kubernetes and Talos APIs of all nodes answer.",
	}
}

func removalFinding(removal cluster.Removal, names map[string]string) cluster.Finding {
	finding := cluster.Finding{
		Check: checkRemovals, Severity: cluster.Observed, Node: names[removal.Address],
		Found:  fmt.Sprintf("its %s uses the %s %s, which Kubernetes %s does not have", removal.Component, removal.Kind, removal.Name, removal.In.Minor()),
		Remedy: "Take it out of extraArgs in the machine configuration first.",
	}

	if removal.Component == "" {
		finding.Found = fmt.Sprintf("the cluster holds %d objects of %s, which Kubernetes %s does not serve", removal.Objects, removal.Name, removal.In.Minor())
		finding.Remedy = "Migrate or delete them first (kubectl get " + removal.Name + " --all-namespaces)."
	}

	return finding
}
