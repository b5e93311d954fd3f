// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	dialRefused  = `connection error: desc = "transport: Error while dialing: dial tcp 10.5.0.5:50000: connect: connection refused"`
	dialTimedOut = `connection error: desc = "transport: Error while dialing: dial tcp 10.5.0.5:50000: i/o timeout"`
	noRoute      = `connection error: desc = "transport: Error while dialing: dial tcp 10.5.0.5:50000: connect: no route to host"`
	goAway       = `closing transport due to: connection error: desc = "error reading from server: EOF", ` +
		`received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too_many_pings"`
)

// changes returns the calls that change a node, each with the method that it takes.
func changes(c *Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		wirePull: func(ctx context.Context) error {
			return c.PullToInstall(ctx, catalogueNode, catalogueWant)
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

// sameAnswer returns a node that gives every change the same answer.
func sameAnswer(answer wireAnswer) *wireNode {
	answers := map[string]wireAnswer{}
	for method := range changes(nil) {
		answers[method] = answer
	}

	return &wireNode{answers: answers}
}

// A proxy that cannot connect to a node has not done anything to it.
func TestCatalogue01_NodeRefusesConnections(t *testing.T) {
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

// A node that drops packets costs a look its deadline and no more. The proxy says after 20 s that it cannot connect,
// and at once while it backs off.
func TestCatalogue02_NodeBlackHoled(t *testing.T) {
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

// The events of a legacy upgrade end in three ways when the node goes down. None of them shows whether the installer
// succeeded.
func TestCatalogue22_RebootBreaksTheEvents(t *testing.T) {
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

// A call that the caller gave up may have taken effect.
func TestCatalogue26_CallerGivesUp(t *testing.T) {
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

// A node closes connections that are pinged too often, as after 40 s of silence. It does not close ours: the events
// of a legacy upgrade may be silent for longer.
func TestCatalogue43_KeepaliveIsNotTooAggressive(t *testing.T) {
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

	// If something on the way is stricter, the connection breaks like any other: a look is repeated once, and what
	// was sent is looked for.
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

// A clean end is not a success if something has to come first.
func TestCatalogue22_CleanEndWithoutAResultIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &wireNode{answers: map[string]wireAnswer{
			wirePull:    sends(&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_PullProgress{}}),
			wireInstall: sends(said("copying\n")),
		}}
		c := node.client(t)

		if err := c.PullToInstall(t.Context(), catalogueNode, catalogueWant); !errors.Is(err, cluster.ErrOutcomeUnknown) || !errors.Is(err, io.EOF) {
			t.Errorf("pull: %v, want the outcome to be unknown", err)
		}

		done, err := c.Install(t.Context(), catalogueNode, catalogueWant)
		if !errors.Is(err, cluster.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "without an exit code") || len(done.Output) != 1 {
			t.Errorf("install: %+v, %v; want the outcome to be unknown, and what it said", done, err)
		}
	})
}

// member returns the answer of a voter with the given status.
func member(status *machineapi.EtcdMemberStatus) *machineapi.EtcdStatusResponse {
	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: status}}}
}

// etcdNode returns a healthy control plane, except for the answers that are replaced.
func etcdNode(replaced map[string]wireAnswer) *wireNode {
	node := &wireNode{answers: map[string]wireAnswer{
		wireVersion: sends(&machineapi.VersionResponse{}),
		wireStatus:  sends(member(&machineapi.EtcdMemberStatus{MemberId: 7, Leader: 7})),
		wireMembers: sends(&machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{{
			Members: []*machineapi.EtcdMember{{Id: 7, Hostname: "cp-0"}},
		}}}),
	}}

	for method, answer := range replaced {
		node.answers[method] = answer
	}

	return node
}

