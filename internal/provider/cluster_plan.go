// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// ModifyPlan implements [resource.ResourceWithModifyPlan]. It runs at plan and again at apply, and the cluster may
// change in between, so it plans only unknown values and diagnostics.
func (r *clusterResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		var gone clusterModel

		resp.Diagnostics.Append(req.State.Get(ctx, &gone)...)
		resp.Diagnostics.AddWarning(diagnostic.About("Destroying changes nothing on the nodes", r.clusters.called(gone)),
			"The nodes keep the versions they run. Only the objects of this provider are removed from the cluster ("+leftovers+"); an unfinished journal is kept."+
				r.clusters.kept(gone.publication()))

		return
	}

	if r.clusters == nil {
		return
	}

	var planned clusterModel

	resp.Diagnostics.Append(req.Plan.Get(ctx, &planned)...)

	var prior *clusterModel
	if !req.State.Raw.IsNull() {
		prior = &clusterModel{}
		resp.Diagnostics.Append(req.State.Get(ctx, prior)...)
	}

	if resp.Diagnostics.HasError() {
		return
	}

	work, diagnostics := r.preview(ctx, planned, prior)
	resp.Diagnostics.Append(diagnostics...)

	switch {
	case prior == nil:
	case work || !planned.sameAs(*prior):
		planned.Status, planned.Nodes = types.ObjectUnknown(statusTypes()), types.MapUnknown(types.ObjectType{AttrTypes: nodeTypes()})
		planned.Snapshot = types.ObjectUnknown(snapshotTypes())

		// The cluster may report its ID this time.
		if planned.ID.IsNull() {
			planned.ID = types.StringUnknown()
		}

		resp.Diagnostics.Append(resp.Plan.Set(ctx, planned)...)
	case planned.Nodes.IsUnknown():
		// The framework made the computed values unknown because a version was spelled differently, but nothing
		// changes.
		planned.Status, planned.Nodes, planned.Snapshot = prior.Status, prior.Nodes, prior.Snapshot
		resp.Diagnostics.Append(resp.Plan.Set(ctx, planned)...)
	}
}

// preview describes what an apply would do. It returns whether there is anything to do or to find out: an apply
// skips a resource whose plan changes nothing. prior is nil for a resource that does not exist yet.
func (r *clusterResource) preview(ctx context.Context, planned clusterModel, prior *clusterModel) (bool, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	if access, undecided := r.clusters.undecided(ctx); undecided {
		diagnostics.Append(diagnostic.AsWarning(problem("look at the cluster", access, errUnknown),
			diagnostic.About("Looked at during apply", r.clusters.called(planned)), "What the upgrade does is not known before that."))

		return true, diagnostics
	}

	if !planned.known(ctx) {
		return false, diagnostics
	}

	request, more := r.clusters.request(ctx, planned, nil)
	diagnostics.Append(more...)

	limit, more := planned.Timeouts.Read(ctx, defaultReadTimeout)
	diagnostics.Append(more...)

	if diagnostics.HasError() {
		return false, diagnostics
	}

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	seen, err := r.clusters.recent(bounded, planned.Context.ValueString())
	if err != nil {
		diagnostics.Append(unplannable(r.clusters.access, err, r.clusters.called(planned)))

		return true, diagnostics
	}

	if prior != nil && seen.ID != "" && prior.ID.ValueString() != "" && prior.ID.ValueString() != seen.ID {
		diagnostics.Append(wrongCluster(prior.ID.ValueString(), seen.ID, seen.name))

		return false, diagnostics
	}

	made := plan.Make(seen.Observation, request.Target, request.Policy)
	examined := r.clusters.examine(bounded, planned, seen, made)
	work := len(made.Steps) > 0

	var object objectView

	absent := prior.unseenIn(seen.Observation)
	if len(absent) > 0 {
		examined.Findings = append(examined.Findings, unseenFinding(absent, seen.Observation))
	}

	examined.Findings = append(examined.Findings, r.clusters.claims.findDuplicate(seen.ID, seen.name, request.Target, work)...)

	if !work {
		object = r.clusters.viewObject(bounded, planned, prior, request.Target)
	}

	// An apply without steps is refused, too, if checks find something.
	applies := work || prior == nil || !planned.sameAs(*prior) || len(absent)+len(object.left) > 0
	if applies {
		diagnostics.Append(r.unwritable(planned)...)
	}

	diagnostics.Append(diagnostic.OfFindings(examined.Findings, work, applies, seen.name, seen.Nodes)...)
	// An object that cannot be read refuses no apply.
	diagnostics.Append(diagnostic.OfFindings(object.findings, work, false, seen.name, seen.Nodes)...)

	if diagnostics.HasError() {
		return work, diagnostics
	}

	if work {
		diagnostics.Append(delegatedWarning(rollWarning(made, seen.name, examined.Manifests, planned.unsynced()), planned.publication()))
		diagnostics.Append(planned.limitWarnings(ctx, seen, made.Estimate(), prior == nil)...)
	}

	if len(object.left) > 0 {
		diagnostics.Append(leftWarning(object.left, seen.name))
	}

	return work || len(object.left) > 0 || len(absent) > 0, diagnostics
}

