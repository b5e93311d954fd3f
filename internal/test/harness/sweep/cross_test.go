// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// withFaults crosses calls with faults.
func (s *sweep) withFaults() {
	var units []unit

	for _, given := range []scenario{talosOnly(s.seed), kubernetesOnly(s.seed), legacy(s.seed), sentBack(s.seed, "worker-1")} {
		units = append(units, crossed(given)...)
	}

	s.cross(units, sampled)

	if s.soak {
		s.cross(units, all)
	}

	if s.only != "" || s.small() || s.late() {
		return
	}

	// A fault that never does anything is not swept.
	for _, fault := range model.Faults() {
		if u := (unit{fault: fault}); !s.pairs[u.pair()] {
			s.t.Errorf("%s did nothing in any scenario", u.pair())
		}
	}
}

// How many cases of a unit with a fault are carried out.
const (
	sampled = 2
	all     = math.MaxInt
)

// cross sweeps over units with faults, with so many cases each.
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

		// Outside of a soak one scenario and one duration of each fault is enough.
		key := u.pair() + u.fault.Node

		mu.Lock()
		skip := !s.soak && s.only == "" && taken[key]
		mu.Unlock()

		if skip || !s.wanted(u.String()) && !s.wanted(u.later(moment).String()) {
			return
		}

		// What keeps a run from beginning, or is known before it begins, strikes in
		// its middle as well.
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

// strike strikes a unit whose run without a crash is known. It tells whether the
// fault did anything; where not, nothing is struck.
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

// some are so many cases of a unit with a fault, drawn; where all are wanted, those
// at rare points are a few all the same.
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

// drawn sweeps over a part of a cluster that was drawn.
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
