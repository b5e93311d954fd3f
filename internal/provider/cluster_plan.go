// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// ModifyPlan implements [resource.ResourceWithModifyPlan]. It runs at plan and
// again at apply, while the cluster moves on in between, so it plans nothing
// but unknown values and diagnostics.
func (r *clusterResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		var gone clusterModel

		resp.Diagnostics.Append(req.State.Get(ctx, &gone)...)
		resp.Diagnostics.AddWarning(about("Destroying changes nothing on the nodes", r.clusters.called(gone)),
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
		resp.Diagnostics.Append(resp.Plan.Set(ctx, planned)...)
	default:
		// The framework took the computed values for unknown because a version
		// was spelled differently; nothing changes after all.
		planned.Status, planned.Nodes, planned.Snapshot = prior.Status, prior.Nodes, prior.Snapshot
		resp.Diagnostics.Append(resp.Plan.Set(ctx, planned)...)
	}
}

// preview says what an apply would do, and whether it would do anything at all,
// or at least has to look: nothing is applied to a resource whose plan changes
// nothing. Prior is nil for a resource that does not exist yet.
func (r *clusterResource) preview(ctx context.Context, planned clusterModel, prior *clusterModel) (bool, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	if access, undecided := r.clusters.undecided(); undecided {
		diagnostics.Append(warning(problem("look at the cluster", access, errUnknown),
			about("Looked at during apply", r.clusters.called(planned)), "What the upgrade does is not known before that."))

		return true, diagnostics
	}

	if !planned.known(ctx) {
		return false, diagnostics
	}

	request, more := planned.request(ctx, r.clusters.releases.imageFactory(), nil)
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

	absent := []string(nil)
	if prior != nil {
		absent = unseenNodes(seen.Observation, prior.Nodes)
	}

	if len(absent) > 0 {
		examined.Findings = append(examined.Findings, unseenFinding(absent, seen.Observation))
	}

	if work {
		examined.Findings = append(examined.Findings, r.clusters.claims.findDuplicate(seen.ID, seen.name)...)
	} else {
		object = r.clusters.viewObject(bounded, planned, prior, request.Target)
		examined.Findings = append(examined.Findings, object.findings...)
	}

	diagnostics.Append(planFindings(examined.Findings, work, seen)...)

	if diagnostics.HasError() {
		return work, diagnostics
	}

	if work {
		diagnostics.Append(delegatedWarning(rollWarning(made, seen.name, examined.Manifests), planned.publication()))
		diagnostics.Append(planned.limitWarnings(ctx, seen, made.Estimate(), prior == nil)...)
	}

	if len(object.left) > 0 {
		diagnostics.Append(leftWarning(object.left, seen.name))
	}

	return work || len(object.left) > 0 || len(absent) > 0, diagnostics
}

// unplannable is the diagnostic of a plan that could not look at the cluster.
// What may heal until the apply is a warning. The name is what people call the
// cluster.
func unplannable(access credentials, err error, name string) diag.Diagnostic {
	found := problem("plan the upgrade", access, err)

	if errors.Is(err, errMissing) || errors.Is(err, errUnusable) || !cluster.Heals(err) {
		return found
	}

	return warning(found, about(summaryUnobserved, name), "Whether anything has to be upgraded is found out by apply.")
}

// errClaimed is wrapped when another resource has changed the cluster already.
var errClaimed = errors.New("another " + typeName + "_cluster resource has upgraded it in this apply, or is upgrading it")

// claims are the clusters that resources of one configured provider have changed,
// with which resource it was. Terraform creates or updates a resource once in an
// apply, so that a second one for the same cluster is a mistake whether the first
// is still at work or not. The lease in the cluster keeps other processes away.
type claims struct {
	mu sync.Mutex
	by map[string]string
	// files are those that resources write, by which resource does.
	files map[string]string
	// planned is through which connection a resource was planned first.
	planned map[string]string
}

func newClaims() *claims {
	return &claims{by: map[string]string{}, files: map[string]string{}, planned: map[string]string{}}
}

// claim gives the cluster to the claimant, the resource's name among claims, until
// that is destroyed. The error wraps [errClaimed].
func (c *claims) claim(id, claimant string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if holder, taken := c.by[id]; taken && holder != claimant {
		return fmt.Errorf("cluster %s: %w", id, errClaimed)
	}

	c.by[id] = claimant

	return nil
}

// write gives the file with the path to the claimant, and tells whether nobody else
// has it.
func (c *claims) write(path, claimant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if holder, taken := c.files[path]; taken && holder != claimant {
		return false
	}

	c.files[path] = claimant

	return true
}

