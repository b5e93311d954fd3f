// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// followRig is a client that follows the nodes of a cluster in memory.
type followRig struct {
	*testing.T

	cluster *ports.Cluster
	server  *apiserver.Listener
	api     *kubeapi.Client
	stop    func()

	claims, lists atomic.Int64
	received      atomic.Int64
}

func following(t *testing.T, workers int, options apiserver.Options, test func(*followRig)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		r := &followRig{T: t}

		var err error

		r.cluster, err = ports.New(model.Options{ControlPlanes: 3, Workers: workers, Talos: "1.13.2", Kubernetes: "1.35.2", Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer r.cluster.Stop()

		intercept := options.Intercept
		options.Intercept = func(ctx context.Context, request apiserver.Request) apiserver.Strike {
			switch request.Verb {
			case "patch":
				r.claims.Add(1)
			case "list":
				r.lists.Add(1)
			}

			if intercept == nil {
				return apiserver.Strike{}
			}

			return intercept(ctx, request)
		}

		if r.server, err = r.cluster.Listen(options); err != nil {
			t.Fatal(err)
		}
		defer r.server.Stop()

		r.api, err = kubeapi.New(r.server.Kubeconfig("run-1"), "", kubeapi.Options{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := r.server.DialContext(ctx, network, address)

				return &counted{Conn: conn, read: &r.received}, err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.api.Close()

		r.stop = r.api.FollowNodes(t.Context())
		defer r.stop()

		// The first list has arrived, and the watch is open.
		synctest.Wait()

		test(r)
	})
}

// counted counts the bytes that a client gets.
type counted struct {
	net.Conn

	read *atomic.Int64
}

func (c *counted) Read(into []byte) (int, error) {
	count, err := c.Conn.Read(into)
	c.read.Add(int64(count))

	return count, err
}

func (r *followRig) cordoned(nodes []cluster.KubeNode, err error) bool {
	r.Helper()

	if err != nil {
		r.Error(err)
	}

	return slices.ContainsFunc(nodes, func(node cluster.KubeNode) bool { return node.Name == "worker-1" && node.Unschedulable })
}

// A claim proves nothing to those who ask after it was sent, so they share the next one.
func TestFollow_ConcurrentLooksShareAClaim(t *testing.T) {
	const many = 40

	var held chan struct{}

	following(t, 2, apiserver.Options{Intercept: func(_ context.Context, request apiserver.Request) apiserver.Strike {
		if request.Verb == "patch" && held != nil {
			<-held
		}

		return apiserver.Strike{}
	}}, func(r *followRig) {
		held = make(chan struct{})

		var work sync.WaitGroup

		work.Go(func() { r.cordoned(r.api.NodesNow(r.Context(), "cp-0")) })
		synctest.Wait()

		if err := r.cluster.CordonAsPerson("worker-1", true); err != nil {
			r.Fatal(err)
		}

		for range many {
			work.Go(func() {
				if !r.cordoned(r.api.NodesNow(r.Context(), "cp-1")) {
					r.Error("a look does not say what was done before it")
				}
			})
		}

		synctest.Wait()
		close(held)
		work.Wait()

		if claims := r.claims.Load(); claims != 2 {
			r.Errorf("%d looks cost %d claims, want 2", 1+many, claims)
		}
	})
}

// A look that is given up waits no longer, nor does one whose client stops following; the others get their answer.
func TestFollow_LookEndsWithItsContext(t *testing.T) {
	following(t, 2, apiserver.Options{}, func(r *followRig) {
		r.cluster.StallWatches(true)

		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()

		var work sync.WaitGroup

		work.Go(func() { r.cordoned(r.api.NodesNow(r.Context(), "cp-1")) })

		if _, err := r.api.NodesNow(ctx, "cp-0"); err == nil {
			r.Error("a look that has ended with its context has an answer")
		}

		r.stop()
		work.Wait()
	})
}

// If a watch has not delivered a claim in time, the next looks do not wait for it. It is used again once it delivers
// something.
func TestFollow_StalledWatchIsNotWaitedForTwice(t *testing.T) {
	following(t, 2, apiserver.Options{}, func(r *followRig) {
		r.cluster.StallWatches(true)

		if err := r.cluster.CordonAsPerson("worker-1", true); err != nil {
			r.Fatal(err)
		}

		began := time.Now()

		const often = 10
		for range often {
			if !r.cordoned(r.api.NodesNow(r.Context(), "cp-0")) {
				r.Error("a look does not say what was done before it")
			}
		}

		if claims, took := r.claims.Load(), time.Since(began); claims != 1 || took > 3*time.Second {
			r.Errorf("%d looks cost %d claims and %s, want one claim and one wait", often, claims, took)
		}

		r.cluster.StallWatches(false)
		time.Sleep(time.Minute) // On the clock of the bubble: another watch is open.

		lists := r.lists.Load()
		if !r.cordoned(r.api.NodesNow(r.Context(), "cp-0")) || r.claims.Load() != 2 || r.lists.Load() != lists {
			r.Errorf("a watch that goes on: %d claims, %d lists more", r.claims.Load(), r.lists.Load()-lists)
		}
	})
}

// While no API server runs, the nodes are read again and again, with pauses between. Stopping, as a canceled run
// does, waits for none of them.
func TestFollow_StopDoesNotWaitForAnAPIServer(t *testing.T) {
	following(t, 2, apiserver.Options{}, func(r *followRig) {
		for _, state := range r.cluster.World().NodesOf(model.ControlPlane) {
			if err := r.cluster.Client("person").Reboot(r.Context(), state.Address, cluster.RebootDefault); err != nil {
				r.Fatal(err)
			}
		}

		for r.cluster.World().Serving() {
			time.Sleep(time.Second)
		}

		r.stop()

		stop := r.api.FollowNodes(r.Context())

		// 20 seconds on the clock of the bubble are enough for a long pause.
		time.Sleep(20 * time.Second)

		began := time.Now()

		stop()

		if took := time.Since(began); took > 5*time.Second {
			r.Errorf("without an API server it took %s to stop", took)
		}
	})
}

// If the nodes cannot be watched, they are listed, and nothing is written.
func TestFollow_NodesThatCannotBeWatchedAreListed(t *testing.T) {
	following(t, 2, apiserver.Options{Intercept: func(_ context.Context, request apiserver.Request) apiserver.Strike {
		if request.Verb == "watch" {
			return apiserver.Strike{RetryAfter: time.Second}
		}

		return apiserver.Strike{}
	}}, func(r *followRig) {
		if err := r.cluster.CordonAsPerson("worker-1", true); err != nil {
			r.Fatal(err)
		}

		if !r.cordoned(r.api.NodesNow(r.Context(), "cp-0")) || r.claims.Load() != 0 {
			r.Errorf("nodes that cannot be watched: %d claims, want none", r.claims.Load())
		}
	})
}

// If an API server cannot begin a watch with the existing nodes, they are listed first.
func TestFollow_OlderAPIServerListsFirst(t *testing.T) {
	following(t, 2, apiserver.Options{Older: true}, func(r *followRig) {
		const often = 5

		lists := r.lists.Load()
		for range often {
			r.cordoned(r.api.NodesNow(r.Context(), "cp-0"))
		}

		if lists != 1 || r.lists.Load() != lists || r.claims.Load() != often {
			r.Errorf("%d lists, then %d more and %d claims, want one, none and %d", lists, r.lists.Load()-lists, r.claims.Load(), often)
		}
	})
}

// The cost of a look does not grow with the number of nodes.
func TestFollow_LookAtManyNodesCostsNoList(t *testing.T) {
	const workers, often = 197, 20

	following(t, workers, apiserver.Options{}, func(r *followRig) {
		before := r.received.Load()

		if _, err := r.api.Nodes(r.Context()); err != nil {
			r.Fatal(err)
		}

		list := r.received.Load() - before
		before, requests, lists := r.received.Load(), requestsOf(r.server), r.lists.Load()

		for range often {
			if nodes, err := r.api.NodesNow(r.Context(), "worker-1"); err != nil || len(nodes) != workers+3 {
				r.Fatalf("%d nodes, %v", len(nodes), err)
			}
		}

		looks := r.received.Load() - before
		r.Logf("a list of %d nodes is %d bytes; %d looks are %d bytes and %d requests", workers+3, list, often, looks, requestsOf(r.server)-requests)

		if r.lists.Load() != lists || requestsOf(r.server)-requests != often || looks > list {
			r.Errorf("%d looks are %d bytes and %d lists, want less than one list: %d", often, looks, r.lists.Load()-lists, list)
		}
	})
}

func requestsOf(server *apiserver.Listener) int {
	all, _ := server.Requests()

	return all
}
