// SPDX-License-Identifier: MPL-2.0

// Package talosapi accesses the machines of a cluster over the Talos API. It implements [cluster.Talos] and gives
// libraries that read the state of a node themselves access to it ([Client.State]). What to do and when is decided
// elsewhere.
//
// Every call is addressed to one node with single-valued "node" metadata and goes through any endpoint that
// answers. Resources are read as raw COSI messages rather than through machinery's typed state, because the typed
// decoder rejects machine configurations with documents it does not know. They are changed as text for the same
// reason: nothing but an image may differ afterwards.
package talosapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/client/dialer"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

var _ cluster.Talos = (*Client)(nil)

// Deadlines of single calls. They run on the real clock: how long a call takes depends on the network and not on
// the schedule of the engine.
const (
	readTimeout       = 10 * time.Second
	mountsTimeout     = 3 * time.Second
	rebootTimeout     = 30 * time.Second
	applyTimeout      = 60 * time.Second
	kubeconfigTimeout = 30 * time.Second
	installTimeout    = 15 * time.Minute
	// followTimeout bounds what a node does between accepting a legacy upgrade and the end of its installer: its
	// own drain of at most five minutes, stopping its services, and the installer.
	followTimeout = 15 * time.Minute
	// legacyTimeout leaves room for the pull that the legacy call makes before it answers, to which a node gives 20
	// minutes.
	legacyTimeout = 25 * time.Minute
)

// Connection behaviour. An endpoint that rebooted should be found again within seconds, which gRPC's default
// back-off of up to two minutes would not allow.
const (
	minBackoff     = 200 * time.Millisecond
	maxBackoff     = 2 * time.Second
	connectTimeout = 5 * time.Second
	// pingInterval must not be less than five minutes: apid closes connections with more frequent pings.
	pingInterval = 6 * time.Minute
	pingTimeout  = 20 * time.Second
)

// Options adjust a [Client]. The zero value is what a released provider uses.
type Options struct {
	// DialContext opens the connection to an endpoint ("host:port"); nil dials
	// TCP and honours the proxy settings of the environment.
	DialContext func(ctx context.Context, address string) (net.Conn, error)
	// UserAgent names the caller to the nodes.
	UserAgent string
}

// Client speaks to all machines of one cluster. It is safe for concurrent use.
type Client struct {
	config    Config
	dial      func(ctx context.Context, address string) (net.Conn, error)
	endpoints []*endpoint
	// preferred is the index of the endpoint that answered last.
	preferred atomic.Int64
	// proven is true once an endpoint has accepted the credentials.
	proven atomic.Bool
	// hung has the nodes, by address, whose mounts did not answer, each as [hungMounts].
	hung sync.Map
	// clusterID is the ID of the cluster, once it is known.
	clusterID atomic.Pointer[string]
}

// New prepares connections to the endpoints of the configuration. Nothing is dialled before the first call. The
// caller must call [Client.Close].
func New(config Config, options Options) (*Client, error) {
	if len(config.endpoints) == 0 {
		return nil, fmt.Errorf("%w: it has no endpoints", ErrConfig)
	}

	if options.DialContext == nil {
		options.DialContext = dialer.DynamicProxyDialer
	}

	c := &Client{config: config, dial: options.DialContext}

	for _, name := range config.endpoints {
		opened, err := newEndpoint(name, config, options)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: endpoint %s: %w", ErrConfig, name, err), c.Close())
		}

		c.endpoints = append(c.endpoints, opened)
	}

	return c, nil
}

// Close ends all connections and the calls that are still running on them.
func (c *Client) Close() error {
	var failures []error

	for _, endpoint := range c.endpoints {
		failures = append(failures, endpoint.api.Close())
	}

	return errors.Join(failures...)
}

// Config returns the configuration of the client.
func (c *Client) Config() Config { return c.config }

// Roles returns the roles in the client certificate, such as "os:admin".
func (c *Client) Roles() []string { return slices.Clone(c.config.certificate.roles) }