// findDuplicate notes that an upgrade of the cluster was planned through the connection
// with the name, and finds what speaks against that: that one was planned through
// another connection, so that there are two resources.
func (c *claims) findDuplicate(id, name string) []cluster.Finding {
	c.mu.Lock()
	defer c.mu.Unlock()

	first, planned := c.planned[id]

	switch {
	case id == "" || first == name:
		return nil
	case !planned:
		c.planned[id] = name

		return nil
	default:
		return []cluster.Finding{{
			Check: cluster.CheckLock, Severity: cluster.Observed, Attribute: attrContext,
			Found:  fmt.Sprintf("another %s_cluster resource upgrades this cluster, which it reaches through %s", typeName, first),
			Remedy: "Keep one resource per cluster.",
		}}
	}
}

// release gives up the cluster of a resource that is destroyed; without effect
// where another one has it.
func (c *claims) release(id, claimant string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.by[id] == claimant {
		delete(c.by, id)
	}
}

// keyClaimant is where the private state of a resource keeps what it is called
// among claims.
const keyClaimant = "claimant"

// private is the private state of a resource.
type private interface {
	comparable

	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// claimantIn is what the resource with the private state is called among claims: a
// random text that it keeps for life. It gets one where it has none yet.
func claimantIn[P private](ctx context.Context, kept P) (string, diag.Diagnostics) {
	var (
		none P
		name string
	)

	stored, diagnostics := kept.GetKey(ctx, keyClaimant)
	if json.Unmarshal(stored, &name) == nil && name != "" {
		return name, diagnostics
	}

	name = rand.Text()

	if kept != none {
		diagnostics.Append(kept.SetKey(ctx, keyClaimant, []byte(`"`+name+`"`))...)
	}

	return name, diagnostics
}

// limitWarnings warns of a roll that probably takes longer than something
// lasts: the limit of the operation, or the certificate it is done with. First
// tells that the resource does not exist yet.
func (m clusterModel) limitWarnings(ctx context.Context, seen observation, estimate time.Duration, first bool) diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if estimate <= 0 {
		return diagnostics
	}

	if known(ctx, m.Timeouts) {
		name, limit, more := m.writeLimit(ctx, first)
		diagnostics.Append(more...)

		if estimate > limit {
			diagnostics.AddAttributeWarning(path.Root(attrTimeouts), about("The upgrade may not fit into its limit", seen.name),
				fmt.Sprintf("The upgrade takes %s, and timeouts.%s is %s. When the limit is reached, nodes in progress are finished and the run stops; "+
					"the next apply continues.\n\nRaise timeouts.%s to have it done in one apply.", estimateText(estimate), name, durationText(limit), name))
		}
	}

	if !seen.expires.IsZero() && seen.Taken.Add(estimate).After(seen.expires) {
		diagnostics.AddWarning(about("The client certificate may expire during the upgrade", seen.name),
			fmt.Sprintf("The client certificate of %s expires on %s, and the upgrade takes %s. A run whose certificate expires stops in the middle of it.\n\n"+
				"Renew the certificate before the apply (talosctl config new, or a refresh of the data source that it comes from).",
				seen.name, seen.expires.UTC().Format(time.RFC3339), estimateText(estimate)))
	}

	return diagnostics
}

// writeLimit is how long an apply may take, with the name of the limit.
func (m clusterModel) writeLimit(ctx context.Context, first bool) (string, time.Duration, diag.Diagnostics) {
	if first {
		limit, diagnostics := m.Timeouts.Create(ctx, defaultWriteTimeout)

		return "create", limit, diagnostics
	}

	limit, diagnostics := m.Timeouts.Update(ctx, defaultWriteTimeout)

	return "update", limit, diagnostics
}

// releasesTimeout bounds how long a source of releases is waited for. An upgrade
// goes on meanwhile.
const releasesTimeout = 10 * time.Second

// nextFunc is the newest release of each product that a cluster which runs these
// versions could be upgraded to in one step; zero where there is none, or none is
// known yet. It returns at once.
type nextFunc func(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version)

// next is what is ahead of a cluster that runs the versions, by the releases that
// exist, in ascending order. A zero version that runs is not known: nothing is
// ahead of it, and of Kubernetes nothing either where Talos is not known, which has
// to support it.
func next(talos, kubernetes version.Version, talosReleases, kubernetesReleases []version.Version) (nextTalos, nextKubernetes version.Version) {
	if talos.IsZero() {
		return version.Version{}, version.Version{}
	}

	at := plan.State{Talos: talos, Kubernetes: kubernetes}
	aheadTalos, aheadKubernetes := newReachable(runningVersions{lowest: at, highest: at}, talosReleases, kubernetesReleases).next()

	return version.Highest(aheadTalos...), version.Highest(aheadKubernetes...)
}

