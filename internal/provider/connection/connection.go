// SPDX-License-Identifier: MPL-2.0

// Package connection reaches clusters with the credentials of a provider block: it constructs the adapters, shares a
// connection between all operations that use it at the same time, and says what their errors mean.
package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/manifest"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/removal"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
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
	Store func(id string) (publish.Store, error)
	// Own and Management are the clusters that may contain the object to which progress is published. Own is nil if
	// there is no kubeconfig. Management is nil if the provider block names none or, with the reason in
	// Unmanaged, one that cannot be used.
	Own, Management *ManagementCluster
	Unmanaged       error
	// kubeconfig is kept, so that not every operation makes the cluster sign another certificate; nil if there is
	// none.
	kubeconfig []byte
	// kubeconfigFrom is a prefix for errors about the kubeconfig; empty if they need none.
	kubeconfigFrom string
	// Identify passes the ID of the cluster to the Kubernetes client, so that the objects that it writes carry it.
	Identify func(id string)
	// Expires is when the client certificate of the Talos API expires; zero if unknown.
	Expires time.Time
	Close   func() error
}

// dialFunc opens a connection.
type dialFunc func(ctx context.Context, shared *Settings, access Credentials, wanted string, remembered KubeconfigCache) (*Connection, error)

// Dial constructs the adapters; nothing else does. It may read credentials from the management cluster, in which case
// it fails if that does not answer, and ask the Talos API for a kubeconfig. If there is none, the connection is returned
// without the Kubernetes API.
func Dial(ctx context.Context, shared *Settings, access Credentials, wanted string, remembered KubeconfigCache) (*Connection, error) {
	if len(access.Unknown) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, strings.Join(access.Unknown, ", "))
	}

	management, unmanaged := access.Management.connect(shared)

	made, talos, err := dialTalos(ctx, shared, access, wanted, management, unmanaged)
	if err != nil {
		management.close()

		return nil, err
	}

	if made.kubeconfig == nil {
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
		return nil, nil, fmt.Errorf("%w: %w", ErrUnusable, err)
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

// mayRead returns an error that wraps [ErrUnusable] if no role of the certificate allows reading a cluster, as with
// os:etcd:backup alone. A certificate without roles is accepted; the nodes decide.
func mayRead(config talosapi.Config) error {
	roles := config.Certificate().Roles()

	reads := func(role string) bool { return role == "os:admin" || role == "os:operator" || role == "os:reader" }
	if len(roles) == 0 || slices.ContainsFunc(roles, reads) {
		return nil
	}

	return fmt.Errorf("%w: the certificate of the %s has the role %s, with which a cluster can be neither looked at nor upgraded; a plan needs os:reader, and an upgrade os:admin",
		ErrUnusable, config.String(), strings.Join(roles, ", "))
}

func (c *Connection) addKubernetes(shared *Settings, talos *talosapi.Client, servers *serverAddresses) error {
	client, err := kubeapi.New(c.kubeconfig, "", kubeapi.Options{
		UserAgent: shared.UserAgent(), Sleep: shared.Clock.Sleep, Alternatives: servers.addresses,
	})
	if err != nil {
		return fmt.Errorf("%w: %s%w", ErrUnusable, c.kubeconfigFrom, err)
	}

	servers.at(client.Config().Host)

	c.Kubernetes, c.Identify = client, client.Identify
	c.Workloads, c.Objects = client, client
	c.Removals = removal.New(talos, client.Config())
	c.Manifests = manifest.New(talos, client.Config(), client.HTTPClient())
	c.Own = newManagementCluster(client)
	c.Store = func(id string) (publish.Store, error) {
		return publish.NewConfigMapStore(client.Config(), client.HTTPClient(), id)
	}

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
	// Events writes Kubernetes Events there; nil if it could not be made.
	events *publish.EventSink
	// end closes the connection; nil if the connection has another owner.
	end func()
}

// newManagementCluster returns the API that the client talks to. The caller closes the client.
func newManagementCluster(client *kubeapi.Client) *ManagementCluster {
	// Events are only information, so an error with them stops nothing.
	events, _ := publish.NewEventSink(client.Config(), client.HTTPClient())

	return &ManagementCluster{Access: client, events: events}
}

// Close closes the connection of the management cluster, if it owns one.
func (m *ManagementCluster) close() {
	if m != nil && m.end != nil {
		m.end()
	}
}

// Connect returns the management cluster; nil if there is none. It dials nothing. Errors wrap [ErrUnusable] and name
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
		return nil, fmt.Errorf("%w: %s: %w", ErrUnusable, source, err)
	}

	made := newManagementCluster(client)
	made.end = client.Close

	return made, nil
}

