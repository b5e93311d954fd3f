// SPDX-License-Identifier: MPL-2.0

// Package ports is the face of the simulator that tests of the engine use: a whole upgrade takes milliseconds in
// virtual time. The ports of package cluster that reach machines work directly on the model; their errors mean what
// those of the real adapter mean. Those that reach Kubernetes are the shipped adapter, over the API server in
// memory. Both record the same history as the faces with sockets.
//
// client.go is one user of a cluster, and where tests intercept calls; talos.go, component.go, config.go and
// manifest.go are the calls that reach machines, kubernetes.go the others. registry.go is the registry that the
// engine asks; what machines pull, and what their registries answer, is in package model.
package ports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Cluster is a simulated cluster with its Kubernetes. It is safe for concurrent use.
type Cluster struct {
	*apiserver.Server

	// summaries are of configurations that were read before.
	summaries summaries
	world     *model.World
	// direct reads and writes what is stored, in the name of somebody else.
	direct *kubeapi.Client

	mu       sync.Mutex
	removals []cluster.Removal
}

// New makes a cluster as [model.New] does, and connects its machines to a Kubernetes in memory. Stop ends what runs
// in it.
func New(options model.Options) (*Cluster, error) {
	world, err := model.New(options)
	if err != nil {
		return nil, err
	}

	made := &Cluster{world: world}

	if made.Server, err = apiserver.New(world); err != nil {
		return nil, err
	}

	if made.direct, err = made.kubernetes("another-program", made.Direct()); err != nil {
		return nil, err
	}

	return made, nil
}

// kubernetes returns the shipped adapter over a transport.
func (c *Cluster) kubernetes(name string, transport *apiserver.Transport) (*kubeapi.Client, error) {
	client, err := kubeapi.New(apiserver.Kubeconfig(), "", kubeapi.Options{UserAgent: name, Transport: transport, Sleep: c.world.Clock().Sleep})
	if err != nil {
		return nil, err
	}

	client.Identify(c.world.ClusterID())

	return client, nil
}

// Stop ends the simulation.
func (c *Cluster) Stop() {
	c.Server.Stop()
	c.world.Stop()
}

// sure returns an answer that cannot fail: here nothing is between what is stored and the caller.
func sure[T any](answer T, err error) T {
	if err != nil {
		panic(err)
	}

	return answer
}

// Lease returns the lease as it is stored.
func (c *Cluster) Lease() cluster.Lease { return sure(c.direct.Lease(context.Background())) }

// HoldLease writes the lease as another program does, whoever had it before. The caller has to renew it; an empty
// holder releases it.
func (c *Cluster) HoldLease(holder string) error {
	for {
		lease, now := c.Lease(), c.world.Clock().Now()
		if lease.Holder != holder {
			lease.Acquired = now
		}

		lease.Holder, lease.Renewed, lease.Duration = holder, now, 30*time.Second

		// Its holder may have renewed it meanwhile.
		if _, err := c.direct.WriteLease(context.Background(), lease); !errors.Is(err, cluster.ErrConflict) {
			return err
		}
	}
}

// Journal returns the journal as it is stored.
func (c *Cluster) Journal() cluster.Journal { return sure(c.direct.Journal(context.Background())) }

// EditJournalAsPerson writes the journal as change returns it. The journal need not exist.
func (c *Cluster) EditJournalAsPerson(change func(cluster.Journal) cluster.Journal) {
	for {
		standing := c.Journal()
		wanted := change(standing)
		wanted.ResourceVersion = standing.ResourceVersion

		written, err := c.direct.WriteJournal(context.Background(), wanted)
		if errors.Is(err, cluster.ErrConflict) {
			// Somebody has written it meanwhile.
			continue
		}

		_ = sure(written, err)

		return
	}
}

// SetRemovals sets what is in use in the cluster that some version of Kubernetes removes.
func (c *Cluster) SetRemovals(removals []cluster.Removal) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.removals = slices.Clone(removals)
}

// serving returns an error unless an API server answers.
func (c *Cluster) serving() error {
	if c.world.Serving() {
		return nil
	}

	return fmt.Errorf("%w: dial tcp: connect: connection refused: no kube-apiserver runs", cluster.ErrUnreachable)
}

func (c *Cluster) record(node string, kind history.Kind, detail map[string]string) {
	c.world.Record(node, kind, detail)
}
