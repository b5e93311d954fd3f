// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// wrong is the value with which a story panics that went wrong. Nothing else ends one early.
type wrong struct {
	// kind is the invariant that was broken, text the report of the story.
	kind, text string
}

// audience takes the failures that a rig reports in a bubble, instead of the test that made it.
type audience struct {
	testing.TB

	mu    sync.Mutex
	heard []string
}

func (a *audience) Helper()                           {}
func (a *audience) Fatal(args ...any)                 { panic(wrong{"harness", fmt.Sprint(args...)}) }
func (a *audience) Fatalf(format string, args ...any) { a.Fatal(fmt.Sprintf(format, args...)) }
func (a *audience) Errorf(format string, args ...any) { a.Error(fmt.Sprintf(format, args...)) }

// Error keeps a failure until the story looks: it may come from the goroutine of a run, whose panic would end the
// process.
func (a *audience) Error(args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.heard = append(a.heard, fmt.Sprint(args...))
}

func (a *audience) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()

	return strings.Join(a.heard, "\n")
}

// stage is a cluster on which a story takes place.
type stage struct {
	*harness.Rig
	*scene

	audience *audience
	tally    *tally
	// lines are what has happened so far, for people.
	lines []string
	// runs are all runs that were started, in order.
	runs []*apply
	// faults are those in force. Until ailing, earlier ones may still be in force as well.
	faults []model.Fault
	ailing time.Time
	// cordoned are the nodes that a person has cordoned and not uncordoned, joined those that were added; left counts
	// those that were removed.
	cordoned map[string]bool
	joined   map[string]bool
	left     int
	// touched is when somebody else last changed what runs rely on.
	touched time.Time
	excuses []excuse
	// cut is until when a run is cut off, taken is when somebody last took the lease away.
	cut   time.Time
	taken time.Duration
	// bug is planted into every run; nil for none.
	bug    plant
	judged int
	acts   int
}

func newStage(tb testing.TB, given *scene, count *tally) *stage {
	heard := &audience{TB: tb}
	s := &stage{
		Rig: harness.New(heard, given.setup()), scene: given, audience: heard, tally: count,
		cordoned: map[string]bool{}, joined: map[string]bool{},
	}
	s.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})

	return s
}

// fail ends the story. The text begins with what was broken.
func (s *stage) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	kind, _, _ := strings.Cut(text, ":")

	panic(wrong{kind, s.report(text)})
}

// report returns the whole story, beginning with what went wrong.
func (s *stage) report(what string) string {
	return what + "\n" + s.scene.String() + "\n" + strings.Join(s.lines, "\n") + "\n" + s.Judge.Text()
}

// tell records what happens.
func (s *stage) tell(kind, format string, args ...any) {
	s.touchTally(kind)
	s.lines = append(s.lines, fmt.Sprintf("%9.3f %s: %s", s.World().Now().Seconds(), kind, fmt.Sprintf(format, args...)))
}

// pass lets a drawn time pass, which is off the grid of everything that is polled.
func (s *stage) pass(t *rapid.T) {
	s.acts++
	seconds := rapid.IntRange(0, 120).Draw(t, "after")
	s.wait(time.Duration(seconds)*1009*time.Millisecond + 17*time.Millisecond + time.Duration(s.acts)*271*time.Microsecond)
}

// goOn lets the runs work for longer than between two actions.
func (s *stage) goOn(t *rapid.T) {
	s.pass(t)
	s.wait(time.Duration(rapid.IntRange(0, 6).Draw(t, "minutes")) * 61 * time.Second)
}

// slice is how often the judge is asked while time passes.
const slice = 9173 * time.Millisecond

func (s *stage) wait(most time.Duration) {
	for end := time.Now().Add(most); time.Now().Before(end); {
		time.Sleep(min(slice, time.Until(end)))
		s.watch()
	}
}

// await lets time pass until the condition holds, and reports whether it does.
func (s *stage) await(most time.Duration, holds func() bool) bool {
	for end := time.Now().Add(most); !holds(); {
		if !time.Now().Before(end) {
			return false
		}

		time.Sleep(1997 * time.Millisecond)
		s.watch()
	}

	return true
}

// watch ends the story if an invariant was broken, or if a run reported something or ended in a way that is not
// allowed.
func (s *stage) watch() {
	if said := s.audience.said(); said != "" {
		s.fail("wording: %s", said)
	}

	verdict := s.Judge.Verdict()

	for _, violation := range verdict.Violations[s.judged:] {
		s.judged++

		if why := s.excused(violation); why != "" {
			s.tell("excused "+string(violation.Invariant), "%s %s, since %s", violation.Node, violation.What, why)

			continue
		}

		s.fail("%s: at %.3f s: %s: %s", violation.Invariant, violation.Time, violation.Node, violation.What)
	}

	for _, run := range s.runs {
		s.examine(run)
	}
}

