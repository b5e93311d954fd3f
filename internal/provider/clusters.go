// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"
)

// clusters gives resources and data sources access to the clusters that the
// credentials of one provider block reach.
type clusters struct {
	settings *settings
	access   credentials
	releases releaseDefaults
	claims   *claims

	mu   sync.Mutex
	open map[string]*sharedConnection
}

// sharedConnection is used by all operations that run at the same time on the
// same context. The last one to finish closes it: Terraform never says when
// the provider is done.
type sharedConnection struct {
	mu         sync.Mutex
	users      int
	current    *connection
	kubeconfig []byte
	last       *look
	// servers are where the Kubernetes API is, besides the kubeconfig's address.
	servers serverBook
}

func newClusters(settings *settings, access credentials) *clusters {
	return &clusters{settings: settings, access: access, claims: newClaims(), open: map[string]*sharedConnection{}}
}

// undecided is the access as a roll depends on it, and whether what it depends
// on is not fully known yet.
func (c *clusters) undecided() (credentials, bool) {
	access := c.access
	if c.releases.factoryURL.IsUnknown() {
		access.Unknown = append(slices.Clone(access.Unknown), attrImageFactoryURL)
	}

	return access, len(access.Unknown) > 0
}

// called is what people call the cluster of a resource, found out without asking
// it; empty where nothing tells.
func (c *clusters) called(of clusterModel) string {
	if c == nil {
		return ""
	}

	if !of.Context.IsUnknown() {
		wanted := of.Context.ValueString()

		if config, err := c.access.talos(wanted); err == nil {
			return config.String()
		}

		if name := c.access.contextName(wanted); name != "" {
			return fmt.Sprintf("talosconfig context %q", name)
		}
	}

	if id := of.ID.ValueString(); id != "" {
		return "cluster " + id
	}

	if c.access.From != nil {
		return "cluster of " + c.access.From.String()
	}

	return ""
}

// connect is a connection to the cluster of a context; empty means the
// provider's own. Release must be called once.
func (c *clusters) connect(ctx context.Context, wanted string) (reached *connection, release func(), err error) {
	shared := c.shared(c.access.contextName(wanted))

	shared.mu.Lock()
	defer shared.mu.Unlock()

	if shared.current == nil {
		shared.current, err = c.settings.dial(ctx, c.settings, c.access, wanted, remembrance{kubeconfig: shared.kubeconfig, servers: &shared.servers})
		if err != nil {
			return nil, nil, err
		}

		shared.kubeconfig = shared.current.kubeconfig
	}

	shared.users++

	return shared.current, sync.OnceFunc(shared.release), nil
}

func (c *clusters) shared(name string) *sharedConnection {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.open[name] == nil {
		c.open[name] = &sharedConnection{}
	}

	return c.open[name]
}

func (s *sharedConnection) release() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.users--
	if s.users > 0 {
		return
	}

	// What was asked is answered by now: a connection that does not close
	// cleanly changes nothing about that.
	_ = s.current.close()
	s.current = nil
}

// configured is what the provider block hands to a resource or a data source;
// nil while Terraform only validates.
func configured(data any, diagnostics *diag.Diagnostics) *clusters {
	if data == nil {
		return nil
	}

	reached, ok := data.(*clusters)
	if !ok {
		diagnostics.AddError("Unexpected provider data", fmt.Sprintf("Got %T. This is a defect of the provider; please report it.", data))
	}

	return reached
}
