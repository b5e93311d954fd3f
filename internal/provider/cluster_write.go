// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// owner says to people, in the lease, who upgrades the cluster.
const owner = "terraform resource " + typeName + "_cluster"

// Create implements [resource.Resource]. When the upgrade stops the state stays
// null: a stored resource would be tainted, and the next apply would replace it.
func (r *clusterResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.Plan.Get(ctx, &model)...)

	limit, diagnostics := model.Timeouts.Create(ctx, defaultWriteTimeout)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	claimant, diagnostics := claimantIn(ctx, resp.Private)
	resp.Diagnostics.Append(diagnostics...)

	snapshot, warnings, err := r.upgrade(ctx, model, claimant, limit)
	resp.Diagnostics.Append(warnings...)

	if err != nil {
		found := problem("upgrade the cluster", r.clusters.access, err)
		if !errors.Is(err, errClaimed) {
			found = creation(found)
		}

		resp.Diagnostics.Append(found)

		return
	}

	model.ID, model.Nodes, model.Snapshot = types.StringNull(), types.MapNull(model.Nodes.ElementType(ctx)), types.ObjectNull(snapshotTypes())
	resp.Diagnostics.Append(model.observe(ctx, snapshot)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// Update implements [resource.Resource]. When the upgrade stops the state keeps
// the versions that it had, so that the next plan still sees what is to do, and
// takes over what was observed.
func (r *clusterResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var planned, prior clusterModel

	resp.Diagnostics.Append(req.Plan.Get(ctx, &planned)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &prior)...)

	limit, diagnostics := planned.Timeouts.Update(ctx, defaultWriteTimeout)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	planned.ID, planned.Nodes, planned.Snapshot = prior.ID, prior.Nodes, prior.Snapshot

	claimant, diagnostics := claimantIn(ctx, resp.Private)
	resp.Diagnostics.Append(diagnostics...)

	snapshot, warnings, err := r.upgrade(ctx, planned, claimant, limit)
	resp.Diagnostics.Append(warnings...)

	if err == nil {
		resp.Diagnostics.Append(planned.observe(ctx, snapshot)...)
		resp.Diagnostics.Append(resp.State.Set(ctx, planned)...)

		return
	}

	found := problem("upgrade the cluster", r.clusters.access, err)
	resp.Diagnostics.Append(found)

	if snapshot.Nodes != nil && !errors.Is(err, engine.ErrWrongCluster) {
		resp.Diagnostics.Append(prior.record(ctx, snapshot, stopped(prior, planned, snapshot, found.Summary(), err))...)
	}

	resp.Diagnostics.Append(resp.State.Set(ctx, prior)...)
}

// stopped is the status after an upgrade to what was planned that did not get to
// its end. Where it was refused before anything was touched the cluster is as it
// was.
func stopped(prior, planned clusterModel, snapshot cluster.Snapshot, summary string, err error) status {
	current := newStatus(snapshot, prior)

	var delegated *delegationError
	if errors.As(err, &delegated) {
		return delegated.stopped(current, summary)
	}

	if neverBegan(err) {
		return current
	}

	failure := &engine.Failure{}
	errors.As(err, &failure)

	reached := newStatus(snapshot, planned)
	managed := reached.Kubernetes.Status != statusIdle

	if failure.Component != "" {
		return current.failed(summary+".", managed)
	}

	return current.failed(summary+".", managed && reached.Talos.arrived())
}

// neverBegan tells whether the upgrade was stopped before anything was disturbed.
func neverBegan(err error) bool {
	return errors.Is(err, engine.ErrBlocked) || errors.Is(err, engine.ErrLocked) || errors.Is(err, engine.ErrNotBegun)
}

// upgrade runs the engine for the claimant and publishes what it does. The
// snapshot is the last observation, also with an error.
func (r *clusterResource) upgrade(ctx context.Context, model clusterModel, claimant string, limit time.Duration) (cluster.Snapshot, diag.Diagnostics, error) {
	reached, release, err := r.clusters.connect(ctx, model.Context.ValueString())
	if err != nil {
		return cluster.Snapshot{}, nil, err
	}

	defer release()

	request, diagnostics := model.request(ctx, r.clusters.releases.imageFactory(), reached.objects)
	if diagnostics.HasError() {
		return cluster.Snapshot{}, diagnostics, errUnusable
	}

	request.ClusterID, request.Deadline = model.ID.ValueString(), limit

	r.clusters.remember(model.Context.ValueString(), nil)

	// Where the ID cannot be had the name has to do: the lease in the cluster
	// keeps two writers apart all the same.
	id, err := clusterID(ctx, reached)
	if err == nil {
		reached.identify(id)
	}

	// A cluster that is not the one in state is not claimed: the engine refuses it.
	if wanted := request.ClusterID; wanted == "" || wanted == cmp.Or(id, wanted) {
		if err := r.clusters.claims.claim(cmp.Or(id, reached.name), claimant); err != nil {
			return cluster.Snapshot{}, diagnostics, fmt.Errorf("%s is %w", reached.name, err)
		}
	}

	to := model.publication()

	beside, err := reached.operator(to)
	if err == nil && beside == nil && to.delegated {
		err = fmt.Errorf("there is no connection to the Kubernetes API, which holds %s: %w", to, cluster.ErrUnreachable)
	}

	if err != nil {
		return cluster.Snapshot{}, diagnostics, err
	}

	known, end := r.clusters.releases.outlook(ctx, r.clusters.settings.userAgent())
	defer end()

	told := &warningLog{}
	options := r.clusters.engine(reached, beside)
	options.Run, options.Owner = cluster.RunPrefix+rand.Text(), owner

	drawn, err := r.draw(model, claimant, options.Run, reached.name)
	if err != nil {
		return cluster.Snapshot{}, diagnostics, err
	}

	out := &outlets{report: drawn, trace: r.clusters.trace(ctx, id, options, request, to)}
	if !to.delegated {
		out.publisher, out.events = reached.publisher(id, to, known.next), reached.events(to)
	}

	options.Observers = append([]cluster.Observer{progressLog{ctx: ctx}, told}, out.observers()...)

	snapshot, err := carryOut(ctx, options, request)

	diagnostics.Append(told.diagnostics(reached.name)...)
	diagnostics.Append(out.close(ctx, to, reached.name, snapshot, err)...)

	return snapshot, diagnostics, err
}

// carryOut has the engine upgrade the cluster, or the operator.
func carryOut(ctx context.Context, options engine.Options, request engine.Request) (cluster.Snapshot, error) {
	if !request.Delegated {
		return engine.New(options).Upgrade(ctx, request)
	}

	asked := &petition{Operator: options.Operator}
	options.Operator = asked

	snapshot, err := engine.New(options).Delegate(ctx, request)

	return snapshot, asked.failed(err)
}
