// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func decode(t *testing.T, call wireCall, into proto.Message) {
	t.Helper()

	if err := proto.Unmarshal(call.request, into); err != nil {
		t.Fatal(err)
	}
}

// An installer that refuses says so in its output and ends the call well. What
// it says comes in chunks.
func TestCatalogue09InstallerRefusesTheVersion(t *testing.T) {
	const refusal = "host version 1.10.0 is too old to upgrade to Talos 1.13.0"

	for _, code := range []int32{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			node := &wireNode{answers: map[string]wireAnswer{wireInstall: sends(said("running preflight\nhost version 1.10.0 is too "), said("old to upgrade to Talos 1.13.0\n"), exited(code))}}

			done, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)
			if err != nil || done.Exit != code || !slices.Contains(done.Output, refusal) {
				t.Errorf("got %+v, %v; want exit code %d and %q", done, err, code, refusal)
			}
		})
	}
}

// An installer that crashed ends with a code of its own, or Talos says that it
// did. What it wrote before nobody knows, so that it counts as neither refused
// nor done.
func TestCatalogue10InstallerCrashes(t *testing.T) {
	for _, code := range []int32{6, 7, 137} {
		synctest.Test(t, func(t *testing.T) {
			node := &wireNode{answers: map[string]wireAnswer{wireInstall: sends(said("error writing to /dev/sda: input/output error\n"), exited(code))}}

			done, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)
			if err != nil || done.Exit != code || !strings.Contains(strings.Join(done.Output, " "), "input/output error") {
				t.Errorf("got %+v, %v; want exit code %d and what it said", done, err, code)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		const text = "upgrade failed: task exited with error: exit status 137"

		node := &wireNode{answers: map[string]wireAnswer{wireInstall: thenEnds(status.Error(codes.Internal, text), said("copying\n"))}}

		done, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)
		meant{heals: true, not: []error{cluster.ErrRefused, cluster.ErrBusy, cluster.ErrNotFound}, says: []string{text}}.check(t, "install", err)

		if !slices.Equal(done.Output, []string{"copying"}) {
			t.Errorf("what it said is lost: %q", done.Output)
		}
	})
}

// One installer at a time: the second call is refused and changes nothing, and
// whether the first is done can be asked without beginning another.
func TestCatalogue11ParallelUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "another installation/upgrade is already in progress"

		busy, still := ends(codes.FailedPrecondition, text), ends(codes.FailedPrecondition, text)
		node := &wireNode{answers: map[string]wireAnswer{wireInstall: inTurn(busy, still, ends(codes.InvalidArgument, "installer image name is required"))}}
		c := node.client(t)

		_, err := c.Install(t.Context(), catalogueNode, catalogueWant)
		only(cluster.ErrBusy, catalogueWant).check(t, "install", err)

		for _, want := range []bool{false, true} {
			if idle, err := c.InstallerIdle(t.Context(), catalogueNode); err != nil || idle != want {
				t.Errorf("idle is %t, %v; want %t", idle, err, want)
			}
		}

		for index, call := range node.of(wireInstall) {
			var request machineapi.LifecycleServiceUpgradeRequest

			decode(t, call, &request)

			if image := request.GetSource().GetImageName(); (image != "") != (index == 0) {
				t.Errorf("call %d named image %q: only the install may name one", index, image)
			}
		}
	})
}

// A stream that breaks while the installer runs tells nothing of its end. The
// installer goes on, which shows as busy, and is never begun again from here.
func TestCatalogue25ConnectionLostWhileInstalling(t *testing.T) {
	for name, end := range map[string]error{
		"broken":    status.Error(codes.Unavailable, "error reading from server: EOF"),
		"cancelled": status.Error(codes.Canceled, "context canceled"),
		"too late":  status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
		"clean":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := &wireNode{answers: map[string]wireAnswer{wireInstall: inTurn(
					thenEnds(end, said("copying\n")),
					ends(codes.FailedPrecondition, "another installation/upgrade is already in progress"),
					ends(codes.InvalidArgument, "installer image name is required"),
				)}}
				c := node.client(t)

				done, err := c.Install(t.Context(), catalogueNode, catalogueWant)

				want := unknownOutcome(catalogueWant)
				if end == nil {
					want.is = want.is[:1]
				}

				want.check(t, "install", err)

				if len(node.of(wireInstall)) != 1 || !slices.Equal(done.Output, []string{"copying"}) {
					t.Errorf("%d calls, and it said %q", len(node.of(wireInstall)), done.Output)
				}

				_, err = c.Install(t.Context(), catalogueNode, catalogueWant)
				only(cluster.ErrBusy).check(t, "another install", err)

				if idle, err := c.InstallerIdle(t.Context(), catalogueNode); err != nil || !idle {
					t.Errorf("afterwards: idle is %t, %v", idle, err)
				}
			})
		})
	}
}

