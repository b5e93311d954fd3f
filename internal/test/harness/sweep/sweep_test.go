// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// share is the part of the time of a soak that the sweep takes.
const share = 0.35

// sweep is a whole sweep.
type sweep struct {
	t    *testing.T
	seed uint64
	// soak is true in a soak, which takes time. over is when its current part has to end.
	soak bool
	time time.Duration
	over time.Time
	// only is the one case to run; empty for all.
	only string

	*tally
}

// TestSweep_CrashAnywhereUnderAnyFaultThenApplyAgainConverges is the sweep.
func TestSweep_CrashAnywhereUnderAnyFaultThenApplyAgainConverges(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("under the race detector the sweep takes minutes, and the crashes that the tests of the engine strike run there as well")
	}

	s := &sweep{t: t, seed: harness.Seed(), only: harness.Only(), tally: newTally()}

	if budget, on := harness.Soak(); on {
		s.soak, s.time = true, time.Duration(share*float64(budget))
		t.Logf("seed %d, for %s", s.seed, s.time.Round(time.Second))
	}

	s.part(0.4)
	s.withoutFaults()
	s.part(0.9)
	s.withFaults()
	s.part(1)

	switch {
	case s.only != "":
		s.drawn(drawn(s.seed))
	case s.soak:
		s.further()
	}

	t.Log(s)

	if s.only != "" && s.cases == 0 {
		t.Errorf("there is no case %q with seed %d", s.only, s.seed)
	}
}

// lanes does jobs in parallel until the time is over.
func (s *sweep) lanes(jobs int, do func(job int)) {
	var (
		next atomic.Int64
		work sync.WaitGroup
	)

	for range harness.Lanes() {
		work.Go(func() {
			for job := int(next.Add(1)) - 1; job < jobs && !s.late(); job = int(next.Add(1)) - 1 {
				do(job)
				s.progress(s.t)
			}
		})
	}

	work.Wait()
	s.skip(jobs - int(next.Load()))
}

// small reports whether there is hardly any time.
func (s *sweep) small() bool { return !s.soak && s.only == "" && (raceEnabled || testing.Short()) }

// part sets by when what follows has to end, as a part of the time of a soak. So a short soak does a little of
// everything.
func (s *sweep) part(until float64) { s.over = s.begun.Add(time.Duration(until * float64(s.time))) }

// late reports whether the time is over.
func (s *sweep) late() bool { return s.soak && time.Now().After(s.over) }

// wanted reports whether a case, or any case of a unit, has to run. If only is the name of a unit or a scenario, all
// of its cases have to run.
func (s *sweep) wanted(name string) bool {
	return s.only == "" || strings.HasPrefix(s.only+"; ", name+"; ") || strings.HasPrefix(name, s.only+"; ")
}

// try runs a case.
func (s *sweep) try(u unit, blow strike) account {
	name := u.String() + "; " + blow.String()
	done := live(s.t, u, blow)

	if s.wanted(name) {
		s.add(s.t, name, u, blow, done)
	}

	return done
}

// draw returns a source of random choices that belongs to a unit, so that they do not depend on what was drawn for
// another.
func draw(u unit, purpose string) *rand.Rand {
	mixed := uint64(14695981039346656037)
	for _, letter := range []byte(u.String() + purpose) {
		mixed = (mixed ^ uint64(letter)) * 1099511628211
	}

	return rand.New(rand.NewPCG(u.options.Seed, mixed)) //nolint:gosec // choices, not secrets
}

// scale is how many of the calls without faults are struck: one in changes of those that change something, one in
// rare of those that are struck rarely. If whole is true, each is struck in all ways, otherwise in one of them.
type scale struct {
	scenario

	changes, rare int
	whole         bool
}

