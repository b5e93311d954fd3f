// SPDX-License-Identifier: MPL-2.0

// Package removal knows what release lines of Kubernetes do without: flags,
// feature gates and admission plugins of the components, static pods that refer to objects, and
// versions of APIs. It implements [cluster.Removals] with the tables that talosctl upgrade-k8s
// uses and, of feature gates and flags, with two made from the sources of Kubernetes. It changes
// nothing.
package removal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"golang.org/x/sync/errgroup"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ cluster.Removals = (*Client)(nil)

const (
	// checkTimeout bounds one look at the whole cluster, on the real clock.
	checkTimeout = 30 * time.Second
	// lookParallel is into how many parts the workers are divided, which are
	// looked at beside each other.
	lookParallel = 32
)

// The values of [cluster.Removal.Kind].
const (
	KindFlag            = "flag"
	KindFeatureGate     = "feature gate"
	KindAdmissionPlugin = "admission plugin"
	KindStaticPod       = "static pod"
	KindAPI             = "API"
)

// States gives access to the resources of nodes.
type States interface {
	// State are the resources of the node at the address, without asking it yet.
	// Errors of its calls wrap the sentinels of package cluster.
	State(address string) state.State
}

// Client looks for what a release line of Kubernetes does without. It is safe
// for concurrent use.
type Client struct {
	states States
	config *rest.Config
}

// New makes a client from access to the nodes and to the Kubernetes API.
// Connections of a config that brings its own transport are shared; of any
// other config, none outlives a call.
func New(states States, config *rest.Config) *Client {
	return &Client{states: states, config: rest.CopyConfig(config)}
}

// Removals lists what is in use and gone in the version to, and the feature gates that are
// locked to another value there. It looks at the command lines of the static pods, the
// arguments and the configuration of the kubelets, what kube-proxy is given, the static pods, and objects of API versions. Errors wrap a sentinel of package cluster: ErrUnsupported for a
// step from one release line to another that is not known.
func (c *Client) Removals(ctx context.Context, from, to version.Version, controlPlanes, workers []string) ([]cluster.Removal, error) {
	path, err := upgrade.NewPath(from.String(), to.String())
	if err != nil {
		return nil, fmt.Errorf("%w: no way from Kubernetes %s to %s: %w", cluster.ErrUnsupported, from, to, err)
	}

	if !path.IsSupported() {
		return nil, fmt.Errorf("%w: what Kubernetes %s does without that %s has is not known: "+
			"only steps from one release line to the next are, up to the newest line that this provider was made for",
			cluster.ErrUnsupported, to, from)
	}

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()

	config, done := closing(c.config)
	defer done()

	var (
		group errgroup.Group
		// One look for the control planes and the API, one for each part of the
		// workers: the library asks one node after the other.
		parts  = slices.Collect(slices.Chunk(workers, max(1, (len(workers)+lookParallel-1)/lookParallel)))
		found  = make([][]cluster.Removal, len(parts)+1)
		failed = make([]error, len(parts)+1)
		seen   watch
	)

	for index, part := range parts {
		group.Go(func() error {
			found[index], failed[index] = c.look(ctx, step{path, from, to}, nil, nil, part, &seen)

			return nil
		})
	}

	found[len(parts)], failed[len(parts)] = c.look(ctx, step{path, from, to}, config, controlPlanes, nil, &seen)

	_ = group.Wait()

	// One that names a node comes first.
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}

	all := slices.Concat(append(found, seen.flags(from, to))...)

	if gateTables().covers(to.Minor()) {
		all = slices.DeleteFunc(all, func(r cluster.Removal) bool { return r.Kind == KindFeatureGate })
		all = append(all, seen.gates(to)...)
	}

	return sorted(all), nil
}

// step is an upgrade of Kubernetes, and what the library calls it.
type step struct {
	path     *upgrade.Path
	from, to version.Version
}

// look is one run of the library's checks, and of those that it lacks; without a config it leaves
// the API out. What the components are given is noted.
func (c *Client) look(
	ctx context.Context, of step, config *rest.Config, controlPlanes, workers []string, seen *watch,
) ([]cluster.Removal, error) {
	found, err := c.check(ctx, of, config, controlPlanes, workers, seen)
	if err == nil {
		var refused []cluster.Removal

		refused, err = c.lookBeyond(ctx, of, controlPlanes, workers, seen)
		found = append(found, refused...)
	}

	var failure *nodeFailure

	switch {
	case errors.As(err, &failure):
		return nil, fmt.Errorf("unable to read the components of node %s: %w", failure.address, failure.cause)
	case err != nil:
		return nil, kubeapi.Explain(ctx, "look for objects of removed APIs", false, err)
	}

	return found, nil
}

// lookBeyond looks at what the library does not: static pods, and what kube-proxy is given, which is
// noted. It comes after the library, which reads the gates of the kubelets.
func (c *Client) lookBeyond(ctx context.Context, of step, controlPlanes, workers []string, seen *watch) ([]cluster.Removal, error) {
	var refused []cluster.Removal

	for _, address := range slices.Concat(controlPlanes, workers) {
		found, err := c.references(ctx, of.from, of.to, address, seen.kubeletGates(address))
		if err != nil {
			return nil, err
		}

		refused = append(refused, found...)
	}

	for _, address := range controlPlanes {
		if err := c.noteProxy(ctx, address, seen); err != nil {
			return nil, err
		}
	}

	return refused, nil
}

// check is one run of the library's checks.
func (c *Client) check(
	ctx context.Context, of step, config *rest.Config, controlPlanes, workers []string, seen *watch,
) ([]cluster.Removal, error) {
	node := func(_ context.Context, address string) (state.State, error) {
		return nodeState{State: c.states.State(address), address: address, seen: seen}, nil
	}

	checks, err := upgrade.NewChecksWithStateProvider(of.path, node, config, controlPlanes, workers, func(string, ...any) {})
	if err != nil {
		return nil, fmt.Errorf("preparing the check for removed items: %w", err)
	}

	err = checks.Run(ctx)
	if found, ok := itemsOf(err); ok {
		return removals(found, of.to), nil
	}

	return nil, err
}

// itemsOf takes the findings out of the error that carries them, which has been
// a value and may become a pointer.
func itemsOf(err error) (upgrade.ComponentRemovedItemsError, bool) {
	var value upgrade.ComponentRemovedItemsError
	if errors.As(err, &value) {
		return value, true
	}

	var pointer *upgrade.ComponentRemovedItemsError
	if errors.As(err, &pointer) && pointer != nil {
		return *pointer, true
	}

	return upgrade.ComponentRemovedItemsError{}, false
}

// closing is a copy of the config for one call, and what ends its connections.
// The transport of a config that has one of its own is left open. Any other
// would end up in a cache of client-go for good, were it not for the function
// that chooses its proxy.
func closing(config *rest.Config) (*rest.Config, func()) {
	config = rest.CopyConfig(config)
	config.QPS = -1

	if config.Transport != nil {
		return config, func() {}
	}

	if config.Proxy == nil {
		config.Proxy = http.ProxyFromEnvironment
	}

	var used []http.RoundTripper

	config.Wrap(func(transport http.RoundTripper) http.RoundTripper {
		used = append(used, transport)

		return transport
	})

	return config, func() {
		for _, transport := range used {
			utilnet.CloseIdleConnectionsFor(transport)
		}
	}
}
