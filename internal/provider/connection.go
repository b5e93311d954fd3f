// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/manifest"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/removal"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
)

// connection is one cluster within reach, through the ports of the engine.
type connection struct {
	// name is what people call the cluster: the context, in words.
	name string
	// context is the name of the context alone; empty where there is none.
	context string
	// endpoints are those of the Talos API.
	endpoints  []string
	talos      cluster.Talos
	kubernetes cluster.Kubernetes
	// removals and manifests are nil when the Kubernetes API is not to be had.
	removals  cluster.Removals
	manifests cluster.BootstrapManifests
	// workloads and objects are nil when the Kubernetes API is not to be had
	// either.
	workloads cluster.WorkloadReader
	objects   cluster.Objects
	// registry is nil where images are not to be looked for.
	registry cluster.Registry
	// store is where the progress of the cluster with the ID is published; nil
	// when the Kubernetes API is not to be had.
	store func(id string) (publish.Store, error)
	// own and management are where an object that progress is published to may be.
	// Own is nil when the Kubernetes API is not to be had, management where the
	// provider block names none or, with the reason in unmanaged, one that cannot be
	// used.
	own, management *home
	unmanaged       error
	// kubeconfig is remembered, so that not every operation has the cluster sign
	// another certificate; nil when there is none.
	kubeconfig []byte
	// kubeconfigFrom introduces errors about it; empty where they say enough.
	kubeconfigFrom string
	// identify tells the adapters which cluster this is, so that the objects
	// they write carry its ID.
	identify func(id string)
	// expires is when the client certificate of the Talos API does; zero when
	// that is not known.
	expires time.Time
	close   func() error
}

// dialFunc makes a connection.
type dialFunc func(ctx context.Context, shared *settings, access credentials, wanted string, remembered remembrance) (*connection, error)

// dial constructs the adapters; it is the only place that does. Errors are
// about the credentials: a cluster that does not answer shows in the calls.
func dial(ctx context.Context, shared *settings, access credentials, wanted string, remembered remembrance) (*connection, error) {
	if len(access.Unknown) > 0 {
		return nil, fmt.Errorf("%w: %s", errUnknown, strings.Join(access.Unknown, ", "))
	}

	management, unmanaged := access.Management.connect(shared)

	made, talos, err := dialTalos(ctx, shared, access, wanted, management, unmanaged)
	if err != nil {
		management.close()

		return nil, err
	}

	if made.kubeconfig == nil {
		made.kubeconfig, err = remembered.kubeconfigAt(ctx, shared.clock.Now(), talos.Kubeconfig)
		if errors.Is(err, cluster.ErrCredentials) {
			// The reason is that of every call to the Talos API, and said of the others.
			err = cluster.ErrCredentials
		}

		if err != nil {
			made.kubernetes = kubeapi.NewUnavailable(fmt.Errorf("%w: %w", errKubeless, err))

			return made, nil
		}
	}

	remembered.servers.expect(made.endpoints...)

	if err := made.addKubernetes(shared, talos, remembered.servers); err != nil {
		return nil, errors.Join(err, made.close())
	}

	return made, nil
}

// dialTalos is the connection as far as it does without the Kubernetes API of the
// cluster.
func dialTalos(
	ctx context.Context, shared *settings, access credentials, wanted string, management *home, unmanaged error,
) (*connection, *talosapi.Client, error) {
	access, err := access.borrow(ctx, management, unmanaged)
	if err != nil {
		return nil, nil, err
	}

	config, err := access.talos(wanted)
	if err != nil {
		return nil, nil, err
	}

	if err := mayRead(config); err != nil {
		return nil, nil, err
	}

	given, err := access.kubeconfig()
	if err != nil {
		return nil, nil, err
	}

	talos, err := talosapi.New(config, talosapi.Options{UserAgent: shared.userAgent()})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errUnusable, err)
	}

	from := ""
	if access.Lent != "" {
		from = access.lent("kubeconfig") + ": "
	}

	return &connection{
		name: config.String(), context: config.Context(), endpoints: config.Endpoints(), talos: talos, identify: func(string) {},
		kubeconfig: given, kubeconfigFrom: from,
		management: management, unmanaged: unmanaged,
		registry: shared.registry, expires: config.Certificate().NotAfter(),
		close: func() error {
			management.close()

			return talos.Close()
		},
	}, talos, nil
}

// mayRead refuses a certificate whose roles let nobody look at a cluster, such as
// os:etcd:backup: nodes would seem to be there and tell nothing. What they make of
// one without a role is theirs to say.
func mayRead(config talosapi.Config) error {
	roles := config.Certificate().Roles()

	reads := func(role string) bool { return role == "os:admin" || role == "os:operator" || role == "os:reader" }
	if len(roles) == 0 || slices.ContainsFunc(roles, reads) {
		return nil
	}

	return fmt.Errorf("%w: the certificate of the %s has the role %s, with which a cluster can be neither looked at nor upgraded; a plan needs os:reader, and an upgrade os:admin",
		errUnusable, config.String(), strings.Join(roles, ", "))
}

func (c *connection) addKubernetes(shared *settings, talos *talosapi.Client, servers *serverBook) error {
	client, err := kubeapi.New(c.kubeconfig, "", kubeapi.Options{
		UserAgent: shared.userAgent(), Sleep: shared.clock.Sleep, Alternatives: servers.addresses,
	})
	if err != nil {
		return fmt.Errorf("%w: %s%w", errUnusable, c.kubeconfigFrom, err)
	}

	servers.at(client.Config().Host)

	c.kubernetes, c.identify = client, client.Identify
	c.workloads, c.objects = client, client
	c.removals = removal.New(talos, client.Config())
	c.manifests = manifest.New(talos, client.Config(), client.HTTPClient())
	c.own = newHome(client)
	c.store = func(id string) (publish.Store, error) {
		return publish.NewConfigMapStore(client.Config(), client.HTTPClient(), id)
	}

	closeTalos := c.close
	c.close = func() error {
		client.Close()

		return closeTalos()
	}

	return nil
}
