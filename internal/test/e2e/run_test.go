// SPDX-License-Identifier: MPL-2.0

package e2e

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/contract"
)

// reserve is the part of the test's own time limit that is kept for an orderly end.
const reserve = time.Minute

// TestEndToEnd is the whole run. If a part of it fails, the run stops: a cluster that does not keep the contract is
// not upgraded.
func TestEndToEnd(t *testing.T) {
	asked := readSettings(t)

	// An upgrade that is interrupted finishes its step before it stops.
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	if deadline, limited := t.Deadline(); limited {
		var cancel context.CancelFunc

		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-reserve))
		defer cancel()
	}

	name, err := admit(ctx, asked.talosconfig, asked.context)
	if err != nil {
		t.Fatal(err)
	}

	if err := os.MkdirAll(asked.out, 0o750); err != nil {
		t.Fatal(err)
	}

	asked.context = name
	c := connect(ctx, t, asked)

	part(t, "the cluster is one to begin with", func(t *testing.T) { c.mustHaveNoObstacles(ctx, t) })
	part(t, "Talos keeps the contract", func(t *testing.T) { c.holdTalos(ctx, t) })
	part(t, "Kubernetes keeps the contract", func(t *testing.T) { c.holdKubernetes(ctx, t) })

	if !asked.upgrades() {
		t.Log("nothing is upgraded: neither TALOS_TO nor KUBERNETES_TO was given")

		return
	}

	before, err := c.versions(ctx)
	if err != nil {
		t.Fatal(err)
	}

	noted := watchBoots(t, c)
	p := buildProvider(ctx, t, c)

	part(t, "the preflight passes", func(t *testing.T) { p.preflight(ctx, t) })
	part(t, "the provider upgrades", func(t *testing.T) { p.upgrade(ctx, t) })
	part(t, "the cluster is where it should be", func(t *testing.T) { c.mustHaveArrived(ctx, t, before, noted) })
	part(t, "Talos keeps the contract after it", func(t *testing.T) { c.holdTalos(ctx, t) })
}

// part runs a part of the run, and ends the run if it failed.
func part(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()

	if !t.Run(name, run) {
		t.FailNow()
	}
}

func (c *target) mustHaveNoObstacles(ctx context.Context, t *testing.T) {
	t.Helper()

	found, err := c.obstacles(ctx)
	if err != nil {
		t.Fatal(err)
	}

	if len(found) > 0 {
		t.Fatalf("nothing was written, because:\n%s", strings.Join(found, "\n"))
	}
}

func (c *target) holdTalos(ctx context.Context, t *testing.T) {
	t.Helper()

	machines, err := contract.FromKubernetes(ctx, c.plain)
	if err != nil {
		t.Fatal(err)
	}

	for _, clause := range contract.TalosCases() {
		t.Run(clause.Name, func(t *testing.T) { clause.Run(t, contract.Machines{Adapter: c.talosAPI, Known: machines}) })
	}
}

func (c *target) holdKubernetes(ctx context.Context, t *testing.T) {
	t.Helper()

	machines, err := c.fromTalos(ctx)
	if err != nil {
		t.Fatal(err)
	}

	live := &contract.Live{Adapter: c.kubeAPI, Other: c.plain, ID: c.id, Known: machines, Image: pause, Patience: patience}

	// What an earlier, finished upgrade has left behind would disturb the clauses.
	live.Sweep(t)

	contract.Test(t, func(t *testing.T) contract.Fixture { return live.Open(t) })

	for _, clause := range contract.WireCases() {
		t.Run(clause.Name, func(t *testing.T) { clause.Run(t, live.Open(t)) })
	}
}

// mustHaveArrived compares the cluster with the target versions.
func (c *target) mustHaveArrived(ctx context.Context, t *testing.T, before map[string]versions, noted *boots) {
	t.Helper()

	after, err := c.versions(ctx)
	if err != nil {
		t.Fatal(err)
	}

	if len(after) != len(before) {
		t.Errorf("there were %d machines and are %d", len(before), len(after))
	}

	for name, now := range after {
		was := before[name]

		if !c.talos.IsZero() && !now.talos.Equal(c.talos) || c.talos.IsZero() && !now.talos.Equal(was.talos) {
			t.Errorf("%s went from Talos %s to %s", name, was.talos, now.talos)
		}

		if !c.kubernetes.IsZero() && !now.kubelet.Equal(c.kubernetes) || c.kubernetes.IsZero() && !now.kubelet.Equal(was.kubelet) {
			t.Errorf("the kubelet of %s went from %s to %s", name, was.kubelet, now.kubelet)
		}

		want := 1
		if !now.talos.Equal(was.talos) {
			want = 2
		}

		if seen := noted.until(ctx, name, now.bootID); len(seen) != want || seen[0] != was.bootID || seen[want-1] != now.bootID {
			t.Errorf("%s went from Talos %s to %s by way of the boots %v, want %d of them", name, was.talos, now.talos, seen, want)
		}
	}

	c.mustBeComplete(ctx, t)

	found, err := c.obstacles(ctx)
	if err != nil {
		t.Fatal(err)
	}

	for _, one := range found {
		t.Errorf("after the upgrade %s", one)
	}
}

// mustBeComplete checks the versions in the Pods of the control plane.
func (c *target) mustBeComplete(ctx context.Context, t *testing.T) {
	t.Helper()

	if c.kubernetes.IsZero() {
		return
	}

	pods, err := c.kubeAPI.ComponentPods(ctx)
	if err != nil {
		t.Fatal(err)
	}

	for _, pod := range pods {
		if contract.Tag(pod.Image) != c.kubernetes.String() || !pod.Ready {
			t.Errorf("%s of %s runs %s (ready: %t), want Kubernetes %s", pod.Component, pod.Node, pod.Image, pod.Ready, c.kubernetes)
		}
	}
}
