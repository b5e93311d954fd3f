// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// pulls counts the pulls on their way, and remembers who began one.
type pulls struct {
	mu        sync.Mutex
	now, most int
	began     []string
	// had are the nodes that have pulled: to look for that again is no pull.
	had map[string]bool
}

// watch counts, and has each pull take longer by the given time.
func (p *pulls) watch(slower time.Duration) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method != "Pull" && call.Method != "PullComponent" {
			return next(ctx)
		}

		p.mu.Lock()

		if p.had[call.Node] {
			p.mu.Unlock()

			return next(ctx)
		}

		p.now++
		p.most = max(p.most, p.now)
		p.began = append(p.began, call.Node)
		p.mu.Unlock()

		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()

			p.now--

			if p.had == nil {
				p.had = map[string]bool{}
			}

			p.had[call.Node] = ctx.Err() == nil
		}()

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(slower):
		}

		return next(ctx)
	}
}

// delayed has each call of a method take longer by the given time.
func delayed(method string, by time.Duration) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method != method {
			return next(ctx)
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(by):
		}

		return next(ctx)
	}
}

// left is how many pulls are on their way.
func (p *pulls) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.now
}

// pulledBefore are the nodes that ended a pull before the first cordon, by name.
func (r *rig) pulledBefore() (nodes []string, cordoned, ended float64) {
	for _, event := range r.Judge.Of(history.KindPull, history.KindCordon) {
		switch {
		case event.Kind == history.KindCordon && cordoned == 0:
			cordoned = event.Sim
		case event.Kind == history.KindPull && cordoned == 0:
			nodes = append(nodes, event.Node)
		}

		ended = event.Sim
	}

	slices.Sort(nodes)

	return slices.Compact(nodes), cordoned, ended
}

// TestPull_DoesNotHoldTheRollUp: of a hundred nodes few pull before the first cordon, and
// the others while nodes are on their way, even where the registry is slow.
func TestPull_DoesNotHoldTheRollUp(t *testing.T) {
	t.Parallel()

	for name, slower := range map[string]time.Duration{"a registry": 0, "a slow registry": 70 * time.Second} {
		t.Run(name, func(t *testing.T) {
			given := setup{
				Options: model.Options{ControlPlanes: 5, Workers: 95, Seed: 7},
				Judging: []checker.Option{checker.MaxUnavailable(9)},
			}

			inCluster(t, given, func(r *rig) {
				var seen pulls

				w := r.Worker("run-1")
				w.Client.Intercept(seen.watch(slower))

				begun := time.Now()
				r.Must(w, sharing(t, toLifecycle, "10%"))
				took := time.Since(begun)
				r.At(toLifecycle)
				r.Once()

				nodes, cordoned, _ := r.pulledBefore()
				if slower == 0 && len(nodes) > 9 {
					t.Errorf("%d nodes pulled before the first cordon: %v", len(nodes), nodes)
				}

				t.Logf("the first cordon came after %.0f s of %.0f s, %d pulls at a time", cordoned, took.Seconds(), seen.most)

				if slower == 0 && cordoned > took.Seconds()/20 {
					t.Errorf("the first cordon came after %.0f s of %.0f s", cordoned, took.Seconds())
				}

				if seen.most > 9 {
					t.Errorf("%d nodes pulled at a time, want 9 at most", seen.most)
				}
			})
		})
	}
}

// TestPull_WorkerThatCannotIsNotCordoned: those before it are upgraded, and the run fails
// when its turn has come.
func TestPull_WorkerThatCannotIsNotCordoned(t *testing.T) {
	t.Parallel()

	given := setup{
		Options: model.Options{
			ControlPlanes: 1, Workers: 12, Faults: []model.Fault{{Node: "worker-7", Step: model.StepPull, Effect: model.EffectNotFound}},
		},
		Judging: []checker.Option{checker.MaxUnavailable(2)},
	}

	inCluster(t, given, func(r *rig) {
		w := r.Worker("run-1")
		failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), cluster.ErrNotFound, "worker-7")

		r.Sound()
		r.untouched("worker-7")

		installed := r.installed()
		for index := range 7 {
			if name := fmt.Sprintf("worker-%d", index); !installed[name] && name != "worker-6" {
				t.Errorf("%s was not upgraded", name)
			}
		}

		if !strings.Contains(failed.Error(), "worker-7") {
			t.Errorf("%v", failed)
		}

		var ahead []string

		for _, text := range w.Texts(cluster.EventWarning) {
			if strings.Contains(text, "ahead of its turn") {
				ahead = append(ahead, text)
			}
		}

		if len(ahead) != 1 || !strings.Contains(ahead[0], "worker-7") {
			t.Errorf("said of pulls ahead: %q, want one warning about worker-7", ahead)
		}

		r.World().SetFaults(nil)
		r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
	})
}