// knownReleases knows which releases exist, as far as their sources have answered.
type knownReleases struct {
	mutex      sync.Mutex
	talos      []version.Version
	kubernetes []version.Version
	// asked are the last answer and what it was given to.
	asked, answer plan.State
	answered      bool
}

// outlook asks for the releases that exist: those that need no network at once, and
// others in the background, which ends with the function that is returned at the
// latest. A source that does not answer knows of none.
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

// offline tells whether the releases of a product are known without a network.
func (d releaseDefaults) offline(ctx context.Context, product version.Product) bool {
	var model releaseSourceModel

	if d.source.IsNull() || d.source.IsUnknown() || d.source.As(ctx, &model, basetypes.ObjectAsOptions{}).HasError() {
		return true
	}

	half := model.product(product)

	return !half.versions.IsNull() || half.location.IsNull() || half.location.Equal(types.StringValue(release.Embedded))
}

// learn asks for the releases of one product.
func (o *knownReleases) learn(ctx context.Context, from releaseDefaults, product version.Product, userAgent string) {
	list, diagnostics := from.list(ctx, product, releaseQuestion{userAgent: userAgent})
	for _, problem := range diagnostics {
		tflog.Warn(ctx, "publishing: "+readable.Printable(problem.Summary()+": "+problem.Detail()))
	}

	o.mutex.Lock()
	defer o.mutex.Unlock()

	if product == version.Talos {
		o.talos = list.Versions
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

// unchangedTimeout bounds a look at an object that was named before. A plan waits
// no longer for a management cluster that is away, where nobody asked for anything.
const unchangedTimeout = 10 * time.Second

// objectView is what there is to say, while nothing is to be upgraded, of the object
// that progress is published to.
type objectView struct {
	// findings are what keeps an apply from telling the object how the cluster is.
	findings []cluster.Finding
	// left is what an earlier apply left on the object, and another one ends.
	left []string
}

// viewObject looks at the object of the model. Where that was named before nobody
// is told that it cannot be read.
func (c *clusters) viewObject(ctx context.Context, planned clusterModel, prior *clusterModel, target cluster.Target) objectView {
	of := planned.publication()
	if of.to == nil {
		return objectView{}
	}

	unchanged := prior != nil && prior.PublishTo.Equal(planned.PublishTo)
	if unchanged {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, unchangedTimeout)
		defer cancel()
	}

	reached, release, err := c.connect(ctx, planned.Context.ValueString())
	if err != nil {
		return objectView{} // which the look at the cluster has said already
	}

	defer release()

	var report cluster.OperatorReport

	beside, err := reached.operator(of)

	switch {
	case err != nil && unchanged, err == nil && beside == nil:
		return objectView{}
	case err != nil:
		return objectView{findings: []cluster.Finding{unmanaged(of, err)}}
	}

	report, err = beside.Report(ctx)

	switch {
	case err == nil:
		return objectView{left: of.left(report, target)}
	case unchanged:
		return objectView{}
	default:
		return objectView{findings: []cluster.Finding{unread(of, err)}}
	}
}

// unread is the finding of an object that cannot be told how the cluster is.
func unread(of publication, err error) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckOperator, Severity: cluster.Observed, Attribute: attrPublishTo, Err: err, Unknown: true,
		Found:  fmt.Sprintf("%s cannot be read: %v", of, err),
		Remedy: "Nothing is published there before that. Create the object, allow the credentials to get and patch it, or correct " + attrPublishTo + ".",
	}
}

// left is what earlier applies left on the object of a cluster that is at the
// target: a hold that keeps its operator from acting and, where an operator is
// asked for upgrades, what it is still asked for. Other words are not worth a plan:
// an operator may say things in its own way.
func (p publication) left(report cluster.OperatorReport, target cluster.Target) []string {
	var left []string

	if report.Passive || report.Deleting {
		return left
	}

	if cluster.IsRun(report.Hold) {
		left = append(left, p.leftHold(report))
	}

	if !p.delegated || operator.KindOf(*p.to) != operator.Vitistack {
		return left
	}

	for _, wanted := range []struct {
		half version.Product
		to   version.Version
	}{
		{version.Talos, target.Talos},
		{version.Kubernetes, target.Kubernetes},
	} {
		said := report.Of(wanted.half)
		if wanted.to.IsZero() || said.Target != wanted.to.String() || said.Status.Busy() {
			continue
		}

		left = append(left, strings.TrimSpace(fmt.Sprintf("%s still asks its operator for %s %s, which is reached: it may begin again. %s",
			p, wanted.half.Name(), wanted.to, said.Undo)))
	}

	return left
}

