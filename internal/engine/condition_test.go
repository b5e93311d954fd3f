// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
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

// TestGuard_EachSaysWhatToDo breaks one thing after the other and wants the
// guard for it to speak up, with node, reason and remedy.
func TestGuard_EachSaysWhatToDo(t *testing.T) {
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
		"upgraded": {"worker-0", "external-changes", func(s *cluster.Observation) { at(*s, "worker-1").Machine.Stage = cluster.StageUpgrading }},
		"cordoned": {"worker-0", "external-changes", func(s *cluster.Observation) { at(*s, "cp-1").Kube.CordonedByTalos = true }},
		"unconfirmed": {"worker-0", "pending-install", func(s *cluster.Observation) {
			machine := at(*s, "worker-0").Machine
			machine.UpgradePending, machine.UpgradeTag = true, "A"
		}},
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

// TestGuard_BudgetCountsOtherTurnsOnce is about the border between what may be
// unavailable and what may not.
func TestGuard_BudgetCountsOtherTurnsOnce(t *testing.T) {
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
		"cordoned by an earlier run":            {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": earlier, "worker-1": unready}},
		"cordoned by an earlier run, alone":     {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": earlier}, safe: true},
		"cordoned by an earlier, one by this":   {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": earlier, "worker-1": ours}},
		"two cordoned by an earlier run":        {share: "1", nodes: map[string]func(*cluster.Node){"worker-0": earlier, "worker-1": earlier}, safe: true},
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

// TestGuard_CanaryNotDoneAndInServiceHoldsUpEverybodyElse is about what the guards
// see of a canary on the very observation on which a node would be disturbed.
func TestGuard_CanaryNotDoneAndInServiceHoldsUpEverybodyElse(t *testing.T) {
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
		"of the minor version":       {step: next, harm: func(s *cluster.Observation) { at(*s, "worker-0").Machine.Talos = version.MustParse("1.14.0") }},
		"not of the minor version":   {step: next, harm: func(s *cluster.Observation) { moved(*s) }, says: "move to 1.14.2 only behind it"},
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

// neededGuard is a guard, and what goes wrong without it.
type neededGuard struct {
	name string
	// guards are those that see it: some troubles are seen by more than one.
	guards []string
	want   checker.Invariant
	setup  setup
	// request is the careless one where it is nil.
	request func() engine.Request
	// at is when happens begins. Where it is empty, that is when cp-0 has been cordoned:
	// from there on nothing but the guards before the install and before the reboot
	// look.
	at      event
	happens func(*rig)
	// over ends it, so that the next run can finish.
	over func(*rig)
}

func neededGuards() []neededGuard {
	faulty := func(effect model.Effect) func(*rig) {
		return func(r *rig) {
			r.World().SetFaults([]model.Fault{{Node: "cp-1", Step: model.StepEtcd, Effect: effect}})
		}
	}

	mended := func(r *rig) { r.World().SetFaults(nil) }

	five := setup{Options: model.Options{ControlPlanes: 5}}

	return []neededGuard{
		{
			name: "a label that holds the node", guards: []string{cluster.CheckSelectors}, want: checker.S4,
			setup:   labelled(3),
			request: func() engine.Request { return restraining(to(toLifecycle)) },
			at:      event{method: "Vitals", node: "worker-1", installed: "worker-0"},
			happens: func(r *rig) {
				r.give(restrained, "worker-1")
				time.Sleep(5 * time.Second)
			},
			over: func(r *rig) { r.take(restrained, "worker-1") },
		},
		{name: "an alarm without space", guards: []string{cluster.CheckEtcdAlarms}, want: checker.S2, happens: faulty(model.EffectAlarmNoSpace), over: mended},
		{name: "an alarm of corruption", guards: []string{cluster.CheckEtcdAlarms}, want: checker.S2, happens: faulty(model.EffectAlarmCorrupt), over: mended},
		{name: "a member that lags", guards: []string{cluster.CheckEtcdRaftLag}, want: checker.S2, happens: faulty(model.EffectLagging), over: mended},
		{name: "a member that becomes a learner", guards: []string{cluster.CheckEtcdMembers}, want: checker.S2, setup: five, happens: faulty(model.EffectLearner), over: mended},
		{name: "a member that reports errors", guards: []string{cluster.CheckEtcdQuorum}, want: checker.S2, happens: faulty(model.EffectReports), over: mended},
		{name: "a member that sees no leader", guards: []string{cluster.CheckEtcdMembers, cluster.CheckEtcdQuorum}, want: checker.S2, happens: faulty(model.EffectNoLeader), over: mended},
		{name: "a member that is silent", guards: []string{cluster.CheckEtcdMembers, cluster.CheckEtcdQuorum}, want: checker.S2, happens: faulty(model.EffectSilent), over: mended},
		{
			name: "a control plane that is not Ready", guards: []string{"control-planes", cluster.CheckTalosAPI, cluster.CheckControlPlane}, want: checker.S1,
			happens: func(r *rig) {
				r.World().SetFaults([]model.Fault{{Node: "cp-1", Step: model.StepKubelet, Effect: model.EffectNotReady}})
			},
			over: mended,
		},
		{
			name: "somebody else's upgrade", want: checker.S1, setup: five,
			guards: []string{cluster.CheckExternalChanges, "control-planes", cluster.CheckTalosAPI, cluster.CheckControlPlane, cluster.CheckEtcdMembers, cluster.CheckEtcdQuorum},
			happens: func(r *rig) {
				if err := r.World().RebootByHand("cp-3", model.RebootDefault); err != nil {
					r.T.Error(err)
				}
			},
			over: func(r *rig) {
				r.Until("back", 10*time.Minute, func() bool { return r.State("cp-3").Kubelet.Ready })
			},
		},
	}
}

// careless is a request whose planner overlooks what the guards are there for.
func careless() engine.Request {
	request := to(toLifecycle)
	request.Policy.Order = cluster.ControlPlanesFirst
	request.Policy.Drain.Enabled = true

	return request
}

// TestGuard_EachIsNeeded has something go wrong in the middle of a turn: with the
// guard the run stops or waits and breaks nothing, without it the checker sees
// what it must not.
func TestGuard_EachIsNeeded(t *testing.T) {
	t.Parallel()

	for _, given := range neededGuards() {
		t.Run(given.name, func(t *testing.T) {
			if given.request == nil {
				given.request = careless
			}

			if given.at.method == "" {
				given.at = event{method: "Cordon", node: "cp-0"}
			}

			inCluster(t, given.setup, func(r *rig) {
				r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 2})

				guarded := r.Worker("run-1")
				given.at.do = func() { given.happens(r) }
				r.happening(guarded, given.at)

				_ = guarded.Apply(context.Background(), given.request())
				r.Sound()

				given.over(r)
				r.Must(r.Worker("run-2"), given.request())
				r.At(toLifecycle)
			})

			inCluster(t, given.setup, func(r *rig) {
				blind := r.Worker("run-1")
				given.at.do = func() {
					given.happens(r)

					// It has been wrong for longer than one look may be old.
					time.Sleep(40 * time.Second)
				}
				r.happening(blind, given.at)

				for _, guard := range given.guards {
					blind.DropGuard(guard)
				}

				ctx, cancel := context.WithTimeout(context.Background(), plantedMost)
				defer cancel()

				_ = blind.Apply(ctx, given.request())

				if broken := r.Judge.Verdict().Broken(); !slices.Contains(broken, given.want) {
					t.Errorf("without %q the run broke %v, want %s\n%s", given.guards, broken, given.want, r.Judge.Text())
				}
			})
		})
	}
}

// reserved is a cluster in which only some nodes take pods; the others are
// tainted.
type reserved struct {
	*ports.Client

	free []string
}

func (c *reserved) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return c.Nodes(ctx)
}

func (c *reserved) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	return named(ctx, name, c.Nodes)
}

func (c *reserved) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := c.Client.Nodes(ctx)
	for index := range nodes {
		nodes[index].ExcludesWorkloads = nodes[index].ExcludesWorkloads || !slices.Contains(c.free, nodes[index].Name)
	}

	return nodes, err
}

// TestRoom_OneNodeStaysForThePods: however many workers may be unavailable, no drain
// is left out because the run itself has all the others.
func TestRoom_OneNodeStaysForThePods(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		workers  int
		free     []string
		from, to string
	}{
		"two workers, both at a time":         {2, []string{"worker-0", "worker-1"}, fromLifecycle, toLifecycle},
		"the same, legacy":                    {2, []string{"worker-0", "worker-1"}, fromLegacy, toLegacy},
		"only two of several are schedulable": {5, []string{"worker-0", "worker-1"}, fromLifecycle, toLifecycle},
	} {
		t.Run(name, func(t *testing.T) {
			judged := setup{
				Options: model.Options{ControlPlanes: 3, Workers: given.workers, Talos: given.from, Seed: 41},
				Judging: []checker.Option{checker.MaxUnavailable(2)},
			}

			inCluster(t, judged, func(r *rig) {
				r.AddApp("web", 3*given.workers, &apiserver.Budget{MinAvailable: 1})

				client := r.Client("run-1")
				w := r.WorkerOver(client, client, &reserved{Client: client, free: given.free})
				r.Must(w, sharing(t, given.to, "2"))
				r.At(given.to)
				r.Once()

				if warnings := strings.Join(w.Texts(cluster.EventWarning), "\n"); strings.Contains(warnings, "no other node") {
					t.Errorf("a drain was left out: %s", warnings)
				}

				for _, node := range given.free {
					if !slices.ContainsFunc(r.Judge.Of(history.KindEvict), func(e history.Event) bool { return e.Node == node }) {
						t.Errorf("%s was not drained", node)
					}
				}

				spans := slices.DeleteFunc(r.spans(), func(s span) bool { return !slices.Contains(given.free, s.node) })
				if together := most(spans); together != 1 {
					t.Errorf("%d of the two nodes that take pods were cordoned at a time: %+v", together, spans)
				}

				r.startedOnce(w, given.free[1])
			})
		})
	}
}

