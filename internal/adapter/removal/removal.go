// SPDX-License-Identifier: MPL-2.0

// Package removal knows what minor versions of Kubernetes remove: flags, feature gates and admission plugins of the
// components, static pods that refer to objects, and versions of APIs. It implements [cluster.Removals] with the
// tables of talosctl upgrade-k8s and, for feature gates and flags, with two tables made from the sources of
// Kubernetes. It changes nothing.
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
	// checkTimeout bounds one check of the whole cluster, on the real clock.
	checkTimeout = 30 * time.Second
	// lookParallel is how many groups the workers are divided into; the groups are checked in parallel.
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
	// State returns the resources of the node at the address and makes no calls yet. Errors of its calls wrap the
	// sentinels of package cluster.
	State(address string) state.State
}

// Client finds what a minor version of Kubernetes removes and a cluster uses. It is safe for concurrent use.
type Client struct {
	states States
	config *rest.Config
}

// New returns a client from access to the nodes and to the Kubernetes API. If the config has its own transport,
// connections are shared; otherwise none outlives a call.
func New(states States, config *rest.Config) *Client {
	return &Client{states: states, config: rest.CopyConfig(config)}
}

// Removals lists what is in use and removed in the version to, and the feature gates that are locked to another
// value there. It checks the command lines of the static pods, the arguments and the configuration of the kubelets,
// the arguments of kube-proxy, the static pods, and objects of API versions. Errors wrap a sentinel of package
// cluster: ErrUnsupported if nothing is known about a step from one minor version to another.
func (c *Client) Removals(ctx context.Context, from, to version.Version, controlPlanes, workers []string) ([]cluster.Removal, error) {
	path, err := upgrade.NewPath(from.String(), to.String())
	if err != nil {
		return nil, fmt.Errorf("%w: no way from Kubernetes %s to %s: %w", cluster.ErrUnsupported, from, to, err)
	}

	if !path.IsSupported() {
		return nil, fmt.Errorf("%w: what Kubernetes %s does without that %s has is not known: "+
			"only steps from one minor version to the next are, up to the newest that this provider was made for",
			cluster.ErrUnsupported, to, from)
	}

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()

	config, done := closing(c.config)
	defer done()

	var (
		group errgroup.Group
		// One check for the control planes and the API, and one for each group of workers: the library reads one
		// node after the other.
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

	// An error that names a node takes precedence.
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

// step is an upgrade of Kubernetes, and the library's name for it.
type step struct {
	path     *upgrade.Path
	from, to version.Version
}

// look runs the library's checks and those that it lacks; without a config it leaves the API out. It records the
// arguments of the components in seen.
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

// lookBeyond checks what the library does not, the static pods, and records the arguments of kube-proxy. It runs
// after the library's checks, which record the gates of the kubelets.
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

// check runs the library's checks.
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

// itemsOf returns the findings in an error, which the library has returned as a value and may return as a pointer.
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

// closing returns a copy of the config for one call, and a function that closes its connections. It does not close
// a transport that the config brings along. Any other transport would stay in a cache of client-go forever, if the
// function that chooses the proxy did not keep it out of the cache.
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
