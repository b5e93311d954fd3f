// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Attributes that findings point at.
const (
	attributeTalos      = "talos_version"
	attributeKubernetes = "kubernetes_version"
	attributeImage      = "installer_image"
	attributeDrain      = "drain"
	attributeOverrides  = "node_overrides"
)

// adminRole may upgrade; no other role of Talos may.
const adminRole = "os:admin"

// oldestManaged is the first version whose legacy upgrade keeps etcd and its
// data whatever the flags say (talos-facts: leaving etcd was removed in 1.8).
// Below oldestTested the support is best effort.
func oldestManaged() version.Version { return version.MustParse("1.8.0") }
func oldestTested() version.Version  { return version.MustParse("1.11.0") }

// checkTarget refuses targets that no waiting makes possible.
func checkTarget(snapshot cluster.Snapshot, target cluster.Target) []cluster.Finding {
	var findings []cluster.Finding

	if !target.Talos.IsZero() {
		findings = append(findings, checkPath(snapshot, target.Talos)...)
	}

	if target.Kubernetes.IsZero() {
		return findings
	}

	lowest, highest := snapshot.KubernetesVersions()
	if lowest.IsZero() || (lowest.Equal(target.Kubernetes) && highest.Equal(target.Kubernetes)) {
		return findings
	}

	running := lowest.String()
	if !lowest.Equal(highest) {
		running = lowest.String() + " to " + highest.String()
	}

	return append(findings, cluster.Finding{
		Check: "versions", Severity: cluster.Permanent, Attribute: attributeKubernetes,
		Found:  fmt.Sprintf("the cluster runs Kubernetes %s and kubernetes_version asks for %s, but this version of the provider upgrades Talos only", running, target.Kubernetes),
		Remedy: "Set kubernetes_version to what runs, or leave it out and upgrade Kubernetes with talosctl upgrade-k8s.",
	})
}

// checkPath looks at every node's way to the target.
func checkPath(snapshot cluster.Snapshot, target version.Version) []cluster.Finding {
	var (
		findings []cluster.Finding
		behind   []version.Version
	)

	for _, node := range snapshot.Managed() {
		if node.Machine == nil {
			continue
		}

		switch order := node.Machine.Talos.Compare(target); {
		case order > 0:
			findings = append(findings, cluster.Finding{
				Check: "versions", Severity: cluster.Permanent, Node: node.Name, Attribute: attributeTalos,
				Found:  fmt.Sprintf("the node runs Talos %s, which is newer than the target %s, and downgrades are not done", node.Machine.Talos, target),
				Remedy: fmt.Sprintf("Set talos_version to %s or newer, or bring the node back by hand.", node.Machine.Talos),
			})
		case order < 0:
			behind = append(behind, node.Machine.Talos)
		}
	}

	if len(behind) == 0 {
		return findings
	}

	return append(findings, checkHop(snapshot, version.Lowest(behind...), target)...)
}