// leftHold says that the operator is still held.
func (p publication) leftHold(report cluster.OperatorReport) string {
	sign := ""
	if !report.Updated.IsZero() {
		sign = fmt.Sprintf(" (last sign of life: %s)", report.Updated.UTC().Format(time.RFC3339))
	}

	text := fmt.Sprintf("%s is still held by %s%s, so that its operator does nothing", p, report.Hold, sign)
	if report.Talos.Status.Busy() || report.Kubernetes.Status.Busy() {
		text += ", and says that an upgrade is going on"
	}

	return strings.TrimSpace(text + ". " + report.Unhold)
}

// leftWarning says why a cluster at the target is planned to be applied. The command
// line shows it again after the apply, so it must be true then.
func leftWarning(left []string, name string) diag.Diagnostic {
	return diag.NewWarningDiagnostic(about("An earlier apply could not end properly", name),
		"While planning, no node had anything left to do, and still:\n\n- "+strings.Join(left, "\n- ")+
			"\n\nAn apply ends that, and changes nothing on the nodes. If another run is still at it, it is left alone.")
}

// clusters gives resources and data sources access to the clusters that the
// credentials of one provider block reach.
type clusters struct {
	settings *settings
	access   credentials
	releases releaseDefaults
	claims   *claims

	mu   sync.Mutex
	open map[string]*sharedConnection
}

// sharedConnection is used by all operations that run at the same time on the
// same context. The last one to finish closes it: Terraform never says when
// the provider is done.
type sharedConnection struct {
	mu         sync.Mutex
	users      int
	current    *connection
	kubeconfig []byte
	last       *cachedObservation
	// servers are where the Kubernetes API is, besides the kubeconfig's address.
	servers serverAddresses
}

func newClusters(settings *settings, access credentials) *clusters {
	return &clusters{settings: settings, access: access, claims: newClaims(), open: map[string]*sharedConnection{}}
}

// undecided is the access as a roll depends on it, and whether what it depends
// on is not fully known yet.
func (c *clusters) undecided() (credentials, bool) {
	access := c.access
	if c.releases.factoryURL.IsUnknown() {
		access.Unknown = append(slices.Clone(access.Unknown), attrImageFactoryURL)
	}

	return access, len(access.Unknown) > 0
}

// called is what people call the cluster of a resource, found out without asking
// it; empty where nothing tells.
func (c *clusters) called(of clusterModel) string {
	if c == nil {
		return ""
	}

	if !of.Context.IsUnknown() {
		wanted := of.Context.ValueString()

		if config, err := c.access.talos(wanted); err == nil {
			return config.String()
		}

		if name := c.access.contextName(wanted); name != "" {
			return fmt.Sprintf("talosconfig context %q", name)
		}
	}

	if id := of.ID.ValueString(); id != "" {
		return "cluster " + id
	}

	if c.access.From != nil {
		return "cluster of " + c.access.From.String()
	}

	return ""
}

// connect is a connection to the cluster of a context; empty means the
// provider's own. Release must be called once.
func (c *clusters) connect(ctx context.Context, wanted string) (reached *connection, release func(), err error) {
	shared := c.shared(c.access.contextName(wanted))

	shared.mu.Lock()
	defer shared.mu.Unlock()

	if shared.current == nil {
		shared.current, err = c.settings.dial(ctx, c.settings, c.access, wanted, kubeconfigCache{kubeconfig: shared.kubeconfig, servers: &shared.servers})
		if err != nil {
			return nil, nil, err
		}

		shared.kubeconfig = shared.current.kubeconfig
	}

	shared.users++

	return shared.current, sync.OnceFunc(shared.release), nil
}

func (c *clusters) shared(name string) *sharedConnection {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.open[name] == nil {
		c.open[name] = &sharedConnection{}
	}

	return c.open[name]
}

func (s *sharedConnection) release() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.users--
	if s.users > 0 {
		return
	}

	// What was asked is answered by now: a connection that does not close
	// cleanly changes nothing about that.
	_ = s.current.close()
	s.current = nil
}

// configured is what the provider block hands to a resource or a data source;
// nil while Terraform only validates.
func configured(data any, diagnostics *diag.Diagnostics) *clusters {
	if data == nil {
		return nil
	}

	reached, ok := data.(*clusters)
	if !ok {
		diagnostics.AddError("Unexpected provider data", fmt.Sprintf("Got %T. This is a defect of the provider; please report it.", data))
	}

	return reached
}
