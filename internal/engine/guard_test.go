// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// healthy is a snapshot of three control planes and as many workers, with which
// nothing is wrong.
func healthy(workers int) cluster.Observation {
	const members = 3

	var (
		observed cluster.Observation
		view     cluster.EtcdView
	)

	for index := range members {
		view.Members = append(view.Members, cluster.EtcdMember{ID: uint64(index + 1), Name: fmt.Sprintf("cp-%d", index)})
	}

	add := func(name string, role cluster.Role) *cluster.Node {
		observed.Nodes = append(observed.Nodes, cluster.Node{
			Name: name, Role: role, Kube: &cluster.KubeNode{Name: name, Ready: true},
			Machine: &cluster.Machine{Role: role, Talos: version.MustParse(fromLifecycle), Stage: cluster.StageRunning, Ready: true, BootID: "boot-of-" + name},
		})

		return &observed.Nodes[len(observed.Nodes)-1]
	}

	for index := range workers {
		add(fmt.Sprintf("worker-%d", index), cluster.Worker)
	}

	for index := range members {
		own := view
		own.Status = cluster.EtcdStatus{MemberID: uint64(index + 1), Leader: 1, Index: 5000, Applied: 5000}
		added := add(fmt.Sprintf("cp-%d", index), cluster.ControlPlane)
		added.Etcd, added.Pods = &own, map[cluster.Component]cluster.ComponentPod{}

		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
			added.Pods[component] = cluster.ComponentPod{Node: added.Name, Component: component, Ready: true}
		}
	}

	return observed
}

// at is the place of a node in a snapshot.
func at(observed cluster.Observation, name string) *cluster.Node {
	index := slices.IndexFunc(observed.Nodes, func(n cluster.Node) bool { return n.Name == name })

	return &observed.Nodes[index]
}

// TestEveryGuardSaysWhatToDo breaks one thing after the other and wants the
// guard for it to speak up, with node, reason and remedy.
func TestEveryGuardSaysWhatToDo(t *testing.T) {
	t.Parallel()

	away := errors.New("connection refused")

	for name, given := range map[string]struct {
		step  string
		check string
		harm  func(*cluster.Observation)
	}{
		"Kubernetes away":      {"worker-0", "kubernetes-api", func(s *cluster.Observation) { s.KubernetesError = away }},
		"node left":            {"worker-9", "talos-api", func(*cluster.Observation) {}},
		"node going down":      {"worker-0", "talos-api", func(s *cluster.Observation) { at(*s, "worker-0").Machine.Stage = cluster.StageRebooting }},
		"node silent":          {"worker-0", "talos-api", func(s *cluster.Observation) { at(*s, "worker-0").Machine, at(*s, "worker-0").Unreachable = nil, away }},
		"control plane silent": {"worker-0", "talos-api", func(s *cluster.Observation) { at(*s, "cp-2").Machine, at(*s, "cp-2").Unreachable = nil, away }},
		"credentials refused": {"worker-0", "talos-api", func(s *cluster.Observation) {
			at(*s, "cp-2").Machine, at(*s, "cp-2").Unreachable = nil, fmt.Errorf("%w: the client certificate expired", cluster.ErrCredentials)
		}},
		"control plane booting":   {"worker-0", "talos-api", func(s *cluster.Observation) { at(*s, "cp-2").Machine.Ready = false }},
		"control plane not ready": {"cp-0", "nodes-ready", func(s *cluster.Observation) { at(*s, "cp-2").Kube.Ready = false }},
		"boot unknown":            {"worker-0", "talos-api", func(s *cluster.Observation) { at(*s, "worker-0").Machine.BootID = "" }},
		"etcd silent":             {"worker-0", "etcd-members", func(s *cluster.Observation) { at(*s, "cp-1").Etcd = nil }},
		"member missing":          {"worker-0", "etcd-members", func(s *cluster.Observation) { at(*s, "cp-1").Etcd.Members = nil }},
		"member not started": {"worker-0", "etcd-members", func(s *cluster.Observation) {
			etcd := at(*s, "cp-1").Etcd
			etcd.Members = slices.Clone(etcd.Members)
			etcd.Members[2].Name = ""
		}},
		"learner": {"worker-0", "etcd-members", func(s *cluster.Observation) {
			etcd := at(*s, "cp-1").Etcd
			etcd.Members = slices.Clone(etcd.Members)
			etcd.Members[2].Learner = true
		}},
		"mute learner": {"cp-0", "etcd-members", func(s *cluster.Observation) {
			etcd := at(*s, "cp-1").Etcd
			etcd.Members, etcd.Status.Learner = nil, true
		}},
		"no leader":   {"worker-0", "etcd-quorum", func(s *cluster.Observation) { at(*s, "cp-1").Etcd.Status.Leader = 0 }},
		"two leaders": {"worker-0", "etcd-quorum", func(s *cluster.Observation) { at(*s, "cp-1").Etcd.Status.Leader = 2 }},
		"member ill":  {"worker-0", "etcd-quorum", func(s *cluster.Observation) { at(*s, "cp-1").Etcd.Status.Errors = []string{"corrupt"} }},
		"quorum lost": {"cp-0", "etcd-quorum", func(s *cluster.Observation) { at(*s, "cp-1").Etcd.Status.Errors = []string{"corrupt"} }},
		"alarm": {"worker-0", "etcd-alarms", func(s *cluster.Observation) {
			at(*s, "cp-1").Etcd.Status.Errors = []string{"memberID:2 alarm:NOSPACE "}
		}},
		"lag":          {"worker-0", "etcd-raft-lag", func(s *cluster.Observation) { at(*s, "cp-1").Etcd.Status.Applied = 12 }},
		"budget spent": {"worker-0", "nodes-ready", func(s *cluster.Observation) { at(*s, "worker-1").Kube.Ready = false }},
		"pod away":     {"cp-0", "control-plane-components", func(s *cluster.Observation) { delete(at(*s, "cp-1").Pods, cluster.APIServer) }},
		"pod failing": {"cp-0", "control-plane-components", func(s *cluster.Observation) {
			at(*s, "cp-1").Pods[cluster.Scheduler] = cluster.ComponentPod{Trouble: "Error"}
		}},
		"upgraded":    {"worker-0", "external-changes", func(s *cluster.Observation) { at(*s, "worker-1").Machine.Stage = cluster.StageUpgrading }},
		"cordoned":    {"worker-0", "external-changes", func(s *cluster.Observation) { at(*s, "cp-1").Kube.CordonedByTalos = true }},
		"unconfirmed": {"worker-0", "pending-install", func(s *cluster.Observation) { at(*s, "worker-0").Machine.UpgradePending = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			observed := healthy(3)
			step := plan.Step{Node: given.step, Role: cluster.Worker}

			if given.step[:2] == "cp" {
				step.Role = cluster.ControlPlane
			}

			if given.step != "worker-9" {
				if findings := engine.Judge(engine.Asked{Snapshot: observed, Step: step, Share: cluster.OneAtATime()}); len(findings) != 0 {
					t.Fatalf("something is wrong with a healthy cluster: %+v", findings)
				}
			}

			given.harm(&observed)

			findings := engine.Judge(engine.Asked{Snapshot: observed, Step: step, Share: cluster.OneAtATime()})
			if !slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Check == given.check }) {
				t.Errorf("nothing of %s: %+v", given.check, findings)
			}

			wording.NoteFindings(t, findings)
		})
	}
}

