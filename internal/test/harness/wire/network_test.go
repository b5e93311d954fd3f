// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	simwire "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

// network is the connection of one process to the cluster: it has all of its sockets.
type network struct {
	mu   sync.Mutex
	open map[*socket]struct{}
	// dead is true once the process has ended, which closed its sockets.
	dead bool
	// silent has the hosts that swallow what is sent to them.
	silent map[string]bool
	// fuse is called for a socket that broke, before its owner learns of it.
	fuse func(host string)
	// made counts the sockets by host.
	made map[string]int
}

func newNetwork() *network {
	return &network{open: map[*socket]struct{}{}, silent: map[string]bool{}, made: map[string]int{}}
}

// dial opens a socket to an address.
func (n *network) dial(ctx context.Context, address string, connect func(context.Context) (net.Conn, error)) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}

	n.mu.Lock()
	dead, silent := n.dead, n.silent[host]
	n.mu.Unlock()

	switch {
	case dead:
		return nil, net.ErrClosed
	case silent:
		<-ctx.Done()

		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.Cause(ctx)}
	}

	conn, err := connect(ctx)
	if err != nil {
		return nil, err
	}

	made := &socket{Conn: conn, network: n, host: host, gone: make(chan struct{})}

	n.mu.Lock()
	defer n.mu.Unlock()

	if n.dead {
		_ = conn.Close()

		return nil, net.ErrClosed
	}

	n.open[made] = struct{}{}
	n.made[host]++

	return made, nil
}

// die closes all sockets, as the end of a process does.
func (n *network) die() {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()

	n.sever(func(string) bool { return true })
}

// sever breaks the sockets to the selected hosts.
func (n *network) sever(which func(host string) bool) {
	for _, socket := range n.sockets(which) {
		_ = socket.Conn.Close()
	}
}

// silence makes a host behave as if it had lost power: nothing comes back from it, not even that it is gone.
func (n *network) silence(host string) {
	n.mu.Lock()
	n.silent[host] = true
	n.mu.Unlock()

	for _, socket := range n.sockets(func(at string) bool { return at == host }) {
		socket.lose()
	}
}

// revive lets a host answer again. It does not know its earlier connections.
func (n *network) revive(host string) {
	n.mu.Lock()
	delete(n.silent, host)
	n.mu.Unlock()
}

func (n *network) sockets(which func(host string) bool) []*socket {
	n.mu.Lock()
	defer n.mu.Unlock()

	var found []*socket

	for socket := range n.open {
		if which(socket.host) {
			found = append(found, socket)
		}
	}

	return found
}

// count returns how many sockets are open.
func (n *network) count() int { return len(n.sockets(func(string) bool { return true })) }

// dialled returns how often a socket to the host was opened.
func (n *network) dialled(host string) int {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.made[host]
}

func (n *network) quiet(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.silent[host]
}

// onBreak sets the fuse.
func (n *network) onBreak(fuse func(host string)) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.fuse = fuse
}

// socket is a client's end of a connection.
type socket struct {
	net.Conn

	network *network
	host    string

	mu sync.Mutex
	// lost is true once the other side is gone without having closed the connection.
	lost   bool
	closed bool
	gone   chan struct{}
}

// Read implements [net.Conn].
func (s *socket) Read(content []byte) (int, error) {
	count, err := s.Conn.Read(content)

	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()

	if lost {
		// Nothing comes any more until this end is closed.
		<-s.gone

		return 0, net.ErrClosed
	}

	if err != nil {
		s.network.mu.Lock()
		fuse := s.network.fuse
		s.network.mu.Unlock()

		if fuse != nil {
			fuse(s.host)
		}
	}

	return count, err
}

// Write implements [net.Conn].
func (s *socket) Write(content []byte) (int, error) {
	s.mu.Lock()
	lost := s.lost
	s.mu.Unlock()

	switch {
	case !lost:
		return s.Conn.Write(content)
	case s.network.quiet(s.host):
		return len(content), nil
	default:
		// The host that answers now does not know the connection.
		_ = s.Close()

		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
	}
}

// Close implements [net.Conn].
func (s *socket) Close() error {
	s.network.mu.Lock()
	delete(s.network.open, s)
	s.network.mu.Unlock()

	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.gone)
	}
	s.mu.Unlock()

	return s.Conn.Close()
}

// lose makes the other side vanish.
func (s *socket) lose() {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
}

// point identifies a request of a run, however unrelated calls are ordered.
type point struct {
	// Method is the method of the Talos API without its package, or the verb and
	// the object of a request to the Kubernetes API.
	Method string
	// Node is the node concerned, "-" for none.
	Node string
	// Occurrence counts the same method on the same node from 1.
	Occurrence int
}

// String returns one word per field.
func (p point) String() string { return fmt.Sprintf("%s %s %d", p.Method, p.Node, p.Occurrence) }

// variant is how a process is struck at a point.
type variant string

const (
	// cutBefore: the connection breaks before the request is handled, and the process ends.
	cutBefore variant = "cut-before"
	// replyLost: the request is handled, the connection breaks instead of the reply, and the process lives.
	replyLost variant = "reply-lost"
	// lostAndDead: the same, but the process ends.
	lostAndDead variant = "lost-and-dead"
	// repliedAndDead: the process ends on the reply, before it does anything else.
	repliedAndDead variant = "replied-and-dead"
	// endedEarly: the call ends at once and cleanly, without an answer, as on a machine that stops its services, and
	// the process lives. Only streams are struck in this way.
	endedEarly variant = "ended-early"
	// meddled: something else happens while the request is handled, and the request succeeds.
	meddled variant = "meddled"
	// cutDuring and deadDuring: the connection breaks, or the process ends, while the request is handled. Only
	// requests that take time are struck in this way.
	cutDuring  variant = "cut-during"
	deadDuring variant = "dead-during"
)

