// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"cmp"
	"context"
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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/releases"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// Clusters gives resources, data sources, actions and queries access to the clusters that the credentials of one
// provider block reach.
type Clusters struct {
	Settings *Settings
	Access   Credentials
	Releases releases.Defaults
	Claims   *Claims

	mu   sync.Mutex
	open map[string]*sharedConnection
}

// NewClusters returns access with the credentials, without connecting to anything.
func NewClusters(settings *Settings, access Credentials) *Clusters {
	return &Clusters{Settings: settings, Access: access, Claims: NewClaims(), open: map[string]*sharedConnection{}}
}

// sharedConnection is shared by all operations that run at the same time on the same context. The last one to finish
// closes it: Terraform never signals that the provider is done.
type sharedConnection struct {
	mu         sync.Mutex
	users      int
	current    *Connection
	kubeconfig []byte
	last       *cachedObservation
	// servers are the addresses of the Kubernetes API besides the one in the kubeconfig.
	servers serverAddresses

	// asking guards identity.
	asking   sync.Mutex
	identity *Identity
}

// Undecided returns the credentials with the names of all attributes that a roll depends on and that are not known
// yet, and whether there are any.
func (c *Clusters) Undecided(ctx context.Context) (Credentials, bool) {
	access := c.Access
	if c.Releases.TableUnknown(ctx) {
		access.Unknown = append(slices.Clone(access.Unknown), attrname.ReleaseSource)
	}

	if c.Releases.FactoryURL.IsUnknown() {
		access.Unknown = append(slices.Clone(access.Unknown), attrname.ImageFactoryURL)
	}

	return access, len(access.Unknown) > 0
}

// DisplayName returns the display name of the cluster of a resource with that context and ID, without asking the cluster;
// empty if nothing names it.
func (c *Clusters) DisplayName(wanted, id types.String) string {
	if c == nil {
		return ""
	}

	if !wanted.IsUnknown() {
		named := wanted.ValueString()

		if config, err := c.Access.talos(named); err == nil {
			return config.String()
		}

		if name := c.Access.ContextName(named); name != "" {
			return fmt.Sprintf("talosconfig context %q", name)
		}
	}

	if known := id.ValueString(); known != "" {
		return "cluster " + known
	}

	if c.Access.From != nil {
		return "cluster of " + c.Access.From.String()
	}

	return ""
}

// Connect returns a connection to the cluster of a context; if wanted is empty, of the provider's own. release must
// be called once.
func (c *Clusters) Connect(ctx context.Context, wanted string) (reached *Connection, release func(), err error) {
	shared := c.shared(c.Access.ContextName(wanted))

	shared.mu.Lock()
	defer shared.mu.Unlock()

	if shared.current == nil {
		shared.current, err = c.Settings.Dial(ctx, c.Settings, c.Access, wanted, KubeconfigCache{kubeconfig: shared.kubeconfig, servers: &shared.servers})
		if err != nil {
			return nil, nil, err
		}

		shared.kubeconfig = shared.current.kubeconfig
	}

	shared.users++

	return shared.current, sync.OnceFunc(shared.release), nil
}

func (c *Clusters) shared(name string) *sharedConnection {
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
	_ = s.current.Close()
	s.current = nil
}

// FromProviderData returns what the provider block passes to a resource, a data source, an action or a query; nil
// while Terraform only validates.
func FromProviderData(data any, diagnostics *diag.Diagnostics) *Clusters {
	if data == nil {
		return nil
	}

	reached, ok := data.(*Clusters)
	if !ok {
		diagnostics.AddError("Unexpected provider data", fmt.Sprintf("Got %T. This is a defect of the provider; please report it.", data))
	}

	return reached
}

// Observation is an observation of a cluster, with its connection's name and certificate.
type Observation struct {
	cluster.Observation
	// Name is the display name of the cluster.
	Name string
	// Expires is when the client certificate that was used expires; zero if unknown.
	Expires time.Time
}

// lookAge is the maximum age of an observation for a plan.
const lookAge = 10 * time.Second

// cachedObservation is an observation with its time, or the error in its place.
type cachedObservation struct {
	seen Observation
	err  error
	at   time.Time
	// late is the limit that the observation exceeded; 0 if it exceeded none.
	late time.Duration
}

