// SPDX-License-Identifier: MPL-2.0

package report_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func options(path string) report.Options {
	return report.Options{Path: path, Cluster: "prod", Run: "run-1", Version: "0.1.0"}
}

// outline is that of a cluster with the nodes, all of which are to move.
func outline(nodes ...string) *cluster.Outline {
	made := &cluster.Outline{ClusterID: "the-id"}

	for _, name := range nodes {
		from, to := version.MustParse("1.13.2"), version.MustParse("1.13.4")
		made.Nodes = append(made.Nodes, cluster.Node{Name: name, Role: cluster.Worker, Machine: &cluster.Machine{Talos: from}})
		made.Upgrades = append(made.Upgrades, cluster.PlannedUpgrade{Node: name, Role: cluster.Worker, From: from, To: to, Image: "registry.example/installer:v1.13.4"})
	}

	return made
}

// TestReport_WordsOfOthersAreNoMarkup: whatever a node, a registry or a person says is
// shown as text.
func TestReport_WordsOfOthersAreNoMarkup(t *testing.T) {
	const evil = "\x1b[2J\"><script>alert(1)</script><img src=x onerror=alert(1)>'"

	path := filepath.Join(t.TempDir(), "report.html")
	made := report.New(report.Options{Path: path, Cluster: evil, Run: evil, Version: evil})

	of := outline(evil)
	of.ClusterID, of.Held, of.Upgrades[0].Image = evil, []string{evil}, evil
	of.Findings = []cluster.Finding{{Check: evil, Node: evil, Found: evil, Remedy: evil}}

	for _, event := range []cluster.Event{
		{Kind: cluster.EventPlanned, Outline: of},
		{Kind: cluster.EventRunStarted},
		{Kind: cluster.EventNodeStarted, Node: evil},
		{Kind: cluster.EventNodeStep, Node: evil, Step: evil, Text: evil},
		{Kind: cluster.EventWaiting, Node: evil, Text: evil},
		{Kind: cluster.EventWarning, Node: evil, Text: evil},
	} {
		event.Time = time.Now()
		made.Observe(event)
	}

	failure := &report.Failure{
		Summary: evil, Nodes: []string{evil}, Seen: evil, State: evil, Remedy: evil,
		Findings: of.Findings, Excerpts: []report.Excerpt{{Source: evil, Lines: []string{evil}}},
	}
	if err := made.Close(t.Context(), report.Ending{Outcome: report.Failed, Failure: failure}); err != nil {
		t.Fatal(err)
	}

	content := read(t, path)
	for _, markup := range []string{"<script", "<img", "onerror=alert(1)>\"", "\x1b"} {
		if strings.Contains(content, markup) {
			t.Errorf("the page holds %q", markup)
		}
	}

	if !strings.Contains(content, "&lt;script&gt;") {
		t.Error("the words are not shown at all")
	}
}

// TestReport_IsWrittenAgainAsTheRunGoesOn, also where nothing happens, so that one that
// was cut off shows.
func TestReport_IsWrittenAgainAsTheRunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "new", "deep", "report.html")
		if _, err := report.Check(path); err != nil {
			t.Fatal(err)
		}

		made := report.New(options(path))
		made.Observe(cluster.Event{Kind: cluster.EventPlanned, Time: time.Now(), Outline: outline("worker-0")})
		synctest.Wait()

		first := read(t, path)
		if !strings.Contains(first, "About to begin") || !strings.Contains(first, `http-equiv="refresh"`) {
			t.Errorf("the page of a run that has not begun reads\n%s", first)
		}

		time.Sleep(11 * time.Second)
		synctest.Wait()

		if second := read(t, path); second == first {
			t.Error("the file was not written again after 11 s in which nothing happened")
		}

		made.Observe(cluster.Event{Kind: cluster.EventRunStarted, Time: time.Now(), Target: cluster.Target{Talos: version.MustParse("1.13.4")}})
		time.Sleep(2 * time.Second)
		synctest.Wait()

		if third := read(t, path); !strings.Contains(third, "Upgrading to Talos 1.13.4") {
			t.Error("what happened is not shown after 2 s")
		}

		if err := made.Close(t.Context(), report.Ending{Outcome: report.Completed}); err != nil {
			t.Fatal(err)
		}

		if last := read(t, path); strings.Contains(last, `http-equiv="refresh"`) || !strings.Contains(last, "Completed") {
			t.Error("the page of a run that is over is loaded again, or does not say that it is")
		}
	})
}

