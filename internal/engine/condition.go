// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// isWell tells whether everything about a node itself is as it should be: its
// system, its kubelet and its member of etcd.
func isWell(node cluster.Node) bool {
	switch {
	case node.Machine == nil || !node.Machine.Settled():
		return false
	case node.Kube == nil || !node.Kube.Ready || node.Kube.BootID != "" && node.Kube.BootID != node.Machine.BootID:
		return false
	case node.Role != cluster.ControlPlane:
		return true
	default:
		return health.Votes(node)
	}
}

// guardInput is what a guard judges: an observation, and the step that would
// disturb a node.
type guardInput struct {
	cluster.Observation

	step plan.Step
	// steps are those that upgrades had done when the observation began.
	steps fact.Steps
	// run is the name under which cordons of this run are marked.
	run    string
	policy cluster.Policy
	// others are the nodes that upgrades of this run are taking out of service:
	// true where that began before the step's own node.
	others map[string]bool
	// cordoning tells that the step would take a node out of service whose pods
	// have to go somewhere.
	cordoning bool
	// starting tells that nothing was done yet to the step's node, or component.
	starting bool
	// returning tells that the step's node is to be sent back to its old system,
	// because it is not well with the new one.
	returning bool
	// told is what the step's node says of its disk and its clock, or why it does not.
	told    cluster.Vitals
	toldErr error
	// vitals are what is wrong with the disk and the clock of the step's node,
	// closed are the gates that do not hold, and that somebody has suspended the
	// upgrades.
	vitals, closed []cluster.Finding
	// unsettled are nodes that were moved and have not stayed healthy since.
	unsettled []cluster.Finding
	// kubelets are the services of the kubelets of other control planes, by the names of
	// their nodes; nil where they do not matter.
	kubelets map[string]cluster.ComponentStatus
	// intruded is what shows that the operator of the cluster acts.
	intruded []cluster.Finding
}

// guard is one condition for disturbing a node. Unknown counts as not holding.
type guard struct {
	name  string
	check func(guardInput) []cluster.Finding
	// beforeInstall limits it to nodes on which nothing is installed yet.
	beforeInstall bool
}

// defaultGuards are checked before the cordon, before the install and before
// the reboot, each time on a new observation.
func defaultGuards() []guard {
	return []guard{
		{name: cluster.CheckKubernetesAPI, check: guardKubernetes},
		{name: cluster.CheckTalosAPI, check: guardMachines},
		{name: cluster.CheckEtcdMembers, check: guardMembers},
		{name: cluster.CheckEtcdQuorum, check: guardQuorum},
		{name: cluster.CheckEtcdAlarms, check: guardAlarms},
		{name: cluster.CheckEtcdRaftLag, check: guardLag},
		{name: "control-planes", check: guardControlPlanes},
		{name: cluster.CheckControlPlane, check: guardServing},
		{name: cluster.CheckCanary, check: guardCanaries, beforeInstall: true},
		{name: checkSettle, check: guardSettled, beforeInstall: true},
		{name: cluster.CheckNodesReady, check: guardBudget},
		{name: checkRoom, check: guardRoom},
		{name: cluster.CheckExternalChanges, check: guardExternal, beforeInstall: true},
		{name: cluster.CheckDiskSpace, check: guardDisk, beforeInstall: true},
		{name: cluster.CheckTimeSync, check: guardClock, beforeInstall: true},
		{name: cluster.CheckGates, check: guardGates, beforeInstall: true},
		{name: cluster.CheckOperator, check: guardOperator, beforeInstall: true},
		{name: cluster.CheckPendingInstall, check: guardPending, beforeInstall: true},
		{name: cluster.CheckSelectors, check: guardHeld, beforeInstall: true},
	}
}

func guardKubernetes(s guardInput) []cluster.Finding {
	if s.KubernetesError == nil {
		return nil
	}

	return newFinding(cluster.CheckKubernetesAPI, "", "the Kubernetes API does not answer: "+s.KubernetesError.Error(),
		"Make it answer again: without it nothing can be cordoned, drained or recorded.", s.KubernetesError)
}

// ill tells whether the node is the one that is not expected to be well.
func (s guardInput) ill(node cluster.Node) bool { return s.returning && node.Name == s.step.Node }

