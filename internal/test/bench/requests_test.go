// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// requests counts the requests of a run to the Talos API as they go over the wire: a call of a port counts as many
// requests as the shipped adapter makes for it, which TestRequestsAreThoseOfTheAdapter checks. A call that fails
// counts as one, such as a poll of a machine that is down.
type requests struct {
	cluster.Talos

	mu   sync.Mutex
	made map[string]int
	// named is true once the ID of the cluster is known, which is requested once.
	named bool
	// answers has the last answer to each question that only reads, and unchanged how many requests, by call, got the
	// answer of the time before: nobody needed them.
	answers   map[question]any
	unchanged map[string]int
	// pulled has the times in which each node pulled images that it did not have.
	pulled map[string][]span
	// ledger, unless it is nil, has what was counted for each call by its number, which is in the metadata of its
	// requests.
	ledger map[string]weighed
	number int
}

// weighed is how many requests a call counts as.
type weighed struct {
	what     string
	requests int
	err      error
}

// question is a call that only reads, and the node that it asks, if it asks one.
type question struct{ call, address string }

// callKey is the metadata key of the number of a call in its requests.
const callKey = "bench-call"

func count(talos cluster.Talos) *requests {
	return &requests{Talos: talos, made: map[string]int{}, answers: map[question]any{}, unchanged: map[string]int{}, pulled: map[string][]span{}}
}

// answered compares an answer that cost so many requests with the last one to the same question.
func (r *requests) answered(asked question, weight int, answer any) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if last, known := r.answers[asked]; known && reflect.DeepEqual(last, answer) {
		r.unchanged[asked.call] += weight
	}

	r.answers[asked] = answer
}

// ask makes a call that counts as weight requests, unless it fails.
func (r *requests) ask(ctx context.Context, what string, weight int, call func(context.Context) error) error {
	return r.weigh(ctx, call, func() (string, int) { return what, weight })
}

func (r *requests) weigh(ctx context.Context, call func(context.Context) error, weight func() (string, int)) error {
	r.mu.Lock()
	r.number++
	number := strconv.Itoa(r.number)
	r.mu.Unlock()

	if r.ledger != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, callKey, number)
	}

	err := call(ctx)

	what, weighs := weight()
	if err != nil {
		what, weighs = what+", failed", 1
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.made[what] += weighs

	if r.ledger != nil {
		r.ledger[number] = weighed{what: what, requests: weighs, err: err}
	}

	return err
}

// ClusterID implements [cluster.Talos].
func (r *requests) ClusterID(ctx context.Context) (id string, err error) {
	r.mu.Lock()
	named := r.named
	r.mu.Unlock()

	weight := 1
	if named {
		weight = 0
	}

	err = r.ask(ctx, "ClusterID", weight, func(ctx context.Context) error {
		id, err = r.Talos.ClusterID(ctx)

		return err
	})

	r.mu.Lock()
	defer r.mu.Unlock()

	r.named = r.named || err == nil

	return id, err
}

// Members implements [cluster.Talos].
func (r *requests) Members(ctx context.Context) (members []cluster.Member, err error) {
	err = r.ask(ctx, "Members", 1, func(ctx context.Context) error {
		members, err = r.Talos.Members(ctx)

		return err
	})
	if err == nil {
		r.answered(question{call: "Members"}, 1, members)
	}

	return members, err
}

// Etcd implements [cluster.Talos].
func (r *requests) Etcd(ctx context.Context, address string, members bool) (view cluster.EtcdView, err error) {
	what, weight := "Etcd status", 1
	if members {
		what, weight = "Etcd status and members", 2
	}

	err = r.ask(ctx, what, weight, func(ctx context.Context) error {
		view, err = r.Talos.Etcd(ctx, address, members)

		return err
	})
	if err == nil {
		r.answered(question{what, address}, weight, view)
	}

	return view, err
}

