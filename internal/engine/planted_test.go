// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// plantedMost is how long an engine with a planted bug may go on.
const plantedMost = 20 * time.Minute

// planted is a bug, and the invariants that it must break: no other ones.
type planted struct {
	name string
	want []checker.Invariant
	// alsoOthers: what goes wrong may break other invariants too.
	alsoOthers bool
	setup      setup
	// target is toLifecycle when empty; request replaces it.
	target  string
	request func(*rig) engine.Request
	// prepare changes the cluster before the run.
	prepare func(*rig)
	// plant puts the bug between the engine and the cluster.
	plant func(*rig, *liar)
	// meddle does more than the engine asks for.
	meddle meddling
	// lie makes the publisher claim something.
	lie func(map[string]string)
	// blind drops all guards, forgets some of them.
	blind   bool
	forgets []string
	// share is how many workers may be unavailable as far as the engine knows.
	share string
	// skips is a check that is only a warning.
	skips string
	// die has a first run with the same bug end at its first install.
	die bool
	// does replaces the upgrade.
	does func(context.Context, *worker, engine.Request) error
}

// silence claims nothing: what a liar makes an engine believe is another bug.
func silence(claims map[string]string) { clear(claims) }

func plantedBugs() []planted {
	return slices.Concat(
		plantedDisruptions(), plantedVersions(), plantedComponents(), plantedRestarts(), plantedWriters(), plantedClaims(), plantedPolicies(),
		plantedRollbacks(), plantedMemories(), neglected(), plantedOperators(), plantedStatuses(),
	)
}

// TestPlanted_BugIsCaught shows that the checker sees what it is there for: each
// sentence that it can say is said of some bug.
func TestPlanted_BugIsCaught(t *testing.T) {
	t.Parallel()

	if raceEnabled {
		t.Skip("whether a planted bug is caught has nothing to do with the race detector")
	}

	said := newSayings(t)
	bugs := plantedBugs()

	var ran atomic.Int32

	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			ran.Add(1)
			inCluster(t, bug.setup, func(r *rig) { said.heard(r.run(bug)) })
		})
	}

	if int(ran.Load()) == len(bugs) {
		said.complete(t)
	}
}

// run lets an engine with the bug upgrade the cluster, and tells what the checker
// said about it.
func (r *rig) run(bug planted) []checker.Violation {
	if bug.prepare != nil {
		bug.prepare(r)
	}

	request := to(cmp.Or(bug.target, toLifecycle))
	if bug.request != nil {
		request = bug.request(r)
	}

	if bug.share != "" {
		request.Policy.MaxUnavailable = sharing(r.T, toLifecycle, bug.share).Policy.MaxUnavailable
	}

	if bug.skips != "" {
		request.Policy.SkipChecks = map[string]bool{bug.skips: true}
	}

	ctx, cancel := context.WithTimeout(context.Background(), plantedMost)
	defer cancel()

	if bug.die {
		r.dieInstalling(ctx, r.lying("run-1", bug), request)
	}

	does := func(ctx context.Context, w *worker, request engine.Request) error { return w.Apply(ctx, request) }
	if bug.does != nil {
		does = bug.does
	}

	// What becomes of the run does not matter.
	err := does(ctx, r.lying("run-2", bug), request)

	verdict := r.Judge.Verdict()
	broken := verdict.Broken()

	if bug.alsoOthers {
		broken = slices.DeleteFunc(broken, func(i checker.Invariant) bool { return !slices.Contains(bug.want, i) })
	}

	if !slices.Equal(broken, bug.want) {
		r.T.Errorf("broke %v, want %v: %+v\nthe run ended with %v\n%s", broken, bug.want, verdict.Violations, err, r.Judge.Text())
	}

	return verdict.Violations
}

// dieInstalling has a run end behind its first install.
func (r *rig) dieInstalling(ctx context.Context, first *worker, request engine.Request) {
	dying, end := context.WithCancel(ctx)
	defer end()

	hit := newStrike(dieAfter, atWill, end)
	first.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == "Install" {
			call.Mutation = atWill
		}

		return hit.Intercept(ctx, call, next)
	})

	_ = first.Apply(dying, request)
}

// lying connects an engine with the bug between it and the cluster.
func (r *rig) lying(run string, bug planted) *worker {
	client := r.Client(run)
	between := &liar{Client: client}

	if bug.plant != nil {
		bug.plant(r, between)
	}

	made := r.WorkerOver(client, between, between)
	made.Notes.Lie = bug.lie

	for _, guard := range bug.forgets {
		made.DropGuard(guard)
	}

	if bug.blind {
		made.DropGuards()
	}

	if bug.meddle != nil {
		client.Intercept(bug.meddle(r, client))
	}

	return made
}

// loseForGood has a person reboot a machine that does not come back.
func (r *rig) loseForGood(node string) {
	r.T.Helper()

	r.World().SetFaults([]model.Fault{{Node: node, Step: model.StepBoot, Effect: model.EffectNeverReturns}})

	if _, err := r.World().Reboot(context.Background(), node, model.RebootDefault); err != nil {
		r.T.Fatal(err)
	}

	r.Until("dead", 5*time.Minute, func() bool { return r.State(node).Dead })
}

// plantedClaims are bugs about what is published: S8.
func plantedClaims() []planted {
	const lastServer = 3

	talos := func(name string, lie func(map[string]string)) planted {
		return planted{name: name, want: []checker.Invariant{checker.S8}, lie: lie}
	}

	kubernetes := func(name string, lie func(map[string]string)) planted {
		return planted{name: name, want: []checker.Invariant{checker.S8}, lie: lie, setup: oldKubernetes(), request: newKubernetes}
	}

	says := func(key, value string) func(map[string]string) {
		return func(claims map[string]string) { claims[key] = value }
	}

	return []planted{
		talos("completion is claimed too early", says("talos-status", "completed")),
		talos("progress is counted too high", func(claims map[string]string) {
			claims["talos-progress"] = strings.NewReplacer("0/", "1/", "1/", "2/", "2/", "3/", "3/", "4/").Replace(claims["talos-progress"])
		}),
		talos("progress is no progress", says("talos-progress", "nearly there")),
		talos("a rollback is told of that is none", says("talos-status", "rolling-back")),
		talos("a node fails that does not exist", says("failed-nodes", "worker-0,worker-9")),
		talos("the target is claimed to run", says("talos-current", toLifecycle)),
		kubernetes("completion of Kubernetes is claimed too early", says("kubernetes-status", "completed")),
		kubernetes("progress of Kubernetes is no progress", says("kubernetes-progress", "nearly there")),
		kubernetes("the target of Kubernetes is claimed to run", says("kubernetes-current", toKubernetes)),
		{
			name: "progress of Kubernetes is counted too high", want: []checker.Invariant{checker.S8}, setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", 2, func(ctx context.Context, h hand) { h.claims(ctx, "kubernetes-progress", "5/5") }),
		},
		{
			name: "completion is claimed while a component restarts", want: []checker.Invariant{checker.S8}, setup: oldKubernetes(), request: newKubernetes,
			meddle: behind("Configure", "cp-2", lastServer, func(ctx context.Context, h hand) { h.claims(ctx, "kubernetes-status", "completed") }),
		},
		{
			name: "completion is claimed before the manifests are synced", want: []checker.Invariant{checker.S8}, setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Apply", "cp-0", 1, func(ctx context.Context, h hand) { h.claims(ctx, "kubernetes-status", "completed") }),
		},
	}
}

