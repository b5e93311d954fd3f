// SPDX-License-Identifier: MPL-2.0

// Package kubeapi accesses the Kubernetes API of a cluster: its nodes, the pods that a drain moves, the objects
// that gates read, and the lease and the journal, which make an upgrade safe to interrupt. It implements
// [cluster.Kubernetes], [cluster.WorkloadReader], [cluster.ObjectAccess] and [cluster.SecretAccess], and makes no
// decisions.
//
// Its own scheme has the few API groups that it knows by type; objects of any other kind are JSON.
package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

var (
	_ cluster.Kubernetes     = (*Client)(nil)
	_ cluster.WorkloadReader = (*Client)(nil)
	_ cluster.ObjectAccess   = (*Client)(nil)
	_ cluster.SecretAccess   = (*Client)(nil)
	_ cluster.WorkloadReader = unavailable{}
	_ cluster.ObjectAccess   = unavailable{}
	_ cluster.SecretAccess   = unavailable{}
)

// Names of the objects, annotations and labels that an upgrade leaves in a cluster. People and other tools may rely
// on them.
const (
	// Namespace holds the lease, the journal and the published annotations.
	Namespace = "kube-system"
	// LeaseName is the lease that serialises upgrades.
	LeaseName = "talosupgrade"
	// JournalName is the ConfigMap that remembers unfinished work.
	JournalName = "talosupgrade-journal"
	// PublishedName is the ConfigMap that carries the annotations.
	PublishedName = "talosupgrade"
	// CordonAnnotation marks a cordon as ours; its value names the run.
	CordonAnnotation = "talosupgrade.vitistack.io/cordoned-by"
	// ClaimAnnotation is what a run that follows the nodes writes to one of them. Once the watch delivers the
	// write, it has delivered everything before it as well. The value means nothing, and Uncordon removes the
	// annotation.
	ClaimAnnotation = "talosupgrade.vitistack.io/claim"
	// ClusterAnnotation is the ID of the cluster that an object of ours belongs to.
	ClusterAnnotation = "talosupgrade.vitistack.io/cluster-id"
	// ManagedByLabel and ManagedBy mark our objects.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "terraform-provider-talosupgrade"
)

// Timeouts of connections. Without the pings, a connection that lost its peer would stay in use for 45 seconds or
// more.
const (
	dialTimeout     = 5 * time.Second
	sendPingTimeout = 5 * time.Second
	pingTimeout     = 5 * time.Second
	idleTimeout     = 90 * time.Second
)

// Options adjust a [Client]. The zero value works.
type Options struct {
	// UserAgent names the caller to the API server.
	UserAgent string
	// SelfContained refuses a kubeconfig whose context runs a program or reads files. It is for one that comes from
	// another machine, which must not choose what runs, or which files are read, on this one.
	SelfContained bool
	// DialContext opens connections; nil dials TCP.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// Transport carries the requests; nil opens connections. If it is set, DialContext and Alternatives are not
	// used.
	Transport http.RoundTripper
	// Alternatives returns other API servers of the same cluster as host:port, which are tried if the one in the
	// kubeconfig cannot be reached. It is called each time, from any goroutine, and must not block. It is ignored
	// if the kubeconfig names a proxy or if the certificate of the server is not verified.
	Alternatives func() []string
	// Sleep waits between two reads of a lease and before a read is repeated; nil waits on the real clock. It
	// returns the error of a context that ended first. Several goroutines may call it at once.
	Sleep func(ctx context.Context, duration time.Duration) error
}

// Client speaks to one Kubernetes API. It is safe for concurrent use.
type Client struct {
	core         rest.Interface
	coordination rest.Interface
	config       *rest.Config
	server       *url.URL
	http         *http.Client
	transport    *http.Transport
	lines        *lines
	sleep        func(ctx context.Context, duration time.Duration) error
	clusterID    atomic.Pointer[string]
	follower     atomic.Pointer[follower]
	kinds        kinds
	// journalRead and journalWritten are the journal as this client last read and last wrote it; nil before.
	journalRead, journalWritten atomic.Pointer[cluster.Journal]
}

