// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
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

// reopenPause is how long the front waits before it tries again to take back a
// port that somebody else holds.
const reopenPause = 100 * time.Millisecond

// front is how clients reach the API server: one gate per control plane and
// one that belongs to whichever control plane is up, as a virtual address does.
type front struct {
	world  World
	target string
	lose   func(cut func()) bool

	mutex   sync.Mutex
	planes  map[string]*gate
	shared  *gate
	retry   *time.Timer
	stopped bool
}

func newFront(world World, target string, lose func(cut func()) bool) (*front, error) {
	shared, err := newGate(target, "", lose)
	if err != nil {
		return nil, err
	}

	f := &front{world: world, target: target, lose: lose, planes: map[string]*gate{}, shared: shared}

	return f, f.update()
}

// sent is how many bytes clients were answered through the gates that there are.
func (f *front) sent() int64 {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	sum := f.shared.sent.Load()
	for _, plane := range f.planes {
		sum += plane.sent.Load()
	}

	return sum
}

// update opens and closes the gates to match the world. It does not block, so
// that a machine which goes down takes its connections along at once.
func (f *front) update() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	if f.stopped {
		return nil
	}

	var (
		failed  error
		up      []string
		quorum  = f.world.EtcdQuorum()
		removed = maps.Clone(f.planes)
	)

	for _, machine := range f.world.Machines() {
		if machine.Role != RoleControlPlane {
			continue
		}

		delete(removed, machine.Name)

		serves := quorum && machine.APIServerUp
		if serves {
			up = append(up, machine.Name)
		}

		failed = errors.Join(failed, f.updatePlane(machine.Name, serves))
	}

	for _, known := range removed {
		known.close()
	}

	failed = errors.Join(failed, f.updateShared(up))
	if failed != nil {
		f.later()
	}

	return failed
}

func (f *front) updatePlane(name string, serves bool) error {
	known := f.planes[name]

	if known == nil {
		created, err := newGate(f.target, name, f.lose)
		if err != nil {
			return err
		}

		f.planes[name], known = created, created
	}

	if serves {
		return known.open(name)
	}

	known.close()

	return nil
}

// updateShared leaves the shared address where it is while its owner is up.
func (f *front) updateShared(up []string) error {
	if len(up) == 0 {
		f.shared.close()

		return nil
	}

	owner := f.shared.ownedBy()
	if !slices.Contains(up, owner) {
		owner = up[0]
	}

	return f.shared.open(owner)
}

func (g *gate) ownedBy() string {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	return g.owner
}

// later tries again soon; with the lock held.
func (f *front) later() {
	if f.retry != nil {
		f.retry.Stop()
	}

	// The next attempt reports a failure to nobody: the gate stays closed,
	// which its users see, and the attempt after that follows.
	f.retry = time.AfterFunc(reopenPause, func() { _ = f.update() })
}

// port is where the API server of the named control plane is reached; 0 when
// there is none.
func (f *front) port(name string) int {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	if known := f.planes[name]; known != nil {
		return known.port
	}

	return 0
}

// reachable tells whether any client could get through.
func (f *front) reachable() bool {
	f.shared.mutex.Lock()
	defer f.shared.mutex.Unlock()

	return f.shared.listener != nil
}

func (f *front) stop() {
	f.mutex.Lock()

	f.stopped = true

	if f.retry != nil {
		f.retry.Stop()
	}

	gates := []*gate{f.shared}
	for _, known := range f.planes {
		gates = append(gates, known)
	}

	f.mutex.Unlock()

	for _, known := range gates {
		known.stop()
	}
}

// Ports are chosen from below the ranges from which systems take the local
// ports of outgoing connections, so that a port which is closed for a while,
// because its machine is down, is still ours afterwards.
const (
	lowestPort  = 20000
	highestPort = 32000
)

const loopback = "127.0.0.1"

// listenAnywhere listens on a random free port.
func listenAnywhere() (net.Listener, error) {
	const attempts = 100

	var last error

	for range attempts {
		port := lowestPort + rand.IntN(highestPort-lowestPort)

		listener, err := net.Listen("tcp", hostPort(port))
		if err == nil {
			return listener, nil
		}

		last = err
	}

	return nil, fmt.Errorf("finding a free port between %d and %d on %s: %w", lowestPort, highestPort, loopback, last)
}

// freePorts chooses ports that are free now. Somebody may be faster, so who
// uses them must be able to try again.
func freePorts(count int) ([]int, error) {
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

// portOf is the port of a TCP listener.
func portOf(listener net.Listener) int {
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		panic(fmt.Sprintf("%s is no TCP address", listener.Addr()))
	}

	return address.Port
}