// guardMachines wants an answer from every control plane and from the node
// itself, which must be there and neither booting nor going down.
func guardMachines(s guardInput) []cluster.Finding {
	var findings []cluster.Finding

	node, found := s.Node(s.step.Node)
	if !found {
		return newFinding(cluster.CheckTalosAPI, s.step.Node, "the node is no longer part of the cluster", "Let it join again, or leave it out for good.", nil)
	}

	stuck := node.Machine != nil && s.ill(node) && node.Machine.Stage == cluster.StageBooting

	if node.Machine != nil && node.Machine.Stage != cluster.StageRunning && !stuck {
		findings = append(findings, newFinding(cluster.CheckTalosAPI, node.Name, fmt.Sprintf("the machine is %s", node.Machine.Stage),
			"Wait until it runs, or look at its console (talosctl dmesg).", nil)...)
	}

	if node.Machine != nil && node.Machine.BootID == "" {
		findings = append(findings, newFinding(cluster.CheckTalosAPI, node.Name, "its boot ID cannot be read, and without it a reboot cannot be proven",
			"Look at the machine (talosctl read /proc/sys/kernel/random/boot_id), and at what the credentials allow.", nil)...)
	}

	for _, other := range s.Managed() {
		if other.Machine != nil || other.Name != s.step.Node && other.Role != cluster.ControlPlane {
			continue
		}

		if cluster.Unaccepted(other.Unreachable) != "" {
			findings = append(findings, plan.Unaccepted(other))
		} else {
			findings = append(findings, newFinding(cluster.CheckTalosAPI, other.Name, fmt.Sprintf("its Talos API does not answer: %v", other.Unreachable),
				"Bring the machine back, or its network.", other.Unreachable)...)
		}
	}

	return findings
}

// guardControlPlanes wants every other control plane whole: finished booting
// and Ready, whatever is about to be disturbed.
func guardControlPlanes(s guardInput) []cluster.Finding {
	const remedy = "Bring it back to health first (talosctl health, kubectl describe node)."

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		if node.Name == s.step.Node {
			continue
		}

		switch {
		case node.Machine != nil && !node.Machine.Settled():
			findings = append(findings, newFinding(cluster.CheckTalosAPI, node.Name,
				fmt.Sprintf("this control plane is %s and has not finished booting%s", node.Machine.Stage, unmet(*node.Machine)), remedy, nil)...)
		case node.Kube == nil || !node.Kube.Ready:
			findings = append(findings, newFinding(cluster.CheckNodesReady, node.Name, "this control plane is not Ready in Kubernetes", remedy, nil)...)
		}
	}

	return findings
}

// unmet says what a machine still waits for.
func unmet(machine cluster.Machine) string {
	if len(machine.Unmet) == 0 {
		return ""
	}

	return "; not yet: " + strings.Join(machine.Unmet, ", ")
}

// guardCanaries wants every canary to run what the step leads to, and to be in
// service: it is there to stop the others, also those whose upgrades have begun.
func guardCanaries(s guardInput) []cluster.Finding {
	if s.step.Canary || s.returning || s.KubernetesError != nil {
		return nil
	}

	var findings []cluster.Finding

	for _, name := range s.policy.Canaries() {
		// One that is missing has left the cluster, and the plan knows what is wrong.
		if node, found := s.Node(name); found && !node.Left() && node.Role == cluster.Worker && !s.policy.Hold[name] {
			findings = append(findings, plan.Faltering(s.policy, node, s.step)...)
		}
	}

	return findings
}

// guardSettled wants the nodes that were moved to stay healthy.
func guardSettled(s guardInput) []cluster.Finding {
	if s.returning {
		return nil
	}

	return s.unsettled
}

// guardPending refuses to touch a system that Talos has not confirmed: an install now
// would overwrite the one that it could return to, or a newer one that a person tries.
func guardPending(s guardInput) []cluster.Finding {
	node, found := s.Node(s.step.Node)
	if !found || node.Machine == nil || !node.Machine.UpgradePending {
		return nil
	}

	return newFinding(cluster.CheckPendingInstall, node.Name, health.UnconfirmedFound(*node.Machine), health.UnconfirmedRemedy(*node.Machine, node.Address), nil)
}

// checkBudget is the name of the check of how many workers are unavailable, and
// attributeBudget and attributePools where their number is configured.
const (
	checkBudget     = cluster.CheckNodesReady
	attributeBudget = "max_unavailable"
	attributePools  = "pools"
)