// New makes a client from a kubeconfig (YAML) and one of its contexts, or the current one if the name is empty. It
// opens no connection. Errors wrap [ErrConfig] and never quote the content. The caller must call [Client.Close].
func New(kubeconfig []byte, contextName string, options Options) (*Client, error) {
	config, err := parseKubeconfig(kubeconfig, contextName, options.SelfContained)
	if err != nil {
		return nil, err
	}

	config.UserAgent = options.UserAgent
	config.QPS = -1 // the engine paces itself
	// Warnings of the API server would go to standard error, where the plugin must not write.
	config.WarningHandler = rest.NoWarnings{}

	c := &Client{config: config, sleep: options.Sleep}
	if c.sleep == nil {
		c.sleep = sleep
	}

	if err := c.connect(options); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}

	return c, nil
}

// Identify sets the ID of the cluster that the client is connected to, once it is known. Objects written from then
// on carry the ID, and [Client.Forget] compares it.
func (c *Client) Identify(id string) { c.clusterID.Store(&id) }

// ClusterID returns the ID that [Client.Identify] set last; empty before.
func (c *Client) ClusterID() string {
	if id := c.clusterID.Load(); id != nil {
		return *id
	}

	return ""
}

// Close ends all connections, including those that are still being opened. Requests fail from then on.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	c.lines.close()
}

// Config returns the connection as client-go describes it, for other clients of the same API. With or without
// [Client.HTTPClient], they share the connections, the credentials and the alternatives of this client, and must
// not outlive it.
func (c *Client) Config() *rest.Config {
	return &rest.Config{
		Host:           c.server.String(),
		UserAgent:      c.config.UserAgent,
		QPS:            c.config.QPS,
		WarningHandler: c.config.WarningHandler,
		Transport:      c.http.Transport,
	}
}

// HTTPClient returns the HTTP client whose connections are shared and that [Client.Close] closes.
func (c *Client) HTTPClient() *http.Client { return c.http }

func (c *Client) connect(options Options) error {
	transportConfig, err := c.config.TransportConfig()
	if err != nil {
		return err
	}

	tlsConfig, err := transport.TLSConfigFor(transportConfig)
	if err != nil {
		return err
	}

	c.server, _, err = rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return err
	}

	dial := options.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}

	c.lines = newLines(dial)
	dial = c.lines.dial

	proxy := c.config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}

	c.transport = &http.Transport{
		Proxy:               proxy,
		DialContext:         dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout:     idleTimeout,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: sendPingTimeout, PingTimeout: pingTimeout},
	}

	if options.Alternatives != nil && c.config.Proxy == nil && c.provesIdentity(tlsConfig) {
		c.transport.DialTLSContext = newDialer(dial, tlsConfig, hostPort(c.server), options.Alternatives).connect
	}

	var carrier http.RoundTripper = c.transport
	if options.Transport != nil {
		carrier = options.Transport
	}

	wrapped, err := transport.HTTPWrappersForConfig(transportConfig, carrier)
	if err != nil {
		return err
	}

	codecs, err := newCodecs()
	if err != nil {
		return err
	}

	c.http = &http.Client{Transport: newProven(wrapped, codecs.UniversalDeserializer())}

	return c.openGroups(codecs)
}

// provesIdentity reports whether the certificate of the server is verified.
func (c *Client) provesIdentity(config *tls.Config) bool {
	return c.server.Scheme == "https" && config != nil && !config.InsecureSkipVerify
}

// hostPort returns the address that the transport dials for a URL.
func hostPort(server *url.URL) string {
	port := server.Port()
	if port == "" {
		port = "443"
	}

	return net.JoinHostPort(server.Hostname(), port)
}

func (c *Client) openGroups(codecs serializer.CodecFactory) (err error) {
	c.core, err = c.openGroup("/api", corev1.SchemeGroupVersion, codecs)
	if err != nil {
		return err
	}

	c.coordination, err = c.openGroup("/apis", coordinationv1.SchemeGroupVersion, codecs)

	return err
}

