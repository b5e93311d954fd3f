// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// AgainstRollback returns the reasons why a node must not be sent back to the system that an entry of the journal
// says it ran before, each a clause; none if it may be sent back. A rollback starts the other slot of the
// bootloader, so its content has to be certain, and has to fit the cluster as it is now.
func AgainstRollback(observed cluster.Observation, name string, entry cluster.Entry) []string {
	node, found := observed.Node(name)
	if !found || node.Machine == nil {
		return []string{"its Talos API does not answer, so that nobody knows what it runs"}
	}

	machine := node.Machine

	switch {
	case !machine.Talos.Equal(entry.Target):
		return []string{fmt.Sprintf("it runs Talos %s, which is not what was installed", machine.Talos)}
	case entry.Schematic != "" && machine.Schematic == "":
		return []string{fmt.Sprintf("it shows no schematic, and %q was installed", entry.Schematic)}
	case entry.Schematic != "" && machine.Schematic != entry.Schematic:
		return []string{fmt.Sprintf("it runs schematic %q, which is not what was installed", machine.Schematic)}
	case entry.Told:
		return []string{"it was sent back once before, and started the new system again"}
	case entry.Previous.IsZero():
		return []string{"the journal does not say what it ran before"}
	case entry.Previous.Equal(machine.Talos) && entry.PreviousSchematic == machine.Schematic:
		return []string{"it runs what it ran before"}
	case entry.Phase == cluster.PhaseIntent:
		return []string{"nobody saw the end of the installer, so that it is not certain who installed what it runs"}
	case machine.BootID == "" || entry.BootID == "" || machine.BootID == entry.BootID:
		return []string{"nothing proves that it has booted since the new system was installed"}
	}

	against := olderTalos(observed, node, entry.Previous)
	if node.Role == cluster.ControlPlane {
		against = append(against, olderEtcd(observed, node, entry)...)
	}

	return against
}

// SentBack is the answer to a person's request for a rollback. Exactly one of its parts is set.
type SentBack struct {
	// Against are the reasons why the node must not be sent back, each a clause.
	Against []string
	// Done is true if the node already runs its old system again, Unfinished if an earlier run was sending it
	// back.
	Done, Unfinished bool
	// Ready is true if it may be sent back.
	Ready bool
}

// SendBack decides whether a node may be sent back to the system that it ran before its last upgrade because a
// person asks for it, and returns what the journal holds about it. An unfinished upgrade, other than a rollback,
// has to be finished instead.
func SendBack(observed cluster.Observation, name string) (found SentBack, key string, entry cluster.Entry) {
	node, there := observed.Node(name)

	switch {
	case !there || node.Gone:
		return against("it is not part of the cluster"), "", entry
	case observed.KubernetesError != nil:
		return against(fmt.Sprintf("the Kubernetes API does not answer: %v", observed.KubernetesError)), "", entry
	case observed.Journal == nil:
		return against(fmt.Sprintf("the journal cannot be read: %v", observed.JournalError)), "", entry
	}

	machine, journal := node.Machine, observed.Journal
	key, entry, recorded := journal.Of(node)

	switch {
	case recorded && entry.Phase == cluster.PhaseRollingBack:
		// It may be shutting down.
		return SentBack{Unfinished: true}, key, entry
	case recorded && entry.Open():
		return against(fmt.Sprintf("it is in the middle of its upgrade to Talos %s, which the next terraform apply finishes", entry.Target)), key, entry
	case machine == nil:
		return against(fmt.Sprintf("its Talos API does not answer, so that nobody knows what it runs: %v", node.Unreachable)), key, entry
	case machine.Platform == "container":
		return against("Talos has no rollback where it runs in a container (platform container)"), key, entry
	case machine.MachineID == "":
		return against("it does not tell its machine ID, under which the journal remembers what it ran before"), key, entry
	case recorded && machine.Talos.Equal(entry.Previous) && machine.Schematic == entry.PreviousSchematic:
		return SentBack{Done: true}, key, entry
	}

	if _, _, stray := journal.Stray(node, observed.Nodes); stray {
		return against("the journal holds an unfinished upgrade of a node of this name or hardware, under another machine ID"), key, entry
	}

	key = machine.MachineID
	entry, remembered := journal.Confirmed[key]

	switch {
	case !remembered:
		return against("the journal does not say what it ran before: it remembers that of nodes that terraform apply has upgraded"), key, entry
	case lostPlatform(entry.Platform, machine.Platform):
		return against(fmt.Sprintf("it runs on platform %s, and ran on %s when it was upgraded", machine.Platform, entry.Platform)), key, entry
	case machine.UpgradePending:
		return against("the machine has not been ready since an install or a rollback, until when Talos has not confirmed what it runs: wait until it is ready"), key, entry
	case runs(machine, entry) && machine.BootID != entry.ConfirmedBootID:
		return against(fmt.Sprintf("it has booted since its upgrade to Talos %s was confirmed, and nobody has seen whether something else was installed in between", entry.Target)), key, entry
	}

	if reasons := AgainstRollback(observed, name, entry); len(reasons) > 0 {
		return SentBack{Against: reasons}, key, entry
	}

	return SentBack{Ready: true}, key, entry
}