// variants returns all ways to strike at a point. lasts is true if the request takes time.
func variants(lasts bool) []variant {
	all := []variant{cutBefore, replyLost, lostAndDead, repliedAndDead}
	if lasts {
		all = append(all, cutDuring, deadDuring)
	}

	return all
}

// deadly reports whether the process ends.
func (v variant) deadly() bool {
	return v == cutBefore || v == lostAndDead || v == repliedAndDead || v == deadDuring
}

// aim is one strike at one process.
type aim struct {
	process string
	// point is the request. Instead, number may select it: it counts the requests of the process that change
	// something, from 1.
	point   point
	number  int
	variant variant
	// within is how long after its start a request is struck that takes time.
	within time.Duration
	// meddle is what happens then if the variant is [meddled].
	meddle func()
}

// seen is the key by which occurrences are counted.
type seen struct{ client, method, node string }

// tap sees every request that reaches the servers of a rig.
type tap struct {
	mu        sync.Mutex
	processes map[string]*process
	seen      map[seen]int
	order     map[string][]point
	lasting   map[point]bool
	reads     map[string]int
	// through has the endpoint that took each call that changes something.
	through map[point]string

	aim    aim
	struck bool
}

func newTap() *tap {
	return &tap{
		processes: map[string]*process{}, seen: map[seen]int{}, order: map[string][]point{},
		lasting: map[point]bool{}, reads: map[string]int{}, through: map[point]string{},
	}
}

// takeAim sets which process is struck next, and how.
func (t *tap) takeAim(at aim) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.aim, t.struck = at, false
}

// hit reports whether the strike came.
func (t *tap) hit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.struck
}

// points returns the requests of a process so far that change something, in order, and how many of its requests
// change nothing.
func (t *tap) points(process string) (mutating []point, reads int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	return append([]point(nil), t.order[process]...), t.reads[process]
}

// last returns the last request of a process that changed something.
func (t *tap) last(process string) point {
	t.mu.Lock()
	defer t.mu.Unlock()

	if made := t.order[process]; len(made) > 0 {
		return made[len(made)-1]
	}

	return point{}
}

// lasts reports whether a request took time.
func (t *tap) lasts(at point) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.lasting[at]
}

// join makes a process known.
func (t *tap) join(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.processes[p.name] = p
}

// talos is the interceptor of the Talos API.
func (t *tap) talos(_ context.Context, call simwire.Call) simwire.Strike {
	method := call.Method[strings.LastIndex(call.Method, ".")+1:]
	end := t.take(arrival{
		client: call.Client, method: method, node: call.Node, through: call.Through, mutates: call.Mutates,
		over: func(host string) bool { return host != apiHost },
	})

	return simwire.Strike{Cut: simwire.Cut(end.cut), Replied: end.replied}
}

// kubernetes is the interceptor of the Kubernetes API.
func (t *tap) kubernetes(_ context.Context, request apiserver.Request) apiserver.Strike {
	method := request.Verb + "-" + request.Resource
	if request.Name != "" && (request.Resource == "configmaps" || request.Resource == "leases") {
		method += "/" + request.Name
	}

	end := t.take(arrival{
		client: request.Client, method: method, node: request.Node, mutates: request.Mutation > 0,
		over: func(host string) bool { return host == apiHost },
	})

	return apiserver.Strike{Cut: apiserver.Cut(end.cut), Replied: end.replied}
}

// apiHost is the host of the Kubernetes API.
const apiHost = "127.0.0.1"

// The cuts, which both servers number alike, except for the last one.
const (
	cutNone  = int(simwire.CutNot)
	cutEarly = int(simwire.CutBefore)
	cutLate  = int(simwire.CutAfter)
	endClean = int(simwire.EndBefore)
)

// arrival is a request that has reached a server.
type arrival struct {
	client, method, node, through string
	mutates                       bool
	// over reports whether the request may have come over a socket to the host.
	over func(host string) bool
}

// ending is what happens to a request.
type ending struct {
	cut     int
	replied func()
}

// take decides what happens to a request.
func (t *tap) take(from arrival) ending {
	t.mu.Lock()
	defer t.mu.Unlock()

	p := t.processes[from.client]
	if p == nil {
		return ending{}
	}

	if p.doomed() {
		return ending{cut: cutEarly}
	}

	if from.node == "" {
		from.node = "-"
	}

	kind := seen{from.client, from.method, from.node}
	t.seen[kind]++
	at := point{Method: from.method, Node: from.node, Occurrence: t.seen[kind]}

	if from.mutates {
		t.order[from.client] = append(t.order[from.client], at)
		t.through[at] = from.through
	} else {
		t.reads[from.client]++
	}

	switch {
	case !t.struck && t.aim.process == from.client && (t.aim.point == at || from.mutates && t.aim.number == len(t.order[from.client])):
		t.struck = true

		return p.strike(t.aim, from.over)
	case from.mutates:
		return t.timed(at)
	default:
		return ending{}
	}
}

// timed lets a request pass and records whether it takes time.
func (t *tap) timed(at point) ending {
	const long = time.Second

	begun := time.Now()

	return ending{replied: func() {
		if time.Since(begun) < long {
			return
		}

		t.mu.Lock()
		defer t.mu.Unlock()

		t.lasting[at] = true
	}}
}

// alive returns the processes that were started, dead or not.
func (t *tap) alive() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()

	var all []*process
	for _, p := range t.processes {
		all = append(all, p)
	}

	return all
}

// taker returns the endpoint that took a call that changes something.
func (t *tap) taker(at point) string {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.through[at]
}