// mirrored has a worker whose registries are configured in another way.
type mirrored struct {
	liar

	unlike string
}

func (m *mirrored) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	machine, err := m.liar.Machine(ctx, address, known, extent)
	if err != nil || machine.Config == nil {
		return machine, err
	}

	if address == m.addressOf(ctx, m.unlike) {
		config := *machine.Config
		config.Registries = "another mirror"
		machine.Config = &config
	}

	return machine, nil
}

// TestPull_SamplesBeforeTheFirstCordon: each way to get an image is tried once, and all
// that fails is said together.
func TestPull_SamplesBeforeTheFirstCordon(t *testing.T) {
	t.Parallel()

	samples := func(t *testing.T, request engine.Request, want ...string) {
		t.Helper()

		inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 9}}, func(r *rig) {
			client := r.Client("run-1")
			between := &mirrored{liar: liar{Client: client}, unlike: "worker-5"}

			r.World().SetFaults([]model.Fault{
				{Node: "cp-1", Step: model.StepPull, Effect: model.EffectNotFound},
				{Node: "worker-5", Step: model.StepPull, Effect: model.EffectNotFound},
			})

			failed := failure(t, r.WorkerOver(client, between, between).Apply(context.Background(), request), cluster.ErrNotFound, "worker-5")
			if found := failed.Detail(); len(failed.Findings) != 1 || !strings.Contains(found, "worker-5, cp-1: could not pull") || failed.State != "No node was disturbed." {
				t.Errorf("%v", failed)
			}

			nodes, _, _ := r.pulledBefore()
			if want = append(want, "cp-0", "cp-1", "cp-2"); !equalSets(nodes, want) {
				t.Errorf("%v pulled, want %v", nodes, want)
			}

			r.Sound()
		})
	}

	t.Run("registries that are configured in another way", func(t *testing.T) {
		samples(t, to(toLifecycle), "worker-0", "worker-5")
	})
	t.Run("a canary proves it for its kind", func(t *testing.T) {
		request := to(toLifecycle)
		request.Policy.Canary = []string{"worker-5", "worker-3"}
		samples(t, request, "worker-3", "worker-5")
	})
}

func equalSets(got, want []string) bool {
	slices.Sort(got)
	slices.Sort(want)

	return slices.Equal(got, want)
}

// TestPull_OneFindingNamesAllNodes that fail alike, and not what another node says.
func TestPull_OneFindingNamesAllNodes(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2}}, func(r *rig) {
		faults := []model.Fault{{Node: "worker-1", Step: model.StepPull, Effect: model.EffectFail}}
		for _, node := range []string{"cp-0", "cp-1", "cp-2", "worker-0"} {
			faults = append(faults, model.Fault{Node: node, Step: model.StepPull, Effect: model.EffectNotFound})
		}

		r.World().SetFaults(faults)

		failed := failure(t, r.Worker("run-1").Apply(context.Background(), to(toLifecycle)), cluster.ErrNotFound, "worker-0")

		want := []string{"worker-0, cp-0, cp-1, cp-2: could not pull ghcr.io/siderolabs/installer:v1.13.4: not found", "could not pull ghcr.io/siderolabs/installer:v1.13.4"}
		if len(failed.Findings) != len(want) || failed.Findings[1].Node != "worker-1" {
			t.Fatalf("%d findings, want one of the node that says something else and one of all others: %v", len(failed.Findings), failed)
		}

		for index, finding := range failed.Findings {
			if !strings.HasPrefix(finding.Found, want[index]) {
				t.Errorf("found is %q, want it to begin with %q", finding.Found, want[index])
			}
		}
	})
}

// TestPull_NothingWhenNothingMoreBegins: neither a cancel nor the end of the time
// leaves a pull behind, and neither waits for one.
func TestPull_NothingWhenNothingMoreBegins(t *testing.T) {
	t.Parallel()

	const slow = 20 * time.Minute

	// Before the first cordon the registry answers, and after it hardly.
	stalls := func(r *rig, w *worker, seen *pulls, then func()) {
		watched := seen.watch(0)
		slowly := seen.watch(slow)

		var once sync.Once

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Cordon" {
				once.Do(func() { then() })
			}

			if _, cordoned, _ := r.pulledBefore(); cordoned == 0 {
				return watched(ctx, call, next)
			}

			return slowly(ctx, call, next)
		})
	}

	t.Run("cancel", func(t *testing.T) {
		inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 8}}, func(r *rig) {
			var seen pulls

			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()

			w := r.Worker("run-1")

			var asked time.Time

			stalls(r, w, &seen, func() {
				go func() {
					time.Sleep(10 * time.Second)

					asked = time.Now()

					cancel()
				}()
			})

			if err := w.Apply(ctx, to(toLifecycle)); err == nil {
				t.Fatal("the run was not cancelled")
			}

			if took := time.Since(asked); took > 15*time.Second || seen.left() > 0 {
				t.Errorf("the run ended %s after the cancel, and left %d pulls", took, seen.left())
			}

			r.Sound()
		})
	})

	t.Run("the time is up", func(t *testing.T) {
		inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 8}}, func(r *rig) {
			var seen pulls

			request := to(toLifecycle)
			request.Deadline = 3 * time.Minute

			w := r.Worker("run-1")
			stalls(r, w, &seen, func() {})

			begun := time.Now()
			_ = failure(t, w.Apply(context.Background(), request), say.ErrDeadline, "")

			if took := time.Since(begun); took > slow/2 || seen.left() > 0 {
				t.Errorf("the run ended after %s, and left %d pulls", took, seen.left())
			}

			r.Sound()
		})
	})
}