// home returns the cluster with the object to which progress is published: the management cluster if an object is named
// and a management cluster is configured, the upgraded cluster otherwise, or nil if that has no kubeconfig. If the
// management cluster cannot be used, an error that wraps [ErrUnusable] is returned.
func (c *Connection) home(of publication.Publication) (*ManagementCluster, error) {
	if of.To == nil || !c.managed() {
		return c.Own, nil
	}

	return c.Management, c.Unmanaged
}

// managed reports whether a management cluster is configured, even if it cannot be used.
func (c *Connection) managed() bool { return c.Management != nil || c.Unmanaged != nil }

// Operator returns the operator that acts on the object and may upgrade the same cluster. If no object is named, if it
// is the default one, or if there is no kubeconfig, nil is returned. Errors are those of [Connection.home].
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

		return c.Store(id)
	case at == nil:
		return nil, nil
	default:
		return publish.NewObjectStore(at.Access, *of.To), nil
	}
}

// Events returns what reports an upgrade as Kubernetes Events. If [Connection.home] fails, or no cluster takes Events,
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

// talosconfigEnv is the environment variable with the path of the talosconfig that is used if the provider block names
// none; talosctl reads it as well.
const talosconfigEnv = "TALOSCONFIG"

var (
	// ErrUnknown is wrapped if the provider block depends on values that are known only in an apply.
	ErrUnknown = errors.New("provider configuration not known yet")
	// ErrMissing is wrapped if neither a talosconfig nor a client certificate is given.
	ErrMissing = errors.New("no credentials for the Talos API")
	// ErrUnusable is wrapped if the given credentials cannot be used.
	ErrUnusable = errors.New("unusable credentials")
	// errLent is wrapped if credentials could not be read from the management cluster.
	errLent = errors.New("no credentials from the management cluster")
)

// unanswered returns the endpoints of the Talos API that were tried, with their errors, if err is that none of them
// answered. If err is another one, the text is empty.
func unanswered(err error) string {
	var silence *talosapi.SilenceError
	if !errors.As(err, &silence) {
		return ""
	}

	return silence.Error()
}

// ClientCertificate is a client certificate of the Talos API. Each part is PEM in base64.
type ClientCertificate struct {
	CA, Cert, Key string
}

// ManagementAccess is how the management cluster is reached. One of the two kubeconfigs is set.
type ManagementAccess struct {
	Kubeconfig     string
	KubeconfigPath string
	Context        string
}

// kubeconfig returns the content of the kubeconfig and the name of its source.
func (m ManagementAccess) kubeconfig() (data []byte, source string, err error) {
	if m.Kubeconfig != "" {
		return []byte(m.Kubeconfig), "provider attribute " + attrname.Management + "." + attrname.Kubeconfig, nil
	}

	return readCredentials(m.KubeconfigPath, "provider attribute "+attrname.Management+"."+attrname.KubeconfigPath)
}

// CredentialsSource is the object in the management cluster whose Secret contains the credentials.
type CredentialsSource struct {
	Namespace, Name string
}

// String returns the namespace and the name, such as "tenant-a/prod".
func (s CredentialsSource) String() string { return s.Namespace + "/" + s.Name }

