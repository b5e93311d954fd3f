// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	s1, s2, s3, s4, s5, s6 = checker.S1, checker.S2, checker.S3, checker.S4, checker.S5, checker.S6
	s7, s8, s9             = checker.S7, checker.S8, checker.S9
	s10, s11, s12          = checker.S10, checker.S11, checker.S12
	s13, s14, s15          = checker.S13, checker.S14, checker.S15
)

// judgement is a tale and the invariants that it violates, in order of their names.
type judgement struct {
	name    string
	want    []checker.Invariant
	options []checker.Option
	tale    func() *tale
}

// held returns a tale of three control planes and two workers, with our lease held.
func held() *tale {
	t := begin(3, 2)
	t.acquire("run-1 (test)")

	return t
}

func judgements() []judgement {
	return slices.Concat(
		machineJudgements(), versionJudgements(), writerJudgements(), claimJudgements(), workloadJudgements(),
		budgetJudgements(), holdJudgements(), canaryJudgements(), settleJudgements(), hopJudgements(),
		restartJudgements(), componentJudgements(), kubernetesClaimJudgements(),
		etcdJudgements(), unheardJudgements(), neighbourJudgements(), pairJudgements(), beginningJudgements(),
		rollbackJudgements(), rollbackHazardJudgements(), rollbackClaimJudgements(),
		operatorJudgements(), statusJudgements(), lookJudgements(), lateJudgements(),
	)
}

func TestChecker_JudgesEveryTale(t *testing.T) {
	for _, given := range judgements() {
		t.Run(given.name, func(t *testing.T) {
			judge := checker.New(given.options...)

			told := given.tale().events
			for _, event := range told {
				judge.Add(event)
			}

			if broken := judge.Verdict().Broken(); !slices.Equal(broken, given.want) {
				t.Errorf("broke %v, want %v: %+v", broken, given.want, judge.Violations())
			}

			if diff := cmp.Diff(judge.Verdict(), judgeFile(t, told, given.options...)); diff != "" {
				t.Errorf("its file, which leaves out what repeats itself, is judged differently (-told +file):\n%s", diff)
			}
		})
	}
}

// judgeFile judges a history from its file, with every observation repeated three times.
func judgeFile(t *testing.T, told []history.Event, given ...checker.Option) checker.Verdict {
	t.Helper()

	var (
		lines bytes.Buffer
		at    float64
	)

	writer := history.NewWriter(&lines, func() time.Duration { return time.Duration(math.Round(at * 1e9)) })

	for _, event := range told {
		at = event.Sim
		writer.Record(event.Node, event.Kind, event.Detail)

		for range 2 {
			if event.Kind == history.KindRead {
				writer.Record(event.Node, event.Kind, event.Detail)
			}
		}
	}

	if err := writer.Err(); err != nil {
		t.Fatal(err)
	}

	judge := checker.New(given...)
	if err := history.Read(&lines, judge.Add); err != nil {
		t.Fatal(err)
	}

	return judge.Verdict()
}

// TestChecker_EveryInvariantIsBrokenOnce checks that the table is complete.
func TestChecker_EveryInvariantIsBrokenOnce(t *testing.T) {
	all := []checker.Invariant{s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15}

	for _, invariant := range all {
		if !slices.ContainsFunc(judgements(), func(j judgement) bool { return slices.Equal(j.want, []checker.Invariant{invariant}) }) {
			t.Errorf("no tale breaks %s alone", invariant)
		}
	}
}

// roll is an upgrade of the whole cluster without a violation.
func roll() *tale {
	told := held()
	told.annotate("talos-current", before)
	told.annotate("talos-progress", "0/5")
	told.annotate("talos-status", "in-progress")

	for i, node := range []string{"worker-0", "worker-1", "cp-0", "cp-1", "cp-2"} {
		told.rpc(node, rpcPull, "OK")
		told.turn(node, after)
		told.annotate("talos-progress", []string{"1/5", "2/5", "3/5", "4/5", "5/5"}[i])
	}

	told.annotate("talos-current", after)
	told.annotate("talos-status", "completed")
	told.release()

	return told
}

