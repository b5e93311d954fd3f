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
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

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

func TestNodeThatAnOperatorMovedIsNotCalledNotBegun(t *testing.T) {
	page := drawn(t, report.Ending{Outcome: report.Completed, Nodes: []cluster.Node{running("w0", "1.13.4")}},
		planned("w0"), step("w0", cluster.StepSnapshot), cluster.Event{Kind: cluster.EventRunStarted})

	if strings.Contains(page, "not begun") || !strings.Contains(page, "1.13.2 | → | 1.13.4") {
		t.Error(page)
	}
}

func TestNodeWithoutATurnInACompletedRunNeededNone(t *testing.T) {
	page := drawn(t, report.Ending{Outcome: report.Completed}, planned("w0", "w1"), cluster.Event{Kind: cluster.EventRunStarted},
		started("w0"), cluster.Event{Kind: cluster.EventNodeDone, Node: "w0"})

	if strings.Contains(page, "not begun") || !strings.Contains(page, "w1 | worker | no upgrade needed") {
		t.Error(page)
	}
}

func TestNodesThatJoinedAndLeftAreTold(t *testing.T) {
	page := drawn(t, report.Ending{Outcome: report.Completed, Nodes: []cluster.Node{running("w1", "1.13.4")}}, planned("w0"))

	if !strings.Contains(page, "w0 | worker | 1.13.2 | gone") || !strings.Contains(page, "w1 | worker | 1.13.4 | joined") {
		t.Error(page)
	}

	if page := drawn(t, report.Ending{Outcome: report.Completed, Nodes: []cluster.Node{running("w1", "1.13.4")}}); strings.Contains(page, "joined") {
		t.Error("where nothing was planned, a node joined:", page)
	}
}

// TestNodeThatWaitsForRoomIsOneTurn however often it begins.
func TestNodeThatWaitsForRoomIsOneTurn(t *testing.T) {
	events := []cluster.Event{planned("w0"), {Kind: cluster.EventRunStarted}}
	for range 50 {
		events = append(events, started("w0"), step("w0", cluster.StepGates), step("w0", cluster.StepPull), cluster.Event{Kind: cluster.EventNodeStopped, Node: "w0", Text: "no room"})
	}

	page := drawn(t, report.Ending{Outcome: report.Completed}, events...)
	if pulls := strings.Count(page, "| pull |"); pulls != 1 {
		t.Errorf("%d pulls are shown, want the last one", pulls)
	}
}

func TestWarningsOutliveWaits(t *testing.T) {
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

func TestRollbackIsNoFailureOfTheOldSystem(t *testing.T) {
	failure := &report.Failure{Summary: "Unable to upgrade node w0 to Talos 1.13.4", Nodes: []string{"w0"}}
	page := drawn(t, report.Ending{Outcome: report.Failed, Failure: failure}, planned("w0"), cluster.Event{Kind: cluster.EventRunStarted}, started("w0"),
		step("w0", cluster.StepReturn), step("w0", cluster.StepReady), cluster.Event{Kind: cluster.EventRollingBack, Node: "w0", To: version.MustParse("1.13.2"), Text: "not Ready"},
		step("w0", cluster.StepDrain), step("w0", cluster.StepRollback), step("w0", cluster.StepReturn), step("w0", cluster.StepReady), step("w0", cluster.StepUncordon),
		cluster.Event{Kind: cluster.EventNodeStopped, Node: "w0", Err: errors.New("rolled back")})

	if !strings.Contains(page, "at: wait for Ready") || strings.Count(page, "failed here") != 1 || !strings.Contains(page, "to be sent back to Talos 1.13.2") {
		t.Error(page)
	}
}

// TestLinkInThePlaceOfWhatIsNotWholeYetIsNotFollowed: in a directory that others may
// write to, it could lead to any file.
func TestLinkInThePlaceOfWhatIsNotWholeYetIsNotFollowed(t *testing.T) {
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

// TestLinkIsFollowed: what it leads to is written, and the link stays.
func TestLinkIsFollowed(t *testing.T) {
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
