// SPDX-License-Identifier: MPL-2.0

// Package connection reaches clusters with the credentials of a provider block: it constructs the adapters, shares a
// connection between all operations that use it at the same time, and says what their errors mean.
package connection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/manifest"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/removal"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Connection is a connection to one cluster, through the ports of the engine.
type Connection struct {
	// Name describes the cluster in messages: its context or, if there is none, its endpoints.
	Name string
	// context is the name of the context alone; empty if there is none.
	context string
	// endpoints are the endpoints of the Talos API.
	endpoints []string
	Talos     cluster.Talos
	// Kubernetes is never nil. Without a kubeconfig, its methods fail with [cluster.ErrNoKubeconfig].
	Kubernetes cluster.Kubernetes
	// Removals, Manifests, Workloads and Objects are nil if there is no kubeconfig.
	Removals  cluster.Removals
	Manifests cluster.BootstrapManifests
	Workloads cluster.WorkloadReader
	Objects   cluster.Objects
	// Registry is nil if images are not checked.
	Registry cluster.Registry
	// Store returns the store of the default object, for the cluster with the ID. The function is nil if there is no
	// kubeconfig.
	Store func(id string) publish.Store
	// Own and Management are the clusters that may contain the object to which progress is published. Own is nil if
	// there is no kubeconfig. Management is nil if the provider block names none or, with the reason in
	// Unmanaged, one that cannot be used.
	Own, Management *ManagementCluster
	Unmanaged       error
	// kubeconfig is kept, so that not every operation makes the cluster sign another certificate; nil if there is
	// none.
	kubeconfig []byte
	// kubeconfigFrom is a prefix for errors about a kubeconfig that a cluster returned; empty if it was given.
	kubeconfigFrom string
	// Identify passes the ID of the cluster to the Kubernetes client, so that the objects that it writes carry it.
	Identify func(id string)
	// Expires is when the client certificate of the Talos API expires; zero if unknown.
	Expires time.Time
	Close   func() error
}

// DialFunc opens a connection.
type DialFunc func(ctx context.Context, shared *Settings, access Credentials, wanted string, remembered KubeconfigCache) (*Connection, error)

// Dial connects to the cluster of the wanted context, and makes its adapters. It may read credentials from the management cluster, in which case
// it fails if that does not answer, and ask the Talos API for a kubeconfig. If there is none, the connection is returned
// without the Kubernetes API.
func Dial(ctx context.Context, shared *Settings, access Credentials, wanted string, remembered KubeconfigCache) (*Connection, error) {
	if len(access.Unknown) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrCredentialsUnknown, strings.Join(access.Unknown, ", "))
	}

	management, unmanaged := access.Management.connect(shared)

	made, talos, err := dialTalos(ctx, shared, access, wanted, management, unmanaged)
	if err != nil {
		management.close()

		return nil, err
	}

	if made.kubeconfig == nil {
		made.kubeconfigFrom = "the kubeconfig that the Talos API returned: "
		made.kubeconfig, err = remembered.kubeconfigAt(ctx, shared.Clock.Now(), talos.Kubeconfig)
		if errors.Is(err, cluster.ErrCredentials) {
			// Every call to the Talos API fails for the same reason, and reports it.
			err = cluster.ErrCredentials
		}

		if err != nil {
			made.Kubernetes = kubeapi.NewUnavailable(fmt.Errorf("%w: %w", cluster.ErrNoKubeconfig, err))

			return made, nil
		}
	}

	remembered.servers.expect(made.endpoints...)

	if err := made.addKubernetes(shared, talos, remembered.servers); err != nil {
		return nil, errors.Join(err, made.Close())
	}

	return made, nil
}