// refusedUpgrade makes a node refuse a legacy upgrade before it has done anything.
func refusedUpgrade(t *testing.T, code codes.Code, text string) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		node := &wireNode{answers: map[string]wireAnswer{wireUpgrade: ends(code, text)}}

		_, err := node.client(t).Upgrade(t.Context(), catalogueNode, catalogueWant, cluster.RebootDefault, nil)
		only(cluster.ErrRefused, cluster.Plain(text), catalogueWant).check(t, text, err)

		if asked, followed := len(node.of(wireUpgrade)), len(node.of(wireEvents)); asked != 1 || followed != 0 {
			t.Errorf("asked for %d times and followed %d times", asked, followed)
		}
	})
}

func TestCatalogue12_LegacyEtcdChecks(t *testing.T) {
	for _, text := range []string{
		"error validating etcd for upgrade: etcd member count(2) is insufficient to maintain quorum if upgrade commences",
		"error validating etcd for upgrade: etcd member 0000000000000007 is not started, all members must be running to perform an upgrade",
		"error validating etcd for upgrade: etcd member 0000000000000007 is not healthy; all members must be healthy to perform an upgrade: context deadline exceeded",
	} {
		refusedUpgrade(t, codes.Unknown, text)
	}
}

func TestCatalogue13_UpgradeMutexHeld(t *testing.T) {
	refusedUpgrade(t, codes.Unknown, "failed to acquire upgrade mutex: error trying to lock etcd upgrade mutex: mutex: Locked by another session")
	refusedUpgrade(t, codes.Unknown, "failed to create etcd client: error building etcd client: context deadline exceeded")
}

// Without a leader, no member lists the members. The status of a member that answers nevertheless says that it has
// no leader.
func TestCatalogue14_EtcdWithoutQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := etcdNode(map[string]wireAnswer{wireMembers: ends(codes.Unavailable, noLeader)}).client(t).Etcd(t.Context(), catalogueNode, true)
		only(cluster.ErrQuorum, noLeader).check(t, "no leader", err)
	})

	synctest.Test(t, func(t *testing.T) {
		_, err := etcdNode(map[string]wireAnswer{wireMembers: ends(codes.DeadlineExceeded, "context deadline exceeded")}).client(t).Etcd(t.Context(), catalogueNode, true)
		only(cluster.ErrUnreachable).check(t, "in time", err)
	})

	synctest.Test(t, func(t *testing.T) {
		alone := member(&machineapi.EtcdMemberStatus{MemberId: 7, Errors: []string{noLeader}})

		view, err := etcdNode(map[string]wireAnswer{wireStatus: sends(alone)}).client(t).Etcd(t.Context(), catalogueNode, true)
		if err != nil || view.Status.Leader != 0 || !slices.Equal(view.Status.Errors, []string{noLeader}) {
			t.Errorf("got %+v, %v; want a member that follows nobody", view, err)
		}
	})
}

// A database without space raises an alarm, which the member repeats.
func TestCatalogue15_NoSpaceAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const repeated = "memberID:7 alarm:NOSPACE "

		view, err := etcdNode(map[string]wireAnswer{
			wireStatus: sends(member(&machineapi.EtcdMemberStatus{MemberId: 7, Leader: 7, Errors: []string{repeated}})),
		}).client(t).Etcd(t.Context(), catalogueNode, true)

		if err != nil || !slices.Equal(view.Status.Errors, []string{repeated}) {
			t.Errorf("got %+v, %v; want the alarm", view, err)
		}
	})

	// The lock of a legacy upgrade is a write. Talos may pass on the code of etcd.
	for _, code := range []codes.Code{codes.Unknown, codes.ResourceExhausted} {
		refusedUpgrade(t, code, "failed to acquire upgrade mutex: error trying to lock etcd upgrade mutex: etcdserver: mvcc: database space exceeded")
	}
}

