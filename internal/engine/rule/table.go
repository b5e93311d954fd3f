// SPDX-License-Identifier: MPL-2.0

// Package rule holds the conditions for doing something to a node, which the guards of upgrades check. All of
// them judge one view of the cluster, and ask nobody. What is unknown does not hold.
package rule

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// Stage is what an upgrade is about to do. Stages can be combined into a set.
type Stage uint8

// The stages of a node, in order, and the only stage of a component of Kubernetes.
const (
	// Cordon is a cordon of a node without an open entry in the journal, and Install is everything that follows
	// until there is one. A rollback that a person asks for begins with these stages, too.
	Cordon Stage = 1 << iota
	Install
	// Reboot is everything that is done to a node on which something may be installed, including a cordon.
	Reboot
	// SendBack is Reboot for a node that is to start its old system.
	SendBack
	// Component restarts a component.
	Component
)

const (
	beforeInstall = Cordon | Install
	nodeStages    = Cordon | Install | Reboot | SendBack
)

// Rule is one condition for doing something to a node, or to a component on it.
type Rule struct {
	// Name tells rules apart in tests. What the policy may skip depends on the check of a finding.
	Name string
	// Stages are those before which it must hold.
	Stages Stage
	// Check returns what is in the way. It is called under locks, so it must neither wait nor ask anybody.
	Check func(View) []cluster.Finding
	// About is what must hold, for people.
	About string
}

// Names of rules and of checks.
const (
	CheckControlPlanes = "control-planes"
	CheckComponents    = cluster.CheckControlPlane
	CheckKubelets      = "kubelets-ready"
	CheckSkew          = "version-skew"
	CheckRestarted     = "restarted-kubelets"
)

// Table returns all rules, in the order in which they are applied and in which people read their findings.
func Table() []Rule {
	return []Rule{
		{cluster.CheckKubernetesAPI, nodeStages | Component, kubernetes, "the Kubernetes API answers"},
		{cluster.CheckTalosAPI, nodeStages, machines, "the node and every control plane answer, and none of them is booting or going down"},
		{cluster.CheckTalosAPI, Component, machine, "the node answers, and is neither booting nor going down"},
		{cluster.CheckEtcdMembers, nodeStages, members, "every control plane names the same members of etcd, all started, none a learner"},
		{cluster.CheckEtcdQuorum, nodeStages, quorum, "all members follow one leader, and a healthy majority remains without the node"},
		{cluster.CheckEtcdMembers, Component, wholeEtcd, "where a component of a control plane restarts: the members of etcd agree, follow one leader and have caught up"},
		{cluster.CheckEtcdAlarms, nodeStages | Component, alarms, "etcd has raised no alarm"},
		{cluster.CheckEtcdRaftLag, nodeStages, lag, "every member of etcd has caught up"},
		{CheckControlPlanes, nodeStages, controlPlanes, "every other control plane has finished booting and is Ready"},
		{CheckControlPlanes, Component, otherControlPlanes, "the other control planes are healthy; the kubelet of a worker does not need them"},
		{CheckComponents, nodeStages, serving, "the static pods of the other control planes are Ready, where a control plane goes away"},
		{CheckComponents, Component, staticPods, "every static pod is Ready but those still to be replaced"},
		{CheckRestarted, Component, restartedKubelets, "kubelets of control planes that have just restarted have kept their static pods"},
		{CheckKubelets, Component, kubelets, "fewer kubelets have failed to come up with the new version than may restart at a time, and no canary"},
		{CheckSkew, Component, skew, "no API server is of an older minor version than what is to talk to it"},
		{cluster.CheckCanary, beforeInstall, canaries, "every canary runs the new version, and is in service"},
		{CheckSettle, beforeInstall, settled, "the nodes that were moved have stayed healthy for `settle`"},
		{CheckBudget, nodeStages, budget, "no more workers are unavailable than `max_unavailable` allows, of all and of the pool"},
		{CheckRoom, nodeStages, roomForPods, "where the node is about to be drained, another one is left that can take its pods"},
		{cluster.CheckExternalChanges, beforeInstall, external, "nobody else upgrades or reboots a node"},
		{cluster.CheckDiskSpace, beforeInstall, disk, "the disk of the node has room for the image"},
		{cluster.CheckTimeSync, beforeInstall, clock, "the clock of the node is synchronised"},
		{cluster.CheckGates, beforeInstall | Component, gates, "the gates hold, and nobody has suspended the upgrades; asked until the first cordon, or change of the component"},
		{cluster.CheckOperator, beforeInstall | Component, operator, "no operator acts on the cluster"},
		{cluster.CheckPendingInstall, beforeInstall, pending, "the node has no unconfirmed upgrade behind it"},
		{cluster.CheckSelectors, beforeInstall | Component, held, "no label holds the node that nothing was done to yet"},
		{cluster.CheckCanary, Component, kubeletCanaries, "the kubelet of every canary is replaced first"},
	}
}

// Judge applies the rules of a stage.
func Judge(rules []Rule, stage Stage, seen View) []cluster.Finding {
	var findings []cluster.Finding

	for _, one := range rules {
		if one.Stages&stage != 0 {
			findings = append(findings, one.Check(seen)...)
		}
	}

	return findings
}
