// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// TestPlan_ReadsAsWritten shows whole plans, so that a change of order, path,
// image or wording is seen in review. Each archive in testdata holds a scene, as
// stage reads it, and the plan for it.
func TestPlan_ReadsAsWritten(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d archives: %v", len(files), err)
	}

	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()

			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}

			if len(archive.Files) == 0 || archive.Files[0].Name != "scene" {
				t.Fatalf("%s holds no scene", file)
			}

			s, err := stage(string(archive.Files[0].Data))
			if err != nil {
				t.Fatal(err)
			}

			made := s.said(t)

			got := txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: []txtar.File{
				archive.Files[0], {Name: "plan", Data: []byte(render(made))},
			}})

			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}

				return
			}

			if diff := cmp.Diff(string(txtar.Format(archive)), string(got)); diff != "" {
				t.Errorf("the plan changed (-golden +now); if that is wanted, run the test with -update:\n%s", diff)
			}
		})
	}
}

// stage builds the scene that a text describes, one word and its arguments on a
// line; the first line is the size of the cluster.
func stage(text string) (*scene, error) {
	var s *scene

	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}

		if s == nil {
			if words[0] != "nodes" || len(words) != 3 {
				return nil, fmt.Errorf("want \"nodes CONTROL-PLANES WORKERS\" first, not %q", line)
			}

			controlPlanes, _ := strconv.Atoi(words[1])
			workers, _ := strconv.Atoi(words[2])
			s = newScene(controlPlanes, workers)

			continue
		}

		act, known := acts()[words[0]]
		if !known || len(words)-1 < act.least {
			return nil, fmt.Errorf("no act: %q", line)
		}

		act.play(s, words[1:])
	}

	return s, nil
}

type act struct {
	// least is how many arguments it takes.
	least int
	play  func(s *scene, words []string)
}

func acts() map[string]act {
	return map[string]act{
		"talos":           {1, func(s *scene, w []string) { s.runs(w[0], w[1:]...) }},
		"kubernetes":      {1, func(s *scene, w []string) { s.kubernetes(w[0]) }},
		"component":       {3, func(s *scene, w []string) { s.component(w[0], cluster.Component(w[1]), w[2]) }},
		"runs":            {3, func(s *scene, w []string) { s.runsComponent(w[0], cluster.Component(w[1]), w[2]) }},
		"names":           {3, func(s *scene, w []string) { s.namesComponent(w[0], cluster.Component(w[1]), w[2]) }},
		"pods":            {1, func(s *scene, w []string) { s.pods(w[0]) }},
		"mirrored":        {1, func(s *scene, w []string) { s.mirrored(w[0], strings.Join(w[1:], "")) }},
		"wants":           {2, func(s *scene, w []string) { s.wants(cluster.Component(w[0]), w[1]) }},
		"due":             {0, func(s *scene, _ []string) { s.due() }},
		"unsynced":        {0, func(s *scene, _ []string) { s.unsynced() }},
		"unhurried":       {0, func(s *scene, _ []string) { s.unhurried() }},
		"disabled":        {2, func(s *scene, w []string) { s.disabled(w[0], cluster.Component(w[1])) }},
		"ailing":          {3, func(s *scene, w []string) { s.ailing(w[0], cluster.Component(w[1]), strings.Join(w[2:], " ")) }},
		"missing":         {2, func(s *scene, w []string) { s.missing(w[0], cluster.Component(w[1])) }},
		"stage":           {2, func(s *scene, w []string) { s.stage(w[0], cluster.Stage(w[1])) }},
		"self-cordoned":   {1, func(s *scene, w []string) { s.cordonedByTalos(w[0]) }},
		"pressed":         {2, func(s *scene, w []string) { s.pressed(w[0], w[1:]...) }},
		"alarm":           {2, func(s *scene, w []string) { s.alarmed(strings.Join(w[1:], " "), w[0]) }},
		"leaderless":      {1, func(s *scene, w []string) { s.status(w[0], func(e *cluster.EtcdStatus) { e.Leader = 0 }) }},
		"lags":            {1, func(s *scene, w []string) { s.lags(w[0]) }},
		"database":        {2, func(s *scene, w []string) { s.sized(w[0], number(w[1])) }},
		"boot-unknown":    {1, func(s *scene, w []string) { s.bootUnknown(w[0]) }},
		"secure":          {1, func(s *scene, w []string) { s.secure(w[0]) }},
		"skip":            {1, func(s *scene, w []string) { s.skips(w...) }},
		"stopped":         {2, func(s *scene, w []string) { delete(s.node(w[0]).Versions, cluster.Component(w[1])) }},
		"unmanaged":       {0, func(s *scene, _ []string) { s.unmanaged() }},
		"proxyless":       {0, func(s *scene, _ []string) { s.proxyless() }},
		"unreadable":      {1, func(s *scene, w []string) { s.unreadable(w[0]) }},
		"kubelets":        {1, func(s *scene, w []string) { s.policy.Kubernetes.MaxUnavailableKubelets = share(w[0]) }},
		"schematic":       {1, func(s *scene, w []string) { s.built(strings.Repeat(w[0], 64)) }},
		"extension":       {2, func(s *scene, w []string) { s.node(w[0]).Machine.Extensions = w[1:] }},
		"unpinned":        {1, func(s *scene, w []string) { s.unpinned(w[0]) }},
		"not-ready":       {1, func(s *scene, w []string) { s.notReady(w[0]) }},
		"cordoned":        {1, func(s *scene, w []string) { s.cordoned(w[0], strings.Join(w[1:], "")) }},
		"silent":          {1, func(s *scene, w []string) { s.silent(w[0]) }},
		"etcd-silent":     {1, func(s *scene, w []string) { s.quiet(w[0]) }},
		"gone":            {1, func(s *scene, w []string) { s.gone(w[0]) }},
		"foreign":         {1, func(s *scene, w []string) { s.snapshot.Foreign = w }},
		"roles":           {1, func(s *scene, w []string) { s.roles(w...) }},
		"journal":         {3, func(s *scene, w []string) { s.entry(w[0], cluster.Phase(w[1]), w[2]) }},
		"target-talos":    {1, func(s *scene, w []string) { s.aims(w[0]) }},
		"target-kube":     {1, func(s *scene, w []string) { s.asserts(w[0]) }},
		"target-image":    {1, func(s *scene, w []string) { s.target.InstallerImage = w[0] }},
		"order":           {1, func(s *scene, w []string) { s.policy.Order = cluster.Order(w[0]) }},
		"max-unavailable": {1, func(s *scene, w []string) { s.policy.MaxUnavailable = share(w[0]) }},
		"canary":          {1, func(s *scene, w []string) { s.canary(w...) }},
		"hold":            {1, func(s *scene, w []string) { s.holds(w[0]) }},
		"image":           {2, func(s *scene, w []string) { s.gets(w[0], w[1]) }},
		"undrained":       {0, func(s *scene, _ []string) { s.undrained() }},
		"allow":           {1, func(s *scene, w []string) { s.allows(w...) }},
		"through":         {1, func(s *scene, w []string) { s.names(w...) }},
	}
}