// startedOnce fails the test when a node that stood back was begun again and
// again.
func (r *rig) startedOnce(w *worker, node string) {
	r.T.Helper()
	const most = 2

	count := 0

	for _, event := range w.Events() {
		if event.Kind == cluster.EventNodeStarted && event.Node == node {
			count++
		}
	}

	if count > most {
		r.T.Errorf("%s was said to be started %d times", node, count)
	}
}

// TestRoom_OnlyWorkerIsNotDrainedIntoNothing: where no other node ever takes pods, a
// drain would wait for ever.
func TestRoom_OnlyWorkerIsNotDrainedIntoNothing(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.AddPod("precious", "worker-0", &apiserver.Budget{MinAvailable: 1})

		w := r.Worker("run-1")
		r.Must(w, sharing(t, toLifecycle, "3"))
		r.At(toLifecycle)
		r.Once()

		if warnings := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(warnings, "no other node") {
			t.Errorf("nobody was told that the drain was left out: %s", warnings)
		}
	})
}

// TestRoom_LastNodeForPodsIsNotTakenBesideACordonedOne: of two workers one is cordoned
// by a person, and both may be unavailable. Before anything is touched it is said that
// the pods of the other one would have nowhere to go; who accepts that has them moved
// one after the other at least.
func TestRoom_LastNodeForPodsIsNotTakenBesideACordonedOne(t *testing.T) {
	t.Parallel()

	given := setup{Options: model.Options{ControlPlanes: 3, Workers: 2, Seed: 223}, Judging: []checker.Option{checker.MaxUnavailable(2)}}

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 3, nil)

		leave, back := cordoned(r, "worker-1")
		leave()

		refused := r.Worker("run-1")
		failed := failure(t, refused.Apply(context.Background(), sharing(t, toLifecycle, "2")), say.ErrBlocked, "worker-0")

		if text := failed.Error(); !strings.Contains(text, "it is the only node that takes pods") || strings.Contains(text, "raise max_unavailable") {
			t.Errorf("it leads the wrong way: %v", failed)
		}

		if _, mutating := refused.Client.Calls(); mutating > 0 {
			t.Errorf("%d mutating calls, want none", mutating)
		}

		w := r.Worker("run-2")
		w.Client.Intercept(pullsSlowly("worker-0", 5*time.Second))
		r.Must(w, undrained(sharing(t, toLifecycle, "2")))
		r.Sound()
		r.Once()

		if waits := strings.Join(w.Texts(cluster.EventWaiting), "\n"); !strings.Contains(waits, "it is the last node that takes pods, and this run is at work on others that somebody else has cordoned: worker-1") {
			t.Errorf("nobody was told what worker-0 waits for: %s", waits)
		}

		gone := r.Judge.Of(history.KindDown)
		came := slices.IndexFunc(r.Judge.Of(history.KindBoot), func(e history.Event) bool { return e.Node == "worker-1" })
		taken := ofRole(r.spans(), "worker-0")

		if came < 0 || len(taken) != 1 || taken[0].begin < r.Judge.Of(history.KindBoot)[came].Sim || gone[0].Node != "worker-1" {
			t.Errorf("worker-0 did not wait for worker-1\n%s", r.Judge.Text())
		}

		back()
		r.At(toLifecycle)
	})
}

