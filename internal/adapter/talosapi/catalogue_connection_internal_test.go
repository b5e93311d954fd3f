// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	dialRefused  = `connection error: desc = "transport: Error while dialing: dial tcp 10.5.0.5:50000: connect: connection refused"`
	dialTimedOut = `connection error: desc = "transport: Error while dialing: dial tcp 10.5.0.5:50000: i/o timeout"`
	noRoute      = `connection error: desc = "transport: Error while dialing: dial tcp 10.5.0.5:50000: connect: no route to host"`
	goAway       = `closing transport due to: connection error: desc = "error reading from server: EOF", ` +
		`received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too_many_pings"`
)

// changes are the calls that change a node, each with the method that it takes.
func changes(c *Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		wirePull: func(ctx context.Context) error {
			return c.Pull(ctx, catalogueNode, catalogueWant, cluster.LifecycleAPI)
		},
		wireOldPull: func(ctx context.Context) error { return c.Pull(ctx, catalogueNode, catalogueWant, cluster.LegacyAPI) },
		wireInstall: func(ctx context.Context) error { _, err := c.Install(ctx, catalogueNode, catalogueWant); return err },
		wireUpgrade: func(ctx context.Context) error {
			_, err := c.Upgrade(ctx, catalogueNode, catalogueWant, cluster.RebootDefault, nil)

			return err
		},
		wireReboot: func(ctx context.Context) error { return c.Reboot(ctx, catalogueNode, cluster.RebootDefault) },
	}
}

// sameAnswer is a node that gives every change the same answer.
func sameAnswer(answer wireAnswer) *wireNode {
	answers := map[string]wireAnswer{}
	for method := range changes(nil) {
		answers[method] = answer
	}

	return &wireNode{answers: answers}
}

// A proxy that cannot connect to a node has not done anything to it.
func TestCatalogue01NodeRefusesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{dialRefused, noRoute} {
			node := sameAnswer(ends(codes.Unavailable, text))
			c := node.client(t)

			for method, call := range changes(c) {
				only(cluster.ErrUnreachable, "10.5.0.5:50000").check(t, method, call(t.Context()))

				if count := len(node.of(method)); count != 1 {
					t.Errorf("%s was sent %d times", method, count)
				}
			}
		}
	})
}

// A node that swallows packets costs a look its deadline and no more; the proxy
// says after 20 s that it cannot connect, and at once as long as it pauses.
func TestCatalogue02NodeBlackHoled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := after(20*time.Second, ends(codes.Unavailable, dialTimedOut))
		node := &wireNode{answers: map[string]wireAnswer{
			wireStatus: slow, wireMembers: slow,
			wireVersion: sends(&machineapi.VersionResponse{}),
			wireReboot:  slow,
			wireInstall: inTurn(slow, ends(codes.Unavailable, dialTimedOut)),
		}}
		c := node.client(t)

		took := func(what string, most time.Duration, call func() error) {
			started := time.Now()
			err := call()

			only(cluster.ErrUnreachable).check(t, what, err)

			if passed := time.Since(started); passed > most {
				t.Errorf("%s: took %s, want at most %s", what, passed, most)
			}
		}

		took("a look", readTimeout+connectTimeout, func() error { _, err := c.Etcd(t.Context(), catalogueNode, true); return err })
		// What the proxy could not deliver has no effect: the node is not armed.
		took("a reboot", 21*time.Second, func() error { return c.Reboot(t.Context(), catalogueNode, cluster.RebootDefault) })
		took("an install", 21*time.Second, func() error { _, err := c.Install(t.Context(), catalogueNode, catalogueWant); return err })
		took("an install during the pause", time.Second, func() error { _, err := c.Install(t.Context(), catalogueNode, catalogueWant); return err })
	})
}

// The events of a legacy upgrade end in three ways when the node goes down. None
// of them says that the installer succeeded, or that it failed.
func TestCatalogue22RebootBreaksTheEvents(t *testing.T) {
	installing := &machineapi.PhaseEvent{Phase: installPhase, Action: machineapi.PhaseEvent_START}

	for name, end := range map[string]error{
		"broken":     status.Error(codes.Unavailable, "error reading from server: EOF"),
		"reset":      status.Error(codes.Unavailable, "error reading from server: read tcp 10.5.0.2:1->10.5.0.5:50000: read: connection reset by peer"),
		"clean":      nil,
		"cancelled":  status.Error(codes.Canceled, "context canceled"),
		"going away": status.Error(codes.Unavailable, "closing transport due to: connection error: desc = \"error reading from server: EOF\", received prior goaway: code: NO_ERROR"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := &wireNode{answers: map[string]wireAnswer{wireUpgrade: accepted(), wireEvents: thenEnds(end, event(t, installing))}}

				_, err := node.client(t).Upgrade(t.Context(), catalogueNode, catalogueWant, cluster.RebootDefault, nil)
				unknownOutcome("the node accepted").check(t, "legacy upgrade", err)

				if count := len(node.of(wireUpgrade)); count != 1 {
					t.Errorf("the upgrade was asked for %d times", count)
				}
			})
		})
	}
}

