// SPDX-License-Identifier: MPL-2.0

// Package front is how clients reach the API servers of a simulated cluster over TCP: ports of this machine, one
// for each control plane and one for any of them that is up, that are open while the control plane serves. Behind
// them listens one server for all.
package front

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// reopenPause is how long the front waits before it tries again to take back a port that something else holds.
const reopenPause = 100 * time.Millisecond

// Plane is a control plane.
type Plane struct {
	Name string
	// Serves is true if its API server answers.
	Serves bool
}

// Front has one gate per control plane and one that belongs to any control plane that is up, like a virtual
// address.
type Front struct {
	target string
	lose   func(cut func()) bool
	list   func() []Plane

	mutex   sync.Mutex
	planes  map[string]*Gate
	shared  *Gate
	retry   *time.Timer
	stopped bool
}

// New makes the gates to a server at the target, HOST:PORT. list returns all control planes that exist at the
// moment. lose is that of [NewGate].
func New(target string, list func() []Plane, lose func(cut func()) bool) (*Front, error) {
	shared, err := NewGate(target, lose)
	if err != nil {
		return nil, err
	}

	f := &Front{target: target, lose: lose, list: list, planes: map[string]*Gate{}, shared: shared}

	// If something else holds a port for the moment, it is tried again.
	_ = f.Update()

	return f, nil
}

// Sent returns how many bytes of answers clients were sent through the existing gates.
func (f *Front) Sent() int64 {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	sum := f.shared.sent.Load()
	for _, plane := range f.planes {
		sum += plane.sent.Load()
	}

	return sum
}

// Update opens and closes the gates to match the control planes. It does not block, so that the connections of a
// machine that goes down end at once.
func (f *Front) Update() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	if f.stopped {
		return nil
	}

	var (
		failed  error
		up      []string
		removed = maps.Clone(f.planes)
	)

	for _, plane := range f.list() {
		delete(removed, plane.Name)

		if plane.Serves {
			up = append(up, plane.Name)
		}

		failed = errors.Join(failed, f.updatePlane(plane.Name, plane.Serves))
	}

	for _, known := range removed {
		known.Close()
	}

	failed = errors.Join(failed, f.updateShared(up))
	if failed != nil {
		f.later()
	}

	return failed
}

func (f *Front) updatePlane(name string, serves bool) error {
	known := f.planes[name]

	if known == nil {
		created, err := NewGate(f.target, f.lose)
		if err != nil {
			return err
		}

		f.planes[name], known = created, created
	}

	if serves {
		return known.Open(name)
	}

	known.Close()

	return nil
}

// updateShared leaves the shared address where it is while its owner is up.
func (f *Front) updateShared(up []string) error {
	if len(up) == 0 {
		f.shared.Close()

		return nil
	}

	owner := f.shared.ownedBy()
	if !slices.Contains(up, owner) {
		owner = up[0]
	}

	return f.shared.Open(owner)
}

func (g *Gate) ownedBy() string {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	return g.owner
}

// later tries again soon. The lock is held.
func (f *Front) later() {
	if f.retry != nil {
		f.retry.Stop()
	}

	// A failure of the next attempt is not reported: the gate stays closed, which its users see, and another
	// attempt follows.
	f.retry = time.AfterFunc(reopenPause, func() { _ = f.Update() })
}

// Shared returns the port that leads to any control plane that is up.
func (f *Front) Shared() int { return f.shared.Port() }

// Port returns the port of the API server of the named control plane; 0 if there is none.
func (f *Front) Port(name string) int {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	if known := f.planes[name]; known != nil {
		return known.port
	}

	return 0
}

// Reachable reports whether any client could get through.
func (f *Front) Reachable() bool {
	f.shared.mutex.Lock()
	defer f.shared.mutex.Unlock()

	return f.shared.listener != nil
}

// Stop closes all gates for good and waits for everything that runs in them.
func (f *Front) Stop() {
	f.mutex.Lock()

	f.stopped = true

	if f.retry != nil {
		f.retry.Stop()
	}

	gates := []*Gate{f.shared}
	for _, known := range f.planes {
		gates = append(gates, known)
	}

	f.mutex.Unlock()

	for _, known := range gates {
		known.Stop()
	}
}

// Ports are chosen from below the ranges from which systems take the local ports of outgoing connections, so that a
// port that is closed for a while, because its machine is down, is still free afterwards.
const (
	lowestPort  = 20000
	highestPort = 32000
)

// Loopback is the address of all ports.
const Loopback = "127.0.0.1"

// listenAnywhere listens on a random free port.
func listenAnywhere() (net.Listener, error) {
	const attempts = 100

	var last error

	for range attempts {
		port := lowestPort + rand.IntN(highestPort-lowestPort)

		listener, err := net.Listen("tcp", HostPort(port))
		if err == nil {
			return listener, nil
		}

		last = err
	}

	return nil, fmt.Errorf("finding a free port between %d and %d on %s: %w", lowestPort, highestPort, Loopback, last)
}

// FreePorts returns ports that are free now. Something else may take them first, so the caller must be able to try
// again.
func FreePorts(count int) ([]int, error) {
	var (
		ports     []int
		listeners []net.Listener
		failed    error
	)

	for range count {
		listener, err := listenAnywhere()
		if err != nil {
			failed = err

			break
		}

		listeners = append(listeners, listener)
		ports = append(ports, portOf(listener))
	}

	for _, listener := range listeners {
		failed = errors.Join(failed, listener.Close())
	}

	return ports, failed
}

