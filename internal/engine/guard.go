// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// guardInput is what a guard judges: an observation, and the step that would
// disturb a node.
type guardInput struct {
	cluster.Snapshot

	step plan.Step
	// run is the name under which cordons of this run are marked.
	run    string
	policy cluster.Policy
	// share is how many workers may be unavailable.
	share cluster.Share
	// others are the nodes that upgrades of this run are taking out of service:
	// true where that began before the step's own node.
	others map[string]bool
	// cordoning tells that the step would take a node out of service whose pods
	// have to go somewhere.
	cordoning bool
	// returning tells that the step's node is to be sent back to its old system,
	// because it is not well with the new one.
	returning bool
	// vitals are what is wrong with the disk and the clock of the step's node,
	// closed are the gates that do not hold.
	vitals, closed []cluster.Finding
	// unsettled are nodes that were moved and have not stayed healthy since.
	unsettled []cluster.Finding
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
	}
}

// awaitGuards waits until every guard holds on an observation of its own, and the
// lease is ours. It fails when that does not come about in time, or when
// waiting cannot help.
func (u *nodeUpgrade) awaitGuards(ctx context.Context, before string) error {
	return u.awaitGuardsThen(ctx, before, nil)
}

// awaitGuardsThen does something on the very observation on which the guards held;
// what it still waits for is waited for together with the guards. An armed node
// has all the time that its upgrade has: to stop with it is worse than to wait.
func (u *nodeUpgrade) awaitGuardsThen(ctx context.Context, before string, then look) error {
	patience := guardTimeout
	if u.mayHaveInstalled {
		patience = u.run.request.Policy.NodeTimeout
	}

	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, patience)
	defer cancel()

	var (
		last   []cluster.Finding
		failed error
	)

	err := u.run.engine.wait(bounded, u.step.Node, "it to be safe to "+before+" "+u.step.Node, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := u.run.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		var err error

		last, err = u.evaluateGuards(ctx, then != nil)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		switch {
		case len(filterByCheck(cluster.CheckOperator, last)) > 0:
			return false, "", errOccupied
		case u.yields(last, then != nil):
			failed = yieldTo(last)

			return false, "", failed
		case u.gateClosed(last):
			failed = errGateClosed

			return false, "", failed
		case len(last) > 0:
			return false, last[0].String(), fatal(last)
		}

		// The observation took its time; the lease must have outlived it.
		if ok, seen, err := u.run.lock.holds(ctx); err != nil || !ok || then == nil {
			return ok, seen, err
		}

		if u.run.engine.clock.Now().Sub(u.observedAt) > observationAge {
			return false, "the look at the cluster took too long to act on it", nil
		}

		done, seen, err := then(ctx)
		failed = err

		return done, seen, err
	})
	if err == nil || failed != nil && ctx.Err() == nil {
		return err
	}

	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return err
	}

	return &guardError{before: before, findings: last, err: err}
}