// TestGuard_TwoMembersAreUpgradedOnlyWhereAskedFor: while one of two reboots the
// other has no quorum, and with that nothing can be written.
func TestGuard_TwoMembersAreUpgradedOnlyWhereAskedFor(t *testing.T) {
	t.Parallel()

	two := model.Options{ControlPlanes: 2, Workers: 1}

	t.Run("refused", func(t *testing.T) {
		inCluster(t, setup{Options: two}, func(r *rig) {
			err := r.Worker("run-1").Apply(context.Background(), to(toLifecycle))
			if !errors.Is(err, say.ErrBlocked) || !strings.Contains(err.Error(), cluster.CheckTwoMembers) {
				t.Errorf("got %v, want it refused", err)
			}
		})
	})

	t.Run("asked for", func(t *testing.T) {
		inCluster(t, setup{Options: two, Judging: []checker.Option{checker.Skips(cluster.CheckTwoMembers)}}, func(r *rig) {
			request := to(toLifecycle)
			request.Policy.SkipChecks = map[string]bool{cluster.CheckTwoMembers: true}

			w := r.Worker("run-1")
			r.Must(w, request)
			r.At(toLifecycle)
			r.Once()

			if warned := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(warned, "two-members, skipped") {
				t.Errorf("nobody was told that it is skipped: %s", warned)
			}
		})
	})

	t.Run("and still refused where the nodes check it themselves", func(t *testing.T) {
		legacy := two
		legacy.Talos = fromLegacy

		inCluster(t, setup{Options: legacy}, func(r *rig) {
			request := to(toLegacy)
			request.Policy.SkipChecks = map[string]bool{cluster.CheckTwoMembers: true}

			w := r.Worker("run-1")

			err := w.Apply(context.Background(), request)
			if !errors.Is(err, say.ErrBlocked) || !strings.Contains(err.Error(), cluster.CheckTwoMembers) {
				t.Errorf("got %v, want it refused", err)
			}

			if _, mutating := w.Client.Calls(); mutating > 0 {
				t.Errorf("%d mutating calls, want none", mutating)
			}
		})
	})
}

// The room that an image takes once it is there is not missing any more.
func TestGuard_DiskThatTheImagesTookIsNotMissed(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		client := r.Client("run-1")
		between := &narrow{liar: liar{Client: client}, pulled: map[string]bool{}}
		r.Must(r.WorkerOver(client, between, between), to(toLifecycle))
		r.At(toLifecycle)
	})
}
