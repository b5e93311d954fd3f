// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestFailure_RareEndsOfARunAreWorded is about ends that take a cluster in which
// something else is at work all the time.
func TestFailure_RareEndsOfARunAreWorded(t *testing.T) {
	t.Parallel()

	old, next := version.MustParse("1.13.2"), version.MustParse("1.13.4")
	step := plan.Step{Node: "worker-1", Role: cluster.Worker, From: old, To: next, Address: "10.5.0.6"}
	entry := cluster.Entry{Node: "worker-1", Phase: cluster.PhaseInstalled, BootID: "boot-1", Target: next, Previous: old}
	reference := cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "tenant-a", Name: "prod"}

	policy := cluster.DefaultPolicy()
	policy.Settle = time.Minute

	newRun := func() *run {
		return &run{
			engine:  &Engine{operator: operator.New(reference, nil), clock: realClock{}},
			request: Request{Target: cluster.Target{Talos: next}, Policy: policy},
			shared:  newShared(policy),
		}
	}

	lost, end := context.WithCancelCause(t.Context())
	end(say.ErrLeaseLost)

	kubelet := step
	kubelet.Component = cluster.Kubelet

	unsure := errors.New("this node has its turn, and its guard does not hold")
	legs := &delegation{run: newRun(), stages: maxStages}
	begun := &operatorStage{delegation: &delegation{run: newRun()}, step: step, product: version.Talos}

	left := cluster.Observation{
		Nodes: []cluster.Node{{Name: "worker-0"}, {Name: "worker-2"}},
		Journal: &cluster.Journal{Entries: map[string]cluster.Entry{
			"uuid-0": {Node: "worker-0", Phase: cluster.PhaseInstalled}, "uuid-2": {Node: "worker-2", Phase: cluster.PhaseIntent},
		}},
	}
	away := rule.NewFinding("talos-api", "worker-1", "its Talos API does not answer: connection refused", "Bring the machine back, or its network.", nil)

	back := func(err error, cordoned bool) *say.Failure {
		return say.Node{Step: step, Entry: cluster.Entry{Previous: old, Target: next}, Cordoned: cordoned}.RollbackFailure(err)
	}
	foreign := cluster.Observation{Nodes: []cluster.Node{{Name: "worker-0"}}, Foreign: []string{"flatcar-1"}}
	unread := cluster.Observation{Nodes: []cluster.Node{{Name: "worker-1"}}, JournalError: cluster.ErrDenied}
	_, _, unreadable := returnedEntry(unread, "worker-1")

	for says, failed := range map[string]*say.Failure{
		"is still cordoned; the next":       back(unsure, true),
		"needs the role os:admin":           back(cluster.ErrDenied, false),
		"who uncordons it":                  back(&say.UncordonedError{By: "kubectl-edit"}, false),
		"does not run Talos. Those that do": unknownNode("Unable to roll back node flatcar-1", foreign, "flatcar-1"),
		"The journal cannot be read":        asFailure(t, unreadable),
		"before the journal was written":    retryFailure(lost, "worker-1", unsure),
		"Unable to record it":               retryFailure(t.Context(), "worker-1", errors.New("unable to record it")),
		"worker-0, worker-2 are left":       refused(left, cluster.Target{Talos: next}, away),
		"to this version 3 times":           neverArrives(step),
		"changed 3 times in this run":       neverArrives(kubelet),
		"asked for 30 stages":               legs.exhausted(),
		"whoever holds the lease now":       asFailure(t, begun.failed(lost, say.ErrLeaseLost)),
		"kubectl-edit has written to its N": say.Node{Step: step}.Failure(&say.UncordonedError{By: "kubectl-edit"}),
		"unhealthy again and again":         (&rollout{run: newRun()}).soakFailure("worker-1", &soakingNode{}),
		"its old system and is in service":  say.Node{Step: step, Entry: entry, Open: true, Runs: old, Rebooted: true}.Failure(unsure),
		"nothing was installed":             say.Node{Step: step, Entry: entry, Open: true}.Failure(unsure),
		"is asked for nothing, and no node": {Summary: "Unable to go on with the upgrade: a gate does not hold", Seen: "It was closed.", State: (&delegation{}).stateText(), Remedy: say.GateRemedy(unsure)},
	} {
		if text := failed.Error(); !strings.Contains(text, says) {
			t.Errorf("it does not say %q: %s", says, text)
		}

		wording.Note(t, wording.Entry{Kind: wording.KindFailure, Summary: failed.Summary, Detail: failed.Detail()})
	}
}

func asFailure(t *testing.T, err error) *say.Failure {
	t.Helper()

	var failed *say.Failure
	if !errors.As(err, &failed) {
		t.Fatalf("got %v", err)
	}

	return failed
}

