// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/front"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// ManagementOptions describe the API server of a management cluster.
type ManagementOptions struct {
	Recorder history.Recorder
	Binaries Binaries
	// Dir receives the data, the certificates and, below logs, the output of the processes. It must not be that of
	// another server.
	Dir string
}

// Management is a real API server with the custom resources of the operators
// and without machines: the cluster in which objects describe other clusters.
// Its methods are safe for concurrent use after Start.
type Management struct {
	options ManagementOptions

	ca        *certificate.Authority
	plane     *plane
	gate      *front.Gate
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

// Start brings everything up. When it returns, the custom resources are served. After an error everything is
// stopped again. It must be called once.
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

// admit opens the API server for clients.
func (m *Management) admit() error {
	identity, err := identify(m.ca, userAdmin, groupAdmins)
	if err != nil {
		return err
	}

	m.config = m.plane.config(identity, agentDirect)

	if m.gate, err = front.NewGate(m.plane.address, nil); err != nil {
		return err
	}

	m.admin, err = encodeKubeconfig("https://"+front.HostPort(m.gate.Port()), m.ca.PEM, identity, kubeconfigNames{
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

// managementName is the name of the cluster and the context in the kubeconfig.
const managementName = "management"

// Kubeconfig returns the administrator's kubeconfig, with everything inline.
func (m *Management) Kubeconfig() ([]byte, error) {
	if m.admin == nil {
		return nil, errors.New("the simulated management cluster has not been started")
	}

	return m.admin, nil
}

// Config returns a configuration that [Management.Down] does not affect. The history attributes its writes to
// others.
func (m *Management) Config() *rest.Config { return rest.CopyConfig(m.config) }

// Down takes the API server away from the users of the kubeconfig and cuts their connections, or gives it back.
func (m *Management) Down(down bool) error {
	if down {
		m.gate.Close()

		return nil
	}

	return m.gate.Open("")
}

// Sync returns once every request that was answered before the call is in the history.
func (m *Management) Sync(ctx context.Context) error { return m.auditor.sync(ctx, m.simulator) }

// Wait returns when ctx ends, the server is stopped or one of the processes has died, with why.
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
		m.gate.Stop()
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

// definitionFiles are the custom resources of the operators that upgrade Talos
// clusters, as far as they matter to an upgrade.
//
//go:embed crds/*.yaml
var definitionFiles embed.FS

// customGroups are the API groups of the definitions.
func customGroups() []string { return []string{"vitistack.io", "talos.alperen.cloud"} }

// servedPoll is how often it is checked whether a new kind is served.
const servedPoll = 20 * time.Millisecond

// yamlLookahead is how many bytes of a manifest decide whether it is YAML or JSON.
const yamlLookahead = 1 << 12

// definitions reads the embedded custom resource definitions.
func definitions() ([]*unstructured.Unstructured, error) {
	paths, err := fs.Glob(definitionFiles, "crds/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing the custom resources: %w", err)
	}

	var found []*unstructured.Unstructured

	for _, path := range paths {
		content, err := definitionFiles.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the custom resources: %w", err)
		}

		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), yamlLookahead)

		for {
			var object unstructured.Unstructured

			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}

			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", path, err)
			}

			if len(object.Object) > 0 {
				found = append(found, &object)
			}
		}
	}

	return found, nil
}

// installDefinitions creates the custom resources of the operators, and returns
// once the API server serves them.
func installDefinitions(ctx context.Context, client *client) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	wanted, err := definitions()
	if err != nil {
		return err
	}

	kinds := client.objects.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})

	for _, definition := range wanted {
		if _, err := kinds.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the custom resource %s: %w", definition.GetName(), err)
		}
	}

	for _, definition := range wanted {
		if err := awaitServed(ctx, client, definition); err != nil {
			return err
		}
	}

	return nil
}

// awaitServed returns once objects of the kind can be listed, in all versions.
func awaitServed(ctx context.Context, client *client, definition *unstructured.Unstructured) error {
	group, _, groupErr := unstructured.NestedString(definition.Object, "spec", "group")
	plural, _, pluralErr := unstructured.NestedString(definition.Object, "spec", "names", "plural")
	versions, _, versionErr := unstructured.NestedSlice(definition.Object, "spec", "versions")

	if err := errors.Join(groupErr, pluralErr, versionErr); err != nil {
		return fmt.Errorf("reading the custom resource %s: %w", definition.GetName(), err)
	}

	for _, entry := range versions {
		version, ok := entry.(map[string]any)
		if !ok {
			return fmt.Errorf("reading the custom resource %s: a version of it is no object", definition.GetName())
		}

		name, _, err := unstructured.NestedString(version, "name")
		if err != nil {
			return fmt.Errorf("reading the custom resource %s: %w", definition.GetName(), err)
		}

		if err := awaitListed(ctx, client, schema.GroupVersionResource{Group: group, Version: name, Resource: plural}); err != nil {
			return err
		}
	}

	return nil
}

func awaitListed(ctx context.Context, client *client, resource schema.GroupVersionResource) error {
	ticker := time.NewTicker(servedPoll)
	defer ticker.Stop()

	for {
		_, err := client.objects.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			return nil
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s is served: %w (last: %w)", resource.GroupResource(), ctx.Err(), err)
		}
	}
}