// TestPull_ParallelPullsBoundsThem: the policy decides, before the first cordon and after it.
func TestPull_ParallelPullsBoundsThem(t *testing.T) {
	t.Parallel()

	for _, most := range []int{1, 3} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 6}}, func(r *rig) {
				var seen pulls

				request := to(toLifecycle)
				request.Policy.ParallelPulls = most

				w := r.Worker("run-1")
				w.Client.Intercept(seen.watch(0))
				r.Must(w, request)
				r.At(toLifecycle)

				if seen.most != most {
					t.Errorf("%d nodes pulled at a time, want %d", seen.most, most)
				}
			})
		})
	}
}

// TestPull_KubeletsPullWhileControlPlanesMove: the workers have their images, that of kube-proxy too, before the first
// kubelet of a worker is replaced, and none of them asks once more when its turn comes.
func TestPull_KubeletsPullWhileControlPlanesMove(t *testing.T) {
	t.Parallel()

	const workers = 24

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: workers, Kubernetes: fromKubernetes, Seed: 9}}, func(r *rig) {
		r.Must(r.Worker("run-1"), kube(toKubernetes))
		r.atKubernetes(toKubernetes, kube(toKubernetes))

		var (
			replaced bool
			images   = map[string]map[string]bool{}
		)

		for _, event := range r.Judge.Of(history.KindPull, history.KindConfig) {
			switch {
			case !strings.HasPrefix(event.Node, "worker"):
			case event.Kind == history.KindConfig:
				replaced = true
			case replaced:
				t.Errorf("%s pulled %s after the first kubelet of a worker was replaced", event.Node, event.Detail["image"])
			default:
				if images[event.Node] == nil {
					images[event.Node] = map[string]bool{}
				}

				images[event.Node][event.Detail["image"]] = true
			}
		}

		for node, pulled := range images {
			if len(pulled) != 2 {
				t.Errorf("%s pulled %v, want the images of its kubelet and of kube-proxy", node, pulled)
			}
		}

		if len(images) != workers {
			t.Errorf("%d workers pulled, want %d", len(images), workers)
		}
	})
}

// TestPull_OfKubeProxyByAsManyAsOfKubelets: what is left to pull when the last kubelet
// has restarted is pulled by as many nodes at a time as before.
func TestPull_OfKubeProxyByAsManyAsOfKubelets(t *testing.T) {
	t.Parallel()

	const (
		workers = 60
		slow    = time.Minute
	)

	given := setup{
		Options: model.Options{ControlPlanes: 1, Workers: workers, Talos: fromLifecycle, Kubernetes: fromKubernetes, Seed: 9},
		Judging: []checker.Option{checker.MaxUnavailableKubelets(workers / 2)},
	}

	inCluster(t, given, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(delayed("PullComponent", slow))

		request := kube(toKubernetes)
		request.Policy.Kubernetes.Manifests.Sync = true

		half, err := cluster.ParseShare("50%")
		if err != nil {
			t.Fatal(err)
		}

		request.Policy.Kubernetes.MaxUnavailableKubelets = half

		r.Must(w, request)

		var restarted, pulled float64

		for _, event := range r.Judge.Of(history.KindComponent, history.KindPull) {
			switch {
			case event.Kind == history.KindComponent && event.Detail["component"] == string(cluster.Kubelet) && event.Detail["state"] == "ready":
				restarted = event.Sim
			case event.Kind == history.KindPull && strings.Contains(event.Detail["image"], "kube-proxy"):
				pulled = event.Sim
			}
		}

		if took := time.Duration(pulled-restarted) * time.Second; pulled == 0 || took > 4*slow {
			t.Errorf("the last node had the image of kube-proxy %s after the last kubelet had restarted", took)
		}
	})
}

