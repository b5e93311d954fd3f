// SPDX-License-Identifier: MPL-2.0

// Package rule is what has to hold before an upgrade does something to a node. All of it is asked of one
// view of the cluster, and nobody is asked here. What is not known does not hold.
package rule

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// Stage is what an upgrade is about to do. Several of them are a set.
type Stage uint8

// The stages of a node, in order, and that of a component of Kubernetes, which has one.
const (
	// Cordon takes a node out of service on which nothing is installed yet, Install installs.
	Cordon Stage = 1 << iota
	Install
	// Reboot goes on with a node on which something is installed: it is cordoned where it is not, and
	// rebooted.
	Reboot
	// SendBack has a node start its old system.
	SendBack
	// Component restarts a component.
	Component
)

const (
	untouched = Cordon | Install
	node      = Cordon | Install | Reboot | SendBack
)

// Rule is one condition for doing something to a node, or to a component on it.
type Rule struct {
	// Name is that of a check, by which the policy may skip what is found.
	Name string
	// Stages are those before which it has to hold.
	Stages Stage
	// Check finds what is in the way.
	Check func(View) []cluster.Finding
}

// The checks of rules that no preflight has.
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
		{cluster.CheckKubernetesAPI, node | Component, kubernetes},
		{cluster.CheckTalosAPI, node, machines},
		{cluster.CheckTalosAPI, Component, machine},
		{cluster.CheckEtcdMembers, node, members},
		{cluster.CheckEtcdQuorum, node, quorum},
		{cluster.CheckEtcdAlarms, node, alarms},
		{cluster.CheckEtcdRaftLag, node, lag},
		{CheckControlPlanes, node, controlPlanes},
		{CheckControlPlanes, Component, otherControlPlanes},
		{CheckComponents, node, serving},
		{CheckComponents, Component, staticPods},
		{CheckRestarted, Component, restartedKubelets},
		{CheckKubelets, Component, kubelets},
		{CheckSkew, Component, skew},
		{cluster.CheckCanary, untouched, canaries},
		{CheckSettle, untouched, settled},
		{CheckBudget, node, budget},
		{CheckRoom, node, roomForPods},
		{cluster.CheckExternalChanges, untouched, external},
		{cluster.CheckDiskSpace, untouched, disk},
		{cluster.CheckTimeSync, untouched, clock},
		{cluster.CheckGates, untouched, gates},
		{cluster.CheckOperator, untouched | Component, operator},
		{cluster.CheckPendingInstall, untouched, pending},
		{cluster.CheckSelectors, untouched | Component, held},
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
