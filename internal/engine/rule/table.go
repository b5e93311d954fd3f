// SPDX-License-Identifier: MPL-2.0

// Package rule is what has to hold before an upgrade does something to a node: what its guards ask.
// All of it is asked of one view of the cluster, and nobody is asked here. What is not known does not
// hold.
package rule

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// Stage is what an upgrade is about to do. Several of them are a set.
type Stage uint8

// The stages of a node, in order, and that of a component of Kubernetes, which has one.
const (
	// Cordon is a cordon of a node about which the journal has nothing open, and Install all that follows
	// until it has: so does a rollback that a person asks for begin.
	Cordon Stage = 1 << iota
	Install
	// Reboot is all that is done to a node on which something may be installed, a cordon included.
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
	// Name tells rules apart in tests. What the policy may skip goes by the check of a finding.
	Name string
	// Stages are those before which it has to hold.
	Stages Stage
	// Check finds what is in the way.
	Check func(View) []cluster.Finding
}

// Names of rules and of checks.
const (
	CheckControlPlanes = "control-planes"
	CheckComponents    = cluster.CheckControlPlane
	CheckKubelets      = "kubelets-ready"
	CheckSkew          = "version-skew"
	CheckRestarted     = "restarted-kubelets"
)

// Table is all rules, in the order in which they are asked: what comes first is what a person is told
// first.
func Table() []Rule {
	return []Rule{
		{cluster.CheckKubernetesAPI, nodeStages | Component, kubernetes},
		{cluster.CheckTalosAPI, nodeStages, machines},
		{cluster.CheckTalosAPI, Component, machine},
		{cluster.CheckEtcdMembers, nodeStages, members},
		{cluster.CheckEtcdQuorum, nodeStages, quorum},
		{cluster.CheckEtcdAlarms, nodeStages | Component, alarms},
		{cluster.CheckEtcdRaftLag, nodeStages, lag},
		{CheckControlPlanes, nodeStages, controlPlanes},
		{CheckControlPlanes, Component, otherControlPlanes},
		{CheckComponents, nodeStages, serving},
		{CheckComponents, Component, staticPods},
		{CheckRestarted, Component, restartedKubelets},
		{CheckKubelets, Component, kubelets},
		{CheckSkew, Component, skew},
		{cluster.CheckCanary, beforeInstall, canaries},
		{CheckSettle, beforeInstall, settled},
		{CheckBudget, nodeStages, budget},
		{CheckRoom, nodeStages, roomForPods},
		{cluster.CheckExternalChanges, beforeInstall, external},
		{cluster.CheckDiskSpace, beforeInstall, disk},
		{cluster.CheckTimeSync, beforeInstall, clock},
		{cluster.CheckGates, beforeInstall, gates},
		{cluster.CheckOperator, beforeInstall | Component, operator},
		{cluster.CheckPendingInstall, beforeInstall, pending},
		{cluster.CheckSelectors, beforeInstall | Component, held},
		{cluster.CheckCanary, Component, kubeletCanaries},
	}
}

// Judge asks the rules of a stage.
func Judge(rules []Rule, stage Stage, seen View) []cluster.Finding {
	var findings []cluster.Finding

	for _, one := range rules {
		if one.Stages&stage != 0 {
			findings = append(findings, one.Check(seen)...)
		}
	}

	return findings
}
