// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// observation is what a look at a cluster found.
type observation struct {
	cluster.Snapshot
	// name is what people call the cluster.
	name string
	// expires is when the client certificate that was used does; zero when
	// that is not known.
	expires time.Time
}

// lookAge is how old an observation may be for a plan.
const lookAge = 10 * time.Second

// look is an observation with its time, or why there is none.
type look struct {
	seen observation
	err  error
	at   time.Time
}

// observe looks at the cluster of a context and changes nothing. A cluster of
// which no node answers is an error.
func (c *clusters) observe(ctx context.Context, wanted string) (observation, error) {
	seen, err := c.look(ctx, wanted)
	if !errors.Is(err, context.Canceled) {
		c.remember(wanted, &look{seen: seen, err: err, at: time.Now()})
	}

	return seen, err
}

// recent is the last observation where that is only seconds old, and a new one
// otherwise. A plan looks at what the refresh before it just saw.
func (c *clusters) recent(ctx context.Context, wanted string) (observation, error) {
	shared := c.shared(c.access.contextName(wanted))

	shared.mu.Lock()
	last := shared.last
	shared.mu.Unlock()

	if last != nil && time.Since(last.at) < lookAge {
		return last.seen, last.err
	}

	return c.observe(ctx, wanted)
}

// remember keeps an observation; nil forgets the last one, because the cluster
// is about to change.
func (c *clusters) remember(wanted string, last *look) {
	shared := c.shared(c.access.contextName(wanted))

	shared.mu.Lock()
	defer shared.mu.Unlock()

	shared.last = last
}

func (c *clusters) look(ctx context.Context, wanted string) (observation, error) {
	reached, release, err := c.connect(ctx, wanted)
	if err != nil {
		return observation{}, err
	}

	defer release()

	snapshot, err := engine.New(c.engine(reached, nil)).Observe(ctx)
	if err != nil {
		return observation{}, err
	}

	c.shared(c.access.contextName(wanted)).servers.notice(snapshot)

	return observation{Snapshot: snapshot, name: reached.name, expires: reached.expires}, silence(snapshot)
}

// engine are the options of an engine for the connection, and for the operator
// that may upgrade the same cluster; nil where none is known.
func (c *clusters) engine(reached *connection, beside cluster.Operator) engine.Options {
	return engine.Options{
		Talos: reached.talos, Kubernetes: reached.kubernetes, Removals: reached.removals, Manifests: reached.manifests,
		Workloads: reached.workloads, Registry: reached.registry, Operator: beside,
		Clock: c.settings.clock, ClusterName: cmp.Or(reached.context, reached.name),
	}
}

// examine makes the checks of a plan, and changes nothing. A plan that is refused
// whatever the cluster looks like, or has nothing to do, is not looked at any
// closer.
func (c *clusters) examine(ctx context.Context, planned clusterModel, seen observation, made plan.Plan) engine.Examination {
	refused := slices.ContainsFunc(made.Findings, func(finding cluster.Finding) bool { return finding.Severity == cluster.Permanent })

	if len(made.Steps) == 0 || refused {
		return engine.Examination{Findings: made.Findings}
	}

	reached, release, err := c.connect(ctx, planned.Context.ValueString())
	if err != nil {
		return engine.Examination{Findings: append(slices.Clip(made.Findings), cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Err: err, Unknown: true,
			Found:  fmt.Sprintf("the cluster could not be asked what stands in the way: %v", err),
			Remedy: cmp.Or(remedy(err), "Run the plan again; an apply asks before it touches anything."),
		})}
	}

	defer release()

	// What is wrong with the request was said before anybody was asked.
	request, _ := planned.request(ctx, c.releases.imageFactory(), reached.objects)

	beside, err := reached.operator(planned.publication())
	if err != nil {
		return engine.Examination{Findings: append(slices.Clip(made.Findings), unmanaged(planned.publication(), err))}
	}

	return engine.New(c.engine(reached, beside)).Preflight(ctx, seen.Snapshot, made, request, engine.Planning)
}

// silence is the error of a snapshot in which no node answered, nil otherwise.
// A node that was refused counts for all: either the credentials or the
// endpoints are not fit for this cluster, and no waiting changes that.
func silence(snapshot cluster.Snapshot) error {
	var reason error

	answered := false

	for _, node := range snapshot.Managed() {
		switch {
		case node.Machine != nil:
			answered = true
		case errors.Is(node.Unreachable, cluster.ErrDenied), errors.Is(node.Unreachable, cluster.ErrCredentials):
			return fmt.Errorf("node %s at %s: %w", node.Name, node.Address, node.Unreachable)
		default:
			reason = cmp.Or(reason, node.Unreachable)
		}
	}

	switch {
	case answered:
		return nil
	case len(snapshot.Nodes) == 0 && snapshot.KubernetesError != nil:
		return fmt.Errorf("%w: %w", errUnlisted, snapshot.KubernetesError)
	case reason == nil:
		return errSilent
	default:
		// One reason stands for all: they share the endpoints.
		return fmt.Errorf("%w: %w", errSilent, reason)
	}
}