// What the caller gave up on may have happened all the same.
func TestCatalogue26CallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := sameAnswer(after(time.Hour, sends()))
		reason := errors.New("the run was stopped")

		for method, call := range changes(node.client(t)) {
			ctx, cancel := context.WithCancelCause(t.Context())
			timer := time.AfterFunc(3*time.Second, func() { cancel(reason) })

			err := call(ctx)
			unknownOutcome().check(t, method+" cancelled", err)

			if !errors.Is(err, reason) {
				t.Errorf("%s: %v, want it to say why it was cancelled", method, err)
			}

			bounded, end := context.WithTimeout(t.Context(), 3*time.Second)
			unknownOutcome().check(t, method+" in time", call(bounded))

			if !errors.Is(call(bounded), context.DeadlineExceeded) {
				t.Errorf("%s: the caller's own deadline is not named", method)
			}

			end()
			timer.Stop()
		}
	})
}

// A node closes connections that are pinged too often, which takes 40 s of
// silence. Ours are not: the events of a legacy upgrade may be silent for longer.
func TestCatalogue43KeepaliveIsNotTooAggressive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quiet = followTimeout - time.Minute

		next := &machineapi.PhaseEvent{Phase: "kexec", Action: machineapi.PhaseEvent_START}
		installing := &machineapi.PhaseEvent{Phase: installPhase, Action: machineapi.PhaseEvent_START}

		node := &wireNode{answers: map[string]wireAnswer{wireUpgrade: accepted(), wireEvents: func(stream grpc.ServerStream) error {
			if err := stream.SendMsg(event(t, installing)); err != nil {
				return err
			}

			return after(quiet, sends(event(t, next)))(stream)
		}}}
		started := time.Now()

		if result, err := node.client(t).Upgrade(t.Context(), catalogueNode, catalogueWant, cluster.RebootDefault, nil); err != nil || result.Exit != 0 {
			t.Errorf("after %s of silence: %+v, %v", time.Since(started), result, err)
		}

		if took := time.Since(started); took < quiet {
			t.Errorf("the silence lasted %s, want %s", took, quiet)
		}
	})

	// Where somebody on the way is stricter, it is a broken connection like any
	// other: a look is repeated once, and what was sent is looked for.
	synctest.Test(t, func(t *testing.T) {
		away := ends(codes.Unavailable, goAway)
		node := sameAnswer(away)
		node.answers[wireStatus] = inTurn(away, sends(etcdStatus(false)), ends(codes.Unavailable, goAway))
		node.answers[wireMembers] = sends(&machineapi.EtcdMemberListResponse{})
		c := node.client(t)

		if _, err := c.Etcd(t.Context(), catalogueNode, true); err != nil {
			t.Errorf("a look whose connection was closed once: %v", err)
		}

		_, err := c.Etcd(t.Context(), catalogueNode, true)
		only(cluster.ErrUnreachable, "too_many_pings").check(t, "a look whose connection is always closed", err)

		const looks = 4

		if count := len(node.of(wireStatus)); count != looks {
			t.Errorf("%d questions, want %d", count, looks)
		}

		for method, call := range changes(c) {
			unknownOutcome("too_many_pings").check(t, method, call(t.Context()))
		}
	})
}

// A clean end is no success where something has to come first.
func TestCatalogue22CleanEndHidesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &wireNode{answers: map[string]wireAnswer{
			wirePull:    sends(&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_PullProgress{}}),
			wireInstall: sends(said("copying\n")),
		}}
		c := node.client(t)

		if err := c.Pull(t.Context(), catalogueNode, catalogueWant, cluster.LifecycleAPI); !errors.Is(err, cluster.ErrOutcomeUnknown) || !errors.Is(err, io.EOF) {
			t.Errorf("pull: %v, want the outcome to be unknown", err)
		}

		done, err := c.Install(t.Context(), catalogueNode, catalogueWant)
		if !errors.Is(err, cluster.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "without an exit code") || len(done.Output) != 1 {
			t.Errorf("install: %+v, %v; want the outcome to be unknown, and what it said", done, err)
		}
	})
}
