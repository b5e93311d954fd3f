// SPDX-License-Identifier: MPL-2.0

package report

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// page is everything that the template shows, as text.
type page struct {
	Cluster, ClusterID, Run, Generator string
	// Class is the outcome's, Headline says it in one line, Lead in a sentence.
	Class, Headline, Lead string
	// Refresh is after how many seconds a browser looks again; 0 is never.
	Refresh int
	Written string
	Tiles   []tile
	Failure *failureView

	Timeline timeline
	// Versions and Turns are folded away where they are long.
	Versions []versionRow
	Turns    []turnRow
	Estimate string
	Findings []findingGroup
	Lines    []lineRow
	Hidden   int
}

// Short tells the template whether there are few enough of something to be read.
func (page) Short(rows any) bool { return reflect.ValueOf(rows).Len() <= foldAbove }

// tile is one fact at the top.
type tile struct{ Name, Value, Note string }

type failureView struct {
	Seen          []string
	Findings      []findingRow
	Excerpts      []Excerpt
	State, Remedy string
}

type turnRow struct{ Number, Node, Part, From, To, Image, Estimate, Note string }

type lineRow struct {
	At, Elapsed, Node, Text string
	Warning                 bool
}

// view is the page of the story as it stands at the time. What is the same for the
// whole run is in the options.
func (s *story) view(options Options, now time.Time) page {
	until := now
	if s.ending != nil {
		until = s.seen
	}

	made := page{
		Cluster: options.Cluster, Run: options.Run, Generator: generator + " " + options.Version, Written: moment(now),
		Timeline: s.timeline(until), Versions: s.versions(), Turns: s.turns(), Findings: s.findings(), Hidden: s.hidden,
	}

	if s.outline != nil {
		made.ClusterID = s.outline.ClusterID
		if s.outline.Estimate > 0 {
			made.Estimate = took(s.outline.Estimate)
		}
	}

	if s.ending == nil {
		made.Refresh = int(refresh / time.Second)
	}

	made.Class, made.Headline, made.Lead = s.headline()
	made.Tiles = s.tiles(until)
	made.Failure = s.failure()
	made.Lines = s.log()

	return made
}

// beating tells a live run from a dead one.
func beating() string {
	return "This file is written again at least every " + took(beat) + " while the apply lives. When it is older than that, the apply was cut off: " +
		"run terraform apply again, it continues where the cluster is."
}

// headline says how the run stands: the style, one line, and a sentence more.
func (s *story) headline() (class, headline, lead string) {
	switch {
	case s.ending == nil && !s.started:
		return "running", "About to begin", "The cluster was looked at, and the lease is being waited for. Nothing was touched so far. " + beating()
	case s.ending == nil:
		return "running", "Upgrading to " + goal(s.target), beating()
	case s.ending.Outcome == Completed && s.idle():
		return "completed", "Nothing to do", "Every managed node runs what it should run."
	case s.ending.Outcome == Completed:
		return "completed", "Completed: " + goal(s.target), "Every managed node runs what it should run."
	case s.ending.Failure == nil:
		return string(s.ending.Outcome), s.ending.Outcome.words(), ""
	default:
		return string(s.ending.Outcome), s.ending.Outcome.words() + ": " + s.ending.Failure.Summary, ""
	}
}

// words are how people call the outcome.
func (o Outcome) words() string {
	if o == Lost {
		return "Taken over by another run"
	}

	return strings.ToUpper(string(o[:1])) + string(o[1:])
}

// goal names what the cluster is to run.
func goal(target cluster.Target) string {
	var parts []string

	if !target.Talos.IsZero() {
		parts = append(parts, "Talos "+target.Talos.String())
	}

	if !target.Kubernetes.IsZero() {
		parts = append(parts, "Kubernetes "+target.Kubernetes.String())
	}

	return strings.Join(parts, " and ")
}