func newEndpoint(name string, config Config, options Options) (*endpoint, error) {
	host, port, err := splitEndpoint(name)
	if err != nil {
		return nil, err
	}

	credentials := config.context
	credentials.Endpoints = []string{net.JoinHostPort(host, port)}

	api, err := client.New(
		context.Background(), // unused: the first call makes the connection
		client.WithConfigContext(&credentials),
		client.WithGRPCDialOptions(dialOptions(options)...),
	)
	if err != nil {
		return nil, err
	}

	return &endpoint{name: name, host: host, address: credentials.Endpoints[0], api: api}, nil
}

func dialOptions(options Options) []grpc.DialOption {
	dialOptions := []grpc.DialOption{
		grpc.WithContextDialer(options.DialContext),
		// Endpoints are control planes, never services that publish settings in DNS.
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}),
		grpc.WithChainUnaryInterceptor(noteUnary),
		grpc.WithChainStreamInterceptor(noteStream),
	}

	if options.UserAgent != "" {
		dialOptions = append(dialOptions, grpc.WithUserAgent(options.UserAgent))
	}

	return dialOptions
}

// ErrConfig is wrapped by every error of [ParseConfig] and [ConfigFromParts]. ErrNoContext is wrapped by that of
// [ParseConfig] if the talosconfig has no context with the given name.
var (
	ErrConfig    = errors.New("talosconfig not usable")
	ErrNoContext = errors.New("does not exist")
)

// Config is a parsed and checked set of credentials for one cluster. It holds secrets: print nothing but what its
// methods return.
type Config struct {
	name        string
	endpoints   []string
	context     clientconfig.Context
	certificate Certificate
}

// ParseConfig reads a talosconfig (YAML) and picks the named context, or the current one if the name is empty.
// Errors wrap [ErrConfig] and never quote the content.
func ParseConfig(talosconfig []byte, context string) (Config, error) {
	parsed, err := parseConfig(talosconfig)
	if err != nil {
		return Config{}, err
	}

	name, err := pickContext(parsed, context)
	if err != nil {
		return Config{}, err
	}

	config, err := newConfig(name, *parsed.Contexts[name])
	if err != nil {
		return Config{}, fmt.Errorf("%w: context %q: %w", ErrConfig, name, err)
	}

	return config, nil
}

// Contexts returns the sorted names of the contexts in a talosconfig (YAML), and the one that [ParseConfig] picks
// if none is named; current is empty if one has to be named. Errors are the same as those of [ParseConfig].
func Contexts(talosconfig []byte) (names []string, current string, err error) {
	parsed, err := parseConfig(talosconfig)
	if err != nil {
		return nil, "", err
	}

	current, unchosen := pickContext(parsed, "")
	if len(parsed.Contexts) == 0 {
		return nil, "", unchosen
	}

	return slices.Sorted(maps.Keys(parsed.Contexts)), current, nil
}

// CheckConfig returns an error unless it is given a talosconfig, whatever the contexts contain. Errors are the same
// as those of [ParseConfig].
func CheckConfig(talosconfig []byte) error {
	_, err := parseConfig(talosconfig)

	return err
}

func parseConfig(talosconfig []byte) (*clientconfig.Config, error) {
	if strings.TrimSpace(string(talosconfig)) == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrConfig)
	}

	if isKubeconfig(talosconfig) {
		return nil, fmt.Errorf("%w: it is a kubeconfig, which is for the Kubernetes API; the Talos API needs the file that talosctl uses", ErrConfig)
	}

	parsed, err := clientconfig.FromBytes(talosconfig)
	if err != nil {
		return nil, fmt.Errorf("%w: malformed YAML: %s", ErrConfig, withoutQuotes(err.Error()))
	}

	return parsed, nil
}

