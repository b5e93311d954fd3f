// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	factoryImage = "factory.talos.dev/metal-installer/" + schematic + ":v1.13.4"
	schematic    = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
)

// log keeps the history as text lines.
type log struct {
	mu     sync.Mutex
	clock  func() time.Duration
	lines  []string
	events []history.Event
}

func (l *log) Record(node string, kind history.Kind, detail map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	var at time.Duration
	if l.clock != nil {
		at = l.clock()
	}

	line := fmt.Sprintf("%s %s %s", at, node, kind)
	for _, key := range slices.Sorted(maps.Keys(detail)) {
		line += " " + key + "=" + detail[key]
	}

	l.lines = append(l.lines, line)
	l.events = append(l.events, history.Event{Node: node, Kind: kind, Detail: detail, Sim: at.Seconds()})
}

func (l *log) of(node string, kinds ...history.Kind) []history.Event {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(l.events), func(e history.Event) bool {
		return e.Node != node || !slices.Contains(kinds, e.Kind)
	})
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return strings.Join(l.lines, "\n")
}

// rig is a world in a bubble.
type rig struct {
	*model.World
	t   *testing.T
	log *log
}

// inWorld runs a test in virtual time against a new world.
func inWorld(t *testing.T, options model.Options, test func(rig)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		record := &log{}
		options.Recorder = record

		if options.Talos == "" {
			options.Talos = "1.13.2"
		}

		world, err := model.New(options)
		if err != nil {
			t.Fatal(err)
		}

		record.mu.Lock()
		record.clock = world.Now
		record.mu.Unlock()

		defer world.Stop()

		test(rig{world, t, record})
	})
}

func (r rig) node(name string) model.NodeState {
	r.t.Helper()

	state, err := r.Node(name)
	if err != nil {
		r.t.Fatal(err)
	}

	return state
}

// until lets time pass until cond holds for the machine.
func (r rig) until(name, what string, limit time.Duration, cond func(model.NodeState) bool) model.NodeState {
	r.t.Helper()

	deadline := time.Now().Add(limit)

	for !cond(r.node(name)) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not %s within %s: %+v\n%s", name, what, limit, r.node(name), r.log.text())
		}

		time.Sleep(200 * time.Millisecond)
	}

	return r.node(name)
}

func ready(state model.NodeState) bool {
	return state.Reachable && state.Stage == model.StageRunning && state.Ready && !state.UpgradePending
}

func down(state model.NodeState) bool { return !state.Up }

// pullAndInstall does what a client of the new API does, without a reboot.
func (r rig) pullAndInstall(name, image string) {
	r.t.Helper()

	if _, err := r.Pull(context.Background(), name, image, nil); err != nil {
		r.t.Fatal(err)
	}

	exit, err := r.Install(context.Background(), name, image, nil)
	if err != nil || exit != 0 {
		r.t.Fatalf("install: exit %d, %v", exit, err)
	}
}

func (r rig) reboot(name string) model.NodeState {
	r.t.Helper()

	if _, err := r.Reboot(context.Background(), name, model.RebootDefault); err != nil {
		r.t.Fatal(err)
	}

	r.until(name, "down", time.Minute, down)

	return r.until(name, "ready", 5*time.Minute, ready)
}

const (
	newServer    = "registry.k8s.io/kube-apiserver:v1.35.2"
	newScheduler = "registry.k8s.io/kube-scheduler:v1.35.2"
	newKubelet   = "ghcr.io/siderolabs/kubelet:v1.35.2"
)

// edited returns a machine's configuration with texts replaced, in pairs.
func (r rig) edited(node string, pairs ...string) []byte {
	r.t.Helper()

	text, err := r.MachineConfig(node)
	if err != nil {
		r.t.Fatal(err)
	}

	edited := strings.NewReplacer(pairs...).Replace(string(text))
	if edited == string(text) && len(pairs) > 0 {
		r.t.Fatalf("%v are not in\n%s", pairs, text)
	}

	return []byte(edited)
}

// apply changes a machine's configuration as a client does, without a reboot.
func (r rig) apply(node string, pairs ...string) error {
	r.t.Helper()

	_, err := r.ApplyConfig(r.t.Context(), node, r.edited(node, pairs...), model.ApplyNoReboot, false)

	return err
}

func (r rig) mustApply(node string, pairs ...string) {
	r.t.Helper()

	if err := r.apply(node, pairs...); err != nil {
		r.t.Fatal(err)
	}
}

// components returns the changes of a component on a node, as state@version.
func (r rig) components(node, component string) string {
	var states []string

	for _, event := range r.log.of(node, history.KindComponent) {
		if event.Detail["component"] == component {
			states = append(states, event.Detail["state"]+"@"+event.Detail["version"])
		}
	}

	return strings.Join(states, " ")
}

// applied returns the configurations that a machine was given, as code/changed/by.
func (r rig) applied(node string) string {
	var applied []string

	for _, event := range r.log.of(node, history.KindConfig) {
		applied = append(applied, event.Detail["code"]+"/"+event.Detail["changed"]+"/"+event.Detail["by"])
	}

	return strings.Join(applied, " ")
}

func (r rig) pass(length time.Duration) { time.Sleep(length) }

// serves returns a condition that reports whether a static pod of that image is ready.
func serves(component, image string) func(model.NodeState) bool {
	return func(state model.NodeState) bool {
		pod := state.StaticPods[component]

		return pod.Ready && pod.PodImage == image && pod.PodConfigVersion == pod.ConfigVersion
	}
}

// kubeletRuns returns a condition that reports whether a kubelet of that version is healthy.
func kubeletRuns(version string) func(model.NodeState) bool {
	return func(state model.NodeState) bool {
		return state.KubeletService.Healthy && state.Kubelet.Running && state.Kubelet.Version == version
	}
}
