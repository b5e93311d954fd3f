// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	simwire "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

// point is a request that changes something, by what tells it from all others
// of one run, however calls that have nothing to do with each other are ordered.
type point struct {
	// Method is the method of the Talos API without its package, or the verb and
	// the object of a request to the Kubernetes API.
	Method string
	// Node is the node concerned, "-" for none.
	Node string
	// Occurrence counts the same method on the same node from 1.
	Occurrence int
}

// String is one word per field.
func (p point) String() string { return fmt.Sprintf("%s %s %d", p.Method, p.Node, p.Occurrence) }

// variant is how a process is struck at a point.
type variant string

const (
	// cutBefore: the connection breaks before anybody has handled the request, and
	// the process ends.
	cutBefore variant = "cut-before"
	// replyLost: it was handled, the connection breaks instead of the reply, and
	// the process lives.
	replyLost variant = "reply-lost"
	// lostAndDead: the same, and the process ends.
	lostAndDead variant = "lost-and-dead"
	// repliedAndDead: the process ends with the reply, before it does anything else.
	repliedAndDead variant = "replied-and-dead"
	// endedEarly: the call ends at once and cleanly, without an answer, as those of a
	// machine that stops its services do, and the process lives. Only of streams.
	endedEarly variant = "ended-early"
	// meddled: something else happens while it is being handled, and it passes.
	meddled variant = "meddled"
	// cutDuring and deadDuring: it is being handled when the connection breaks,
	// and when the process ends. Only of what takes its time.
	cutDuring  variant = "cut-during"
	deadDuring variant = "dead-during"
)

// variants are all ways to strike at a point; lasts tells that it takes its time.
func variants(lasts bool) []variant {
	all := []variant{cutBefore, replyLost, lostAndDead, repliedAndDead}
	if lasts {
		all = append(all, cutDuring, deadDuring)
	}

	return all
}

// deadly tells that the process ends with it.
func (v variant) deadly() bool {
	return v == cutBefore || v == lostAndDead || v == repliedAndDead || v == deadDuring
}

// aim is one strike at one process.
type aim struct {
	process string
	// point is the request, or number counts those of the process that change
	// something from 1.
	point   point
	number  int
	variant variant
	// within is how long after its begin a request is struck that lasts.
	within time.Duration
	// meddle is what happens then where nothing else does.
	meddle func()
}

// seen is what occurrences are counted of.
type seen struct{ client, method, node string }

// tap sees every request that reaches the servers of a rig.
type tap struct {
	mu        sync.Mutex
	processes map[string]*process
	seen      map[seen]int
	order     map[string][]point
	lasting   map[point]bool
	reads     map[string]int
	// through are the endpoints that took the calls which change a machine.
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

// takeAim has a process struck.
func (t *tap) takeAim(at aim) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.aim, t.struck = at, false
}

// hit tells whether the strike came.
func (t *tap) hit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.struck
}

// points are the requests of a process so far that change something, in order,
// and how many of its requests change nothing.
func (t *tap) points(process string) (mutating []point, reads int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	return append([]point(nil), t.order[process]...), t.reads[process]
}

// lasts tells whether a request took its time.
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

// apiHost is where processes find the Kubernetes API.
const apiHost = "127.0.0.1"

// The cuts, which both servers number alike, but for the last one.
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
	// over tells the sockets apart that it may have come over.
	over func(host string) bool
}

// ending is what becomes of a request.
type ending struct {
	cut     int
	replied func()
}

// take decides about a request.
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

// timed lets a request pass and notes whether it takes its time.
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

// alive are the processes that were started, dead or not.
func (t *tap) alive() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()

	var all []*process
	for _, p := range t.processes {
		all = append(all, p)
	}

	return all
}

// taker is the endpoint that took a call which changes a machine.
func (t *tap) taker(at point) string {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.through[at]
}