func (c *Client) openGroup(path string, group schema.GroupVersion, codecs serializer.CodecFactory) (rest.Interface, error) {
	config := rest.CopyConfig(c.config)
	config.APIPath = path
	config.GroupVersion = &group
	config.NegotiatedSerializer = codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

	client, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, err
	}

	return paced{Interface: client, sleep: c.sleep}, nil
}

// paced makes reads wait on the clock of the client before client-go repeats them: a second after a connection
// broke, or as long as the API server asked for. In a simulation with a faster clock, a second on the real clock
// would be minutes.
type paced struct {
	rest.Interface
	rest.NoBackoff

	sleep func(ctx context.Context, duration time.Duration) error
}

// Get implements [rest.Interface].
func (p paced) Get() *rest.Request { return p.Interface.Get().BackOffWithContext(&p) }

// SleepWithContext implements [rest.BackoffManagerWithContext]. The duration is 0 before a first attempt.
func (p *paced) SleepWithContext(ctx context.Context, duration time.Duration) {
	if duration > 0 {
		// client-go checks the context itself afterwards.
		_ = p.sleep(ctx, duration)
	}
}

// newCodecs is shared by all clients: making it takes longer than everything else about a client.
var newCodecs = sync.OnceValues(func() (serializer.CodecFactory, error) {
	scheme := runtime.NewScheme()

	err := errors.Join(
		corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), policyv1.AddToScheme(scheme),
		appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme),
	)

	return serializer.NewCodecFactory(scheme), err
})

func sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return cluster.Ended(ctx)
	case <-timer.C:
		return nil
	}
}

// ErrConfig is wrapped by every error of [New].
var ErrConfig = errors.New("kubeconfig not usable")

// CheckConfig returns an error unless it is given a kubeconfig, whatever the contexts contain. Errors are the same
// as those of [New].
func CheckConfig(kubeconfig []byte) error {
	_, err := loadKubeconfig(kubeconfig)

	return err
}

func loadKubeconfig(kubeconfig []byte) (*clientcmdapi.Config, error) {
	if strings.TrimSpace(string(kubeconfig)) == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrConfig)
	}

	if isTalosconfig(kubeconfig) {
		return nil, fmt.Errorf("%w: it is a talosconfig, which is for the Talos API; the Kubernetes API needs the file that kubectl uses (talosctl kubeconfig writes one)", ErrConfig)
	}

	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%w: malformed: %s", ErrConfig, withoutContent(err.Error()))
	}

	return parsed, nil
}

// ResolveFrom returns a kubeconfig that was read from the file, with the relative paths in it resolved from the directory
// of the file, as kubectl does. A kubeconfig without any, or that cannot be parsed, is returned as it is.
func ResolveFrom(file string, kubeconfig []byte) []byte {
	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return kubeconfig
	}

	var named []*string

	for _, one := range parsed.Clusters {
		one.LocationOfOrigin = file
		named = append(named, clientcmd.GetClusterFileReferences(one)...)
	}

	for _, one := range parsed.AuthInfos {
		one.LocationOfOrigin = file
		named = append(named, clientcmd.GetAuthInfoFileReferences(one)...)
	}

	if !slices.ContainsFunc(named, func(path *string) bool { return *path != "" && !filepath.IsAbs(*path) }) {
		return kubeconfig
	}

	if clientcmd.ResolveLocalPaths(parsed) != nil {
		return kubeconfig
	}

	resolved, err := clientcmd.Write(*parsed)
	if err != nil {
		return kubeconfig
	}

	return resolved
}

func parseKubeconfig(kubeconfig []byte, contextName string, selfContained bool) (*rest.Config, error) {
	parsed, err := loadKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}

	name, err := pickContext(parsed, contextName)
	if err != nil {
		return nil, err
	}

	chosen := parsed.Contexts[name]
	if err := checkAddresses(parsed.Clusters[chosen.Cluster]); err != nil {
		return nil, fmt.Errorf("%w: context %q: cluster %q: %w", ErrConfig, name, chosen.Cluster, err)
	}

	if outside := outsideOf(parsed.Clusters[chosen.Cluster], parsed.AuthInfos[chosen.AuthInfo]); selfContained && outside != "" {
		return nil, fmt.Errorf("%w: context %q has %s: a kubeconfig that comes from another machine must hold its credentials itself, because it could have any program run and any file read here",
			ErrConfig, name, outside)
	}

	config, err := clientcmd.NewNonInteractiveClientConfig(*parsed, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: context %q: %s", ErrConfig, name, withoutContent(err.Error()))
	}

	return config, nil
}

