// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// apiServerPort is where Talos has API servers listen unless it is told otherwise:
// the port of a kubeconfig may be the one of a load balancer.
const apiServerPort = "6443"

// serverBook knows where API servers of a cluster may be, for the time in which
// the address in the kubeconfig does not answer: every control plane runs one.
// Its zero value knows none.
type serverBook struct {
	mu    sync.Mutex
	port  string
	hosts []string
	// observed tells that hosts are what was seen, and no guess.
	observed bool
	// tunnel tells that the server of the kubeconfig is this very machine, as with
	// a forwarded port. The addresses of nodes lead elsewhere from here, if
	// anywhere.
	tunnel bool
}

// at tells the port of the kubeconfig's server.
func (b *serverBook) at(server string) {
	parsed, err := url.Parse(server)
	if err != nil {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	b.port = cmp.Or(parsed.Port(), "443")
	b.tunnel = loopback(parsed.Hostname())
}

func loopback(host string) bool {
	ip := net.ParseIP(host)

	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// expect tells the endpoints of the Talos API, which are control planes as a
// rule. What was observed is better.
func (b *serverBook) expect(endpoints ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.observed {
		return
	}

	b.hosts = nil

	for _, endpoint := range endpoints {
		b.hosts = append(b.hosts, hostOf(endpoint))
	}
}

// hostOf is the host of an endpoint of the Talos API, which may be a host, a host
// with a port, or a URL.
func hostOf(endpoint string) string {
	if parsed, err := url.Parse(endpoint); err == nil && parsed.Host != "" {
		return parsed.Hostname()
	}

	if host, _, err := net.SplitHostPort(endpoint); err == nil {
		return host
	}

	return strings.Trim(endpoint, "[]")
}

// notice takes the control planes from an observation.
func (b *serverBook) notice(snapshot cluster.Snapshot) {
	var hosts []string

	for _, node := range snapshot.ControlPlanes() {
		if node.Address != "" {
			hosts = append(hosts, node.Address)
		}
	}

	if len(hosts) == 0 {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	b.hosts, b.observed = hosts, true
}

// addresses are host:port of every API server that is known, those with the port
// of Talos first: another one in the kubeconfig is rarely that of the nodes.
func (b *serverBook) addresses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.tunnel {
		return nil
	}

	var addresses []string

	for _, port := range slices.Compact([]string{apiServerPort, cmp.Or(b.port, apiServerPort)}) {
		for _, host := range b.hosts {
			addresses = append(addresses, net.JoinHostPort(host, port))
		}
	}

	return addresses
}
