// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// row is a fault of the catalogue that strikes a node in the middle of a roll,
// and what comes of it.
type row struct {
	// node is the one that is struck; empty is a worker first and a control plane
	// then.
	node   string
	legacy bool
	// from and to replace the versions of Talos.
	from, to string
	// kubernetes rolls Kubernetes instead of Talos.
	kubernetes bool
	// fault is played by the simulator, unless it is empty.
	fault model.Fault
	// twist distorts what the engine sees of the cluster until the fault is lifted.
	twist func(*rig, *twisted)
	// want is the sentinel of the failure and says what must be in its text;
	// without either the run gets over it.
	want error
	says []string
	// armed tells that the node stays cordoned, again that it needs another
	// install or reboot later.
	armed, again bool
	// untouched tells that the run must not have changed anything.
	untouched bool
	// most bounds the run that fails, in virtual time; 0 is two hours.
	most time.Duration
}

// twisted is a cluster that is seen wrongly.
type twisted struct {
	*ports.Client

	node, address string
	// boot is the boot ID of the node when the run begins.
	boot string

	machine func(*cluster.Machine) error
	etcd    func(*cluster.EtcdView) error
	members func([]cluster.Member) ([]cluster.Member, error)
	nodes   func([]cluster.KubeNode) []cluster.KubeNode

	mu     sync.Mutex
	lifted bool
	calls  map[string]int
}

func (c *twisted) on() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return !c.lifted
}

// count is how often a method was called about the node.
func (c *twisted) count(method string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.calls[method]
}

func (c *twisted) Machine(ctx context.Context, address string, known *cluster.Machine) (cluster.Machine, error) {
	machine, err := c.Client.Machine(ctx, address, known)
	if err == nil && c.machine != nil && address == c.address && c.on() {
		err = c.machine(&machine)
	}

	return machine, err
}

func (c *twisted) Etcd(ctx context.Context, address string, members bool) (cluster.EtcdView, error) {
	view, err := c.Client.Etcd(ctx, address, members)
	if err == nil && c.etcd != nil && address == c.address && c.on() {
		err = c.etcd(&view)
	}

	return view, err
}

func (c *twisted) Members(ctx context.Context) ([]cluster.Member, error) {
	members, err := c.Client.Members(ctx)
	if err == nil && c.members != nil && c.on() {
		return c.members(members)
	}

	return members, err
}

func (c *twisted) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return c.Nodes(ctx)
}

func (c *twisted) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	return named(ctx, name, c.Nodes)
}

func (c *twisted) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := c.Client.Nodes(ctx)
	if err == nil && c.nodes != nil && c.on() {
		nodes = c.nodes(nodes)
	}

	return nodes, err
}

// answers has the first calls of a method about the node end with an error, and
// nothing done.
func answers(method string, times int, err error) func(*rig, *twisted) {
	return func(_ *rig, seen *twisted) {
		seen.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Node != seen.node || call.Method != method || !seen.on() {
				return next(ctx)
			}

			seen.mu.Lock()
			seen.calls[method]++
			count := seen.calls[method]
			seen.mu.Unlock()

			if count > times {
				return next(ctx)
			}

			return err
		})
	}
}

// always is more often than anything is tried.
const always = 1 << 20

// saying is an error of an adapter: its meaning, and the text of the wire.
func saying(meaning error, text string) error {
	if meaning == nil {
		return fmt.Errorf("unable to ask: %s", text)
	}

	return fmt.Errorf("unable to ask: %w: %s", meaning, text)
}

// lostReply is a call that was sent and whose answer is lost.
func lostReply(text string) error {
	return fmt.Errorf("unable to ask: %w: %w: %s", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable, text)
}

// tried rolls a cluster in which the fault strikes, looks at how that ends, lifts
// the fault, and rolls again.
func (given row) tried(t *testing.T) {
	t.Helper()

	nodes := []string{given.node}
	if given.node == "" {
		nodes = []string{"worker-1", "cp-1"}
	}

	for _, node := range nodes {
		t.Run(node, func(t *testing.T) { given.on(t, node) })
	}
}

func (given row) request() (from string, request engine.Request) {
	switch {
	case given.from != "":
		return given.from, to(given.to)
	case given.kubernetes:
		return fromLifecycle, kube(toKubernetes)
	case given.legacy:
		return fromLegacy, to(toLegacy)
	default:
		return fromLifecycle, to(toLifecycle)
	}
}

func (given row) on(t *testing.T, node string) {
	t.Helper()

	from, request := given.request()
	options := model.Options{Talos: from, Seed: 3}

	if given.kubernetes {
		options.Kubernetes = fromKubernetes
	}

	if given.fault.Step != "" {
		given.fault.Node = node
		options.Faults = []model.Fault{given.fault}
	}

	inCluster(t, setup{Options: options}, func(r *rig) {
		r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

		client, state := r.Client("run-1"), r.State(node)
		seen := &twisted{Client: client, node: node, address: state.Address, boot: state.BootID, calls: map[string]int{}}

		if given.twist != nil {
			given.twist(r, seen)
		}

		begun := time.Now()
		err := r.WorkerOver(client, seen, seen).Apply(context.Background(), request)
		took := time.Since(begun)

		r.Sound()

		if given.want == nil && given.says == nil {
			if err != nil {
				r.T.Fatalf("the run did not get over it: %v\n%s", err, r.Judge.Text())
			}
		} else {
			given.failed(r, node, err, took)
		}

		if _, mutating := client.Calls(); given.untouched && mutating > 0 {
			r.T.Errorf("the refused run made %d mutating calls", mutating)
		}

		seen.mu.Lock()
		seen.lifted = true
		seen.mu.Unlock()
		r.World().SetFaults(nil)
		r.Until("whole again", 15*time.Minute, r.whole)

		r.Must(r.Worker("run-2"), request)

		if given.kubernetes {
			r.atKubernetes(toKubernetes, request)

			return
		}

		r.At(request.Target.Talos.String())

		if !given.again {
			r.Once()
		}
	})
}

// failed looks at the run that the fault ended.
func (given row) failed(r *rig, node string, err error, took time.Duration) {
	r.T.Helper()

	failed := failure(r.T, err, given.want, node)

	for _, part := range slices.Concat(given.says, []string{node}) {
		if text := failed.Error(); !strings.Contains(text, part) {
			r.T.Errorf("the failure does not say %q: %s", part, text)
		}
	}

	most := given.most
	if most == 0 {
		most = 2 * time.Hour
	}

	if took > most {
		r.T.Errorf("it took %s to fail, want at most %s", took, most)
	}

	if !given.kubernetes && !given.untouched {
		r.stopped(node, given.armed)
	}
}