// unseenIn is [unseenNodes] of the nodes in the model, which is nil for a resource that does not exist yet.
func (m *clusterModel) unseenIn(observed cluster.Observation) []string {
	if m == nil {
		return nil
	}

	return unseenNodes(observed, m.Nodes)
}

// heals reports whether waiting may resolve the error of an observation. An error in the configuration is not
// resolved by waiting.
func heals(err error) bool {
	return !errors.Is(err, errMissing) && !errors.Is(err, errUnusable) && !errors.Is(err, errUnknown) && cluster.Heals(err)
}

// unplannable returns the diagnostic of a plan that could not observe the cluster: a warning if that may be resolved
// before the apply. name is the display name of the cluster.
func unplannable(access credentials, err error, name string) diag.Diagnostic {
	found := problem("plan the upgrade", access, err)

	if !heals(err) {
		return found
	}

	return diagnostic.AsWarning(found, diagnostic.About(summaryUnobserved, name), "The apply finds out whether anything has to be upgraded.")
}

// limitWarnings warns of a roll that probably takes longer than its timeout, or than the client certificate is
// valid. first is true if the resource does not exist yet.
func (m clusterModel) limitWarnings(ctx context.Context, seen observation, estimate time.Duration, first bool) diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if estimate <= 0 {
		return diagnostics
	}

	if known(ctx, m.Timeouts) {
		name, limit, more := m.writeLimit(ctx, first)
		diagnostics.Append(more...)

		if estimate > limit {
			diagnostics.AddAttributeWarning(path.Root(attrTimeouts), diagnostic.About("The upgrade may not fit into its limit", seen.name),
				fmt.Sprintf("The upgrade takes %s, and timeouts.%s is %s. When the limit is reached, nodes in progress are finished and the run stops; "+
					"the next apply continues.\n\nRaise timeouts.%s to have it done in one apply.", estimateText(estimate), name, readable.Duration(limit), name))
		}
	}

	if !seen.expires.IsZero() && seen.Taken.Add(estimate).After(seen.expires) {
		diagnostics.AddWarning(diagnostic.About("The client certificate may expire during the upgrade", seen.name),
			fmt.Sprintf("The client certificate of %s expires on %s, and the upgrade takes %s. A run whose certificate expires stops in the middle of it.\n\n"+
				"Renew the certificate before the apply (talosctl config new, or a refresh of the data source that it comes from).",
				seen.name, seen.expires.UTC().Format(time.RFC3339), estimateText(estimate)))
	}

	return diagnostics
}

// writeLimit returns the timeout of an apply, with the name of the attribute.
func (m clusterModel) writeLimit(ctx context.Context, first bool) (string, time.Duration, diag.Diagnostics) {
	if first {
		limit, diagnostics := m.Timeouts.Create(ctx, defaultWriteTimeout)

		return "create", limit, diagnostics
	}

	limit, diagnostics := m.Timeouts.Update(ctx, defaultWriteTimeout)

	return "update", limit, diagnostics
}

