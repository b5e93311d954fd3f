// SPDX-License-Identifier: MPL-2.0

package cluster

import "slices"

// The names of the checks, as findings carry them and as people skip them.
const (
	CheckTalosAPI           = "talos-api"
	CheckKubernetesAPI      = "kubernetes-api"
	CheckIdentity           = "cluster-identity"
	CheckRoles              = "roles"
	CheckVersions           = "versions"
	CheckCompatibility      = "compatibility"
	CheckComponentImages    = "component-images"
	CheckEtcdMembers        = "etcd-members"
	CheckEtcdQuorum         = "etcd-quorum"
	CheckEtcdAlarms         = "etcd-alarms"
	CheckEtcdRaftLag        = "etcd-raft-lag"
	CheckEtcdDBSize         = "etcd-db-size"
	CheckNodesReady         = "nodes-ready"
	CheckControlPlane       = "control-plane-components"
	CheckDiskSpace          = "disk-space"
	CheckTimeSync           = "time-sync"
	CheckInstallerImage     = "installer-image"
	CheckSchematic          = "schematic"
	CheckSecureBoot         = "secure-boot"
	CheckConfiguration      = "configuration"
	CheckDefects            = "known-defects"
	CheckDrain              = "drain"
	CheckRemovals           = "kubernetes-removals"
	CheckManifests          = "bootstrap-manifests"
	CheckLock               = "lock"
	CheckSuspended          = "suspended"
	CheckPendingInstall     = "pending-install"
	CheckSingleControlPlane = "single-control-plane"
	CheckTwoMembers         = "two-members"
	CheckExternalChanges    = "external-changes"
	CheckOwnNode            = "own-node"
	CheckCanary             = "canary"
	CheckNodeOverrides      = "node-overrides"
	CheckSelectors          = "selectors"
	CheckGates              = "gates"
	CheckWindow             = "maintenance-window"
	CheckSnapshot           = "etcd-snapshot"
	CheckOperator           = "operator"
)

// Check is one of the checks that are made before nodes are touched.
type Check struct {
	Name string
	// About is what it checks, a phrase for people.
	About string
	// Firm says why the check cannot be skipped, a sentence without a full stop; empty if it can be skipped.
	Firm string
}

// Checks returns all checks, in the order in which people read them.
func Checks() []Check {
	const (
		observed = "what cannot be observed cannot be upgraded safely"
		quorum   = "the cluster could lose its quorum"
		wrong    = "no upgrade leads there"
	)

	return []Check{
		{Name: CheckTalosAPI, About: "every node answers the Talos API", Firm: observed},
		{Name: CheckKubernetesAPI, About: "the Kubernetes API answers", Firm: observed},
		{Name: CheckIdentity, About: "the cluster is the one in the state", Firm: "it would be another cluster"},
		{Name: CheckRoles, About: "the credentials may upgrade", Firm: "the nodes would refuse it anyway"},
		{Name: CheckVersions, About: "the versions lead upwards, one minor release at a time", Firm: wrong},
		{Name: CheckCompatibility, About: "Talos and Kubernetes support each other all the way", Firm: wrong},
		{Name: CheckDefects, About: "no version of Talos on the way was withdrawn, or has a defect that the nodes would meet"},
		{Name: CheckComponentImages, About: "every component is pinned to an image of its own", Firm: "a kubelet could become newer than its API server"},
		{Name: CheckEtcdMembers, About: "the members of etcd are the control planes, all started, none a learner", Firm: quorum},
		{Name: CheckEtcdQuorum, About: "a majority of etcd is healthy with one member gone", Firm: quorum},
		{Name: CheckEtcdAlarms, About: "etcd raised no alarm"},
		{Name: CheckEtcdRaftLag, About: "every member of etcd has caught up", Firm: quorum},
		{Name: CheckEtcdDBSize, About: "the database of etcd is well below its quota"},
		{Name: CheckNodesReady, About: "no more nodes are unavailable than max_unavailable allows", Firm: "max_unavailable is the way to allow more"},
		{Name: CheckControlPlane, About: "the control plane's components are Ready"},
		{Name: CheckDiskSpace, About: "the nodes have room for the images"},
		{Name: CheckTimeSync, About: "the clocks of the nodes are synchronised", Firm: "a node whose clock is not does not become ready after its reboot"},
		{Name: CheckInstallerImage, About: "the registries have the installer images"},
		{Name: CheckSchematic, About: "no node loses its extensions"},
		{Name: CheckSecureBoot, About: "the images boot the way the nodes do"},
		{Name: CheckConfiguration, About: "the next Talos takes what the machine configurations say"},
		{Name: CheckDrain, About: "the pods of every node can be evicted and have somewhere to go"},
		{Name: CheckRemovals, About: "nothing is in use that the next release of Kubernetes removes"},
		{Name: CheckManifests, About: "the bootstrap manifests can be synced"},
		{Name: CheckLock, About: "nobody else upgrades the cluster with this provider", Firm: "two nodes would go down at a time"},
		{Name: CheckSuspended, About: "nobody has suspended the upgrades of the cluster", Firm: "on_suspend and the annotation are the ways to decide about that"},
		{Name: CheckOperator, About: "an operator that owns the cluster leaves it to this run, or is there to do what it is asked for", Firm: "two nodes would go down at a time"},
		{Name: CheckPendingInstall, About: "no node has an unconfirmed or failed upgrade behind it", Firm: "a second install would destroy the system a node can return to"},
		{Name: CheckSingleControlPlane, About: "more than one control plane keeps the Kubernetes API there"},
		{Name: CheckTwoMembers, About: "etcd does not have two members, where losing either loses quorum"},
		{Name: CheckExternalChanges, About: "no upgrade or reboot of somebody else is running"},
		{Name: CheckOwnNode, About: "no node that is to be upgraded is the one that the provider runs on"},
		{Name: CheckCanary, About: "the canaries are workers of the cluster", Firm: "a name that is not there protects nothing"},
		{Name: CheckNodeOverrides, About: "node_overrides name nodes of the cluster", Firm: "a name that is not there overrides nothing"},
		{Name: CheckSelectors, About: "the selectors match nodes and do not contradict each other", Firm: "it has to be certain which nodes are held, and how many may be unavailable"},
		{Name: CheckGates, About: "the gates hold"},
		{Name: CheckWindow, About: "the maintenance window is open", Firm: "leaving maintenance_window out is the way to upgrade at any time"},
		{Name: CheckSnapshot, About: "a snapshot of etcd can be saved", Firm: "leaving etcd_snapshot out is the way to upgrade without one"},
	}
}

// CheckNamed returns the check with the given name.
func CheckNamed(name string) (Check, bool) {
	all := Checks()

	index := slices.IndexFunc(all, func(c Check) bool { return c.Name == name })
	if index < 0 {
		return Check{}, false
	}

	return all[index], true
}

// Skip returns the findings, with those of checks that the policy skips turned into advice. Firm findings, and
// those of firm checks, are unchanged.
func (p Policy) Skip(findings []Finding) []Finding {
	skipped := slices.Clone(findings)

	for i := range skipped {
		if f := &skipped[i]; f.Severity != Advice && !f.Firm && p.Skips(f.Check) {
			f.Severity, f.Skipped = Advice, true
		}
	}

	return skipped
}

// Skips reports whether the policy turns the findings of the check into advice.
func (p Policy) Skips(check string) bool {
	known, found := CheckNamed(check)

	return found && known.Firm == "" && p.SkipChecks[check]
}