// isKubeconfig recognises a kubeconfig by fields that no talosconfig has.
func isKubeconfig(config []byte) bool {
	var kubeconfig struct {
		Clusters []yaml.Node `yaml:"clusters"`
		Users    []yaml.Node `yaml:"users"`
	}

	return yaml.Unmarshal(config, &kubeconfig) == nil && (kubeconfig.Clusters != nil || kubeconfig.Users != nil)
}

// ConfigFromParts returns the credentials that the siderolabs/talos provider emits as client_configuration: ca,
// cert and key are base64 of PEM. Errors wrap [ErrConfig] and never quote the content.
func ConfigFromParts(endpoints []string, ca, cert, key string) (Config, error) {
	config, err := newConfig("", clientconfig.Context{Endpoints: endpoints, CA: ca, Crt: cert, Key: key})
	if err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}

	return config, nil
}

// Context returns the name of the context that the credentials are from; empty after [ConfigFromParts].
func (c Config) Context() string { return c.name }

// Endpoints returns the addresses of the Talos API as the configuration lists them.
func (c Config) Endpoints() []string { return slices.Clone(c.endpoints) }

// Certificate returns the facts about the client certificate.
func (c Config) Certificate() Certificate { return c.certificate }

// String describes the configuration without its secrets.
func (c Config) String() string {
	if c.name == "" {
		return "client configuration for " + strings.Join(c.endpoints, ", ")
	}

	return fmt.Sprintf("talosconfig context %q", c.name)
}

// GoString keeps the secrets out of %#v.
func (c Config) GoString() string { return c.String() }

func pickContext(parsed *clientconfig.Config, wanted string) (string, error) {
	names := slices.Sorted(maps.Keys(parsed.Contexts))
	if len(names) == 0 {
		return "", fmt.Errorf("%w: it has no contexts", ErrConfig)
	}

	name, origin := wanted, "context"
	if name == "" {
		name, origin = parsed.Context, "current context"
	}

	if name == "" && len(names) == 1 {
		name = names[0]
	}

	if name == "" {
		return "", fmt.Errorf("%w: it names no current context, so one must be chosen: there are %s", ErrConfig, readable.QuotedList(names))
	}

	if parsed.Contexts[name] == nil {
		return "", fmt.Errorf("%w: %s %q %w, there are %s", ErrConfig, origin, name, ErrNoContext, readable.QuotedList(names))
	}

	return name, nil
}

func newConfig(name string, context clientconfig.Context) (Config, error) {
	if context.Auth.SideroV1 != nil && context.Crt == "" {
		return Config{}, errors.New("it signs in through Omni (auth.siderov1), which is not supported: use a talosconfig with a client certificate")
	}

	endpoints, err := checkEndpoints(context.Endpoints)
	if err != nil {
		return Config{}, err
	}

	certificate, err := checkCredentials(context)
	if err != nil {
		return Config{}, err
	}

	if err := checkProxy(context.ProxyURL); err != nil {
		return Config{}, err
	}

	// Only the certificate signs in. The client would start a browser for the other way, at an address that the
	// endpoint names, and keep files here.
	context.Auth.SideroV1 = nil

	return Config{name: name, endpoints: endpoints, context: context, certificate: certificate}, nil
}

// checkProxy returns an error if the proxy of a context is none that the client can use. It does not quote it, because
// there may be a password in it.
func checkProxy(proxy string) error {
	if proxy == "" || proxy == "direct" {
		return nil
	}

	parsed, err := url.Parse(proxy)
	if err != nil || parsed.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, parsed.Scheme) {
		return errors.New("proxy-url is neither direct nor a URL such as http://proxy:3128, https://proxy:3128 or socks5://proxy:1080")
	}

	return nil
}

func checkEndpoints(endpoints []string) ([]string, error) {
	var checked []string

	for _, endpoint := range endpoints {
		endpoint = strings.TrimSpace(endpoint)
		if _, _, err := splitEndpoint(endpoint); err != nil {
			return nil, err
		}

		if !slices.Contains(checked, endpoint) {
			checked = append(checked, endpoint)
		}
	}

	if len(checked) == 0 {
		return nil, errors.New("it has no endpoints: list the addresses of the control planes there; " +
			"in data talos_client_configuration of siderolabs/talos, that is the attribute endpoints")
	}

	return checked, nil
}

