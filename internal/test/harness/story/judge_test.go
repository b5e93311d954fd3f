// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// soon is how long it takes until the effect of a request shows on a machine.
const soon = 10 * time.Second

// caughtUpWithin is how many entries a member of etcd may be behind.
const caughtUpWithin = 1000

// end lifts every fault, has everybody else stand still, and ends the story unless one more apply brings the cluster
// to its target, in time and cleanly, and another one finds nothing to do.
func (s *stage) end() {
	s.tell("end", "faults lifted, others stand still")
	s.script(nil)

	for _, run := range s.living() {
		run.cutOff(time.Time{})
	}

	// A run may be in the middle of the turn of a node that was removed.
	limit := s.bound(max(len(s.names("")), len(s.World().Members())))

	if !s.await(limit, func() bool { return len(s.living()) == 0 }) {
		s.fail("L3: %s has not ended within %s", s.living()[0].name, limit)
	}

	s.handBack()
	s.wait(max(time.Until(s.ailing), soon))

	const most = time.Hour

	if !s.await(most, s.whole) {
		s.fail("service: not in service within %s: %v", most, s.away())
	}

	s.converge(limit)
	s.tidy()
	s.idle()
}

// handBack ends what a person would end: nodes are registered, and a person's own cordons are lifted, which have to
// exist until then.
func (s *stage) handBack() {
	for _, node := range s.names("") {
		s.RegisterNode(node)
	}

	if s.Lease().Holder == "intruder" {
		s.hold("")
	}

	for _, node := range sortedKeys(s.cordoned) {
		if state, err := s.World().Node(node); err == nil && !state.Unschedulable {
			s.fail("S9: the cordon on %s, which a person had set, is gone", node)
		}

		if err := s.CordonAsPerson(node, false); err != nil {
			s.tell("registers late", "%s: %v", node, err)
		}
	}
}

// whole reports whether every machine is in service as far as it depends on the machine.
func (s *stage) whole() bool { return len(s.away()) == 0 }

// away returns what is missing for each machine that is not in service.
func (s *stage) away() []string {
	var away []string

	cordons := s.Cordons()

	for _, state := range s.World().Nodes() {
		// Until the kubelet has reported the pods of its boot, Kubernetes shows none of a Node object that is new.
		etcd := state.Role == model.Worker || state.EtcdHealthy && state.APIServerUp && state.PodsReported && s.caughtUp(state.Name)
		_, known := cordons[state.Name]

		if !state.Reachable || !state.Kubelet.Ready || !state.Ready || !etcd || !known || state.Stage != model.StageRunning {
			away = append(away, fmt.Sprintf("%s: %s, unmet %v, reachable %t, etcd and its server %t, kubelet %+v, Node object %t",
				state.Name, state.Stage, state.Unmet, state.Reachable, etcd, state.Kubelet, known))
		}
	}

	// A machine that was removed is waited for as long as discovery lists it: a control plane always, a worker if a
	// run was in the middle of its turn.
	begun := map[string]bool{}
	for _, entry := range s.Journal().Entries {
		begun[entry.Node] = entry.Open()
	}

	for _, member := range s.World().Members() {
		if _, err := s.World().Node(member.Name); err != nil && (member.Role == model.ControlPlane || begun[member.Name]) {
			away = append(away, member.Name+": gone, and listed by discovery")
		}
	}

	return away
}

// caughtUp reports whether a member of etcd has applied what the others have. One that was away for long takes a
// while.
func (s *stage) caughtUp(name string) bool {
	status, err := s.World().EtcdStatus(context.Background(), name)

	return err == nil && status.Index-status.Applied <= caughtUpWithin
}

// converge applies until the cluster is at its target. In between an apply may find a node that had fallen back while
// no run was there to notice.
func (s *stage) converge(limit time.Duration) {
	patience := len(s.names("")) + 2

	for range patience {
		request := s.again(s.request(false))
		run := s.begin(request, blow{})
		s.tell("last apply", "%s, retry %v", run.name, request.Policy.Retry)

		if !s.await(limit, func() bool { return !run.alive() }) {
			s.fail("L3: %s has not ended within %s", run.name, limit)
		}

		s.watch()

		ended, err := run.state()
		s.tally.last(float64(ended.Sub(run.begun)) / float64(limit))

		if err == nil {
			<-run.done

			return
		}

		alone := s.controlPlanes == 1 && errors.Is(err, context.DeadlineExceeded)
		if !alone && !errors.Is(err, say.ErrFallback) && !errors.Is(err, say.ErrRolledBack) {
			s.fail("L1: the last apply failed: %v", err)
		}

		if !s.await(limit, s.whole) {
			s.fail("service: not in service within %s: %v", limit, s.away())
		}
	}

	s.fail("L1: %d applies have not brought the cluster to its target", patience)
}

// tidy ends the story unless everything is at its target and nothing was left behind.
func (s *stage) tidy() {
	if holder := s.Lease().Holder; holder != "" {
		s.fail("left: the lease is still held by %s", holder)
	}

	journal := s.Journal()
	for _, entry := range journal.Entries {
		// The entry of a machine that was removed in the middle of its turn stays, and so does a closed entry if a
		// person brought the node to its target.
		if _, err := s.World().Node(entry.Node); err == nil && entry.Open() {
			s.fail("left: the journal still holds %+v", entry)
		}
	}

	if journal.Manifests != nil {
		s.fail("left: the journal still says that manifests are due: %+v", *journal.Manifests)
	}

	for _, state := range s.World().Nodes() {
		if state.Unschedulable {
			s.fail("left: %s is still cordoned", state.Name)
		}

		if wanted := s.hop.toTalos; wanted != "" && state.Talos != wanted {
			s.fail("target: %s runs Talos %s, want %s", state.Name, state.Talos, wanted)
		}

		if wanted := s.hop.toKubernetes; wanted != "" && !runs(state, wanted) {
			s.fail("target: %s runs %+v, want Kubernetes %s", state.Name, state.Components, wanted)
		}
	}
}

