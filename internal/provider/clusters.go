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
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// clusters gives resources and data sources access to the clusters that the credentials of one provider block reach.
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

// sharedConnection is shared by all operations that run at the same time on the same context. The last one to finish
// closes it: Terraform never signals that the provider is done.
type sharedConnection struct {
	mu         sync.Mutex
	users      int
	current    *connection
	kubeconfig []byte
	last       *cachedObservation
	// servers are the addresses of the Kubernetes API besides the one in the kubeconfig.
	servers serverAddresses

	// asking guards identity.
	asking   sync.Mutex
	identity *identity
}

// undecided returns the access with everything unknown that a roll depends on, and whether anything is unknown.
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

// called returns the display name of the cluster of a resource with that context and ID, without asking the cluster;
// empty if nothing names it.
func (c *clusters) called(wanted, id types.String) string {
	if c == nil {
		return ""
	}

	if !wanted.IsUnknown() {
		named := wanted.ValueString()

		if config, err := c.access.talos(named); err == nil {
			return config.String()
		}

		if name := c.access.contextName(named); name != "" {
			return fmt.Sprintf("talosconfig context %q", name)
		}
	}

	if known := id.ValueString(); known != "" {
		return "cluster " + known
	}

	if c.access.From != nil {
		return "cluster of " + c.access.From.String()
	}

	return ""
}

// connect returns a connection to the cluster of a context; if wanted is empty, of the provider's own. release must
// be called once.
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

	// By now, every call has been answered: an error on closing changes nothing about that.
	_ = s.current.close()
	s.current = nil
}

// configured returns what the provider block passes to a resource or a data source; nil while Terraform only
// validates.
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

// observation is an observation of a cluster, with its connection's name and certificate.
type observation struct {
	cluster.Observation
	// name is the display name of the cluster.
	name string
	// expires is when the client certificate that was used expires; zero if unknown.
	expires time.Time
}

// lookAge is the maximum age of an observation for a plan.
const lookAge = 10 * time.Second

// cachedObservation is an observation with its time, or the error in its place.
type cachedObservation struct {
	seen observation
	err  error
	at   time.Time
}

// observe observes the cluster of a context and changes nothing. It is an error if no node of the cluster answers.
func (c *clusters) observe(ctx context.Context, wanted string) (observation, error) {
	seen, err := c.look(ctx, wanted)
	if !errors.Is(err, context.Canceled) {
		c.remember(wanted, &cachedObservation{seen: seen, err: err, at: time.Now()})
	}

	return seen, err
}

// How long a first apply waits for a cluster that does not answer, and how often it tries: machines that have just
// been bootstrapped take minutes, and a wrong address never answers.
const (
	bootstrapPatience = 15 * time.Minute
	bootstrapPause    = 5 * time.Second
)

// await waits until nodes and the Kubernetes API of a cluster answer that may have just been bootstrapped. It
// returns what remains of the limit: never 0, which the engine takes as no limit. An error that waiting cannot
// resolve, or did not, is reported by the upgrade, which meets it again.
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

// recent returns the last observation if it is only seconds old, and a new one otherwise. So a plan uses the
// observation of the refresh before it.
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

// remember caches an observation. nil drops the last one, because the cluster is about to change.
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

// engine returns the options of an engine for the connection and for the operator that may upgrade the same cluster,
// which is nil if none is known.
func (c *clusters) engine(reached *connection, beside cluster.Operator) engine.Options {
	return engine.Options{
		Talos: reached.talos, Kubernetes: reached.kubernetes, Removals: reached.removals, Manifests: reached.manifests,
		Workloads: reached.workloads, Registry: reached.registry, Operator: beside,
		Clock: c.settings.clock, ClusterName: cmp.Or(reached.context, reached.name),
	}
}

// silence returns the error of an observation in which no node answered; nil otherwise. If one node refuses access,
// its error is returned for all: either the credentials or the endpoints are wrong for this cluster, and waiting
// does not help.
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
		// All nodes share the endpoints, so one reason stands for all.
		return fmt.Errorf("%w: %w", errSilent, reason)
	}
}

// clusterID returns the ID of the connected cluster, or why it is unknown.
func clusterID(ctx context.Context, reached *connection) (string, error) {
	id, err := reached.talos.ClusterID(ctx)
	if err != nil || id != "" {
		return id, err
	}

	return reached.kubernetes.UID(ctx)
}

// identityTimeout bounds how long one context is asked which cluster it reaches, and contextsAtOnce how many are
// asked at the same time.
const (
	identityTimeout = 20 * time.Second
	contextsAtOnce  = 20
)

// identity is the ID of the cluster that a context reaches, or why it is unknown.
type identity struct {
	id  string
	err error
}