// plantedDisruptions are bugs about who may be taken down when: S1, S2 and S3.
func plantedDisruptions() []planted {
	return []planted{
		{
			name: "a control plane that is down goes unnoticed", want: []checker.Invariant{checker.S1},
			setup:   setup{Options: model.Options{ControlPlanes: 5}},
			prepare: func(r *rig) { r.loseForGood("cp-4") },
			plant:   func(_ *rig, l *liar) { l.hide("cp-4", "cp-3") },
			lie:     silence,
		},
		{
			// With three members every second one that is down costs quorum too.
			name: "a lost member of etcd goes unnoticed", want: []checker.Invariant{checker.S1, checker.S2},
			setup:   setup{Options: model.Options{ControlPlanes: 3}},
			prepare: func(r *rig) { r.loseForGood("cp-2") },
			plant:   func(_ *rig, l *liar) { l.hide("cp-2", "cp-1") },
			lie:     silence,
		},
		{
			name: "two control planes reboot at a time", want: []checker.Invariant{checker.S1},
			setup: setup{Options: model.Options{ControlPlanes: 5}}, lie: silence,
			meddle: behind("Reboot", "cp-0", 1, func(ctx context.Context, h hand) { h.reboot(ctx, "cp-1") }),
		},
		{
			name: "both of two members reboot at a time", want: []checker.Invariant{checker.S1, checker.S2},
			setup: setup{Options: model.Options{ControlPlanes: 2}, Judging: skipping(cluster.CheckTwoMembers)}, lie: silence,
			request: func(*rig) engine.Request { return optedIn() },
			meddle:  behind("Reboot", "cp-0", 1, func(ctx context.Context, h hand) { h.reboot(ctx, "cp-1") }),
		},
		{
			// What is not known to be of an earlier boot passes for news.
			name: "a control plane is done before its pods are told of", want: []checker.Invariant{checker.S1},
			setup: setup{Options: model.Options{ControlPlanes: 5, Seed: 7}},
			plant: func(_ *rig, l *liar) { l.pods = func(pod *cluster.ComponentPod) { pod.Started = time.Time{} } },
		},
		{
			// Nothing tells that the API server is about to be made anew with the scheduler.
			name: "a scheduler is done before the API server is", want: []checker.Invariant{checker.S1},
			setup: oldKubernetes(), request: newKubernetes,
			plant: func(_ *rig, l *liar) { l.pods = func(pod *cluster.ComponentPod) { pod.FilesVersion = "" } },
		},
		{
			name: "observations are remembered", want: []checker.Invariant{checker.S3},
			plant: func(_ *rig, l *liar) { l.remember = 45 * time.Second },
		},
		{
			// A control plane falls silent behind the first install.
			name: "no guard is asked", want: []checker.Invariant{checker.S3}, blind: true,
			meddle: behind("Install", "worker-0", 1, func(_ context.Context, h hand) { h.rig.World().SetFaults(silent("cp-2")) }),
		},
	}
}

// optedIn is a request of somebody who accepts what two members cost.
func optedIn() engine.Request {
	request := to(toLifecycle)
	request.Policy.SkipChecks = map[string]bool{cluster.CheckTwoMembers: true}

	return request
}

// neglected are the guards that see what goes wrong in the middle of a turn, each
// of them forgotten.
func neglected() []planted {
	guards := neededGuards()
	bugs := make([]planted, 0, len(guards))

	for _, needed := range guards {
		bugs = append(bugs, planted{
			name: "nobody looks for " + needed.name, want: []checker.Invariant{needed.want}, alsoOthers: true,
			setup: needed.setup, forgets: needed.guards, lie: silence,
			request: func(*rig) engine.Request { return careless() },
			meddle: behind("Cordon", "cp-0", 1, func(_ context.Context, h hand) {
				needed.happens(h.rig)

				// It has been wrong for longer than one look may be old.
				time.Sleep(40 * time.Second)
			}),
		})
	}

	return bugs
}

// plantedRestarts are bugs about components of Kubernetes that restart: S1, S3, S4
// and S10.
func plantedRestarts() []planted {
	// The order is API servers, controller managers, schedulers, kube-proxy and
	// kubelets, those of the control planes first.
	const firstServer, firstKubelet = 1, 5

	away := model.Fault{Node: "cp-0", Step: model.StepAPIServer, Effect: model.EffectFlap, Times: 1, For: 4 * time.Minute}

	return []planted{
		{
			name: "two API servers restart at a time", want: []checker.Invariant{checker.S1}, setup: oldKubernetes(), request: newKubernetes,
			meddle: behind("Configure", "cp-0", firstServer, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.configure(ctx, "cp-1", cluster.APIServer, fromKubernetes, toKubernetes)
			}),
		},
		{
			name: "a kubelet restarts before the one of another control plane is done with its static pods", want: []checker.Invariant{checker.S1},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: behind("Configure", "cp-0", firstKubelet, func(ctx context.Context, h hand) {
				h.rig.Until("back", time.Minute, func() bool {
					first := h.rig.State("cp-0").Kubelet

					return first.Version == toKubernetes && first.Ready
				})
				h.look(ctx)
				h.configure(ctx, "cp-1", cluster.Kubelet, fromKubernetes, toKubernetes)
			}),
		},
		{
			name: "a control plane reboots while a component restarts", want: []checker.Invariant{checker.S1},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: behind("Configure", "cp-0", firstServer, func(ctx context.Context, h hand) { h.reboot(ctx, "cp-1") }),
		},
		{
			name: "a component restarts while a control plane reboots", want: []checker.Invariant{checker.S1},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", firstServer, func(ctx context.Context, h hand) {
				h.reboot(ctx, "cp-1")
				h.look(ctx)
			}),
		},
		{
			name: "an API server that went away goes unnoticed", want: []checker.Invariant{checker.S1}, alsoOthers: true,
			setup:   setup{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 5, Seed: 31, Faults: []model.Fault{away}}},
			forgets: []string{cluster.CheckControlPlane, "control-planes"},
			skips:   cluster.CheckControlPlane, request: newKubernetes,
		},
		{
			name: "a configuration changes unseen", want: []checker.Invariant{checker.S3}, setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", firstServer, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.configure(ctx, "worker-1", cluster.Kubelet, fromKubernetes, "1.34.3")
				h.rig.Until("configured", time.Minute, func() bool { return h.rig.State("worker-1").Kubelet.Version == "1.34.3" })
				h.configure(ctx, "worker-1", cluster.Kubelet, "1.34.3", "1.34.4")
				h.look(ctx)
			}),
		},
		{
			name: "kubelets of two control planes restart at a time", want: []checker.Invariant{checker.S1, checker.S10},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: behind("Configure", "cp-0", firstKubelet, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.configure(ctx, "cp-1", cluster.Kubelet, fromKubernetes, toKubernetes)
			}),
		},
		{
			name: "more kubelets restart at a time than may", want: []checker.Invariant{checker.S10}, setup: oldKubernetes(),
			request: func(r *rig) engine.Request {
				request := newKubernetes(r)
				request.Policy.Kubernetes.MaxUnavailableKubelets = sharing(r.T, toLifecycle, "100%").Policy.MaxUnavailable

				return request
			},
		},
		{
			name: "canaries are not known when kubelets move", want: []checker.Invariant{checker.S10}, request: newKubernetes,
			setup: setup{Options: model.Options{Kubernetes: fromKubernetes}, Judging: []checker.Option{checker.Canary("worker-1")}},
		},
	}
}