func (s *story) tiles(until time.Time) []tile {
	var tiles []tile

	for _, half := range []struct {
		name     string
		progress cluster.Progress
	}{{"Talos", s.talos}, {"Kubernetes", s.kubernetes}} {
		if half.progress.Managed && half.progress.Total > 0 {
			tiles = append(tiles, tile{
				Name: half.name, Value: fmt.Sprintf("%d / %d", half.progress.Done, half.progress.Total), Note: "nodes at the target",
			})
		}
	}

	if nodes := s.failedNodes(); len(nodes) > 0 {
		tiles = append(tiles, tile{Name: "Failed", Value: short(nodes), Note: s.failedStep(nodes[0])})
	} else if busy := s.busy(); len(busy) > 0 && s.ending == nil {
		tiles = append(tiles, tile{Name: "Now", Value: short(busy), Note: "on the way"})
	}

	if s.began.IsZero() {
		return tiles
	}

	if !s.started {
		return append(tiles, tile{Name: "Looked at", Value: s.began.UTC().Format(time.TimeOnly), Note: s.began.UTC().Format(time.DateOnly)})
	}

	return append(tiles, tile{Name: "Took", Value: took(until.Sub(s.began)), Note: "since " + moment(s.began)})
}

// failedNodes are those at which the run failed.
func (s *story) failedNodes() []string {
	if s.ending == nil || s.ending.Failure == nil {
		return nil
	}

	return s.ending.Failure.Nodes
}

// failedStep says in which step the last turn of the node ended.
func (s *story) failedStep(node string) string {
	at := s.lanes[node]
	if at == nil {
		return ""
	}

	for _, one := range slices.Backward(at.pieces) {
		if one.failed {
			_, name := lookOf(one.step)

			return "at: " + strings.TrimSpace(string(one.component)+" "+name)
		}
	}

	return ""
}

// busy are the nodes with a turn that is going on.
func (s *story) busy() []string {
	var names []string

	for _, name := range s.order {
		if slices.ContainsFunc(s.lanes[name].turns, func(one *turn) bool { return one.state == turnRunning }) {
			names = append(names, nodeName(name))
		}
	}

	return names
}

// short lists a few names, and how many more there are.
func short(names []string) string {
	const most = 3

	if len(names) <= most {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:most-1], ", "), len(names)-most+1)
}

// nodeName is what the page calls a lane.
func nodeName(name string) string {
	if name == "" {
		return "cluster"
	}

	return name
}

func (s *story) failure() *failureView {
	if s.ending == nil || s.ending.Failure == nil {
		return nil
	}

	of := s.ending.Failure

	return &failureView{
		Seen: strings.Split(strings.TrimSpace(of.Seen), "\n\n"), Findings: findingRows(of.Findings), Excerpts: of.Excerpts,
		State: of.State, Remedy: of.Remedy,
	}
}

// turns is the plan as it was made before anything was touched.
func (s *story) turns() []turnRow {
	if s.outline == nil {
		return nil
	}

	rows := make([]turnRow, 0, len(s.outline.Turns))

	for index, one := range s.outline.Turns {
		row := turnRow{
			Number: fmt.Sprint(index + 1), Node: nodeName(one.Node), Part: string(one.Component), To: one.To.String(), Image: one.Image,
		}

		if one.Component == "" {
			row.Part = "Talos"
		}

		if !one.From.IsZero() {
			row.From = one.From.String()
		}

		if one.Estimate > 0 {
			row.Estimate = took(one.Estimate)
		}

		switch {
		case one.Finish:
			row.Note = "unfinished"
		case one.Canary:
			row.Note = "canary"
		}

		rows = append(rows, row)
	}

	return rows
}

func (s *story) log() []lineRow {
	rows := make([]lineRow, 0, len(s.lines))
	for _, one := range s.lines {
		rows = append(rows, lineRow{
			At: moment(one.at), Elapsed: elapsed(one.at.Sub(s.began)), Node: one.node,
			// A finding names its node itself.
			Text: strings.TrimPrefix(one.text, one.node+": "), Warning: one.warning,
		})
	}

	return rows
}
