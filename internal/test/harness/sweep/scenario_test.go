// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Versions of Kubernetes that the sweep upgrades between.
const (
	fromKubernetes = "1.34.2"
	toKubernetes   = "1.35.2"
)

// scenario is an upgrade of a cluster.
type scenario struct {
	name string
	// options are the cluster, its seed among them.
	options model.Options
	// talos and kubernetes are what it is upgraded to; kubernetes is empty where
	// that half stays.
	talos, kubernetes string
	// together is how many workers may be unavailable, 1 when 0.
	together int
	// snapshot takes a snapshot of etcd first.
	snapshot bool
	// victim is a node whose new system does not become healthy, and that is sent
	// back to its old one; empty for none.
	victim string
	// asked is a node that a person sends back once the upgrade is done: that is the run
	// that is struck; empty for none.
	asked string
	// applies has an upgrade follow a rollback that was killed, and not another one.
	applies bool
}

// String is the name in that of a case.
func (s scenario) String() string { return s.name }

// setup is a new cluster of the scenario, with a fault in force from its
// beginning.
func (s scenario) setup(faults []model.Fault) harness.Setup {
	given := harness.Setup{Options: s.options}
	given.Faults = append(given.Faults, faults...)

	if s.together > 1 {
		given.Judging = append(given.Judging, checker.MaxUnavailable(s.together))
	}

	return given
}

// request asks for the target of the scenario, and tells of the nodes that have
// returned to their old systems that they may be tried again where told.
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

// furnish puts workloads into the cluster.
func furnish(r *harness.Rig) { r.AddApp("web", 4, &ports.Budget{MinAvailable: 3}) }

// both moves Talos and Kubernetes of three control planes and two workers.
func both(seed uint64) scenario {
	return scenario{
		name:    "both halves of 3+2",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.FromLifecycle, Kubernetes: fromKubernetes, Seed: seed},
		talos:   harness.ToLifecycle, kubernetes: toKubernetes, snapshot: true,
	}
}

// talosOnly moves Talos with the lifecycle API.
func talosOnly(seed uint64) scenario {
	return scenario{
		name:    "Talos of 3+2",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.FromLifecycle, Kubernetes: fromKubernetes, Seed: seed},
		talos:   harness.ToLifecycle, snapshot: true,
	}
}

// kubernetesOnly moves Kubernetes.
func kubernetesOnly(seed uint64) scenario {
	return scenario{
		name:    "Kubernetes of 3+2",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.ToLifecycle, Kubernetes: fromKubernetes, Seed: seed},
		talos:   harness.ToLifecycle, kubernetes: toKubernetes,
	}
}

// legacy moves Talos where the nodes drain, install and reboot by themselves.
func legacy(seed uint64) scenario {
	return scenario{
		name:    "legacy Talos of 3+2",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.FromLegacy, Kubernetes: harness.Kubernetes, Seed: seed},
		talos:   harness.ToLegacy,
	}
}

// sentBack is a roll in which a node has to be sent back.
func sentBack(seed uint64, victim string) scenario {
	made := scenario{
		name:    victim + " of 3+2 sent back",
		options: model.Options{ControlPlanes: 3, Workers: 2, Talos: harness.FromLifecycle, Kubernetes: harness.Kubernetes, Seed: seed},
		talos:   harness.ToLifecycle, victim: victim,
	}
	made.options.Faults = []model.Fault{{Node: victim, Step: model.StepBoot, Effect: model.EffectNotReady, Times: 1}}

	return made
}

// askedBack is an upgraded cluster in which a person sends a node back. Where that is
// killed, another rollback follows, or another upgrade.
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

// drawn is a cluster of another shape, with other versions, drawn from a seed.
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