// withoutFaults strikes calls of undisturbed upgrades.
func (s *sweep) withoutFaults() {
	scales := []scale{
		{talosOnly(s.seed), 1, 20, true},
		{legacy(s.seed), 1, 20, true},
		{both(s.seed), 4, 150, false},
		{sentBack(s.seed, "worker-1"), 3, 50, false},
		{quick(legacy(s.seed)), 6, 100, false},
		{quick(sentBack(s.seed, "cp-1")), 3, 50, false},
		{askedBack(s.seed, "worker-1", false), 1, 50, true},
		{askedBack(s.seed, "worker-1", true), 1, 50, false},
		{askedBack(s.seed, "cp-1", false), 1, 50, true},
		{askedBack(s.seed, "cp-1", true), 1, 50, false},
	}

	for index := range scales {
		switch {
		case s.soak || s.only != "":
			scales[index].changes, scales[index].rare, scales[index].whole = 1, 1, true
		case s.small():
			scales[index].changes, scales[index].rare, scales[index].whole = 17, 170, false
		}
	}

	var cases []struck

	for _, given := range scales {
		if u := (unit{scenario: given.scenario}); s.wanted(u.String()) {
			for _, blow := range s.scaled(u, given) {
				cases = append(cases, struck{u, blow})
			}
		}
	}

	if s.soak && len(cases) > 0 {
		random := draw(cases[0].unit, "order")
		random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	}

	s.all(cases)
}

// scaled returns the calls of an undisturbed upgrade to strike at, and how.
func (s *sweep) scaled(u unit, given scale) []strike {
	done := s.try(u, strike{})
	s.calls(done.points)

	var blows []strike

	random := draw(u, "strikes")
	change, rare := random.IntN(given.changes), random.IntN(given.rare)

	for _, at := range done.points {
		number, stride := &change, given.changes
		if at.rare() {
			number, stride = &rare, given.rare
		}

		if *number++; *number%stride != 0 {
			continue
		}

		crashes := at.crashes()
		if !given.whole {
			crashes = []harness.Crash{crashes[random.IntN(len(crashes))]}
		}

		for _, crash := range crashes {
			blows = append(blows, strike{at, crash})
		}
	}

	return blows
}

// struck is a case.
type struck struct {
	unit

	blow strike
}

// all runs cases.
func (s *sweep) all(cases []struck) {
	s.lanes(len(cases), func(job int) {
		if u, blow := cases[job].unit, cases[job].blow; s.wanted(u.String() + "; " + blow.String()) {
			s.try(u, blow)
		}
	})
}

// withFaults crosses calls with faults.
func (s *sweep) withFaults() {
	var units []unit

	scenarios := []scenario{talosOnly(s.seed), kubernetesOnly(s.seed), quick(legacy(s.seed)), quick(sentBack(s.seed, "worker-1"))}
	if s.soak || s.only != "" {
		scenarios = append(scenarios, legacy(s.seed), sentBack(s.seed, "worker-1"), quick(talosOnly(s.seed)))
	}

	for _, given := range scenarios {
		units = append(units, crossed(given)...)
	}

	s.cross(units, sampled)

	if s.soak {
		s.cross(units, all)
	}

	if s.only != "" || s.small() || s.late() {
		return
	}

	// A fault that never has an effect is not swept.
	for _, fault := range model.Faults() {
		if u := (unit{fault: fault}); !s.pairs[u.pair()] {
			s.t.Errorf("%s did nothing in any scenario", u.pair())
		}
	}
}

// How many cases of a unit with a fault are run.
const (
	sampled = 2
	all     = math.MaxInt
)

// cross sweeps over units with faults, with at most so many cases each.
func (s *sweep) cross(units []unit, most int) {
	random := draw(units[0], "order")
	random.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })

	if s.small() {
		const part = 8

		units = units[:len(units)/part]
	}

	var mu sync.Mutex

	taken := map[string]bool{}

	s.lanes(len(units), func(job int) {
		u := units[job]
		moment := time.Duration(draw(u, "moment").Int64N(int64(15 * time.Minute)))

		// Outside a soak one scenario and one duration of each fault are enough.
		key := u.pair() + u.fault.Node

		mu.Lock()
		skip := !s.soak && s.only == "" && taken[key]
		mu.Unlock()

		if skip || !s.wanted(u.String()) && !s.wanted(u.later(moment).String()) {
			return
		}

		// A fault that keeps a run from beginning, or is known before it begins, has to strike in its middle as well.
		done := s.try(u, strike{})
		did := s.strike(u, done, most)

		if done.early || !done.struck {
			u = u.later(moment)
			did = s.strike(u, s.try(u, strike{}), most) || did
		}

		if did {
			mu.Lock()
			taken[key] = true
			mu.Unlock()

			s.fault(u)
		}
	})
}

