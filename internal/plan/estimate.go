// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// What operators of Talos clusters see: 2 to 4 minutes for one node (download
// 30 to 60 s, write 10 to 30 s, reboot 30 to 90 s, back in the cluster 30 to
// 60 s). What was measured of Kubernetes on one control plane: 2 min 20 s to
// 2 min 40 s for the API server, 22 s for the scheduler, and 2 min 16 s below Talos
// 1.14, which makes the API server anew with it. The upper ends, to be on the safe
// side.
const (
	turnEstimate = 4 * time.Minute
	// returnEstimate is a reboot and the way back.
	returnEstimate    = 150 * time.Second
	kubeletEstimate   = 40 * time.Second
	apiServerEstimate = 150 * time.Second
	staticEstimate    = 25 * time.Second
	// proxyEstimate is a change of a configuration: the pods of kube-proxy move
	// with the manifests.
	proxyEstimate     = 10 * time.Second
	manifestsEstimate = time.Minute
)

func componentEstimate(component cluster.Component, talos version.Version) time.Duration {
	switch component {
	case cluster.Kubelet:
		return kubeletEstimate
	case cluster.APIServer:
		return apiServerEstimate
	case cluster.Scheduler:
		if !talos.AtLeast(1, 14) {
			return apiServerEstimate
		}

		return staticEstimate
	case cluster.Proxy:
		return proxyEstimate
	case cluster.Manifests:
		return manifestsEstimate
	case cluster.ControllerManager:
		return staticEstimate
	default:
		return staticEstimate
	}
}

// Estimate is roughly how long the whole plan takes from now on: turns beside
// each other count once, and each is followed by the time to settle.
func (p Plan) Estimate() time.Duration {
	var (
		total time.Duration
		slots slots
	)

	for i := range p.Steps {
		step := &p.Steps[i]
		if i > 0 && (!step.parallel() || !slots.fits(step, p.slotsFor(step))) {
			total += slots.empty(p.Settle)
		}

		slots.fill(step)
	}

	return total + slots.empty(p.Settle)
}

// slotsFor is how many steps of its kind may go beside each other.
func (p Plan) slotsFor(step *Step) int {
	if step.Component == cluster.Kubelet {
		return max(p.KubeletBudget, 1)
	}

	return max(p.Budget, 1)
}

// parallel tells whether the step may have others beside it.
func (s *Step) parallel() bool {
	return s.Role == cluster.Worker && !s.Finish && (s.Component == "" || s.Component == cluster.Kubelet)
}

// slots are turns that run beside each other.
type slots struct {
	taken   int
	first   *Step
	longest time.Duration
}

func (s *slots) fits(step *Step, most int) bool {
	return s.taken < most && s.first != nil && s.first.parallel() && s.first.Hop == step.Hop && s.first.Component == step.Component && s.first.Canary == step.Canary
}

func (s *slots) fill(step *Step) {
	if s.first == nil {
		s.first = step
	}

	s.taken++
	s.longest = max(s.longest, step.Estimate)
}

// empty is how long the turns take, with the time to settle after them.
func (s *slots) empty(settle time.Duration) time.Duration {
	if s.taken == 0 {
		return 0
	}

	took := s.longest
	// What runs workloads has to stay healthy; after the rest nothing settles.
	if s.first.Component == "" || s.first.Component == cluster.Kubelet {
		took += settle
	}

	*s = slots{}

	return took
}
