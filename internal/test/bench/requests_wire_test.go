// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	simwire "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

// TestRequestsAreThoseOfTheAdapter upgrades a cluster over the wire with the shipped adapter, and compares what is
// counted for each call with the requests that the call sent.
func TestRequestsAreThoseOfTheAdapter(t *testing.T) {
	for _, half := range []string{halfLifecycle, halfLegacy, halfKubernetes} {
		synctest.Test(t, func(t *testing.T) { compareRequests(t, roll{controlPlanes: 3, workers: 2, half: half}) })
	}
}

func compareRequests(t *testing.T, wanted roll) {
	t.Helper()

	var (
		mu   sync.Mutex
		sent = map[string]int{}
	)

	given, request := wanted.setup(t)
	r := harness.New(t, given)
	defer r.Stop()

	server, err := simwire.New(simwire.Options{
		World: r.World(), InMemory: true,
		Kubeconfig: func() ([]byte, error) { return nil, errors.New("nobody asks for it") },
		Intercept: func(ctx context.Context, _ simwire.Call) simwire.Strike {
			mu.Lock()
			defer mu.Unlock()

			given, _ := metadata.FromIncomingContext(ctx)
			for _, number := range given.Get(callKey) {
				sent[number]++
			}

			return simwire.Strike{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := server.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	defer server.Stop()

	asked := count(adapter(t, server))
	asked.ledger = map[string]weighed{}

	client := r.Client("run-1")

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	if _, err := r.WorkerOver(client, asked, client).Upgrade(ctx, request); err != nil {
		t.Fatalf("%s: %v\n%s", wanted, err, r.Judge.Text())
	}

	mu.Lock()
	defer mu.Unlock()

	kinds := map[string]int{}

	for number, call := range asked.ledger {
		if call.err == nil {
			kinds[call.what]++

			// A machine that has just come back may not answer yet through the first endpoint, and the request is
			// then sent again through another one.
			again := strings.HasSuffix(call.what, anew) && sent[number] > call.requests

			if sent[number] != call.requests && !again {
				t.Errorf("%s: %s is counted as %d requests and sent %d", wanted, call.what, call.requests, sent[number])
			}
		}
	}

	t.Logf("%s: calls that were compared: %v", wanted, kinds)
}

// anew is the kind of an observation of a machine that finds it in another boot.
const anew = "anew"

// patience bounds a run in virtual time.
const patience = 12 * time.Hour

// adapter connects the shipped adapter to the servers of a rig, until the test ends.
func adapter(t *testing.T, server *simwire.Server) *talosapi.Client {
	t.Helper()

	text, err := server.Talosconfig()
	if err != nil {
		t.Fatal(err)
	}

	config, err := talosapi.ParseConfig(text, "")
	if err != nil {
		t.Fatal(err)
	}

	made, err := talosapi.New(config, talosapi.Options{
		UserAgent:   "run-1",
		DialContext: func(ctx context.Context, address string) (net.Conn, error) { return server.Dialer()(ctx, address) },
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})

	return made
}

// changing answers each question about the members with the next of some answers.
type changing struct {
	cluster.Talos

	answers [][]cluster.Member
}

func (c *changing) Members(context.Context) ([]cluster.Member, error) {
	next := c.answers[0]
	c.answers = c.answers[1:]

	return next, nil
}

// TestRequests_TheSameAnswerAgainIsCounted changes the answer once in four questions.
func TestRequests_TheSameAnswerAgainIsCounted(t *testing.T) {
	one, other := []cluster.Member{{Hostname: "cp-0"}}, []cluster.Member{{Hostname: "cp-1"}}
	counted := count(&changing{answers: [][]cluster.Member{one, one, other, other}})

	for range 4 {
		if _, err := counted.Members(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	if counted.made["Members"] != 4 || counted.unchanged["Members"] != 2 {
		t.Errorf("%d requests, of which %d got the same answer again; want 4 and 2", counted.made["Members"], counted.unchanged["Members"])
	}
}
