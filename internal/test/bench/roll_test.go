// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	toKubernetes = "1.35.1"
	share        = "10%"
	seed         = 21
)

// The halves of a roll; for Talos, by the API that its nodes have.
const (
	halfLifecycle  = "talos"
	halfLegacy     = "talos, legacy"
	halfKubernetes = "kubernetes"
)

// roll is an upgrade to measure.
type roll struct {
	controlPlanes, workers int
	half                   string
}

func (r roll) String() string { return fmt.Sprintf("%d+%d %s", r.controlPlanes, r.workers, r.half) }

// rolls returns the rolls to measure: those of the sizes and halves that BENCH_SIZES, such as "3+2 5+95", and
// BENCH_HALVES, such as "talos;kubernetes", select, or all.
func rolls(t *testing.T) []roll {
	t.Helper()

	var (
		all    []roll
		halves = strings.Split(os.Getenv("BENCH_HALVES"), ";")
	)

	sizes := "3+2 3+20 5+20 5+95 5+295"
	if raceEnabled {
		sizes = "3+2 3+20"
	}

	for _, size := range strings.Fields(cmp.Or(os.Getenv("BENCH_SIZES"), sizes)) {
		var made roll
		if _, err := fmt.Sscanf(size, "%d+%d", &made.controlPlanes, &made.workers); err != nil {
			t.Fatalf("BENCH_SIZES: %q: want numbers of control planes and workers, such as 3+2", size)
		}

		for _, half := range []string{halfLifecycle, halfLegacy, halfKubernetes} {
			made.half = half
			wanted := slices.Contains(halves, half) || halves[0] == "" && (half != halfLegacy || made.controlPlanes == 3)

			if wanted {
				all = append(all, made)
			}
		}
	}

	return all
}

// figures are the results of one roll.
type figures struct {
	roll

	// talos and kube are the requests to the Talos API and to that of Kubernetes, by call; unchanged are those of talos that
	// got the answer of the time before.
	talos, kube, unchanged map[string]int
	took, best             float64
	// away is the share of the allowed workers that were in their turns; before is the time before the first cordon
	// as a share of that of the roll. Both are -1 if nothing is cordoned.
	away, before float64
	// host is how long the simulation itself took, in parallel with others.
	host time.Duration
}

func (f figures) nodes() int          { return f.controlPlanes + f.workers }
func (f figures) talosANode() float64 { return float64(total(f.talos)) / float64(f.nodes()) }
func (f figures) kubeANode() float64  { return float64(total(f.kube)) / float64(f.nodes()) }
func (f figures) overBest() float64   { return f.took / f.best }
func (f figures) cordons() bool       { return f.half != halfKubernetes }
func (f figures) size() string        { return fmt.Sprintf("%d+%d", f.controlPlanes, f.workers) }

// TestRollsCostWhatTheirNodesCost measures a roll of each size in virtual time. With BENCH_VERBOSE=1 it logs how many
// requests each call cost.
func TestRollsCostWhatTheirNodesCost(t *testing.T) {
	wanted := rolls(t)
	all := make([]figures, len(wanted))

	harness.Beside(t, len(wanted), func(number int) { all[number] = measure(t, wanted[number]) })

	if t.Failed() {
		return
	}

	for _, measured := range all {
		t.Logf("%s: %.1f Talos requests a node, %.0f s over %.0f s, host %s", measured.roll, measured.talosANode(), measured.took, measured.best,
			measured.host.Round(time.Millisecond))

		if os.Getenv("BENCH_VERBOSE") != "" {
			t.Logf("%s:\n  Talos\n%s  Talos, with the answer of the time before\n%s  Kubernetes\n%s", measured.roll,
				breakdown(measured.talos, measured.nodes()), breakdown(measured.unchanged, measured.nodes()), breakdown(measured.kube, measured.nodes()))
		}
	}

	t.Log("\n" + table(all))
	intoPage(t, "virtual", table(all))
	compare(t, all)

	for _, l := range limits(all) {
		verdict := "reached"

		if !l.holds() {
			verdict = "not reached"

			if !l.open {
				t.Errorf("%s: %.3f, want %s", l.what, l.found, l.wanted())
			}
		}

		t.Logf("%-12s %-60s %10.3f  %s", verdict, l.what, l.found, l.wanted())
	}
}

// table returns the figures in Markdown.
func table(all []figures) string {
	lines := [][]string{{
		"nodes", "half", "Talos requests a node", "of them with the same answer again", "Kubernetes requests a node", "roll over the best schedule", "roll",
	}}

	for _, f := range all {
		lines = append(lines, []string{
			f.size(), f.half, fmt.Sprintf("%.0f", f.talosANode()), fmt.Sprintf("%.0f", float64(total(f.unchanged))/float64(f.nodes())), fmt.Sprintf("%.0f", f.kubeANode()), fmt.Sprintf("%.3f", f.overBest()),
			fmt.Sprintf("%.0f s", f.took),
		})
	}

	return markdown(lines)
}

