// SPDX-License-Identifier: MPL-2.0

// Package ports is the face of the simulator that tests of the engine use: the
// ports of package cluster straight on the model, with a Kubernetes kept in
// memory, so that a whole upgrade takes milliseconds in virtual time. It
// records the same history as the faces with sockets, and its errors mean what
// those of the real adapters mean.
//
// The calls of the ports are in talos.go and kubernetes.go. Of the Kubernetes in memory,
// node.go follows the machines and decides about cordons, pod.go places and evicts pods
// and asks budgets, component.go has the pods of components, journal.go and object.go
// what is stored, and manifest.go what is synced. export.go is for the API server in
// memory on top of it. registry.go is the registry that the engine asks; what machines
// pull, and what their registries answer, is model's.
package ports

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Cluster is a simulated cluster with everything that its API server stores.
// It is safe for concurrent use.
type Cluster struct {
	// summaries are of configurations that were seen before.
	summaries summaries

	world   *model.World
	unwatch func()

	// life ends with the cluster, and with it what is rolled out in the
	// background.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	version int
	nodes   map[string]*nodeObject
	pods    []*pod
	budgets []*Budget
	rooms   map[string]cluster.Room
	objects objects
	started int
	// struck holds the nodes whose scripted budget has blocked a drain; true
	// where its pod was deleted all the same.
	struck   map[string]bool
	lease    cluster.Lease
	journal  cluster.Journal
	noted    map[string]string
	hasLease bool

	workloads workloads
	removals  []cluster.Removal
}

// New makes a cluster as [model.New] does, and connects its machines to the
// Kubernetes in memory. Stop ends what runs in it.
func New(options model.Options) (*Cluster, error) {
	world, err := model.New(options)
	if err != nil {
		return nil, err
	}

	made := &Cluster{
		world: world,
		nodes: map[string]*nodeObject{}, rooms: map[string]cluster.Room{}, objects: objects{}, struck: map[string]bool{}, noted: map[string]string{},
	}

	made.life, made.end = context.WithCancel(context.Background())

	for _, state := range world.KubeStates() {
		made.nodes[state.Name] = newNodeObject(state, world.Clock().Now())
	}

	made.workloads = newWorkloads(world.Nodes(), world.Clock().Now())

	made.unwatch = world.OnChange(made.follow)
	world.SetKubernetes(machines{made})

	return made, nil
}

// World is the model behind the cluster, for tests that reach inside.
func (c *Cluster) World() *model.World { return c.world }

// Stop ends the simulation.
func (c *Cluster) Stop() {
	c.end()
	c.work.Wait()
	c.world.Stop()
	c.unwatch()
}

func (c *Cluster) now() time.Time { return c.world.Clock().Now() }

// next is a new resource version; with the lock held.
func (c *Cluster) next() string {
	c.version++

	return strconv.Itoa(c.version)
}

// serving tells whether an API server answers.
func (c *Cluster) serving() error {
	if c.world.Serving() {
		return nil
	}

	return fmt.Errorf("%w: dial tcp: connect: connection refused: no kube-apiserver runs", cluster.ErrUnreachable)
}

func (c *Cluster) record(node string, kind history.Kind, detail map[string]string) {
	c.world.Record(node, kind, detail)
}