func against(reason string) SentBack { return SentBack{Against: []string{reason}} }

func lostPlatform(before, now string) bool { return before != "" && now != before }

// runs reports whether a machine runs what an entry of the journal was about to install.
func runs(machine *cluster.Machine, entry cluster.Entry) bool {
	return machine.Talos.Equal(entry.Target) && (entry.Schematic == "" || machine.Schematic == entry.Schematic)
}

// olderTalos objects if the previous Talos does not support the running Kubernetes: on a control plane, that of
// the whole cluster, because its components serve all nodes.
func olderTalos(observed cluster.Observation, node cluster.Node, previous version.Version) []string {
	var seen []version.Version

	for _, other := range observed.Managed() {
		if other.Name != node.Name && node.Role != cluster.ControlPlane {
			continue
		}

		for _, running := range other.Versions {
			seen = append(seen, running)
		}
	}

	if len(seen) == 0 {
		return []string{"nobody can tell which Kubernetes it runs"}
	}

	if err := compat.Supports(previous, version.Highest(seen...)); err != nil {
		return []string{fmt.Sprintf("its previous Talos %s does not fit the Kubernetes that runs now: %v", previous, err)}
	}

	return nil
}

// olderEtcd objects if etcd has been upgraded since: the version of the cluster is the minor version of its oldest
// member, it never decreases, and an older member is not admitted (etcd, server/etcdserver/api/membership:
// mustDetectDowngrade).
func olderEtcd(observed cluster.Observation, node cluster.Node, entry cluster.Entry) []string {
	previous, err := version.Parse(entry.PreviousEtcd)
	if err != nil {
		return []string{"the journal does not say which version of etcd it ran before"}
	}

	var (
		seen        []version.Version
		unknown     []string
		controlling = observed.ControlPlanes()
	)

	for _, other := range controlling {
		running := version.Version{}
		if other.Etcd != nil {
			running, _ = version.Parse(other.Etcd.Status.Version)
		}

		switch {
		case !running.IsZero():
			seen = append(seen, running)
		case other.Name != node.Name || len(controlling) == 1:
			unknown = append(unknown, other.Name)
		}
	}

	switch lowest := version.Lowest(seen...); {
	case len(unknown) > 0:
		return []string{"nobody can tell which version of etcd runs on " + readable.List(unknown)}
	case previous.Minor().Compare(lowest.Minor()) < 0:
		return []string{fmt.Sprintf("etcd runs as version %s by now, and the %s of its previous Talos could not join it", lowest.Minor(), previous)}
	}

	return nil
}
