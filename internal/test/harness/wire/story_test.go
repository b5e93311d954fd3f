// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	simwire "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

// story is an upgrade with faults, and runs that are struck, drawn from a seed.
type story struct {
	scenario

	faults []model.Fault
	// from is when the faults come into force.
	from time.Duration
	aims []aim
}

// String returns the whole story.
func (s story) String() string {
	var parts []string

	for _, fault := range s.faults {
		parts = append(parts, fmt.Sprintf("%s of %s: %s for %s", fault.Step, fault.Node, fault.Effect, fault.For))
	}

	for _, at := range s.aims {
		parts = append(parts, fmt.Sprintf("%s at change %d after %s", at.variant, at.number, at.within))
	}

	return fmt.Sprintf("%s; %s from %s", s.name, strings.Join(parts, ", "), s.from)
}

// longest returns how long the longest of the faults lasts that end by themselves.
func (s story) longest() time.Duration {
	longest := time.Duration(0)
	for _, fault := range s.faults {
		longest = max(longest, fault.For)
	}

	return longest
}

// drawStory draws a story from a seed.
func drawStory(seed uint64) story {
	random := rand.New(rand.NewPCG(seed, 37)) //nolint:gosec // stories, not secrets

	shapes := [...]struct{ controlPlanes, workers, together int }{
		{3, 2, 1}, {3, 2, 1}, {1, 1, 1}, {1, 0, 1}, {3, 0, 1}, {3, 3, 2}, {1, 3, 1}, {5, 2, 1},
	}
	hops := [...]struct{ talos, kubernetes, toTalos, toKubernetes string }{
		{"1.13.2", "1.34.2", "1.13.4", ""},
		{"1.12.6", "1.34.2", "1.13.4", ""},
		{"1.13.4", "1.34.2", "1.14.1", ""},
		{"1.13.2", "1.34.2", "1.13.4", "1.35.2"},
		{"1.12.6", "1.34.2", "1.13.4", "1.34.6"},
	}
	shape, hop := shapes[random.IntN(len(shapes))], hops[random.IntN(len(hops))]

	made := story{from: time.Duration(random.IntN(900)) * time.Second}
	made.name = fmt.Sprintf("%d+%d, %d at a time, Talos %s to %s, Kubernetes %s to %q",
		shape.controlPlanes, shape.workers, shape.together, hop.talos, hop.toTalos, hop.kubernetes, hop.toKubernetes)
	made.given.Options = model.Options{
		ControlPlanes: shape.controlPlanes, Workers: shape.workers, Talos: hop.talos, Kubernetes: hop.kubernetes, Seed: seed,
		ManyAddresses: seed%4 == 0, Silent: seed%4 == 1, QuickReboots: seed%4 == 2,
	}
	made.given.Judging = []checker.Option{checker.MaxUnavailable(shape.together)}
	made.request = harness.To(hop.toTalos)

	if hop.toKubernetes != "" {
		made.request = both(hop.toTalos, hop.toKubernetes)
	}

	made.request.Policy.AllowIntermediate = true

	if share, err := cluster.ParseShare(fmt.Sprint(shape.together)); err == nil {
		made.request.Policy.MaxUnavailable = share
	}

	all := model.Faults()

	for range random.IntN(3) {
		fault := all[random.IntN(len(all))]
		fault.Times = 1

		if index := random.IntN(shape.controlPlanes + shape.workers); index < shape.controlPlanes {
			fault.Node = fmt.Sprintf("cp-%d", index)
		} else {
			fault.Node = fmt.Sprintf("worker-%d", index-shape.controlPlanes)
		}

		if fault.Lasting() && random.IntN(2) == 0 {
			fault.For = time.Duration(1+random.IntN(600))*time.Second + 7*time.Millisecond
		}

		made.faults = append(made.faults, fault)
	}

	ways := variants(true)

	for range 1 + random.IntN(3) {
		made.aims = append(made.aims, aim{
			number: 1 + random.IntN(60*(shape.controlPlanes+shape.workers)), variant: ways[random.IntN(len(ways))],
			within: time.Duration(1+random.IntN(20_000)) * time.Millisecond,
		})
	}

	return made
}

