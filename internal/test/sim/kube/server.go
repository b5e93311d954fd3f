// SPDX-License-Identifier: MPL-2.0

// Package kube is the Kubernetes side of the simulator: a real etcd, kube-apiserver and kube-controller-manager, in
// which this package plays kubelets, static pods, scheduler and node controller according to a model of the
// machines. Control planes create their bootstrap manifests if they are missing, and from Talos 1.13 on keep the
// inventory of them that syncs use.
//
// Clients reach the API server through ports that come and go with the control planes (package front). What clients
// write is read from the audit log (audit.go) and becomes history (ledger.go).
//
// Server starts the processes (plane.go) and the play: play.go decides what is reconciled, node.go and pod.go play
// kubelets and the node controller, static_pod.go the static pods, scheduler.go the scheduler, and manifest.go what
// Talos brings into the cluster. workload.go has the workloads of users.
package kube

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/front"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// Binaries are paths of the programs that run.
type Binaries struct {
	APIServer, Etcd, ControllerManager string
}

// Options describe one simulated Kubernetes.
type Options struct {
	World    World
	Clock    Clock
	Recorder history.Recorder
	Binaries Binaries
	// Dir receives the data, the certificates and, below logs, the output of the processes. The data of an earlier
	// simulation in it is dropped.
	Dir string
	// Pods is the number of workload pods; they belong to Deployments of up
	// to three, each with a PodDisruptionBudget.
	Pods int
	// CustomResources installs the custom resources of the operators that upgrade clusters.
	CustomResources bool
	// Seed decides how long pods take to start and to stop.
	Seed uint64
	// Stamp returns the time of conditions; if nil, it is the wall clock, like the API server's own stamps.
	Stamp func() time.Time
}

// Server is the Kubernetes side of one simulated cluster. Its methods are safe
// for concurrent use after Start.
type Server struct {
	options Options

	ca      *certificate.Authority
	plane   *plane
	front   *front.Front
	auditor *auditor
	play    *play
	// simulator writes for everything that this package plays, machine for machines that upgrade themselves.
	simulator, machine *client
	admin              []byte

	// losing is held while a piece of an answer is checked; atRisk is true if any has to be.
	losing sync.Mutex
	// assessing is held while assess runs.
	assessing sync.Mutex
	atRisk    atomic.Bool

	unhook func()
	wait   sync.WaitGroup

	// stopping is closed when Stop begins, done once it has ended.
	stopping, done chan struct{}
	stop           sync.Once
	mutex          sync.Mutex
	started        bool
	failed         error
	broken         chan struct{}
}

// New prepares a server; nothing runs before Start.
func New(options Options) (*Server, error) {
	switch {
	case options.World == nil, options.Clock == nil, options.Recorder == nil:
		return nil, errors.New("a simulated Kubernetes needs a world, a clock and a recorder")
	case options.Dir == "":
		return nil, errors.New("a simulated Kubernetes needs a directory for its data")
	case options.Pods < 0:
		return nil, fmt.Errorf("%d workload pods cannot run: the number must not be negative", options.Pods)
	case options.Binaries.APIServer == "" || options.Binaries.Etcd == "" || options.Binaries.ControllerManager == "":
		return nil, errors.New("a simulated Kubernetes needs the paths of kube-apiserver, kube-controller-manager and etcd")
	}

	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolving the directory of the simulated Kubernetes: %w", err)
	}

	options.Dir = dir

	if options.Stamp == nil {
		options.Stamp = time.Now
	}

	ca, err := certificate.NewAuthority(pkix.Name{CommonName: "talossim kubernetes"})
	if err != nil {
		return nil, err
	}

	return &Server{
		options: options, ca: ca,
		stopping: make(chan struct{}), done: make(chan struct{}), broken: make(chan struct{}),
	}, nil
}

// Start brings everything up. When it returns, each machine has a Node object in the state of the machine, and
// workloads run. After an error everything is stopped again. It must be called once.
func (s *Server) Start(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return errors.Join(fmt.Errorf("starting the simulated Kubernetes: %w", err), s.Stop(context.WithoutCancel(ctx)))
	}

	return nil
}

