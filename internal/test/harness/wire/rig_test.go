// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	simwire "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

// rig is a simulated cluster that is reached over its real protocols.
type rig struct {
	*harness.Rig

	talos       *simwire.Server
	kube        *apiserver.Server
	tap         *tap
	talosconfig []byte

	// lists and watches count those of the Node objects. busy refuses some of them.
	lists, watches atomic.Int64
	busy           atomic.Bool
}

// kubernetes decides about a request to the Kubernetes API.
func (r *rig) kubernetes(ctx context.Context, request apiserver.Request) apiserver.Strike {
	if request.Resource == "nodes" && (request.Verb == "list" || request.Verb == "watch") {
		counted := &r.lists
		if request.Verb == "watch" {
			counted = &r.watches
		}

		if counted.Add(1)%2 == 0 && r.busy.Load() {
			return apiserver.Strike{RetryAfter: 3 * time.Second}
		}
	}

	return r.tap.kubernetes(ctx, request)
}

// inBubble runs a test in virtual time. A test that can never end is told by the
// name that says how to repeat it.
func inBubble(t *testing.T, name string, given harness.Setup, test func(*rig)) {
	t.Helper()

	defer func() {
		if stuck := recover(); stuck != nil {
			panic(fmt.Sprintf("%s: %v", name, stuck))
		}
	}()

	synctest.Test(t, func(t *testing.T) { serve(t, given, test) })
}

func serve(t testing.TB, given harness.Setup, test func(*rig)) {
	t.Helper()

	r := &rig{Rig: harness.New(t, given), tap: newTap()}
	defer r.Stop()

	var err error

	r.kube, err = apiserver.New(r.Cluster, apiserver.Options{Client: "nobody", Intercept: r.kubernetes})
	if err != nil {
		t.Fatal(err)
	}

	r.kube.Start()
	defer r.kube.Stop()

	r.talos, err = simwire.New(simwire.Options{
		World: r.World(), InMemory: true, Intercept: r.tap.talos,
		Kubeconfig: func() ([]byte, error) { return r.kube.Kubeconfig(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := r.talos.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer r.talos.Stop()

	if r.talosconfig, err = r.talos.Talosconfig(); err != nil {
		t.Fatal(err)
	}

	r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

	test(r)
}

// patience bounds a run.
const patience = 12 * time.Hour

// must fails the test unless the upgrade succeeds, and leaves no connection.
func (r *rig) must(p *process, request engine.Request) {
	r.T.Helper()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	if err := p.apply(ctx, request); err != nil {
		r.T.Fatalf("upgrade by %s: %v\n%s", p.name, err, r.Judge.Text())
	}

	r.disconnected(p)
}

// disconnected fails the test when a process that has ended left a connection, on
// its own side or on that of a server.
func (r *rig) disconnected(p *process) {
	r.T.Helper()

	synctest.Wait()

	if left := p.network.count(); left > 0 {
		r.T.Errorf("%s left %d connections", p.name, left)
	}

	for _, other := range r.tap.alive() {
		if other != p && other.network.count() > 0 {
			return
		}
	}

	if talos, kube := r.talos.Connections(), r.kube.Connections(); talos+kube > 0 {
		r.T.Errorf("the Talos API still has %d connections, the Kubernetes API %d", talos, kube)
	}
}

// converged fails the test unless the cluster is at the target, nothing was broken
// or left behind, and another upgrade changes nothing.
func (r *rig) converged(request engine.Request) {
	r.T.Helper()

	if target := request.Target.Talos; !target.IsZero() {
		r.AllRun(target.String())
		r.published("talos", target.String())
	}

	if target := request.Target.Kubernetes; !target.IsZero() {
		r.atKubernetes(target.String())
		r.published("kubernetes", target.String())
	}

	r.Sound()
	r.Tidy()

	if r.T.Failed() {
		r.T.Fatal(r.Judge.Text())
	}

	again := r.start("run-again")
	r.must(again, request)

	if changes, _ := r.tap.points(again.name); len(changes) > 0 {
		r.T.Errorf("an upgrade of a cluster at its target made %d requests that change something: %v", len(changes), changes)
	}

	if _, changes := again.rest.Calls(); changes > 0 {
		r.T.Errorf("an upgrade of a cluster at its target changed manifests %d times", changes)
	}

	r.Sound()
}

// published fails the test unless the annotations of one half say that it is done.
func (r *rig) published(half, target string) {
	r.T.Helper()

	notes := r.Annotations()
	for key, want := range map[string]string{half + "-status": "completed", half + "-current": target} {
		if notes[key] != want {
			r.T.Errorf("annotation %s is %q, want %q", key, notes[key], want)
		}
	}
}

func (r *rig) atKubernetes(target string) {
	r.T.Helper()

	for _, node := range r.World().Nodes() {
		want := model.Components{Proxy: target, Kubelet: target}
		if node.Role == model.ControlPlane {
			want.APIServer, want.ControllerManager, want.Scheduler = target, target, target
		}

		if node.Components != want {
			r.T.Errorf("%s runs %+v, want %+v", node.Name, node.Components, want)
		}
	}

	if r.Journal().Manifests != nil {
		r.T.Errorf("the journal still says that manifests are due")
	}
}

// crashing runs an upgrade that is struck, and returns when its process is dead or
// the upgrade has ended. It returns how to wait for what is left of a dead one.
func (r *rig) crashing(p *process, request engine.Request, at aim) (wait func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)

	p.mu.Lock()
	p.cancel = cancel
	p.mu.Unlock()

	at.process = p.name
	r.tap.takeAim(at)

	ended := make(chan error, 1)

	go func() {
		defer close(ended)

		ended <- p.apply(ctx, request)
	}()

	select {
	case err = <-ended:
	case <-p.killed:
	}

	// A run may end at the very moment at which it is killed.
	select {
	case <-p.killed:
		err = harness.ErrKilled
	default:
	}

	return func() {
		for range ended {
		}

		cancel()
	}, err
}