// splitEndpoint reads the spellings that talosctl accepts: host, host:port and URLs. The default port is apid's
// own, or 443 for https URLs.
func splitEndpoint(endpoint string) (host, port string, err error) {
	// Whatever is before an @ is not repeated: it may be a password.
	if strings.Contains(endpoint, "@") {
		return "", "", errors.New("an endpoint has a user name or a password in it: the Talos API takes only the client certificate, so write the host alone")
	}

	malformed := fmt.Errorf("endpoint %q is neither a host, host:port nor an https URL", endpoint)
	port = fmt.Sprint(constants.ApidPort)

	if strings.Contains(endpoint, "://") {
		parsed, err := url.Parse(endpoint)
		if err != nil || parsed.Hostname() == "" {
			return "", "", malformed
		}

		if parsed.Scheme == "https" {
			port = "443"
		}

		if parsed.Port() != "" {
			port = parsed.Port()
		}

		return parsed.Hostname(), port, nil
	}

	if host, port, err := net.SplitHostPort(endpoint); err == nil && host != "" && port != "" {
		return host, port, nil
	}

	host = strings.TrimSuffix(strings.TrimPrefix(endpoint, "["), "]")
	if host == "" || strings.ContainsAny(host, " \t/,") || (strings.Contains(host, ":") && net.ParseIP(host) == nil) {
		return "", "", malformed
	}

	return host, port, nil
}

func checkCredentials(context clientconfig.Context) (Certificate, error) {
	parts := map[string][]byte{}

	for _, part := range []struct{ name, value string }{{"ca", context.CA}, {"crt", context.Crt}, {"key", context.Key}} {
		if part.value == "" {
			return Certificate{}, fmt.Errorf("%q is missing", part.name)
		}

		decoded, err := base64.StdEncoding.DecodeString(part.value)
		if err != nil {
			return Certificate{}, fmt.Errorf("%q is not base64", part.name)
		}

		parts[part.name] = decoded
	}

	return parseCertificate(parts["ca"], parts["crt"], parts["key"])
}

// endpoint is one address of the Talos API with a connection of its own: gRPC's round robin over several would send
// calls into a rebooting machine.
type endpoint struct {
	name string
	host string
	// address is host:port.
	address string
	api     *client.Client
	// local is true once the endpoint has refused to forward calls to other nodes.
	local atomic.Bool
}

func (e *endpoint) state() connectivity.State { return e.api.Conn().GetState() }

// settle waits until the endpoint is connected or known to be down. The connect timeout of gRPC bounds it.
func (e *endpoint) settle(ctx context.Context) connectivity.State {
	for {
		state := e.state()

		switch state {
		case connectivity.Ready, connectivity.TransientFailure, connectivity.Shutdown:
			return state
		case connectivity.Idle:
			e.api.Conn().Connect()
		case connectivity.Connecting:
		}

		if !e.api.Conn().WaitForStateChange(ctx, state) {
			return state
		}
	}
}

// alive reports whether the endpoint answers a call about itself. A machine that lost its power leaves a connection
// behind that looks healthy.
func (e *endpoint) alive(ctx context.Context) bool {
	// The call may be about a node, and part of an attempt.
	ctx, cancel := context.WithTimeout(withAttempt(metadata.NewOutgoingContext(ctx, metadata.MD{}), &attempt{}), connectTimeout)
	defer cancel()

	_, err := e.api.MachineClient.Version(ctx, &emptypb.Empty{})

	return err == nil
}