func number(text string) int64 {
	parsed, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}

	return parsed
}

func (s *scene) allows(what ...string) *scene {
	s.policy.AllowIntermediate = s.policy.AllowIntermediate || slices.Contains(what, "intermediate")
	s.policy.AllowUnknown = s.policy.AllowUnknown || slices.Contains(what, "unknown")

	return s
}

// render prints a plan for people who review golden files.
func render(made plan.Plan) string {
	var text strings.Builder

	for i, hop := range made.Hops {
		fmt.Fprintf(&text, "hop %d: %s -> %s\n", i+1, hop.From, hop.To)

		for _, step := range made.Steps {
			if step.Hop == i {
				renderStep(&text, step)
			}
		}
	}

	fmt.Fprintf(&text, "budget: %d, kubelets: %d, about %s\n", made.Budget, made.KubeletBudget, made.Estimate())
	renderProgress(&text, "talos", made.Talos)
	renderProgress(&text, "kubernetes", made.Kubernetes)

	for _, list := range []struct {
		name  string
		nodes []string
	}{{"at target", made.AtTarget}, {"elsewhere", made.Elsewhere}, {"held", made.Held}} {
		if len(list.nodes) > 0 {
			fmt.Fprintf(&text, "%s: %s\n", list.name, strings.Join(list.nodes, ", "))
		}
	}

	for _, finding := range made.Findings {
		severity := [...]string{cluster.Advice: "advice", cluster.Observed: "observed", cluster.Permanent: "permanent"}[finding.Severity]
		fmt.Fprintf(&text, "%s at %s%s: %s\n", severity, finding.Attribute, within(finding.Within), finding)
	}

	return text.String()
}

func renderProgress(text *strings.Builder, half string, progress cluster.Progress) {
	managed := "not managed, "
	if progress.Managed {
		managed = fmt.Sprintf("%d of %d nodes, ", progress.Done, progress.Total)

		if progress.Lagging > 0 {
			managed += fmt.Sprintf("%d with another kube-proxy, ", progress.Lagging)
		}
	}

	fmt.Fprintf(text, "%s: %s%d steps, lowest %s\n", half, managed, progress.Steps, progress.Lowest)

	if progress.Waits != "" {
		fmt.Fprintf(text, "  blocked: %s\n", progress.Waits)
	}
}