// usable reports whether a plan with the deadline of the context may use the observation instead of a new one.
func (o *cachedObservation) usable(ctx context.Context) bool {
	limit, limited := remaining(ctx)

	return o != nil && time.Since(o.at) < lookAge && (o.late == 0 || limited && limit <= o.late)
}

// remaining returns the time until the deadline of the context, and whether it has one. It is rounded to seconds: limits
// are the same although some of each has passed.
func remaining(ctx context.Context) (time.Duration, bool) {
	deadline, limited := ctx.Deadline()

	return time.Until(deadline).Round(time.Second), limited
}

// Observe observes the cluster of a context and changes nothing. It is an error if no node of the cluster answers.
func (c *Clusters) Observe(ctx context.Context, wanted string) (Observation, error) {
	limit, _ := remaining(ctx)

	seen, err := c.look(ctx, wanted)
	if !errors.Is(err, context.Canceled) {
		made := &cachedObservation{seen: seen, err: err, at: time.Now()}
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			made.late = limit
		}

		c.remember(wanted, made)
	}

	return seen, err
}

// How long a first apply waits for a cluster that does not answer, and how often it tries: machines that have just
// been bootstrapped take minutes, and a wrong address never answers.
const (
	bootstrapPatience = 15 * time.Minute
	bootstrapPause    = 5 * time.Second
)

// Await waits until nodes and the Kubernetes API of a cluster answer that may have just been bootstrapped. It
// returns what remains of the limit: never 0, which the engine takes as no limit. An error that waiting cannot
// resolve, or did not, is reported by the upgrade, which meets it again.
func (c *Clusters) Await(ctx context.Context, wanted string, limit time.Duration) time.Duration {
	clock := c.Settings.Clock
	began := clock.Now()

	bounded, cancel := clock.WithTimeout(ctx, min(limit, c.Settings.Patience))
	defer cancel()

	for bounded.Err() == nil {
		seen, err := c.Observe(bounded, wanted)
		if err == nil {
			err = seen.KubernetesError
		}

		if !WaitingHelps(err) {
			break
		}

		tflog.Info(ctx, "waiting for the cluster to answer", map[string]any{"error": readable.Printable(err.Error())})

		if clock.Sleep(bounded, bootstrapPause) != nil {
			break
		}
	}

	return max(limit-clock.Now().Sub(began), time.Nanosecond)
}

// Recent returns the last observation if it is only seconds old, and a new one otherwise. So a plan uses the
// observation of the refresh before it, unless that ended at a limit that is shorter than its own.
func (c *Clusters) Recent(ctx context.Context, wanted string) (Observation, error) {
	shared := c.shared(c.Access.ContextName(wanted))

	shared.mu.Lock()
	last := shared.last
	shared.mu.Unlock()

	if last.usable(ctx) {
		return last.seen, last.err
	}

	return c.Observe(ctx, wanted)
}

// remember caches an observation; nil drops the last one.
func (c *Clusters) remember(wanted string, last *cachedObservation) {
	shared := c.shared(c.Access.ContextName(wanted))

	shared.mu.Lock()
	defer shared.mu.Unlock()

	shared.last = last
}

// Forget drops the last observation, because the cluster is about to change.
func (c *Clusters) Forget(wanted string) { c.remember(wanted, nil) }

func (c *Clusters) look(ctx context.Context, wanted string) (Observation, error) {
	reached, release, err := c.Connect(ctx, wanted)
	if err != nil {
		return Observation{}, err
	}

	defer release()

	observed, err := engine.New(c.EngineOptions(reached, nil)).Observe(ctx)
	if err != nil {
		return Observation{}, err
	}

	c.shared(c.Access.ContextName(wanted)).servers.notice(observed)

	return Observation{Observation: observed, Name: reached.Name, Expires: reached.Expires}, silence(observed)
}

