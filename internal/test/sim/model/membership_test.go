// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestMembership_NewWorldIsHealthyAndIntroduced(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Workers: 2, Schematic: schematic}, func(r rig) {
		states := r.Nodes()
		if len(states) != 5 || states[3].Name != "worker-0" || states[4].Address != "10.5.0.6" {
			r.t.Fatalf("machines: %+v", states)
		}

		for _, state := range states {
			if !ready(state) || state.InstallImage != "factory.talos.dev/metal-installer/"+schematic+":v1.13.2" {
				r.t.Errorf("at the beginning: %+v", state)
			}

			if events := r.log.of(state.Name, history.KindNode); len(events) != 1 || events[0].Detail["uuid"] != state.UUID {
				r.t.Errorf("introduction of %s: %+v", state.Name, events)
			}
		}
	})
}

func TestMembership_NodeJoinsOnItsOwnVersion(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Workers: 1}, func(r rig) {
		worker, err := r.AddNode(model.NodeOptions{Role: model.Worker, Talos: "v1.12.6"})
		if err != nil || worker != "worker-1" {
			r.t.Fatalf("a worker: %q, %v", worker, err)
		}

		plane, err := r.AddNode(model.NodeOptions{Role: model.ControlPlane})
		if err != nil {
			r.t.Fatal(err)
		}

		if state := r.until(worker, "ready", 5*time.Minute, ready); state.Talos != "1.12.6" {
			r.t.Fatalf("worker: %+v", state)
		}

		r.until(plane, "ready", 5*time.Minute, ready)

		members, err := r.EtcdMembers(r.t.Context(), "cp-0")
		if err != nil || len(members) != 4 || members[3].Learner {
			r.t.Fatalf("members: %+v, %v", members, err)
		}

		if _, err := r.AddNode(model.NodeOptions{Name: worker, Role: model.Worker}); err == nil {
			r.t.Fatal("a second machine of the same name")
		}
	})
}

func TestMembership_RemovedNodeIsGone(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3, Workers: 1}, func(r rig) {
		if err := r.RemoveNode("cp-0"); err != nil {
			r.t.Fatal(err)
		}

		if _, err := r.Version(r.t.Context(), "10.5.0.2"); !errors.Is(err, model.ErrUnknownNode) {
			r.t.Fatalf("its address answers: %v", err)
		}

		members, err := r.EtcdMembers(r.t.Context(), "cp-1")
		if err != nil || len(members) != 2 || !r.EtcdQuorum() {
			r.t.Fatalf("members: %+v, %v", members, err)
		}
	})
}

// TestMembership_RemovedNodeStaysInDiscovery: nobody can remove it from there.
func TestMembership_RemovedNodeStaysInDiscovery(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 2}, func(r rig) {
		listed := func() (names []string) {
			for _, member := range r.Members() {
				names = append(names, member.Name)
			}

			return names
		}

		if err := r.RemoveNode("worker-0"); err != nil {
			r.t.Fatal(err)
		}

		time.Sleep(29 * time.Minute)

		if names := listed(); !slices.Contains(names, "worker-0") || len(names) != 3 {
			r.t.Errorf("after 29 minutes discovery lists %v, want worker-0 in it", names)
		}

		if _, err := r.AddNode(model.NodeOptions{Name: "worker-0", Role: model.Worker}); err != nil {
			r.t.Fatal(err)
		}

		if names := listed(); len(names) != 3 {
			r.t.Errorf("with another machine of that name discovery lists %v", names)
		}

		if err := r.RemoveNode("worker-1"); err != nil {
			r.t.Fatal(err)
		}

		time.Sleep(31 * time.Minute)

		if names := listed(); slices.Contains(names, "worker-1") || len(names) != 2 {
			r.t.Errorf("after 31 minutes discovery lists %v, want worker-1 forgotten", names)
		}
	})
}

func TestMembership_ChangesAreTold(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		var (
			mu   sync.Mutex
			told []string
		)

		remove := r.OnChange(func(name string) {
			_, _ = r.Node(name) // must not deadlock

			mu.Lock()
			defer mu.Unlock()

			told = append(told, name)
		})

		r.reboot("worker-0")
		remove()

		mu.Lock()
		before := len(told)
		mu.Unlock()

		r.reboot("worker-0")

		mu.Lock()
		defer mu.Unlock()

		if before < 5 || len(told) != before || !slices.Contains(told, "worker-0") {
			r.t.Fatalf("told %d times, %d after removal", before, len(told)-before)
		}
	})
}

func TestMembership_StopCancelsWhatIsUnderWay(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		time.Sleep(20 * time.Second)

		start := time.Now()
		r.Stop()

		if took := time.Since(start); took != 0 {
			r.t.Fatalf("stopping took %s", took)
		}
	})
}