// candidates returns all endpoints, the most promising first: the one that answered last, then others that are
// connected, then those not tried yet, and at the end those known to be down or not to forward. The endpoint on the
// node to avoid, which is about to be disturbed, comes after those that are down.
func (c *Client) candidates(avoid string) []*endpoint {
	type ranked struct {
		*endpoint
		rank int
	}

	count := len(c.endpoints)
	ordered := make([]ranked, 0, count)

	// Ranks are taken once: states change while the list is being sorted.
	for i := range count {
		candidate := c.endpoints[(int(c.preferred.Load())+i)%count]
		ordered = append(ordered, ranked{candidate, candidate.rank(avoid)})
	}

	slices.SortStableFunc(ordered, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })

	endpoints := make([]*endpoint, count)
	for i, candidate := range ordered {
		endpoints[i] = candidate.endpoint
	}

	return endpoints
}

// rank is lower for a more promising endpoint.
func (e *endpoint) rank(avoid string) int {
	rank := 0

	switch e.state() {
	case connectivity.Ready:
	case connectivity.Idle, connectivity.Connecting:
		rank = 1
	case connectivity.TransientFailure, connectivity.Shutdown:
		rank = 2
	}

	if avoid != "" && e.host == avoid {
		rank += 4
	}

	if e.local.Load() {
		rank += 8
	}

	return rank
}

// wake connects all endpoints if none is connected, and returns once the first one is or all have failed. Otherwise
// a single endpoint that drops packets would cost each call the whole connect timeout.
func (c *Client) wake(ctx context.Context) {
	if len(c.endpoints) == 1 || slices.ContainsFunc(c.endpoints, func(e *endpoint) bool {
		return e.state() == connectivity.Ready && !e.local.Load()
	}) {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()

	states := make(chan connectivity.State, len(c.endpoints))

	for _, e := range c.endpoints {
		go func() { states <- e.settle(ctx) }()
	}

	for range c.endpoints {
		if <-states == connectivity.Ready {
			return
		}
	}
}

// prefer makes the endpoint the first choice of later calls.
func (c *Client) prefer(chosen *endpoint) {
	c.proven.Store(true)

	if index := slices.Index(c.endpoints, chosen); index >= 0 {
		c.preferred.Store(int64(index))
	}
}

// attempt is one try of a call through one endpoint.
type attempt struct {
	// sent is true if the request may have left this machine. As long as it is false, nothing can happen twice if
	// the call is tried elsewhere.
	sent bool
}

type attemptKey struct{}

func withAttempt(ctx context.Context, attempt *attempt) context.Context {
	return context.WithValue(ctx, attemptKey{}, attempt)
}

// noteUnary records whether a unary call got as far as a connection: only then does gRPC know the peer.
func noteUnary(
	ctx context.Context, method string, request, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	var reached peer.Peer

	err := invoke(ctx, method, request, reply, conn, append(options, grpc.Peer(&reached))...)

	if noted, ok := ctx.Value(attemptKey{}).(*attempt); ok && reached.Addr != nil {
		noted.sent = true
	}

	return err
}

// noteStream records the same for a stream, whose request is sent right after it is opened.
func noteStream(
	ctx context.Context, description *grpc.StreamDesc,
	conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, description, conn, method, options...)

	if noted, ok := ctx.Value(attemptKey{}).(*attempt); ok && err == nil {
		noted.sent = true
	}

	return stream, err
}

// operation describes a call for the code that carries it out and for the people who read its errors.
type operation struct {
	// what completes "unable to ...".
	what string
	// node is the address of the machine that is called; empty for the endpoint itself.
	node string
	// timeout bounds one attempt.
	timeout time.Duration
	// mutates is true if the call must not be made twice by accident.
	mutates bool
	// begun reports whether part of an answer has been passed on to the caller, after which no other endpoint can
	// be tried. It is nil for calls whose answer is not passed on as it arrives.
	begun func() bool
}

