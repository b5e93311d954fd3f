// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

const (
	prefix = "upgrade.vitistack.io/"
	hold   = "do-not-reconcile"

	fromTalos      = "1.13.2"
	toTalos        = "1.13.4"
	fromKubernetes = "1.34.2"
	toKubernetes   = "1.35.1"
)

// rig is a world of three control planes and two workers, with an API in memory
// and an object of an operator in it.
type rig struct {
	*operator.Memory

	t       *testing.T
	cluster *ports.Cluster
	of      cluster.Reference

	mu     sync.Mutex
	events []history.Event
}

// Record implements [history.Recorder].
func (r *rig) Record(node string, kind history.Kind, detail map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.events = append(r.events, history.Event{Node: node, Kind: kind, Detail: detail})
}

type seeding func(context.Context, operator.Objects, *model.World, operator.Seed) (cluster.Reference, error)

// beside runs a test in virtual time.
func beside(t *testing.T, options model.Options, seed seeding, given operator.Seed, test func(*rig)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t}

		if options.ControlPlanes == 0 {
			options.ControlPlanes, options.Workers = 3, 2
		}

		if options.Talos == "" {
			options.Talos, options.Kubernetes = fromTalos, fromKubernetes
		}

		options.Recorder = r

		simulated, err := ports.New(options)
		if err != nil {
			t.Fatal(err)
		}

		defer simulated.Stop()

		r.cluster = simulated

		if r.Memory, err = operator.NewMemory(simulated.World()); err != nil {
			t.Fatal(err)
		}

		given.Namespace, given.Name = "tenant-a", "prod"

		if r.of, err = seed(t.Context(), r.Memory, simulated.World(), given); err != nil {
			t.Fatal(err)
		}

		test(r)
	})
}

// besideVitistack runs a test beside the object and the Secret of Vitistack.
func besideVitistack(t *testing.T, test func(*rig)) {
	t.Helper()
	beside(t, model.Options{}, operator.SeedVitistack, operator.Seed{ClusterID: "c-1", Prefix: "talos-"}, test)
}

func besideDeclarative(t *testing.T, test func(*rig)) {
	t.Helper()
	beside(t, model.Options{}, operator.SeedDeclarative, operator.Seed{}, test)
}

func (r *rig) options(habits operator.Habits) operator.Options {
	return operator.Options{World: r.cluster.World(), Objects: r.Memory, Namespace: r.of.Namespace, Name: r.of.Name, Habits: habits}
}

// play plays the operator until the returned function is called.
func (r *rig) play(habits operator.Habits) (stop func()) {
	if r.of.Kind == operator.ControlPlaneKind {
		return operator.PlayDeclarative(r.t.Context(), r.options(habits))
	}

	return operator.PlayVitistack(r.t.Context(), r.options(habits))
}

// annotate sets annotations without their prefix; an empty value removes one.
func (r *rig) annotate(values map[string]string) {
	r.t.Helper()

	whole := map[string]string{}
	for key, value := range values {
		whole[prefix+key] = value
	}

	if err := r.Annotate(r.t.Context(), r.of, whole); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) note(key string) string { return r.Annotations(r.of)[prefix+key] }

// want asserts annotations; if a value is empty, the annotation must not exist.
func (r *rig) want(values map[string]string) {
	r.t.Helper()

	standing := r.Annotations(r.of)

	for key, value := range values {
		got, has := standing[prefix+key]
		if got != value || has != (value != "") {
			r.t.Errorf("annotation %s is %q, want %q", key, got, value)
		}
	}
}

// until lets time pass until the condition holds. It is checked once all goroutines that run at this second are
// done: an operator writes annotations before the status.
func (r *rig) until(what string, limit time.Duration, holds func() bool) {
	r.t.Helper()

	settled := func() bool {
		synctest.Wait()

		return holds()
	}

	for deadline := time.Now().Add(limit); !settled(); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not %s within %s:\n%s", what, limit, r.text())
		}
	}
}

func (r *rig) untilNote(key, value string) {
	r.t.Helper()
	r.until(key+" "+value, 2*time.Hour, func() bool { return r.note(key) == value })
}

