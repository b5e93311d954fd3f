// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Versions of Kubernetes between which the sweep upgrades.
const (
	fromKubernetes = "1.34.2"
	toKubernetes   = "1.35.2"
)

// scenario is an upgrade of a cluster.
type scenario struct {
	name string
	// options describe the cluster, including its seed.
	options model.Options
	// talos and kubernetes are the targets; kubernetes is empty if Kubernetes is not upgraded.
	talos, kubernetes string
	// together is how many workers may be unavailable; 0 means 1.
	together int
	// snapshot is true if a snapshot of etcd is taken first.
	snapshot bool
	// victim is a node whose new system does not become healthy, and that is rolled back; empty for none.
	victim string
	// asked is a node that a person rolls back once the upgrade is done, in which case the rollback is the run that
	// is struck; empty for none.
	asked string
	// applies is true if an upgrade follows a rollback that was killed, instead of another rollback.
	applies bool
}

// String returns the name of the scenario in that of a case.
func (s scenario) String() string { return s.name }

// setup returns a new cluster of the scenario, with faults in force from the beginning.
func (s scenario) setup(faults []model.Fault) harness.Setup {
	given := harness.Setup{Options: s.options}
	given.Faults = append(given.Faults, faults...)

	if s.together > 1 {
		given.Judging = append(given.Judging, checker.MaxUnavailable(s.together))
	}

	return given
}

// request asks for the target of the scenario, and allows a retry of the nodes in told, which have returned to their
// old systems.
func (s scenario) request(store cluster.SnapshotStore, told map[string]string) engine.Request {
	request := harness.To(s.talos)
	request.Policy.AllowIntermediate = true
	request.Policy.Retry = told

	if s.kubernetes != "" {
		request.Target.Kubernetes = version.MustParse(s.kubernetes)
	}

	if s.snapshot {
		request.Snapshots = store
	}

	if s.together > 1 {
		share, err := cluster.ParseShare(fmt.Sprint(s.together))
		if err != nil {
			panic(err)
		}

		request.Policy.MaxUnavailable = share
	}

	if s.victim != "" {
		request.Policy.OnFailure = cluster.RollBackOnFailure
	}

	return request
}

// furnish adds workloads to the cluster.
func furnish(r *harness.Rig) { r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3}) }

// both upgrades Talos and Kubernetes of three control planes and two workers.
func both(seed uint64) scenario {
	return scenario{
		name:    "both halves of 3+2",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.FromLifecycle, Kubernetes: fromKubernetes, Seed: seed},
		talos:   harness.ToLifecycle, kubernetes: toKubernetes, snapshot: true,
	}
}

// talosOnly upgrades Talos with the lifecycle API.
func talosOnly(seed uint64) scenario {
	return scenario{
		name:    "Talos of 3+2",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.FromLifecycle, Kubernetes: fromKubernetes, Seed: seed},
		talos:   harness.ToLifecycle, snapshot: true,
	}
}

// kubernetesOnly upgrades Kubernetes.
func kubernetesOnly(seed uint64) scenario {
	return scenario{
		name:    "Kubernetes of 3+2",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.ToLifecycle, Kubernetes: fromKubernetes, Seed: seed},
		talos:   harness.ToLifecycle, kubernetes: toKubernetes,
	}
}

// legacy upgrades Talos on nodes that drain, install and reboot by themselves.
func legacy(seed uint64) scenario {
	return scenario{
		name:    "legacy Talos of 3+2",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.FromLegacy, Kubernetes: harness.Kubernetes, Seed: seed},
		talos:   harness.ToLegacy,
	}
}

// sentBack is an upgrade in which a node has to be rolled back.
func sentBack(seed uint64, victim string) scenario {
	made := scenario{
		name:    victim + " of 3+2 sent back",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.FromLifecycle, Kubernetes: harness.Kubernetes, Seed: seed},
		talos:   harness.ToLifecycle, victim: victim,
	}
	made.options.Faults = []model.Fault{{Node: victim, Step: model.StepBoot, Effect: model.EffectNotReady, Times: 1}}

	return made
}

