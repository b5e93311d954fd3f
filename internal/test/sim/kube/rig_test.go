// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	nameControllerManager = "kube-controller-manager"
	nameScheduler         = "kube-scheduler"
)

// fakeWorld is a cluster whose machines do what the test sets.
type fakeWorld struct {
	mutex    sync.Mutex
	machines []Machine
	blocked  []string
	noQuorum bool
	// rendered is what the control planes render their manifests from.
	rendered model.NodeState
	// lost names the node whose next reply is lost.
	lost     string
	watchers map[int]func(string)
	next     int
}

func newFakeWorld(controlPlanes, workers int) *fakeWorld {
	w := &fakeWorld{watchers: map[int]func(string){}, rendered: model.NodeState{
		KubeState: model.KubeState{Role: model.ControlPlane}, ProxyImage: "registry.k8s.io/kube-proxy:v1.34.2",
		CoreDNSImage: "registry.k8s.io/coredns/coredns:v1.13.1",
	}}

	for i := range controlPlanes {
		w.machines = append(w.machines, newFakeMachine(fmt.Sprintf("cp-%d", i), RoleControlPlane, i))
	}

	for i := range workers {
		w.machines = append(w.machines, newFakeMachine(fmt.Sprintf("worker-%d", i), RoleWorker, controlPlanes+i))
	}

	return w
}

func newFakeMachine(name, role string, index int) Machine {
	const version = "1.34.2"

	machine := Machine{
		Name: name, Role: role, Address: fmt.Sprintf("10.5.0.%d", 2+index),
		UUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", index), MachineID: fmt.Sprintf("%032d", index), Platform: "metal",
		Talos: "1.12.6", Schematic: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
		BootID:        name + "-boot-0",
		PodsReported:  true,
		Kubelet:       Kubelet{Running: true, Ready: true, Version: version},
		Proxy:         version,
		ConfigVersion: 1,
	}

	if role == RoleControlPlane {
		machine.APIServerUp = true
		machine.StaticPods = map[string]StaticPod{}

		for _, component := range []string{nameAPIServer, nameControllerManager, nameScheduler} {
			machine.StaticPods[component] = StaticPod{
				Image: "registry.k8s.io/" + component + ":v" + version, ConfigVersion: 1,
				Ready: true, Started: time.Unix(1, 0),
			}
		}
	}

	return machine
}

func (w *fakeWorld) Machines() []Machine {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	return slices.Clone(w.machines)
}

func (w *fakeWorld) Machine(name string) (Machine, bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	index := slices.IndexFunc(w.machines, func(m Machine) bool { return m.Name == name })
	if index < 0 {
		return Machine{}, false
	}

	return w.machines[index], true
}

func (w *fakeWorld) EtcdQuorum() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	return !w.noQuorum
}

func (w *fakeWorld) Manifests(string) []map[string]any {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	return modelManifests(w.rendered)
}

func (w *fakeWorld) SetProxy(node, version string) {
	w.change(node, func(_ *fakeWorld, m *Machine) { m.Proxy = version })
}

func (w *fakeWorld) BlockedDrains() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	return slices.Clone(w.blocked)
}

func (w *fakeWorld) RepliesAtRisk() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	return w.lost != ""
}

func (w *fakeWorld) LoseReply(node string) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	if w.lost != node {
		return false
	}

	w.lost = ""

	return true
}

func (w *fakeWorld) OnChange(changed func(string)) (cancel func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	w.next++
	id := w.next
	w.watchers[id] = changed

	return func() {
		w.mutex.Lock()
		defer w.mutex.Unlock()

		delete(w.watchers, id)
	}
}

// change calls a function that changes the world, and one machine of it by name.
func (w *fakeWorld) change(node string, alter func(w *fakeWorld, m *Machine)) {
	w.mutex.Lock()

	index := slices.IndexFunc(w.machines, func(m Machine) bool { return m.Name == node })
	if index < 0 {
		alter(w, &Machine{})
	} else {
		alter(w, &w.machines[index])
	}

	var watchers []func(string)
	for _, watcher := range w.watchers {
		watchers = append(watchers, watcher)
	}

	w.mutex.Unlock()

	for _, watcher := range watchers {
		watcher(node)
	}
}

func (w *fakeWorld) takeDown(node string) {
	w.change(node, func(_ *fakeWorld, m *Machine) {
		m.APIServerUp = false
		m.Kubelet.Running, m.Kubelet.Ready = false, false
	})
}

func (w *fakeWorld) bringUp(node, bootID, talos string) {
	w.change(node, func(_ *fakeWorld, m *Machine) {
		m.APIServerUp = m.Role == RoleControlPlane
		m.Kubelet.Running, m.Kubelet.Ready = true, true
		m.BootID, m.Talos = bootID, talos
	})
}

// fastClock runs a hundred times faster than the wall clock.
type fastClock struct{ start time.Time }

const clockFactor = 100

func (c fastClock) Now() time.Time { return c.start.Add(time.Since(c.start) * clockFactor) }

func (c fastClock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d / clockFactor)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// notebook is a recorder whose events tests read.
type notebook struct {
	mutex  sync.Mutex
	events []history.Event
}

func (n *notebook) Record(node string, kind history.Kind, detail map[string]string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	n.events = append(n.events, history.Event{Node: node, Kind: kind, Detail: detail})
}

// since returns the events after the first count of them.
func (n *notebook) since(count int) []history.Event {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	return slices.Clone(n.events[count:])
}

func (n *notebook) count() int {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	return len(n.events)
}