// Credentials are the credentials in the provider block.
type Credentials struct {
	Talosconfig     string
	TalosconfigPath string
	Endpoints       []string
	Certificate     *ClientCertificate
	Context         string
	Kubeconfig      string
	KubeconfigPath  string
	// Management is nil if there is no management cluster.
	Management *ManagementAccess
	// From is the object through which a connection finds the talosconfig and the kubeconfig; nil if they are given.
	// Lent is the name of the Secret once they are read from it.
	From *CredentialsSource
	Lent string
	// Unknown are the attributes whose values are not known yet.
	Unknown []string
}

// borrow returns the credentials as read from the management cluster, or unchanged if they are given. unmanaged is
// why the configured management cluster cannot be used; nil if it can, or if none is configured. Errors wrap unmanaged or
// [errLent].
func (c Credentials) borrow(ctx context.Context, management *ManagementCluster, unmanaged error) (Credentials, error) {
	switch {
	case c.From == nil:
		return c, nil
	case unmanaged != nil:
		return Credentials{}, unmanaged
	case management == nil:
		return Credentials{}, fmt.Errorf("%w: %s is set without %s", errLent, attrname.CredentialsFrom, attrname.Management)
	}

	read, err := operator.ReadCredentials(ctx, management.Access, c.From.Namespace, c.From.Name)
	if err != nil {
		return Credentials{}, fmt.Errorf("%w: %s = %s: %w", errLent, attrname.CredentialsFrom, c.From, err)
	}

	c.Talosconfig, c.Kubeconfig, c.Lent = string(read.Talosconfig), string(read.Kubeconfig), read.Source

	return c, nil
}

// ContextName returns the wanted context; the one of the provider block if wanted is empty.
func (c Credentials) ContextName(wanted string) string {
	if wanted != "" {
		return wanted
	}

	return c.Context
}

// Talos returns the credentials of the Talos API for a context. Errors wrap [ErrUnknown], [ErrMissing], [errLent] or
// [ErrUnusable] and name the source.
func (c Credentials) talos(wanted string) (talosapi.Config, error) {
	if len(c.Unknown) > 0 {
		return talosapi.Config{}, fmt.Errorf("%w: %s", ErrUnknown, strings.Join(c.Unknown, ", "))
	}

	if c.fromParts() {
		return c.fromCertificate(wanted)
	}

	data, source, err := c.talosconfig()
	if err != nil {
		return talosapi.Config{}, err
	}

	config, err := talosapi.ParseConfig(data, c.ContextName(wanted))
	if err != nil {
		return talosapi.Config{}, fmt.Errorf("%w: %s: %w", ErrUnusable, source, err)
	}

	return config, nil
}

// fromParts reports whether a certificate is given and no attribute for a talosconfig. The environment is ignored then.
func (c Credentials) fromParts() bool {
	return c.Talosconfig == "" && c.TalosconfigPath == "" && c.Certificate != nil
}

// fromCertificate is [Credentials.parts]. If a context is named, an error that wraps [ErrUnusable] is returned.
func (c Credentials) fromCertificate(wanted string) (talosapi.Config, error) {
	if name := c.ContextName(wanted); name != "" {
		return talosapi.Config{}, fmt.Errorf("%w: context %q cannot be looked up in endpoints and client_configuration, which have none; remove context, or use talosconfig",
			ErrUnusable, name)
	}

	return c.parts()
}

// ContextRef is a context that the credentials name. Its cluster may not answer.
type ContextRef struct {
	// Wanted is how a resource names it; empty for the one that is used if none is named.
	Wanted string
	// Name is its name in the talosconfig; empty if there is none.
	Name string
}