// written returns the values that an annotation took, in order, "-" for none.
func (r *rig) written(key string) []string {
	var values []string

	for _, event := range r.happened(history.KindAnnotation) {
		if event.Detail["key"] != key || event.Detail["object"] != r.of.Kind+"/tenant-a/prod" || event.Detail["by"] != "other" {
			continue
		}

		value := event.Detail["value"]
		if value == "" {
			value = "-"
		}

		values = append(values, value)
	}

	return values
}

// happened returns the events of some kinds.
func (r *rig) happened(kinds ...history.Kind) []history.Event {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(r.events), func(event history.Event) bool { return !slices.Contains(kinds, event.Kind) })
}

// installed returns the nodes in the order in which their installers ended.
func (r *rig) installed() []string {
	var nodes []string

	for _, event := range r.happened(history.KindInstall) {
		if event.Detail["by"] != "other" {
			r.t.Errorf("the history says %v of %s", event.Detail, event.Node)
		}

		nodes = append(nodes, event.Node)
	}

	return nodes
}

func (r *rig) text() string {
	var lines []string

	for _, event := range r.happened(history.KindAnnotation, history.KindStatus, history.KindInstall, history.KindStage, history.KindComponent) {
		lines = append(lines, fmt.Sprint(event.Node, " ", event.Kind, " ", event.Detail))
	}

	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}

// versions returns those of Talos, control planes first.
func (r *rig) versions() []string {
	var running []string

	for _, state := range r.cluster.World().Nodes() {
		running = append(running, state.Talos)
	}

	return running
}

// wantTalos asserts what every machine runs, and that it is in service.
func (r *rig) wantTalos(version string) {
	r.t.Helper()

	for _, state := range r.cluster.World().Nodes() {
		if state.Talos != version || !state.Ready || !state.Kubelet.Ready || state.Unschedulable {
			r.t.Errorf("%s runs %s, ready %t, unschedulable %t; want %s in service", state.Name, state.Talos, state.Ready, state.Unschedulable, version)
		}
	}
}

// wantKubernetes asserts which Kubernetes version runs everywhere.
func (r *rig) wantKubernetes(version string) {
	r.t.Helper()

	for _, state := range r.cluster.World().Nodes() {
		running := []string{state.Components.Kubelet, state.Components.Proxy}
		if state.Role == model.ControlPlane {
			running = append(running, state.Components.APIServer, state.Components.ControllerManager, state.Components.Scheduler)
		}

		if slices.ContainsFunc(running, func(one string) bool { return one != version }) {
			r.t.Errorf("%s runs %v, want %s of each", state.Name, running, version)
		}
	}
}

// secret returns the value of a key of the Secret of Vitistack.
func (r *rig) secret(key string) string {
	r.t.Helper()

	found, err := r.Secret(r.t.Context(), "tenant-a", "talos-c-1")
	if err != nil {
		r.t.Fatal(err)
	}

	return string(found.Data[key])
}

// status returns a field of an object's status.
func (r *rig) status(of cluster.Reference, field string) string {
	r.t.Helper()

	object, err := r.Object(r.t.Context(), of)
	if err != nil {
		r.t.Fatal(err)
	}

	status, _ := object["status"].(map[string]any)
	value, _ := status[field].(string)

	return value
}

// wantCondition asserts "status reason message" of a condition.
func (r *rig) wantCondition(kind, want string) {
	r.t.Helper()

	object, err := r.Object(r.t.Context(), r.of)
	if err != nil {
		r.t.Fatal(err)
	}

	status, _ := object["status"].(map[string]any)
	listed, _ := status["conditions"].([]any)

	var seen []string

	for _, entry := range listed {
		fields, _ := entry.(map[string]any)
		if fields["type"] == kind {
			seen = append(seen, fmt.Sprint(fields["status"], " ", fields["reason"], " ", fields["message"]))
		}
	}

	if !slices.Equal(seen, []string{want}) {
		r.t.Errorf("condition %s is %q, want %q", kind, seen, want)
	}
}
