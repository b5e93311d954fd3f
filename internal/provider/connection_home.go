// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
)

// home is a Kubernetes API with objects about clusters.
type home struct {
	access operator.Access
	// events writes Kubernetes Events there; nil where none are to be written.
	events *publish.EventSink
	// end closes the connection; nil where something else does.
	end func()
}

// newHome is the API that the client speaks to, which is somebody else's to close.
func newHome(client *kubeapi.Client) *home {
	// Events are for people alone: nothing is refused because of them.
	events, _ := publish.NewEventSink(client.Config(), client.HTTPClient())

	return &home{access: client, events: events}
}

// close ends the connection of the home, if it has one of its own.
func (h *home) close() {
	if h != nil && h.end != nil {
		h.end()
	}
}

// connect is the management cluster; nil where there is none. Nothing is dialled.
// Errors wrap [errUnusable] and name the attribute.
func (m *managementAccess) connect(shared *settings) (*home, error) {
	if m == nil {
		return nil, nil
	}

	data, source, err := m.kubeconfig()
	if err != nil {
		return nil, err
	}

	client, err := kubeapi.New(data, m.Context, kubeapi.Options{UserAgent: shared.userAgent(), Sleep: shared.clock.Sleep})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUnusable, source, err)
	}

	made := newHome(client)
	made.end = client.Close

	return made, nil
}

// home is where the object is that progress is published to: nil where that cannot
// be had. Errors wrap [errUnusable].
func (c *connection) home(of publication) (*home, error) {
	if of.to == nil || !c.managed() {
		return c.own, nil
	}

	return c.management, c.unmanaged
}

// managed tells whether there is a management cluster, be it one of no use.
func (c *connection) managed() bool { return c.management != nil || c.unmanaged != nil }

// operator is what may upgrade the same cluster because of what the object says;
// nil where nobody named one, or where nothing could be asked. Nobody acts on the
// default object. Errors are as of [connection.home].
func (c *connection) operator(of publication) (cluster.Operator, error) {
	at, err := c.home(of)
	if err != nil || at == nil || of.isDefault(c.managed()) {
		return nil, err
	}

	return operator.New(*of.to, at.access), nil
}

// publisher publishes the progress of the cluster with the ID. It is nil where
// there is nothing to publish to, which stops no upgrade: the engine refuses by
// itself what it cannot do without the Kubernetes API.
func (c *connection) publisher(id string, of publication, available nextFunc) *publish.Publisher {
	store, err := c.storeOf(id, of)
	if err != nil || store == nil {
		return nil
	}

	return publish.New(store, publish.Options{Announce: of.to != nil, Available: available})
}

// storeOf is where the progress of the cluster with the ID is published; nil where
// that cannot be had.
func (c *connection) storeOf(id string, of publication) (publish.Store, error) {
	at, err := c.home(of)

	switch {
	case err != nil:
		return nil, err
	case of.isDefault(c.managed()):
		// It is the one object that is created where it is missing.
		if c.store == nil {
			return nil, nil
		}

		return c.store(id)
	case at == nil:
		return nil, nil
	default:
		return publish.NewObjectStore(at.access, *of.to), nil
	}
}

// defaultReference is the object that progress is published to where nobody named
// one.
func defaultReference() cluster.Reference {
	return cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: publish.ConfigMapNamespace, Name: publish.ConfigMapName}
}

// events tells what happens as Kubernetes Events; nil where there is nowhere to.
func (c *connection) events(of publication) *publish.Events {
	at, err := c.home(of)
	if err != nil {
		return nil
	}

	targets := publish.EventTargets{Of: defaultReference()}
	if of.to != nil {
		targets.Of = *of.to
	}

	if c.own != nil {
		targets.Nodes = c.own.events
	}

	if at != nil {
		targets.Object, targets.Access = at.events, at.access
	}

	if targets.Nodes == nil && targets.Object == nil {
		return nil
	}

	return publish.NewEvents(targets)
}
