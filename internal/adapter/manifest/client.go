// SPDX-License-Identifier: MPL-2.0

// Package manifest brings the bootstrap manifests that Talos renders into the cluster as talosctl upgrade-k8s does,
// with the same field manager and the same inventory, so that both can be used in turn. It implements
// [cluster.BootstrapManifests].
package manifest

import (
	"context"
	"net/http"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

var _ cluster.BootstrapManifests = (*Client)(nil)

// Bounds of whole calls, on the real clock, each with an allowance per object: every object takes several requests,
// some of which the libraries repeat.
const (
	renderTimeout  = 30 * time.Second
	diffTimeout    = 30 * time.Second
	diffObject     = 2 * time.Second
	applyTimeout   = time.Minute
	applyObject    = 4 * time.Second
	unreadyTimeout = 30 * time.Second
	unreadyObject  = 100 * time.Millisecond
)

// States gives access to the resources of nodes.
type States interface {
	// State returns the resources of the node at the address and makes no calls yet. Errors of its calls wrap the
	// sentinels of package cluster.
	State(address string) state.State
}

// Client compares and applies bootstrap manifests. It is safe for concurrent
// use and holds no connections of its own.
type Client struct {
	states States
	config *rest.Config
	http   *http.Client
}

// New returns a client from access to the control planes and to the Kubernetes API. Only the address and the user
// agent of the config are used: credentials and connections are those of the HTTP client.
func New(states States, config *rest.Config, httpClient *http.Client) *Client {
	transport := discreet{httpClient.Transport}

	return &Client{
		states: states,
		config: &rest.Config{
			Host:      config.Host,
			UserAgent: config.UserAgent,
			// The libraries pace themselves.
			QPS: -1,
			// Warnings of the API server would go to standard error.
			WarningHandler: rest.NoWarnings{},
			Transport:      transport,
		},
		http: &http.Client{Transport: transport, Timeout: httpClient.Timeout},
	}
}

// Diff lists what [Client.Apply] would change, by object, and writes nothing, not even the inventory. Without
// Force, a changed field that is immutable is an error, which wraps ErrRefused. With Prune, an object that one of
// the control planes in Also renders is not pruned, and the error wraps ErrIncomplete if a control plane has not
// rendered everything yet. If one has rendered nothing, the error wraps ErrUnreachable.
func (c *Client) Diff(ctx context.Context, address string, options cluster.ManifestOptions) ([]cluster.ManifestChange, error) {
	job := &job{what: "compare the bootstrap manifests", base: diffTimeout, each: diffObject, options: options}

	return c.run(ctx, address, job, func(ctx context.Context, objects, spared []*unstructured.Unstructured) ([]cluster.ManifestChange, error) {
		if options.ServerSide {
			return c.diffServerSide(ctx, objects, spared, options)
		}

		return c.sync(ctx, objects, true)
	})
}

// Apply brings the objects to what the control plane at the address renders, and lists what it changed, even with
// an error. It may be repeated. Prune and Force have an effect with ServerSide only: otherwise there is no
// inventory.
func (c *Client) Apply(ctx context.Context, address string, options cluster.ManifestOptions) ([]cluster.ManifestChange, error) {
	job := &job{what: "apply the bootstrap manifests", mutates: true, base: applyTimeout, each: applyObject, options: options}

	return c.run(ctx, address, job, func(ctx context.Context, objects, spared []*unstructured.Unstructured) ([]cluster.ManifestChange, error) {
		if options.ServerSide {
			return c.applyServerSide(ctx, objects, spared, options)
		}

		return c.sync(ctx, objects, false)
	})
}

// run calls work with what the control plane renders and what other control planes render, which must not be
// pruned. It bounds the call and explains its error.
func (c *Client) run(
	ctx context.Context, address string, job *job,
	work func(ctx context.Context, objects, spared []*unstructured.Unstructured) ([]cluster.ManifestChange, error),
) ([]cluster.ManifestChange, error) {
	// A comparison needs only what is rendered already: what is missing is created by Talos, if at all.
	incomplete := !job.options.Prune && (job.options.Incomplete || !job.mutates)

	objects, err := c.render(ctx, address, incomplete)
	if err != nil {
		return nil, err
	}

	spared, err := c.spare(ctx, job.options)
	if err != nil {
		return nil, err
	}

	objects, spared = excluding(objects, spared, job.options)
	if len(objects) == 0 {
		return nil, nil
	}

	bounded, cancel := job.bound(ctx, len(objects))
	defer cancel()

	changes, err := work(bounded, objects, spared)

	return sorted(changes), job.explain(ctx, bounded, err)
}

// excluding moves the excluded objects to those that are not pruned.
func excluding(
	objects, spared []*unstructured.Unstructured, options cluster.ManifestOptions,
) (kept, untouched []*unstructured.Unstructured) {
	untouched = spared

	for _, object := range objects {
		if options.Excludes(nameOf(object)) {
			untouched = append(untouched, object)
		} else {
			kept = append(kept, object)
		}
	}

	return kept, untouched
}