// A learner refuses linearizable reads; its own status is enough.
func TestCatalogue16_Learner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := ends(codes.Unavailable, notForLearners)

		view, err := etcdNode(map[string]wireAnswer{
			wireStatus:  sends(member(&machineapi.EtcdMemberStatus{MemberId: 7, Leader: 1, IsLearner: true})),
			wireMembers: refusal,
		}).client(t).Etcd(t.Context(), catalogueNode, true)

		if err != nil || !view.Status.Learner || !view.Mute() {
			t.Errorf("got %+v, %v; want a learner", view, err)
		}
	})
}

// A member that is rejoining does not answer yet. That is not a refusal, and says nothing about quorum.
func TestCatalogue17_MemberSlowToRejoin(t *testing.T) {
	for text, code := range map[string]codes.Code{
		"failed to create etcd client: error building etcd client: context deadline exceeded":                                                                codes.Unknown,
		"failed to create etcd client: context deadline exceeded":                                                                                            codes.Unavailable,
		`connection error: desc = "transport: Error while dialing: dial unix /system/etcd.sock: connect: connection refused"`:                                codes.Unavailable,
		`rpc error: code = Unavailable desc = last connection error: connection error: desc = "transport: Error while dialing: connect: connection refused"`: codes.Unavailable,
	} {
		synctest.Test(t, func(t *testing.T) {
			_, err := etcdNode(map[string]wireAnswer{wireStatus: ends(code, text)}).client(t).Etcd(t.Context(), catalogueNode, true)
			if !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrQuorum) || !cluster.Heals(err) || !strings.Contains(err.Error(), catalogueNode) {
				t.Errorf("%s: %v, want it unreachable", text, err)
			}
		})
	}
}

// failedPull begins the message of a node about a failed pull.
const failedPull = `failed to pull image "` + catalogueWant + `": `

// frame returns a progress message of a pull, which need not contain any progress.
func frame() *machineapi.ImageServicePullResponse {
	return &machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_PullProgress{
		PullProgress: &machineapi.ImageServicePullProgress{LayerId: "sha256:1", Progress: &machineapi.ImageServicePullLayerProgress{Offset: 1 << 20, Total: 100 << 20}},
	}}
}

func pulledImage() *machineapi.ImageServicePullResponse {
	return &machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_Name{Name: catalogueWant + "@sha256:1"}}
}

// pulls returns the ways to bring an image onto a node.
func pulls(c *Client) map[string]func(context.Context) error {
	all := changes(c)
	delete(all, wireReboot)
	delete(all, wireInstall)

	return all
}

// Waiting does not help if an image does not exist, whichever call pulls it.
func TestCatalogue04_ImageNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &wireNode{answers: map[string]wireAnswer{
			wirePull:    ends(codes.NotFound, "error pulling image: "+failedPull+"failed to resolve image: "+catalogueWant+": not found"),
			wireOldPull: ends(codes.Unknown, failedPull+"failed to resolve reference: "+catalogueWant+": not found"),
			wireUpgrade: ends(codes.Unknown, `error validating installer image "`+catalogueWant+`": `+failedPull+catalogueWant+": not found"),
		}}

		for method, call := range pulls(node.client(t)) {
			only(cluster.ErrNotFound, catalogueWant).check(t, method, call(t.Context()))

			if count := len(node.of(method)); count != 1 {
				t.Errorf("%s was sent %d times", method, count)
			}
		}
	})
}

// A registry that is down may heal; either way, nothing was done. Talos 1.13 retries for 20 minutes in silence, 1.14
// says so at once.
func TestCatalogue05_RegistryDown(t *testing.T) {
	for name, text := range map[string]string{
		"down":   "failed to do request: dial tcp 1.2.3.4:443: connect: connection refused",
		"broken": "unexpected status from HEAD request: 503 Service Unavailable",
		"busy":   "unexpected status from HEAD request: 429 Too Many Requests",
	} {
		for age, pause := range map[string]time.Duration{"1.13": 20 * time.Minute, "1.14": time.Second} {
			t.Run(name+" "+age, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					node := sameAnswer(after(pause, ends(codes.Unknown, failedPull+text)))
					c := node.client(t)

					for _, method := range []string{wirePull, wireOldPull} {
						err := changes(c)[method](t.Context())
						meant{heals: true, not: []error{cluster.ErrNotFound, cluster.ErrRefused, cluster.ErrOutcomeUnknown}, says: []string{text}}.check(t, method, err)
					}
				})
			})
		}
	}
}