// checkHop judges the one hop from the oldest node to the target.
func checkHop(snapshot cluster.Snapshot, from, target version.Version) []cluster.Finding {
	refuse := func(check, found, remedy string) []cluster.Finding {
		return []cluster.Finding{{Check: check, Severity: cluster.Permanent, Attribute: attributeTalos, Found: found, Remedy: remedy}}
	}

	if from.Less(oldestManaged()) {
		return refuse("versions", fmt.Sprintf("nodes on Talos %s are too old to be upgraded with this provider", from),
			fmt.Sprintf("Bring them to Talos %s or newer with talosctl first.", oldestManaged()))
	}

	if next := from.Minor().Next(); target.Minor().Compare(next) > 0 {
		return refuse("versions", fmt.Sprintf("going from Talos %s to %s would skip the release line %s", from, target, next),
			fmt.Sprintf("Upgrade to the latest %s.x first.", next))
	}

	if err := compat.Upgradeable(from, target); err != nil {
		return refuse("compatibility", err.Error(), "Choose a version that the support matrix knows.")
	}

	var findings []cluster.Finding

	lowest, highest := snapshot.KubernetesVersions()
	for _, kubernetes := range slices.Compact([]version.Version{lowest, highest}) {
		if kubernetes.IsZero() {
			continue
		}

		// One refusal is enough for versions of one minor.
		if err := compat.Supports(target, kubernetes); err != nil && (len(findings) == 0 || kubernetes.Minor() != lowest.Minor()) {
			findings = append(findings, refuse("compatibility", err.Error(), "Bring Kubernetes into that range first, or choose another talos_version.")...)
		}
	}

	if from.Less(oldestTested()) {
		findings = append(findings, cluster.Finding{
			Check: "versions", Severity: cluster.Advice, Attribute: attributeTalos,
			Found: fmt.Sprintf("nodes run Talos %s; this provider is tested from %s on", from, oldestTested()),
		})
	}

	return findings
}

// checkInventory names what could not be observed or does not add up.
func checkInventory(snapshot cluster.Snapshot) []cluster.Finding {
	var findings []cluster.Finding

	if snapshot.KubernetesError != nil {
		findings = append(findings, cluster.Finding{
			Check: "kubernetes-api", Severity: cluster.Observed, Err: snapshot.KubernetesError,
			Found:  "the Kubernetes API did not answer: " + snapshot.KubernetesError.Error(),
			Remedy: "Make the Kubernetes API answer and apply again: without it nothing can be cordoned, drained or recorded.",
		})
	}

	if snapshot.DiscoveryError != nil && snapshot.KubernetesError == nil {
		findings = append(findings, cluster.Finding{
			Check: "talos-api", Severity: cluster.Advice, Err: snapshot.DiscoveryError,
			Found: "discovery did not list the members, so only nodes that are registered in Kubernetes are known: " + snapshot.DiscoveryError.Error(),
		})
	}

	if len(snapshot.Foreign) > 0 {
		findings = append(findings, cluster.Finding{
			Check: "talos-api", Severity: cluster.Advice,
			Found: "not running Talos and left alone: " + strings.Join(snapshot.Foreign, ", "),
		})
	}

	for _, node := range snapshot.Nodes {
		if node.Gone {
			findings = append(findings, cluster.Finding{
				Check: "nodes-ready", Severity: cluster.Advice, Node: node.Name,
				Found:  "the node is registered but gone: NotReady for more than 5 minutes and unknown to discovery; it is left alone",
				Remedy: "Delete its Node object if it does not come back.",
			})

			continue
		}

		findings = append(findings, checkPresence(snapshot, node)...)
	}

	return findings
}

// checkPresence wants an answer from every node, except one that an earlier
// run may have sent into a reboot.
func checkPresence(snapshot cluster.Snapshot, node cluster.Node) []cluster.Finding {
	if _, open := openEntry(snapshot, node); open {
		return nil
	}

	if node.Machine == nil {
		return []cluster.Finding{{
			Check: "talos-api", Severity: cluster.Observed, Node: node.Name, Err: node.Unreachable,
			Found:  fmt.Sprintf("the Talos API of this %s at %s did not answer: %v", roleName(node.Role), node.Address, node.Unreachable),
			Remedy: "Bring the node back, or remove it from the cluster.",
		}}
	}

	if node.Kube == nil && snapshot.KubernetesError == nil {
		return []cluster.Finding{{
			Check: "nodes-ready", Severity: cluster.Observed, Node: node.Name,
			Found:  "discovery lists the machine, but it has no Node object in Kubernetes",
			Remedy: "Let it join, or take it out of the cluster.",
		}}
	}

	return nil
}

// roleName is the role as people write it.
func roleName(role cluster.Role) string {
	if role == cluster.ControlPlane {
		return "control plane"
	}

	return "worker"
}
