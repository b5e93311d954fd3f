// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

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

func newClusters(settings *settings, access credentials) *clusters {
	return &clusters{settings: settings, access: access, claims: newClaims(), open: map[string]*sharedConnection{}}
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

	// asking guards identity.
	asking   sync.Mutex
	identity *identity
}

// undecided is the access as a roll depends on it, and whether what it depends
// on is not fully known yet.
func (c *clusters) undecided(ctx context.Context) (credentials, bool) {
	access := c.access
	if c.releases.tableUnknown(ctx) {
		access.Unknown = append(slices.Clone(access.Unknown), attrReleaseSource)
	}

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

// observation is what a look at a cluster found.
type observation struct {
	cluster.Observation
	// name is what people call the cluster.
	name string
	// expires is when the client certificate that was used does; zero when
	// that is not known.
	expires time.Time
}

// lookAge is how old an observation may be for a plan.
const lookAge = 10 * time.Second

// cachedObservation is an observation with its time, or why there is none.
type cachedObservation struct {
	seen observation
	err  error
	at   time.Time
}

// observe looks at the cluster of a context and changes nothing. A cluster of
// which no node answers is an error.
func (c *clusters) observe(ctx context.Context, wanted string) (observation, error) {
	seen, err := c.look(ctx, wanted)
	if !errors.Is(err, context.Canceled) {
		c.remember(wanted, &cachedObservation{seen: seen, err: err, at: time.Now()})
	}

	return seen, err
}

// How long a first apply waits for a cluster that does not answer, and how often it
// looks: machines that were bootstrapped a moment ago take minutes, and an address that
// is wrong never answers.
const (
	bootstrapPatience = 15 * time.Minute
	bootstrapPause    = 5 * time.Second
)

// await waits until nodes and the Kubernetes API of a cluster answer that may have
// been bootstrapped right before, and returns what is left of the limit: never 0, which
// would be no limit to the engine. What waiting does not cure, or did not, the upgrade
// meets again, and says.
func (c *clusters) await(ctx context.Context, wanted string, limit time.Duration) time.Duration {
	clock := c.settings.clock
	began := clock.Now()

	bounded, cancel := clock.WithTimeout(ctx, min(limit, c.settings.patience))
	defer cancel()

	for bounded.Err() == nil {
		seen, err := c.observe(bounded, wanted)
		if err == nil {
			err = seen.KubernetesError
		}

		if !heals(err) {
			break
		}

		tflog.Info(ctx, "waiting for the cluster to answer", map[string]any{"error": readable.Printable(err.Error())})

		if clock.Sleep(bounded, bootstrapPause) != nil {
			break
		}
	}

	return max(limit-clock.Now().Sub(began), time.Nanosecond)
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
func (c *clusters) remember(wanted string, last *cachedObservation) {
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

	observed, err := engine.New(c.engine(reached, nil)).Observe(ctx)
	if err != nil {
		return observation{}, err
	}

	c.shared(c.access.contextName(wanted)).servers.notice(observed)

	return observation{Observation: observed, name: reached.name, expires: reached.expires}, silence(observed)
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

// request is what the engine is asked for. A run in which an operator acts may lose its
// node: the operator goes on, and so does the next run.
func (c *clusters) request(ctx context.Context, model clusterModel, objects cluster.Objects) (engine.Request, diag.Diagnostics) {
	made, diagnostics := model.request(ctx, c.releases.imageFactory(), objects)
	made.Policy.Releases = c.releases.known()

	if !made.Delegated {
		made.Policy.OwnBootID = c.settings.bootID
	}

	return made, diagnostics
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
	request, _ := c.request(ctx, planned, reached.objects)

	beside, err := reached.operator(planned.publication())
	if err != nil {
		return engine.Examination{Findings: append(slices.Clip(made.Findings), unmanaged(planned.publication(), err))}
	}

	return engine.New(c.engine(reached, beside)).Preflight(ctx, seen.Observation, made, request, engine.Planning)
}

// silence is the error of an observation in which no node answered, nil otherwise.
// A node that was refused counts for all: either the credentials or the
// endpoints are not fit for this cluster, and no waiting changes that.
func silence(observed cluster.Observation) error {
	var reason error

	answered := false

	for _, node := range observed.Managed() {
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
	case len(observed.Nodes) == 0 && observed.KubernetesError != nil:
		return fmt.Errorf("%w: %w", errUnlisted, observed.KubernetesError)
	case reason == nil:
		return errSilent
	default:
		// One reason stands for all: they share the endpoints.
		return fmt.Errorf("%w: %w", errSilent, reason)
	}
}

// clusterID is the ID of the connected cluster. The error says why it cannot
// be had.
func clusterID(ctx context.Context, reached *connection) (string, error) {
	id, err := reached.talos.ClusterID(ctx)
	if err != nil || id != "" {
		return id, err
	}

	return reached.kubernetes.UID(ctx)
}

// identityTimeout bounds how long a context is asked which cluster it reaches, and
// contextsAtOnce how many are at the same time.
const (
	identityTimeout = 20 * time.Second
	contextsAtOnce  = 20
)

// identity is the ID of the cluster that a context reaches, or why it is not known.
type identity struct {
	id  string
	err error
}

// identities asks each context which cluster it reaches, all at the same time, and each
// once for all resources: where a configuration imports many clusters, each resource
// looks for its own.
func (c *clusters) identities(ctx context.Context, refs []contextRef) []identity {
	found := make([]identity, len(refs))

	atOnce(len(refs), func(index int) {
		shared := c.shared(c.access.contextName(refs[index].wanted))

		shared.asking.Lock()
		defer shared.asking.Unlock()

		if shared.identity != nil {
			found[index] = *shared.identity

			return
		}

		found[index] = c.identity(ctx, refs[index].wanted)

		// Who was interrupted knows nothing.
		if ctx.Err() == nil {
			shared.identity = &found[index]
		}
	})

	return found
}

func (c *clusters) identity(ctx context.Context, wanted string) identity {
	bounded, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()

	reached, release, err := c.connect(bounded, wanted)
	if err != nil {
		return identity{err: err}
	}

	defer release()

	id, err := clusterID(bounded, reached)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it did not answer within %s: %w", durationText(identityTimeout), cluster.ErrUnreachable)
	}

	return identity{id: id, err: err}
}

// atOnce calls do for each index below the count, several at the same time.
func atOnce(count int, do func(index int)) {
	var group sync.WaitGroup

	room := make(chan struct{}, contextsAtOnce)

	for index := range count {
		room <- struct{}{}

		group.Go(func() {
			defer func() { <-room }()

			do(index)
		})
	}

	group.Wait()
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

// kept is what a destroy says of the object beyond what it removes.
func (c *clusters) kept(of publication) string {
	if of.isDefault(c != nil && c.access.Management != nil) {
		return ""
	}

	return " " + of.to.String() + " stays as it is, with what was published there."
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
	// planned is what was planned first for each cluster.
	planned map[string]plannedResource
}

// plannedResource is a resource as its plan makes it known.
type plannedResource struct {
	// name is that of the connection.
	name   string
	target cluster.Target
}

func newClaims() *claims {
	return &claims{by: map[string]string{}, files: map[string]string{}, planned: map[string]plannedResource{}}
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

// findDuplicate notes that a plan brings the cluster to the target, through the connection
// with the name, and finds what speaks against that: a plan of another resource with
// another target, or, where there is work, one through another connection. Two resources
// that say the same through the same connection cannot be told apart before the apply.
func (c *claims) findDuplicate(id, name string, target cluster.Target, work bool) []cluster.Finding {
	c.mu.Lock()
	defer c.mu.Unlock()

	const remedy = "Keep one resource per cluster."

	first, planned := c.planned[id]

	switch {
	case id == "":
		return nil
	case !planned:
		c.planned[id] = plannedResource{name: name, target: target}

		return nil
	case !first.target.Talos.Equal(target.Talos) || !first.target.Kubernetes.Equal(target.Kubernetes):
		return []cluster.Finding{{
			Check: cluster.CheckLock, Severity: cluster.Permanent,
			Found: fmt.Sprintf("this resource is to bring the cluster to %s, and another %s_cluster resource of the same provider block brings it to %s",
				wanted(target), typeName, wanted(first.target)),
			Remedy: remedy,
		}}
	case first.name != name && work:
		return []cluster.Finding{{
			Check: cluster.CheckLock, Severity: cluster.Observed, Attribute: attrContext,
			Found:  fmt.Sprintf("another %s_cluster resource upgrades this cluster, which it reaches through %s", typeName, first.name),
			Remedy: remedy,
		}}
	default:
		return nil
	}
}

// wanted is what the target asks for: "Talos 1.13.4, Kubernetes 1.35.2".
func wanted(target cluster.Target) string {
	return plan.State{Talos: target.Talos, Kubernetes: target.Kubernetes}.String()
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
