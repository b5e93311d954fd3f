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

// situation is what a guard judges: an observation, and the step that would
// disturb a node.
type situation struct {
	cluster.Snapshot

	step plan.Step
	// run is the name under which cordons of this run are marked.
	run    string
	policy cluster.Policy
	// share is how many workers may be unavailable.
	share cluster.Share
	// others are the nodes that turns of this run are taking out of service:
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
	check func(situation) []cluster.Finding
	// unarmed limits it to nodes on which nothing is installed yet.
	unarmed bool
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
		{name: cluster.CheckCanary, check: guardCanaries, unarmed: true},
		{name: checkSettle, check: guardSettled, unarmed: true},
		{name: cluster.CheckNodesReady, check: guardBudget},
		{name: checkRoom, check: guardRoom},
		{name: cluster.CheckExternalChanges, check: guardExternal, unarmed: true},
		{name: cluster.CheckDiskSpace, check: guardDisk, unarmed: true},
		{name: cluster.CheckTimeSync, check: guardClock, unarmed: true},
		{name: cluster.CheckGates, check: guardGates, unarmed: true},
		{name: cluster.CheckOperator, check: guardOperator, unarmed: true},
		{name: cluster.CheckPendingInstall, check: guardPending, unarmed: true},
	}
}

// guarded waits until every guard holds on an observation of its own, and the
// lease is ours. It fails when that does not come about in time, or when
// waiting cannot help.
func (t *turn) guarded(ctx context.Context, before string) error {
	return t.guardedThen(ctx, before, nil)
}

