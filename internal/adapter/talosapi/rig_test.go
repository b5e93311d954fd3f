// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

const (
	schematic  = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	nextImage  = "factory.talos.dev/metal-installer/" + schematic + ":v1.13.4"
	kubeconfig = "kubeconfig of the simulation"

	cp0, cp1, worker0 = "10.5.0.2", "10.5.0.3", "10.5.0.5"
)

// rig is a simulated cluster of three control planes and one worker that
// speaks the real protocol.
type rig struct {
	*testing.T
	world  *model.World
	server *wire.Server
	log    *record
}

// record keeps the history of a simulation.
type record struct {
	mutex  sync.Mutex
	events []history.Event
}

func (r *record) Record(node string, kind history.Kind, detail map[string]string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	r.events = append(r.events, history.Event{Node: node, Kind: kind, Detail: detail})
}

// soFar is the history once everybody in the bubble has come to rest: that a call
// ended is noted by the machine, which learns of a caller who left after the caller.
func (r *record) soFar() []history.Event {
	synctest.Wait()

	r.mutex.Lock()
	defer r.mutex.Unlock()

	return slices.Clone(r.events)
}

// calls are the methods called on a node, without their service, by how often.
func (r *record) calls(node string) map[string]int {
	calls := map[string]int{}

	for _, event := range r.soFar() {
		if event.Node == node && event.Kind == history.KindRPC {
			calls[event.Detail["method"]]++
		}
	}

	return calls
}

// first is the method that was called on a node before all others.
func (r *record) first(node string) string {
	for _, event := range r.soFar() {
		if event.Node == node && event.Kind == history.KindRPC {
			return event.Detail["method"]
		}
	}

	return "none"
}

func (r *record) count(node string, kind history.Kind) int {
	count := 0

	for _, event := range r.soFar() {
		if event.Node == node && event.Kind == kind {
			count++
		}
	}

	return count
}

// inBubble runs a test against a cluster in memory and in virtual time.
func inBubble(t *testing.T, options model.Options, test func(*rig)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, log: &record{}}

		options.Recorder = r.log
		options.ControlPlanes, options.Workers = 3, 1

		if options.Talos == "" {
			options.Talos = "1.13.2"
		}

		if options.Schematic == "" {
			options.Schematic = schematic
		}

		var err error

		if r.world, err = model.New(options); err != nil {
			t.Fatal(err)
		}
		defer r.world.Stop()

		r.server, err = wire.New(wire.Options{
			World: r.world, InMemory: true, Kubeconfig: func() ([]byte, error) { return []byte(kubeconfig), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.server.Stop()

		if err := r.server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}

		test(r)
	})
}

// client connects with a context of the talosconfig, named by its suffix.
func (r *rig) client(suffix string) *talosapi.Client {
	r.Helper()

	text, err := r.server.Talosconfig()
	if err != nil {
		r.Fatal(err)
	}

	config, err := talosapi.ParseConfig(text, r.world.ClusterName()+suffix)
	if err != nil {
		r.Fatal(err)
	}

	made, err := talosapi.New(config, talosapi.Options{DialContext: r.server.Dialer(), UserAgent: "test"})
	if err != nil {
		r.Fatal(err)
	}

	r.Cleanup(func() {
		if err := made.Close(); err != nil {
			r.Error(err)
		}
	})

	return made
}

func (r *rig) machine(c *talosapi.Client, address string) cluster.Machine {
	r.Helper()

	machine, err := c.Machine(r.Context(), address, nil)
	if err != nil {
		r.Fatal(err)
	}

	return machine
}

// until waits for a condition of a machine in the model.
func (r *rig) until(node, what string, cond func(model.NodeState) bool) {
	r.Helper()

	const limit = 10 * time.Minute

	ticker := time.NewTicker(97 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(limit); ; <-ticker.C {
		state, err := r.world.Node(node)
		if err != nil {
			r.Fatal(err)
		}

		if cond(state) {
			return
		}

		if time.Now().After(deadline) {
			r.Fatalf("%s: not %s within %s: %+v", node, what, limit, state)
		}
	}
}

func isUp(state model.NodeState) bool {
	return state.Reachable && state.Stage == model.StageRunning && state.Ready && !state.UpgradePending
}

func isDown(state model.NodeState) bool { return !state.Up }
