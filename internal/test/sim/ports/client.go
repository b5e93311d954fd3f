// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Client is one user of the cluster.
type Client struct {
	cluster *Cluster
	// kube is the shipped adapter over transport.
	kube      *kubeapi.Client
	transport *apiserver.Transport
	name      string
	roles     []string

	mu        sync.Mutex
	intercept Interceptor
	// fill combines an observation of a machine with what was known about it.
	fill     func(known *cluster.Machine, now cluster.Machine) cluster.Machine
	count    int
	mutating int
	// annotated counts the writes of annotations, which need no request here.
	annotated int
}

var (
	_ cluster.Talos      = (*Client)(nil)
	_ cluster.Kubernetes = (*Client)(nil)

	_ cluster.WorkloadReader = (*Client)(nil)
	_ cluster.Objects        = (*Client)(nil)
)

// Call is one call of a port.
type Call struct {
	// Method is the name of the port's method.
	Method string
	// Node is the name of the node concerned; empty for the cluster.
	Node string
	// Number counts the client's calls from 1.
	Number int
	// Mutation counts the calls that change something from 1; 0 for a read.
	Mutation int
}

// String returns a name by which a person can find the call.
func (c Call) String() string {
	if c.Node == "" {
		return fmt.Sprintf("%s (call %d, mutation %d)", c.Method, c.Number, c.Mutation)
	}

	return fmt.Sprintf("%s of %s (call %d, mutation %d)", c.Method, c.Node, c.Number, c.Mutation)
}

// Interceptor stands between a client and the cluster: next carries out the call. It may omit the call, or answer
// something else. It is called from several goroutines.
type Interceptor func(ctx context.Context, call Call, next func(context.Context) error) error

// Client connects a user with the given name in the history and the role of an administrator.
func (c *Cluster) Client(name string) *Client {
	transport := c.Transport(name)

	kube, err := c.kubernetes(name, transport)
	if err != nil {
		// The kubeconfig is the same for all, and that of the cluster itself was read.
		panic(err)
	}

	return &Client{cluster: c, kube: kube, transport: transport, name: name, roles: []string{"os:admin"}, fill: fill}
}

// WithRoles replaces the roles of the client's certificate.
func (c *Client) WithRoles(roles ...string) *Client {
	c.roles = roles

	return c
}

// Intercept puts an interceptor in front of all further calls; nil removes it.
func (c *Client) Intercept(interceptor Interceptor) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.intercept = interceptor
}

// Fill replaces how an observation of a machine is combined with what was known about it, for planted bugs.
func (c *Client) Fill(with func(known *cluster.Machine, now cluster.Machine) cluster.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.fill = with
}

// Calls returns the number of calls so far, and of those that change something.
func (c *Client) Calls() (all, mutating int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.count, c.mutating
}

// Requests returns the number of requests to the API server so far by verb and resource, such as "patch nodes".
func (c *Client) Requests() map[string]int {
	made := c.transport.Kinds()

	c.mu.Lock()
	defer c.mu.Unlock()

	made["patch configmaps"] += c.annotated

	return made
}

// Name returns the name of the client in the history.
func (c *Client) Name() string { return c.name }

func (c *Client) read(ctx context.Context, method, node string, do func(context.Context) error) error {
	return c.through(ctx, method, node, false, do)
}

func (c *Client) change(ctx context.Context, method, node string, do func(context.Context) error) error {
	return c.through(ctx, method, node, true, do)
}

func (c *Client) through(ctx context.Context, method, node string, mutates bool, do func(context.Context) error) error {
	c.mu.Lock()
	c.count++
	call := Call{Method: method, Node: c.cluster.nameOf(node), Number: c.count}

	if mutates {
		c.mutating++
		call.Mutation = c.mutating
	}

	intercept := c.intercept
	c.mu.Unlock()

	next := func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return interrupted(ctx, false)
		}

		return do(ctx)
	}

	if intercept == nil {
		return next(ctx)
	}

	return intercept(ctx, call, next)
}

// nameOf returns the name of the machine at an address. Anything else is returned as it is.
func (c *Cluster) nameOf(node string) string {
	if name, found := c.world.NameOf(node); found {
		return name
	}

	return node
}

// lostReply returns an error if the script wants the reply to a Kubernetes request lost that has taken effect.
func (c *Client) lostReply(node string) error {
	if _, struck := c.cluster.world.TakeFault(node, model.StepPatch, model.EffectConnectionLost); !struck {
		return nil
	}

	return fmt.Errorf("%w: %w: unexpected EOF", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
}