// strike strikes a unit whose run without a crash is known. It reports whether the fault had an effect; if not,
// nothing is struck.
func (s *sweep) strike(u unit, done account, most int) bool {
	if !done.struck {
		return false
	}

	blows := s.some(u, strikes(done.points), most)

	for number, blow := range blows {
		if s.late() {
			s.skip(len(blows) - number)

			break
		}

		if s.wanted(u.String() + "; " + blow.String()) {
			s.try(u, blow)
		}

		s.progress(s.t)
	}

	return true
}

// some draws so many cases of a unit with a fault. If all are wanted, it still returns only a few of those at rare
// points.
func (s *sweep) some(u unit, blows []strike, most int) []strike {
	const rarely = 10

	if s.only != "" {
		return blows
	}

	random := draw(u, "strikes")

	if most < len(blows) {
		random.Shuffle(len(blows), func(i, j int) { blows[i], blows[j] = blows[j], blows[i] })

		return blows[:most]
	}

	return slices.DeleteFunc(blows, func(blow strike) bool { return blow.at.rare() && random.IntN(rarely) > 0 })
}

// further draws clusters from further seeds until the time is over.
func (s *sweep) further() {
	for seed := s.seed + 1; !s.late(); seed++ {
		s.drawn(drawn(seed))
	}
}

// drawn sweeps over a part of the cases of a cluster that was drawn.
func (s *sweep) drawn(given scenario) {
	const calls, faults, each = 100, 20, 10

	if u := (unit{scenario: given}); s.wanted(u.String()) {
		blows := strikes(s.try(u, strike{}).points)

		if s.only == "" {
			random := draw(u, "strikes")
			random.Shuffle(len(blows), func(i, j int) { blows[i], blows[j] = blows[j], blows[i] })
			blows = blows[:min(len(blows), calls)]
		}

		cases := make([]struck, 0, len(blows))
		for _, blow := range blows {
			cases = append(cases, struck{u, blow})
		}

		s.all(cases)
	}

	units := crossed(given)

	if s.only == "" {
		random := draw(units[0], "faults")
		random.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
		units = units[:faults]
	}

	s.cross(units, each)
}

// TestSweep_NoticesWhatIsWrong tests the sweep itself: a call that is not carried out has to be noticed, in a case
// with a crash and in one without.
func TestSweep_NoticesWhatIsWrong(t *testing.T) {
	t.Parallel()

	before := func(method, node string) strike {
		return strike{at: point{method: method, node: node, nth: 1, mutates: true}, crash: harness.DieBefore}
	}

	for _, given := range []struct {
		forgets string
		blow    strike
		says    string
	}{
		{"Uncordon", strike{}, "the first run failed"},
		{"Uncordon", before("Annotate", ""), "the last run failed"},
		{"Annotate", strike{}, "annotation talos-status"},
		{"WriteLease", strike{}, "the lease was taken over"},
		{"WriteJournal", before("Reboot", "worker-1"), "Invariant:S4"},
	} {
		u := unit{scenario: talosOnly(harness.Seed()), forgets: given.forgets}
		done := live(t, u, given.blow)

		if found := strings.Join(done.wrong, "\n"); !strings.Contains(found, given.says) {
			t.Errorf("%s is forgotten, %s: found %.900q, want %q in it", given.forgets, given.blow, found, given.says)
		}
	}
}