// call carries out the operation through the first endpoint that can. Reads try all endpoints, and try one whose
// connection broke during the call once more: the node may have ended the connection (GOAWAY), or a firewall
// forgotten it. A call that changes something moves on only if nothing of it can have reached the node.
func (c *Client) call(ctx context.Context, op operation, do func(context.Context, *client.Client) error) error {
	c.wake(ctx)

	avoid := ""
	if op.mutates {
		avoid = op.node
	}

	var (
		failures  []*callError
		endpoints = c.candidates(avoid)
		severed   bool
	)

	for index := 0; index < len(endpoints); index++ {
		chosen := endpoints[index]
		failure := c.try(ctx, op, chosen, do)
		if failure == nil {
			c.prefer(chosen)

			return nil
		}

		failures = append(failures, failure)

		if ctx.Err() != nil || !failure.elsewhere || op.begun != nil && op.begun() {
			return failure
		}

		if failure.severed && !op.mutates && !severed {
			severed = true
			endpoints = append(endpoints, chosen)
		}
	}

	return c.combine(op, failures)
}

func (c *Client) try(ctx context.Context, op operation, chosen *endpoint, do func(context.Context, *client.Client) error) *callError {
	var noted attempt

	began := time.Now()

	attemptCtx, cancel := context.WithTimeout(withAttempt(ctx, &noted), op.timeout)
	defer cancel()

	if op.node != "" {
		attemptCtx = client.WithNode(attemptCtx, op.node)
	}

	err := do(attemptCtx, chosen.api)
	if err == nil {
		return nil
	}

	// A node ends a call at the caller's deadline by itself, and its answer may arrive before the caller's context
	// is done.
	if deadline, bounded := ctx.Deadline(); bounded && !time.Now().Before(deadline) {
		<-ctx.Done()
	}

	if time.Since(began) < op.timeout {
		op.timeout = 0
	}

	failure := c.explain(ctx, op, chosen, noted.sent, err)

	switch {
	case failure.forwarding:
		chosen.local.Store(true)
	case failure.silent && !op.mutates:
		// The node is silent, unless the endpoint itself is gone.
		failure.elsewhere = ctx.Err() == nil && !chosen.alive(ctx)
	}

	return failure
}

// combine returns the error of an operation that no endpoint could carry out.
func (c *Client) combine(op operation, failures []*callError) error {
	if silence := c.silenceOf(failures); silence != nil {
		failures[0].silence = silence

		return failures[0]
	}

	if len(failures) == 1 {
		return failures[0]
	}

	combined := &callError{what: op.what, meanings: failures[0].meanings, cause: failures[0].cause, forwarding: true}

	var (
		details []string
		through = map[string][]string{}
	)

	for _, failure := range failures {
		through[failure.said] = append(through[failure.said], failure.through)
	}

	for _, failure := range failures {
		detail := failure.detail
		if failure.said != "" {
			// What several endpoints say is printed once.
			detail = failure.said + throughEndpoints(through[failure.said]...)
		}

		if !slices.Contains(details, detail) {
			details = append(details, detail)
		}

		combined.forwarding = combined.forwarding && failure.forwarding

		if c.weightier(failure, combined.meanings) {
			combined.meanings, combined.cause = failure.meanings, failure.cause
		}
	}

	combined.detail = strings.Join(details, "; ")

	return combined
}

// throughEndpoints names the endpoints of a call, to follow its outcome in a message.
func throughEndpoints(names ...string) string {
	noun := "endpoint"
	if len(names) > 1 {
		noun = "endpoints"
	}

	return " (through " + noun + " " + strings.Join(names, ", ") + ")"
}

// withoutQuotes removes what YAML errors quote from the document, since that may be part of a key.
func withoutQuotes(text string) string {
	return quotedContent.ReplaceAllString(strings.ReplaceAll(text, "\n", " "), "a value")
}

// quotedContent is what an error quotes; a single character is punctuation.
var quotedContent = regexp.MustCompile("`[^`]*`|\"(?:[^\"\\\\]|\\\\.)*\"|'[^']{2,}'")