// guardBudget keeps no more workers unavailable than the policy allows, of all of them
// and of those in the pool, the step's own node included. A node that is unavailable
// without the doing of this run costs nothing.
func guardBudget(s guardInput) []cluster.Finding {
	node, found := s.Node(s.step.Node)
	if !found || node.Role != cluster.Worker || node.Kube == nil {
		return nil
	}

	if !node.Kube.Ready || node.Kube.Unschedulable && node.Kube.CordonedBy != s.run {
		return nil
	}

	workers := s.Workers()

	away, spent := s.awayBeside(node.Name), s.Budget(s.policy.MaxUnavailable)
	if len(away) >= spent {
		return budgetFinding(s.Observation, away, fmt.Sprintf("max_unavailable = %s of %d workers is %d", s.policy.MaxUnavailable, len(workers), spent), "max_unavailable")
	}

	for _, pool := range s.policy.Selected.Pools {
		inPool := slices.DeleteFunc(slices.Clone(away), func(name string) bool { return !pool.Counts(name) })
		if !pool.Has(node.Name) || len(inPool) < pool.Budget() {
			continue
		}

		findings := budgetFinding(s.Observation, inPool, fmt.Sprintf("%s is %d", plan.PoolText(pool), pool.Budget()), "max_unavailable of the pool "+pool.Name)
		findings[0].Attribute, findings[0].Within = plan.PoolAt(pool.Name)

		return findings
	}

	return nil
}

// awayBeside are the workers that are unavailable beside the node, or will be before it
// is, sorted.
func (s guardInput) awayBeside(node string) []string {
	var away []string

	for _, other := range s.Workers() {
		if other.Name == node {
			continue
		}

		// Where two upgrades would wait for each other, the later one waits: its
		// node does not count for the earlier one.
		earlier, busy := s.others[other.Name]
		if busy && earlier || !busy && !other.Available() {
			away = append(away, other.Name)
		}
	}

	slices.Sort(away)

	return away
}

// budgetFinding says that a budget, with its number, is taken up by the workers that
// are away. Raised is what would have to be raised.
func budgetFinding(observed cluster.Observation, away []string, budget, raised string) []cluster.Finding {
	findings := newFinding(checkBudget, away[0],
		fmt.Sprintf("%s, and these are not Ready or cordoned: %s", budget, strings.Join(away, ", ")), budgetRemedy(observed, raised), nil)
	findings[0].Attribute = attributeBudget

	return findings
}

// budgetRemedy is what to do about a budget that is spent.
func budgetRemedy(observed cluster.Observation, raised string) string {
	if !plan.SparesOne(observed) {
		return "Bring them back (kubectl uncordon, kubectl describe node)."
	}

	return "Bring them back (kubectl uncordon, kubectl describe node) or raise " + raised + "."
}

// aboutMoved tells whether the finding is about a node that was moved before.
func aboutMoved(f cluster.Finding) bool {
	return f.Check == cluster.CheckCanary || f.Check == checkSettle
}

// aboutBudget tells whether the finding is about the number of those that may be
// unavailable.
func aboutBudget(f cluster.Finding) bool {
	return f.Check == checkBudget && (f.Attribute == attributeBudget || f.Attribute == attributePools)
}

// checkRoom is the name of the check of where the pods of a node could go.
const checkRoom = "room-for-pods"

// room is what a node has for the pods of another one.
type room int

const (
	// noRoom: it takes no pods, whatever this run does.
	noRoom room = iota
	// roomLater: it takes pods when this run is done with it.
	roomLater
	// roomNow: it takes pods.
	roomNow
)

// roomOn tells what room a node has. Busy are those that an upgrade of this run is
// taking out of service.
func roomOn(node cluster.KubeNode, run string, busy bool) room {
	switch {
	case node.ExcludesWorkloads, node.Unschedulable && node.CordonedBy == "":
		return noRoom
	case busy:
		return roomLater
	case !node.Ready:
		return noRoom
	case !node.Unschedulable:
		return roomNow
	case node.CordonedBy == run:
		return roomLater
	default:
		return noRoom
	}
}