// Waiting does not help if the image is forbidden or none is requested.
func TestCatalogue05_RegistrySaysNo(t *testing.T) {
	for _, text := range []string{
		failedPull + "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
		failedPull + "unexpected status from HEAD request: 403 Forbidden",
		`failed to parse image reference "` + catalogueWant + `": invalid reference format`,
	} {
		synctest.Test(t, func(t *testing.T) {
			node := sameAnswer(ends(codes.Unknown, text))

			for method, call := range pulls(node.client(t)) {
				only(cluster.ErrRefused, text).check(t, method, call(t.Context()))
			}
		})
	}
}

// A node that verifies images refuses permanently.
func TestCatalogue06_SignatureDenied(t *testing.T) {
	for _, text := range []string{
		"verification denied by matched rule (0010-registry)",
		"image verification failed: no matching signatures: invalid signature when validating ASN.1 encoded signature",
	} {
		synctest.Test(t, func(t *testing.T) {
			node := sameAnswer(ends(codes.Unknown, text))
			node.answers[wireUpgrade] = ends(codes.Unknown, `error validating installer image "`+catalogueWant+`": `+text)

			for method, call := range pulls(node.client(t)) {
				only(cluster.ErrRefused, text).check(t, method, call(t.Context()))
			}
		})
	}
}

// Identical frames are neither progress nor an end: what counts is the name that comes last, and the deadline.
func TestCatalogue07_SlowPull(t *testing.T) {
	for name, test := range map[string]struct {
		frames int
		last   bool
	}{
		"in the end": {280, true},
		"never":      {400, true},
		"no name":    {280, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := &wireNode{answers: map[string]wireAnswer{wirePull: func(stream grpc.ServerStream) error {
					for range test.frames {
						if err := after(5*time.Second, sends(frame()))(stream); err != nil {
							return err
						}
					}

					if test.last {
						return sends(pulledImage())(stream)
					}

					return nil
				}}}
				started := time.Now()
				err := node.client(t).PullToInstall(t.Context(), catalogueNode, catalogueWant)

				if name == "in the end" && err != nil {
					t.Errorf("after %s: %v", time.Since(started), err)
				}

				if name != "in the end" {
					unknownOutcome().check(t, "pull", err)
				}

				if took := time.Since(started); took > cluster.PullTimeout+time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// An installer image that does not exist was not run.
func TestCatalogue08_ImageNotPulled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := `upgrade failed: installer image "` + catalogueWant + `" not found in containerd store: image "x": not found`
		node := &wireNode{answers: map[string]wireAnswer{wireInstall: ends(codes.Internal, text)}}

		_, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)
		only(cluster.ErrRefused, "not found in containerd store").check(t, "install", err)
	})

	// Pull and install name the same containerd: otherwise install would not find what was pulled.
	synctest.Test(t, func(t *testing.T) {
		node := &wireNode{answers: map[string]wireAnswer{wirePull: sends(pulledImage()), wireInstall: sends(exited(0))}}
		c := node.client(t)

		if err := c.PullToInstall(t.Context(), catalogueNode, catalogueWant); err != nil {
			t.Fatal(err)
		}

		if _, err := c.Install(t.Context(), catalogueNode, catalogueWant); err != nil {
			t.Fatal(err)
		}

		var (
			pull    machineapi.ImageServicePullRequest
			install machineapi.LifecycleServiceUpgradeRequest
		)

		decode(t, node.of(wirePull)[0], &pull)
		decode(t, node.of(wireInstall)[0], &install)

		if pull.GetContainerd().String() != install.GetContainerd().String() || pull.GetContainerd().GetDriver() != common.ContainerDriver_CONTAINERD {
			t.Errorf("pulled into %v, installed from %v", pull.GetContainerd(), install.GetContainerd())
		}

		if pull.GetImageRef() != install.GetSource().GetImageName() {
			t.Errorf("pulled %q, installed %q", pull.GetImageRef(), install.GetSource().GetImageName())
		}
	})
}

