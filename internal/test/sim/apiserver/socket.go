// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/front"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	// agentOfProvider begins the user agent of the provider: the history attributes its requests to the client
	// under test, all others to somebody else.
	agentOfProvider = "terraform-provider-talosupgrade"
	// administrator is the user of the kubeconfigs.
	administrator = "admin"
)

// Socket is the way to the API over TCP, with HTTP/2 and mutual TLS: a port of this machine for each control plane,
// and one for any of them that serves.
type Socket struct {
	secured

	listener net.Listener
	front    *front.Front
	unwatch  func()
}

// ListenTCP lets clients of other processes connect until [Socket.Stop].
func (s *Server) ListenTCP() (*Socket, error) {
	l := &Socket{secured: secured{way: way{server: s}}}

	if err := l.secure(l); err != nil {
		return nil, err
	}

	var err error
	if l.listener, err = net.Listen("tcp", net.JoinHostPort(front.Loopback, "0")); err != nil {
		return nil, fmt.Errorf("apiserver: %w", err)
	}

	if l.front, err = front.New(l.listener.Addr().String(), l.controlPlanes, nil); err != nil {
		_ = l.listener.Close()

		return nil, fmt.Errorf("apiserver: %w", err)
	}

	// The front itself tries again what fails.
	l.unwatch = s.world.OnChange(func(string) { _ = l.front.Update() })

	l.accept(l.listener)

	return l, nil
}

// controlPlanes returns the control planes, and whether they serve, for the front.
func (l *Socket) controlPlanes() []front.Plane {
	var planes []front.Plane

	for _, state := range l.server.world.KubeStates() {
		if state.Role == model.ControlPlane {
			planes = append(planes, front.Plane{Name: state.Name, Serves: l.server.world.APIServerUp(state.Name)})
		}
	}

	return planes
}

// Stop breaks all connections and waits for the requests under way.
func (l *Socket) Stop() {
	l.refuse()
	l.unwatch()
	l.front.Stop()

	_ = l.listener.Close()

	l.end()
}

// Kubeconfig returns that of the administrator, with everything inline, for the port that leads to any control
// plane that serves.
func (l *Socket) Kubeconfig() ([]byte, error) {
	return l.kubeconfig(front.HostPort(l.front.Shared()), administrator, administrator+"@"+l.server.world.ClusterName())
}

// Config returns a configuration that reaches the API whatever the state of the control planes.
func (l *Socket) Config() (*rest.Config, error) {
	identity, err := l.identify(administrator)
	if err != nil {
		return nil, err
	}

	return &rest.Config{
		Host: "https://" + l.listener.Addr().String(), UserAgent: "talossim-direct",
		// Negative means no limit: a limit would add delays that do not scale with the speed of the simulation.
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: l.authority.PEM, CertData: identity.Certificate, KeyData: identity.Key},
	}, nil
}

// Answered returns how many bytes of answers clients were sent, encrypted.
func (l *Socket) Answered() int64 { return l.front.Sent() }

// ServeHTTP implements [http.Handler]. The front keeps out clients whose control plane does not serve.
func (l *Socket) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	over, _ := connectionOf(r)

	who := person()
	if strings.HasPrefix(r.UserAgent(), agentOfProvider) {
		who = clientNamed("")
	}

	l.serve(out, r, &caller{who: who, direct: true, cut: func() { _ = over.Close() }})
}