func TestVerdict_TellsWhatBecameOfEachNode(t *testing.T) {
	verdict := judgeFile(t, roll().events)
	if len(verdict.Violations) != 0 || len(verdict.Nodes) != 5 {
		t.Fatalf("got %+v, want five nodes and no violation", verdict)
	}

	want := checker.NodeVerdict{
		Role: "controlplane", Talos: after, Kubelet: runsOn, Kubernetes: runsOn, Installs: 1, Reboots: 1, BootID: "boot-5",
	}
	if got := verdict.Nodes["cp-2"]; got != want {
		t.Errorf("cp-2: got %+v, want %+v", got, want)
	}
}

func TestVerdict_TellsWhatBecameOfComponents(t *testing.T) {
	judge := checker.New(checker.SyncsManifests())
	for _, event := range kubernetesRoll().events {
		judge.Add(event)
	}

	for name, configs := range map[string]int{"cp-2": 5, "worker-0": 1} {
		if got := judge.Nodes()[name]; got.Kubernetes != next || got.Kubelet != next || got.Configs != configs {
			t.Errorf("%s: got %+v, want %s everywhere after %d configurations", name, got, next, configs)
		}
	}
}

func TestVerdict_FirstBootOfANodeThatJoinsIsNoReboot(t *testing.T) {
	told := held()
	told.tell("worker-2", history.KindNode, "role", "worker", "talos", after, "kubelet", runsOn, "boot_id", "boot-0", "joins", "true")

	judge := checker.New()
	add := func() {
		for _, event := range told.events {
			judge.Add(event)
		}

		told.events = nil
	}

	// Nobody waits for a worker that has never come up, and nobody counts it.
	told.wait(120)
	told.cordon("worker-0", true, "client")
	told.cordon("worker-0", false, "client")
	add()

	if broken := judge.Verdict().Broken(); len(broken) != 0 {
		t.Errorf("before it was there: broke %v", broken)
	}

	// Once it has come up, it is out of service until it is Ready.
	told.boot("worker-2", after, runsOn, "reboot")
	told.wait(120)
	told.cordon("worker-0", true, "client")
	add()

	if broken := judge.Verdict().Broken(); !slices.Equal(broken, breaks(s10)) {
		t.Errorf("before it was Ready: broke %v, want S10", broken)
	}

	told.ready("worker-2", true, runsOn)
	add()

	if got := judge.Verdict().Nodes["worker-2"]; got.Reboots != 0 || got.BootID != "boot-1" {
		t.Errorf("got %+v, want no reboot", got)
	}
}

func TestVerdict_IsJSONWithTheAgreedKeys(t *testing.T) {
	told := roll()
	told.cordon("worker-0", true, "client")

	judge := checker.New()
	for _, event := range told.events {
		judge.Add(event)
	}

	text, err := json.Marshal(judge.Verdict())
	if err != nil {
		t.Fatal(err)
	}

	var verdict struct {
		Violations []map[string]any          `json:"violations"`
		Nodes      map[string]map[string]any `json:"nodes"`
	}
	if err := json.Unmarshal(text, &verdict); err != nil {
		t.Fatal(err)
	}

	if len(verdict.Violations) == 0 {
		t.Fatal("a cordon without a lease is no violation")
	}

	for _, key := range []string{"invariant", "node", "time", "what"} {
		if _, found := verdict.Violations[0][key]; !found {
			t.Errorf("a violation has no %q: %s", key, text)
		}
	}

	for _, key := range []string{"talos", "kubelet", "kubernetes", "schematic", "installs", "reboots", "configs", "boot_id", "cordoned"} {
		if _, found := verdict.Nodes["worker-0"][key]; !found {
			t.Errorf("a node has no %q: %s", key, text)
		}
	}
}

func TestVerdict_OfAnEmptyHistoryIsEmpty(t *testing.T) {
	text, err := json.Marshal(checker.New().Verdict())
	if err != nil {
		t.Fatal(err)
	}

	if want := `{"violations":[],"nodes":{}}`; string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestVerdict_SameViolationIsToldOnce(t *testing.T) {
	told := begin(1, 1)
	for range 3 {
		told.rpc("worker-0", rpcPull, "OK")
	}

	judge := checker.New()
	for _, event := range told.events {
		judge.Add(event)
	}

	if violations := judge.Violations(); len(violations) != 1 {
		t.Errorf("got %+v, want one violation", violations)
	}
}