// identities asks each context which cluster it reaches, up to contextsAtOnce at the same time, and each only once
// for all resources: if a configuration imports many clusters, each resource looks for its own.
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

		// A cancelled lookup is not cached.
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
		err = fmt.Errorf("it did not answer within %s: %w", readable.Duration(identityTimeout), cluster.ErrUnreachable)
	}

	return identity{id: id, err: err}
}

// atOnce calls do for each index below count, up to contextsAtOnce at the same time.
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

// find returns the context whose cluster has the ID. The provider's own context is asked first; of several others,
// the first by name is returned.
func (c *clusters) find(ctx context.Context, id string) (contextRef, diag.Diagnostics) {
	refs, err := c.access.contexts()
	if err != nil {
		return contextRef{}, diag.Diagnostics{problem("import the cluster", c.access, err)}
	}

	var (
		own, others []contextRef
		said        []string
	)

	for _, ref := range refs {
		if ref.wanted == "" {
			own = append(own, ref)
		} else {
			others = append(others, ref)
		}
	}

	for _, group := range [][]contextRef{own, others} {
		for index, found := range c.identities(ctx, group) {
			ref := group[index]

			switch {
			case found.err != nil:
				said = append(said, c.title(ref)+": "+strings.TrimSuffix(reason(found.err), "."))
			case found.id == id:
				return ref, nil
			default:
				said = append(said, fmt.Sprintf("%s reaches cluster %s", c.title(ref), found.id))
			}
		}
	}

	if ctx.Err() != nil {
		return contextRef{}, diag.Diagnostics{problem("import the cluster", c.access, cluster.Ended(ctx))}
	}

	return contextRef{}, diag.Diagnostics{diag.NewErrorDiagnostic("Unable to find the cluster to import",
		fmt.Sprintf("The import asks for cluster %q, which nothing reaches that the provider block gives access to:\n\n- %s\n\n"+
			"Correct the ID, or give the provider a talosconfig with a context of that cluster.",
			id, strings.Join(said, "\n- ")))}
}

// title returns the display name of a context's cluster before the cluster was asked anything.
func (c *clusters) title(ref contextRef) string {
	if ref.name != "" {
		return fmt.Sprintf("talosconfig context %q", ref.name)
	}

	return c.called(types.StringNull(), types.StringNull())
}

// kept is what a destroy reports about the object beyond what it removes.
func (c *clusters) kept(of publication) string {
	if of.isDefault(c != nil && c.access.Management != nil) {
		return ""
	}

	return " " + of.to.String() + " stays as it is, with what was published there."
}

// errClaimed is wrapped if another resource has changed the cluster already.
var errClaimed = errors.New("another " + typeName + "_cluster resource has upgraded it in this apply, or is upgrading it")

// claims are the clusters that resources of one configured provider have changed, with the resource that did.
// Terraform creates or updates a resource once in an apply, so a second one for the same cluster is a mistake,
// whether or not the first is still running. The lease in the cluster keeps other processes away.
type claims struct {
	mu sync.Mutex
	by map[string]string
	// files maps each file that a resource writes to that resource.
	files map[string]string
	// planned is the first plan for each cluster.
	planned map[string]plannedResource
}

// plannedResource is a resource as described by its plan.
type plannedResource struct {
	// name is the name of the connection.
	name   string
	target cluster.Target
}

func newClaims() *claims {
	return &claims{by: map[string]string{}, files: map[string]string{}, planned: map[string]plannedResource{}}
}

// claim gives the cluster to the claimant, which is the name of a resource among claims, until the resource is
// destroyed. The error wraps [errClaimed].
func (c *claims) claim(id, claimant string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if holder, taken := c.by[id]; taken && holder != claimant {
		return fmt.Errorf("cluster %s: %w", id, errClaimed)
	}

	c.by[id] = claimant

	return nil
}

// write gives the file at the path to the claimant, and reports whether no other claimant has it.
func (c *claims) write(path, claimant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if holder, taken := c.files[path]; taken && holder != claimant {
		return false
	}

	c.files[path] = claimant

	return true
}

// findDuplicate records that a plan brings the cluster to the target through the named connection, and returns what
// conflicts with it: a plan of another resource with another target or, if there is work, through another
// connection. Two resources with the same target and the same connection cannot be distinguished before the apply.
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

// wanted returns the target as text: "Talos 1.13.4, Kubernetes 1.35.2".
func wanted(target cluster.Target) string {
	return plan.State{Talos: target.Talos, Kubernetes: target.Kubernetes}.String()
}

// release gives up the cluster of a resource that is destroyed. It has no effect if another resource has the
// cluster.
func (c *claims) release(id, claimant string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.by[id] == claimant {
		delete(c.by, id)
	}
}

// keyClaimant is the key of the resource's name among claims in its private state.
const keyClaimant = "claimant"

// private is the private state of a resource.
type private interface {
	comparable

	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// claimantIn returns the name among claims of the resource with the private state: a random text that it keeps for
// life, and that is created if it has none yet.
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
