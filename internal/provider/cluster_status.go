// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Phases of a cluster.
const (
	phaseReady     = "Ready"
	phaseUpgrading = "UpgradingTalos"
	phaseFailed    = "UpgradeFailed"
)

// Statuses of a half, spelled as the annotations spell them.
const (
	statusIdle       = "idle"
	statusPending    = "pending"
	statusInProgress = "in-progress"
	statusCompleted  = "completed"
	statusFailed     = "failed"
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
		"message":    types.StringValue(s.Message),
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

	made.Talos.judge(desired.TalosVersion)
	made.Kubernetes.judge(desired.KubernetesVersion)

	switch armed, fallen := unfinished(snapshot, held); {
	case len(fallen) > 0:
		made.Phase, made.Talos.Status = phaseFailed, statusFailed
		made.Message = "Fell back to the old system and waits for a decision: " + strings.Join(fallen, ", ") + "."
	case len(armed) > 0:
		made.Phase, made.Talos.Status = phaseUpgrading, statusInProgress
		made.Message = "In the middle of an upgrade: " + strings.Join(armed, ", ") + "; the next apply continues."
	default:
		made.Message = fmt.Sprintf("Talos %s, Kubernetes %s.", made.Talos, made.Kubernetes)
	}

	return made
}

// earlierVersion is a version in the Kubernetes half of a status; zero where
// there is none.
func earlierVersion(earlier types.Object, name string) version.Version {
	object, ok := earlier.Attributes()["kubernetes"].(types.Object)
	if !ok {
		return version.Version{}
	}

	text, ok := object.Attributes()[name].(types.String)
	if !ok {
		return version.Version{}
	}

	// Null and unknown read as the empty text, which is no version.
	parsed, err := version.Parse(text.ValueString())
	if err != nil {
		return version.Version{}
	}

	return parsed
}

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

// unfinished are the nodes that may be armed and those that fell back. A
// machine that left the cluster counts no more, and a node that fell back and
// is held has had its decision; but an armed one stays armed, held or not.
func unfinished(snapshot cluster.Snapshot, held map[string]bool) (armed, fallen []string) {
	if snapshot.Journal == nil {
		return nil, nil
	}

	for _, node := range snapshot.Managed() {
		entry, found := journalEntry(*snapshot.Journal, node)

		switch {
		case !found:
		case entry.Open():
			armed = append(armed, node.Name)
		case !held[node.Name]:
			fallen = append(fallen, node.Name)
		}
	}

	slices.Sort(armed)
	slices.Sort(fallen)

	return armed, fallen
}

// journalEntry is what the journal says about a node. It knows machines by their
// UUID; of one that neither Talos nor Kubernetes describes right now, there is
// only the name.
func journalEntry(journal cluster.Journal, node cluster.Node) (cluster.Entry, bool) {
	if uuid := node.UUID(); uuid != "" {
		entry, found := journal.Entries[uuid]

		return entry, found
	}

	for _, entry := range journal.Entries {
		if entry.Node == node.Name {
			return entry, true
		}
	}

	return cluster.Entry{}, false
}

// failed is the status after an upgrade that stopped.
func (s status) failed(message string) status {
	s.Phase, s.Message, s.Talos.Status = phaseFailed, message, statusFailed

	return s
}

// since keeps what state says of a failed upgrade for as long as the nodes do
// not all run what is desired: an observation does not tell why they do not.
func (s status) since(earlier types.Object) types.Object {
	if earlier.IsNull() || earlier.IsUnknown() || s.Phase != phaseReady || s.Talos.Status != statusPending {
		return s.value()
	}

	attributes := earlier.Attributes()

	phase, ok := attributes["phase"].(types.String)
	if !ok || phase.ValueString() != phaseFailed {
		return s.value()
	}

	message, ok := attributes["message"].(types.String)
	if !ok {
		return s.value()
	}

	return s.failed(message.ValueString()).value()
}