// TestSweep_SameCallsEachTime wants a run to make the same calls each time, since the names of crash points depend on
// that.
func TestSweep_SameCallsEachTime(t *testing.T) {
	t.Parallel()

	const repetitions = 3

	counts := func() map[point]int {
		counted := map[point]int{}
		for _, at := range live(t, unit{scenario: talosOnly(harness.Seed())}, strike{}).points {
			counted[at]++
		}

		return counted
	}

	first := counts()

	for at, count := range first {
		if count != 1 {
			t.Errorf("%s came %d times, and is no name", at, count)
		}
	}

	for range repetitions {
		again := counts()
		for at := range first {
			if again[at] != 1 {
				t.Errorf("%s did not come again", at)
			}
		}

		if len(again) != len(first) {
			t.Errorf("%d calls, and %d before", len(again), len(first))
		}
	}
}

// tally counts what a sweep does. It is safe for concurrent use.
type tally struct {
	begun time.Time

	mu sync.Mutex
	// cases counts all cases, with and without a strike; missed those in which the call to strike at did not come.
	cases, missed, reads, mutations int
	// pairs and units are the faults that were crossed with, and the units in which they were.
	pairs map[string]bool
	units map[string]bool
	// left is how many cases or units there was no time for.
	left  int
	seeds map[uint64]bool
	wrong int
	said  time.Time
}

// finding is a case in which something was wrong.
type finding struct {
	seed  uint64
	name  string
	wrong []string
}

func newTally() *tally {
	return &tally{begun: time.Now(), said: time.Now(), pairs: map[string]bool{}, units: map[string]bool{}, seeds: map[uint64]bool{}}
}

// add counts a case, and fails the test if something was wrong.
func (c *tally) add(t *testing.T, name string, u unit, blow strike, done account) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()

	c.cases++
	c.seeds[u.options.Seed] = true

	if blow.crash != "" && !done.came {
		c.missed++
	}

	if len(done.wrong) > 0 {
		c.wrong++
		c.tell(t, finding{u.options.Seed, name, done.wrong}, c.wrong)
	}
}

// calls counts the calls of a run without faults.
func (c *tally) calls(points []point) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, at := range points {
		if at.mutates {
			c.mutations++
		} else {
			c.reads++
		}
	}
}

// skip counts what there was no time for.
func (c *tally) skip(jobs int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.left += max(0, jobs)
}

// fault counts a unit with a fault that had an effect.
func (c *tally) fault(u unit) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.units[u.String()] = true
	c.pairs[u.pair()] = true
}

// String returns the line with which a sweep ends.
func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()

	verdict := "violations none"
	if c.wrong > 0 {
		verdict = fmt.Sprintf("WRONG %d", c.wrong)
	}

	if c.left > 0 {
		verdict += fmt.Sprintf("; time over with %d cases or units left", c.left)
	}

	seeds := make([]string, 0, len(c.seeds))
	for _, seed := range slices.Sorted(maps.Keys(c.seeds)) {
		seeds = append(seeds, fmt.Sprint(seed))
	}

	const most = 5
	if more := len(seeds) - most; more > 0 {
		seeds = append(seeds[:most], fmt.Sprintf("and %d more", more))
	}

	return fmt.Sprintf("calls %d (reads %d, mutations %d), variants %d, faults %d in %d units, runs %d (%d ended before the call), seeds %s, real time %s; %s",
		c.reads+c.mutations, c.reads, c.mutations, len(harness.Crashes())+1, len(c.pairs), len(c.units), c.cases, c.missed,
		strings.Join(seeds, " "), time.Since(c.begun).Round(time.Second), verdict)
}

// progress logs every minute how far a long sweep is.
func (c *tally) progress(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	due := time.Since(c.said) >= time.Minute

	if due {
		c.said = time.Now()
	}
	c.mu.Unlock()

	if due {
		t.Logf("so far: %s", c)
	}
}

// tell fails the test for a case: the first ones with the whole story, further ones with one line, and then no more.
func (c *tally) tell(t *testing.T, found finding, number int) {
	t.Helper()

	const whole, most = 4, 200

	switch text := strings.Join(found.wrong, "\n"); {
	case number <= whole:
		t.Errorf("%s:\n%s", found.name, text)
		harness.Repeat(t, "sweep", found.seed, found.name)
	case number <= most:
		first, _, _ := strings.Cut(text, "\n")
		t.Errorf("%s: %s", found.name, first)
	default:
		t.Fail()
	}
}