// names returns the names of the machines of a role, or of all of them if it is empty.
func (s *stage) names(role model.Role) []string {
	var names []string

	for _, state := range s.World().Nodes() {
		if role == "" || state.Role == role {
			names = append(names, state.Name)
		}
	}

	return names
}

// some draws one of the machines; empty if there is none.
func (s *stage) some(t *rapid.T, role model.Role) string {
	names := s.names(role)
	if len(names) == 0 {
		return ""
	}

	return names[rapid.IntRange(0, 99).Draw(t, "node")%len(names)]
}

// close ends everything that is still running, however the story ended.
func (s *stage) close() {
	for _, run := range s.runs {
		run.strike.Kill()
	}

	// Nothing answers a dead run any more, so it has nothing to wait for.
	const most = 24 * time.Hour

	for _, run := range s.runs {
		select {
		case <-run.done:
		case <-time.After(most):
			panic(s.report(run.name + " goes on although nothing answers it and it was cancelled"))
		}
	}

	s.Stop()
}

// apply is a run of the engine.
type apply struct {
	name    string
	request engine.Request
	worker  *harness.Worker
	strike  *harness.Strike
	cancel  context.CancelFunc
	begun   time.Time
	// unlisted are the workers that looked as if they were removed when the run began: no Node object, no answer.
	unlisted map[string]bool
	// done is closed once the run has returned and written its last annotations.
	done chan struct{}
	// cancelAt is the mutating call after which the run is cancelled, 0 for none.
	cancelAt int
	// examined belongs to the story. The story and the run share the rest.
	examined bool

	mu                  sync.Mutex
	err                 error
	cancelled, returned time.Time
	// Until cut nothing reaches the cluster. served is true if an API server was there when the run returned: if the
	// only control plane is away, a lease cannot be released.
	cut    time.Time
	served bool
}

// state returns when and how the run ended; the time is zero if it has not.
func (a *apply) state() (ended time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.returned, a.err
}

func (a *apply) dead() bool {
	select {
	case <-a.strike.Killed():
		return true
	default:
		return false
	}
}

// alive reports whether the run can still do something.
func (a *apply) alive() bool {
	ended, _ := a.state()

	return ended.IsZero() && !a.dead()
}

// interrupt cancels the run.
func (a *apply) interrupt() {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.cancelled.IsZero() {
		a.cancelled = time.Now()
	}

	a.cancel()
}

// interrupted returns when the run was cancelled; zero if it was not.
func (a *apply) interrupted() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.cancelled
}

// cutOff keeps everything from reaching the cluster until a time.
func (a *apply) cutOff(until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.cut = until
}