func hostPort(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// dialTimeout bounds a connection to a process on the same machine.
const dialTimeout = 5 * time.Second

// gate is a port on the loopback that leads to the real API server while it is
// open. While it is closed the port refuses connections, and closing it resets
// those that exist, as a machine that goes down does.
type gate struct {
	port   int
	target string
	// lose is asked before each piece of an answer goes to its client whether it is to
	// be lost, and cuts the connections then; nil never does.
	lose func(cut func()) bool
	// sent are the bytes that clients were answered.
	sent atomic.Int64

	mutex sync.Mutex
	// owner is who new connections belong to.
	owner    string
	listener net.Listener
	// live holds both ends of each connection, with its owner.
	live map[*link]string
	wait sync.WaitGroup
}

// link is one connection through a gate.
type link struct{ client, server net.Conn }

// newGate reserves a port and leaves it open.
func newGate(target, owner string, lose func(cut func()) bool) (*gate, error) {
	listener, err := listenAnywhere()
	if err != nil {
		return nil, err
	}

	g := &gate{
		port:   portOf(listener),
		target: target,
		owner:  owner,
		lose:   lose,
		live:   map[*link]string{},
	}
	g.serve(listener)

	return g, nil
}

// open lets new connections in, on behalf of the owner; those of other owners
// are reset.
func (g *gate) open(owner string) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	g.owner = owner
	g.cut(func(other string) bool { return other != owner })

	if g.listener != nil {
		return nil
	}

	listener, err := net.Listen("tcp", hostPort(g.port))
	if err != nil {
		return fmt.Errorf("taking port %d back: %w", g.port, err)
	}

	g.serve(listener)

	return nil
}

// close refuses new connections and resets the live ones.
func (g *gate) close() {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	if g.listener != nil {
		// Closing a listener fails only when it is closed already.
		_ = g.listener.Close()
		g.listener = nil
	}

	g.cut(func(string) bool { return true })
}

// stop closes the gate for good and waits for everything that runs in it.
func (g *gate) stop() {
	g.close()
	g.wait.Wait()
}

// cut resets the connections of the owners in question; with the lock held.
func (g *gate) cut(doomed func(owner string) bool) {
	for connection, owner := range g.live {
		if doomed(owner) {
			connection.reset()
			delete(g.live, connection)
		}
	}
}

// serve accepts from the listener until it is closed; with the lock held, or
// before anybody else knows the gate.
func (g *gate) serve(listener net.Listener) {
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
func (g *gate) pass(listener net.Listener, client net.Conn) {
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
func (g *gate) admit(listener net.Listener, connection *link) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()

	if g.listener != listener {
		return false
	}

	g.live[connection] = g.owner

	return true
}

// forward copies until from ends, and then tells to. An error of either side is
// the end of the connection and nothing else.
func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)

	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}

// answer is what a server sends, as far as it is to reach the client.
type answer struct {
	net.Conn

	gate *gate
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
func (g *gate) cutAll() {
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

// assess finds out whether answers have to be looked at before clients get
// them, which costs a few milliseconds each.
func (s *Server) assess() {
	// The world changes from several sides. Who asks it first must not have the last word.
	s.assessing.Lock()
	defer s.assessing.Unlock()

	atRisk := s.options.World.RepliesAtRisk()

	s.auditor.ledger.follow(atRisk)
	s.atRisk.Store(atRisk)
}

// loseReply tells whether a request of a client has taken effect whose answer
// has to be lost, and cuts the connections then, before any other answer may pass: it may
// be another one than that in hand that tells so. The answer in hand may belong to the
// request: its line in the audit log is waited for.
func (s *Server) loseReply(cut func()) bool {
	if !s.atRisk.Load() {
		return false
	}

	s.losing.Lock()
	defer s.losing.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()

	// Without the log nobody knows what the answer is about, so it passes.
	if s.Sync(ctx) != nil {
		return false
	}

	for _, node := range s.auditor.ledger.touched() {
		if s.options.World.LoseReply(node) {
			cut()
			s.assess()

			return true
		}
	}

	return false
}

// follow begins or ends to remember the nodes that clients touch.
func (l *ledger) follow(on bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	l.following = on

	if !on {
		l.nodes = nil
	}
}

// touch remembers that a client has changed something about a node.
func (l *ledger) touch(event auditEvent, node string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if l.following && node != "" && event.by() == byClient && event.succeeded() {
		l.nodes = append(l.nodes, node)
	}
}

// touched returns what was remembered since the last call.
func (l *ledger) touched() []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	nodes := l.nodes
	l.nodes = nil

	return nodes
}