// guardRoom keeps a node in service while other upgrades of this run have every
// node that could take its pods: these would have nowhere to go. So does it with the
// last one that takes pods while another upgrade empties a node, whether that one takes
// any afterwards or not. Where there is no such node anyway, as in a cluster of one
// worker, waiting is of no use.
func guardRoom(s guardInput) []cluster.Finding {
	node, found := s.Node(s.step.Node)
	if !s.cordoning || !found || node.Kube == nil || !node.Kube.Ready {
		// To move a node that is not Ready may be what brings it back.
		return nil
	}

	var later, emptied []string

	for _, other := range s.Managed() {
		if other.Name == node.Name || other.Kube == nil {
			continue
		}

		_, busy := s.others[other.Name]

		switch room := roomOn(*other.Kube, s.run, busy); {
		case room == roomNow:
			return nil
		case room == roomLater:
			later = append(later, other.Name)
		case busy && !other.Kube.ExcludesWorkloads:
			emptied = append(emptied, other.Name)
		}
	}

	slices.Sort(later)
	slices.Sort(emptied)

	switch {
	case len(later) > 0:
		return newFinding(checkRoom, node.Name,
			fmt.Sprintf("its pods could only go to nodes that this run has taken out of service: %s", strings.Join(later, ", ")),
			"They come back by themselves; one more node that takes pods would let them move at the same time.", nil)
	case len(emptied) > 0 && node.Available():
		return newFinding(checkRoom, node.Name,
			fmt.Sprintf("it is the last node that takes pods, and this run is at work on others that somebody else has cordoned: %s", strings.Join(emptied, ", ")),
			"Take their cordons away (kubectl uncordon), so that its pods have somewhere to go.", nil)
	default:
		return nil
	}
}

// guardServing wants the static pods of the other control planes Ready before a
// control plane goes away: the Kubernetes API must not go with it.
func guardServing(s guardInput) []cluster.Finding {
	if s.step.Role != cluster.ControlPlane || s.KubernetesError != nil {
		return nil
	}

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
			pod, found := node.Pods[component]
			if node.Name == s.step.Node || health.Disables(node, component) || found && pod.Ready || !found && component != cluster.APIServer {
				continue
			}

			findings = append(findings, newFinding(checkComponents, node.Name, fmt.Sprintf("its %s is not Ready%s", component, fact.Troubled(pod)),
				fmt.Sprintf("Bring it back first (kubectl -n kube-system describe pod %s-%s).", component, node.Name), nil)...)
		}
	}

	return findings
}

// guardExternal wants nobody else to be upgrading or rebooting a node. Those of
// this run, and those that an earlier run left in the middle of an upgrade, are its
// own affair.
func guardExternal(s guardInput) []cluster.Finding {
	var findings []cluster.Finding

	for _, node := range s.Managed() {
		doing := doneElsewhere(node)
		_, busy := s.others[node.Name]
		held := node.Role == cluster.Worker && s.policy.Holds(node.Name)

		if doing != "" && !busy && !held && node.Name != s.step.Node && !unfinished(s.Observation, node) {
			findings = append(findings, newFinding(cluster.CheckExternalChanges, node.Name, doing+", and not by this upgrade",
				"Wait until that is over, or find out who does it (talosctl -n "+node.Address+" get machinestatus).", nil)...)
		}
	}

	return findings
}

// unfinished tells whether an earlier run, or another upgrade of this one, left the
// node in the middle of its upgrade.
func unfinished(observed cluster.Observation, node cluster.Node) bool {
	if observed.Journal == nil {
		return false
	}

	_, entry, found := observed.Journal.Of(node)

	return found && entry.Open()
}

// doneElsewhere says what a machine is doing that no healthy one does by itself.
func doneElsewhere(node cluster.Node) string {
	switch {
	case node.Machine != nil && health.Leaving(node.Machine.Stage):
		return fmt.Sprintf("the machine is %s", node.Machine.Stage)
	case node.Kube != nil && node.Kube.CordonedByTalos:
		return "the machine has cordoned its node, as it does when it is upgraded, reset or shut down"
	default:
		return ""
	}
}

func guardDisk(s guardInput) []cluster.Finding {
	return filterByCheck(cluster.CheckDiskSpace, s.vitals)
}

func guardClock(s guardInput) []cluster.Finding {
	return filterByCheck(cluster.CheckTimeSync, s.vitals)
}

func guardGates(s guardInput) []cluster.Finding { return s.closed }

// guardOperator wants the operator of the cluster to leave it alone.
func guardOperator(s guardInput) []cluster.Finding { return s.intruded }

