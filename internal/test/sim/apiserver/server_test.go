// SPDX-License-Identifier: MPL-2.0

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// striker strikes mutating requests of a verb, and records all requests.
type striker struct {
	mu      sync.Mutex
	verb    string
	strike  apiserver.Strike
	arrived []apiserver.Request
}

func (s *striker) intercept(_ context.Context, request apiserver.Request) apiserver.Strike {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.arrived = append(s.arrived, request)

	if request.Verb != s.verb {
		return apiserver.Strike{}
	}

	return s.strike
}

func (s *striker) set(verb string, strike apiserver.Strike) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.verb, s.strike = verb, strike
}

func (s *striker) of(verb string) []apiserver.Request {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(s.arrived), func(r apiserver.Request) bool { return r.Verb != verb })
}

func TestServer_CutConnectionLeavesTheOutcomeOpen(t *testing.T) {
	s := &striker{}

	inBubble(t, apiserver.Options{Intercept: s.intercept}, func(r *rig) {
		for _, one := range []struct {
			cut     apiserver.Cut
			applied bool
		}{{apiserver.CutBefore, false}, {apiserver.CutAfter, true}} {
			s.set("patch", apiserver.Strike{Cut: one.cut})

			ours, err := r.api.Cordon(r.Context(), "worker-0", "run-1")
			if !errors.Is(err, cluster.ErrOutcomeUnknown) || !errors.Is(err, cluster.ErrUnreachable) || ours {
				r.Errorf("cut %d: ours %t, %v, want an unknown outcome", one.cut, ours, err)
			}

			s.set("", apiserver.Strike{})

			nodes, err := r.api.Nodes(r.Context())
			if err != nil {
				r.Fatal(err)
			}

			for _, node := range nodes {
				if applied := node.Unschedulable; applied != (one.applied && node.Name == "worker-0") {
					r.Errorf("cut %d: %s is cordoned: %t", one.cut, node.Name, applied)
				}
			}
		}

		if events := r.log.of(history.KindCordon); len(events) != 1 {
			r.Errorf("%d cordons in the history, want the one that took effect", len(events))
		}
	})
}

// A read that is cut off is repeated by the adapter, and succeeds.
func TestServer_CutReadIsRepeated(t *testing.T) {
	cut := 0

	inBubble(t, apiserver.Options{Intercept: func(_ context.Context, request apiserver.Request) apiserver.Strike {
		if request.Verb == "list" && cut == 0 {
			cut++

			return apiserver.Strike{Cut: apiserver.CutAfter}
		}

		return apiserver.Strike{}
	}}, func(r *rig) {
		if nodes, err := r.api.Nodes(r.Context()); err != nil || len(nodes) != 5 || cut != 1 {
			r.Errorf("%d nodes, %v, after %d cuts", len(nodes), err, cut)
		}
	})
}

func TestServer_RequestsAreNamedAndNumbered(t *testing.T) {
	s := &striker{}

	inBubble(t, apiserver.Options{Intercept: s.intercept}, func(r *rig) {
		replies := make(chan struct{}, 1)
		s.set("evict", apiserver.Strike{Replied: func() { replies <- struct{}{} }})

		r.cluster.AddApp("web", 2, nil)
		pod := podOf(r, "web")

		if _, err := r.api.Cordon(r.Context(), "worker-1", "run-1"); err != nil {
			r.Fatal(err)
		}

		if err := r.api.Evict(r.Context(), pod); err != nil {
			r.Fatal(err)
		}

		// The test hangs if Replied is not called.
		<-replies

		if _, err := r.api.WriteLease(r.Context(), cluster.Lease{Holder: "run-1"}); err != nil {
			r.Fatal(err)
		}

		for verb, want := range map[string]string{
			"get": "get nodes worker-1 (request 1, mutation 0) on worker-1", "patch": "patch nodes worker-1 (request 2, mutation 1) on worker-1",
			"evict": "evict pods " + pod.Name + " (request 3, mutation 2) on worker-0", "create": "create leases (request 4, mutation 3) on ",
		} {
			found := s.of(verb)
			if len(found) != 1 || found[0].Client != "run-1" || fmt.Sprintf("%s on %s", found[0], found[0].Node) != want {
				r.Errorf("%s: %+v, want %q", verb, found, want)
			}
		}

		if all, mutating := r.server.Requests(); all != 4 || mutating != 3 {
			r.Errorf("%d requests, %d of them mutating, want 4 and 3", all, mutating)
		}
	})
}

