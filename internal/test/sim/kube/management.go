// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// ManagementOptions describe the API server of a management cluster.
type ManagementOptions struct {
	Recorder history.Recorder
	Binaries Binaries
	// Dir receives the data, the certificates and, below logs, what the
	// processes say. It must not be that of another server.
	Dir string
}

// Management is a real API server with the custom resources of the operators
// and without machines: the cluster in which objects describe other clusters.
// Its methods are safe for concurrent use after Start.
type Management struct {
	options ManagementOptions

	ca        *certificate.Authority
	plane     *plane
	gate      *gate
	auditor   *auditor
	simulator *client
	admin     []byte
	config    *rest.Config

	wait sync.WaitGroup
	// stopping is closed when Stop begins.
	stopping chan struct{}
	stop     sync.Once

	mutex   sync.Mutex
	started bool
	failed  error
	broken  chan struct{}
}

// NewManagement prepares a server; nothing runs before Start.
func NewManagement(options ManagementOptions) (*Management, error) {
	switch {
	case options.Recorder == nil:
		return nil, errors.New("a simulated management cluster needs a recorder")
	case options.Dir == "":
		return nil, errors.New("a simulated management cluster needs a directory for its data")
	case options.Binaries.APIServer == "" || options.Binaries.Etcd == "":
		return nil, errors.New("a simulated management cluster needs the paths of kube-apiserver and etcd")
	}

	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolving the directory of the simulated management cluster: %w", err)
	}

	options.Dir = dir

	ca, err := certificate.NewAuthority(pkix.Name{CommonName: "talossim kubernetes"})
	if err != nil {
		return nil, err
	}

	return &Management{
		options: options, ca: ca,
		stopping: make(chan struct{}), broken: make(chan struct{}),
	}, nil
}

// Start brings everything up. When it returns the custom resources are served.
// After an error everything is stopped again. It must be called once.
func (m *Management) Start(ctx context.Context) error {
	if err := m.start(ctx); err != nil {
		return errors.Join(fmt.Errorf("starting the simulated management cluster: %w", err), m.Stop(context.WithoutCancel(ctx)))
	}

	return nil
}

func (m *Management) start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	logs := filepath.Join(m.options.Dir, "logs")
	m.plane = &plane{binaries: m.options.Binaries, dir: m.options.Dir, logs: logs, ca: m.ca}

	if err := m.plane.writeFiles(); err != nil {
		return err
	}

	auditor, err := newAuditor(filepath.Join(logs, "audit.log"), newManagementLedger(m.options.Recorder))
	if err != nil {
		return err
	}

	m.auditor, m.plane.audit = auditor, auditor

	if err := m.plane.start(ctx); err != nil {
		return err
	}

	for _, child := range m.plane.processes {
		m.wait.Go(func() { m.watch(child) })
	}

	identity, err := identify(m.ca, userSimulator, groupAdmins)
	if err != nil {
		return err
	}

	if m.simulator, err = newClient(m.plane.config(identity, userSimulator)); err != nil {
		return err
	}

	m.auditor.asks(m.simulator)

	if err := installDefinitions(ctx, m.simulator); err != nil {
		return err
	}

	return m.admit()
}

// admit opens the way for clients.
func (m *Management) admit() error {
	identity, err := identify(m.ca, userAdmin, groupAdmins)
	if err != nil {
		return err
	}

	m.config = m.plane.config(identity, agentDirect)

	if m.gate, err = newGate(m.plane.address, "", nil); err != nil {
		return err
	}

	m.admin, err = encodeKubeconfig("https://"+hostPort(m.gate.port), m.ca.PEM, identity, kubeconfigNames{
		cluster: managementName, user: userAdmin, context: managementName,
	})
	if err != nil {
		return err
	}

	m.mutex.Lock()
	defer m.mutex.Unlock()

	m.started = true

	return nil
}

// managementName is the cluster and the context in the kubeconfig.
const managementName = "management"

// Kubeconfig is the administrator's, with everything inline.
func (m *Management) Kubeconfig() ([]byte, error) {
	if m.admin == nil {
		return nil, errors.New("the simulated management cluster has not been started")
	}

	return m.admin, nil
}

// Config reaches the API server past what [Management.Down] cuts. What is
// written with it is in the history as somebody else's.
func (m *Management) Config() *rest.Config { return rest.CopyConfig(m.config) }

// Down takes the API server away from the users of the kubeconfig, cutting their
// connections, or gives it back.
func (m *Management) Down(down bool) error {
	if down {
		m.gate.close()

		return nil
	}

	return m.gate.open("")
}

// Sync returns when every request that was answered before the call is in the
// history.
func (m *Management) Sync(ctx context.Context) error { return m.auditor.sync(ctx, m.simulator) }

// Wait returns when ctx ends or when one of the processes has died, with why.
func (m *Management) Wait(ctx context.Context) error {
	select {
	case <-m.broken:
	case <-m.stopping:
	case <-ctx.Done():
		return ctx.Err()
	}

	return m.failure()
}

// watch reports a child that ends while nobody stops it.
func (m *Management) watch(child *process) {
	select {
	case <-m.stopping:
	case <-child.done:
		select {
		case <-m.stopping:
		default:
			m.fail(child.failure())
		}
	}
}

func (m *Management) fail(err error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()

	if m.failed == nil {
		m.failed = err
		close(m.broken)
	}
}

func (m *Management) failure() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()

	return m.failed
}

// Stop ends everything that Start began, waits for it, and returns what broke.
func (m *Management) Stop(ctx context.Context) error {
	m.stop.Do(func() {
		close(m.stopping)

		ctx, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()

		if err := m.stopAll(ctx); err != nil {
			m.fail(err)
		}
	})

	return m.failure()
}

func (m *Management) stopAll(ctx context.Context) error {
	var failed error

	if m.gate != nil {
		m.gate.stop()
	}

	m.mutex.Lock()
	healthy := m.started && m.failed == nil
	m.mutex.Unlock()

	if healthy {
		failed = m.Sync(ctx)
	}

	m.simulator.close()

	if m.plane != nil {
		failed = errors.Join(failed, m.plane.stop())
	}

	if m.auditor != nil {
		failed = errors.Join(failed, m.auditor.close())
	}

	m.wait.Wait()

	return failed
}
