// SPDX-License-Identifier: MPL-2.0

// Package apiserver is the Kubernetes of a simulated cluster in memory: the objects that its API server stores,
// what acts on them, and the API over HTTP, in JSON and protobuf. The shipped adapter is a client of it: without a
// connection, which costs the least, or over pipes with HTTP/2 and mutual TLS, if connections matter. Both work
// inside a testing/synctest bubble. Clients of other processes come over TCP.
//
//	kubernetes, err := apiserver.New(world)
//	defer kubernetes.Stop()
//	kubeapi.New(apiserver.Kubeconfig(), "", kubeapi.Options{Transport: kubernetes.Transport("run-1")})
//
// A request is read in handler.go, carried out in store.go, and recorded in ledger.go; watch.go follows the
// objects, patch.go and fields.go change them, discovery.go and table.go are for kubectl. rollout.go brings the
// bootstrap manifests of Talos into the cluster. node.go has the kubelets, pod.go the workloads and their budgets,
// component.go the pods of the control plane and of kube-proxy. person.go is what somebody else does to the
// objects. transport.go, listener.go and socket.go are the three ways in.
//
// It is as strict as the real API server if a client depends on it: resource versions, preconditions, selectors,
// pages that expire, dry runs, and evictions that ask the budgets. It serves the requests that the shipped adapters
// and kubectl make, and answers others with 404, 405 or 415. It does not know the types of the fields of custom
// kinds, so an apply replaces their lists as a whole; nothing has defaults, a namespace need not exist, and
// finalizers do not hold back an object that a client deletes.
package apiserver

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Server is the Kubernetes of a simulated cluster. It is safe for concurrent use.
type Server struct {
	world *model.World
	codec *codec
	// beside is true if it is not the Kubernetes of the machines, but that of another cluster: it always answers,
	// and has no nodes.
	beside  bool
	unwatch func()

	// life ends with the server, and with it the rollouts in the background.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	version int
	tables  []*table
	pages   pages
	lists   int

	kubelets  map[string]*kubelet
	workloads []*workload
	// attached are the volumes on nodes, and detaches is how long one stays attached that no pod uses.
	attached []*attachment
	detaches time.Duration
	budgets  []*Budget
	started  int
	rooms    map[string]cluster.Room
	// struck holds the nodes whose scripted budget has blocked a drain; the value is true if its pod was deleted
	// all the same.
	struck map[string]bool
	system system
	// bootstrapped is true if the workloads of the cluster itself are objects.
	bootstrapped bool

	// signal guards the fields below. If both are taken, mu is taken first.
	signal sync.Mutex
	// turned are the machines that have changed since the last request.
	turned []turned
	// stalled is true while watches send nothing. change is closed when a node may have changed, broken when the
	// current watches are to end.
	stalled        bool
	change, broken chan struct{}
}

// New returns the Kubernetes of the machines of a world, which must outlive it. Its API answers while a
// kube-apiserver of the machines runs.
func New(world *model.World) (*Server, error) {
	s, err := newServer(world)
	if err != nil {
		return nil, err
	}

	now := s.now()

	for _, state := range world.KubeStates() {
		s.register(state, now)
	}

	s.system = newSystem(world.Nodes(), now)
	s.unwatch = world.OnChange(s.notice)
	world.SetKubernetes(machines{s})

	return s, nil
}

// NewBeside returns the Kubernetes of another cluster, in which operators of the machines run: it answers whatever
// happens to the machines, and has no nodes.
func NewBeside(world *model.World) (*Server, error) {
	s, err := newServer(world)
	if err != nil {
		return nil, err
	}

	s.beside = true

	return s, nil
}

func newServer(world *model.World) (*Server, error) {
	if world == nil {
		return nil, errors.New("apiserver: no world to serve")
	}

	codec, err := newCodec()
	if err != nil {
		return nil, err
	}

	s := &Server{
		world: world, codec: codec, unwatch: func() {}, tables: newTables(), pages: pages{},
		kubelets: map[string]*kubelet{}, rooms: map[string]cluster.Room{}, struck: map[string]bool{}, detaches: detachTime,
		change: make(chan struct{}), broken: make(chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.addNamespaces()

	return s, nil
}

// Stop ends what runs in it, including watches.
func (s *Server) Stop() {
	s.end()
	s.BreakWatches()
	s.work.Wait()
	s.unwatch()
}

// World returns the model behind it.
func (s *Server) World() *model.World { return s.world }

func (s *Server) now() time.Time { return s.world.Clock().Now() }

// real returns how long a duration of the simulation really takes; with a scaled clock at least 50 ms.
func (s *Server) real(simulated time.Duration) time.Duration {
	if scaled, is := s.world.Clock().(*model.ScaledClock); is {
		return max(scaled.Real(simulated), 50*time.Millisecond)
	}

	return simulated
}

// stamp returns an instant of the simulation for objects. Clients compare it with their own clocks, so it is the
// real instant if the simulation runs faster than they do.
func (s *Server) stamp(at time.Time) metav1.Time {
	if scaled, is := s.world.Clock().(*model.ScaledClock); is {
		at = scaled.Wall(at)
	}

	return metav1.NewTime(at.Truncate(time.Second))
}

// next returns a new resource version. The lock is held.
func (s *Server) next() string {
	s.version++

	return strconv.Itoa(s.version)
}

func (s *Server) record(node string, kind history.Kind, detail map[string]string) {
	s.world.Record(node, kind, detail)
}

// turned is the state of a machine when it changed.
type turned struct {
	state model.KubeState
	gone  bool
	name  string
	at    time.Time
}

// notice remembers a machine that the model says has changed, and wakes the watches. The model may be in the middle
// of something that the API itself has asked for, so the objects follow with the next request.
func (s *Server) notice(name string) {
	s.signal.Lock()
	defer s.signal.Unlock()

	state, err := s.world.KubeState(name)
	s.turned = append(s.turned, turned{state: state, gone: err != nil, name: name, at: s.now()})
	s.wake()
}

// wake makes the watches check for changes. signal is held.
func (s *Server) wake() {
	close(s.change)
	s.change = make(chan struct{})
}

// lock takes the lock, and updates the nodes to their machines.
func (s *Server) lock() {
	s.mu.Lock()

	s.signal.Lock()
	changed := s.turned
	s.turned = nil
	s.signal.Unlock()

	for _, one := range changed {
		s.follow(one)
	}
}

// actor is who changes something.
type actor struct {
	// by is "client", "other" or "machine", as in the history; empty for the cluster itself, whose changes are not
	// recorded.
	by string
	// client is the name of a client.
	client string
}

func itself() actor { return actor{} }

// byClient is who makes the requests under test, as in the history.
const byClient = "client"

func person() actor { return actor{by: "other"} }

func clientNamed(name string) actor { return actor{by: byClient, client: name} }

// detail begins a record with who it was.
func (a actor) detail(more ...string) map[string]string {
	detail := map[string]string{"by": a.by}
	if a.client != "" {
		detail["client"] = a.client
	}

	for i := 0; i+1 < len(more); i += 2 {
		detail[more[i]] = more[i+1]
	}

	return detail
}
