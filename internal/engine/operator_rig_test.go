// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// The annotations that tests look at.
const (
	keyPrefix     = "upgrade.vitistack.io/"
	keyHold       = keyPrefix + "do-not-reconcile"
	keyTarget     = keyPrefix + "talos-target"
	keyKubeTarget = keyPrefix + "kubernetes-target"
	keyStatus     = keyPrefix + "talos-status"
	keyMessage    = keyPrefix + "talos-message"
)

// owned is a cluster that an operator owns as well.
type owned struct {
	*rig

	api  *played.Memory
	of   cluster.Reference
	seed played.Seed
}

// holding has the judge demand that the operator is held whenever something is
// disturbed, and free afterwards; asking has it demand that nothing is disturbed by
// anybody but the operator.
func holding(given setup) setup {
	given.Judging = append(given.Judging, checker.Operated("KubernetesCluster/tenant-a/prod"))

	return given
}

func asking(given setup) setup {
	given.Judging = append(given.Judging, checker.Delegated())

	return given
}

// besideOperator runs a test in virtual time beside a Vitistack operator with
// habits; nil plays none.
func besideOperator(t *testing.T, given setup, habits *played.Habits, test func(*owned)) {
	t.Helper()

	inCluster(t, given, func(r *rig) {
		o := newOwned(r, played.SeedVitistack)
		if habits != nil {
			defer played.PlayVitistack(context.Background(), o.options(*habits))()
		}

		test(o)
	})
}

// besideDeclarative is [besideOperator] with the operator of a TalosControlPlane.
func besideDeclarative(t *testing.T, given setup, habits *played.Habits, test func(*owned)) {
	t.Helper()

	inCluster(t, given, func(r *rig) {
		o := newOwned(r, played.SeedDeclarative)
		if habits != nil {
			defer played.PlayDeclarative(context.Background(), o.options(*habits))()
		}

		test(o)
	})
}

type seeding func(context.Context, played.Objects, *model.World, played.Seed) (cluster.Reference, error)

func newOwned(r *rig, seed seeding) *owned {
	r.T.Helper()

	api, err := played.NewMemory(r.World())
	if err != nil {
		r.T.Fatal(err)
	}

	o := &owned{rig: r, api: api, seed: played.Seed{Namespace: "tenant-a", Name: "prod", ClusterID: "c-1"}}

	of, err := seed(context.Background(), o.api, r.World(), o.seed)
	if err != nil {
		r.T.Fatal(err)
	}

	o.of = of

	return o
}

func (o *owned) options(habits played.Habits) played.Options {
	return played.Options{World: o.World(), Objects: o.api, Namespace: o.seed.Namespace, Name: o.seed.Name, Habits: habits}
}

// beside connects an engine that knows of the operator, and publishes nothing.
func (o *owned) beside(run string) *worker {
	return o.WorkerBeside(cluster.RunPrefix+run, operator.New(o.of, o.api))
}

// publishing is [owned.beside] with a publisher to the operator's object.
func (o *owned) publishing(run string) *publishing {
	notes := publish.New(publish.NewObjectStore(o.api, o.of), publish.Options{Announce: true})

	return &publishing{worker: o.WorkerBeside(cluster.RunPrefix+run, operator.New(o.of, o.api), notes), notes: notes}
}

// publishing is a worker with its publisher.
type publishing struct {
	*worker

	notes *publish.Publisher
}

// apply runs the engine and the publisher to their ends.
func (p *publishing) apply(ctx context.Context, request engine.Request) error {
	_, err := p.Upgrade(ctx, request)

	// What could not be published is no matter of the upgrade.
	_ = p.notes.Close(context.WithoutCancel(ctx))

	return err
}

// must fails the test unless the upgrade succeeds.
func (o *owned) must(p *publishing, request engine.Request) {
	o.T.Helper()

	if err := p.apply(context.Background(), request); err != nil {
		o.T.Fatalf("%v\n%s", err, o.Judge.Text())
	}
}

// upgraded fails the test unless every node runs the target, nothing was broken or
// left behind, and the object says so.
func (o *owned) upgraded(target string) {
	o.T.Helper()
	o.Sound()
	o.AllRun(target)
	o.Tidy()
	o.wantFree()

	for key, want := range map[string]string{keyStatus: "completed", keyPrefix + "talos-current": target} {
		if got := o.annotation(key); got != want {
			o.T.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// delegate has a worker delegate, and asserts that it changed nothing itself but
// the lease.
func (o *owned) delegate(ctx context.Context, w *worker, request engine.Request) error {
	o.T.Helper()

	_, err := w.Delegate(ctx, request)

	return err
}

func (o *owned) annotation(key string) string { return o.api.Annotations(o.of)[key] }

func (o *owned) annotate(key, value string) {
	o.T.Helper()
	o.annotateAll(map[string]string{key: value})
}

// annotateAll sets several in one write, so that the operator sees all of them at
// once.
func (o *owned) annotateAll(values map[string]string) {
	o.T.Helper()

	if err := o.api.Annotate(context.Background(), o.of, values); err != nil {
		o.T.Fatal(err)
	}
}

// secret is a key of the Secret that the operator keeps.
func (o *owned) secret(key string) string {
	o.T.Helper()

	found, err := o.api.Secret(context.Background(), o.seed.Namespace, o.seed.ClusterID)
	if err != nil {
		o.T.Fatal(err)
	}

	return string(found.Data[key])
}

// wantFree fails the test when a hold or a target of ours was left.
func (o *owned) wantFree() {
	o.T.Helper()

	for _, key := range []string{keyHold, keyTarget, keyKubeTarget} {
		if value := o.annotation(key); value != "" {
			o.T.Errorf("%s is %q, want it gone", key, value)
		}
	}
}

// wantFailure fails the test unless the error is a failure for the reason that
// says all of the texts.
func (o *owned) wantFailure(err, reason error, texts ...string) {
	o.T.Helper()

	var failure *say.Failure
	if !errors.As(err, &failure) || !errors.Is(err, reason) {
		o.T.Fatalf("got %v, want a failure because of %v\n%s", err, reason, o.Judge.Text())
	}

	for _, text := range texts {
		if !strings.Contains(failure.Error(), text) {
			o.T.Errorf("it does not say %q: %v", text, failure)
		}
	}

	if failure.Remedy == "" && len(failure.Findings) == 0 || failure.State == "" {
		o.T.Errorf("no remedy or no state: %+v", failure)
	}
}

// warned reports whether a person was told something that contains the text.
func warned(w *worker, text string) bool {
	for _, said := range w.Texts(cluster.EventWarning) {
		if strings.Contains(said, text) {
			return true
		}
	}

	return false
}

// afterFirst does something once the first call of the method has returned.
func afterFirst(w *worker, method string, do func()) {
	var once sync.Once

	w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		err := next(ctx)
		if call.Method == method {
			once.Do(do)
		}

		return err
	})
}

// dead has nothing of a client reach the object any more once the process was
// killed; until then the injector decides.
func (o *owned) dead(killed *strike, injector played.Injector) {
	o.api.Inject(func(ctx context.Context, operation played.Operation, next func() error) error {
		select {
		case <-killed.Killed():
			if operation.By == "client" {
				return cluster.ErrUnreachable
			}
		default:
		}

		if injector == nil {
			return next()
		}

		return injector(ctx, operation, next)
	})
}

// operatorsChance is long enough for an operator to do what it would.
const operatorsChance = 10 * time.Minute

// pass lets time pass, in which an operator may do what it likes.
func pass(how time.Duration) { time.Sleep(how) }