// A fault of the script can lose the reply to a request that took effect.
func TestServer_ScriptedLossOfAReplyIsLost(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		r.cluster.World().SetFaults([]model.Fault{{
			Node: "worker-0", Step: model.StepPatch, Effect: model.EffectConnectionLost, Times: 1,
		}})

		if _, err := r.api.Cordon(r.Context(), "worker-0", "run-1"); !errors.Is(err, cluster.ErrOutcomeUnknown) {
			r.Errorf("%v, want an unknown outcome", err)
		}

		if ours, err := r.api.Cordon(r.Context(), "worker-0", "run-1"); err != nil || !ours {
			r.Errorf("looking again: ours %t, %v", ours, err)
		}
	})
}

// hangs delays a patch until its request ends.
func hangs(ctx context.Context, request apiserver.Request) apiserver.Strike {
	if request.Verb == "patch" {
		<-ctx.Done()
	}

	return apiserver.Strike{}
}

func TestServer_RequestThatIsGivenUpHasNoEffect(t *testing.T) {
	inBubble(t, apiserver.Options{Intercept: hangs}, func(r *rig) {
		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()

		began := time.Now()

		_, err := r.api.Cordon(ctx, "worker-0", "run-1")
		if !errors.Is(err, cluster.ErrOutcomeUnknown) || time.Since(began) != 3*time.Second {
			r.Errorf("%v after %s, want an unknown outcome when the patience ends", err, time.Since(began))
		}

		r.server.Stop()

		if events := r.log.of(history.KindCordon); len(events) > 0 {
			r.Errorf("it took effect all the same: %v", events)
		}
	})
}

// Other requests over the connection are not broken off.
func TestServer_RequestThatIsGivenUpLeavesItsConnection(t *testing.T) {
	inBubble(t, apiserver.Options{Intercept: hangs}, func(r *rig) {
		dials := 0

		client, err := kubeapi.New(r.server.Kubeconfig("run-1"), "", kubeapi.Options{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				dials++

				return r.server.DialContext(ctx, network, address)
			},
		})
		if err != nil {
			r.Fatal(err)
		}
		defer client.Close()

		client.Identify(r.cluster.World().ClusterID())

		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()

		if _, err := client.Cordon(ctx, "worker-0", "run-1"); !errors.Is(err, cluster.ErrOutcomeUnknown) {
			r.Errorf("%v, want an unknown outcome when the patience ends", err)
		}

		if _, err := client.Nodes(r.Context()); err != nil || dials != 1 {
			r.Errorf("%v over %d connections, want the one there was", err, dials)
		}
	})
}

// If a machine goes down, its connections break, and another one answers at the address of the kubeconfig.
func TestServer_ConnectionsBreakWithTheirMachine(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		direct, own := r.direct("cp-1"), r.direct("cp-0")

		if _, err := r.api.Nodes(r.Context()); err != nil {
			r.Fatal(err)
		}

		r.reboot("cp-0")

		// It breaks at once, and not when somebody's patience ends.
		if err := own.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			r.Fatal(err)
		}

		if _, err := own.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			r.Errorf("the connection to cp-0: %v, want it broken", err)
		}

		if nodes, err := r.api.Nodes(r.Context()); err != nil || len(nodes) != 5 {
			r.Errorf("%d nodes, %v, want another API server to answer", len(nodes), err)
		}

		// A healthy API server waits for its client to send something.
		if err := direct.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			r.Fatal(err)
		}

		var timeout net.Error
		if _, err := direct.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
			r.Errorf("the connection to cp-1 broke as well: %v", err)
		}

		if _, err := r.server.DialContext(r.Context(), "tcp", r.address("cp-0")); err == nil || !refused(err) {
			r.Errorf("connected to a machine that is down: %v", err)
		}

		r.until("cp-0 to be back", func() bool { return r.cluster.World().APIServerUp("cp-0") })

		if conn, err := r.server.DialContext(r.Context(), "tcp", r.address("cp-0")); err != nil {
			r.Errorf("connected to cp-0: %v", err)
		} else {
			_ = conn.Close()
		}

		_, _ = direct.Close(), own.Close()
	})
}