// dialTalos returns the connection without the Kubernetes API of the cluster, and its Talos client. If an error is
// returned, the caller closes the management cluster; otherwise the connection does.
func dialTalos(
	ctx context.Context, shared *Settings, access Credentials, wanted string, management *ManagementCluster, unmanaged error,
) (*Connection, *talosapi.Client, error) {
	access, err := access.borrow(ctx, management, unmanaged)
	if err != nil {
		return nil, nil, err
	}

	config, err := access.talos(wanted)
	if err != nil {
		return nil, nil, err
	}

	if err := mayRead(config); err != nil {
		return nil, nil, err
	}

	given, err := access.kubeconfig()
	if err != nil {
		return nil, nil, err
	}

	talos, err := talosapi.New(config, talosapi.Options{UserAgent: shared.UserAgent()})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrCredentialsUnusable, err)
	}

	from := ""
	if access.Lent != "" {
		from = access.lent("kubeconfig") + ": "
	}

	return &Connection{
		Name: config.String(), context: config.Context(), endpoints: config.Endpoints(), Talos: talos, Identify: func(string) {},
		kubeconfig: given, kubeconfigFrom: from,
		Management: management, Unmanaged: unmanaged,
		Registry: shared.Registry, Expires: config.Certificate().NotAfter(),
		Close: func() error {
			management.close()

			return talos.Close()
		},
	}, talos, nil
}

// mayRead returns an error that wraps [ErrCredentialsUnusable] if no role of the certificate allows reading a cluster, as with
// os:etcd:backup alone. A certificate without roles is accepted; the nodes decide.
func mayRead(config talosapi.Config) error {
	roles := config.Certificate().Roles()

	reads := func(role string) bool { return role == "os:admin" || role == "os:operator" || role == "os:reader" }
	if len(roles) == 0 || slices.ContainsFunc(roles, reads) {
		return nil
	}

	return fmt.Errorf("%w: the certificate of the %s has the role %s, with which a cluster can be neither looked at nor upgraded; a plan needs os:reader, and an upgrade os:admin",
		ErrCredentialsUnusable, config.String(), strings.Join(roles, ", "))
}

func (c *Connection) addKubernetes(shared *Settings, talos *talosapi.Client, servers *serverAddresses) error {
	client, err := kubeapi.New(c.kubeconfig, "", kubeapi.Options{
		UserAgent: shared.UserAgent(), Sleep: shared.Clock.Sleep, Alternatives: servers.addresses, SelfContained: c.kubeconfigFrom != "",
	})
	if err != nil {
		return fmt.Errorf("%w: %s%w", ErrCredentialsUnusable, c.kubeconfigFrom, err)
	}

	servers.at(client.Config().Host)

	c.Kubernetes, c.Identify = client, client.Identify
	c.Workloads, c.Objects = client, client
	c.Removals = removal.New(talos, client.Config())
	c.Manifests = manifest.New(talos, client.Config(), client.HTTPClient())
	c.Own = newManagementCluster(client)
	c.Store = func(id string) publish.Store { return publish.NewConfigMapStore(client, id) }

	closeTalos := c.Close
	c.Close = func() error {
		client.Close()

		return closeTalos()
	}

	return nil
}

// ManagementCluster is a Kubernetes API that may contain the object to which progress is published: that of a management
// cluster, or of the upgraded cluster itself.
type ManagementCluster struct {
	Access operator.Access
	// events writes Kubernetes Events there; nil if there are none.
	events publish.ObjectCreator
	// end closes the connection; nil if the connection has another owner.
	end func()
}

// newManagementCluster returns the API that the client talks to. The caller closes the client.
func newManagementCluster(client *kubeapi.Client) *ManagementCluster {
	return &ManagementCluster{Access: client, events: client}
}

// close closes the connection of the management cluster, if it owns one.
func (m *ManagementCluster) close() {
	if m != nil && m.end != nil {
		m.end()
	}
}

// connect returns the management cluster; nil if there is none. It dials nothing. Errors wrap [ErrCredentialsUnusable] and name
// the attribute.
func (m *ManagementAccess) connect(shared *Settings) (*ManagementCluster, error) {
	if m == nil {
		return nil, nil
	}

	data, source, err := m.kubeconfig()
	if err != nil {
		return nil, err
	}

	client, err := kubeapi.New(data, m.Context, kubeapi.Options{UserAgent: shared.UserAgent(), Sleep: shared.Clock.Sleep})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCredentialsUnusable, source, err)
	}

	made := newManagementCluster(client)
	made.end = client.Close

	return made, nil
}