// ForfeitLeadership implements [cluster.Talos].
func (r *requests) ForfeitLeadership(ctx context.Context, address string) error {
	return r.ask(ctx, "ForfeitLeadership", 1, func(ctx context.Context) error { return r.Talos.ForfeitLeadership(ctx, address) })
}

// Vitals implements [cluster.Talos].
func (r *requests) Vitals(ctx context.Context, address string) (vitals cluster.Vitals, err error) {
	const diskAndClock = 2

	err = r.ask(ctx, "Vitals", diskAndClock, func(ctx context.Context) error {
		vitals, err = r.Talos.Vitals(ctx, address)

		return err
	})
	if err == nil {
		r.answered(question{"Vitals", address}, diskAndClock, vitals)
	}

	return vitals, err
}

// Pull implements [cluster.Talos].
func (r *requests) Pull(ctx context.Context, address, image string, api cluster.UpgradeAPI) error {
	return r.pull(ctx, "Pull", 1, address, func(ctx context.Context) error { return r.Talos.Pull(ctx, address, image, api) })
}

// PullToInstall implements [cluster.Talos]. The best schedule does not have these pulls: they happen while other
// nodes are in their turns.
func (r *requests) PullToInstall(ctx context.Context, address, image string) error {
	return r.ask(ctx, "PullToInstall", 1, func(ctx context.Context) error { return r.Talos.PullToInstall(ctx, address, image) })
}

// PullComponent implements [cluster.Talos].
func (r *requests) PullComponent(ctx context.Context, address string, component cluster.Component, image string) error {
	const versionAndPull = 2

	return r.pull(ctx, "PullComponent", versionAndPull, address, func(ctx context.Context) error {
		return r.Talos.PullComponent(ctx, address, component, image)
	})
}

// pull makes a call that pulls an image onto a node, or finds it there.
func (r *requests) pull(ctx context.Context, what string, weight int, address string, call func(context.Context) error) error {
	var (
		begun, ended = seconds(), 0.0
		downloaded   = func() bool { return ended-begun > 2*lookupTime.Seconds() }
	)

	err := r.weigh(ctx, func(ctx context.Context) error {
		defer func() { ended = seconds() }()

		return call(ctx)
	}, func() (string, int) { return what, weight })

	if err == nil && downloaded() {
		r.mu.Lock()
		defer r.mu.Unlock()

		r.pulled[address] = append(r.pulled[address], span{begin: begun, end: ended})
	}

	return err
}

// seconds returns the time in the bubble.
func seconds() float64 { return float64(time.Now().UnixNano()) / float64(time.Second) }

// ImageDigest implements [cluster.Talos].
func (r *requests) ImageDigest(ctx context.Context, address, image string) (digest string, err error) {
	err = r.ask(ctx, "ImageDigest", 1, func(ctx context.Context) error {
		digest, err = r.Talos.ImageDigest(ctx, address, image)

		return err
	})

	return digest, err
}

// Install implements [cluster.Talos].
func (r *requests) Install(ctx context.Context, address, image string) (installation cluster.Installation, err error) {
	err = r.ask(ctx, "Install", 1, func(ctx context.Context) error {
		installation, err = r.Talos.Install(ctx, address, image)

		return err
	})

	return installation, err
}

// InstallerIdle implements [cluster.Talos].
func (r *requests) InstallerIdle(ctx context.Context, address string) (idle bool, err error) {
	err = r.ask(ctx, "InstallerIdle", 1, func(ctx context.Context) error {
		idle, err = r.Talos.InstallerIdle(ctx, address)

		return err
	})

	return idle, err
}

// Upgrade implements [cluster.Talos].
func (r *requests) Upgrade(
	ctx context.Context, address, image string, mode cluster.RebootMode, accepted func(),
) (installation cluster.Installation, err error) {
	const upgradeAndEvents = 2

	err = r.ask(ctx, "Upgrade", upgradeAndEvents, func(ctx context.Context) error {
		installation, err = r.Talos.Upgrade(ctx, address, image, mode, accepted)

		return err
	})

	return installation, err
}