// EngineOptions returns the options of an engine for the connection and for the operator that may upgrade the same cluster,
// which is nil if none is known.
func (c *Clusters) EngineOptions(reached *Connection, beside cluster.Operator) engine.Options {
	return engine.Options{
		Talos: reached.Talos, Kubernetes: reached.Kubernetes, Removals: reached.Removals, Manifests: reached.Manifests,
		Workloads: reached.Workloads, Registry: reached.Registry, Operator: beside,
		Clock: c.Settings.Clock, ClusterName: cmp.Or(reached.context, reached.Name),
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

// ClusterID returns the ID of the connected cluster, or why it is unknown.
func ClusterID(ctx context.Context, reached *Connection) (string, error) {
	id, err := reached.Talos.ClusterID(ctx)
	if err != nil || id != "" {
		return id, err
	}

	return reached.Kubernetes.UID(ctx)
}

// identityTimeout bounds how long one context is asked which cluster it reaches, and contextsAtOnce how many are
// asked at the same time.
const (
	identityTimeout = 20 * time.Second
	contextsAtOnce  = 20
)

// Identity is the ID of the cluster that a context reaches, or why it is unknown.
type Identity struct {
	ID  string
	Err error
}

// Identities asks each context which cluster it reaches, up to contextsAtOnce at the same time, and each only once
// for all resources: if a configuration imports many clusters, each resource looks for its own.
func (c *Clusters) Identities(ctx context.Context, refs []ContextRef) []Identity {
	found := make([]Identity, len(refs))

	Concurrently(len(refs), func(index int) {
		shared := c.shared(c.Access.ContextName(refs[index].Wanted))

		shared.asking.Lock()
		defer shared.asking.Unlock()

		if shared.identity != nil {
			found[index] = *shared.identity

			return
		}

		found[index] = c.identity(ctx, refs[index].Wanted)

		// A cancelled lookup is not cached.
		if ctx.Err() == nil {
			shared.identity = &found[index]
		}
	})

	return found
}

func (c *Clusters) identity(ctx context.Context, wanted string) Identity {
	bounded, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()

	reached, release, err := c.Connect(bounded, wanted)
	if err != nil {
		return Identity{Err: err}
	}

	defer release()

	id, err := ClusterID(bounded, reached)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it did not answer within %s: %w", readable.Duration(identityTimeout), cluster.ErrUnreachable)
	}

	return Identity{ID: id, Err: err}
}

// Concurrently calls do for each index below count, up to contextsAtOnce at the same time.
func Concurrently(count int, do func(index int)) {
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

// Find returns the context whose cluster has the ID. The provider's own context is asked first; of several others,
// the first by name is returned.
func (c *Clusters) Find(ctx context.Context, id string) (ContextRef, diag.Diagnostics) {
	refs, err := c.Access.Contexts()
	if err != nil {
		return ContextRef{}, diag.Diagnostics{Problem("import the cluster", c.Access, err)}
	}

	var (
		own, others []ContextRef
		said        []string
	)

	for _, ref := range refs {
		if ref.Wanted == "" {
			own = append(own, ref)
		} else {
			others = append(others, ref)
		}
	}

	for _, group := range [][]ContextRef{own, others} {
		for index, found := range c.Identities(ctx, group) {
			ref := group[index]

			switch {
			case found.Err != nil:
				said = append(said, c.DisplayNameOf(ref)+": "+strings.TrimSuffix(reason(found.Err), "."))
			case found.ID == id:
				return ref, nil
			default:
				said = append(said, fmt.Sprintf("%s reaches cluster %s", c.DisplayNameOf(ref), found.ID))
			}
		}
	}

	if ctx.Err() != nil {
		return ContextRef{}, diag.Diagnostics{Problem("import the cluster", c.Access, cluster.Ended(ctx))}
	}

	return ContextRef{}, diag.Diagnostics{diag.NewErrorDiagnostic("Unable to find the cluster to import",
		fmt.Sprintf("The import asks for cluster %q, which nothing reaches that the provider block gives access to:\n\n- %s\n\n"+
			"Correct the ID, or give the provider a talosconfig with a context of that cluster.",
			id, strings.Join(said, "\n- ")))}
}

// DisplayNameOf returns the display name of a context's cluster before the cluster was asked anything.
func (c *Clusters) DisplayNameOf(ref ContextRef) string {
	if ref.Name != "" {
		return fmt.Sprintf("talosconfig context %q", ref.Name)
	}

	return c.DisplayName(types.StringNull(), types.StringNull())
}

// Kept returns what a destroy says about the object; empty if it is the default one.
func (c *Clusters) Kept(of publication.Publication) string {
	if of.IsDefault(c != nil && c.Access.Management != nil) {
		return ""
	}

	return " " + of.To.String() + " stays as it is, with what was published there."
}