// repeating is a request that tries as often as that.
func repeating(attempts int, backoff time.Duration) engine.Request {
	request := to(toLifecycle)
	request.Policy.Repeat = cluster.Repeat{Attempts: attempts, Backoff: backoff}

	return request
}

// TestPull_RepeatedForFiveMinutesAndAsOftenAsThePolicySays: a node of Talos 1.14
// tries once when it is asked. It also looks at the pauses, which are in seconds.
func TestPull_RepeatedForFiveMinutesAndAsOftenAsThePolicySays(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		fails, attempts int
		backoff         time.Duration
		over            bool
		pauses          []float64
	}{
		{0, 1, 31 * time.Second, true, nil},
		{1, 1, 31 * time.Second, true, nil},
		{4, 1, 31 * time.Second, true, []float64{31, 62, 124}},
		{9, 1, 31 * time.Second, false, []float64{31, 62, 124, 80}},
		{9, 1, 0, true, slices.Repeat([]float64{10}, 8)},
		{5, 6, 31 * time.Second, true, []float64{31, 62, 124, 248}},
		{6, 6, 31 * time.Second, false, []float64{31, 62, 124, 248, 300}},
	} {
		t.Run(fmt.Sprintf("%d failures, %d attempts, %s", test.fails, test.attempts, test.backoff), func(t *testing.T) {
			given := setup{Options: model.Options{Talos: "1.14.0"}}

			if test.fails > 0 {
				given.Faults = []model.Fault{{Node: "worker-0", Step: model.StepPull, Effect: model.EffectFail, Times: test.fails}}
			}

			inCluster(t, given, func(r *rig) {
				request := to("1.14.1")
				request.Policy.Repeat = cluster.Repeat{Attempts: test.attempts, Backoff: test.backoff}

				err := r.Worker("run-1").Apply(context.Background(), request)

				if test.over {
					if err != nil {
						t.Fatalf("the run did not get over it: %v", err)
					}

					r.At("1.14.1")
				} else if failed := failure(t, err, nil, "worker-0"); failed.State != "No node was disturbed." {
					t.Errorf("the state is %q", failed.State)
				}

				var at []float64

				for _, pull := range r.Judge.Of(history.KindFault) {
					at = append(at, pull.Sim)
				}

				for i, want := range test.pauses {
					if i+1 >= len(at) || math.Abs(at[i+1]-at[i]-want) > 3 {
						t.Fatalf("tried at %.0f, want pauses of %.0f s", at, test.pauses)
					}
				}

				if !test.over && test.backoff > 0 && len(at) != len(test.pauses)+1 {
					t.Errorf("tried at %.0f, want pauses of %.0f s", at, test.pauses)
				}
			})
		})
	}
}

// TestPull_SecondDownloadOfALegacyNodeIsNotCounted: it begins its upgrade with one, into
// a store that nothing else fills. What the node does after that is counted.
func TestPull_SecondDownloadOfALegacyNodeIsNotCounted(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		step   model.Step
		effect model.Effect
		over   bool
	}{
		"download": {model.StepPull, model.EffectStall, true},
		"boot":     {model.StepBoot, model.EffectNeverReturns, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Talos: fromLegacy}}, func(r *rig) {
				w := r.Worker("run-1")

				var once atomic.Bool

				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "Upgrade" && !once.Swap(true) {
						r.World().SetFaults([]model.Fault{{Node: call.Node, Step: test.step, Effect: test.effect, Times: 1, For: 18 * time.Minute}})
					}

					return next(ctx)
				})

				request := to(toLegacy)
				request.Policy.NodeTimeout = 10 * time.Minute

				err := w.Apply(context.Background(), request)
				r.Sound()

				if test.over != (err == nil) {
					t.Fatalf("got %v, want it to be over: %t\n%s", err, test.over, r.Judge.Text())
				}

				if test.over {
					r.At(toLegacy)
				}

				if told := strings.Join(w.Texts(cluster.EventPulled), "\n"); !strings.Contains(told, "its upgrade downloads the image once more") {
					t.Errorf("told of the pull: %q", told)
				}
			})
		})
	}
}

// lossy is a connection on which calls of the installer get lost before they
// arrive, without anybody being able to tell, or where the installer was heard
// and wrote nothing all the same.
type lossy struct {
	cluster.Talos

	left  int
	heard bool
}

// Install implements [cluster.Talos].
func (l *lossy) Install(ctx context.Context, address, image string) (cluster.Installation, error) {
	if l.left == 0 {
		return l.Talos.Install(ctx, address, image)
	}

	l.left--

	var done cluster.Installation
	if l.heard {
		done.Output = []string{"running Talos installer"}
	}

	return done, fmt.Errorf("%w: %w: the stream broke", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
}