// A full disk does not become empty by trying again.
func TestCatalogue40_DiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := failedPull + "failed to extract layer sha256:1: write /var/lib/containerd/io.containerd.snapshotter: no space left on device"
		node := sameAnswer(ends(codes.Unknown, text))
		node.answers[wireUpgrade] = ends(codes.Unknown, `error validating installer image "`+catalogueWant+`": `+text)

		for method, call := range pulls(node.client(t)) {
			only(cluster.ErrRefused, "no space left on device", catalogueWant).check(t, method, call(t.Context()))
		}
	})

	// After an installer has begun, the error does not show what was written.
	synctest.Test(t, func(t *testing.T) {
		node := sameAnswer(ends(codes.Internal, "upgrade failed: task exited with error: no space left on device"))

		_, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)
		if errors.Is(err, cluster.ErrRefused) || !cluster.Heals(err) {
			t.Errorf("install: %v, want it left open", err)
		}
	})
}

func decode(t *testing.T, call wireCall, into proto.Message) {
	t.Helper()

	if err := proto.Unmarshal(call.request, into); err != nil {
		t.Fatal(err)
	}
}

// An installer that refuses says so in its output, and the call ends without an error. The output comes in chunks.
func TestCatalogue09_InstallerRefusesTheVersion(t *testing.T) {
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

// An installer that crashed ends with an exit code of its own, or Talos reports the crash. What it wrote before is
// not known, so it counts as neither refused nor done.
func TestCatalogue10_InstallerCrashes(t *testing.T) {
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

// Only one installer runs at a time: the second call is refused and changes nothing, and it is possible to ask
// whether the first is done without beginning another.
func TestCatalogue11_ParallelUpgrade(t *testing.T) {
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

// A stream that breaks while the installer runs does not show how it ends. The installer goes on, which shows as
// busy, and is never started again from here.
func TestCatalogue25_ConnectionLostWhileInstalling(t *testing.T) {
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

// A node that loses its power closes no connection, so the node that proxies the call goes on waiting for its
// installer. The node itself knows once it is up again that no installer runs.
func TestCatalogue25_PowerLostWhileInstalling(t *testing.T) {
	idle, busy := ends(codes.InvalidArgument, "installer image name is required"), ends(codes.FailedPrecondition, "another installation/upgrade is already in progress")
	away := ends(codes.Unavailable, "connection error: desc = dial tcp 10.5.0.3:50000: i/o timeout")

	const never = 24 * time.Hour

	for name, wanted := range map[string]struct {
		answers []wireAnswer
		within  time.Duration
		lost    bool
	}{
		"up again":        {[]wireAnswer{after(never, sends()), away, idle, idle}, 4 * time.Minute, true},
		"slow and silent": {[]wireAnswer{after(5*time.Minute, sends(exited(0))), busy}, 6 * time.Minute, false},
		"done meanwhile":  {[]wireAnswer{after(61*time.Second, sends(exited(0))), idle}, 2 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node, begun := &wireNode{answers: map[string]wireAnswer{wireInstall: inTurn(wanted.answers...)}}, time.Now()

				done, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)

				if wanted.lost {
					unknownOutcome(catalogueWant, "no installer runs").check(t, "install", err)
				} else if err != nil || done.Exit != 0 {
					t.Errorf("got %+v, %v; want exit code 0", done, err)
				}

				if took := time.Since(begun); took > wanted.within {
					t.Errorf("it took %s, want at most %s", took, wanted.within)
				}
			})
		})
	}
}