// quick returns the scenario with reboots that are over between two observations.
func quick(s scenario) scenario {
	s.name += " with quick reboots"
	s.options.QuickReboots = true

	return s
}

// askedBack is an upgraded cluster in which a person rolls a node back. If that is killed, another rollback follows,
// or another upgrade.
func askedBack(seed uint64, node string, applies bool) scenario {
	made := scenario{
		name:    node + " of 3+2 sent back by a person",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.FromLifecycle, Kubernetes: harness.Kubernetes, Seed: seed},
		talos:   harness.ToLifecycle, asked: node, applies: applies,
	}
	if applies {
		made.name += " before an apply"
	}

	return made
}

// drawn returns a cluster of another shape, with other versions, drawn from a seed.
func drawn(seed uint64) scenario {
	random := rand.New(rand.NewPCG(seed, 23)) //nolint:gosec // clusters, not secrets

	shapes := [...]struct{ controlPlanes, workers, together int }{
		{1, 0, 1}, {1, 3, 1}, {1, 3, 2}, {5, 2, 1}, {5, 2, 2}, {3, 3, 2}, {3, 0, 1}, {3, 2, 1},
	}
	hops := [...]struct{ talos, kubernetes, toTalos, toKubernetes string }{
		{"1.13.2", "1.34.2", "1.13.4", "1.35.2"},
		{"1.12.6", "1.34.2", "1.13.4", "1.34.6"},
		{"1.13.4", "1.34.2", "1.14.1", ""},
		{"1.11.5", "1.33.4", "1.12.6", ""},
		{"1.12.6", "1.34.2", "1.13.4", "1.36.1"},
		{"1.13.4", "1.31.4", "1.14.1", "1.32.1"},
	}
	shape, hop := shapes[random.IntN(len(shapes))], hops[random.IntN(len(hops))]

	return scenario{
		name: fmt.Sprintf("drawn %d+%d, %d at a time, Talos %s to %s, Kubernetes %s to %s",
			shape.controlPlanes, shape.workers, shape.together, hop.talos, hop.toTalos, hop.kubernetes, hop.toKubernetes),
		options: model.Options{
			ControlPlanes: shape.controlPlanes, Workers: shape.workers, Talos: hop.talos, Kubernetes: hop.kubernetes, Seed: seed,
		},
		talos: hop.toTalos, kubernetes: hop.toKubernetes, together: shape.together, snapshot: random.IntN(2) == 0,
	}
}

// unit is a scenario with at most one fault.
type unit struct {
	scenario

	// fault is the zero value for none.
	fault model.Fault
	// from is when the fault comes into force.
	from time.Duration
	// forgets is a method whose calls succeed without being carried out, to see that this is noticed; empty for none.
	forgets string
}

// honest carries out a call unless the unit forgets its method.
func (u unit) honest(call ports.Call, next func(context.Context) error) func(context.Context) error {
	if u.forgets == "" || call.Method != u.forgets {
		return next
	}

	return func(context.Context) error { return nil }
}

// faulty reports whether there is a fault.
func (u unit) faulty() bool { return u.fault.Step != "" }

func (u unit) script() []model.Fault { return []model.Fault{u.fault} }

// String returns the name of the unit.
func (u unit) String() string {
	if !u.faulty() {
		return u.name
	}

	text := fmt.Sprintf("%s; %s of %s %s", u.name, u.fault.Step, u.fault.Node, u.fault.Effect)
	if u.fault.Times > 0 {
		text += fmt.Sprintf(" x%d", u.fault.Times)
	}

	if u.fault.For > 0 {
		text += " for " + u.fault.For.String()
	}

	if u.from > 0 {
		text += " from " + u.from.String()
	}

	return text
}