// Contexts returns the contexts that the credentials reach, sorted by name. Credentials of a single cluster, such as
// those from a management cluster, are one context without a name. Errors are those of [Credentials.Talos]. Nothing
// is contacted.
func (c Credentials) Contexts() ([]ContextRef, error) {
	switch {
	case len(c.Unknown) > 0:
		return nil, fmt.Errorf("%w: %s", ErrUnknown, strings.Join(c.Unknown, ", "))
	case c.From != nil, c.fromParts():
		return []ContextRef{{}}, nil
	}

	data, source, err := c.talosconfig()
	if err != nil {
		return nil, err
	}

	names, own, err := talosapi.Contexts(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnusable, source, err)
	}

	if own = cmp.Or(c.Context, own); own != "" && !slices.Contains(names, own) {
		_, err := c.talos("")

		return nil, err
	}

	refs := make([]ContextRef, 0, len(names))

	for _, name := range names {
		ref := ContextRef{Wanted: name, Name: name}
		if name == own {
			ref.Wanted = ""
		}

		refs = append(refs, ref)
	}

	return refs, nil
}

// AbsentContext reports whether the error is that the talosconfig has no such context.
func AbsentContext(err error) bool { return errors.Is(err, talosapi.ErrNoContext) }

// parts returns the endpoints with their certificate. Errors wrap [ErrUnusable].
func (c Credentials) parts() (talosapi.Config, error) {
	config, err := talosapi.ConfigFromParts(c.Endpoints, c.Certificate.CA, c.Certificate.Cert, c.Certificate.Key)
	if err != nil {
		return talosapi.Config{}, fmt.Errorf("%w: endpoints and client_configuration: %w", ErrUnusable, err)
	}

	return config, nil
}

// talosconfig returns the content of the talosconfig and the name of its source.
func (c Credentials) talosconfig() (data []byte, source string, err error) {
	if c.Lent != "" {
		return []byte(c.Talosconfig), c.lent("talosconfig"), nil
	}

	if c.From != nil {
		return nil, "", fmt.Errorf("%w: %s was not read", errLent, attrname.CredentialsFrom)
	}

	if c.Talosconfig != "" {
		return []byte(c.Talosconfig), "provider attribute talosconfig", nil
	}

	if c.TalosconfigPath != "" {
		return readCredentials(c.TalosconfigPath, "provider attribute talosconfig_path")
	}

	if file := os.Getenv(talosconfigEnv); file != "" {
		return readCredentials(file, "environment variable "+talosconfigEnv)
	}

	return nil, "", ErrMissing
}

// lent returns a name for what was read from the management cluster.
func (c Credentials) lent(what string) string {
	return what + " in " + c.Lent + ", where " + attrname.CredentialsFrom + " leads"
}

// UnusableAttribute is an attribute of the provider block with which no cluster can be reached. The error wraps
// [ErrUnusable].
type UnusableAttribute struct {
	Name string
	Err  error
}

// Unusable returns the attributes whose values cannot be used, whichever context is chosen: talosconfig, kubeconfig,
// their paths, and client_configuration. It reads files and contacts nothing. Values that are not known yet are not
// checked; nor is client_configuration if endpoints are unknown.
func (c Credentials) Unusable() []UnusableAttribute {
	var found []UnusableAttribute

	for _, given := range []struct {
		name, text, file string
		check            func([]byte) error
	}{
		{attrname.Talosconfig, c.Talosconfig, "", talosapi.CheckConfig},
		{attrname.TalosconfigPath, "", c.TalosconfigPath, talosapi.CheckConfig},
		{attrname.Kubeconfig, c.Kubeconfig, "", kubeapi.CheckConfig},
		{attrname.KubeconfigPath, "", c.KubeconfigPath, kubeapi.CheckConfig},
	} {
		if given.text == "" && given.file == "" {
			continue
		}

		data, source, err := []byte(given.text), "provider attribute "+given.name, error(nil)
		if given.file != "" {
			data, source, err = readCredentials(given.file, source)
		}

		if err == nil {
			if wrong := given.check(data); wrong != nil {
				err = fmt.Errorf("%w: %s: %w", ErrUnusable, source, wrong)
			}
		}

		if err != nil {
			found = append(found, UnusableAttribute{given.name, err})
		}
	}

	certain := !slices.Contains(c.Unknown, attrname.ClientConfiguration) && !slices.Contains(c.Unknown, attrname.Endpoints)
	if certain && c.Certificate != nil {
		if _, err := c.parts(); err != nil {
			found = append(found, UnusableAttribute{attrname.ClientConfiguration, err})
		}
	}

	return found
}

