// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

// share is the part of the time of a soak that the sweep takes.
const share = 0.35

// sweep is one whole sweep.
type sweep struct {
	t    *testing.T
	seed uint64
	// soak is for long, for as long as time, and over is when the part that is
	// going on has to end.
	soak bool
	time time.Duration
	over time.Time
	// only is the one case to run, empty for all.
	only string

	*tally
}

// TestCrashAnywhereUnderAnyFaultThenApplyAgainConverges is the sweep.
func TestCrashAnywhereUnderAnyFaultThenApplyAgainConverges(t *testing.T) {
	// There is much that is soon garbage, and little that is not.
	const lazily = 400

	defer debug.SetGCPercent(debug.SetGCPercent(lazily))

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

// lanes does some jobs beside each other, until the time is over.
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

// small tells that there is hardly any time.
func (s *sweep) small() bool { return !s.soak && s.only == "" && (raceEnabled || testing.Short()) }

// part says by when, as a part of all the time of a soak, what follows has to end.
// A short soak does a little of everything.
func (s *sweep) part(until float64) { s.over = s.begun.Add(time.Duration(until * float64(s.time))) }

// late tells that the time is over.
func (s *sweep) late() bool { return s.soak && time.Now().After(s.over) }

// wanted tells whether a case, or any of a unit's, is to be run. All of a unit or
// of a scenario are where only is its name.
func (s *sweep) wanted(name string) bool {
	return s.only == "" || strings.HasPrefix(s.only+"; ", name+"; ") || strings.HasPrefix(name, s.only+"; ")
}

// try carries out a case.
func (s *sweep) try(u unit, blow strike) account {
	name := u.String() + "; " + blow.String()
	done := live(s.t, u, blow)

	if s.wanted(name) {
		s.add(s.t, name, u, blow, done)
	}

	return done
}

// draw is a source of choices that belong to a unit, so that one does not depend
// on what was drawn for another.
func draw(u unit, purpose string) *rand.Rand {
	mixed := uint64(14695981039346656037)
	for _, letter := range []byte(u.String() + purpose) {
		mixed = (mixed ^ uint64(letter)) * 1099511628211
	}

	return rand.New(rand.NewPCG(u.options.Seed, mixed)) //nolint:gosec // choices, not secrets
}

// scale is how many of the calls without faults are struck: one in so many of those
// that change something, and of those that are struck rarely. whole tells that each
// is struck in all ways, and not in one of them.
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
		{sentBack(s.seed, "cp-1"), 3, 50, false},
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

// scaled are the calls of an undisturbed upgrade to strike at, and how.
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

// all carries out cases.
func (s *sweep) all(cases []struck) {
	s.lanes(len(cases), func(job int) {
		if u, blow := cases[job].unit, cases[job].blow; s.wanted(u.String() + "; " + blow.String()) {
			s.try(u, blow)
		}
	})
}