// TestBudgetCountsOtherTurnsOnce is about the border between what may be
// unavailable and what may not.
func TestBudgetCountsOtherTurnsOnce(t *testing.T) {
	t.Parallel()

	unready := func(n *cluster.Node) { n.Kube.Ready = false }
	foreign := func(n *cluster.Node) { n.Kube.Unschedulable = true }
	ours := func(n *cluster.Node) { n.Kube.Unschedulable, n.Kube.CordonedBy = true, "run-1" }
	earlier := func(n *cluster.Node) { n.Kube.Unschedulable, n.Kube.CordonedBy = true, "run-0" }
	gone := func(n *cluster.Node) { n.Kube.Ready, n.Gone = false, true }

	for name, given := range map[string]struct {
		share  string
		nodes  map[string]func(*cluster.Node)
		others map[string]bool
		safe   bool
	}{
		"nobody away":                           {share: "1", safe: true},
		"one away":                              {share: "1", nodes: map[string]func(*cluster.Node){"worker-1": unready}},
		"one away of two":                       {share: "2", nodes: map[string]func(*cluster.Node){"worker-1": foreign}, safe: true},
		"two away of two":                       {share: "2", nodes: map[string]func(*cluster.Node){"worker-1": foreign, "worker-2": unready}},
		"half of four":                          {share: "50%", nodes: map[string]func(*cluster.Node){"worker-1": unready}, safe: true},
		"half of four, two away":                {share: "50%", nodes: map[string]func(*cluster.Node){"worker-1": unready, "worker-2": ours}},
		"gone ones are not there":               {share: "1", nodes: map[string]func(*cluster.Node){"worker-1": gone}, safe: true},
		"another turn, not seen yet":            {share: "1", others: map[string]bool{"worker-1": true}},
		"another turn, seen already":            {share: "2", nodes: map[string]func(*cluster.Node){"worker-1": ours}, others: map[string]bool{"worker-1": true}, safe: true},
		"a later turn waits for this one":       {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": ours, "worker-1": ours}, others: map[string]bool{"worker-1": false}, safe: true},
		"an earlier turn does not":              {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": ours, "worker-1": ours}, others: map[string]bool{"worker-1": true}},
		"cordoned by this run":                  {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": ours, "worker-1": unready}},
		"away without our doing":                {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": unready, "worker-1": unready}, safe: true},
		"cordoned by a person":                  {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": foreign, "worker-1": unready}, safe: true},
		"cordoned by an earlier run":            {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": earlier, "worker-1": unready}, safe: true},
		"cordoned by an earlier run, elsewhere": {share: "1", nodes: map[string]func(*cluster.Node){"worker-1": earlier}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			observed := healthy(4)
			for _, node := range slices.Sorted(maps.Keys(given.nodes)) {
				given.nodes[node](at(observed, node))
			}

			share, err := cluster.ParseShare(given.share)
			if err != nil {
				t.Fatal(err)
			}

			findings := engine.Judge(engine.Asked{
				Snapshot: observed, Step: plan.Step{Node: "worker-0", Role: cluster.Worker}, Run: "run-1", Share: share, Others: given.others,
			})
			if safe := len(findings) == 0; safe != given.safe {
				t.Errorf("safe is %t, want %t: %+v", safe, given.safe, findings)
			}
		})
	}
}

// TestCanaryThatIsNotDoneAndInServiceHoldsUpEverybodyElse is about what the guards
// see of a canary on the very observation on which a node would be disturbed.
func TestCanaryThatIsNotDoneAndInServiceHoldsUpEverybodyElse(t *testing.T) {
	t.Parallel()

	other := plan.Step{Node: "worker-1", Role: cluster.Worker, From: version.MustParse(fromLifecycle), To: version.MustParse(toLifecycle)}
	next := other
	next.To = version.MustParse("1.14.2")

	moved := func(s cluster.Observation) *cluster.Node {
		canary := at(s, "worker-0")
		canary.Machine.Talos = version.MustParse(toLifecycle)

		return canary
	}

	for name, given := range map[string]struct {
		step plan.Step
		hold bool
		harm func(*cluster.Observation)
		says string
	}{
		"in service": {step: other, harm: func(s *cluster.Observation) { moved(*s) }},
		"not Ready":  {step: other, harm: func(s *cluster.Observation) { moved(*s).Kube.Ready = false }, says: "runs Talos 1.13.4 and is not Ready"},
		"cordoned":   {step: other, harm: func(s *cluster.Observation) { moved(*s).Kube.Unschedulable = true }, says: "and is cordoned"},
		"gone":       {step: other, harm: func(s *cluster.Observation) { moved(*s).Gone = true }, says: "registered but gone"},
		"silent": {step: other, harm: func(s *cluster.Observation) {
			moved(*s).Machine, at(*s, "worker-0").Unreachable = nil, errors.New("connection refused")
		}, says: "Talos API of this canary does not answer"},
		"not in Kubernetes":          {step: other, harm: func(s *cluster.Observation) { moved(*s).Kube = nil }, says: "has no Node object"},
		"changed since":              {step: other, harm: func(*cluster.Observation) {}, says: "this canary runs Talos 1.13.2, and the other nodes move to 1.13.4 only behind it"},
		"of the release line":        {step: next, harm: func(s *cluster.Observation) { at(*s, "worker-0").Machine.Talos = version.MustParse("1.14.0") }},
		"not of the release line":    {step: next, harm: func(s *cluster.Observation) { moved(*s) }, says: "move to 1.14.2 only behind it"},
		"held":                       {step: other, hold: true, harm: func(s *cluster.Observation) { moved(*s).Kube.Ready = false }},
		"left the cluster":           {step: other, harm: func(s *cluster.Observation) { s.Nodes = s.Nodes[1:] }},
		"the step is its own":        {step: plan.Step{Node: "worker-0", Role: cluster.Worker, Canary: true}, harm: func(s *cluster.Observation) { at(*s, "worker-0").Kube.Unschedulable = true }},
		"Kubernetes does not answer": {step: other, harm: func(s *cluster.Observation) { s.KubernetesError = errors.New("away") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			observed := healthy(4)
			given.harm(&observed)

			policy := cluster.Policy{Canary: []string{"worker-0"}, Hold: map[string]bool{"worker-0": given.hold}}

			share, err := cluster.ParseShare("3")
			if err != nil {
				t.Fatal(err)
			}

			findings := engine.Judge(engine.Asked{Snapshot: observed, Step: given.step, Share: share, Policy: policy})
			findings = slices.DeleteFunc(findings, func(f cluster.Finding) bool { return f.Check != cluster.CheckCanary })
			wording.NoteFindings(t, findings)

			switch {
			case given.says == "" && len(findings) == 0:
			case given.says == "" || len(findings) != 1 || !strings.Contains(findings[0].String(), given.says) || findings[0].Node != "worker-0":
				t.Errorf("got %+v, want one that says %q", findings, given.says)
			}
		})
	}
}
