// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// hop is a pair of versions between which a story upgrades.
type hop struct {
	name                     string
	talos, toTalos           string
	kubernetes, toKubernetes string
	// halfway is what an upgrade with another target asks for, and what a person
	// upgrades a node to that does not run it yet.
	halfway string
	// legs is how many minor versions an upgrade goes through.
	legs int
}

func hops() []hop {
	const old, next = harness.Kubernetes, "1.35.2"

	return []hop{
		{"lifecycle", "1.13.2", "1.13.4", old, "", "1.13.3", 1},
		{"legacy", "1.12.6", "1.13.4", old, "", "1.13.2", 1},
		{"two minors", "1.11.5", "1.13.4", old, "", "1.12.6", 2},
		{"both halves", "1.13.2", "1.13.4", old, next, "1.13.3", 2},
		{"documents", "1.13.4", "1.14.1", old, "", "1.13.5", 1},
		{"Kubernetes", "1.13.4", "", old, next, "1.13.4", 1},
	}
}

// scene is the cluster of a story, and what is asked for there.
type scene struct {
	hop                    hop
	controlPlanes, workers int
	seed                   uint64
	policy                 cluster.Policy
	snapshot               bool
	// vault is where snapshots of etcd are stored.
	vault *ports.Vault
}

// mostJoining is how many workers an autoscaler adds in one story.
const mostJoining = 2

func drawScene(t *rapid.T) *scene {
	s := &scene{
		hop:           rapid.SampledFrom(hops()).Draw(t, "hop"),
		controlPlanes: rapid.SampledFrom([]int{3, 1, 5}).Draw(t, "control planes"),
		workers:       rapid.IntRange(0, 5).Draw(t, "workers"),
		seed:          rapid.Uint64Range(0, 1<<20).Draw(t, "durations"),
		policy:        cluster.DefaultPolicy(),
		snapshot:      rapid.IntRange(0, 4).Draw(t, "snapshot") == 4,
		vault:         ports.NewVault(),
	}

	p := &s.policy
	p.AllowIntermediate = true
	p.Order = rapid.SampledFrom([]cluster.Order{cluster.WorkersFirst, cluster.ControlPlanesFirst}).Draw(t, "order")
	p.OnFailure = rapid.SampledFrom([]cluster.OnFailure{cluster.StopOnFailure, cluster.RollBackOnFailure}).Draw(t, "on failure")
	p.Settle = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "settle")
	p.Repeat = cluster.Repeat{
		Attempts: rapid.IntRange(1, 3).Draw(t, "attempts"),
		Backoff:  rapid.SampledFrom([]time.Duration{cluster.DefaultBackoff, 0, 2 * time.Minute}).Draw(t, "backoff"),
	}

	// Evicted Pods need another worker.
	if shares := []string{"1", "2", "50%", "60%"}; s.workers >= 3 {
		share := rapid.SampledFrom(shares).Draw(t, "max unavailable")
		if parsed, err := cluster.ParseShare(share); err == nil {
			p.MaxUnavailable, p.Kubernetes.MaxUnavailableKubelets = parsed, parsed
		}
	}

	if s.workers > 1 && rapid.IntRange(0, 2).Draw(t, "canary") == 2 {
		p.Canary = []string{"worker-1"}
	}

	return s
}

func (s *scene) setup() harness.Setup {
	// This counts the workers that the autoscaler may add.
	most := s.policy.MaxUnavailable.Of(s.workers + mostJoining)

	given := harness.Setup{
		Options: model.Options{
			ControlPlanes: s.controlPlanes, Workers: s.workers, Talos: s.hop.talos, Kubernetes: s.hop.kubernetes, Seed: s.seed,
			ManyAddresses: s.seed%4 == 0, Silent: s.seed%4 == 1, QuickReboots: s.seed%4 == 2,
		},
		Judging: []checker.Option{checker.MaxUnavailable(most), checker.MaxUnavailableKubelets(most), checker.Canary(s.policy.Canary...)},
	}

	if s.snapshot {
		given.Judging = append(given.Judging, checker.SnapshotFirst())
	}

	return given
}

// request returns a request for the end of the hop, or for what lies halfway.
func (s *scene) request(halfway bool) engine.Request {
	request := engine.Request{Policy: s.policy}

	if talos := s.hop.toTalos; talos != "" {
		request.Target.Talos = version.MustParse(talos)
	}

	if kubernetes := s.hop.toKubernetes; kubernetes != "" {
		request.Target.Kubernetes = version.MustParse(kubernetes)
	}

	if halfway {
		request.Target = cluster.Target{Talos: version.MustParse(s.hop.halfway)}
	}

	if s.snapshot {
		request.Snapshots = s.vault
	}

	return request
}

// bound returns how long an upgrade of so many nodes may take if nothing is in its way. No turn then needs all the
// time that its node has.
func (s *scene) bound(nodes int) time.Duration {
	const most = cluster.DefaultNodeTimeout / 5

	return 20*time.Minute + time.Duration(nodes*s.hop.legs)*(most+s.policy.Settle)
}

func (s *scene) String() string {
	p := s.policy

	return fmt.Sprintf("%s, %d control planes, %d workers, durations %d, %s, max_unavailable %s, canary %v, settle %s, on_failure %s, retry %+v, snapshot %t",
		s.hop.name, s.controlPlanes, s.workers, s.seed, p.Order, p.MaxUnavailable, p.Canary, p.Settle, p.OnFailure, p.Repeat, s.snapshot)
}