// A legacy upgrade that fails before its installer says so in an event, and the
// node reboots into its old system.
func TestCatalogue20SequenceFailsBeforeTheInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "sequence failed: error running phase 1 in upgrade sequence: task 1/1: failed, failed to cordon node"

		node := &wireNode{answers: map[string]wireAnswer{wireUpgrade: accepted(), wireEvents: thenEnds(
			status.Error(codes.Unavailable, "error reading from server: EOF"),
			event(t, &machineapi.SequenceEvent{Sequence: "boot", Action: machineapi.SequenceEvent_STOP}),
			event(t, &machineapi.PhaseEvent{Phase: "drain", Action: machineapi.PhaseEvent_START}),
			event(t, &machineapi.SequenceEvent{
				Sequence: upgradeSequence, Action: machineapi.SequenceEvent_NOOP, Error: &common.Error{Code: common.Code_FATAL, Message: text},
			}),
		)}}

		result, err := node.client(t).Upgrade(t.Context(), catalogueNode, catalogueWant, cluster.RebootDefault, nil)
		if err != nil || result.Exit == 0 || !slices.Equal(result.Output, []string{text}) {
			t.Errorf("got %+v, %v; want a failure that says %q", result, err, text)
		}
	})
}

// A legacy upgrade that another sequence keeps from starting was accepted, and
// never happens: nothing reboots, so nobody may wait for that. Nodes publish the
// reason without the actor, so that it does not pass the filter.
func TestCatalogue21SequenceLocked(t *testing.T) {
	locked := event(t, &machineapi.SequenceEvent{
		Sequence: upgradeSequence, Action: machineapi.SequenceEvent_NOOP,
		Error: &common.Error{Code: common.Code_LOCKED, Message: "sequence not started: locked"},
	})

	for name, test := range map[string]struct {
		events []proto.Message
		want   meant
		most   time.Duration
	}{
		"unsaid": {[]proto.Message{&machineapi.Event{}}, unknownOutcome("it had not begun after 1m30s"), 2 * time.Minute},
		"said":   {[]proto.Message{&machineapi.Event{}, locked}, only(cluster.ErrBusy, "sequence not started: locked", catalogueWant), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := &wireNode{answers: map[string]wireAnswer{
					wireUpgrade: accepted(), wireVersion: sends(&machineapi.VersionResponse{}),
					wireEvents: func(stream grpc.ServerStream) error {
						if err := sends(test.events...)(stream); err != nil {
							return err
						}

						return after(time.Hour, sends())(stream)
					},
				}}
				started := time.Now()

				_, err := node.client(t).Upgrade(t.Context(), catalogueNode, catalogueWant, cluster.RebootDefault, nil)
				test.want.check(t, "legacy upgrade", err)

				if took := time.Since(started); took > test.most {
					t.Errorf("it took %s to give up", took)
				}
			})
		})
	}
}

// Staged upgrades take two boots, and of the switches each turns a check off: we
// never ask for any of them.
func TestCatalogue41NeverStaged(t *testing.T) {
	for mode, want := range map[cluster.RebootMode]machineapi.UpgradeRequest_RebootMode{
		cluster.RebootDefault:    machineapi.UpgradeRequest_DEFAULT,
		cluster.RebootPowercycle: machineapi.UpgradeRequest_POWERCYCLE,
	} {
		synctest.Test(t, func(t *testing.T) {
			node := &wireNode{answers: map[string]wireAnswer{wireUpgrade: ends(codes.Unknown, "error validating installer image: x")}}

			_, err := node.client(t).Upgrade(t.Context(), catalogueNode, catalogueWant, mode, nil)
			only(cluster.ErrRefused).check(t, "legacy upgrade", err)

			var request machineapi.UpgradeRequest

			decode(t, node.of(wireUpgrade)[0], &request)

			if !proto.Equal(&request, &machineapi.UpgradeRequest{Image: catalogueWant, RebootMode: want}) {
				t.Errorf("asked for %v", &request)
			}
		})
	}
}