// releasesTimeout bounds how long a source of releases is waited for. The upgrade runs meanwhile.
const releasesTimeout = 10 * time.Second

// nextFunc returns the newest release of each product to which a cluster with these versions could be upgraded in
// one step; zero if there is none, or none is known yet. It returns at once.
type nextFunc func(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version)

// next returns the newest releases to which a cluster with these versions can be upgraded in one step. The existing
// releases are in ascending order. A version that is zero is unknown and has no next release. If Talos is unknown,
// Kubernetes has none either, because Talos has to support it.
func next(talos, kubernetes version.Version, talosReleases, kubernetesReleases []version.Version) (nextTalos, nextKubernetes version.Version) {
	if talos.IsZero() {
		return version.Version{}, version.Version{}
	}

	at := plan.State{Talos: talos, Kubernetes: kubernetes}
	aheadTalos, aheadKubernetes := newReachable(runningVersions{lowest: at, highest: at}, talosReleases, kubernetesReleases).next()

	return version.Highest(aheadTalos...), version.Highest(aheadKubernetes...)
}

// knownReleases are the existing releases, as far as their sources have answered.
type knownReleases struct {
	mutex      sync.Mutex
	talos      []version.Version
	kubernetes []version.Version
	// asked are the versions of the last call of next, and answer is its result.
	asked, answer plan.State
	answered      bool
}

// outlook requests the existing releases: at once if that needs no network, otherwise in the background, which ends
// with the returned function at the latest. A source that does not answer counts as empty.
func (d releaseDefaults) outlook(ctx context.Context, userAgent string) (known *knownReleases, end func()) {
	known = &knownReleases{}
	bounded, cancel := context.WithTimeout(ctx, releasesTimeout)

	var background sync.WaitGroup

	for _, product := range []version.Product{version.Talos, version.Kubernetes} {
		if d.offline(ctx, product) {
			known.learn(bounded, d, product, userAgent)
		} else {
			background.Go(func() { known.learn(bounded, d, product, userAgent) })
		}
	}

	return known, func() {
		cancel()
		background.Wait()
	}
}

// offline reports whether the releases of a product are known without network access.
func (d releaseDefaults) offline(ctx context.Context, product version.Product) bool {
	var model providerReleaseSourceModel

	if d.source.IsNull() || d.source.IsUnknown() || d.source.As(ctx, &model, basetypes.ObjectAsOptions{}).HasError() {
		return true
	}

	half := model.product(product)

	return !half.versions.IsNull() || half.location.IsNull() || half.location.Equal(types.StringValue(release.Embedded))
}

// learn requests the releases of one product.
func (o *knownReleases) learn(ctx context.Context, from releaseDefaults, product version.Product, userAgent string) {
	list, diagnostics := from.list(ctx, product, releaseQuestion{userAgent: userAgent})
	for _, problem := range diagnostics {
		tflog.Warn(ctx, "publishing: "+readable.Printable(problem.Summary()+": "+problem.Detail()))
	}

	o.mutex.Lock()
	defer o.mutex.Unlock()

	if product == version.Talos {
		o.talos = slices.DeleteFunc(list.Versions, from.known().IsWithdrawn)
	} else {
		o.kubernetes = list.Versions
	}

	o.answered = false
}

// next is a [nextFunc].
func (o *knownReleases) next(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version) {
	o.mutex.Lock()
	defer o.mutex.Unlock()

	if !o.answered || !o.asked.Talos.Equal(talos) || !o.asked.Kubernetes.Equal(kubernetes) {
		o.answer.Talos, o.answer.Kubernetes = next(talos, kubernetes, o.talos, o.kubernetes)
		o.asked, o.answered = plan.State{Talos: talos, Kubernetes: kubernetes}, true
	}

	return o.answer.Talos, o.answer.Kubernetes
}