// setup returns the cluster of a roll, and the request for it.
func (r roll) setup(t *testing.T) (harness.Setup, engine.Request) {
	t.Helper()

	options := model.Options{ControlPlanes: r.controlPlanes, Workers: r.workers, Talos: harness.FromLifecycle, Seed: seed}
	target := cluster.Target{Talos: version.MustParse(harness.ToLifecycle)}

	switch r.half {
	case halfLegacy:
		options.Talos, target.Talos = harness.FromLegacy, version.MustParse(harness.ToLegacy)
	case halfKubernetes:
		options.Kubernetes, target = harness.Kubernetes, cluster.Target{Kubernetes: version.MustParse(toKubernetes)}
	}

	most, err := cluster.ParseShare(share)
	if err != nil {
		t.Fatal(err)
	}

	request := harness.Bare(engine.Request{Target: target, Policy: cluster.DefaultPolicy()})
	request.Policy.MaxUnavailable, request.Policy.Kubernetes.MaxUnavailableKubelets = most, most
	slots := most.Of(r.workers)

	return harness.Setup{
		Options: options, Judging: []checker.Option{checker.MaxUnavailable(slots), checker.MaxUnavailableKubelets(slots)},
	}, request
}

// measure runs an upgrade and returns its figures.
func measure(t *testing.T, wanted roll) figures {
	t.Helper()

	measured := figures{roll: wanted, away: -1, before: -1}
	started := time.Now()

	synctest.Test(t, func(t *testing.T) {
		given, request := wanted.setup(t)
		slots := request.Policy.MaxUnavailable.Of(wanted.workers)

		r := harness.New(t, given)
		defer r.Stop()

		client := r.Client("run-1")
		counted := count(client)
		w := r.WorkerOver(client, counted, client)
		begun := r.World().Now().Seconds()

		if _, err := w.Upgrade(context.Background(), request); err != nil {
			t.Fatalf("%s: %v\n%s", wanted, err, r.Judge.Text())
		}

		measured.took = r.World().Now().Seconds() - begun
		w.Notes.Finish()
		r.Sound()

		measured.talos, measured.kube, measured.unchanged = counted.made, client.Requests(), counted.unchanged
		measured.best = counted.longestPull()
		events := r.Judge.Of(history.KindNode, history.KindCordon, history.KindJournal, history.KindInstall, history.KindStage,
			history.KindKubelet, history.KindPull, history.KindConfig, history.KindComponent)

		if wanted.half == halfKubernetes {
			measured.best += kubernetesBest(events, slots)

			return
		}

		nodes := talosRoll(events)
		measured.best += nodes.best(slots)
		measured.away = nodes.onTheirWay(slots)
		measured.before = (nodes.firstCordon() - begun) / measured.took
	})

	if measured.took < measured.best {
		t.Errorf("%s: the roll took %.1f s, less than the best schedule of %.1f s", wanted, measured.took, measured.best)
	}

	measured.host = time.Since(started)

	return measured
}

// limit is a figure that must not exceed its bound or, if least is true, fall below it.
type limit struct {
	what         string
	found, bound float64
	least        bool
	// open is true if it is known that the bound is not reached.
	open bool
}

func (l limit) holds() bool {
	if l.least {
		return l.found >= l.bound
	}

	return l.found <= l.bound
}

func (l limit) wanted() string {
	if l.least {
		return fmt.Sprintf("at least %.2f", l.bound)
	}

	return fmt.Sprintf("at most %.2f", l.bound)
}

// limits returns the figures to reach, for the rolls that were measured.
func limits(all []figures) []limit {
	const (
		requestsOfThree, requestsOfFive = 120, 160
		growth                          = 1.1
		away, before                    = 0.95, 0.05
	)

	overBest := func(f figures) float64 {
		if f.controlPlanes == 3 && f.half != halfKubernetes {
			return 1.03
		}

		return 1.05
	}

	var (
		wanted []limit
		small  = map[string]figures{}
	)

	for _, f := range all {
		name := f.roll.String()

		most := float64(requestsOfThree)
		if f.controlPlanes > 3 {
			most = requestsOfFive
		}

		// Three of five nodes are control planes, whose upgrades observe one another.
		wanted = append(wanted, limit{what: name + ": Talos requests a node", found: f.talosANode(), bound: most, open: f.size() == "3+2"})

		if f.size() == "5+20" {
			small[f.half] = f
		}

		if before, found := small[f.half]; found && f.workers > 100 {
			wanted = append(wanted,
				limit{what: name + ": Talos requests a node over those of 5+20", found: f.talosANode() / before.talosANode(), bound: growth},
				limit{what: name + ": Kubernetes requests a node over those of 5+20", found: f.kubeANode() / before.kubeANode(), bound: growth})
		}

		// What is polled every five seconds is found two and a half seconds too late on average, and of a hundred
		// nodes in their turns only four at a time are observed before their cordon.
		open := f.half == halfLifecycle && (f.size() == "3+2" || f.workers > 500)
		wanted = append(wanted, limit{what: name + ": roll over the best schedule", found: f.overBest(), bound: overBest(f), open: open})

		if f.cordons() {
			wanted = append(wanted, limit{what: name + ": workers on their way over those allowed", found: f.away, bound: away, least: true})
		}

		// If there are no more than five nodes, one pull takes longer than that.
		if f.cordons() && f.size() != "3+2" {
			wanted = append(wanted, limit{what: name + ": time before the first cordon over that of the roll", found: f.before, bound: before})
		}
	}

	return wanted
}