// TestReport_ManyEventsDoNotKeepTheDiskBusy: between two writes there is a pause.
func TestReport_ManyEventsDoNotKeepTheDiskBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "report.html")
		made := report.New(options(path))
		written := map[string]bool{}

		made.Observe(cluster.Event{Kind: cluster.EventPlanned, Time: time.Now(), Outline: outline("worker-0")})

		for range 100 {
			made.Observe(cluster.Event{Kind: cluster.EventWaiting, Time: time.Now(), Text: time.Now().String()})
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()

			written[read(t, path)] = true
		}

		if most := 6; len(written) > most {
			t.Errorf("written %d times in five seconds, want %d at most", len(written), most)
		}

		if err := made.Close(t.Context(), report.Ending{Outcome: report.Completed}); err != nil {
			t.Error(err)
		}
	})
}

// TestReport_RunWithoutWorkLeavesThatOfTheLastOne, and draws one where there is none.
func TestReport_RunWithoutWorkLeavesThatOfTheLastOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	idle := func() string {
		if err := report.New(options(path)).Close(t.Context(), report.Ending{Outcome: report.Completed}); err != nil {
			t.Fatal(err)
		}

		return read(t, path)
	}

	if first := idle(); !strings.Contains(first, "Nothing to do") {
		t.Errorf("the page of a run without work reads\n%s", first)
	}

	made := report.New(options(path))
	made.Observe(cluster.Event{Kind: cluster.EventPlanned, Time: time.Now(), Outline: outline("worker-0")})

	if err := made.Close(t.Context(), report.Ending{Outcome: report.Completed}); err != nil {
		t.Fatal(err)
	}

	if before, after := read(t, path), idle(); before != after {
		t.Error("a run without work wrote over the report of one that had some")
	}
}