// retrying returns the request with permission to retry the nodes that have returned to their old system.
func (r *rig) retrying(request engine.Request) engine.Request {
	request.Policy.Retry = map[string]string{}

	for _, entry := range r.Journal().Entries {
		if entry.Returned() {
			request.Policy.Retry[entry.Node] = entry.BootID
		}
	}

	return request
}

// whole reports whether every machine is in service.
func (r *rig) whole() bool {
	for _, state := range r.World().Nodes() {
		if !state.Reachable || !state.Ready || !state.Kubelet.Ready || state.Stage != model.StageRunning {
			return false
		}

		if state.Role == model.ControlPlane && (!state.APIServerUp || !state.EtcdHealthy || !state.EtcdServed) {
			return false
		}
	}

	return true
}

// live runs a story: each run but the last is struck, with the faults in force; then they end, and a person says what
// to retry.
func (r *rig) live(told story) {
	r.T.Helper()

	later := time.AfterFunc(told.from, func() { r.World().SetFaults(told.faults) })
	defer later.Stop()

	for number, at := range told.aims {
		p := r.start(fmt.Sprintf("run-%d", number))

		wait, err := r.crashing(p, r.retrying(told.request), at)
		wait()
		r.explained(err)
		r.Sound()
	}

	later.Stop()
	r.World().SetFaults(nil)
	// A fault with a duration lasts that long even if the script is replaced, and endpoints may still wait before they
	// try a machine again that did not answer.
	time.Sleep(told.longest() + simwire.LongestPause + time.Second)
	r.Until("all in service", 2*time.Hour, r.whole)

	var err error

	for attempt := range len(told.faults) + 2 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err = r.start(fmt.Sprintf("run-last-%d", attempt)).apply(ctx, r.retrying(told.request))

		cancel()
		r.explained(err)

		if !errors.Is(err, say.ErrFallback) {
			break
		}

		r.Until("all in service", 2*time.Hour, r.whole)
	}

	if err != nil {
		r.T.Fatalf("the last run failed: %v\n%s", err, r.Judge.Text())
	}

	r.converged(told.request)
}

// explained fails the test if a run that was not killed failed without saying how that leaves the cluster.
func (r *rig) explained(err error) {
	r.T.Helper()

	var failed *say.Failure

	switch {
	case err == nil, errors.Is(err, harness.ErrKilled):
	case errors.Is(err, context.DeadlineExceeded) && r.World().Now() > patience:
		r.T.Fatalf("a run did not end by itself: %v\n%s", err, r.Judge.Text())
	case errors.As(err, &failed) && (failed.Summary == "" || failed.State == ""):
		r.T.Errorf("a run failed without saying where that leaves the cluster: %+v", failed)
	}
}

// onlyOne is the value of the environment for a single story.
const onlyOne = "one story"

// usualStories returns how many stories are run by default.
func usualStories() uint64 {
	if few() {
		return 1
	}

	return 3
}

// tellStories runs stories from the seed on: most of them, or if most is 0, until the time is over.
func tellStories(t *testing.T, seed, most uint64, until time.Time) {
	var (
		next, told, failed atomic.Uint64
		began              = time.Now()
		lanes              sync.WaitGroup
	)

	for range harness.Lanes() {
		lanes.Go(func() {
			for {
				number := next.Add(1) - 1
				if most == 0 && time.Now().After(until) || most > 0 && number >= most {
					return
				}

				one := drawStory(seed + number)
				wrong := noted(t, one.given, func(r *rig) { r.live(one) })

				told.Add(1)

				if len(wrong) > 0 {
					failed.Add(1)
					t.Errorf("seed %d: %s: %s", seed+number, one, strings.Join(wrong, "\n"))
					harness.Repeat(t, "wire", seed+number, onlyOne)
				}
			}
		})
	}

	lanes.Wait()
	t.Logf("stories: seeds %d to %d: %d told, %d failed, in %s",
		seed, seed+max(told.Load(), 1)-1, told.Load(), failed.Load(), time.Since(began).Round(time.Millisecond))
}