// oldKubernetes is a cluster whose Kubernetes has to move.
func oldKubernetes() setup { return setup{Options: model.Options{Kubernetes: fromKubernetes}} }

func newKubernetes(*rig) engine.Request { return kube(toKubernetes) }

// Rules about what has to happen in the end. No event breaks them: assertions of
// tests look after them.
const (
	converges   = "L1"
	staysQuiet  = "L2"
	ends        = "L3"
	cancels     = "L4"
	explains    = "L5"
	leaksNone   = "L6"
	rulesInTime = 6
)

// neglect is a bug that breaks such a rule, and how tests look after it.
type neglect struct {
	rule, name string
	setup      setup
	bug        planted
	// check is the assertion; workers are made by the rig that it gets.
	check func(*rig)
	// says is a part of what it says of the bug.
	says string
}

func neglects(t *testing.T) []neglect {
	t.Helper()

	moment := drainBegins(t) + time.Second
	inDrain := func(r *rig) { r.cancelAt(moment, to(toLifecycle)) }
	applied := func(r *rig) { r.Must(r.Worker("run-2"), to(toLifecycle)) }

	return []neglect{
		{
			rule: converges, name: "the journal is forgotten", says: "S4",
			bug: planted{plant: func(_ *rig, l *liar) { l.noJournal = true }},
			check: func(r *rig) {
				r.dieInstalling(context.Background(), r.Worker("run-1"), to(toLifecycle))
				applied(r)
				r.At(toLifecycle)
			},
		},
		{
			rule: converges, name: "a new boot goes unseen", says: "upgrade by run-2",
			bug:   planted{plant: func(_ *rig, l *liar) { l.machine = func(m *cluster.Machine) { m.BootID = "boot-of-" + m.Address } }, lie: silence},
			check: applied,
		},
		{
			rule: converges, name: "the lease is not given back", says: "the lease is still held",
			bug: planted{plant: func(_ *rig, l *liar) { l.noRelease = true }},
			check: func(r *rig) {
				applied(r)
				r.Tidy()
			},
		},
		{
			rule: staysQuiet, name: "something is always left to be done", says: "mutating calls",
			bug: planted{plant: func(_ *rig, l *liar) { l.noRelease = true }},
			check: func(r *rig) {
				applied(r)
				r.Settled(toLifecycle)
			},
		},
		{
			rule: staysQuiet, name: "a lease is seen where there is none", says: "mutating calls", setup: oldKubernetes(),
			bug: planted{plant: func(_ *rig, l *liar) { l.seesLease = true }},
			check: func(r *rig) {
				r.Must(r.Worker("run-2"), kube(toKubernetes))
				r.atKubernetes(toKubernetes, kube(toKubernetes))
			},
		},
		{
			rule: cancels, name: "the lease is kept after a cancel", says: "the lease is still held",
			bug:   planted{plant: func(_ *rig, l *liar) { l.noRelease = true }},
			check: inDrain,
		},
		{
			rule: cancels, name: "a cordon is kept after a cancel", says: "is still cordoned",
			bug:   planted{plant: func(_ *rig, l *liar) { l.uncordon = func(string, string) {} }},
			check: inDrain,
		},
		{
			rule: cancels, name: "a cancel is not listened to", says: "to return after the cancel",
			bug:   planted{meddle: deaf},
			check: inDrain,
		},
	}
}

// TestPlanted_RulesInTimeAreLookedAfter shows of each assertion that it fails where the
// rule is broken, and holds where it is not.
func TestPlanted_RulesInTimeAreLookedAfter(t *testing.T) {
	all := neglects(t)

	for _, given := range all {
		t.Run(given.rule+" "+given.name, func(t *testing.T) {
			inCluster(t, given.setup, func(r *rig) {
				if said := r.watched(planted{}, given.check); said != "" {
					t.Errorf("without the bug it says %s", said)
				}
			})

			inCluster(t, given.setup, func(r *rig) {
				if said := r.watched(given.bug, given.check); !strings.Contains(said, given.says) {
					t.Errorf("of the bug it says %q, want %q", said, given.says)
				}
			})
		})
	}

	t.Run(ends, waitsWithoutBound)
	t.Run(explains, failsWithoutWords)
	t.Run(leaksNone, leaksSomething)

	covered := []string{ends, explains, leaksNone}
	for _, given := range all {
		covered = append(covered, given.rule)
	}

	slices.Sort(covered)

	if covered = slices.Compact(covered); len(covered) != rulesInTime {
		t.Errorf("bugs are planted for %v only", covered)
	}
}

// deaf has the search for pods of the first worker take two minutes, come what may.
func deaf(*rig, *ports.Client) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == "PodsToEvict" && call.Node == "worker-0" {
			time.Sleep(2 * time.Minute)
		}

		return next(ctx)
	}
}

// drainBegins is when a run has cordoned its first node and installed nothing yet.
func drainBegins(t *testing.T) (moment time.Duration) {
	t.Helper()

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "PodsToEvict", "worker-0", func() { moment = r.World().Now() })
		r.Must(w, to(toLifecycle))
	})

	return moment
}

