// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/ports"
)

// accidents is a story of faults and crashes, drawn from a seed.
type accidents struct {
	given  setup
	target string
	// share is how many workers may be unavailable.
	share   string
	settle  time.Duration
	canary  []string
	faults  []model.Fault
	crashes []accident
}

type accident struct {
	kind     crash
	mutation int
}

// drawAccidents makes a story. The same seed makes the same one.
func drawAccidents(seed uint64) accidents {
	random := rand.New(rand.NewPCG(seed, 17)) //nolint:gosec // stories, not secrets

	topologies := [...][2]int{{3, 2}, {1, 1}, {1, 0}, {5, 5}, {3, 0}, {3, 3}, {1, 3}}
	hops := [...][2]string{{"1.13.2", "1.13.4"}, {"1.12.6", "1.13.4"}, {"1.13.4", "1.14.1"}, {"1.11.5", "1.12.6"}}

	topology, hop := topologies[random.IntN(len(topologies))], hops[random.IntN(len(hops))]
	story := accidents{target: hop[1]}
	story.given.Options = model.Options{
		ControlPlanes: topology[0], Workers: topology[1], Talos: hop[0], Kubernetes: kubernetes, Seed: seed,
	}

	kinds := faultCases()

	for range random.IntN(3) {
		fault := kinds[random.IntN(len(kinds))].fault
		if random.IntN(6) == 0 {
			fault = model.Fault{Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}
		}

		index := random.IntN(topology[0] + topology[1])
		fault.Node = fmt.Sprintf("cp-%d", index)

		if index >= topology[0] {
			fault.Node = fmt.Sprintf("worker-%d", index-topology[0])
		}

		story.faults = append(story.faults, fault)
	}

	const perNode = 35

	for range random.IntN(4) {
		kind := crashes()[random.IntN(len(crashes()))]
		story.crashes = append(story.crashes, accident{kind, 1 + random.IntN(perNode*(topology[0]+topology[1]))})
	}

	// Pods need a worker to go to.
	shares := [...]string{"1", "2", "50%", "60%"}
	if story.share = shares[random.IntN(len(shares))]; topology[1] < 3 {
		story.share = "1"
	}

	story.settle = time.Duration(random.IntN(2)) * time.Minute

	if share, err := cluster.ParseShare(story.share); err == nil {
		story.given.judging = []checker.Option{checker.MaxUnavailable(share.Of(topology[1]))}
	}

	if topology[1] > 1 && random.IntN(3) == 0 {
		story.canary = []string{"worker-1"}
		story.given.judging = append(story.given.judging, checker.Canary(story.canary...))
	}

	if hop[1] == "1.12.6" && random.IntN(2) == 0 {
		story.target = "1.13.4"
	}

	return story
}

// request is one that tries again what has fallen back.
func (a accidents) request(r *rig) engine.Request {
	request := r.persistent(a.target)
	request.Policy.MaxUnavailable = sharing(r.t, a.target, a.share).Policy.MaxUnavailable
	request.Policy.Settle, request.Policy.Canary, request.Policy.AllowIntermediate = a.settle, a.canary, true

	return request
}

// TestAccidentsOfAllSortsEndWell draws stories of faults and crashes, and
// demands that nothing unsafe ever happens and that the run after the last
// accident ends at the target.
func TestAccidentsOfAllSortsEndWell(t *testing.T) {
	stories := uint64(250)
	if testing.Short() || raceEnabled {
		stories = 30
	}

	const lanes = 2

	for lane := range uint64(lanes) {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()

			for seed := lane + 1; seed <= stories; seed += lanes {
				story := drawAccidents(seed)
				story.given.Faults = story.faults

				inCluster(t, story.given, func(r *rig) { r.live(story) })

				if t.Failed() {
					t.Fatalf("seed %d: %s at a time, %+v with %+v", seed, story.share, story.given.Options, story.crashes)
				}
			}
		})
	}
}

func (r *rig) live(story accidents) {
	r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

	for number, blow := range story.crashes {
		_, wait, _ := r.crashing(fmt.Sprintf("run-%d", number), story.request(r), blow.kind, blow.mutation)
		wait()
	}

	r.World().SetFaults(nil)
	r.until("in service", time.Hour, r.whole)

	err := r.worker("run-last").upgrade(context.Background(), story.request(r))

	// A node may have fallen back with nobody there to notice, and each one has
	// to be told to try again. An only control plane may go down, as the last
	// crash left it, before the run has its lease.
	patience := len(story.faults)
	if story.given.Options.ControlPlanes == 1 {
		patience++
	}

	for number := 0; number < patience && (errors.Is(err, engine.ErrFallback) || errors.Is(err, context.DeadlineExceeded)); number++ {
		r.until("in service", time.Hour, r.whole)

		err = r.worker(fmt.Sprintf("run-told-%d", number)).upgrade(context.Background(), story.request(r))
	}

	if err != nil {
		r.t.Errorf("the last run failed: %v\n%s", err, r.judge.text())
	}

	r.sound()
	r.allRun(story.target)
}

// persistent is a request that tries again what has fallen back.
func (r *rig) persistent(target string) engine.Request {
	request := to(target)
	request.Policy.Retry = map[string]string{}

	for _, entry := range r.Journal().Entries {
		if entry.Phase == cluster.PhaseFallback {
			request.Policy.Retry[entry.Node] = entry.BootID
		}
	}

	return request
}

// whole tells that every machine answers and an API server serves.
func (r *rig) whole() bool {
	for _, state := range r.World().Nodes() {
		if !state.Reachable {
			return false
		}
	}

	return r.anyServer()
}