// A legacy upgrade that fails before its installer says so in an event, and the node reboots into its previous
// system.
func TestCatalogue20_SequenceFailsBeforeTheInstall(t *testing.T) {
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

// A legacy upgrade that another sequence blocks was accepted but never happens: nothing reboots, so nothing may wait
// for that. Nodes publish the reason without the actor, so it does not pass the filter.
func TestCatalogue21_SequenceLocked(t *testing.T) {
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

// Staged upgrades take two boots, and each of the other switches turns a check off: we never request any of them.
func TestCatalogue41_NeverStaged(t *testing.T) {
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

// check fails the test unless the error has the expected meaning, and its text names the node.
func (m meant) check(t *testing.T, what string, err error) {
	t.Helper()

	if err == nil {
		t.Errorf("%s: no error, want %v", what, m.is)

		return
	}

	for _, sentinel := range m.is {
		if !errors.Is(err, sentinel) {
			t.Errorf("%s: %v, want it to be %q", what, err, sentinel)
		}
	}

	for _, sentinel := range m.not {
		if errors.Is(err, sentinel) {
			t.Errorf("%s: %v, want it not to be %q", what, err, sentinel)
		}
	}

	if heals := cluster.Heals(err); heals != m.heals {
		t.Errorf("%s: %v: heals is %t, want %t", what, err, heals, m.heals)
	}

	for _, part := range append([]string{"node " + catalogueNode}, m.says...) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want it to say %q", what, err, part)
		}
	}

	if strings.Contains(err.Error(), "rpc error") {
		t.Errorf("%s: the text is gRPC's own: %v", what, err)
	}
}

// The other side goes by its own clock. Only its earlier answers show whether it means the clock; if the certificate
// has expired by our clock, none do.
func TestCatalogue28_OtherSideTakesOursForExpired(t *testing.T) {
	t.Parallel()

	expired := status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: remote error: tls: expired certificate"`)

	for name, test := range map[string]struct {
		proven bool
		valid  time.Duration
		want   error
		says   string
	}{
		"never accepted":          {false, time.Hour, cluster.ErrCredentials, "a clock is wrong"},
		"accepted before":         {true, time.Hour, cluster.ErrUnreachable, "a clock is wrong"},
		"expired by ours as well": {true, -time.Hour, cluster.ErrCredentials, "the client certificate expired on"},
	} {
		c := &Client{config: Config{certificate: Certificate{notAfter: time.Now().Add(test.valid)}}}
		c.proven.Store(test.proven)

		err := c.explain(context.Background(), operation{what: "look at node " + catalogueNode}, &endpoint{name: "10.5.0.2"}, false, expired)
		only(test.want, test.says).check(t, name, err)
	}
}

// An endpoint that is a worker forwards nothing, which is about the endpoint and
// not about the node; and a worker has no etcd.
func TestCatalogue24_EndpointIsAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := sameAnswer(ends(codes.PermissionDenied, "no request forwarding"))

		for method, call := range changes(node.client(t)) {
			only(cluster.ErrDenied, "endpoints must be control planes").check(t, method, call(t.Context()))
		}
	})

	synctest.Test(t, func(t *testing.T) {
		unimplemented := ends(codes.Unimplemented, "etcd status is only available on control plane nodes")

		_, err := etcdNode(map[string]wireAnswer{wireStatus: unimplemented, wireMembers: unimplemented}).client(t).Etcd(t.Context(), catalogueNode, true)
		only(cluster.ErrUnsupported, "only available on control plane nodes").check(t, "etcd", err)
	})
}

// Roles are refused before anything is done, whichever way the call answers.
func TestCatalogue29_RoleMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := sameAnswer(ends(codes.PermissionDenied, "not authorized"))

		for method, call := range changes(node.client(t)) {
			only(cluster.ErrDenied, "not authorized").check(t, method, call(t.Context()))
		}
	})
}

