// SPDX-License-Identifier: MPL-2.0

// Package manifest brings the bootstrap manifests that Talos renders into the
// cluster the way talosctl upgrade-k8s does, with the same field manager and the
// same inventory, so that both can take turns. It implements
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

// Bounds of whole calls, on the real clock, each with an allowance per object:
// they are several requests for every one of them, and the libraries below repeat
// some.
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
	// State are the resources of the node at the address, without asking it yet.
	// Errors of its calls wrap the sentinels of package cluster.
	State(address string) state.State
}

// Client compares and applies bootstrap manifests. It is safe for concurrent
// use and holds no connections of its own.
type Client struct {
	states States
	config *rest.Config
	http   *http.Client
}

// New makes a client from access to the control planes and to the Kubernetes
// API. Of the config only the address and the name of the caller matter:
// credentials and connections are those of the HTTP client.
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

// Diff lists what [Client.Apply] would change, by object, and writes nothing,
// not even the inventory. An object in which a field changed that may not
// change is an error without Force, which wraps ErrRefused. With Prune, what one
// of the control planes in Also renders is not pruned. A control plane that has
// not rendered everything yet is an error, which wraps ErrUnreachable.
func (c *Client) Diff(ctx context.Context, address string, options cluster.ManifestOptions) ([]cluster.ManifestChange, error) {
	job := &job{what: "compare the bootstrap manifests", base: diffTimeout, each: diffObject, options: options}

	return c.run(ctx, address, job, func(ctx context.Context, objects, spared []*unstructured.Unstructured) ([]cluster.ManifestChange, error) {
		if options.ServerSide {
			return c.diffServerSide(ctx, objects, spared, options)
		}

		return c.sync(ctx, objects, true)
	})
}

// Apply brings the objects to what the control plane at the address renders,
// and lists what it changed, also beside an error. It may be repeated. Prune and
// Force have an effect with ServerSide only: there is no inventory otherwise.
func (c *Client) Apply(ctx context.Context, address string, options cluster.ManifestOptions) ([]cluster.ManifestChange, error) {
	job := &job{what: "apply the bootstrap manifests", mutates: true, base: applyTimeout, each: applyObject, options: options}

	return c.run(ctx, address, job, func(ctx context.Context, objects, spared []*unstructured.Unstructured) ([]cluster.ManifestChange, error) {
		if options.ServerSide {
			return c.applyServerSide(ctx, objects, spared, options)
		}

		return c.sync(ctx, objects, false)
	})
}

// run hands a job what the control plane renders, and what others do that must not
// be pruned, bounds it, and explains its error.
func (c *Client) run(
	ctx context.Context, address string, job *job,
	work func(ctx context.Context, objects, spared []*unstructured.Unstructured) ([]cluster.ManifestChange, error),
) ([]cluster.ManifestChange, error) {
	// A comparison is of what there is; what is missing is created by Talos, if ever.
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

// excluding takes what is excluded out of the objects, and adds it to what is not pruned.
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