// waitsWithoutBound is about L3.
func waitsWithoutBound(t *testing.T) {
	const bound = 2 * time.Hour

	never := setup{Options: model.Options{Faults: []model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}}}}

	for name, given := range map[string]struct {
		clock engine.Clock
		says  string
	}{
		"in time":  {clock: engine.RealClock()},
		"timeless": {clock: timeless{engine.RealClock()}, says: "not ended within 2h0m0s"},
	} {
		inCluster(t, never, func(r *rig) {
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})

			go func() {
				defer close(ended)

				_ = r.clocked(given.clock).Apply(ctx, to(toLifecycle))
			}()

			said := r.watched(planted{}, func(r *rig) {
				r.Until("ended", bound, func() bool {
					select {
					case <-ended:
						return true
					default:
						return false
					}
				})
			})

			cancel()
			<-ended

			if given.says == "" && said != "" || !strings.Contains(said, given.says) {
				t.Errorf("%s: said %q, want %q", name, said, given.says)
			}
		})
	}
}

// timeless is a clock on which no time runs out.
type timeless struct{ engine.Clock }

// Sleep is for polls; what sleeps for longer waits for a time to run out.
func (c timeless) Sleep(ctx context.Context, d time.Duration) error {
	if d < cluster.DefaultDrainTimeout {
		return c.Clock.Sleep(ctx, d)
	}

	<-ctx.Done()

	return context.Cause(ctx)
}

func (timeless) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// clocked connects an engine with a clock of its own.
func (r *rig) clocked(clock engine.Clock) *worker {
	client := r.Client("run-1")
	made := r.WorkerOver(client, client, client)
	made.Engine = engine.New(engine.Options{
		Talos: client, Kubernetes: client, Removals: client, Manifests: client, Workloads: client, Run: client.Name(),
		Clock: clock, Observers: []cluster.Observer{made, made.Notes},
	})

	return made
}

// failsWithoutWords is about L5: each part of a failure that a person needs is
// missed.
func failsWithoutWords(t *testing.T) {
	broken := setup{Options: model.Options{Faults: []model.Fault{{Node: "worker-1", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}}}}

	inCluster(t, broken, func(r *rig) {
		var whole *say.Failure
		if err := r.Worker("run-1").Apply(context.Background(), to(toLifecycle)); !errors.As(err, &whole) {
			t.Fatalf("got %v, want a failure", err)
		}

		for missing, strip := range map[string]func(*say.Failure){
			"":        func(*say.Failure) {},
			"summary": func(f *say.Failure) { f.Summary = "" },
			"node":    func(f *say.Failure) { f.Node = "" },
			"seen":    func(f *say.Failure) { f.Seen = "" },
			"state":   func(f *say.Failure) { f.State = "" },
			"remedy":  func(f *say.Failure) { f.Remedy = "" },
			"cause":   func(f *say.Failure) { f.Err = nil },
		} {
			stripped := *whole
			strip(&stripped)

			said := r.watched(planted{}, func(r *rig) { _ = failure(r.T, &stripped, say.ErrInstaller, "worker-1") })
			if (said == "") != (missing == "") {
				t.Errorf("of a failure without %q it says %q", missing, said)
			}
		}
	})
}

// besideObject is an object that an operator acts on, as the history names it, and
// plantedRun the run with the bug.
const (
	besideObject = "KubernetesCluster/tenant-a/prod"
	plantedRun   = "run-2"
)

// annotates has somebody write an annotation of the object.
func (h hand) annotates(by, key, value string) {
	h.rig.World().Record("", history.KindAnnotation, map[string]string{"object": besideObject, "key": key, "value": value, "by": by})
}

// shows has a run change the status of the object.
func (h hand) shows(detail map[string]string) {
	detail["object"], detail["by"] = besideObject, "client"
	h.rig.World().Record("", history.KindStatus, detail)
}

// plantedOperators are bugs beside an operator: S7, and S9 for what is its own.
func plantedOperators() []planted {
	const hold = "do-not-reconcile"

	beside := setup{Judging: []checker.Option{checker.Operated(besideObject)}}
	first := func(do func(h hand)) meddling {
		return ahead("Cordon", "worker-0", 1, func(_ context.Context, h hand) { do(h) })
	}

	return []planted{
		{
			name: "an operator is started as well", want: []checker.Invariant{checker.S7},
			lie: func(claims map[string]string) { claims["talos-target"] = toLifecycle },
		},
		{name: "the operator is not held", want: []checker.Invariant{checker.S7}, setup: beside},
		{
			name: "the operator is held by the name of another run", want: []checker.Invariant{checker.S7},
			meddle: first(func(h hand) { h.annotates("client", hold, "run-1") }),
		},
		{
			name: "the operator is never let go", want: []checker.Invariant{checker.S7}, setup: beside,
			meddle: first(func(h hand) { h.annotates("client", hold, plantedRun) }),
		},
		{
			name: "the operator is let go with what it remembers", want: []checker.Invariant{checker.S7}, setup: beside,
			meddle: meddlings(
				first(func(h hand) {
					h.annotates("other", "talos-current", "1.12.0")
					h.annotates("client", hold, plantedRun)
				}),
				behind("Uncordon", "cp-2", 1, func(_ context.Context, h hand) { h.annotates("client", hold, "") }),
			),
		},
		{
			name: "somebody else's hold is taken over", want: []checker.Invariant{checker.S9},
			meddle: first(func(h hand) {
				h.annotates("other", hold, "maintenance")
				h.annotates("client", hold, plantedRun)
			}),
		},
		{
			name: "an operator was to do it", want: []checker.Invariant{checker.S7},
			setup: setup{Judging: []checker.Option{checker.Delegated()}},
		},
		{
			name: "a condition of somebody else is changed", want: []checker.Invariant{checker.S9},
			meddle: first(func(h hand) { h.shows(map[string]string{"condition": "Valid", "status": "False", "reason": "Unknown"}) }),
		},
	}
}

// plantedStatuses are bugs about what is offered, and about phases and conditions:
// S8.
func plantedStatuses() []planted {
	talos := func(name string, bug planted) planted {
		bug.name, bug.want = name, []checker.Invariant{checker.S8}

		return bug
	}

	says := func(name, key, value string) planted {
		return talos(name, planted{lie: func(claims map[string]string) { claims[key] = value }})
	}

	shown := func(name string, detail map[string]string) planted {
		return talos(name, planted{meddle: behind("Install", "worker-0", 1, func(_ context.Context, h hand) { h.shows(detail) })})
	}

	return []planted{
		says("what runs already is offered", "talos-available", "1.8.0"),
		says("what Talos does not support is offered", "kubernetes-available", "1.60.0"),
		says("a version is spelled with v", "talos-current", "v1.8.0"),
		says("a status is none", "talos-status", "busy"),
		talos("nothing is said to go on", planted{meddle: behind("Reboot", "worker-0", 1, func(ctx context.Context, h hand) {
			h.claims(ctx, "talos-status", "idle")
		})}),
		shown("the cluster is said to be ready", map[string]string{"field": "phase", "value": "Ready"}),
		shown("a condition contradicts itself", map[string]string{"condition": "TalosUpgrade", "status": "False", "reason": "InProgress"}),
		talos("an upgrade is said to go on for ever", planted{prepare: outlived}),
	}
}

