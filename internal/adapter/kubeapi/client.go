// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Timeouts of connections. Without the pings a connection that lost its peer
// would be used for another 45 seconds and more.
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
	// DialContext opens connections; nil dials TCP.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// Alternatives are other API servers of the same cluster as host:port, which
	// are tried when the one of the kubeconfig cannot be reached. It is asked
	// each time anew, from any goroutine, and must not block. A proxy, and a
	// connection that proves no identity, rule them out.
	Alternatives func() []string
	// Sleep waits for the time between two looks at a lease; nil waits on the
	// real clock. It returns the error of a context that ended first.
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
	kinds        kinds
}

// New makes a client from a kubeconfig (YAML) and one of its contexts, the
// current one when the name is empty. Nothing is dialled. Errors wrap
// [ErrConfig] and never quote the content. [Client.Close] must be called in
// the end.
func New(kubeconfig []byte, contextName string, options Options) (*Client, error) {
	config, err := parseKubeconfig(kubeconfig, contextName)
	if err != nil {
		return nil, err
	}

	config.UserAgent = options.UserAgent
	config.QPS = -1 // the engine paces itself
	// Warnings of the API server would go to standard error, where the plugin
	// has nothing to say.
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

// Identify says which cluster the client is connected to, as soon as that is
// known. The objects that are written from then on carry the ID, and
// [Client.Forget] compares it.
func (c *Client) Identify(id string) { c.clusterID.Store(&id) }

// ClusterID is what [Client.Identify] was told last; empty before.
func (c *Client) ClusterID() string {
	if id := c.clusterID.Load(); id != nil {
		return *id
	}

	return ""
}

// Close ends all connections, those that are just being made included. Requests
// fail from then on.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	c.lines.close()
}

// Config is the connection as client-go describes it, for other clients of the
// same API. They share the connections of this one, its credentials and its ways
// around an API server that is down, with [Client.HTTPClient] or without, and
// live no longer than it does.
func (c *Client) Config() *rest.Config {
	return &rest.Config{
		Host:           c.server.String(),
		UserAgent:      c.config.UserAgent,
		QPS:            c.config.QPS,
		WarningHandler: c.config.WarningHandler,
		Transport:      c.http.Transport,
	}
}

// HTTPClient is the client whose connections are shared and closed by
// [Client.Close].
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

	wrapped, err := transport.HTTPWrappersForConfig(transportConfig, c.transport)
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

// provesIdentity tells whether a server that is not meant would be noticed.
func (c *Client) provesIdentity(config *tls.Config) bool {
	return c.server.Scheme == "https" && config != nil && !config.InsecureSkipVerify
}

// hostPort is what the transport of a URL dials.
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

	return rest.RESTClientForConfigAndClient(config, c.http)
}

func newCodecs() (serializer.CodecFactory, error) {
	scheme := runtime.NewScheme()

	err := errors.Join(
		corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), policyv1.AddToScheme(scheme),
		appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme),
	)

	return serializer.NewCodecFactory(scheme), err
}

func sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
