// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/publish"
)

// owner says to people, in the lease, who upgrades the cluster.
const owner = "terraform resource " + typeName + "_cluster"

// flushTimeout bounds how long the end of an upgrade waits for its last
// annotations; hurriedFlush does after a cancel, when everything together has
// 15 seconds.
const (
	flushTimeout = 5 * time.Second
	hurriedFlush = 2 * time.Second
)

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

	snapshot, warnings, err := r.upgrade(ctx, model, limit)
	resp.Diagnostics.Append(warnings...)

	if err != nil {
		resp.Diagnostics.Append(creation(problem("upgrade the cluster", r.clusters.access, err)))

		return
	}

	model.ID, model.Nodes = types.StringNull(), types.MapNull(model.Nodes.ElementType(ctx))
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

	planned.ID, planned.Nodes = prior.ID, prior.Nodes

	snapshot, warnings, err := r.upgrade(ctx, planned, limit)
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
	if errors.Is(err, engine.ErrBlocked) || errors.Is(err, engine.ErrLocked) {
		return current
	}

	reached := newStatus(snapshot, planned)
	managed := reached.Kubernetes.Status != statusIdle

	var failure *engine.Failure
	if errors.As(err, &failure) && failure.Component != "" {
		return current.failed(summary+".", managed)
	}

	return current.failed(summary+".", managed && reached.Talos.arrived())
}

// upgrade runs the engine and publishes what it does. The snapshot is the last
// observation, also with an error.
func (r *clusterResource) upgrade(ctx context.Context, model clusterModel, limit time.Duration) (cluster.Snapshot, diag.Diagnostics, error) {
	target, diagnostics := model.target(r.clusters.releases.imageFactory())
	policy, more := model.policy(ctx)
	diagnostics.Append(more...)

	if diagnostics.HasError() {
		return cluster.Snapshot{}, diagnostics, errUnusable
	}

	reached, release, err := r.clusters.connect(ctx, model.Context.ValueString())
	if err != nil {
		return cluster.Snapshot{}, diagnostics, err
	}

	defer release()

	r.clusters.remember(model.Context.ValueString(), nil)

	// Where the ID cannot be had the name has to do: the lease in the cluster
	// keeps two writers apart all the same.
	id, err := clusterID(ctx, reached)
	if err == nil {
		reached.identify(id)
	}

	unlock, err := r.clusters.settings.locks.acquire(ctx, cmp.Or(id, reached.name))
	if err != nil {
		return cluster.Snapshot{}, diagnostics, err
	}

	defer unlock()

	observers := []cluster.Observer{progressLog{ctx: ctx}}

	publisher := reached.publisher(id)
	if publisher != nil {
		observers = append(observers, publisher)
	}

	options := r.clusters.engine(reached)
	options.Observers, options.Run, options.Owner = observers, rand.Text(), owner

	snapshot, err := engine.New(options).Upgrade(ctx, engine.Request{Target: target, Policy: policy, ClusterID: model.ID.ValueString(), Deadline: limit})

	diagnostics.Append(flush(ctx, publisher, reached.name)...)

	return snapshot, diagnostics, err
}

// flush makes the published annotations of the cluster with the name true, also
// after a cancellation.
func flush(ctx context.Context, publisher *publish.Publisher, name string) diag.Diagnostics {
	if publisher == nil {
		return nil
	}

	limit := flushTimeout
	if ctx.Err() != nil {
		limit = hurriedFlush
	}

	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()

	var diagnostics diag.Diagnostics

	if err := publisher.Close(bounded); err != nil {
		diagnostics.AddWarning(about("Unable to publish the progress", name),
			sentence(err.Error())+"\n\nThe annotations in ConfigMap kube-system/talosupgrade may lag behind. The upgrade itself does not depend on them.")
	}

	return diagnostics
}
