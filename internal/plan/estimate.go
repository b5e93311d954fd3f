// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The estimates are the upper ends of what was observed, to be on the safe side. Operators of Talos clusters
// report 2 to 4 minutes for one node (download 30 to 60 s, write 10 to 30 s, reboot 30 to 90 s, back in the
// cluster 30 to 60 s). For Kubernetes on one control plane, 2 min 20 s to 2 min 40 s were measured for the API
// server, 22 s for the scheduler, and 2 min 16 s for the scheduler below Talos 1.14, which recreates the API
// server with it.
const (
	turnEstimate = 4 * time.Minute
	// returnEstimate is for a reboot and the return to service.
	returnEstimate    = 150 * time.Second
	kubeletEstimate   = 40 * time.Second
	apiServerEstimate = 150 * time.Second
	staticEstimate    = 25 * time.Second
	// proxyEstimate is for a change of a configuration: the pods of kube-proxy are moved by the manifests.
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

// Estimate returns roughly how long the whole plan takes from now on: steps that run beside each other count
// once, and steps of nodes and kubelets are followed by the settle time.
func (p Plan) Estimate() time.Duration {
	var (
		total time.Duration
		slots slots
	)

	for i := range p.Steps {
		step := &p.Steps[i]
		if i > 0 && (!step.parallel() || !slots.fits(step, p.slotsFor(step), p.Policy.Selected.Pools)) {
			total += slots.empty(p.Settle)
		}

		slots.fill(step)
	}

	return total + slots.empty(p.Settle)
}

// slotsFor returns how many steps of its kind may run beside each other.
func (p Plan) slotsFor(step *Step) int {
	if step.Component == cluster.Kubelet {
		return max(p.KubeletBudget, 1)
	}

	return max(p.Budget, 1)
}

// parallel reports whether other steps may run beside this one.
func (s *Step) parallel() bool {
	return s.Role == cluster.Worker && !s.Finish && (s.Component == "" || s.Component == cluster.Kubelet)
}

// slots are steps that run beside each other.
type slots struct {
	taken   int
	first   *Step
	longest time.Duration
	// pooled is the number of steps by pool.
	pooled map[string]int
}

func (s *slots) fits(step *Step, most int, pools []cluster.SelectedPool) bool {
	index := slices.IndexFunc(pools, func(pool cluster.SelectedPool) bool { return pool.Name == step.Pool })
	if index >= 0 && s.pooled[step.Pool] >= pools[index].Budget() {
		return false
	}

	return s.taken < most && s.first != nil && s.first.parallel() && s.first.Hop == step.Hop && s.first.Component == step.Component && s.first.Canary == step.Canary
}

func (s *slots) fill(step *Step) {
	if s.first == nil {
		s.first = step
	}

	if s.pooled == nil {
		s.pooled = map[string]int{}
	}

	s.taken++
	s.pooled[step.Pool]++
	s.longest = max(s.longest, step.Estimate)
}

// empty returns how long the steps take, including the settle time after them, and removes them.
func (s *slots) empty(settle time.Duration) time.Duration {
	if s.taken == 0 {
		return 0
	}

	took := s.longest
	// What runs workloads has to stay healthy for that long; nothing else has to settle.
	if s.first.Component == "" && !s.first.MovesLater || s.first.Component == cluster.Kubelet {
		took += settle
	}

	*s = slots{}

	return took
}

// measure records how far the two products are, before anything is scheduled.
func (p *planner) measure() {
	talos := cluster.Progress{Managed: !p.target.Talos.IsZero()}
	kubernetes := cluster.Progress{Managed: !p.target.Kubernetes.IsZero()}

	var lowestTalos, lowestKubernetes certainty

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held {
			continue
		}

		talos.Total++
		kubernetes.Total++

		if talos.Managed && p.arrivedTalos(node) {
			talos.Done++
		}

		if kubernetes.Managed && p.arrivedKubernetes(node) {
			kubernetes.Done++

			if !node.pod.IsZero() && !node.pod.Equal(p.target.Kubernetes) {
				kubernetes.Lagging++
			}
		}

		lowestTalos.add(p.certainTalos(node))
		lowestKubernetes.add(node.certainKubernetes())
	}

	talos.Lowest, kubernetes.Lowest = lowestTalos.lowest(), lowestKubernetes.lowest()
	p.made.Talos, p.made.Kubernetes = talos, kubernetes
}

// countSteps counts the steps left for the two products.
func (p *planner) countSteps() {
	for i := range p.made.Steps {
		if p.made.Steps[i].Component == "" {
			p.made.Talos.Steps++
		} else {
			p.made.Kubernetes.Steps++
		}
	}

	p.made.Kubernetes.Waits = p.waitReason()
}

// waitReason says why Kubernetes has to wait for Talos; empty if it does not. It waits only if the first step
// moves Talos: a hop of Kubernetes that the matrix requires first begins at once.
func (p *planner) waitReason() string {
	if len(p.made.Steps) == 0 || !p.made.Kubernetes.Managed || p.made.Steps[0].Component != "" || p.made.Kubernetes.Steps == 0 {
		return ""
	}

	if running := p.start.Talos; !p.walk.supports(running, p.target.Kubernetes) {
		return fmt.Sprintf("Talos %s does not support K8s %s. Upgrade Talos first.", running, p.target.Kubernetes)
	}

	return "Waiting for Talos upgrade to complete"
}

// certainty is the lowest of several versions, or unknown if one of them is.
type certainty struct {
	least   version.Version
	unknown bool
}

func (c *certainty) add(known version.Version) {
	c.least, c.unknown = version.Lowest(c.least, known), c.unknown || known.IsZero()
}

func (c *certainty) lowest() version.Version {
	if c.unknown {
		return version.Version{}
	}

	return c.least
}

// certainTalos returns the version that the node is known to run; zero if it is unknown. A node that does not
// answer in the middle of its step counts with the version that it ran before.
func (p *planner) certainTalos(node *plannedNode) version.Version {
	if node.Machine == nil && !p.movable(node) {
		return version.Version{}
	}

	return node.talos
}

// certainKubernetes returns the lowest version of any component, running or named; zero if the version of the
// running kubelet or API server of the node is unknown.
func (s *plannedNode) certainKubernetes() version.Version {
	lowest := s.pod

	for i := range s.parts {
		t := &s.parts[i]
		if (t.component == cluster.Kubelet || t.component == cluster.APIServer) && t.running.IsZero() {
			return version.Version{}
		}

		lowest = version.Lowest(lowest, t.lowest())
	}

	return lowest
}

// arrivedTalos reports whether the node is known to be at the target of Talos.
func (p *planner) arrivedTalos(node *plannedNode) bool {
	return node.Machine != nil && !node.unfinished() && p.atTarget(node)
}

// arrivedKubernetes reports whether the components of the node are known to be at the target of Kubernetes. Of
// the pods of kube-proxy, only one that is newer than the target counts.
func (p *planner) arrivedKubernetes(node *plannedNode) bool {
	kubelet, known := node.Versions[cluster.Kubelet]
	if !known || !kubelet.Equal(p.target.Kubernetes) || node.pod.Compare(p.target.Kubernetes) > 0 {
		return false
	}

	return !slices.ContainsFunc(node.parts, func(t componentState) bool {
		other := func(v version.Version) bool { return !v.IsZero() && !v.Equal(p.target.Kubernetes) }

		return node.unreported(&t) || other(t.running) || other(t.named) || p.demandsImage(node, &t)
	})
}
