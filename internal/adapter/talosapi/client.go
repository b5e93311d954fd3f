// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/client/dialer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

// Deadlines of single calls. They run on the real clock: a call is a matter of
// the network, not of the engine's schedule.
const (
	readTimeout       = 10 * time.Second
	mountsTimeout     = 3 * time.Second
	rebootTimeout     = 30 * time.Second
	applyTimeout      = 60 * time.Second
	kubeconfigTimeout = 30 * time.Second
	installTimeout    = 15 * time.Minute
	// followTimeout bounds what a node does between accepting a legacy upgrade
	// and the end of its installer: its own drain of at most five minutes, the
	// stop of its services, and the installer.
	followTimeout = 15 * time.Minute
	// legacyTimeout leaves room for the pull that the legacy call makes before
	// it answers, for which a node gives itself 20 minutes.
	legacyTimeout = 25 * time.Minute
)

// Connection behaviour. A rebooting endpoint should be found again within
// seconds of its return, which gRPC's own back-off of up to two minutes would
// not allow.
const (
	minBackoff     = 200 * time.Millisecond
	maxBackoff     = 2 * time.Second
	connectTimeout = 5 * time.Second
	// pingInterval must not fall below five minutes: apid answers more frequent
	// pings by closing the connection.
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
	endpoints []*endpoint
	// preferred is the index of the endpoint that answered last.
	preferred atomic.Int64
	// proven tells that some endpoint accepted the credentials.
	proven atomic.Bool
	// hung are the nodes, by address, whose mounts did not answer, each with the
	// error of that.
	hung sync.Map
	// clusterID is what the cluster calls itself, as soon as that is known.
	clusterID atomic.Pointer[string]
}

// New prepares connections to the endpoints of the configuration. Nothing is
// dialled before the first call. [Client.Close] must be called in the end.
func New(config Config, options Options) (*Client, error) {
	if len(config.endpoints) == 0 {
		return nil, fmt.Errorf("%w: it has no endpoints", ErrConfig)
	}

	c := &Client{config: config}

	for _, name := range config.endpoints {
		opened, err := newEndpoint(name, config, options)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: endpoint %s: %w", ErrConfig, name, err), c.Close())
		}

		c.endpoints = append(c.endpoints, opened)
	}

	return c, nil
}

// Close ends all connections and whatever still runs on them.
func (c *Client) Close() error {
	var failures []error

	for _, endpoint := range c.endpoints {
		failures = append(failures, endpoint.api.Close())
	}

	return errors.Join(failures...)
}

// Config is what the client was made from.
func (c *Client) Config() Config { return c.config }

// Roles are the roles in the client certificate, such as "os:admin".
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

	return &endpoint{name: name, host: host, api: api}, nil
}

func dialOptions(options Options) []grpc.DialOption {
	dial := options.DialContext
	if dial == nil {
		dial = dialer.DynamicProxyDialer
	}

	dialOptions := []grpc.DialOption{
		grpc.WithContextDialer(dial),
		// Endpoints are control planes, never services that announce settings
		// in DNS.
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