func TestReport_FailureWithoutAnyPlanIsShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	failure := &report.Failure{Summary: "Unable to observe the cluster", Seen: "no node answered", State: "Nothing was touched.", Remedy: "Check the endpoints."}

	if err := report.New(options(path)).Close(t.Context(), report.Ending{Outcome: report.Refused, Failure: failure}); err != nil {
		t.Fatal(err)
	}

	content := read(t, path)
	for _, want := range []string{failure.Summary, failure.Seen, failure.State, failure.Remedy} {
		if !strings.Contains(content, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestReport_RefusesUnusablePlaces(t *testing.T) {
	directory := t.TempDir()
	mine := filepath.Join(directory, "main.tf")

	if err := os.WriteFile(mine, []byte("# made with terraform-provider-talosupgrade\nterraform {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := report.Check(mine); !errors.Is(err, report.ErrForeign) || !strings.Contains(err.Error(), mine) {
		t.Errorf("somebody's configuration as a report: %v", err)
	}

	if _, err := report.Check(directory); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("a directory as a report: %v", err)
	}

	if _, err := report.Check(filepath.Join(mine, "report.html")); err == nil {
		t.Error("a file as the directory of a report is no error")
	}

	empty := filepath.Join(directory, "empty.html")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err := report.Check(empty); err != nil {
		t.Errorf("an empty file as a report: %v", err)
	}

	left, err := os.ReadDir(directory)
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestReport_UnwritableFileIsAnErrorAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gone", "report.html")
	made := report.New(options(path))
	made.Observe(cluster.Event{Kind: cluster.EventPlanned, Time: time.Now(), Outline: outline("worker-0")})

	if err := made.Close(t.Context(), report.Ending{Outcome: report.Completed}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// BenchmarkThousandNodes draws the report of a thousand nodes that have all had
// their upgrade.
func BenchmarkThousandNodes(b *testing.B) {
	const nodes = 1000

	path := filepath.Join(b.TempDir(), "report.html")
	steps := []cluster.NodeStep{
		cluster.StepPull, cluster.StepCordon, cluster.StepDrain, cluster.StepInstall, cluster.StepReboot, cluster.StepReturn, cluster.StepReady, cluster.StepUncordon,
	}

	names, outline := make([]string, nodes), &cluster.Outline{}
	for index := range names {
		names[index] = fmt.Sprintf("worker-%d", index)
		outline.Nodes = append(outline.Nodes, cluster.Node{Name: names[index], Role: cluster.Worker})
		outline.Upgrades = append(outline.Upgrades, cluster.PlannedUpgrade{Node: names[index], Role: cluster.Worker})
	}

	for b.Loop() {
		now := time.Unix(0, 0)
		tell := func(event cluster.Event, made *report.Report) {
			now = now.Add(time.Second)
			event.Time = now
			made.Observe(event)
		}

		made := report.New(options(path))

		for _, name := range names {
			tell(cluster.Event{Kind: cluster.EventNodeStarted, Node: name}, made)

			for _, step := range steps {
				tell(cluster.Event{Kind: cluster.EventNodeStep, Node: name, Step: step}, made)
			}

			tell(cluster.Event{Kind: cluster.EventNodeDone, Node: name}, made)
		}

		// What is planned is told last, as nothing is written before that.
		tell(cluster.Event{Kind: cluster.EventPlanned, Outline: outline}, made)

		failure := &report.Failure{Summary: "none"}
		if err := made.Close(context.Background(), report.Ending{Outcome: report.Stopped, Failure: failure, Nodes: outline.Nodes}); err != nil {
			b.Fatal(err)
		}
	}

	if info, err := os.Stat(path); err == nil {
		b.ReportMetric(float64(info.Size())/nodes, "bytes/node")
	}
}

// TestReport_ManyNodesThatAreDoneAreStillShown, folded away.
func TestReport_ManyNodesThatAreDoneAreStillShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.html")
	made := report.New(options(path))

	var names []string
	for index := range 50 {
		names = append(names, fmt.Sprintf("worker-%02d", index))
	}

	made.Observe(cluster.Event{Kind: cluster.EventPlanned, Time: time.Now(), Outline: outline(names...)})

	for _, name := range names {
		made.Observe(cluster.Event{Kind: cluster.EventNodeStarted, Time: time.Now(), Node: name})
		made.Observe(cluster.Event{Kind: cluster.EventNodeDone, Time: time.Now(), Node: name})
	}

	if err := made.Close(t.Context(), report.Ending{Outcome: report.Completed}); err != nil {
		t.Fatal(err)
	}

	content := read(t, path)
	for _, want := range append(names, "50 nodes: done") {
		if !strings.Contains(content, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// drawn is what a person reads on the page of the events, in this order and a second
// after each other, with the ending.
func drawn(t *testing.T, ending report.Ending, events ...cluster.Event) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "report.html")
	made := report.New(options(path))

	for index, event := range events {
		event.Time = time.Unix(int64(index), 0)
		made.Observe(event)
	}

	if err := made.Close(t.Context(), ending); err != nil {
		t.Fatal(err)
	}

	return strings.Join(visible(parse(t, path)), "\n")
}

func planned(nodes ...string) cluster.Event {
	return cluster.Event{Kind: cluster.EventPlanned, Outline: outline(nodes...)}
}

func started(node string) cluster.Event {
	return cluster.Event{Kind: cluster.EventNodeStarted, Node: node, To: version.MustParse("1.13.4")}
}

func step(node string, at cluster.NodeStep) cluster.Event {
	return cluster.Event{Kind: cluster.EventNodeStep, Node: node, Step: at}
}

func running(name, talos string) cluster.Node {
	return cluster.Node{Name: name, Role: cluster.Worker, Machine: &cluster.Machine{Talos: version.MustParse(talos)}}
}

func TestStory_NodeThatAnOperatorMovedIsNotCalledNotBegun(t *testing.T) {
	page := drawn(t, report.Ending{Outcome: report.Completed, Nodes: []cluster.Node{running("w0", "1.13.4")}},
		planned("w0"), step("w0", cluster.StepSnapshot), cluster.Event{Kind: cluster.EventRunStarted})

	if strings.Contains(page, "not begun") || !strings.Contains(page, "1.13.2 | → | 1.13.4") {
		t.Error(page)
	}
}

func TestStory_NodeWithoutATurnInACompletedRunNeededNone(t *testing.T) {
	page := drawn(t, report.Ending{Outcome: report.Completed}, planned("w0", "w1"), cluster.Event{Kind: cluster.EventRunStarted},
		started("w0"), cluster.Event{Kind: cluster.EventNodeDone, Node: "w0"})

	if strings.Contains(page, "not begun") || !strings.Contains(page, "w1 | worker | no upgrade needed") {
		t.Error(page)
	}
}

func TestStory_NodesThatJoinedAndLeftAreTold(t *testing.T) {
	page := drawn(t, report.Ending{Outcome: report.Completed, Nodes: []cluster.Node{running("w1", "1.13.4")}}, planned("w0"))

	if !strings.Contains(page, "w0 | worker | 1.13.2 | gone") || !strings.Contains(page, "w1 | worker | 1.13.4 | joined") {
		t.Error(page)
	}

	if page := drawn(t, report.Ending{Outcome: report.Completed, Nodes: []cluster.Node{running("w1", "1.13.4")}}); strings.Contains(page, "joined") {
		t.Error("where nothing was planned, a node joined:", page)
	}
}

// TestStory_NodeThatWaitsForRoomIsOneTurn however often it begins.
func TestStory_NodeThatWaitsForRoomIsOneTurn(t *testing.T) {
	events := []cluster.Event{planned("w0"), {Kind: cluster.EventRunStarted}}
	for range 50 {
		events = append(events, started("w0"), step("w0", cluster.StepGates), step("w0", cluster.StepPull), cluster.Event{Kind: cluster.EventNodeStopped, Node: "w0", Text: "no room"})
	}

	page := drawn(t, report.Ending{Outcome: report.Completed}, events...)
	if pulls := strings.Count(page, "| pull |"); pulls != 1 {
		t.Errorf("%d pulls are shown, want the last one", pulls)
	}
}

func TestStory_WarningsOutliveWaits(t *testing.T) {
	events := []cluster.Event{planned("w0")}

	for index := range 2000 {
		events = append(events, cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprint("wait ", index)})
		if index == 1000 {
			events = append(events, cluster.Event{Kind: cluster.EventWarning, Node: "w0", Text: "mind this"})
		}
	}

	page := drawn(t, report.Ending{Outcome: report.Completed}, events...)
	if !strings.Contains(page, "mind this") || !strings.Contains(page, "lines in the middle are left out") {
		t.Error("the warning is gone, or nothing is said of what is left out")
	}
}

func TestStory_RollbackIsNoFailureOfTheOldSystem(t *testing.T) {
	failure := &report.Failure{Summary: "Unable to upgrade node w0 to Talos 1.13.4", Nodes: []string{"w0"}}
	page := drawn(t, report.Ending{Outcome: report.Failed, Failure: failure}, planned("w0"), cluster.Event{Kind: cluster.EventRunStarted}, started("w0"),
		step("w0", cluster.StepReturn), step("w0", cluster.StepReady), cluster.Event{Kind: cluster.EventRollingBack, Node: "w0", To: version.MustParse("1.13.2"), Text: "not Ready"},
		step("w0", cluster.StepDrain), step("w0", cluster.StepRollback), step("w0", cluster.StepReturn), step("w0", cluster.StepReady), step("w0", cluster.StepUncordon),
		cluster.Event{Kind: cluster.EventNodeStopped, Node: "w0", Err: errors.New("rolled back")})

	if !strings.Contains(page, "at: wait for Ready") || strings.Count(page, "failed here") != 1 || !strings.Contains(page, "to be sent back to Talos 1.13.2") {
		t.Error(page)
	}
}

// TestReport_LinkInPlaceOfTheTemporaryFileIsNotFollowed: in a directory that others may
// write to, it could lead to any file.
func TestReport_LinkInPlaceOfTheTemporaryFileIsNotFollowed(t *testing.T) {
	directory := t.TempDir()
	victim, path := filepath.Join(directory, "victim"), filepath.Join(directory, "report.html")
	partial := filepath.Join(directory, ".report.html.partial")

	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}

	link := func() {
		if err := os.Symlink(victim, partial); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}

	link()

	if _, err := report.Check(path); err != nil {
		t.Fatal(err)
	}

	link()

	if err := report.New(options(path)).Close(t.Context(), report.Ending{Outcome: report.Completed}); err != nil {
		t.Fatal(err)
	}

	if content := read(t, victim); content != "precious" {
		t.Errorf("what the link leads to holds %d bytes of something else", len(content))
	}

	if !strings.Contains(read(t, path), "Nothing to do") {
		t.Error("there is no report")
	}
}

// TestReport_LinkInPlaceOfTheReportIsFollowed: what it leads to is written, and the link stays.
func TestReport_LinkInPlaceOfTheReportIsFollowed(t *testing.T) {
	directory := t.TempDir()
	target, link := filepath.Join(directory, "target.html"), filepath.Join(directory, "link.html")

	if err := os.Symlink(target, link); err != nil {
		t.Skip("no symbolic links here:", err)
	}

	if _, err := report.Check(link); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link that leads nowhere: %v", err)
	}

	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	place, err := report.Check(link)
	if err != nil {
		t.Fatal(err)
	}

	if err := report.New(options(place)).Close(context.Background(), report.Ending{Outcome: report.Refused, Failure: &report.Failure{Summary: "no"}}); err != nil {
		t.Fatal(err)
	}

	info, err := os.Stat(target)
	if err != nil || info.Size() == 0 || info.Mode().Perm() != 0o600 {
		t.Errorf("the target is %v, %v", info, err)
	}
}