// isTalosconfig recognises a talosconfig by its contexts, which are a map by name there and a list in a kubeconfig.
func isTalosconfig(config []byte) bool {
	var talosconfig struct {
		Contexts map[string]struct {
			Endpoints []string `json:"endpoints"`
		} `json:"contexts"`
	}

	return yaml.Unmarshal(config, &talosconfig) == nil && len(talosconfig.Contexts) > 0
}

func pickContext(parsed *clientcmdapi.Config, wanted string) (string, error) {
	names := slices.Sorted(maps.Keys(parsed.Contexts))
	if len(names) == 0 {
		return "", fmt.Errorf("%w: it has no contexts", ErrConfig)
	}

	name, origin := wanted, "context"
	if name == "" {
		name, origin = parsed.CurrentContext, "current context"
	}

	if name == "" && len(names) == 1 {
		name = names[0]
	}

	if name == "" {
		return "", fmt.Errorf("%w: it names no current context, so one must be chosen: there are %s", ErrConfig, readable.QuotedList(names))
	}

	chosen := parsed.Contexts[name]
	if chosen == nil {
		return "", fmt.Errorf("%w: %s %q does not exist, there are %s", ErrConfig, origin, name, readable.QuotedList(names))
	}

	if parsed.Clusters[chosen.Cluster] == nil || parsed.Clusters[chosen.Cluster].Server == "" {
		return "", fmt.Errorf("%w: context %q: cluster %q has no server", ErrConfig, name, chosen.Cluster)
	}

	return name, nil
}

// checkAddresses returns an error if an address of the cluster is no URL. It quotes none of them, because there may be a
// password in it.
func checkAddresses(of *clientcmdapi.Cluster) error {
	server := of.Server
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}

	parsed, err := url.Parse(server)

	switch valid := err == nil && parsed.Hostname() != "" && !strings.HasSuffix(parsed.Host, ":"); {
	case valid && parsed.User == nil:
	case strings.Contains(server, "@"):
		return errors.New("server contains a user name or a password: set them as username and password of the user in the context")
	default:
		return errors.New("server is not an address such as https://10.0.0.1:6443")
	}

	if of.ProxyURL == "" {
		return nil
	}

	parsed, err = url.Parse(of.ProxyURL)
	if err != nil || parsed.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, parsed.Scheme) {
		return errors.New("proxy-url is not a URL such as http://proxy:3128, https://proxy:3128 or socks5://proxy:1080")
	}

	return nil
}

// outsideOf returns the first field of a context that names a program or a file; empty if there is none.
func outsideOf(of *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) string {
	if of.CertificateAuthority != "" {
		return "certificate-authority"
	}

	switch {
	case user == nil:
		return ""
	case user.Exec != nil:
		return "exec"
	case user.AuthProvider != nil:
		return "auth-provider"
	case user.TokenFile != "":
		return "tokenFile"
	case user.ClientCertificate != "":
		return "client-certificate"
	case user.ClientKey != "":
		return "client-key"
	default:
		return ""
	}
}

// content is what an error may quote of the document: words long enough for a key or a token, and what a parser of
// YAML could not use. A name that is there twice is followed by everything in its list, keys and passwords included.
var content = regexp.MustCompile("(?s) in list: .*| map key.*|`[^`]*`|[^\\s\"']{60,}|'[\\w-][^']+'")

// withoutContent removes from an error what it quotes of the document and could be a key, a token or a password.
func withoutContent(text string) string {
	return content.ReplaceAllString(strings.ReplaceAll(text, "\n", " "), "...")
}