// later returns the same unit with the fault in force from a moment of the run on, for faults that keep a run from
// beginning at all.
func (u unit) later(moment time.Duration) unit {
	u.from = moment

	return u
}

// pair returns the step and the effect of the unit's fault.
func (u unit) pair() string { return fmt.Sprintf("%s %s", u.fault.Step, u.fault.Effect) }

// point is one call of a run. Its name stays the same if two timers at one instant make the numbers of calls differ.
type point struct {
	method, node string
	// nth counts the calls of the method on the node, from 1.
	nth int
	// mutates is true if the call changes something.
	mutates bool
}

// rare reports whether the point is worth striking only rarely: a read between two changes is like any other, and so
// is a renewal of the lease, or one more eviction.
func (p point) rare() bool {
	const alike = 4

	return !p.mutates || p.method == "WriteLease" && p.nth > 1 || p.method == "Evict" && p.nth > alike
}

// String returns the name of the point.
func (p point) String() string {
	if p.node == "" {
		return fmt.Sprintf("%s #%d", p.method, p.nth)
	}

	return fmt.Sprintf("%s of %s #%d", p.method, p.node, p.nth)
}

// lasting returns the methods that take time. Any other call has no middle at which it could be struck.
func lasting() []string {
	return []string{"Pull", "PullComponent", "Install", "Upgrade", "Configure", "Apply"}
}

// loseRequest: the call does not arrive, and the process lives and does not learn that. It is the counterpart of a
// lost reply.
const loseRequest harness.Crash = "request lost"

// crashes returns the ways in which a run can be struck at the point.
func (p point) crashes() []harness.Crash {
	switch {
	case !p.mutates:
		return []harness.Crash{harness.DieBefore}
	case slices.Contains(lasting(), p.method):
		return append(harness.Crashes(), loseRequest)
	default:
		return []harness.Crash{harness.DieBefore, harness.DieAfter, harness.LoseReply, loseRequest}
	}
}

// counter assigns points to calls.
type counter map[string]int

func (c counter) point(call ports.Call) point {
	made := point{method: call.Method, node: call.Node, mutates: call.Mutation > 0}
	key := made.method + " of " + made.node
	c[key]++
	made.nth = c[key]

	return made
}

// strike is a point at which a run is struck, and how; the zero value is none.
type strike struct {
	at    point
	crash harness.Crash
}

// String returns the name of the strike.
func (s strike) String() string {
	if s.crash == "" {
		return "no crash"
	}

	return fmt.Sprintf("%s, %s", s.at, s.crash)
}

// strikes returns all ways of striking a run at these points.
func strikes(points []point) []strike {
	var all []strike

	for _, at := range points {
		for _, crash := range at.crashes() {
			all = append(all, strike{at: at, crash: crash})
		}
	}

	return all
}

// lasts is how long faults last that end by themselves: off the grid of polls, and short enough to be waited for.
const lasts = 4*time.Minute + 13037*time.Millisecond

// crossed returns the units of a scenario with every fault that the model has, on a control plane and on a worker:
// each once and, if that makes sense, once for a while. They are in force from the beginning.
func crossed(s scenario) []unit {
	var units []unit

	for _, kind := range model.Faults() {
		for _, node := range nodesOf(s) {
			once := kind
			once.Node, once.Times = node, 1
			units = append(units, unit{scenario: s, fault: once})

			if kind.Lasting() {
				once.For = lasts
				units = append(units, unit{scenario: s, fault: once})
			}
		}
	}

	return units
}

// nodesOf returns a control plane and, if there is one, a worker that are neither the first nor the last to be
// upgraded.
func nodesOf(s scenario) []string {
	nodes := []string{fmt.Sprintf("cp-%d", s.options.ControlPlanes/2)}
	if workers := s.options.Workers; workers > 0 {
		nodes = append(nodes, fmt.Sprintf("worker-%d", workers/2))
	}

	return nodes
}