// home returns the cluster with the object to which progress is published: the management cluster if an object is named
// and a management cluster is configured, the upgraded cluster otherwise, or nil if that has no kubeconfig. If the
// management cluster cannot be used, an error that wraps [ErrCredentialsUnusable] is returned.
func (c *Connection) home(of publication.Publication) (*ManagementCluster, error) {
	if of.To == nil || !c.managed() {
		return c.Own, nil
	}

	return c.Management, c.Unmanaged
}

// managed reports whether a management cluster is configured, even if it cannot be used.
func (c *Connection) managed() bool { return c.Management != nil || c.Unmanaged != nil }

// Operator returns the operator that acts on the object and may upgrade the same cluster. If no object is named, if it
// is the default one, or if there is no kubeconfig, nil is returned. If the management cluster cannot be used, an error that
// wraps [ErrCredentialsUnusable] is returned.
func (c *Connection) Operator(of publication.Publication) (cluster.Operator, error) {
	at, err := c.home(of)
	if err != nil || at == nil || of.IsDefault(c.managed()) {
		return nil, err
	}

	return operator.New(*of.To, at.Access), nil
}

// nextFunc returns the newest release of each product to which a cluster with these versions could be upgraded in
// one step; zero if there is none, or none is known yet. It returns at once.
type nextFunc func(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version)

// Publisher publishes the progress of the cluster with the ID. If there is nothing to publish to, nil is returned, and
// the upgrade goes on: the engine itself refuses what needs the Kubernetes API.
func (c *Connection) Publisher(id string, of publication.Publication, available nextFunc) *publish.Publisher {
	store, err := c.storeOf(id, of)
	if err != nil || store == nil {
		return nil
	}

	return publish.New(store, publish.Options{Announce: of.To != nil, Available: available})
}

// storeOf returns the store to which the progress of the cluster with the ID is published: that of the named object, or
// of the default one. If there is no kubeconfig, nil is returned.
func (c *Connection) storeOf(id string, of publication.Publication) (publish.Store, error) {
	at, err := c.home(of)

	switch {
	case err != nil:
		return nil, err
	case of.IsDefault(c.managed()):
		// Only the default object is created if it is missing.
		if c.Store == nil {
			return nil, nil
		}

		return c.Store(id), nil
	case at == nil:
		return nil, nil
	default:
		return publish.NewObjectStore(at.Access, *of.To), nil
	}
}

// Events returns what reports an upgrade as Kubernetes Events. If the management cluster cannot be used, or no cluster takes Events,
// nil is returned.
func (c *Connection) Events(of publication.Publication) *publish.Events {
	at, err := c.home(of)
	if err != nil {
		return nil
	}

	targets := publish.EventTargets{Of: publication.DefaultReference()}
	if of.To != nil {
		targets.Of = *of.To
	}

	if c.Own != nil {
		targets.Nodes = c.Own.events
	}

	if at != nil {
		targets.Object, targets.Access = at.events, at.Access
	}

	if targets.Nodes == nil && targets.Object == nil {
		return nil
	}

	return publish.NewEvents(targets)
}

// certificateReserve is the remaining validity that a cached kubeconfig needs to be used again. It is longer than the
// default timeout of an upgrade.
const certificateReserve = 5 * time.Hour

// KubeconfigCache is what is known from earlier connections to the same cluster.
type KubeconfigCache struct {
	// kubeconfig is what the Talos API returned; nil if it was not asked yet.
	kubeconfig []byte
	// servers must not be nil; [Dial] updates it.
	servers *serverAddresses
}

// kubeconfigAt returns the cached kubeconfig if its certificate lasts for [certificateReserve] or its expiry is unknown.
// Otherwise it asks for a new one; if that fails and the cached one has not expired, the cached one is returned.
func (k KubeconfigCache) kubeconfigAt(ctx context.Context, now time.Time, ask func(context.Context) ([]byte, error)) ([]byte, error) {
	expires := kubeapi.Expiry(k.kubeconfig)
	if k.kubeconfig != nil && (expires.IsZero() || expires.After(now.Add(certificateReserve))) {
		return k.kubeconfig, nil
	}

	asked, err := ask(ctx)
	if err != nil && k.kubeconfig != nil && expires.After(now) {
		return k.kubeconfig, nil
	}

	return asked, err
}