const (
	// tryTimeout bounds connecting to one API server, handshake included, if there are others to try: three fit
	// into one call.
	tryTimeout = 3 * time.Second
	// preferAfter is how long an alternative that answered is tried first, before the server of the kubeconfig is
	// tried again.
	preferAfter = time.Minute
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialer connects to the API server in the kubeconfig or, if that one is down, to another one of the same cluster.
// It does the handshake itself, and always for the name in the kubeconfig: a server that cannot prove that identity
// counts as unreachable.
type dialer struct {
	dial dialFunc
	tls  *tls.Config
	// own is host:port of the server in the kubeconfig.
	own          string
	alternatives func() []string
	now          func() time.Time

	mu sync.Mutex
	// chosen is the alternative that answered last, and since is when.
	chosen string
	since  time.Time
}

func newDialer(dial dialFunc, config *tls.Config, own string, alternatives func() []string) *dialer {
	config = config.Clone()
	if len(config.NextProtos) == 0 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}

	return &dialer{dial: dial, tls: config, own: own, alternatives: alternatives, now: time.Now}
}

// connect is the DialTLSContext of the transport.
func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if address != d.own {
		return d.proxy(ctx, network, address)
	}

	chosen := d.preferred()
	if chosen != "" {
		if conn, err := d.try(ctx, network, chosen); err == nil {
			return conn, nil
		}

		d.choose("")
	}

	conn, err := d.try(ctx, network, d.own)
	if err == nil || ctx.Err() != nil || rejectsCredentials(err.Error()) {
		return conn, err
	}

	return d.elsewhere(ctx, network, chosen, err)
}

// proxy connects to a proxy from the environment. It speaks HTTP/1.1 to it and verifies the proxy's own name, even
// if the kubeconfig overrides the name of the server.
func (d *dialer) proxy(ctx context.Context, network, address string) (net.Conn, error) {
	config := d.tls.Clone()
	config.NextProtos, config.ServerName = nil, ""

	proxyCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()

	conn, err := handshake(proxyCtx, d.dial, config, network, address, address)
	if err != nil && proxyCtx.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no answer from proxy %s within %s: %w", address, dialTimeout, err)
	}

	return conn, err
}

// elsewhere tries the alternatives in turn, except the one that has already failed. The error is that of the server
// in the kubeconfig, whose address users can look up, followed by the addresses that were tried.
func (d *dialer) elsewhere(ctx context.Context, network, failed string, own error) (net.Conn, error) {
	var tried []string

	if failed != "" {
		tried = append(tried, failed)
	}

	for _, address := range d.alternatives() {
		if address == d.own || slices.Contains(tried, address) || ctx.Err() != nil {
			continue
		}

		conn, err := d.try(ctx, network, address)
		if err == nil {
			d.choose(address)

			return conn, nil
		}

		if rejectsCredentials(err.Error()) {
			address += " (which is not an API server of this cluster)"
		}

		tried = append(tried, address)
	}

	if len(tried) == 0 {
		return nil, own
	}

	return nil, fmt.Errorf("%w; neither could be connected to: %s", own, strings.Join(tried, ", "))
}

func (d *dialer) try(ctx context.Context, network, address string) (net.Conn, error) {
	tryCtx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()

	conn, err := handshake(tryCtx, d.dial, d.tls, network, address, d.own)
	if err != nil && tryCtx.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no answer from %s within %s: %w", address, tryTimeout, err)
	}

	return conn, err
}

// handshake connects to address and expects a certificate for the host of expected.
func handshake(ctx context.Context, dial dialFunc, config *tls.Config, network, address, expected string) (net.Conn, error) {
	raw, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}

	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(expected)
		if err != nil {
			return nil, errors.Join(err, raw.Close())
		}

		config = config.Clone()
		config.ServerName = host
	}

	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()

		return nil, err
	}

	return conn, nil
}

// preferred returns the alternative to try first; empty if there is none, or once preferAfter has passed.
func (d *dialer) preferred() string {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.chosen != "" && d.now().Sub(d.since) >= preferAfter {
		d.chosen = ""
	}

	return d.chosen
}

func (d *dialer) choose(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.chosen, d.since = address, d.now()
}

// lines tracks the connections of a client, so that none outlives it: a transport keeps a connection that was still
// being opened when its idle connections were closed.
type lines struct {
	open dialFunc

	mu     sync.Mutex
	made   map[*line]struct{}
	closed bool
}

