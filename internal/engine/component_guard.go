// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	checkComponents = cluster.CheckControlPlane
	checkKubelets   = "kubelets-ready"
	checkSkew       = "version-skew"
)

// componentGuards are checked before a component is replaced.
func componentGuards() []guard {
	return []guard{
		{name: cluster.CheckKubernetesAPI, check: guardKubernetes},
		{name: cluster.CheckTalosAPI, check: guardMachine},
		{name: "control-planes", check: guardOtherControlPlanes},
		{name: checkComponents, check: guardStaticPods},
		{name: checkKubelets, check: guardKubelets},
		{name: checkSkew, check: guardSkew},
		{name: cluster.CheckOperator, check: guardOperator},
	}
}

// awaitGuards waits until every guard holds on an observation that is newer than
// all that was done to nodes, and the lease is ours.
func (c *componentUpgrade) awaitGuards(ctx context.Context) error {
	bounded, cancel := c.run.engine.clock.WithTimeout(ctx, guardTimeout)
	defer cancel()

	var last []cluster.Finding

	what := fmt.Sprintf("it to be safe to restart %s on %s", c.step.Component, c.step.Node)

	err := c.run.engine.waitClosely(bounded, c.step.Node, what, pollComponents, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := c.run.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		if c.changes() && len(c.run.closedGates(ctx, c.step.Node)) > 0 {
			return false, "", errGateClosed
		}

		intruded, steps := c.run.operatorConflicts(ctx, true), c.run.coordinator.generation()

		snapshot, err := c.run.engine.observe(ctx, func(node cluster.Node) bool {
			return node.Role == cluster.ControlPlane || node.Name == c.step.Node
		})
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		last, c.onlyControlPlane = nil, len(snapshot.ControlPlanes()) == 1
		seen := guardInput{Snapshot: snapshot, step: c.step, run: c.run.engine.runID, policy: c.run.request.Policy, intruded: intruded}

		for _, guard := range c.run.engine.componentGuards {
			last = append(last, guard.check(seen)...)
		}

		last = c.run.standing(last)

		if len(filterByCheck(cluster.CheckOperator, last)) > 0 {
			return false, "", errOccupied
		}

		if len(last) > 0 {
			return false, last[0].String(), fatal(last)
		}

		// The observation took its time; the lease must have outlived it.
		if ok, seen, err := c.run.lock.holds(ctx); err != nil || !ok {
			return ok, seen, err
		}

		// What other kubelets do is nothing to this one: the budget says how many
		// may restart at a time.
		if !c.run.coordinator.reserve(steps, c.step.Role, c.step.Component == cluster.Kubelet) {
			return false, "another node was being changed meanwhile", nil
		}

		if err := c.run.beginDisturbing(c.step.Node); err != nil {
			return false, "", err
		}

		return true, "", nil
	})
	if err == nil || errors.Is(err, errStopped) || errors.Is(err, errGateClosed) {
		return err
	}

	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return err
	}

	return &guardError{before: "restart " + string(c.step.Component) + " on", findings: last, err: err}
}

// guardMachine wants the node to be there, and to be neither booting nor going
// down.
func guardMachine(s guardInput) []cluster.Finding {
	node, found := s.Node(s.step.Node)

	switch {
	case !found:
		return newFinding(cluster.CheckTalosAPI, s.step.Node, "the node is no longer part of the cluster", "Let it join again, or leave it out for good.", nil)
	case node.Machine == nil:
		return newFinding(cluster.CheckTalosAPI, node.Name, fmt.Sprintf("its Talos API does not answer: %v", node.Unreachable),
			"Bring the machine back, or its network.", node.Unreachable)
	case node.Machine.Stage != cluster.StageRunning:
		return newFinding(cluster.CheckTalosAPI, node.Name, fmt.Sprintf("the machine is %s", node.Machine.Stage),
			"Wait until it runs, or look at its console (talosctl dmesg).", nil)
	default:
		return nil
	}
}

