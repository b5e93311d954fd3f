// SPDX-License-Identifier: MPL-2.0

package rule

import (
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// controlPlanes requires every other control plane to have finished booting and to be Ready, whichever node is
// about to be disturbed.
func controlPlanes(s View) []cluster.Finding {
	const remedy = "Bring it back to health first (talosctl health, kubectl describe node)."

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		if node.Name == s.Step.Node {
			continue
		}

		switch {
		case node.Machine != nil && !node.Machine.Settled():
			findings = append(findings, NewFinding(cluster.CheckTalosAPI, node.Name,
				fmt.Sprintf("this control plane is %s and has not finished booting%s", node.Machine.Stage, Unmet(*node.Machine)), remedy, nil)...)
		case node.Kube == nil || !node.Kube.Ready:
			findings = append(findings, NewFinding(cluster.CheckNodesReady, node.Name, "this control plane is not Ready in Kubernetes", remedy, nil)...)
		}
	}

	return findings
}

// otherControlPlanes requires the other control planes to be healthy before a component of a control plane
// restarts. It does not apply to kubelets of workers.
func otherControlPlanes(s View) []cluster.Finding {
	if s.Step.Role != cluster.ControlPlane {
		return nil
	}

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		if node.Name != s.Step.Node && node.Machine == nil {
			findings = append(findings, NewFinding(cluster.CheckTalosAPI, node.Name, fmt.Sprintf("its Talos API does not answer: %v", node.Unreachable),
				"Bring the machine back, or its network.", node.Unreachable)...)
		}
	}

	return append(findings, controlPlanes(s)...)
}

// Unmet returns what a machine is still waiting for.
func Unmet(machine cluster.Machine) string {
	if len(machine.Unmet) == 0 {
		return ""
	}

	return "; not yet: " + strings.Join(machine.Unmet, ", ")
}

// serving requires the static pods of the other control planes to be Ready before a control plane goes down, so
// that the Kubernetes API remains available.
func serving(s View) []cluster.Finding {
	if s.Step.Role != cluster.ControlPlane || s.KubernetesError != nil {
		return nil
	}

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
			pod, found := node.Pods[component]
			if node.Name == s.Step.Node || health.Disables(node, component) || found && pod.Ready || !found && component != cluster.APIServer {
				continue
			}

			findings = append(findings, NewFinding(CheckComponents, node.Name, fmt.Sprintf("its %s is not Ready%s", component, fact.Troubled(pod)),
				fmt.Sprintf("Bring it back first (kubectl -n kube-system describe pod %s-%s).", component, node.Name), nil)...)
		}
	}

	return findings
}

// staticPods requires every static pod of every control plane to be Ready, except for the one that is to be
// replaced, which may be broken and cured by the step. If an earlier run left one broken, the next component must
// not follow.
func staticPods(s View) []cluster.Finding {
	if s.KubernetesError != nil {
		return nil
	}

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
			if node.Name == s.Step.Node && component == s.Step.Component || health.Disables(node, component) {
				continue
			}

			pod, found := node.Pods[component]
			if component != cluster.APIServer && versionOf(node, component).Less(s.Step.To) {
				// Its own upgrade is still pending, and may be the cure.
				continue
			}

			switch {
			case !found:
				findings = append(findings, NewFinding(CheckComponents, node.Name, fmt.Sprintf("no %s pod is known of this control plane", component),
					"Look at the node (talosctl containers --kubernetes, kubectl -n kube-system get pods).", nil)...)
			case found && !pod.Ready:
				findings = append(findings, NewFinding(CheckComponents, node.Name, fmt.Sprintf("its %s is not Ready%s", component, fact.Troubled(pod)),
					fmt.Sprintf("Bring it back first (kubectl -n kube-system describe pod %s-%s).", component, node.Name), nil)...)
			}
		}
	}

	return findings
}

// versionOf returns the version that the component of the node runs or, if that is unknown, the one that the machine
// configuration names; zero if neither is known. A component whose pod is missing was set by an earlier run, or waits for
// its turn.
func versionOf(node cluster.Node, component cluster.Component) version.Version {
	running := node.Versions[component]
	if !running.IsZero() || node.Machine == nil || node.Machine.Config == nil {
		return running
	}

	return image.Version(node.Machine.Config.Images[component])
}

// restartedKubelets requires the kubelets of the other control planes to be done with their static pods before
// another one restarts, so that no two API servers are down at the same time.
func restartedKubelets(s View) []cluster.Finding {
	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		status, asked := s.Kubelets[node.Name]
		pod, found := node.Pods[cluster.APIServer]

		if !asked || !found {
			continue
		}

		if why := APIServerToRestart(status, pod); why != "" && s.Taken.Sub(status.Since) < KeepsPods {
			findings = append(findings, NewFinding(CheckComponents, node.Name, why, "", nil)...)
		}
	}

	return findings
}

// APIServerToRestart says that a kubelet may still recreate the API server of its node; empty if it already has.
// Both times are by the clock of the node.
func APIServerToRestart(kubelet cluster.ComponentStatus, pod cluster.ComponentPod) string {
	if !pod.Started.Before(kubelet.Since) {
		return ""
	}

	return fmt.Sprintf("its kubelet restarted at %s, and may restart its %s, which runs since %s",
		kubelet.Since.UTC().Format(time.TimeOnly), pod.Component, pod.Started.UTC().Format(time.TimeOnly))
}

// KeepsPods is how long a restarted kubelet must have kept the static pods that it found before they count as
// final. It reads their sources every 20 seconds, and an API server has 30 seconds to stop, during which its pod
// is still Ready.
const KeepsPods = time.Minute

// skew requires that no API server is of an older minor version than the component that will talk to it.
func skew(s View) []cluster.Finding {
	if s.Step.Component == cluster.APIServer || s.Step.Component == cluster.Proxy {
		return nil
	}

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		running := node.Versions[cluster.APIServer]
		if running.Minor().Compare(s.Step.To.Minor()) < 0 {
			findings = append(findings, NewFinding(CheckSkew, node.Name,
				fmt.Sprintf("its kube-apiserver runs %s, and %s %s on %s would be newer", running, s.Step.Component, s.Step.To, s.Step.Node),
				"Upgrade that API server first.", nil)...)
		}
	}

	return findings
}
