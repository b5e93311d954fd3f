// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/cluster"
	"github.com/siderolabs/talos/pkg/cluster/check"
	"github.com/siderolabs/talos/pkg/conditions"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
)

// upstream is a cluster as the packages of Talos want it: everything comes from
// the talosconfig, also the kubeconfig.
type upstream struct {
	cluster.ClientProvider
	cluster.K8sProvider
	cluster.Info
}

func (s *simulator) connect() *upstream {
	s.Helper()

	config, err := clientconfig.Open(filepath.Join(s.dir, "talosconfig"))
	if err != nil {
		s.Fatal(err)
	}

	provider := &cluster.ConfigClientProvider{TalosConfig: config}

	talos, err := provider.Client()
	if err != nil {
		s.Fatal(err)
	}

	// The provider makes a client at each call and closes none.
	provider.DefaultClient = talos
	kubernetes := &cluster.KubernetesClient{ClientProvider: provider}

	s.Cleanup(func() {
		_ = kubernetes.K8sClose()
		_ = talos.Close()
	})

	ctx, cancel := context.WithTimeout(s.Context(), callTimeout)
	defer cancel()

	members, err := safe.StateListAll[*clusterres.Member](ctx, talos.COSI)
	if err != nil {
		s.Fatal(err)
	}

	var list []*clusterres.Member
	for member := range members.All() {
		list = append(list, member)
	}

	info, err := check.NewDiscoveredClusterInfo(list)
	if err != nil {
		s.Fatal(err)
	}

	return &upstream{ClientProvider: provider, K8sProvider: kubernetes, Info: info}
}

// healthy runs upstream's checks until all of them hold, or the time is over.
func (u *upstream) healthy(t *testing.T, limit time.Duration) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	said := &reporter{T: t}
	if err := check.Wait(ctx, u, check.DefaultClusterChecks(), said); err != nil {
		return fmt.Errorf("%s: %w", said.last(), err)
	}

	return nil
}

// reporter logs what the checks say, each thing once.
type reporter struct {
	*testing.T
	mu   sync.Mutex
	line string
}

// Update implements check.Reporter.
func (r *reporter) Update(condition conditions.Condition) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if line := condition.String(); line != r.line {
		r.line = line
		r.Log(line)
	}
}

func (r *reporter) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.line
}

// log is a test's log that can be written to.
type log struct{ *testing.T }

// Write implements io.Writer.
func (l log) Write(text []byte) (int, error) {
	l.Log(string(text))

	return len(text), nil
}
