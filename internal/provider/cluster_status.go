// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Phases of a cluster.
const (
	phaseReady      = "Ready"
	phaseUpgrading  = "UpgradingTalos"
	phaseKubernetes = "UpgradingKubernetes"
	phaseFailed     = "UpgradeFailed"
)

// Statuses of a half, spelled as the annotations spell them.
const (
	statusIdle       = "idle"
	statusPending    = "pending"
	statusInProgress = "in-progress"
	statusCompleted  = "completed"
	statusFailed     = "failed"
	// statusBlocked is Kubernetes while Talos has to move first.
	statusBlocked = "blocked"
)

// half is one of Talos and Kubernetes.
type half struct {
	Status          string
	Lowest, Highest version.Version
}

// status is where a cluster stands.
type status struct {
	Phase, Message    string
	Talos, Kubernetes half
}

func halfTypes() map[string]attr.Type {
	return map[string]attr.Type{"status": types.StringType, "lowest": types.StringType, "highest": types.StringType}
}

func statusTypes() map[string]attr.Type {
	return map[string]attr.Type{
		"phase":      types.StringType,
		"message":    types.StringType,
		"talos":      types.ObjectType{AttrTypes: halfTypes()},
		"kubernetes": types.ObjectType{AttrTypes: halfTypes()},
	}
}

func (h half) value() types.Object {
	return types.ObjectValueMust(halfTypes(), map[string]attr.Value{
		"status":  types.StringValue(h.Status),
		"lowest":  versionValue(h.Lowest),
		"highest": versionValue(h.Highest),
	})
}

// value is the status as an object of the schema.
func (s status) value() types.Object {
	return types.ObjectValueMust(statusTypes(), map[string]attr.Value{
		"phase":      types.StringValue(s.Phase),
		"message":    types.StringValue(cluster.Printable(s.Message)),
		"talos":      s.Talos.value(),
		"kubernetes": s.Kubernetes.value(),
	})
}

// newStatus judges an observation by what is desired. Where all is observed it
// depends on nothing else, so that an import finds what an apply stored. What
// the Kubernetes API does not say right now is taken from the earlier status.
func newStatus(snapshot cluster.Snapshot, desired clusterModel) status {
	held := desired.held()
	counted := without(snapshot, held)

	made := status{Phase: phaseReady}
	made.Talos.Lowest, made.Talos.Highest = counted.TalosVersions()

	made.Kubernetes.Lowest, made.Kubernetes.Highest = counted.KubernetesVersions()
	if made.Kubernetes.Lowest.IsZero() {
		made.Kubernetes.Lowest = earlierVersion(desired.Status, "lowest")
		made.Kubernetes.Highest = earlierVersion(desired.Status, "highest")
	}

	absent := unseenNodes(snapshot, desired.Nodes)
	made.Talos.include(desired.Nodes, slices.DeleteFunc(slices.Clone(absent), func(name string) bool { return held[name] }))

	made.Talos.judge(desired.TalosVersion)
	made.Kubernetes.judge(desired.KubernetesVersion)

	left := unfinished(snapshot, held, desired.TalosVersion)
	due := manifestsDue(snapshot, desired)

	switch {
	case len(left.returned()) > 0:
		made.Phase, made.Talos.Status = phaseFailed, statusFailed
		made.Message = left.message()
	case len(left.open()) > 0:
		made.Phase, made.Talos.Status = phaseUpgrading, statusInProgress
		made.Message = left.message()
	case due && made.Kubernetes.Status == statusIdle:
		made.Phase, made.Message = phaseUpgrading, "The bootstrap manifests are still to be synced after a roll; the next apply does it."
	case due && made.Talos.arrived():
		made.Phase, made.Kubernetes.Status = phaseKubernetes, statusInProgress
		made.Message = "In the middle of a roll, and the bootstrap manifests are still to be synced; the next apply continues."
	default:
		made.Message = fmt.Sprintf("Talos %s, Kubernetes %s.", made.Talos, made.Kubernetes)
	}

	made.block(desired)

	if len(absent) > 0 {
		made.Message += fmt.Sprintf(" Nothing lists %s right now; what is said of them is from an earlier look.", strings.Join(absent, ", "))
	}

	return made
}

// block says of a Kubernetes that is not at its target that it waits for Talos,
// where Talos is not at its own and nothing demands the opposite.
func (s *status) block(desired clusterModel) {
	if s.Kubernetes.Status != statusPending || s.Talos.arrived() {
		return
	}

	talos, talosErr := version.Parse(desired.TalosVersion.ValueString())
	kubernetes, kubernetesErr := version.Parse(desired.KubernetesVersion.ValueString())

	if talosErr != nil || kubernetesErr != nil || compat.Supports(talos, s.Kubernetes.Lowest) != nil {
		return
	}

	s.Kubernetes.Status = statusBlocked

	if compat.Supports(s.Talos.Lowest, kubernetes) != nil {
		s.Message += fmt.Sprintf(" Talos %s does not support K8s %s. Upgrade Talos first.", s.Talos.Lowest, kubernetes)
	}
}

// manifestsDue tells whether an earlier roll did not get to the bootstrap
// manifests, and somebody wants them.
func manifestsDue(snapshot cluster.Snapshot, desired clusterModel) bool {
	return snapshot.Journal != nil && snapshot.Journal.Manifests != nil && desired.syncs()
}

// arrived tells whether nothing is left to do in the half.
func (h *half) arrived() bool { return h.Status == statusCompleted || h.Status == statusIdle }

// judge sets the status of a half from what is desired of it.
func (h *half) judge(desired types.String) {
	switch {
	case desired.ValueString() == "":
		h.Status = statusIdle
	case desires(desired, h.Lowest) && desires(desired, h.Highest):
		h.Status = statusCompleted
	default:
		h.Status = statusPending
	}
}

// String is "1.13.4" or "1.12.6 to 1.13.4".
func (h half) String() string {
	if h.Lowest.Equal(h.Highest) {
		return h.Lowest.String()
	}

	return h.Lowest.String() + " to " + h.Highest.String()
}

// without is the snapshot without the held nodes: they neither have to follow
// nor keep the others from being done.
func without(snapshot cluster.Snapshot, held map[string]bool) cluster.Snapshot {
	snapshot.Nodes = slices.DeleteFunc(slices.Clone(snapshot.Nodes), func(node cluster.Node) bool { return held[node.Name] })

	return snapshot
}