// TestFailure_RareFindingsAreWorded brings each check to what the clusters of the other
// tests do not show.
func TestFailure_RareFindingsAreWorded(t *testing.T) {
	t.Parallel()

	next := version.MustParse("1.35.2")
	away := cluster.Observation{Nodes: []cluster.Node{
		{Name: "worker-1", Role: cluster.Worker, Kube: &cluster.KubeNode{Unschedulable: true}}, {Name: "worker-2", Role: cluster.Worker, Kube: &cluster.KubeNode{Ready: true}},
	}}
	behind := cluster.Observation{Nodes: []cluster.Node{
		{Name: "cp-0", Role: cluster.ControlPlane, Versions: map[cluster.Component]version.Version{cluster.APIServer: version.MustParse("1.34.2")}},
	}}
	room := cluster.Observation{Nodes: []cluster.Node{
		{Name: "own", Role: cluster.Worker, Kube: &cluster.KubeNode{Ready: true}},
		{Name: "other", Role: cluster.Worker, Kube: &cluster.KubeNode{Ready: true, Unschedulable: true, CordonedBy: "run-1"}},
	}}
	kubelet := plan.Step{Node: "worker-1", Role: cluster.Worker, Component: cluster.Kubelet, To: next}
	// An earlier run set the scheduler of cp-0, whose pod never appeared; that of cp-1 waits for its turn.
	podless := cluster.Observation{}
	for name, named := range map[string]string{"cp-0": "1.35.2", "cp-1": "1.34.2"} {
		podless.Nodes = append(podless.Nodes, cluster.Node{
			Name: name, Role: cluster.ControlPlane,
			Machine: &cluster.Machine{Config: &cluster.MachineConfig{Images: map[cluster.Component]string{cluster.Scheduler: "registry.k8s.io/kube-scheduler:v" + named}}},
			Pods:    map[cluster.Component]cluster.ComponentPod{cluster.APIServer: {Ready: true}},
		})
	}

	for says, found := range map[string][]cluster.Finding{
		"none of them may start now": (&rollout{made: plan.Plan{Budget: 1}}).idleReasons(),
		"1 workers may be unavailable at a time, and these are not Ready or cordoned": (&rollout{snapshot: away, made: plan.Plan{Budget: 1}}).idleReasons(),
		"kube-apiserver runs 1.34.2, and kubelet 1.35.2 on worker-1 would be newer":   judged(rule.CheckSkew, rule.Component, rule.View{Observation: behind, Step: kubelet}),
		"no kube-apiserver pod is known":                                              judged(rule.CheckComponents, rule.Component, rule.View{Observation: behind, Step: kubelet}),
		"no kube-scheduler pod is known":                                              judged(rule.CheckComponents, rule.Component, rule.View{Observation: podless, Step: kubelet}),
		"its pods could only go to nodes":                                             judged(rule.CheckRoom, rule.Cordon, rule.View{Observation: room, Step: plan.Step{Node: "own", Role: cluster.Worker}, Run: "run-1", Cordoning: true}),
		"does not say how much space":                                                 diskFindings(cluster.Node{Name: "worker-1"}, nil, nil, 1<<20),
		"its disk has: unreachable, and its kubelet reports DiskPressure":             diskFindings(cluster.Node{Name: "worker-1", Kube: &cluster.KubeNode{Pressure: []string{cluster.DiskPressure}}}, nil, cluster.ErrUnreachable, 1<<20),
		"below 15 % the kubelet deletes images":                                       diskFindings(cluster.Node{Name: "worker-1"}, &cluster.DiskSpace{Size: 100 << 30, Available: 10 << 30}, nil, 1<<20),
		"there is no connection to the Kubernetes API":                                (&preflight{engine: &Engine{}, made: plan.Plan{Steps: []plan.Step{{Node: "worker-1"}}}}).drains(t.Context()),
	} {
		if len(found) != 1 || !strings.Contains(found[0].Found, says) {
			t.Errorf("got %v, want one finding that says %q", found, says)
		}

		wording.NoteFindings(t, found)
	}
}

// TestBoot_NothingUnmetIsSaidWhereItNamesNothing is about a node that was sent into
// another reboot before it had told what it waits for.
func TestBoot_NothingUnmetIsSaidWhereItNamesNothing(t *testing.T) {
	t.Parallel()

	machine := cluster.Machine{Talos: version.MustParse("1.13.4"), Stage: cluster.StageRebooting}

	for want, unmet := range map[string][]string{
		"on a new boot with Talos 1.13.4, rebooting":                               nil,
		"on a new boot with Talos 1.13.4, rebooting; not yet: services, nodeReady": {"services", "nodeReady"},
	} {
		machine.Unmet = unmet

		if done, seen, err := (&nodeUpgrade{}).bootFinished(machine); done || err != nil || seen != want {
			t.Errorf("finished %t, %v, %q, want %q", done, err, seen, want)
		}
	}
}

func TestFailure_TextsEndInOneFullStop(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"waited 30m0s for it to be safe":     "waited 30m0s for it to be safe.",
		"Bring etcd back (talosctl).":        "Bring etcd back (talosctl).",
		"is anybody still there?":            "is anybody still there?",
		"it reports NOSPACE (check etcd-ok)": "it reports NOSPACE (check etcd-ok).",
	} {
		if got := say.WithFullStop(text); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
