// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/grpc-proxy/proxy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// director routes the calls that reach one endpoint while its machine is up.
type director struct {
	server  *Server
	own     string // address of the endpoint's machine
	forward bool   // control planes forward, workers do not
	local   *grpc.ClientConn

	mu    sync.Mutex
	peers map[string]*pause
	dials map[string]time.Duration // when a try began that is under way
}

// pause is how long a proxy does not try again to reach a machine that it
// could not reach before.
type pause struct {
	length time.Duration
	until  time.Duration // simulated time
}

// direct implements proxy.StreamDirector.
func (d *director) direct(ctx context.Context, method string) (proxy.Mode, []proxy.Backend, error) {
	roles := certificateRoles(ctx)
	local := &backend{roles: roles, connect: func(context.Context) (*grpc.ClientConn, error) { return d.local, nil }}

	routing, _ := metadata.FromIncomingContext(ctx)
	node, nodes := routing["node"], routing["nodes"]

	if len(routing["proxyfrom"]) > 0 {
		return proxy.One2One, []proxy.Backend{local}, nil
	}

	if node != nil && len(node) != 1 {
		return proxy.One2One, nil, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	}

	if !d.forward {
		if len(node) == 1 && node[0] == d.own {
			node = nil
		}

		if len(nodes) == 1 && nodes[0] == d.own {
			nodes = nil
		}
	}

	switch {
	case nodes != nil && !manyAllowed(method):
		return proxy.One2One, nil, status.Errorf(codes.InvalidArgument,
			"one-2-many proxying is not supported for method %s", method)
	case nodes != nil:
		backends, err := d.remote(nodes, roles)

		return proxy.One2Many, backends, err
	case node != nil:
		backends, err := d.remote(node, roles)

		return proxy.One2One, backends, err
	default:
		return proxy.One2One, []proxy.Backend{local}, nil
	}
}

func (d *director) remote(targets, roles []string) ([]proxy.Backend, error) {
	if !d.forward {
		return nil, status.Error(codes.PermissionDenied, "no request forwarding")
	}

	backends := make([]proxy.Backend, len(targets))

	for i, target := range targets {
		if target == "" || withPort(target) {
			return nil, status.Errorf(codes.Internal, "invalid target %q", target)
		}

		backends[i] = &backend{
			target: target, roles: roles,
			connect: func(ctx context.Context) (*grpc.ClientConn, error) { return d.connect(ctx, target) },
		}
	}

	return backends, nil
}

// withPort tells an address with a port as apid does, with AddressContainsPort of
// github.com/siderolabs/net: an address of IPv6 has colons of its own.
func withPort(target string) bool {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return false
	}

	_, err = netip.ParseAddr(host)

	return !strings.Contains(host, ":") || err == nil
}

// plain is an address as the world spells it: apid dials it in whatever way a
// caller writes it, with brackets or without.
func plain(target string) string {
	target = strings.Trim(target, "[]")

	if address, err := netip.ParseAddr(target); err == nil {
		return address.String()
	}

	return target
}

// dialTimeout is how long a proxy tries to reach a machine that is silent.
const dialTimeout = 20 * time.Second

// connect reaches a machine's services, unless it failed to do so a short
// while ago. Who calls a silent machine waits for the end of the try that is under way.
func (d *director) connect(ctx context.Context, target string) (*grpc.ClientConn, error) {
	const first, most, factor = time.Second, 15 * time.Second, 1.6

	d.mu.Lock()
	defer d.mu.Unlock()

	now := d.server.world.Now()

	waiting := d.peers[target]
	if waiting != nil && now < waiting.until {
		return nil, d.unanswered(target)
	}

	conn, err := d.server.services(target)
	if err != nil && d.server.world.Silent() {
		begun, dialling := d.dials[target]
		if !dialling {
			begun = now
			d.dials[target] = begun
		}

		d.mu.Unlock()

		ended := d.server.world.Clock().Sleep(ctx, begun+dialTimeout-now)

		d.mu.Lock()

		now = d.server.world.Now()
		if ended != nil && now-begun < dialTimeout {
			return nil, status.FromContextError(ended).Err()
		}

		delete(d.dials, target)

		if waiting = d.peers[target]; waiting != nil && now < waiting.until {
			return nil, d.unanswered(target)
		}

		if conn, err = d.server.services(target); err != nil {
			err = d.unanswered(target)
		}
	}

	if err == nil {
		delete(d.peers, target)

		return conn, nil
	}

	if waiting == nil {
		waiting = &pause{length: first}
		d.peers[target] = waiting
	} else {
		waiting.length = min(most, time.Duration(float64(waiting.length)*factor))
	}

	waiting.until = now + waiting.length

	return nil, err
}

// unanswered is what the last try to reach a machine ended with.
func (d *director) unanswered(target string) error {
	if d.server.world.Silent() {
		return timedOut(target)
	}

	return refused(target)
}

// services finds the connection to the services of a machine by its address.
func (s *Server) services(target string) (*grpc.ClientConn, error) {
	address := plain(target)

	state, err := s.world.Node(address)
	if err != nil || address == state.Name {
		return nil, unroutable(address)
	}

	if !state.Reachable {
		return nil, refused(address)
	}

	s.mu.Lock()
	station := s.stations[state.Name]
	s.mu.Unlock()

	if station == nil {
		return nil, refused(address)
	}

	if conn := station.connection(); conn != nil {
		return conn, nil
	}

	return nil, refused(address)
}

// certificateRoles are the organizations of the caller's certificate.
func certificateRoles(ctx context.Context) []string {
	caller, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}

	info, ok := caller.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}

	return info.State.PeerCertificates[0].Subject.Organization
}

func manyAllowed(method string) bool {
	for _, service := range []string{
		"/machine.MachineService/", "/cluster.ClusterService/", "/inspect.InspectService/",
		"/storage.StorageService/", "/time.TimeService/",
	} {
		if strings.HasPrefix(method, service) {
			return true
		}
	}

	return false
}

// streamed tells which methods answer with a stream, for one-to-many calls.
func streamed(method string) bool {
	switch method {
	case "/machine.MachineService/Copy", "/machine.MachineService/DiskUsage", "/machine.MachineService/Dmesg",
		"/machine.MachineService/EtcdSnapshot", "/machine.MachineService/Events", "/machine.MachineService/ImageList",
		"/machine.MachineService/Kubeconfig", "/machine.MachineService/List", "/machine.MachineService/Logs",
		"/machine.MachineService/PacketCapture", "/machine.MachineService/Read",
		"/cluster.ClusterService/HealthCheck":
		return true
	default:
		return false
	}
}

// forwards tells which machines have the certificate to call others.
func forwards(role model.Role) bool { return role == model.ControlPlane }