func refused(err error) bool {
	var failed *net.OpError

	return errors.As(err, &failed) && failed.Op == "dial"
}

// While no API server runs, nothing answers; a change has not been sent then.
func TestServer_NothingAnswersWithoutAnAPIServer(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		if _, err := r.api.Nodes(r.Context()); err != nil {
			r.Fatal(err)
		}

		r.reboot("cp-0")
		r.reboot("cp-1")

		if r.cluster.World().Serving() {
			r.Fatal("one control plane of three serves")
		}

		if _, err := r.api.Cordon(r.Context(), "worker-0", "run-1"); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
			r.Errorf("%v, want it unreachable", err)
		}

		r.until("the API to be back", r.cluster.World().Serving)

		if _, err := r.api.Cordon(r.Context(), "worker-0", "run-1"); err != nil {
			r.Error(err)
		}
	})
}

func (r *rig) address(name string) string {
	r.Helper()

	state, err := r.cluster.World().Node(name)
	if err != nil {
		r.Fatal(err)
	}

	return net.JoinHostPort(state.Address, "6443")
}

// direct returns a bare connection to the API server of one machine.
func (r *rig) direct(name string) net.Conn {
	r.Helper()

	conn, err := r.server.DialContext(r.Context(), "tcp", r.address(name))
	if err != nil {
		r.Fatal(err)
	}

	return conn
}

// reboot makes a machine reboot, and waits until it is down.
func (r *rig) reboot(name string) {
	r.Helper()

	state, err := r.cluster.World().Node(name)
	if err != nil {
		r.Fatal(err)
	}

	if err := r.cluster.Client("person").Reboot(r.Context(), state.Address, cluster.RebootDefault); err != nil {
		r.Fatal(err)
	}

	r.until(name+" to be down", func() bool { return !r.cluster.World().APIServerUp(name) })
}

func TestServer_TwoWritersAreToldApart(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		second := r.client("run-2")
		defer second.Close()

		if _, err := r.api.Cordon(r.Context(), "worker-0", "run-1"); err != nil {
			r.Fatal(err)
		}

		if err := second.Uncordon(r.Context(), "worker-0"); err != nil {
			r.Fatal(err)
		}

		events := r.log.of(history.KindCordon)
		if len(events) != 2 || events[0].Detail["client"] != "run-1" || events[0].Detail["run"] != "run-1" || events[1].Detail["client"] != "run-2" {
			r.Errorf("the history tells of %v", events)
		}
	})
}

func TestServer_DryRunPersistsNothing(t *testing.T) {
	inBubble(t, apiserver.Options{}, func(r *rig) {
		r.cluster.AddApp("web", 2, nil)
		pod := podOf(r, "web")
		dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}

		if err := r.plain().CoreV1().Pods("workload").Delete(r.Context(), pod.Name, dry); err != nil {
			r.Fatal(err)
		}

		if podOf(r, "web") != pod {
			r.Error("the pod is on its way out")
		}

		if _, mutating := r.server.Requests(); mutating != 0 || len(r.log.of(history.KindDelete))+len(r.log.of(history.KindWrite)) != 0 {
			r.Errorf("%d mutations were counted", mutating)
		}
	})
}