// intercept is the interceptor between the run and the cluster.
func (a *apply) intercept(ctx context.Context, call ports.Call, next func(context.Context) error) error {
	a.mu.Lock()
	cut := time.Now().Before(a.cut)
	a.mu.Unlock()

	switch {
	case !cut || a.dead():
		err := a.strike.Intercept(ctx, call, next)

		if call.Mutation > 0 && call.Mutation == a.cancelAt {
			a.interrupt()
		}

		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case call.Mutation > 0:
		return fmt.Errorf("%w: %w: i/o timeout", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
	default:
		return fmt.Errorf("%w: i/o timeout", cluster.ErrUnreachable)
	}
}

// living returns the runs that are still running.
func (s *stage) living() []*apply {
	var living []*apply

	for _, run := range s.runs {
		if run.alive() {
			living = append(living, run)
		}
	}

	return living
}

// cancelled is one more way in which a run can be struck.
const cancelled harness.Crash = "cancelled after the call"

// blow is how a run is struck, and at which of its mutating calls; 0 for none.
type blow struct {
	kind     harness.Crash
	mutation int
}

// unlisted returns the workers without a Node object that do not answer.
func (s *stage) unlisted() map[string]bool {
	found, cordons := map[string]bool{}, s.Cordons()

	for _, state := range s.World().Nodes() {
		if _, registered := cordons[state.Name]; !registered && !state.Reachable && state.Role == model.Worker {
			found[state.Name] = true
		}
	}

	return found
}

// begin starts a run with a client of its own.
func (s *stage) begin(request engine.Request, struck blow) *apply {
	ctx, cancel := context.WithCancel(context.Background())

	run := &apply{
		name: fmt.Sprintf("run-%d", len(s.runs)+1), request: request, cancel: cancel, begun: time.Now(), done: make(chan struct{}),
		unlisted: s.unlisted(),
	}
	run.strike = harness.NewStrike(struck.kind, func(call ports.Call) bool {
		return struck.kind != cancelled && struck.mutation > 0 && call.Mutation == struck.mutation
	}, cancel)

	if struck.kind == cancelled {
		run.cancelAt = struck.mutation
	}

	run.worker = s.Worker(run.name)
	run.worker.Client.Intercept(run.intercept)

	if s.bug != nil {
		run.worker.Client.Intercept(s.bug(s, run))
	}

	s.runs = append(s.runs, run)

	go func() {
		defer close(run.done)

		_, err := run.worker.Upgrade(ctx, request)
		served := s.World().Serving()

		run.mu.Lock()
		run.returned, run.err, run.served = time.Now(), err, served
		run.mu.Unlock()

		run.worker.Notes.Finish()
	}()

	return run
}

// again returns the request with permission to retry the nodes that have fallen back.
func (s *stage) again(request engine.Request) engine.Request {
	request.Policy.Retry = map[string]string{}

	for _, entry := range s.Journal().Entries {
		if entry.Returned() {
			request.Policy.Retry[entry.Node] = entry.BootID
		}
	}

	return s.named(request)
}

// named leaves out the nodes that do not exist any more: a configuration that names one is refused, and a person
// would correct it.
func (s *stage) named(request engine.Request) engine.Request {
	var canaries []string

	for _, name := range request.Policy.Canary {
		if _, err := s.World().Node(name); err == nil {
			canaries = append(canaries, name)
		}
	}

	request.Policy.Canary = canaries

	for name := range request.Policy.Retry {
		if _, err := s.World().Node(name); err != nil {
			delete(request.Policy.Retry, name)
		}
	}

	return request
}

// apply starts a run unless two are running.
func (s *stage) apply(t *rapid.T) {
	s.pass(t)

	request := s.request(rapid.IntRange(0, 4).Draw(t, "target") == 4)
	if rapid.IntRange(0, 3).Draw(t, "deadline") == 3 {
		request.Deadline = time.Duration(rapid.IntRange(1, 15).Draw(t, "minutes")) * time.Minute
	}

	if rapid.Bool().Draw(t, "told to retry") {
		request = s.again(request)
	}

	struck := blow{rapid.SampledFrom(append(harness.Crashes(), cancelled)).Draw(t, "crash"), s.drawMutation(t)}

	if len(s.living()) > 1 {
		return
	}

	run := s.begin(s.named(request), struck)
	s.tell("apply", "%s to %s, deadline %s, retry %v, struck at mutation %d: %s",
		run.name, wanted(request.Target), request.Deadline, request.Policy.Retry, struck.mutation, struck.kind)
}

// drawMutation draws at which of its mutating calls a run is struck; 0 for none. Plain numbers would nearly all be
// small.
func (s *stage) drawMutation(t *rapid.T) int {
	const perNode, parts = 40, 20

	if rapid.Bool().Draw(t, "not struck") {
		return 0
	}

	part := rapid.IntRange(0, parts-1).Draw(t, "part")
	size := perNode * (s.controlPlanes + s.workers) / parts

	return 1 + part*size + rapid.IntRange(0, size-1).Draw(t, "mutation")
}

func wanted(target cluster.Target) string {
	return fmt.Sprintf("Talos %s Kubernetes %s", target.Talos, target.Kubernetes)
}

// oneOf draws a run that is still running; nil if there is none.
func (s *stage) oneOf(t *rapid.T) *apply {
	number := rapid.IntRange(0, 1).Draw(t, "run")

	living := s.living()
	if len(living) == 0 {
		return nil
	}

	return living[number%len(living)]
}

// kill ends the process of a run at once.
func (s *stage) kill(t *rapid.T) {
	s.pass(t)

	if run := s.oneOf(t); run != nil {
		s.tell("kill", "%s", run.name)
		run.strike.Kill()
	}
}

// partition keeps a run from reaching the cluster for a while.
func (s *stage) partition(t *rapid.T) {
	s.pass(t)

	seconds := rapid.IntRange(1, 600).Draw(t, "seconds")

	if run := s.oneOf(t); run != nil {
		s.tell("cut off", "%s for %d s", run.name, seconds)
		s.cut = time.Now().Add(time.Duration(seconds)*1003*time.Millisecond + 7*time.Millisecond)
		run.cutOff(s.cut)

		if since := s.World().Now() - s.taken; s.taken > 0 && since < renewal {
			s.excuse(excuse{
				why: "the lease was taken away, and " + run.name + " was cut off", invariants: []checker.Invariant{checker.S7, checker.S12}, until: abandoned - since,
			})
		}

		// The judge learns of an installer only once it has ended.
		s.excuse(excuse{why: run.name + " was cut off", invariants: []checker.Invariant{checker.S7}, says: "the call Upgrade", until: 2 * time.Minute})
	}
}
