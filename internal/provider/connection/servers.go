// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// apiServerPort is the default port of API servers in Talos. The port of a kubeconfig may be the one of a load
// balancer.
const apiServerPort = "6443"

// serverAddresses are the possible addresses of a cluster's API servers, for use while the address in the kubeconfig
// does not answer: every control plane runs one. The zero value has none.
type serverAddresses struct {
	mu    sync.Mutex
	port  string
	hosts []string
	// observed is true if hosts are from an observation rather than guessed.
	observed bool
	// tunnel is true if the server of the kubeconfig is this machine, as with a forwarded port. From here, the
	// addresses of nodes may lead nowhere, or elsewhere.
	tunnel bool
}

// at sets the port and tunnel from the URL of the kubeconfig's server. Without a port, it is 443. If the URL is invalid,
// nothing changes.
func (s *serverAddresses) at(server string) {
	parsed, err := url.Parse(server)
	if err != nil {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.port = cmp.Or(parsed.Port(), "443")
	s.tunnel = loopback(parsed.Hostname())
}

func loopback(host string) bool {
	ip := net.ParseIP(host)

	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// expect sets the hosts from the endpoints of the Talos API, which usually are control planes, unless hosts were
// observed.
func (s *serverAddresses) expect(endpoints ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.observed {
		return
	}

	s.hosts = nil

	for _, endpoint := range endpoints {
		s.hosts = append(s.hosts, HostOf(endpoint))
	}
}

// HostOf returns the host of an endpoint of the Talos API, which may be a host, a host with a port, or a URL.
func HostOf(endpoint string) string {
	if parsed, err := url.Parse(endpoint); err == nil && parsed.Host != "" {
		return parsed.Hostname()
	}

	if host, _, err := net.SplitHostPort(endpoint); err == nil {
		return host
	}

	return strings.Trim(endpoint, "[]")
}

// notice sets the hosts from the control planes of an observation, after which [serverAddresses.expect] has no effect.
// If none has an address, nothing changes.
func (s *serverAddresses) notice(observed cluster.Observation) {
	var hosts []string

	for _, node := range observed.ControlPlanes() {
		if node.Address != "" {
			hosts = append(hosts, node.Address)
		}
	}

	if len(hosts) == 0 {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.hosts, s.observed = hosts, true
}

// addresses returns candidates for the API servers, as host:port: every host with [apiServerPort], then every host with
// the port of the kubeconfig, which is rarely that of the nodes. If the server of the kubeconfig is this machine, nil is
// returned.
func (s *serverAddresses) addresses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.tunnel {
		return nil
	}

	var addresses []string

	for _, port := range slices.Compact([]string{apiServerPort, cmp.Or(s.port, apiServerPort)}) {
		for _, host := range s.hosts {
			addresses = append(addresses, net.JoinHostPort(host, port))
		}
	}

	return addresses
}