// guardOtherControlPlanes wants the other control planes whole before anything
// of this one is restarted. Kubelets of workers are nothing to them.
func guardOtherControlPlanes(s guardInput) []cluster.Finding {
	if s.step.Role != cluster.ControlPlane {
		return nil
	}

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		if node.Name != s.step.Node && node.Machine == nil {
			findings = append(findings, newFinding(cluster.CheckTalosAPI, node.Name, fmt.Sprintf("its Talos API does not answer: %v", node.Unreachable),
				"Bring the machine back, or its network.", node.Unreachable)...)
		}
	}

	return append(findings, guardControlPlanes(s)...)
}

// guardStaticPods wants every static pod of every control plane to be Ready, but
// the one that is to be replaced: that may be broken, and this the cure. What an
// earlier run left broken must not be followed by the next component.
func guardStaticPods(s guardInput) []cluster.Finding {
	if s.KubernetesError != nil {
		return nil
	}

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
			if node.Name == s.step.Node && component == s.step.Component || disabled(node, component) {
				continue
			}

			pod, found := node.Pods[component]
			if component != cluster.APIServer && node.Versions[component].Less(s.step.To) {
				// Its own upgrade is still to come, and may be the cure.
				continue
			}

			switch {
			case !found && component == cluster.APIServer:
				findings = append(findings, newFinding(checkComponents, node.Name, "no kube-apiserver pod is known of this control plane",
					"Look at the node (talosctl containers --kubernetes, kubectl -n kube-system get pods).", nil)...)
			case found && !pod.Ready:
				findings = append(findings, newFinding(checkComponents, node.Name, fmt.Sprintf("its %s is not Ready%s", component, troubled(pod)),
					fmt.Sprintf("Bring it back first (kubectl -n kube-system describe pod %s-%s).", component, node.Name), nil)...)
			}
		}
	}

	return findings
}

func disabled(node cluster.Node, component cluster.Component) bool {
	return node.Machine != nil && node.Machine.Config != nil && node.Machine.Config.Disabled[component]
}

// guardKubelets counts the workers whose kubelets run the new version and whose
// nodes are not Ready with it: as many as may restart at a time are enough to
// stop, and so is one canary. A kubelet that does not come up with a version must
// not be followed by others, in this run or in the next.
func guardKubelets(s guardInput) []cluster.Finding {
	if s.step.Component != cluster.Kubelet || s.step.Role != cluster.Worker || s.KubernetesError != nil {
		return nil
	}

	var broken []string

	workers := s.Workers()
	most := max(s.policy.Kubernetes.MaxUnavailableKubelets.Of(len(workers)), 1)

	for _, node := range workers {
		if node.Name == s.step.Node || node.Kube == nil || node.Kube.Ready || !node.Kube.Kubelet.Equal(s.step.To) || s.policy.Holds(node.Name) {
			continue
		}

		broken = append(broken, node.Name)

		if slices.Contains(s.policy.Canary, node.Name) && !s.step.Canary {
			return newFinding(checkKubelets, node.Name, fmt.Sprintf("this canary is not Ready with its kubelet %s: %s", s.step.To, node.Kube.ReadyReason),
				"Look at it (kubectl describe node, talosctl logs kubelet).", nil)
		}
	}

	if len(broken) < most {
		return nil
	}

	return newFinding(checkKubelets, broken[0],
		fmt.Sprintf("%d of at most %d workers are not Ready with their kubelets %s: %s", len(broken), most, s.step.To, strings.Join(broken, ", ")),
		"Look at them (kubectl describe node, talosctl logs kubelet), or raise kubernetes.max_unavailable_kubelets.", nil)
}

// guardSkew wants no API server to be of an older release line than what is to
// talk to it.
func guardSkew(s guardInput) []cluster.Finding {
	if s.step.Component == cluster.APIServer || s.step.Component == cluster.Proxy {
		return nil
	}

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		running := node.Versions[cluster.APIServer]
		if running.Minor().Compare(s.step.To.Minor()) < 0 {
			findings = append(findings, newFinding(checkSkew, node.Name,
				fmt.Sprintf("its kube-apiserver runs %s, and %s %s on %s would be newer", running, s.step.Component, s.step.To, s.step.Node),
				"Bring that API server up first.", nil)...)
		}
	}

	return findings
}
