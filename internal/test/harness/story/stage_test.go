// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// wrong is a story that went wrong. Nothing else ends one early.
type wrong struct {
	// kind is the invariant that was broken, text the whole of the story.
	kind, text string
}

// audience hears of failures in a bubble in the place of the test that made it.
type audience struct {
	testing.TB

	mu    sync.Mutex
	heard []string
}

func (a *audience) Helper()                           {}
func (a *audience) Fatal(args ...any)                 { panic(wrong{"harness", fmt.Sprint(args...)}) }
func (a *audience) Fatalf(format string, args ...any) { a.Fatal(fmt.Sprintf(format, args...)) }
func (a *audience) Errorf(format string, args ...any) { a.Error(fmt.Sprintf(format, args...)) }

// Error keeps what the story ends with as soon as it looks: a run may say it, and a
// panic of its goroutine would end everything.
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
	// lines are what happened so far, for people.
	lines []string
	// runs are all that were started, in order.
	runs []*apply
	// faults are those in force; until ailing, those that were may be too.
	faults []model.Fault
	ailing time.Time
	// cordoned are the nodes that a person has cordoned and not uncordoned, joined
	// those that were added; left counts those that went away.
	cordoned map[string]bool
	joined   map[string]bool
	left     int
	// touched is when somebody else last laid hands on what runs rely on.
	touched time.Time
	excuses []excuse
	// bug is put into every run; nil for none.
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
	s.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

	return s
}

// fail ends the story. The text begins with what was broken.
func (s *stage) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	kind, _, _ := strings.Cut(text, ":")

	panic(wrong{kind, s.report(text)})
}

// report is the whole of the story, with what went wrong in it first.
func (s *stage) report(what string) string {
	return what + "\n" + s.scene.String() + "\n" + strings.Join(s.lines, "\n") + "\n" + s.Judge.Text()
}

// tell notes what happens.
func (s *stage) tell(kind, format string, args ...any) {
	s.touchTally(kind)
	s.lines = append(s.lines, fmt.Sprintf("%9.3f %s: %s", s.World().Now().Seconds(), kind, fmt.Sprintf(format, args...)))
}

// pass lets a drawn time pass, off the grid of everything that is polled.
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

// await lets time pass until the condition holds, and tells whether it came to.
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

// watch ends the story when an invariant was broken, or a run said something or
// ended as none may.
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

// names are the machines that there are, of a role or of any.
func (s *stage) names(role model.Role) []string {
	var names []string

	for _, state := range s.World().Nodes() {
		if role == "" || state.Role == role {
			names = append(names, state.Name)
		}
	}

	return names
}

// some draws one of the machines; empty where there is none.
func (s *stage) some(t *rapid.T, role model.Role) string {
	names := s.names(role)
	if len(names) == 0 {
		return ""
	}

	return names[rapid.IntRange(0, 99).Draw(t, "node")%len(names)]
}

// close ends everything that is under way, whatever became of the story.
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
