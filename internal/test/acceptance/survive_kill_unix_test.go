// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	// seedVariable repeats the moments of another run.
	seedVariable = "TALOSUPGRADE_SEED"
	// killRounds is how many applies are killed.
	killRounds = 20
	// hurried is how many simulated seconds pass in a real one while applies are
	// killed: nobody has to watch somebody alive.
	hurried = 240
)

// seed is the one that was asked for, or a new one.
func seed(t *testing.T) uint64 {
	t.Helper()

	text := os.Getenv(seedVariable)
	if text == "" {
		return rand.Uint64()
	}

	chosen, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", seedVariable, err)
	}

	return chosen
}

// moment is when a run is killed: when so many things have happened, after it had
// the lease, that bring the cluster further.
type moment struct {
	after int
	// early counts what a run does before it gets anywhere as well.
	early bool
}

// drawMoment prefers the middle of a turn. About every fifth run does not get as
// far as that.
func drawMoment(random *rand.Rand) moment {
	if random.IntN(5) == 0 {
		return moment{after: random.IntN(12), early: true}
	}

	return moment{after: 1 + random.IntN(12)}
}

func (m moment) String() string {
	if m.early {
		return fmt.Sprintf("after %d events of any kind", m.after)
	}

	return fmt.Sprintf("after %d steps", m.after)
}

// counts tells whether the event is one of those that are counted.
func (m moment) counts(event history.Event) bool {
	switch event.Kind {
	case history.KindCordon, history.KindInstall, history.KindDown, history.KindBoot, history.KindComponent, history.KindConfig:
		return true
	case history.KindEvict:
		return event.Detail["outcome"] == "evicted"
	case history.KindKubelet:
		return event.Detail["ready"] == "true"
	case history.KindJournal, history.KindPull, history.KindAnnotation, history.KindWrite, history.KindStage, history.KindLease:
		return m.early || event.Kind == history.KindJournal
	default:
		return false
	}
}

// killed starts an apply and kills it, the CLI and the provider at once, at the
// moment. It tells whether the run came to its end before that, and how.
func (w *workspace) killed(s *simulated, at moment) (ended bool, last result) {
	w.t.Helper()
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	exited := make(chan error, 1)

	go func() { exited <- run.cmd.Wait() }()

	timeout := time.After(awaitPatience)
	seen, leased := 0, false

	for {
		select {
		case event := <-s.events:
			leased = leased || event.Kind == history.KindLease && event.Detail["action"] == "acquire"
			if leased && at.counts(event) {
				seen++
			}

			if !leased || seen < at.after {
				continue
			}

			w.t.Logf("killed %s: %s %s %s%s", at, event.Kind, event.Node, event.Detail["phase"], event.Detail["component"])
			// A run that ended by itself just now is told by its exit code.
			_ = syscall.Kill(-run.cmd.Process.Pid, syscall.SIGKILL)
			err := <-exited
			run.cancel()

			last = w.read(run.output.Bytes(), err)

			return last.exit >= 0, last
		case err := <-exited:
			run.cancel()

			return true, w.read(run.output.Bytes(), err)
		case <-timeout:
			_ = syscall.Kill(-run.cmd.Process.Pid, syscall.SIGKILL)
			err := <-exited
			w.t.Fatalf("%s: only %d of them happened within %s; the run had the lease: %t; it ended with %v\n%s",
				at, seen, awaitPatience, leased, err, run.output.String())
		}
	}
}

// TestAccKilledTwentyTimes kills apply after apply of one cluster, at moments drawn
// from a seed, and then lets one come to its end.
func TestAccKilledTwentyTimes(t *testing.T) {
	full(t)

	drawn := seed(t)
	t.Logf("%s=%d repeats the moments", seedVariable, drawn)

	random := rand.New(rand.NewPCG(drawn, 0)) //nolint:gosec // moments, not secrets
	s := start(t, sim.Options{ControlPlanes: 3, Workers: 2, Talos: talosModern, Pods: 4, Speed: hurried, Seed: drawn})
	w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, hurried))

	w.write(use(s), "talos_version = "+quote(talosModern)+"\nkubernetes_version = "+quote(kubernetes)+guarded)
	w.apply().mustSucceed(0)
	s.unchanged()

	w.write(use(s), "talos_version = "+quote(talosTarget)+"\nkubernetes_version = "+quote(kubernetesTarget)+guarded)

	kills, began := 0, time.Now()

	for range killRounds {
		at := drawMoment(random)

		ended, last := w.killed(s, at)
		if ended {
			last.mustSucceed(0)
			t.Logf("the run came to its end before it was killed %s", at)

			break
		}

		kills++

		if state := w.attributes(); state["talos_version"] != talosModern || state["kubernetes_version"] != kubernetes {
			t.Fatalf("killed %s: the state wants Talos %v and Kubernetes %v", at, state["talos_version"], state["kubernetes_version"])
		}
	}

	w.apply().mustSucceed(0)
	t.Logf("killed %d times, converged after %s", kills, time.Since(began).Round(time.Second))

	if kills < killRounds*3/4 {
		t.Errorf("only %d of %d runs were killed", kills, killRounds)
	}

	s.wantUpgraded(talosTarget, nil)
	// Never installed over, whatever happened to the run.
	s.times(once(3, 2))
	s.wantKubernetes(kubernetesTarget)
	s.nothingLeft()
	w.mustPlan()
}