// outlived has a run say minutes after its end that it goes on.
func outlived(r *rig) {
	for _, holder := range []string{"run-1", ""} {
		r.World().Record("", history.KindLease, map[string]string{"holder": holder, "by": "client"})
	}

	time.Sleep(10 * time.Minute)
	r.World().Record("", history.KindStatus, map[string]string{
		"object": besideObject, "field": "phase", "value": "UpgradingTalos", "by": "client",
	})
}

// meddlings does both.
func meddlings(outer, inner meddling) meddling {
	return func(r *rig, client *ports.Client) ports.Interceptor {
		around, within := outer(r, client), inner(r, client)

		return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			return around(ctx, call, func(ctx context.Context) error { return within(ctx, call, next) })
		}
	}
}

// plantedWriters are bugs about who may write when: S7 and S12.
func plantedWriters() []planted {
	return []planted{
		{
			name: "the lease of somebody else is ignored", want: []checker.Invariant{checker.S7},
			prepare: func(r *rig) {
				if err := r.HoldLease("somebody"); err != nil {
					r.T.Fatal(err)
				}
			},
			plant: func(_ *rig, l *liar) { l.noLease.Store(true) },
			setup: setup{Judging: []checker.Option{checker.LeaseDuration(plantedMost)}},
		},
		{
			name: "the loss of the lease goes unnoticed", want: []checker.Invariant{checker.S7},
			setup: setup{Judging: []checker.Option{checker.LeaseDuration(plantedMost)}},
			plant: func(r *rig, l *liar) {
				l.Client.Intercept(behind("Cordon", "worker-0", 1, func(_ context.Context, h hand) {
					l.noLease.Store(true)
					h.must(r.HoldLease("somebody"))
				})(r, l.Client))
			},
		},
		{
			name: "the name of another run in the journal goes unnoticed", want: []checker.Invariant{checker.S7},
			setup: setup{Judging: []checker.Option{checker.LeaseDuration(plantedMost)}},
			plant: func(r *rig, l *liar) {
				l.ownName = true
				l.Client.Intercept(behind("Cordon", "worker-0", 1, func(_ context.Context, h hand) {
					l.noLease.Store(true)
					h.must(r.HoldLease("somebody"))
					r.EditJournalAsPerson(func(j cluster.Journal) cluster.Journal {
						j.Holder = "somebody"

						return j
					})
				})(r, l.Client))
			},
		},
		{
			name: "the lease is never renewed", want: []checker.Invariant{checker.S7},
			plant: func(_ *rig, l *liar) { l.noRenewal = true },
		},
		{
			name: "no lease is taken", want: []checker.Invariant{checker.S12},
			plant: func(_ *rig, l *liar) { l.noLease.Store(true) },
		},
		{
			name: "an upgrade is announced before the lease is taken", want: []checker.Invariant{checker.S12},
			meddle: behind("Nodes", "", 1, func(ctx context.Context, h hand) { h.claims(ctx, "talos-status", "in-progress") }),
		},
		{
			name: "a plan writes", want: []checker.Invariant{checker.S12}, does: observed,
			meddle: behind("Nodes", "", 1, func(ctx context.Context, h hand) { h.claims(ctx, "talos-status", "pending") }),
		},
		{
			name: "a plan cordons to try whether it may", want: []checker.Invariant{checker.S12}, does: observed,
			meddle: behind("Nodes", "", 1, func(ctx context.Context, h hand) {
				_, err := h.Cordon(ctx, "worker-0", "a-plan")
				h.must(err)
			}),
		},
		{
			name: "a preflight evicts where it only wants to know", want: []checker.Invariant{checker.S12}, does: observed,
			prepare: func(r *rig) { r.AddPod("web", "worker-0", nil) },
			meddle: behind("Nodes", "", 1, func(ctx context.Context, h hand) {
				pods, err := h.PodsToEvict(ctx, "worker-0")
				h.must(err)

				for _, pod := range pods {
					h.must(h.Evict(ctx, pod))
				}
			}),
		},
	}
}

// observed is all that a plan does to a cluster.
func observed(ctx context.Context, w *worker, _ engine.Request) error {
	_, err := w.Engine.Observe(ctx)

	return err
}