func newLines(open dialFunc) *lines { return &lines{open: open, made: map[*line]struct{}{}} }

// dial opens a connection. After close, the error is net.ErrClosed.
func (l *lines) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if l.ended() {
		return nil, net.ErrClosed
	}

	conn, err := l.open(ctx, network, address)
	if err != nil {
		return nil, err
	}

	made := &line{Conn: conn, of: l}

	if !l.add(made) {
		_ = conn.Close()

		return nil, net.ErrClosed
	}

	return made, nil
}

func (l *lines) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.closed
}

// add reports whether the connection was added; after close, it is not.
func (l *lines) add(made *line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.closed {
		l.made[made] = struct{}{}
	}

	return !l.closed
}

func (l *lines) remove(gone *line) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.made, gone)
}

func (l *lines) close() {
	l.mu.Lock()
	l.closed = true
	left := l.made
	l.made = map[*line]struct{}{}
	l.mu.Unlock()

	for conn := range left {
		_ = conn.Conn.Close()
	}
}

// line is one connection of a client.
type line struct {
	net.Conn

	of *lines
}

// Close implements [net.Conn].
func (l *line) Close() error {
	l.of.remove(l)

	return l.Conn.Close()
}

const (
	// callTimeout bounds one request, on the real clock.
	callTimeout = 10 * time.Second
	// readRetries is how often client-go repeats a read after a connection broke. Requests that change something
	// are never repeated.
	readRetries = 1
)

// read carries out a GET and decodes the answer, unless into is nil.
func read(ctx context.Context, what string, request *rest.Request, into runtime.Object) error {
	return do(ctx, operation{what: what}, carryOut(request.MaxRetries(readRetries), into))
}

// readRaw carries out a GET and returns the answer as JSON, unchanged. An answer of more than most bytes is not
// read to its end, and the error then wraps errTooLarge beside ErrRefused.
func readRaw(ctx context.Context, what string, request *rest.Request, most int64) ([]byte, error) {
	var answer []byte

	request = request.MaxRetries(readRetries).SetHeader("Accept", runtime.ContentTypeJSON)

	err := do(ctx, operation{what: what}, func(ctx context.Context) (err error) {
		answer, err = readUpTo(ctx, request, most+1)

		return err
	})
	if err != nil {
		return nil, err
	}

	if int64(len(answer)) > most {
		return nil, refuse(what, "the answer is too large", errTooLarge)
	}

	return answer, nil
}

func readUpTo(ctx context.Context, request *rest.Request, most int64) ([]byte, error) {
	stream, err := request.Stream(ctx)

	// client-go does the same for requests whose whole answer it reads.
	for attempt := 1; attempt <= readRetries && err != nil && broke(err); attempt++ {
		stream, err = request.Stream(ctx)
	}

	if err != nil {
		return nil, err
	}

	answer, err := io.ReadAll(io.LimitReader(stream, most))

	return answer, errors.Join(err, stream.Close())
}

// broke reports whether the connection ended before there was an answer.
func broke(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// change carries out any other request, once.
func change(ctx context.Context, what string, request *rest.Request, into runtime.Object) error {
	return do(ctx, operation{what: what, mutates: true}, carryOut(request.MaxRetries(0), into))
}

// versionOnly asks for a table without rows of objects in answer to a change; the resource version of the object
// stands beside the rows. An API server without tables answers with the object, which has its version in the same
// place.
const versionOnly = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// changeForVersion is change for requests of which only the new resource version is needed: the object may be
// large.
func changeForVersion(ctx context.Context, what string, request *rest.Request) (resourceVersion string, err error) {
	var answer metav1.PartialObjectMetadata

	request = request.MaxRetries(0).SetHeader("Accept", versionOnly).Param("includeObject", string(metav1.IncludeNone))

	err = do(ctx, operation{what: what, mutates: true}, func(ctx context.Context) error {
		raw, err := request.DoRaw(ctx)
		if err != nil {
			return err
		}

		return json.Unmarshal(raw, &answer)
	})

	return answer.ResourceVersion, err
}

// carryOut sends a request and decodes the answer, unless into is nil.
func carryOut(request *rest.Request, into runtime.Object) func(context.Context) error {
	return func(ctx context.Context) error {
		result := request.Do(ctx)
		if err := result.Error(); err != nil || into == nil {
			return err
		}

		return result.Into(into)
	}
}

// do bounds the time of a request and gives its error a meaning.
func do(ctx context.Context, op operation, send func(context.Context) error) error {
	var sent atomic.Bool

	callCtx, cancel := context.WithTimeoutCause(ctx, callTimeout, cluster.Unanswered(callTimeout))
	defer cancel()

	// Nothing can have been sent before there is a connection.
	callCtx = httptrace.WithClientTrace(callCtx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})

	err := send(callCtx)
	if err == nil {
		return nil
	}

	return explain(ctx, op, sent.Load(), err)
}