// kubeconfig returns the kubeconfig that was given or read from the management cluster; nil if there is none, and the
// Talos API is to be asked.
func (c Credentials) kubeconfig() ([]byte, error) {
	if c.Kubeconfig != "" {
		return []byte(c.Kubeconfig), nil
	}

	if c.KubeconfigPath == "" {
		return nil, nil
	}

	data, _, err := readCredentials(c.KubeconfigPath, "provider attribute kubeconfig_path")

	return data, err
}

func readCredentials(file, source string) ([]byte, string, error) {
	expanded, err := attribute.ExpandHome(file)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s: %w", ErrUnusable, source, err)
	}

	data, err := os.ReadFile(expanded)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s: %w", ErrUnusable, source, err)
	}

	return data, source + " (" + file + ")", nil
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

// apiServerPort is the default port of API servers in Talos. The port of a kubeconfig may be the one of a load
// balancer.
const apiServerPort = "6443"

// serverAddresses are the possible addresses of a cluster's API servers, for use while the address in the kubeconfig
// does not answer: every control plane runs one. The zero value has none.
type serverAddresses struct {
	mu    sync.Mutex
	port  string
	hosts []string
	// observed is true if hosts are from an observation rather than guessed.
	observed bool
	// tunnel is true if the server of the kubeconfig is this machine, as with a forwarded port. From here, the
	// addresses of nodes may lead nowhere, or elsewhere.
	tunnel bool
}

// at sets the port and tunnel from the URL of the kubeconfig's server. Without a port, it is 443. If the URL is invalid,
// nothing changes.
func (s *serverAddresses) at(server string) {
	parsed, err := url.Parse(server)
	if err != nil {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.port = cmp.Or(parsed.Port(), "443")
	s.tunnel = loopback(parsed.Hostname())
}

func loopback(host string) bool {
	ip := net.ParseIP(host)

	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// expect sets the hosts from the endpoints of the Talos API, which usually are control planes, unless hosts were
// observed.
func (s *serverAddresses) expect(endpoints ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.observed {
		return
	}

	s.hosts = nil

	for _, endpoint := range endpoints {
		s.hosts = append(s.hosts, HostOf(endpoint))
	}
}

// HostOf returns the host of an endpoint of the Talos API, which may be a host, a host with a port, or a URL.
func HostOf(endpoint string) string {
	if parsed, err := url.Parse(endpoint); err == nil && parsed.Host != "" {
		return parsed.Hostname()
	}

	if host, _, err := net.SplitHostPort(endpoint); err == nil {
		return host
	}

	return strings.Trim(endpoint, "[]")
}

// notice sets the hosts from the control planes of an observation, after which [serverAddresses.expect] has no effect.
// If none has an address, nothing changes.
func (s *serverAddresses) notice(observed cluster.Observation) {
	var hosts []string

	for _, node := range observed.ControlPlanes() {
		if node.Address != "" {
			hosts = append(hosts, node.Address)
		}
	}

	if len(hosts) == 0 {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.hosts, s.observed = hosts, true
}

// addresses returns candidates for the API servers, as host:port: every host with [apiServerPort], then every host with
// the port of the kubeconfig, which is rarely that of the nodes. If the server of the kubeconfig is this machine, nil is
// returned.
func (s *serverAddresses) addresses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.tunnel {
		return nil
	}

	var addresses []string

	for _, port := range slices.Compact([]string{apiServerPort, cmp.Or(s.port, apiServerPort)}) {
		for _, host := range s.hosts {
			addresses = append(addresses, net.JoinHostPort(host, port))
		}
	}

	return addresses
}
