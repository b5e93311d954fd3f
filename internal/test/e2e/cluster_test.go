// SPDX-License-Identifier: MPL-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/contract"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	// agent is a user agent that is not the provider's, so that what this writes is not attributed to the provider.
	agent = "talosupgrade-e2e"
	// pause is the image of the Pods of the contract. The kubelets of Talos pull it anyway, for the sandboxes of
	// Pods.
	pause = "registry.k8s.io/pause:3.10"
	// patience bounds the wait for what a cluster does by itself, such as starting a Pod whose image has to be
	// pulled.
	patience = 3 * time.Minute
)

// target is the admitted cluster, through the adapters of the provider and through a plain Kubernetes client.
type target struct {
	settings

	talosAPI *talosapi.Client
	kubeAPI  *kubeapi.Client
	plain    kubernetes.Interface
	id       string
}

// connect opens what the provider would open with the same talosconfig. The kubeconfig comes only from the machines
// that were admitted.
func connect(ctx context.Context, t *testing.T, asked settings) *target {
	t.Helper()

	content, err := os.ReadFile(asked.talosconfig)
	if err != nil {
		t.Fatal(err)
	}

	config, err := talosapi.ParseConfig(content, asked.context)
	if err != nil {
		t.Fatal(err)
	}

	made := &target{settings: asked}

	if made.talosAPI, err = talosapi.New(config, talosapi.Options{UserAgent: agent}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = made.talosAPI.Close() })

	kubeconfig, err := made.talosAPI.Kubeconfig(ctx)
	if err != nil {
		t.Fatal(err)
	}

	if made.kubeAPI, err = kubeapi.New(kubeconfig, "", kubeapi.Options{UserAgent: agent}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(made.kubeAPI.Close)

	if made.plain, err = kubernetes.NewForConfigAndClient(made.kubeAPI.Config(), made.kubeAPI.HTTPClient()); err != nil {
		t.Fatal(err)
	}

	if made.id, err = made.talosAPI.ClusterID(ctx); err != nil || made.id == "" {
		t.Fatalf("the cluster has the ID %q, %v", made.id, err)
	}

	made.kubeAPI.Identify(made.id)

	return made
}

// fromTalos returns the machines that discovery lists, as each describes itself.
func (c *target) fromTalos(ctx context.Context) ([]contract.Machine, error) {
	members, err := c.talosAPI.Members(ctx)
	if err != nil {
		return nil, err
	}

	var addresses [][]string
	for _, member := range members {
		addresses = append(addresses, member.Addresses)
	}

	return contract.FromTalos(ctx, c.talosAPI, addresses)
}

// obstacles returns why the cluster is not fit for a run. It only reads.
func (c *target) obstacles(ctx context.Context) (found []string, err error) {
	machines, err := c.fromTalos(ctx)
	if err != nil {
		return nil, err
	}

	nodes, err := c.kubeAPI.Nodes(ctx)
	if err != nil {
		return nil, err
	}

	workers := 0

	for _, node := range nodes {
		if !node.ControlPlane {
			workers++
		}

		switch {
		case !slices.ContainsFunc(machines, func(one contract.Machine) bool { return one.BootID == node.BootID }):
			found = append(found, fmt.Sprintf("the node %s is none of the machines that were admitted", node.Name))
		case node.Unschedulable:
			found = append(found, fmt.Sprintf("the node %s is cordoned", node.Name))
		case !node.Ready:
			found = append(found, fmt.Sprintf("the node %s is not ready: %s", node.Name, node.ReadyReason))
		}
	}

	if len(nodes) != len(machines) || workers < 2 {
		found = append(found, fmt.Sprintf("there are %d machines, %d nodes and %d workers: each machine has to be a node, and two of them workers",
			len(machines), len(nodes), workers))
	}

	records, err := c.records(ctx)

	return append(found, records...), err
}

// records returns what an unfinished upgrade has left behind.
func (c *target) records(ctx context.Context) (found []string, err error) {
	lease, err := c.kubeAPI.Lease(ctx)
	if err != nil {
		return nil, err
	}

	if lease.Holder != "" {
		found = append(found, "an upgrade is under way, or was killed: the lease is held by "+lease.Holder)
	}

	journal, err := c.kubeAPI.Journal(ctx)
	if err != nil {
		return nil, err
	}

	for _, entry := range journal.Entries {
		found = append(found, fmt.Sprintf("an upgrade of node %s is not finished: %s", entry.Node, entry.Phase))
	}

	return found, nil
}

// versions are the versions that a node runs, and its boot.
type versions struct {
	talos, kubelet version.Version
	bootID         string
}

func (c *target) versions(ctx context.Context) (map[string]versions, error) {
	machines, err := c.fromTalos(ctx)
	if err != nil {
		return nil, err
	}

	running := map[string]versions{}

	for _, machine := range machines {
		said, err := c.talosAPI.Machine(ctx, machine.Addresses[0], nil, cluster.Everything)
		if err != nil {
			return nil, err
		}

		kubelet, err := version.Parse(machine.Kubelet)
		if err != nil {
			return nil, fmt.Errorf("the kubelet of %s: %w", machine.Name, err)
		}

		running[machine.Name] = versions{talos: said.Talos, kubelet: kubelet, bootID: said.BootID}
	}

	return running, nil
}