// guardedThen does something on the very observation on which the guards held;
// what it still waits for is waited for together with the guards. An armed node
// has all the time that its turn has: to stop with it is worse than to wait.
func (t *turn) guardedThen(ctx context.Context, before string, then look) error {
	patience := guardPatience
	if t.armed {
		patience = t.run.request.Policy.NodeTimeout
	}

	bounded, cancel := t.run.engine.clock.WithTimeout(ctx, patience)
	defer cancel()

	var (
		last   []cluster.Finding
		failed error
	)

	err := t.run.engine.wait(bounded, t.step.Node, "it to be safe to "+before+" "+t.step.Node, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := t.run.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		var err error

		last, err = t.ask(ctx, then != nil)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		switch {
		case len(of(cluster.CheckOperator, last)) > 0:
			return false, "", errOccupied
		case t.standsBack(last, then != nil):
			failed = standBack(last)

			return false, "", failed
		case t.shutOut(last):
			failed = errGateClosed

			return false, "", failed
		case len(last) > 0:
			return false, last[0].String(), fatal(last)
		}

		// The observation took its time; the lease must have outlived it.
		if ok, seen, err := t.run.lock.holds(ctx); err != nil || !ok || then == nil {
			return ok, seen, err
		}

		if t.run.engine.clock.Now().Sub(t.looked) > observationAge {
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

// ask observes what the guards are about and asks each of them. What may take
// its time, the gates and the node, is asked before the observation: what is done
// next has to rest on a fresh one.
func (t *turn) ask(ctx context.Context, cordoning bool) ([]cluster.Finding, error) {
	seen := situation{
		step: t.step, run: t.run.engine.run, policy: t.run.request.Policy, share: t.run.request.Policy.MaxUnavailable,
		cordoning: cordoning && t.run.request.Policy.Drain.Enabled, returning: t.returning,
	}

	if cordoning && !t.armed && !t.cordoned {
		seen.closed = t.run.closed(ctx, t.step.Node)
	}

	if !t.armed {
		seen.intruded = t.run.intruded(ctx, true)
	}

	vitals, vitalsErr := cluster.Vitals{}, error(nil)
	if !t.armed {
		vitals, vitalsErr = t.run.engine.talos.Vitals(ctx, t.step.Address)
	}

	steps := t.run.traffic.count()

	snapshot, err := t.run.engine.observe(ctx, func(node cluster.Node) bool {
		moved := !t.armed && (slices.Contains(t.run.request.Policy.Canary, node.Name) || t.run.settling.watches(node.Name))

		return moved || node.Role == cluster.ControlPlane || node.Name == t.step.Node
	})
	if err != nil {
		return nil, err
	}

	seen.Snapshot, seen.others = snapshot, t.run.traffic.others(t.step.Node)

	if !t.armed {
		seen.unsettled = t.run.settling.unsettled(seen, t.run.engine.clock.Now(), t.touched(cordoning))
	}

	node, found := snapshot.Node(t.step.Node)
	if found && !t.armed {
		seen.vitals = vitalFindings(node, vitals, vitalsErr, diskFloor)
	}

	var findings []cluster.Finding

	for _, guard := range t.run.guards {
		if !guard.unarmed || !t.armed {
			findings = append(findings, guard.check(seen)...)
		}
	}

	if found && node.Machine != nil {
		t.seen, t.looked, t.steps = *node.Machine, snapshot.Taken, steps
		t.occupied = node.Kube != nil && node.Kube.Unschedulable
		t.member, t.well = "", isWell(node)

		if node.Etcd != nil {
			t.member = node.Etcd.Status.Version
		}
	}

	return t.run.standing(findings), nil
}

// guardError is a guard that did not come to hold.
type guardError struct {
	before   string
	findings []cluster.Finding
	err      error
}

func (g *guardError) Error() string { return g.err.Error() }

func (g *guardError) Unwrap() []error { return []error{ErrGuard, g.err} }

// onlyFatal passes on an error that waiting does not cure.
func onlyFatal(err error) error {
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

// unsafe makes the finding of a guard.
func unsafe(check, node, found, remedy string, err error) []cluster.Finding {
	return []cluster.Finding{{Check: check, Severity: cluster.Observed, Node: node, Found: found, Remedy: remedy, Err: err}}
}

func guardKubernetes(s situation) []cluster.Finding {
	if s.KubernetesError == nil {
		return nil
	}

	return unsafe(cluster.CheckKubernetesAPI, "", "the Kubernetes API does not answer: "+s.KubernetesError.Error(),
		"Make it answer again: without it nothing can be cordoned, drained or recorded.", s.KubernetesError)
}

// ill tells whether the node is the one that is not expected to be well.
func (s situation) ill(node cluster.Node) bool { return s.returning && node.Name == s.step.Node }

// guardMachines wants an answer from every control plane and from the node
// itself, which must be there and neither booting nor going down.
func guardMachines(s situation) []cluster.Finding {
	var findings []cluster.Finding

	node, found := s.Node(s.step.Node)
	if !found {
		return unsafe(cluster.CheckTalosAPI, s.step.Node, "the node is no longer part of the cluster", "Let it join again, or leave it out for good.", nil)
	}

	stuck := node.Machine != nil && s.ill(node) && node.Machine.Stage == cluster.StageBooting

	if node.Machine != nil && node.Machine.Stage != cluster.StageRunning && !stuck {
		findings = append(findings, unsafe(cluster.CheckTalosAPI, node.Name, fmt.Sprintf("the machine is %s", node.Machine.Stage),
			"Wait until it runs, or look at its console (talosctl dmesg).", nil)...)
	}

	if node.Machine != nil && node.Machine.BootID == "" {
		findings = append(findings, unsafe(cluster.CheckTalosAPI, node.Name, "its boot ID cannot be read, and without it a reboot cannot be proven",
			"Look at the machine (talosctl read /proc/sys/kernel/random/boot_id), and at what the credentials allow.", nil)...)
	}

	for _, other := range s.Managed() {
		if other.Machine != nil || other.Name != s.step.Node && other.Role != cluster.ControlPlane {
			continue
		}

		if cluster.Unaccepted(other.Unreachable) != "" {
			findings = append(findings, plan.Unaccepted(other))
		} else {
			findings = append(findings, unsafe(cluster.CheckTalosAPI, other.Name, fmt.Sprintf("its Talos API does not answer: %v", other.Unreachable),
				"Bring the machine back, or its network.", other.Unreachable)...)
		}
	}

	return findings
}

// guardControlPlanes wants every other control plane whole: finished booting
// and Ready, whatever is about to be disturbed.
func guardControlPlanes(s situation) []cluster.Finding {
	const remedy = "Bring it back to health first (talosctl health, kubectl describe node)."

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		if node.Name == s.step.Node {
			continue
		}

		switch {
		case node.Machine != nil && !node.Machine.Settled():
			findings = append(findings, unsafe(cluster.CheckTalosAPI, node.Name,
				fmt.Sprintf("this control plane is %s and not settled %v", node.Machine.Stage, node.Machine.Unmet), remedy, nil)...)
		case node.Kube == nil || !node.Kube.Ready:
			findings = append(findings, unsafe(cluster.CheckNodesReady, node.Name, "this control plane is not Ready in Kubernetes", remedy, nil)...)
		}
	}

	return findings
}

// guardCanaries wants every canary to run what the step leads to, and to be in
// service: it is there to stop the others, also those whose turns have begun.
func guardCanaries(s situation) []cluster.Finding {
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
func guardSettled(s situation) []cluster.Finding {
	if s.returning {
		return nil
	}

	return s.unsettled
}

// guardPending refuses to touch a system that has not confirmed itself: an
// install now would overwrite the one it could return to.
func guardPending(s situation) []cluster.Finding {
	node, found := s.Node(s.step.Node)
	if !found || node.Machine == nil || !node.Machine.UpgradePending {
		return nil
	}

	return unsafe(cluster.CheckPendingInstall, node.Name, "the running system has not confirmed its own upgrade yet",
		"Wait until the node is healthy with it, or reboot it to return to the previous system.", nil)
}