// filterByCheck are the findings of one check that stop something.
func filterByCheck(check string, findings []cluster.Finding) []cluster.Finding {
	return slices.DeleteFunc(cluster.Blocking(findings), func(f cluster.Finding) bool { return f.Check != check })
}

// etcdFindings are what keeps etcd from counting as healthy, alarms aside,
// whichever node is about to be disturbed.
func etcdFindings(observed cluster.Observation) []cluster.Finding {
	var findings []cluster.Finding

	for _, check := range []func(guardInput) []cluster.Finding{guardMembers, guardQuorum, guardLag} {
		findings = append(findings, check(guardInput{Observation: observed})...)
	}

	return findings
}

// etcdNodes are the control planes whose members of etcd have to be well. A node that is
// to be sent back to its old system need not have one: its member is missing already.
func (s guardInput) etcdNodes() []cluster.Node {
	return slices.DeleteFunc(s.ControlPlanes(), s.ill)
}

// guardMembers wants the same members, all started and none a learner, from
// every control plane's point of view.
func guardMembers(s guardInput) []cluster.Finding {
	var (
		findings []cluster.Finding
		first    string
	)

	viewers, controlPlanes := s.etcdNodes(), s.ControlPlanes()

	for _, node := range viewers {
		if node.Etcd == nil {
			findings = append(findings, newFinding(cluster.CheckEtcdMembers, node.Name, etcdSilence(node), health.EtcdRemedy, node.EtcdError)...)
		}
	}

	findings = append(findings, health.EtcdMembers(viewers, controlPlanes)...)
	findings = append(findings, health.EtcdVoters(viewers, controlPlanes, func(cluster.Node) bool { return false })...)

	for _, node := range viewers {
		if node.Etcd == nil || node.Etcd.Mute() {
			continue
		}

		listed := memberList(node.Etcd.Members)
		if first == "" {
			first = listed
		} else if listed != first {
			findings = append(findings, newFinding(cluster.CheckEtcdMembers, node.Name, "the control planes do not agree on the members of etcd",
				health.MembersRemedy, nil)...)
		}
	}

	return findings
}

// etcdSilence says why nothing is known of the member on a control plane.
func etcdSilence(node cluster.Node) string {
	switch {
	case node.EtcdError != nil:
		return fmt.Sprintf("etcd on this control plane does not answer: %v", node.EtcdError)
	case node.Unreachable != nil:
		return fmt.Sprintf("etcd on this control plane could not be asked, because its Talos API does not answer: %v", node.Unreachable)
	default:
		return "etcd on this control plane was not asked"
	}
}

func memberList(members []cluster.EtcdMember) string {
	lines := make([]string, 0, len(members))
	for _, member := range members {
		lines = append(lines, fmt.Sprintf("%016x %s", member.ID, member.Name))
	}

	slices.Sort(lines)

	return strings.Join(lines, "\n")
}

// guardQuorum wants one leader that everyone follows, and a majority of healthy
// members that remains when the step's node is gone.
func guardQuorum(s guardInput) []cluster.Finding {
	members, controlPlanes := s.etcdNodes(), s.ControlPlanes()
	findings := health.EtcdLeader(members)
	healthy := 0

	for _, node := range members {
		if node.Name != s.step.Node && health.Votes(node) {
			healthy++
		}
	}

	// A single member is allowed to go: nothing is lost but availability, and
	// there is no other way. So is one of two, where that is asked for: the other
	// keeps the data, and they are a majority again as soon as it is back.
	least := len(controlPlanes)/2 + 1

	switch {
	case len(controlPlanes) == 1:
		least = 0
	case len(controlPlanes) == 2 && s.policy.Skips(cluster.CheckTwoMembers):
		least = 1
	}

	if s.step.Role == cluster.ControlPlane && healthy < least {
		findings = append(findings, newFinding(cluster.CheckEtcdQuorum, s.step.Node,
			fmt.Sprintf("without this node %d of %d members of etcd would be healthy, and %d are needed", healthy, len(controlPlanes), least), health.EtcdRemedy, nil)...)
	}

	return findings
}

// guardAlarms wants no alarm.
func guardAlarms(s guardInput) []cluster.Finding { return health.EtcdAlarms(s.Observation) }

// guardLag wants every member to have applied nearly everything there is.
func guardLag(s guardInput) []cluster.Finding {
	return health.EtcdLag(s.etcdNodes(), s.ControlPlanes())
}