// An old node does not know new calls, and denies unknown resources in the same words as those that are not for us.
func TestCatalogue30_OldNodeNewCall(t *testing.T) {
	for _, text := range []string{"unknown service machine.LifecycleService", "method Upgrade not implemented"} {
		synctest.Test(t, func(t *testing.T) {
			node := &wireNode{answers: map[string]wireAnswer{wireInstall: ends(codes.Unimplemented, text)}}
			c := node.client(t)

			_, err := c.Install(t.Context(), catalogueNode, catalogueWant)
			only(cluster.ErrUnsupported, text).check(t, "install", err)

			if _, err = c.InstallerIdle(t.Context(), catalogueNode); err != nil {
				only(cluster.ErrUnsupported, text).check(t, "installer", err)
			} else {
				t.Error("an installer that does not exist is idle")
			}

			if count := len(node.of(wireUpgrade)); count != 0 {
				t.Errorf("%d legacy upgrades: only the version decides", count)
			}
		})
	}

	for _, text := range []string{
		`resource type "ImageFactorySchematics.runtime.talos.dev" is not supported`, `namespace "runtime" is not supported`, "not authorized",
	} {
		synctest.Test(t, func(t *testing.T) {
			node := &wireNode{answers: map[string]wireAnswer{wireGet: ends(codes.PermissionDenied, text)}}

			found, err := node.client(t).resource(t.Context(), catalogueNode, kindImageSchematic(), "image-factory-schematic", &machineapi.Version{})
			if found || err != nil {
				t.Errorf("%s: found is %t, %v; want that there is none", text, found, err)
			}
		})
	}
}

// What a node with an old Talos cannot report about itself is unknown, which is not an error.
func TestCatalogue30_OldTalosHasNoIdentityAndNoStaticPods(t *testing.T) {
	for text, answer := range map[string]wireAnswer{
		"no such type": ends(codes.PermissionDenied, `resource type "Identities.cluster.talos.dev" is not supported`),
		"none there":   ends(codes.NotFound, `resource Identities.cluster.talos.dev(cluster/local@undefined) doesn't exist`),
	} {
		synctest.Test(t, func(t *testing.T) {
			c := (&wireNode{answers: map[string]wireAnswer{wireGet: answer}}).client(t)

			machine := cluster.Machine{Address: catalogueNode, MachineID: "of another look"}
			if err := errors.Join(c.readIdentity(t.Context(), &machine), c.readStaticPods(t.Context(), &machine)); err != nil {
				t.Errorf("%s: %v", text, err)
			}

			if machine.MachineID != "" || machine.FilesVersion != "" || !machine.PodsSince.IsZero() {
				t.Errorf("%s: %+v", text, machine)
			}
		})
	}

	synctest.Test(t, func(t *testing.T) {
		c := (&wireNode{answers: map[string]wireAnswer{wireGet: ends(codes.Unavailable, "connection refused")}}).client(t)

		machine := cluster.Machine{Address: catalogueNode}
		if c.readIdentity(t.Context(), &machine) == nil || c.readStaticPods(t.Context(), &machine) == nil {
			t.Error("a node that does not answer passes for one without an identity")
		}
	})
}

