// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// struck runs an upgrade that is struck once and survives, and fails the test unless it recovers without doing
// anything twice. It returns the process.
func (r *rig) struck(tested scenario, at aim) *process {
	r.T.Helper()

	p := r.start("run-1")

	wait, err := r.crashing(p, tested.request, at)
	wait()

	if err != nil {
		r.T.Fatalf("the run did not get over it: %v\n%s", err, r.Judge.Text())
	}

	if !r.tap.hit() {
		r.T.Fatalf("%s never came", at.point)
	}

	r.converged(tested.request)
	r.Once()

	return p
}

// some returns all cases, or the first one if there is no time for more.
func some[T any](cases ...T) []T {
	if few() {
		return cases[:1]
	}

	return cases
}

// unraced skips a test for which there is no time with the race detector. Other tests strike an upgrade even then.
func unraced(t *testing.T) {
	t.Helper()

	if raceEnabled {
		t.Skip("one upgrade takes some ten seconds with the race detector")
	}
}

// first returns the first request of its kind.
func first(method, node string) point { return point{Method: method, Node: node, Occurrence: 1} }

const (
	methodInstall = "LifecycleService/Upgrade"
	methodUpgrade = "MachineService/Upgrade"
	methodEvents  = "MachineService/Events"
	methodReboot  = "MachineService/Reboot"
)

// TestCatalogue22_LostEventsStreamIsNoEndOfTheInstall breaks the stream of events that reports the progress of a
// legacy upgrade, as a machine does that goes down at once, and ends it cleanly, as one does that stops its services
// first. Neither may be taken for the end of the installer, or for a failure.
func TestCatalogue22_LostEventsStreamIsNoEndOfTheInstall(t *testing.T) {
	unraced(t)

	for _, way := range some(replyLost, cutDuring, endedEarly) {
		t.Run(string(way), func(t *testing.T) {
			inBubble(t, string(way), legacyHop().given, func(r *rig) {
				r.struck(legacyHop(), aim{point: first(methodEvents, "worker-0"), variant: way, within: 2 * time.Second})
			})
		})
	}
}

// onlyEndpoint returns the talosconfig with a single endpoint.
func (r *rig) onlyEndpoint(address string) []byte {
	r.T.Helper()

	config, err := clientconfig.FromBytes(r.talosconfig)
	if err != nil {
		r.T.Fatal(err)
	}

	config.Contexts[config.Context].Endpoints = []string{address}

	text, err := config.Bytes()
	if err != nil {
		r.T.Fatal(err)
	}

	return text
}

// TestCatalogue23_EndpointMayBeTheRebootingNode has every endpoint reboot in its turn. If there are other endpoints,
// no node may be rebooted through itself; if there are none, the run has to wait for the endpoint to return, as for
// any node.
func TestCatalogue23_EndpointMayBeTheRebootingNode(t *testing.T) {
	unraced(t)

	t.Run("one of three", func(t *testing.T) {
		tested := lifecycleHop()

		inBubble(t, "one of three", tested.given, func(r *rig) {
			p := r.start("run-1")
			r.must(p, tested.request)

			for _, node := range []string{"cp-0", "cp-1", "cp-2"} {
				for _, method := range []string{methodInstall, methodReboot} {
					if through := r.tap.taker(first(method, node)); through == "" || through == node {
						r.T.Errorf("%s of %s was called through %q, want another endpoint", method, node, through)
					}
				}

				// The connection to a machine that rebooted was lost, and a new one was opened.
				if made := p.network.dialled(r.State(node).Address); made == 1 {
					r.T.Errorf("the endpoint %s was dialled once in spite of its reboot", node)
				}
			}

			r.converged(tested.request)
			r.Once()
		})
	})

	for _, tested := range some(lifecycleHop(), legacyHop()) {
		t.Run("the only one, "+tested.name, func(t *testing.T) {
			inBubble(t, tested.name, tested.given, func(r *rig) {
				p := r.startWith("run-1", r.onlyEndpoint(r.State("cp-0").Address))
				r.must(p, tested.request)
				r.converged(tested.request)
				r.Once()

				if made := p.network.dialled(r.State("cp-0").Address); made < 2 {
					r.T.Errorf("the endpoint was dialled %d times in spite of its reboot", made)
				}
			})
		})
	}

	t.Run("without power", func(t *testing.T) {
		tested := lifecycleHop()

		// Nothing tells the client that its preferred endpoint is gone: its requests go nowhere until its own
		// deadlines end them.
		inBubble(t, "without power", tested.given, func(r *rig) {
			p := r.start("run-1")
			lost := r.State("cp-2").Address

			r.struckBy(p, tested, aim{point: first("ImageService/Pull", "worker-1"), variant: meddled, within: inFlight, meddle: func() {
				p.network.silence(lost)
				time.AfterFunc(9*time.Minute, func() { p.network.revive(lost) })
			}})
		})
	})
}

