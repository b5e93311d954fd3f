// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// perCall are the requests that the shipped adapter sends for one call of a Talos port, where
// that depends on nothing else; TestRequestsAreThoseOfTheAdapter holds them to it. What
// fails counts as one, such as a poll of a machine that is down.
func perCall() map[string]int {
	return map[string]int{
		"Members": 1, "Etcd": 2, "ForfeitLeadership": 1, "Vitals": 2, "Pull": 1, "ImageDigest": 1, "Install": 1,
		"InstallerIdle": 1, "Upgrade": 2, "Reboot": 1, "PullComponent": 2,
	}
}

// perKubernetesCall are the requests to the API server for one call of a Kubernetes port.
func perKubernetesCall() map[string]int {
	return map[string]int{
		"UID": 1, "Nodes": 1, "NodesNow": 1, "Node": 1, "ComponentPods": 1, "StaticPods": 1, "Cordon": 2, "Uncordon": 2,
		"PodsToEvict": 1, "Evict": 1, "Lease": 1, "WriteLease": 1, "Journal": 1, "WriteJournal": 1, "Annotate": 2, "Workloads": 8,
	}
}

// requests counts what a run asks, as it goes over the wire.
type requests struct {
	*ports.Client

	mu     sync.Mutex
	talos  map[string]int
	kube   map[string]int
	others map[string]int
	// named tells that the ID of the cluster is known, which is asked for once.
	named bool
	// pulled is how long each node took for the images that it did not have.
	pulled map[string]time.Duration
}

func count(client *ports.Client) *requests {
	counted := &requests{Client: client, talos: map[string]int{}, kube: map[string]int{}, others: map[string]int{}, pulled: map[string]time.Duration{}}
	client.Intercept(counted.pass)

	return counted
}

// pass counts the calls whose weight needs no more than their name.
func (r *requests) pass(ctx context.Context, call ports.Call, next func(context.Context) error) error {
	begun := time.Now()
	err := next(ctx)

	if took := time.Since(begun); strings.HasPrefix(call.Method, "Pull") && err == nil && took > lookupTime {
		r.mu.Lock()
		r.pulled[call.Node] += took
		r.mu.Unlock()
	}

	switch call.Method {
	case "Machine", "Component", "Configure", "ClusterID":
	default:
		if weight, found := perCall()[call.Method]; found {
			r.add(r.talos, call.Method, oneIfFailed(err, weight))
		} else if weight, found := perKubernetesCall()[call.Method]; found {
			r.add(r.kube, call.Method, oneIfFailed(err, weight))
		} else {
			r.add(r.others, call.Method, 1)
		}
	}

	return err
}

func oneIfFailed(err error, weight int) int {
	if err != nil {
		return 1
	}

	return weight
}

func (r *requests) add(to map[string]int, name string, number int) {
	r.mu.Lock()
	defer r.mu.Unlock()

	to[name] += number
}

// ClusterID implements [cluster.Talos].
func (r *requests) ClusterID(ctx context.Context) (string, error) {
	id, err := r.Client.ClusterID(ctx)

	r.mu.Lock()
	defer r.mu.Unlock()

	if !r.named {
		r.talos["ClusterID"]++
	}

	r.named = r.named || err == nil

	return id, err
}

// Machine implements [cluster.Talos].
func (r *requests) Machine(ctx context.Context, address string, known *cluster.Machine) (cluster.Machine, error) {
	machine, err := r.Client.Machine(ctx, address, known)
	what, number := machineRequests(known, machine, err)
	r.add(r.talos, "Machine, "+what, number)

	return machine, err
}

// machineRequests are the requests of one observation of a machine, and what kind it is.
func machineRequests(known *cluster.Machine, machine cluster.Machine, err error) (string, int) {
	const (
		status, bootID, versionAndStatus = 1, 1, 2
		// everything is what a node is asked that is not known, after its boot ID.
		everything, staticPods = 10, 2
	)

	if err != nil {
		return "no answer", 1
	}

	before := 0

	if known != nil && known.BootID != "" && known.Stage == cluster.StageBooting {
		if machine.Stage == cluster.StageBooting {
			return "booting", status
		}

		before = status
	}

	before += bootID

	switch {
	case known != nil && known.BootID != "" && known.BootID == machine.BootID:
		number := before + status
		if known.UpgradePending {
			number++
		}

		if known.Role == cluster.ControlPlane && known.FilesVersion == "" {
			number += staticPods
		}

		if known.Config == nil {
			number++
		}

		return "again", number
	case known != nil && known.BootID != "":
		before += versionAndStatus

		if !machine.Settled() {
			return "another boot", before
		}
	}

	number := before + everything
	if machine.Role == cluster.ControlPlane {
		number += staticPods
	}

	if machine.Schematic == "" && machine.Talos.AtLeast(1, 14) {
		number++
	}

	return "all", number
}

// Component implements [cluster.Talos].
func (r *requests) Component(ctx context.Context, address string, component cluster.Component) (cluster.ComponentStatus, error) {
	status, err := r.Client.Component(ctx, address, component)

	number := 1
	if component == cluster.Kubelet && err == nil {
		number = 2
	}

	r.add(r.talos, "Component", number)

	return status, err
}

// Configure implements [cluster.Talos].
func (r *requests) Configure(ctx context.Context, address string, change cluster.ImageChange) error {
	const changed = 5

	err := r.Client.Configure(ctx, address, change)
	r.add(r.talos, "Configure", oneIfFailed(err, changed))

	return err
}

// longestPull is the longest time, in seconds, that a node took for its images.
func (r *requests) longestPull() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.Max(append(slices.Collect(maps.Values(r.pulled)), 0)).Seconds()
}

// total is how many requests there were.
func total(requests map[string]int) int {
	sum := 0
	for _, number := range requests {
		sum += number
	}

	return sum
}

// breakdown says which calls cost how many requests a node, the dearest first.
func breakdown(requests map[string]int, nodes int) string {
	names := slices.SortedFunc(maps.Keys(requests), func(a, b string) int {
		return cmp.Or(cmp.Compare(requests[b], requests[a]), strings.Compare(a, b))
	})

	var lines strings.Builder
	for _, name := range names {
		fmt.Fprintf(&lines, "    %-24s %8d %8.2f a node\n", name, requests[name], float64(requests[name])/float64(nodes))
	}

	return lines.String()
}