// Reboot implements [cluster.Talos].
func (r *requests) Reboot(ctx context.Context, address string, mode cluster.RebootMode) error {
	return r.ask(ctx, "Reboot", 1, func(ctx context.Context) error { return r.Talos.Reboot(ctx, address, mode) })
}

// Component implements [cluster.Talos].
func (r *requests) Component(ctx context.Context, address string, component cluster.Component) (status cluster.ComponentStatus, err error) {
	weight := 1

	if component != cluster.Proxy {
		// A kubelet has a spec and a service. A static pod has what it is made from; below Talos 1.14 that is read
		// only after the node has answered that it has none of the newer kind.
		weight = 2
	}

	err = r.ask(ctx, "Component "+string(component), weight, func(ctx context.Context) error {
		status, err = r.Talos.Component(ctx, address, component)

		return err
	})
	if err == nil {
		r.answered(question{"Component " + string(component), address}, weight, status)
	}

	return status, err
}

// Configure implements [cluster.Talos].
func (r *requests) Configure(ctx context.Context, address string, change cluster.ImageChange) error {
	// It is read, read again with what is stored for the next boot, written, and read.
	const changed = 5

	return r.ask(ctx, "Configure", changed, func(ctx context.Context) error { return r.Talos.Configure(ctx, address, change) })
}

// Machine implements [cluster.Talos].
func (r *requests) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (machine cluster.Machine, err error) {
	call := func(ctx context.Context) error {
		machine, err = r.Talos.Machine(ctx, address, known, extent)

		return err
	}

	var weight int

	err = r.weigh(ctx, call, func() (what string, _ int) {
		what, weight = machineRequests(known, machine, extent)

		return "Machine, " + what, weight
	})
	if err == nil {
		r.answered(question{"Machine", address}, weight, machine)
	}

	return machine, err
}

// machineRequests returns the kind of an observation of a machine, and its number of requests.
func machineRequests(known *cluster.Machine, machine cluster.Machine, extent cluster.Extent) (string, int) {
	const (
		status, bootID, talos = 1, 1, 1
		// rest is the number of further requests to a node in another boot.
		rest, staticPods = 9, 2
	)

	asked := status

	if known != nil && (known.StatusSince.IsZero() || known.Partial && extent == cluster.Everything) {
		known = nil
	}

	switch {
	case extent == cluster.BootOnly && known != nil && known.StatusSince.Equal(machine.StatusSince):
		return "boot again", asked
	case extent == cluster.BootOnly:
		return "boot anew", asked + bootID + talos + status
	}

	if known != nil {
		if known.UpgradePending {
			asked++
		}

		if known.Role == cluster.ControlPlane && known.FilesVersion == "" {
			asked += staticPods
		}

		if known.Config == nil {
			asked++
		}

		if known.StatusSince.Equal(machine.StatusSince) {
			return "again", asked
		}
	}

	asked += bootID + rest + status
	if machine.Role == cluster.ControlPlane {
		asked += staticPods
	}

	if machine.Schematic == "" && machine.Talos.AtLeast(1, 14) {
		asked++
	}

	return anew, asked
}

// longestPull returns the longest time, in seconds, that a node took for its images. It may pull several at once.
func (r *requests) longestPull() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()

	longest := 0.0

	for _, spans := range r.pulled {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })

		took, until := 0.0, 0.0

		for _, pull := range spans {
			took += max(pull.end-max(pull.begin, until), 0)
			until = max(until, pull.end)
		}

		longest = max(longest, took)
	}

	return longest
}

// total returns the sum of the requests.
func total(requests map[string]int) int {
	sum := 0
	for _, number := range requests {
		sum += number
	}

	return sum
}

// breakdown returns how many requests per node each call cost, beginning with the most expensive.
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