// TestCatalogue25_ConnectionLostInMidInstallCausesNoSecond loses the connection over which an installer is followed:
// it breaks, or swallows what is sent. The installer keeps running and has to be waited for: a second one would
// overwrite the system to fall back to.
func TestCatalogue25_ConnectionLostInMidInstallCausesNoSecond(t *testing.T) {
	for _, node := range some("worker-0", "cp-0") {
		t.Run("broken, "+node, func(t *testing.T) {
			tested := lifecycleHop()

			inBubble(t, node, tested.given, func(r *rig) {
				r.struck(tested, aim{point: first(methodInstall, node), variant: cutDuring, within: 3 * time.Second})
				r.installedOnce(node)
			})
		})

		t.Run("half open, "+node, func(t *testing.T) {
			unraced(t)

			tested := lifecycleHop()

			inBubble(t, node, tested.given, func(r *rig) {
				p := r.start("run-1")
				at := aim{point: first(methodInstall, node), variant: meddled, within: 3 * time.Second}
				at.meddle = func() {
					address := r.State(r.tap.taker(at.point)).Address

					p.network.silence(address)
					time.AfterFunc(time.Hour, func() { p.network.revive(address) })
				}

				r.struckBy(p, tested, at)
				r.installedOnce(node)
			})
		})

		t.Run("broken at its end, "+node, func(t *testing.T) {
			unraced(t)

			tested := lifecycleHop()

			inBubble(t, node, tested.given, func(r *rig) {
				r.struck(tested, aim{point: first(methodInstall, node), variant: replyLost})
				r.installedOnce(node)
			})
		})
	}
}

// installedOnce fails the test unless one installer ran on the node, and one call
// asked for it.
func (r *rig) installedOnce(node string) {
	r.T.Helper()

	installs := 0

	for _, event := range r.Judge.Of(history.KindInstall) {
		if event.Node == node {
			installs++
		}
	}

	if installs != 1 {
		r.T.Errorf("%d installers ran on %s, want 1\n%s", installs, node, r.Judge.Text())
	}
}

// TestCatalogue26_CancelLeavesWhatTheNodeHasBegun cancels a run, as an interrupt does, while a node is at work for
// it. The run has to end in time without leaving its lease; the node goes on, and the next run has to continue from
// there.
func TestCatalogue26_CancelLeavesWhatTheNodeHasBegun(t *testing.T) {
	unraced(t)

	type interrupt struct {
		name     string
		scenario scenario
		at       point
	}

	for _, cancelled := range some(
		interrupt{"install", lifecycleHop(), first(methodInstall, "worker-0")},
		interrupt{"install on a control plane", lifecycleHop(), first(methodInstall, "cp-1")},
		interrupt{"pull", lifecycleHop(), first("ImageService/Pull", "worker-0")},
		interrupt{"reboot", lifecycleHop(), first(methodReboot, "worker-0")},
		interrupt{"legacy upgrade", legacyHop(), first(methodUpgrade, "worker-0")},
		interrupt{"following a legacy upgrade", legacyHop(), first(methodEvents, "cp-0")},
	) {
		t.Run(cancelled.name, func(t *testing.T) {
			inBubble(t, cancelled.name, cancelled.scenario.given, func(r *rig) { r.interrupted(cancelled.scenario, cancelled.at) })
		})
	}
}

func (r *rig) interrupted(tested scenario, at point) {
	const most = 15 * time.Second

	var since time.Time

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	p := r.start("run-1")
	r.tap.takeAim(aim{process: p.name, point: at, variant: meddled, within: 2 * time.Second, meddle: func() {
		since = time.Now()

		cancel()
	}})

	_, err := p.Upgrade(ctx, tested.request)

	switch took := time.Since(since); {
	case since.IsZero():
		r.T.Fatalf("%s never came: %v", at, err)
	case !errors.Is(err, context.Canceled):
		r.T.Errorf("the run ended with %v, want one that says that it was cancelled", err)
	case took > most:
		r.T.Errorf("the run went on for %s, want at most %s", took, most)
	}

	var failed *say.Failure
	if errors.As(err, &failed) && failed.State == "" {
		r.T.Errorf("the message does not say where the cluster stands: %v", err)
	}

	if err := p.close(); err != nil {
		r.T.Errorf("the last word: %v", err)
	}

	r.disconnected(p)

	if holder := r.Lease().Holder; holder != "" {
		r.T.Errorf("the lease is still held by %s", holder)
	}

	for name, node := range r.Judge.Verdict().Nodes {
		if node.Cordoned && name != at.Node {
			r.T.Errorf("%s is still cordoned", name)
		}
	}

	next := r.start("run-2")
	r.must(next, tested.request)
	r.converged(tested.request)
	r.Once()
}

// struckBy is [rig.struck] for a process that was started before.
func (r *rig) struckBy(p *process, tested scenario, at aim) {
	r.T.Helper()

	wait, err := r.crashing(p, tested.request, at)
	wait()

	if err != nil {
		r.T.Fatalf("the run did not get over it: %v\n%s", err, r.Judge.Text())
	}

	if !r.tap.hit() {
		r.T.Fatalf("%s never came", at.point)
	}

	r.disconnected(p)
	r.converged(tested.request)
	r.Once()
}