// plantedPolicies are bugs about what a user asked for: S9, S10, S11, S13 and S14.
func plantedPolicies() []planted {
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

	return []planted{
		{
			name: "nobody waits for volumes", want: []checker.Invariant{checker.S11},
			prepare: func(r *rig) {
				r.KeepAttached(time.Hour)
				r.StartPod(apiserver.PodSpec{App: "db", Node: "worker-0", Volume: "pv-db"})
			},
			request: func(*rig) engine.Request {
				request := to(toLifecycle)
				request.Policy.Drain.Volumes = cluster.IgnoreVolumes

				return request
			},
		},
		{
			name: "every cordon is lifted", want: []checker.Invariant{checker.S9},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 1}},
			prepare: func(r *rig) {
				if err := r.CordonAsPerson("worker-0", true); err != nil {
					r.T.Fatal(err)
				}
			},
			plant: func(r *rig, l *liar) { l.uncordon = r.UncordonAnyway },
		},
		{
			name: "cordoned workers are not counted", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 3}},
			prepare: func(r *rig) {
				if err := r.CordonAsPerson("worker-2", true); err != nil {
					r.T.Fatal(err)
				}
			},
			plant: func(_ *rig, l *liar) { l.schedulable = "worker-2" },
		},
		{
			name: "more workers move at a time than may", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, Judging: twoAtATime()},
			share: "3",
		},
		{
			name: "a worker that fell ill meanwhile is not counted", want: []checker.Invariant{checker.S10}, forgets: []string{cluster.CheckNodesReady},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, Judging: twoAtATime()},
			share: "2", meddle: func(r *rig, _ *ports.Client) ports.Interceptor { return r.fallsIll("worker-3") },
		},
		{
			name: "that a node could not pull its image is not heard", want: []checker.Invariant{checker.S10}, alsoOthers: true,
			setup: setup{
				Options: model.Options{
					ControlPlanes: 3, Workers: 2, Faults: []model.Fault{{Node: "worker-1", Step: model.StepPull, Effect: model.EffectNotFound}},
				},
			},
			meddle: func(*rig, *ports.Client) ports.Interceptor {
				return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if err := next(ctx); call.Method != "Pull" || ctx.Err() != nil {
						return err
					}

					return nil
				}
			},
		},
		{
			name: "canaries are not known", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 2}, Judging: []checker.Option{checker.Canary("worker-1")}},
		},
		{
			name: "a canary is not waited for", want: []checker.Invariant{checker.S10},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 2}, Judging: []checker.Option{checker.Canary("worker-1")}},
			request: func(*rig) engine.Request {
				request := to(toLifecycle)
				request.Policy.Canary = []string{"worker-1"}

				return request
			},
			meddle: ahead("Uncordon", "worker-1", 1, func(ctx context.Context, h hand) {
				_, err := h.Cordon(ctx, "worker-0", h.Name())
				h.must(err)
			}),
		},
		{
			name: "nobody looks at a canary whose turn is over", want: []checker.Invariant{checker.S10},
			forgets: []string{cluster.CheckCanary, cluster.CheckNodesReady},
			setup: setup{
				Options: model.Options{ControlPlanes: 3, Workers: 4},
				Judging: []checker.Option{checker.Canary("worker-0"), checker.MaxUnavailable(2)},
			},
			request: func(r *rig) engine.Request {
				request := sharing(r.T, toLifecycle, "2")
				request.Policy.Canary = []string{"worker-0"}

				return request
			},
			meddle: behind("Cordon", "worker-1", 1, func(_ context.Context, h hand) { leaveFor(h, "worker-0") }),
		},
		{
			name: "what others use up after the cordon is not counted", want: []checker.Invariant{checker.S10}, forgets: []string{cluster.CheckNodesReady},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, Judging: twoAtATime()}, share: "2",
			meddle: behind("Cordon", "worker-0", 1, func(_ context.Context, h hand) {
				leaveFor(h, "worker-2")
				leaveFor(h, "worker-3")
			}),
		},
		{
			name: "labels that hold are not known", want: []checker.Invariant{checker.S4}, setup: labelled(3),
			prepare: func(r *rig) { r.give(restrained, "worker-1") }, share: "2",
		},
		{
			name: "a label that comes while a node is about to be cordoned is not looked at", want: []checker.Invariant{checker.S4},
			setup: labelled(3), forgets: []string{cluster.CheckSelectors},
			request: func(*rig) engine.Request { return restraining(to(toLifecycle)) },
			meddle: func(r *rig, _ *ports.Client) ports.Interceptor {
				return r.meeting(event{method: "Vitals", node: "worker-1", installed: "worker-0", do: func() {
					r.give(restrained, "worker-1")
					time.Sleep(5 * time.Second)
				}})
			},
		},
		{
			name: "a held node is started when its label goes away", want: []checker.Invariant{checker.S4}, setup: labelled(3, checker.MaxUnavailable(3)),
			prepare: func(r *rig) { r.give(restrained, "worker-1") },
			request: func(r *rig) engine.Request { return restraining(sharing(r.T, toLifecycle, "2")) },
			meddle: behind("Cordon", "worker-0", 1, func(ctx context.Context, h hand) {
				time.Sleep(5 * time.Second)
				h.rig.take(restrained, "worker-1")

				_, err := h.Cordon(ctx, "worker-1", h.Name())
				h.must(err)
			}),
		},
		{
			name: "labels of canaries are not known", want: []checker.Invariant{checker.S10}, setup: labelled(3),
			prepare: func(r *rig) { r.give(leading, "worker-2") },
		},
		{
			name: "pools are not known", want: []checker.Invariant{checker.S10}, setup: labelled(4, inPool(1)), share: "2",
			prepare: func(r *rig) { r.give(storage, "worker-0", "worker-1") },
		},
		{
			name: "a worker of the pool that fell ill meanwhile is not counted", want: []checker.Invariant{checker.S10}, forgets: []string{cluster.CheckNodesReady},
			setup:   labelled(4, inPool(1)),
			prepare: func(r *rig) { r.give(storage, "worker-1", "worker-3") },
			request: func(r *rig) engine.Request { return pooled(r.T, sharing(r.T, toLifecycle, "2"), "1", "1") },
			meddle:  func(r *rig, _ *ports.Client) ports.Interceptor { return r.fallsIll("worker-3") },
		},
		{
			name: "pools do not bound kubelets", want: []checker.Invariant{checker.S10},
			setup: setup{
				Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 4},
				Judging: []checker.Option{checker.MaxUnavailableKubelets(2), inPool(1)},
			},
			prepare: func(r *rig) { r.give(storage, "worker-0", "worker-1") },
			request: func(r *rig) engine.Request {
				parsed, err := cluster.ParseShare("2")
				if err != nil {
					r.T.Fatal(err)
				}

				request := kube(toKubernetes)
				request.Policy.Kubernetes.MaxUnavailableKubelets = parsed

				return request
			},
		},
		{
			name: "the time to settle is not known", want: []checker.Invariant{checker.S10},
			setup: setup{Judging: []checker.Option{checker.Settle(5 * time.Minute)}},
		},
		{
			name: "pods are deleted instead of evicted", want: []checker.Invariant{checker.S11}, skips: cluster.CheckDrain,
			prepare: func(r *rig) { r.AddPod("precious", "worker-0", &apiserver.Budget{MinAvailable: 1}) },
			plant:   func(_ *rig, l *liar) { l.deletes = true },
		},
		{
			name: "pods are deleted before the timeout", want: []checker.Invariant{checker.S11}, skips: cluster.CheckDrain,
			setup:   setup{Judging: []checker.Option{checker.DrainDelete(cluster.DefaultDrainTimeout)}},
			prepare: func(r *rig) { r.AddPod("precious", "worker-0", &apiserver.Budget{MinAvailable: 1}) },
			plant:   func(_ *rig, l *liar) { l.deletes = true },
		},
		{
			name: "nobody looks after the cordon of a drain", want: []checker.Invariant{checker.S11}, skips: cluster.CheckDrain,
			prepare: func(r *rig) { r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3}) },
			plant:   func(_ *rig, l *liar) { l.unschedulable = "worker-0" },
			meddle: behind("Cordon", "worker-0", 1, func(_ context.Context, h hand) {
				time.AfterFunc(2*time.Second, func() { h.must(h.rig.CordonAsPerson("worker-0", false)) })
			}),
		},
		{
			name: "the window is not looked at", want: []checker.Invariant{checker.S13},
			setup: setup{Judging: []checker.Option{checker.Window(begin, checker.Opening{From: begin, To: begin.Add(4 * time.Minute)})}},
		},
		{
			name: "no snapshot is taken", want: []checker.Invariant{checker.S14},
			setup: setup{Judging: []checker.Option{checker.SnapshotFirst()}},
		},
		{
			name: "half a snapshot is enough", want: []checker.Invariant{checker.S14},
			setup: setup{Judging: []checker.Option{checker.SnapshotFirst()}},
			prepare: func(r *rig) {
				r.World().SetFaults([]model.Fault{{Node: model.AnyNode, Step: model.StepEtcdSnapshot, Effect: model.EffectCut}})
			},
			request: func(*rig) engine.Request { return saving(forgiving{}) },
		},
	}
}