// portOf returns the port of a TCP listener.
func portOf(listener net.Listener) int {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		panic(fmt.Sprintf("%s is no TCP address", listener.Addr()))
	}

	return address.Port
}

// HostPort returns a port with its host, as dialers and URLs have it.
func HostPort(port int) string { return net.JoinHostPort(Loopback, strconv.Itoa(port)) }

// dialTimeout bounds a connection to a process on the same machine.
const dialTimeout = 5 * time.Second

// Gate is a port on the loopback that leads to the API server while it is open. While it is closed the port refuses
// connections. Closing it resets the existing ones, as a machine that goes down does.
type Gate struct {
	port   int
	target string
	lose   func(cut func()) bool
	// sent is how many bytes of answers clients were sent.
	sent atomic.Int64

	mutex sync.Mutex
	// owner is the owner of new connections.
	owner    string
	listener net.Listener
	// live holds both ends of each connection, with its owner.
	live map[*link]string
	wait sync.WaitGroup
}

// link is one connection through a gate.
type link struct{ client, server net.Conn }

// NewGate reserves a port, which leads to the target, HOST:PORT, and leaves it open. If lose is not nil, it is
// called before each piece of an answer goes to its client. It reports whether that is to be lost, and cuts the
// connections then.
func NewGate(target string, lose func(cut func()) bool) (*Gate, error) {
	listener, err := listenAnywhere()
	if err != nil {
		return nil, err
	}

	g := &Gate{
		port:   portOf(listener),
		target: target,
		lose:   lose,
		live:   map[*link]string{},
	}
	g.serve(listener)

	return g, nil
}

// Port returns the number of its port, which it keeps while it is closed.
func (g *Gate) Port() int { return g.port }

// Open lets new connections in for the owner; connections of other owners are reset.
func (g *Gate) Open(owner string) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	g.owner = owner
	g.cut(func(other string) bool { return other != owner })

	if g.listener != nil {
		return nil
	}

	listener, err := net.Listen("tcp", HostPort(g.port))
	if err != nil {
		return fmt.Errorf("taking port %d back: %w", g.port, err)
	}

	g.serve(listener)

	return nil
}

// Close refuses new connections and resets the live ones.
func (g *Gate) Close() {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	if g.listener != nil {
		// Closing a listener fails only when it is closed already.
		_ = g.listener.Close()
		g.listener = nil
	}

	g.cut(func(string) bool { return true })
}

// Stop closes the gate for good and waits for everything that runs in it.
func (g *Gate) Stop() {
	g.Close()
	g.wait.Wait()
}

// cut resets the connections of the selected owners. The lock is held.
func (g *Gate) cut(doomed func(owner string) bool) {
	for connection, owner := range g.live {
		if doomed(owner) {
			connection.reset()
			delete(g.live, connection)
		}
	}
}

// serve accepts from the listener until it is closed. The lock is held, or nothing else knows the gate yet.
func (g *Gate) serve(listener net.Listener) {
	g.listener = listener

	g.wait.Go(func() {
		for {
			client, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}

			if err == nil {
				g.wait.Go(func() { g.pass(listener, client) })
			}
		}
	})
}

// pass copies bytes in both directions until either side ends.
func (g *Gate) pass(listener net.Listener, client net.Conn) {
	server, err := net.DialTimeout("tcp", g.target, dialTimeout)
	if err != nil {
		_ = client.Close()

		return
	}

	connection := &link{client: client, server: server}

	if !g.admit(listener, connection) {
		connection.reset()

		return
	}

	var copying sync.WaitGroup

	copying.Go(func() { forward(server, client) })
	copying.Go(func() { forward(client, &answer{Conn: server, gate: g}) })
	copying.Wait()

	g.mutex.Lock()
	delete(g.live, connection)
	g.mutex.Unlock()

	connection.close()
}

// admit registers a connection, unless the gate was closed while it was made.
func (g *Gate) admit(listener net.Listener, connection *link) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	if g.listener != listener {
		return false
	}

	g.live[connection] = g.owner

	return true
}

// forward copies until from ends, and then closes to for writing. An error of either side only ends the connection.
func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)

	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}

// answer is what a server sends, unless it is to be lost.
type answer struct {
	net.Conn

	gate *Gate
}

// Read returns a piece of the answer unless it is to be lost.
func (a *answer) Read(piece []byte) (int, error) {
	count, err := a.Conn.Read(piece)

	if count > 0 && a.gate.lose != nil && a.gate.lose(a.gate.cutAll) {
		return 0, net.ErrClosed
	}

	a.gate.sent.Add(int64(count))

	return count, err
}

// cutAll resets all connections.
func (g *Gate) cutAll() {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	g.cut(func(string) bool { return true })
}

func (l *link) reset() {
	for _, side := range []net.Conn{l.client, l.server} {
		if tcp, ok := side.(*net.TCPConn); ok {
			// A reset instead of an orderly end, and no port left in TIME_WAIT.
			_ = tcp.SetLinger(0)
		}
	}

	l.close()
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}