func runs(state model.NodeState, kubernetes string) bool {
	of := state.Components
	if of.Kubelet != kubernetes || of.Proxy != kubernetes {
		return false
	}

	return state.Role == model.Worker || of.APIServer == kubernetes && of.ControllerManager == kubernetes && of.Scheduler == kubernetes
}

// idle ends the story unless one more apply changes nothing.
func (s *stage) idle() {
	run := s.begin(s.named(s.request(false)), blow{})

	if !s.await(time.Hour, func() bool { return !run.alive() }) {
		s.fail("L3: an apply with nothing to do has not ended")
	}

	s.watch()

	if _, err := run.state(); err != nil {
		s.fail("L2: an apply with nothing to do failed: %v", err)
	}

	if _, mutating := run.worker.Client.Calls(); mutating != 0 {
		s.fail("L2: an apply with nothing to do made %d mutating calls", mutating)
	}
}

// examine checks a run that has ended, once.
func (s *stage) examine(run *apply) {
	ended, err := run.state()
	if run.examined || run.dead() {
		return
	}

	s.checkCancel(run, ended)

	if ended.IsZero() {
		return
	}

	run.examined = true

	if err == nil {
		s.tell("run succeeded", "%s", run.name)
		s.arrived(run)

		return
	}

	s.tell("run failed", "%s: %v", run.name, err)

	var failed *say.Failure
	if !errors.As(err, &failed) {
		s.fail("L5: %s failed without saying how: %v", run.name, err)
	}

	remedied := failed.Remedy != "" || len(failed.Findings) > 0 &&
		!slices.ContainsFunc(failed.Findings, func(f cluster.Finding) bool { return f.Remedy == "" })

	if failed.Summary == "" || failed.Seen == "" && len(failed.Findings) == 0 || failed.State == "" || !remedied {
		s.fail("L5: summary, what was seen, state or remedy is missing in the failure of %s: %+v", run.name, failed)
	}
}

// arrived ends the story unless a run that succeeded has upgraded every node that was there when it began.
func (s *stage) arrived(run *apply) {
	wanted := run.request.Target.Talos
	if wanted.IsZero() || s.touched.After(run.begun) {
		return
	}

	for _, state := range s.World().Nodes() {
		if s.joined[state.Name] && s.cameUp(state.Name).After(run.begun) || run.unlisted[state.Name] {
			continue
		}

		if running, err := version.Parse(state.Talos); err != nil || running.Less(wanted) {
			s.fail("success: %s succeeded, but %s runs Talos %s", run.name, state.Name, state.Talos)
		}
	}
}

// cameUp returns when a machine that joined first booted, and the current time if it has not: until then it looks
// like a machine that was removed.
func (s *stage) cameUp(name string) time.Time {
	for _, boot := range s.Judge.Of(history.KindBoot) {
		if boot.Node == name {
			return time.Now().Add(time.Duration(boot.Sim*float64(time.Second)) - s.World().Now())
		}
	}

	return time.Now()
}

// excuse is something that somebody else did and that makes certain violations unavoidable.
type excuse struct {
	why        string
	invariants []checker.Invariant
	// node is empty for any node. says is what the text of the violation has to contain.
	node, says  string
	from, until time.Duration
}

func (s *stage) excuse(made excuse) {
	made.from = s.World().Now()
	if made.until == 0 {
		made.until = 1 << 62
	} else {
		made.until += made.from
	}

	s.excuses = append(s.excuses, made)
	s.touched = time.Now()
}

// excused returns why a violation is not a fault of ours; empty if it is.
func (s *stage) excused(broken checker.Violation) string {
	at := time.Duration(broken.Time * float64(time.Second))

	for _, e := range s.excuses {
		// The history rounds.
		if slices.Contains(e.invariants, broken.Invariant) && (e.node == "" || e.node == broken.Node) &&
			strings.Contains(broken.What, e.says) && at >= e.from-time.Millisecond && at <= e.until {
			return e.why
		}
	}

	if s.mistaken(broken) {
		return "the judge knows less than the machines do"
	}

	return ""
}

// mistaken reports whether the judge knows less than the machines do: it does not know that kube-proxy on a node that
// joined is as new as on the others, or it wants a canary to go through a leg that the canary has behind it.
func (s *stage) mistaken(broken checker.Violation) bool {
	states := s.World().Nodes()

	if strings.HasPrefix(broken.What, "kubernetes-") && len(s.joined) > 0 {
		claimed, moved := len(states), 0
		// A violation that is not about progress counts all machines.
		_, _ = fmt.Sscanf(broken.What, "kubernetes-progress says %d/", &claimed)

		for _, state := range states {
			if runs(state, s.hop.toKubernetes) {
				moved++
			}
		}

		return moved >= claimed
	}

	return s.hop.name == "two minors" && slices.ContainsFunc(states, func(state model.NodeState) bool {
		// It has passed this leg with an older patch release, so it has no turn in it.
		return strings.Contains(broken.What, fmt.Sprintf("before the canary %s ran Talos 1.12.", state.Name)) && version.MustParse(state.Talos).AtLeast(1, 12)
	})
}