func (s *Server) start(ctx context.Context) error {
	// If a process has died, waiting for it would be in vain.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	s.wait.Go(func() {
		select {
		case <-s.broken:
			cancel()
		case <-ctx.Done():
		}
	})

	if err := s.startPlane(ctx); err != nil {
		return err
	}

	if err := s.connect(); err != nil {
		return err
	}

	if s.options.CustomResources {
		if err := installDefinitions(ctx, s.simulator); err != nil {
			return err
		}
	}

	var err error

	s.front, err = front.New(s.plane.address, s.controlPlanes, s.loseReply)
	if err != nil {
		return err
	}

	s.admin, err = s.kubeconfig(s.front.Shared())
	if err != nil {
		return err
	}

	s.play = newPlay(s.options, s.simulator, s.auditor.ledger)
	s.unhook = s.options.World.OnChange(s.changed)
	s.assess()

	if err := s.play.start(ctx); err != nil {
		return err
	}

	s.mutex.Lock()
	defer s.mutex.Unlock()

	s.started = true

	return nil
}

// startPlane starts the real processes and the reader of the audit log.
func (s *Server) startPlane(ctx context.Context) error {
	logs := filepath.Join(s.options.Dir, "logs")
	s.plane = &plane{binaries: s.options.Binaries, dir: s.options.Dir, logs: logs, ca: s.ca}

	if err := s.plane.writeFiles(); err != nil {
		return err
	}

	auditor, err := newAuditor(filepath.Join(logs, "audit.log"), newLedger(s.options.Recorder))
	if err != nil {
		return err
	}

	s.auditor, s.plane.audit = auditor, auditor

	if err := s.plane.start(ctx); err != nil {
		return err
	}

	if err := s.plane.startControllers(); err != nil {
		return err
	}

	for _, child := range s.plane.processes {
		s.wait.Go(func() { s.watch(child) })
	}

	return nil
}

// connect creates the clients that this package writes with.
func (s *Server) connect() error {
	for user, place := range map[string]**client{userSimulator: &s.simulator, userMachine: &s.machine} {
		identity, err := identify(s.ca, user, groupAdmins)
		if err != nil {
			return err
		}

		*place, err = newClient(s.plane.config(identity, user))
		if err != nil {
			return err
		}
	}

	s.auditor.asks(s.simulator)

	return nil
}

// changed follows a change of the model. Connections end at once; everything else follows.
func (s *Server) changed(node string) {
	// Workers serve no API. The front itself tries again what fails.
	if machine, found := s.options.World.Machine(node); !found || machine.Role == RoleControlPlane {
		_ = s.front.Update()
	}

	s.assess()
	s.play.changed(node)
}

// controlPlanes returns the control planes, and whether they serve, for the front.
func (s *Server) controlPlanes() []front.Plane {
	var planes []front.Plane

	quorum := s.options.World.EtcdQuorum()

	for _, machine := range s.options.World.Machines() {
		if machine.Role == RoleControlPlane {
			planes = append(planes, front.Plane{Name: machine.Name, Serves: quorum && machine.APIServerUp})
		}
	}

	return planes
}

// Answered returns how many bytes of answers clients were sent, encrypted.
func (s *Server) Answered() int64 { return s.front.Sent() }

// stopTimeout bounds Stop.
const stopTimeout = 15 * time.Second

// watch reports a child that ends while nobody stops it.
func (s *Server) watch(child *process) {
	select {
	case <-s.stopping:
	case <-child.done:
		select {
		case <-s.stopping:
		default:
			s.fail(child.failure())
		}
	}
}

func (s *Server) fail(err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	if s.failed == nil {
		s.failed = err
		close(s.broken)
	}
}

func (s *Server) failure() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.failed
}

// healthy reports whether everything was started and nothing has died since.
func (s *Server) healthy() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.started && s.failed == nil
}

// Wait returns once the server has been stopped, or with an error as soon as one of its processes has died.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-s.broken:
	case <-s.done:
	case <-ctx.Done():
		return ctx.Err()
	}

	return s.failure()
}

// Stop ends everything that Start began and waits for it. It returns what
// broke while the server ran, too. Calling it again waits for the first call.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		defer close(s.done)

		close(s.stopping)

		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()

		if err := s.stopAll(ctx); err != nil {
			s.fail(err)
		}
	})

	<-s.done

	return s.failure()
}

func (s *Server) stopAll(ctx context.Context) error {
	if s.unhook != nil {
		s.unhook()
	}

	if s.front != nil {
		s.front.Stop()
	}

	if s.play != nil {
		s.play.stop()
	}

	var failed error

	if s.healthy() {
		failed = s.Sync(ctx)
	}

	s.simulator.close()
	s.machine.close()

	if s.plane != nil {
		failed = errors.Join(failed, s.plane.stop())
	}

	if s.auditor != nil {
		failed = errors.Join(failed, s.auditor.close())
	}

	s.wait.Wait()

	return failed
}