func renderStep(text *strings.Builder, step plan.Step) {
	if step.Component == cluster.Manifests && step.Node+string(step.Role)+step.Address+step.Key+step.Image+step.Configured == "" {
		fmt.Fprintf(text, "  manifests %s -> %s\n", step.From, step.To)

		return
	}

	fmt.Fprintf(text, "  %s (%s): ", step.Node, step.Role)

	if step.Component != "" {
		fmt.Fprintf(text, "%s ", step.Component)
	}

	fmt.Fprintf(text, "%s -> %s", step.From, step.To)

	for _, mark := range []struct {
		set  bool
		text string
	}{{step.Canary, "canary"}, {step.Finish, "unfinished"}, {step.Done, "return to service"}} {
		if mark.set {
			fmt.Fprintf(text, ", %s", mark.text)
		}
	}

	if step.Component == "" {
		fmt.Fprintf(text, ", %q by %q", step.Image, step.API)
	} else {
		fmt.Fprintf(text, ", %q for %q", step.Image, step.Configured)
	}

	text.WriteString("\n")
}

func within(steps []cluster.Within) string {
	var text strings.Builder

	for _, step := range steps {
		if field, ok := step.(cluster.Field); ok {
			fmt.Fprintf(&text, ".%s", string(field))
		} else {
			fmt.Fprintf(&text, "[%#v]", step)
		}
	}

	return text.String()
}

// large returns a cluster of that many nodes, five of them control planes, with every part of the policy in use.
func large(nodes int) *scene {
	s := newScene(0, 0)

	for i := range nodes - 5 {
		s.add(cluster.Worker, fmt.Sprintf("worker-%05d", i), fmt.Sprintf("10.%d.%d.%d", 1+i/62_500, i/250%250, i%250))
	}

	for i := range 5 {
		s.add(cluster.ControlPlane, fmt.Sprintf("cp-%d", i), fmt.Sprintf("10.0.0.%d", i))
	}

	s.policy.MaxUnavailable = share("10%")

	return s.elect().canary("worker-00000", "worker-00001").holds("worker-00002").gets("worker-00003", generic)
}

// BenchmarkPlanOf1000Nodes covers a part of the limit for refresh and plan: 3 seconds in total, of which planning
// may take 50 ms. The engine plans again before every node.
func BenchmarkPlanOf1000Nodes(b *testing.B) {
	b.Run("one hop", func(b *testing.B) { benchmark(b, large(1000), 999+1) })
	b.Run("two hops", func(b *testing.B) { benchmark(b, large(1000).walks().runs("1.11.2"), 2*999+1) })
	b.Run("both halves", func(b *testing.B) {
		s := large(1000).asserts("1.35.0")
		benchmark(b, s, 999+999+4*5+1)
	})
	b.Run("99 on their way", func(b *testing.B) { benchmark(b, underway(large(1000), 99), 999+1) })
}

// underway puts that many workers in the middle of their upgrade.
func underway(s *scene, workers int) *scene {
	s.snapshot.Journal = &cluster.Journal{Entries: map[string]cluster.Entry{}}

	for i := range workers {
		node := s.node(fmt.Sprintf("worker-%05d", 10+i))
		s.snapshot.Journal.Entries[node.MachineID()] = cluster.Entry{Node: node.Name, Phase: cluster.PhaseIntent, BootID: node.Machine.BootID, Previous: node.Machine.Talos}
	}

	return s
}

func benchmark(b *testing.B, s *scene, steps int) {
	b.Helper()
	b.ReportAllocs()

	for b.Loop() {
		made := s.make()
		if len(made.Steps) != steps || len(cluster.Blocking(made.Findings)) > 0 {
			b.Fatalf("%d steps, want %d; findings %v", len(made.Steps), steps, made.Findings)
		}

		if started := made.Startable(s.snapshot, nil); len(started) == 0 {
			b.Fatal("nothing may start")
		}
	}
}

// BenchmarkAllocationGrowth plans for ten times as many nodes: the allocations
// should be ten times as many, or fewer.
func BenchmarkAllocationGrowth(b *testing.B) {
	small, big := large(1000), large(10_000)

	for b.Loop() {
		b.ReportMetric(growth(small, big), "x-allocs")
	}
}

func growth(small, big *scene) float64 {
	allocs := func(s *scene) float64 { return testing.AllocsPerRun(1, func() { s.make() }) }

	return allocs(big) / allocs(small)
}

// TestPlan_AllocationsGrowLinearly allows somewhat more than ten times as many, for maps that double.
func TestPlan_AllocationsGrowLinearly(t *testing.T) {
	if got := growth(large(1000), large(10_000)); got > 11 {
		t.Errorf("ten times the nodes take %.1f times the allocations", got)
	}
}
