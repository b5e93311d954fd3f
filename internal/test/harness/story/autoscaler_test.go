// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// autoscale adds a node, takes one away, or replaces one.
func (s *stage) autoscale(t *rapid.T) {
	s.pass(t)

	rapid.SampledFrom([]func(*rapid.T){s.grow, s.shrink, s.replace}).Draw(t, "autoscaler")(t)
}

// grow has a worker join, with what the cluster began with.
func (s *stage) grow(*rapid.T) {
	if len(s.joined) < mostJoining {
		s.join(model.Worker)
	}
}

func (s *stage) join(role model.Role) {
	prefix := map[model.Role]string{model.Worker: "worker-new-", model.ControlPlane: "cp-new-"}[role]
	name := fmt.Sprintf("%s%d", prefix, len(s.joined))

	// An old etcd cannot join newer ones.
	options := model.NodeOptions{Name: name, Role: role}
	if role == model.ControlPlane {
		options.Talos = s.newest()
	}

	if _, err := s.World().AddNode(options); err != nil {
		s.fail("unable to add %s: %v", name, err)
	}

	s.tell(string(role)+" joins", "%s with Talos %s", name, options.Talos)
	s.joined[name] = true

	// Until it has registered, nobody but the judge knows of it; and what rolls out
	// by itself does not stop for an API server that is as old as the first ones.
	why, most := name+" is on its way", 5*time.Minute
	s.excuse(excuse{why: why, invariants: []checker.Invariant{checker.S8}, until: most})
	s.excuse(excuse{why: why, invariants: []checker.Invariant{checker.S5}, says: "on " + name, until: most})
}

// newest is the newest Talos that a control plane runs.
func (s *stage) newest() string {
	var running []version.Version

	for _, state := range s.World().Nodes() {
		if state.Role == model.ControlPlane {
			running = append(running, version.MustParse(state.Talos))
		}
	}

	return version.Highest(running...).String()
}

// shrink takes a worker away, whatever happens on it.
func (s *stage) shrink(t *rapid.T) {
	if node := s.some(t, model.Worker); node != "" {
		s.leave(node)
	}
}

func (s *stage) leave(node string) {
	if err := s.LeaveNode(node); err != nil {
		s.fail("unable to remove %s: %v", node, err)
	}

	s.tell("node leaves", "%s", node)
	// What is being said was seen a moment ago.
	s.excuse(excuse{why: "a node left", invariants: []checker.Invariant{checker.S8}, until: time.Minute})
	delete(s.cordoned, node)
	s.left++
	s.touched = time.Now()
}

// replace takes a control plane away and has another one join. Of one that is
// alone, everything would be lost.
func (s *stage) replace(t *rapid.T) {
	node, first := s.some(t, model.ControlPlane), rapid.Bool().Draw(t, "joins first")
	if s.controlPlanes < 3 || s.left > 1 || !s.World().EtcdQuorum() {
		return
	}

	// One that leaves must not take the quorum with it.
	healthy := 0

	for _, state := range s.World().Nodes() {
		if state.EtcdHealthy && state.Name != node {
			healthy++
		}
	}

	if healthy < 2 {
		return
	}

	if first {
		s.join(model.ControlPlane)
		s.wait(97 * time.Second)
	}

	s.leave(node)

	if !first {
		s.join(model.ControlPlane)
	}
}