// proven passes requests on and remembers which of them the API server has carried out. If it later refuses one of
// them for a missing permission, the request fails as if there had been no answer: an API server that has just
// started, as each of them does while its control plane is upgraded, serves requests before it has read the
// permissions. If a permission was really taken away, that shows once the wait for the API server ends.
type proven struct {
	http.RoundTripper

	decoder runtime.Decoder

	mu      sync.Mutex
	allowed map[string]bool
}

func newProven(next http.RoundTripper, decoder runtime.Decoder) *proven {
	return &proven{RoundTripper: next, decoder: decoder, allowed: map[string]bool{}}
}

// maxRefusal is how much of a refusal is read, in bytes.
const maxRefusal = 64 << 10

// RoundTrip implements [http.RoundTripper].
func (p *proven) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := p.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}

	asked := request.Method + " " + kindOf(request.URL.Path)

	p.mu.Lock()
	before := p.allowed[asked]

	if answer.StatusCode < http.StatusMultipleChoices {
		p.allowed[asked] = true
	}
	p.mu.Unlock()

	if answer.StatusCode != http.StatusForbidden || !before {
		return answer, nil
	}

	return p.refused(answer)
}

// kindOf returns a request path as permissions see it: without the name of the object. For pods the namespace is
// left out as well: there are many of them in many namespaces, and if the credentials may evict one but not all,
// the drain has already failed.
func kindOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")

	group := 3
	if parts[0] == "api" {
		group = 2
	}

	if len(parts) <= group {
		return path
	}

	kind, rest := parts[:group], parts[group:]

	if rest[0] == "namespaces" && len(rest) > 2 {
		if rest[2] != "pods" {
			kind = append(slices.Clone(kind), rest[1])
		}

		rest = rest[2:]
	}

	kind = append(slices.Clone(kind), rest[0])
	if len(rest) > 1 {
		// Reading one object and listing all of them are two permissions.
		kind = append(append(kind, "*"), rest[2:]...)
	}

	return strings.Join(kind, "/")
}

// refused reads the reason of a refusal: an admission webhook answers with the same code but means something else.
func (p *proven) refused(answer *http.Response) (*http.Response, error) {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	if err != nil {
		_ = answer.Body.Close()

		return nil, err
	}

	why := "no reason given"
	if decoded, _, err := p.decoder.Decode(text, nil, nil); err == nil {
		if status, ok := decoded.(*metav1.Status); ok {
			why = status.Message
		}
	}

	if deniedByAdmission(why) {
		answer.Body = reread{io.MultiReader(bytes.NewReader(text), answer.Body), answer.Body}

		return answer, nil
	}

	_ = answer.Body.Close()

	return nil, fmt.Errorf("the API server refuses what it has allowed before, as one does that has just started: %s (HTTP %d)", why, answer.StatusCode)
}

// reread is a body that begins with what has been read from it already.
type reread struct {
	io.Reader
	io.Closer
}

// Expiry returns when the first of the client certificates in a kubeconfig expires; zero if none can be read.
func Expiry(kubeconfig []byte) time.Time {
	var first time.Time

	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return first
	}

	for _, user := range parsed.AuthInfos {
		block, _ := pem.Decode(user.ClientCertificateData)
		if block == nil {
			continue
		}

		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}

		if first.IsZero() || certificate.NotAfter.Before(first) {
			first = certificate.NotAfter
		}
	}

	return first
}