// A call is about one node. We never send the key for several nodes, which the new services refuse, and which hides
// errors within an answer.
func TestCatalogue31_NeverManyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := etcdNode(map[string]wireAnswer{
			wirePull: sends(pulledImage()), wireInstall: sends(exited(0)), wireOldPull: sends(&machineapi.ImagePullResponse{}),
			wireUpgrade: accepted(), wireEvents: ends(codes.Unavailable, "error reading from server: EOF"),
			wireReboot: sends(&machineapi.RebootResponse{}),
			wireGet:    sends(&cosi.GetResponse{}),
		})
		c := node.client(t)

		for _, call := range changes(c) {
			_ = call(t.Context())
		}

		// The answers do not matter: this is about how the calls are made.
		_, _ = c.Machine(t.Context(), catalogueNode, nil, cluster.Everything)
		_, _ = c.Etcd(t.Context(), catalogueNode, true)
		_, _ = c.Vitals(t.Context(), catalogueNode)
		_, _ = c.Members(t.Context())
		_, _ = c.ClusterID(t.Context())
		_, _ = c.Component(t.Context(), catalogueNode, cluster.Kubelet)
		_, _ = c.InstallerIdle(t.Context(), catalogueNode)
		_ = c.EtcdSnapshot(t.Context(), catalogueNode, &bytes.Buffer{})
		_ = c.ForfeitLeadership(t.Context(), catalogueNode)
		_ = c.Rollback(t.Context(), catalogueNode)
		_, _ = c.Logs(t.Context(), catalogueNode, "machined", 20)
		_, _ = c.Kubeconfig(t.Context())
		_ = c.Configure(t.Context(), catalogueNode, cluster.ImageChange{Component: cluster.Kubelet})

		node.mu.Lock()
		defer node.mu.Unlock()

		const least = 15

		if len(node.calls) < least {
			t.Errorf("only %d calls were made", len(node.calls))
		}

		for _, call := range node.calls {
			if many, one := call.routing["nodes"], call.routing["node"]; len(many) != 0 || len(one) > 1 || len(one) == 1 && one[0] != catalogueNode {
				t.Errorf("%s went to nodes %q and node %q", call.method, many, one)
			}
		}
	})

	// Something on the way may add it; then nothing was done.
	synctest.Test(t, func(t *testing.T) {
		node := sameAnswer(ends(codes.InvalidArgument, "one-2-many proxying is not supported for method /machine.LifecycleService/Upgrade"))

		_, err := node.client(t).Install(t.Context(), catalogueNode, catalogueWant)
		only(cluster.ErrRefused, "one-2-many").check(t, "install", err)
	})
}

// A node in a container cannot be upgraded, and says so before it begins.
func TestCatalogue32_ContainerMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const text = "method is not supported in container mode"

		node := sameAnswer(ends(codes.FailedPrecondition, text))

		for method, call := range changes(node.client(t)) {
			only(cluster.ErrRefused, text).check(t, method, call(t.Context()))
		}
	})
}

// A configuration that comes at a bad time is worth another attempt, an invalid one is not; neither was applied.
func TestCatalogue33_ConfigurationRefused(t *testing.T) {
	for text, test := range map[string]struct {
		code codes.Code
		want error
	}{
		"another apply configuration is already in progress":               {codes.FailedPrecondition, cluster.ErrBusy},
		"configuration was already applied and node is rebooting":          {codes.FailedPrecondition, cluster.ErrBusy},
		"1 error occurred:\n\t* kubelet image is not valid\n":              {codes.InvalidArgument, cluster.ErrRefused},
		"not registered: unknown kind":                                     {codes.InvalidArgument, cluster.ErrRefused},
		"this config change can't be applied in immediate mode\ndiff:\n-a": {codes.InvalidArgument, cluster.ErrRefused},
	} {
		synctest.Test(t, func(t *testing.T) {
			var request machineapi.ApplyConfigurationRequest

			node := &wireNode{answers: map[string]wireAnswer{wireApply: func(grpc.ServerStream) error { return status.Error(test.code, text) }}}
			op := operation{what: "change node " + catalogueNode, node: catalogueNode, timeout: applyTimeout, mutates: true}

			only(test.want).check(t, text, node.client(t).applyConfig(t.Context(), op, []byte("machine: {}")))
			decode(t, node.of(wireApply)[0], &request)

			// The zero value of the mode is a reboot.
			if request.GetMode() != machineapi.ApplyConfigurationRequest_NO_REBOOT {
				t.Errorf("applied in mode %s", request.GetMode())
			}
		})
	}
}