// leaveFor has a person cordon a node, and waits until that is old enough to be
// known.
func leaveFor(h hand, node string) {
	h.must(h.rig.CordonAsPerson(node, true))
	time.Sleep(10 * time.Second)
}

// forgiving takes whatever it gets for a snapshot.
type forgiving struct{}

func (forgiving) Check(context.Context) (string, error) { return "", nil }

func (forgiving) Save(
	ctx context.Context, name string, taken time.Time, stream func(context.Context, io.Writer) error,
) (cluster.EtcdSnapshot, error) {
	_ = stream(ctx, io.Discard)

	return cluster.EtcdSnapshot{Path: name, Size: 1, SHA256: "?", Taken: taken}, nil
}

// plantedVersions are bugs about what is installed where: S4, S5 and S6. Whose looks return a
// version that is not true breaks S15 as well.
func plantedVersions() []planted {
	return []planted{
		{
			name: "the journal is not kept", want: []checker.Invariant{checker.S4}, die: true,
			plant: func(_ *rig, l *liar) { l.noJournal = true },
		},
		{
			name: "the journal goes by the UUID of the hardware, which two machines share", want: []checker.Invariant{checker.S4},
			die: true, blind: true, alsoOthers: true, lie: silence,
			prepare: func(r *rig) {
				if err := r.World().SetUUID("worker-1", r.State("worker-0").UUID); err != nil {
					r.T.Fatal(err)
				}
			},
			plant: func(r *rig, l *liar) {
				// The one that is armed is silent for as long as the journal tells of it.
				armed := r.State("worker-0")
				l.mute = func(address string) bool {
					_, told := r.Journal().Entries[armed.UUID]

					return address == armed.Address && told && r.State("worker-0").Installs > 0
				}
				l.uuids = map[string]string{}
				for _, state := range r.World().Nodes() {
					l.uuids[state.MachineID] = state.UUID
				}
			},
		},
		{
			name: "a node at the target is taken for one behind it", want: []checker.Invariant{checker.S15, checker.S4},
			setup: setup{Options: model.Options{Talos: toLifecycle}},
			plant: func(_ *rig, l *liar) {
				l.machine = func(m *cluster.Machine) { m.Talos = version.MustParse(fromLifecycle) }
			},
		},
		{
			// The next worker may be cordoned by a look from before it.
			name: "a node at the target is rebooted", want: []checker.Invariant{checker.S4}, alsoOthers: true,
			meddle: behind("Uncordon", "worker-0", 1, func(ctx context.Context, h hand) { h.reboot(ctx, "worker-0") }),
		},
		{
			name: "an install that never began is taken for one that may have run", want: []checker.Invariant{checker.S4},
			setup: setup{Options: model.Options{Faults: []model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectNotStarted, Times: 1}}}},
			plant: func(_ *rig, l *liar) { l.install = forgetful },
		},
		{
			name: "an installer that wrote nothing is taken for one that may have", want: []checker.Invariant{checker.S4}, target: "1.14.1",
			setup: setup{Options: model.Options{
				Talos: "1.14.0", Faults: []model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectRefuse, Times: 1}},
			}},
			plant: func(_ *rig, l *liar) { l.install = forgetful },
		},
		{
			name: "holds are not known", want: []checker.Invariant{checker.S4},
			setup: setup{Options: model.Options{ControlPlanes: 3, Workers: 2}, Judging: []checker.Option{checker.Held("worker-1")}},
			lie:   silence,
		},
		{
			name: "holds are not known of in the other half", want: []checker.Invariant{checker.S4}, request: newKubernetes,
			setup: setup{Options: model.Options{Kubernetes: fromKubernetes}, Judging: []checker.Option{checker.Held("worker-1")}}, lie: silence,
		},
		{
			name: "a minor is skipped", want: []checker.Invariant{checker.S15, checker.S5}, target: toLegacy,
			setup: setup{Options: model.Options{Talos: "1.11.5"}},
			plant: func(_ *rig, l *liar) {
				l.machine = func(m *cluster.Machine) {
					if m.Talos.Minor().Minor == 11 {
						m.Talos = version.MustParse(fromLegacy)
					}
				}
			},
			lie: silence,
		},
		{
			name: "an older release is installed over a newer one", want: []checker.Invariant{checker.S15, checker.S5}, target: "1.13.3",
			setup: setup{Options: model.Options{Talos: toLifecycle}}, lie: silence,
			plant: func(_ *rig, l *liar) {
				l.machine = func(m *cluster.Machine) { m.Talos = version.MustParse(fromLifecycle) }
			},
		},
		{
			name: "kubelets move along with Talos", want: []checker.Invariant{checker.S5}, target: toLegacy,
			setup: setup{Options: model.Options{Talos: fromLegacy, Unpinned: true}},
			plant: func(_ *rig, l *liar) {
				l.machine = func(m *cluster.Machine) {
					if m.Partial {
						return
					}

					m.Config.Images = map[cluster.Component]string{}
					for _, component := range cluster.Components(m.Role) {
						m.Config.Images[component] = "registry.k8s.io/" + string(component) + ":v" + kubernetes
					}
				}
			},
		},
		{
			name: "a node that boots a UKI is taken for one that does not", want: []checker.Invariant{checker.S5},
			setup: setup{Options: model.Options{Platform: "aws", UKI: true}}, lie: silence,
			plant: func(_ *rig, l *liar) { l.machine = func(m *cluster.Machine) { m.BootedWithUKI = false } },
		},
		{
			name: "extensions are not known", want: []checker.Invariant{checker.S5}, alsoOthers: true,
			setup: setup{Options: model.Options{Extensions: []string{"iscsi-tools"}}}, lie: silence,
			plant: func(_ *rig, l *liar) { l.machine = func(m *cluster.Machine) { m.Extensions = nil } },
		},
		{
			name: "the support matrix is not asked", want: []checker.Invariant{checker.S6}, target: "1.14.1",
			setup: setup{Options: model.Options{Kubernetes: "1.31.4"}},
			plant: func(_ *rig, l *liar) { l.kubernetes = kubernetes },
		},
	}
}