// evaluateGuards observes what the guards are about and asks each of them. What may take
// its time, the gates and the node, is asked before the observation: what is done
// next has to rest on a fresh one.
func (u *nodeUpgrade) evaluateGuards(ctx context.Context, cordoning bool) ([]cluster.Finding, error) {
	seen := guardInput{
		step: u.step, run: u.run.engine.runID, policy: u.run.request.Policy, share: u.run.request.Policy.MaxUnavailable,
		cordoning: cordoning && u.run.request.Policy.Drain.Enabled, returning: u.returning,
	}

	if cordoning && !u.mayHaveInstalled && !u.cordoned {
		seen.closed = u.run.closedGates(ctx, u.step.Node)
	}

	if !u.mayHaveInstalled {
		seen.intruded = u.run.operatorConflicts(ctx, true)
	}

	vitals, vitalsErr := cluster.Vitals{}, error(nil)
	if !u.mayHaveInstalled {
		vitals, vitalsErr = u.run.engine.talos.Vitals(ctx, u.step.Address)
	}

	steps := u.run.coordinator.generation()

	snapshot, err := u.run.engine.observe(ctx, func(node cluster.Node) bool {
		moved := !u.mayHaveInstalled && (slices.Contains(u.run.request.Policy.Canary, node.Name) || u.run.soak.watches(node.Name))

		return moved || node.Role == cluster.ControlPlane || node.Name == u.step.Node
	})
	if err != nil {
		return nil, err
	}

	seen.Snapshot, seen.others = snapshot, u.run.coordinator.others(u.step.Node)

	if !u.mayHaveInstalled {
		seen.unsettled = u.run.soak.unsettled(seen, u.run.engine.clock.Now(), u.touched(cordoning))
	}

	node, found := snapshot.Node(u.step.Node)
	if found && !u.mayHaveInstalled {
		seen.vitals = vitalFindings(node, vitals, vitalsErr, diskFloor)
	}

	var findings []cluster.Finding

	for _, guard := range u.run.guards {
		if !guard.beforeInstall || !u.mayHaveInstalled {
			findings = append(findings, guard.check(seen)...)
		}
	}

	if found && node.Machine != nil {
		u.observed, u.observedAt, u.steps = *node.Machine, snapshot.Taken, steps
		u.wasCordoned = node.Kube != nil && node.Kube.Unschedulable
		u.member, u.well = "", isWell(node)

		if node.Etcd != nil {
			u.member = node.Etcd.Status.Version
		}
	}

	return u.run.standing(findings), nil
}

// guardError is a guard that did not come to hold.
type guardError struct {
	before   string
	findings []cluster.Finding
	err      error
}

func (g *guardError) Error() string { return g.err.Error() }

func (g *guardError) Unwrap() []error { return []error{ErrGuard, g.err} }

// permanentOnly passes on an error that waiting does not cure.
func permanentOnly(err error) error {
	if cluster.Heals(err) {
		return nil
	}

	return err
}

// fatal is the error among the findings that waiting does not cure, if any.
func fatal(findings []cluster.Finding) error {
	for _, finding := range findings {
		if finding.Err != nil && !cluster.Heals(finding.Err) {
			return fmt.Errorf("%s: %w", finding.Found, finding.Err)
		}
	}

	return nil
}

// newFinding makes the finding of a guard.
func newFinding(check, node, found, remedy string, err error) []cluster.Finding {
	return []cluster.Finding{{Check: check, Severity: cluster.Observed, Node: node, Found: found, Remedy: remedy, Err: err}}
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
				fmt.Sprintf("this control plane is %s and not settled %v", node.Machine.Stage, node.Machine.Unmet), remedy, nil)...)
		case node.Kube == nil || !node.Kube.Ready:
			findings = append(findings, newFinding(cluster.CheckNodesReady, node.Name, "this control plane is not Ready in Kubernetes", remedy, nil)...)
		}
	}

	return findings
}

// guardCanaries wants every canary to run what the step leads to, and to be in
// service: it is there to stop the others, also those whose upgrades have begun.
func guardCanaries(s guardInput) []cluster.Finding {
	if s.step.Canary || s.returning || s.KubernetesError != nil {
		return nil
	}

	var findings []cluster.Finding

	for index, name := range s.policy.Canary {
		// One that is missing has left the cluster, and the plan knows what is wrong.
		if node, found := s.Node(name); found && !node.Left() && node.Role == cluster.Worker && !s.policy.Holds(name) {
			findings = append(findings, plan.Faltering(index, node, s.step)...)
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

// guardPending refuses to touch a system that has not confirmed itself: an
// install now would overwrite the one it could return to.
func guardPending(s guardInput) []cluster.Finding {
	node, found := s.Node(s.step.Node)
	if !found || node.Machine == nil || !node.Machine.UpgradePending {
		return nil
	}

	return newFinding(cluster.CheckPendingInstall, node.Name, "the running system has not confirmed its own upgrade yet",
		"Wait until the node is healthy with it, or reboot it to return to the previous system.", nil)
}