// plantedComponents are bugs about what components run: S4 and S5.
func plantedComponents() []planted {
	// moves has a kubelet run a version before the run changes anything.
	moves := func(to string) meddling {
		return ahead("Configure", "cp-0", 1, func(ctx context.Context, h hand) {
			h.look(ctx)
			h.configure(ctx, "worker-1", cluster.Kubelet, fromKubernetes, to)
			h.rig.Until("moved", 5*time.Minute, func() bool { return h.rig.State("worker-1").Kubelet.Version == to })
			h.look(ctx)
		})
	}

	return []planted{
		{
			name: "a component goes back", want: []checker.Invariant{checker.S5}, setup: oldKubernetes(), request: newKubernetes, meddle: moves("1.34.1"),
		},
		{
			name: "a component skips a minor", want: []checker.Invariant{checker.S5}, setup: oldKubernetes(), request: newKubernetes, meddle: moves("1.36.1"),
		},
		{
			name: "a configuration is applied that changes nothing", want: []checker.Invariant{checker.S4},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", 1, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.must(h.reapply(ctx, "worker-1"))
				h.look(ctx)
			}),
		},
		{
			name: "a component restarts for what it runs already", want: []checker.Invariant{checker.S4},
			setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", 1, func(ctx context.Context, h hand) {
				const runs, passes = "1.34.3", "1.34.4"

				h.look(ctx)
				h.configure(ctx, "worker-1", cluster.Kubelet, fromKubernetes, runs)
				h.rig.Until("moved", 5*time.Minute, func() bool { return h.rig.State("worker-1").Kubelet.Version == runs })
				h.look(ctx)
				h.configure(ctx, "worker-1", cluster.Kubelet, runs, passes)
				h.look(ctx)
				h.configure(ctx, "worker-1", cluster.Kubelet, passes, runs)
				h.look(ctx)
			}),
		},
	}
}

// plantedRollbacks are bugs about the way back: S4 and S5.
func plantedRollbacks() []planted {
	ill := setup{Options: model.Options{Faults: []model.Fault{neverReady("worker-0")}}}

	return []planted{
		{
			// It is no journalled one, so it is a reboot at the target too.
			name: "a node is rolled back that nobody gave up", want: []checker.Invariant{checker.S5}, alsoOthers: true, lie: silence,
			meddle: behind("Uncordon", "worker-0", 1, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.must(h.Rollback(ctx, "worker-0"))
			}),
		},
		{
			name: "a rollback is asked for twice", want: []checker.Invariant{checker.S4}, setup: ill, lie: silence,
			request: impatient,
			meddle: behind("Rollback", "worker-0", 1, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.must(h.Rollback(ctx, "worker-0"))
			}),
		},
		{
			name: "a rollback is not journalled", want: []checker.Invariant{checker.S5}, alsoOthers: true, setup: ill, lie: silence,
			request: impatient,
			plant:   func(_ *rig, l *liar) { l.forgets = cluster.PhaseRollingBack },
		},
		{
			name: "a rollback that a person asks for has no guards", want: []checker.Invariant{checker.S1, checker.S2}, alsoOthers: true, lie: silence,
			prepare: func(r *rig) {
				r.upgraded(toLifecycle)
				r.loseForGood("cp-2")
			},
			plant: func(_ *rig, l *liar) { l.hidden, l.like = "cp-2", "cp-1" },
			does:  func(ctx context.Context, w *worker, _ engine.Request) error { return w.RollBack(ctx, "cp-1") },
			blind: true,
		},
		{
			name: "a rollback that a person asks for undoes itself", want: []checker.Invariant{checker.S4}, lie: silence,
			prepare: func(r *rig) { r.upgraded(toLifecycle) },
			does:    func(ctx context.Context, w *worker, _ engine.Request) error { return w.RollBack(ctx, "worker-0") },
			meddle: behind("Rollback", "worker-0", 1, func(ctx context.Context, h hand) {
				h.look(ctx)
				h.must(h.Rollback(ctx, "worker-0"))
			}),
		},
		{
			name: "a rollback that a person asks for is not journalled", want: []checker.Invariant{checker.S5}, alsoOthers: true, lie: silence,
			prepare: func(r *rig) { r.upgraded(toLifecycle) },
			does:    func(ctx context.Context, w *worker, _ engine.Request) error { return w.RollBack(ctx, "worker-0") },
			plant:   func(_ *rig, l *liar) { l.forgets = cluster.PhaseRollingBack },
		},
	}
}

// plantedMemories are bugs about what is known of machines: S15.
func plantedMemories() []planted {
	ill := []model.Fault{neverReady("worker-0")}
	fills := func(with func(known *cluster.Machine, now cluster.Machine) cluster.Machine) func(*rig, *liar) {
		return func(_ *rig, l *liar) { l.Fill(with) }
	}

	return []planted{
		{
			name: "a machine that is not ready in its new boot has the schematic of the old one", want: []checker.Invariant{checker.S15},
			setup: setup{Options: model.Options{Faults: ill}}, lie: silence, request: rebuilt, plant: fills(fillNewBoot),
		},
		{
			name: "a machine that comes back between two looks has the boot ID of before", want: []checker.Invariant{checker.S15},
			setup: setup{Options: model.Options{QuickReboots: true, Faults: ill}}, lie: silence, request: impatient, plant: fills(fillOldBoot),
		},
	}
}

// rebuilt soon sends a node back that has got an image of the Image Factory.
func rebuilt(r *rig) engine.Request {
	request := impatient(r)
	request.Target.InstallerImage = "factory.talos.dev/metal-installer/" + schematicOfTests

	return request
}

// fillNewBoot fills a look at another boot with what is known of the one before, until the
// machine is settled.
func fillNewBoot(known *cluster.Machine, now cluster.Machine) cluster.Machine {
	if known == nil || known.BootID == now.BootID || now.Settled() {
		return now
	}

	filled := *known
	filled.BootID, filled.StatusSince, filled.Talos, filled.Platform = now.BootID, now.StatusSince, now.Talos, now.Platform
	filled.Stage, filled.Ready, filled.Unmet = now.Stage, now.Ready, now.Unmet

	return filled
}

// fillOldBoot takes a machine that was between two boots for still the same, until it is
// settled.
func fillOldBoot(known *cluster.Machine, now cluster.Machine) cluster.Machine {
	if known == nil || known.Settled() || now.Settled() {
		return now
	}

	filled := *known
	filled.Stage, filled.Ready, filled.Unmet = now.Stage, now.Ready, now.Unmet

	return filled
}

// impatient is a request that soon sends a node back.
func impatient(*rig) engine.Request {
	request := returning(to(toLifecycle))
	request.Policy.NodeTimeout = 6 * time.Minute

	return request
}

// forgetful does not tell an install that was refused from one whose end is lost.
func forgetful(done cluster.Installation, err error) (cluster.Installation, error) {
	if err != nil || done.Exit != 0 {
		return cluster.Installation{}, cluster.ErrOutcomeUnknown
	}

	return done, nil
}
