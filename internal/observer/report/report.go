// SPDX-License-Identifier: MPL-2.0

// Package report draws a run as one HTML file: the plan, what every node did and for how long, its versions
// before and now and, if the run stopped, what was seen and what to do. It observes the engine and never blocks
// it.
//
// The file depends on nothing else, not even scripts, and forbids the browser to load anything. It contains what
// the errors, the warnings and the plan of the provider contain, and therefore no secrets.
package report

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

var _ cluster.Observer = (*Report)(nil)

const (
	// beat is the interval at which the file of a live run is written at least.
	beat = 10 * time.Second
	// pauseLeast is the minimum time between two writes.
	pauseLeast = time.Second
	// refresh is the interval at which a browser reloads the file of a live run.
	refresh = 10 * time.Second
	// effort bounds the share of time spent on the file: after each write, the pause is this many times as long
	// as drawing and writing took, so that the file of a thousand nodes does not keep a processor busy.
	effort = 100
)

// Options describe the file of a [Report] and the run it is about.
type Options struct {
	// Path is the path of the file. Missing directories are created.
	Path string
	// Cluster is what people call the cluster, Run the ID of the run in lease and journal.
	Cluster, Run string
	// Version is the version of the provider.
	Version string
}

// Report is the file of one run.
type Report struct {
	options Options
	layout  *template.Template

	mu    sync.Mutex
	story *story
	over  bool

	start sync.Once
	wake  chan struct{}
	done  chan struct{}
	ended chan struct{}
}

// New returns a report. It writes nothing.
func New(options Options) *Report {
	return &Report{
		options: options, layout: layout(), story: newStory(),
		wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Observe takes an event into account and returns at once. The file is first written once there is a plan, or
// something to draw.
func (r *Report) Observe(event cluster.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.over {
		return
	}

	r.story.fold(event)

	if r.story.idle() {
		return
	}

	r.start.Do(func() { go r.keep() })

	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// keep writes the file whenever there is something new, and at least once per beat.
func (r *Report) keep() {
	defer close(r.ended)

	for {
		began := time.Now()
		// Only the error of the last write, in Close, is reported.
		_ = r.write(began)

		rest := max(pauseLeast, effort*time.Since(began))
		pause := time.NewTimer(rest)

		r.mu.Lock()
		r.story.pace = paceOf(rest)
		r.mu.Unlock()

		select {
		case <-r.done:
			pause.Stop()

			return
		case <-pause.C:
		}

		next := time.NewTimer(max(beat-rest, 0))

		select {
		case <-r.done:
			next.Stop()

			return
		case <-r.wake:
			next.Stop()
		case <-next.C:
		}
	}
}

// paceOf returns the interval at which the file is written at least, given the pause after a write: the beat, or
// about twice the pause if the pause is longer than the beat, because the page grows.
func paceOf(rest time.Duration) time.Duration {
	if rest <= beat {
		return beat
	}

	return (2*rest + time.Minute).Truncate(time.Minute)
}

// write draws the story as it is now.
func (r *Report) write(now time.Time) error {
	r.mu.Lock()
	shown := r.story.view(r.options, now)
	r.mu.Unlock()

	var content bytes.Buffer

	if err := r.layout.Execute(&content, shown); err != nil {
		return err
	}

	return replace(r.options.Path, []byte(readable.Escaped(content.String())))
}

// Close writes the file for the last time. If the run had nothing to do, the file of an earlier run is left as it
// is. The error says why the file could not be written and does not concern the upgrade.
func (r *Report) Close(ctx context.Context, ending Ending) error {
	r.start.Do(func() { close(r.ended) })
	close(r.done)

	select {
	case <-r.ended:
	case <-ctx.Done():
		return r.late(ctx)
	}

	now := time.Now()

	r.mu.Lock()
	r.over = true
	r.story.finish(ending, now)
	idle := r.story.idle() && ending.Outcome == Completed
	r.mu.Unlock()

	if idle && exists(r.options.Path) {
		return nil
	}

	written := make(chan error, 1)
	// A disk on the network may hang forever.
	go func() { written <- r.write(now) }()

	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return r.late(ctx)
	}
}

// late returns the error for a disk that does not answer.
func (r *Report) late(ctx context.Context) error {
	return fmt.Errorf("%s was not written in time: %w", r.options.Path, cluster.Ended(ctx))
}

// page is all that the template shows, as text.
type page struct {
	Cluster, ClusterID, Run, Generator string
	// Class is the style of the outcome, Headline the outcome in one line, Lead in a sentence.
	Class, Headline, Lead string
	// Refresh is the number of seconds after which a browser reloads the page, or 0 for never.
	Refresh int
	Written string
	Tiles   []tile
	Failure *failureView

	Timeline timeline
	// Versions and Upgrades are collapsed if they are long.
	Versions []versionRow
	Upgrades []upgradeRow
	Estimate string
	Findings []findingGroup
	Lines    []lineRow
	Hidden   int
}

// Short reports whether there are few enough rows to show them at once.
func (page) Short(rows any) bool { return reflect.ValueOf(rows).Len() <= foldAbove }

// tile is one fact at the top.
type tile struct{ Name, Value, Note string }

type failureView struct {
	Seen          []string
	Findings      []findingRow
	Excerpts      []Excerpt
	State, Remedy string
}

type upgradeRow struct{ Number, Node, Part, From, To, Image, Estimate, Note string }

type lineRow struct {
	At, Elapsed, Node, Text string
	Warning                 bool
}

// view returns the page of the story at the given time.
func (s *story) view(options Options, now time.Time) page {
	until := now
	if s.ending != nil {
		until = s.seen
	}

	made := page{
		Cluster: options.Cluster, Run: options.Run, Generator: generator + " " + options.Version, Written: moment(now),
		Timeline: s.timeline(until), Versions: s.versions(), Upgrades: s.upgrades(), Findings: s.findings(), Hidden: s.hidden,
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

// beating returns the sentence that explains how to recognize the file of a dead run.
func (s *story) beating() string {
	return "This file is written again at least every " + took(max(s.pace, beat)) + " while the apply lives. When it is older than that, the apply was cut off: " +
		"run terraform apply again, it continues where the cluster is."
}

// headline returns the state of the run as a style, one line, and another sentence.
func (s *story) headline() (class, headline, lead string) {
	switch {
	case s.ending == nil && !s.started:
		return "running", "About to begin", "The cluster was looked at, and the lease is being waited for. Nothing was touched so far. " + s.beating()
	case s.ending == nil:
		return "running", "Upgrading to " + goal(s.target), s.beating()
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

// words returns the outcome as people say it.
func (o Outcome) words() string {
	if o == Lost {
		return "Taken over by another run"
	}

	return strings.ToUpper(string(o[:1])) + string(o[1:])
}

// goal names the target versions.
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
			note := "nodes at the target"
			if half.progress.Lagging > 0 {
				note += ", before kube-proxy"
			}

			tiles = append(tiles, tile{Name: half.name, Value: fmt.Sprintf("%d / %d", half.progress.Done, half.progress.Total), Note: note})
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

// failedNodes returns the nodes at which the run failed.
func (s *story) failedNodes() []string {
	if s.ending == nil || s.ending.Failure == nil {
		return nil
	}

	return s.ending.Failure.Nodes
}

// failedStep returns the step in which the last failed upgrade of the node ended.
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

// busy returns the nodes with a running upgrade.
func (s *story) busy() []string {
	var names []string

	for _, name := range s.order {
		if slices.ContainsFunc(s.lanes[name].upgrades, func(one *upgrade) bool { return one.state == upgradeRunning }) {
			names = append(names, nodeName(name))
		}
	}

	return names
}

// short lists a few names and counts the rest.
func short(names []string) string {
	const most = 3

	if len(names) <= most {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:most-1], ", "), len(names)-most+1)
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

// upgrades returns the plan as it was made before anything was touched.
func (s *story) upgrades() []upgradeRow {
	if s.outline == nil {
		return nil
	}

	rows := make([]upgradeRow, 0, len(s.outline.Upgrades))

	for index, one := range s.outline.Upgrades {
		row := upgradeRow{
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
			// The text of a finding already names its node.
			Text: strings.TrimPrefix(one.text, one.node+": "), Warning: one.warning,
		})
	}

	return rows
}

var (
	//go:embed page.css
	style string
	//go:embed page.html
	markup string
)

// layout returns the template of the page. It escapes everything that is inserted except for the style sheet,
// which is part of this package.
func layout() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(style) }, //nolint:gosec // embedded
	}).Parse(markup))
}

const (
	// generator names this provider in reports.
	generator = "terraform-provider-talosupgrade"
	// signature is in the head of every report and identifies it as one.
	signature = `<meta name="generator" content="` + generator + ` `
	// maxHead is how far into a file the signature is searched for, in bytes.
	maxHead = 4 << 10

	directoryMode = 0o755
	// A report contains no secrets, and whoever runs a pipeline must be able to keep it. The umask still applies.
	fileMode = 0o644
)

// ErrForeign is wrapped if the path is that of a file that is not a report.
var ErrForeign = errors.New("it is there already and is no report of this provider")

// Check returns the place of a report that is written to the path, as [Find] does, or an error if none can be
// written. It creates missing directories.
func Check(path string) (string, error) {
	place, err := Find(path)
	if err != nil {
		return "", err
	}

	if err := os.MkdirAll(filepath.Dir(place), directoryMode); err != nil {
		return "", refused(place, err)
	}

	// File modes alone do not show whether the directory is writable.
	probe, err := begin(place)
	if err != nil {
		return "", refused(place, err)
	}

	return place, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Find returns the place of a report that is written to the path: an absolute path, with symbolic links resolved
// if the file exists. It writes nothing. An error names the path if a directory or a device is in its place, and
// wraps [ErrForeign] if another file would be overwritten.
func Find(path string) (string, error) {
	place, err := filepath.Abs(path)
	if err != nil {
		return "", refused(path, err)
	}

	if _, err := os.Lstat(place); err == nil {
		resolved, err := filepath.EvalSymlinks(place)
		if err != nil {
			return "", refused(place, err)
		}

		place = resolved
	}

	if err := ours(place); err != nil {
		return "", refused(place, err)
	}

	return place, nil
}

// Probe returns an error if no file can be written to the place, as returned by [Find]. It creates a file in the
// same directory, or in the nearest one that exists, and removes it.
func Probe(place string) error {
	directory := filepath.Dir(place)

	for {
		if _, err := os.Stat(directory); !errors.Is(err, os.ErrNotExist) || directory == filepath.Dir(directory) {
			break
		}

		directory = filepath.Dir(directory)
	}

	probe, err := os.CreateTemp(directory, ".talosupgrade-report-*")
	if err != nil {
		return refused(place, err)
	}

	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// ours returns an error if the path holds something that must not be overwritten.
func ours(path string) error {
	info, err := os.Stat(path)

	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return errors.New("it is a device, a pipe or a socket, and no file")
	}

	file, err := os.Open(path)
	if err != nil {
		return err
	}

	head, err := io.ReadAll(io.LimitReader(file, maxHead))
	err = errors.Join(err, file.Close())

	switch {
	case err != nil:
		return err
	case len(head) > 0 && !bytes.Contains(head, []byte(signature)):
		return ErrForeign
	default:
		return nil
	}
}

// partialOf returns the path of the unfinished file. If a run was killed, the next one removes its unfinished
// file.
func partialOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".partial")
}

// begin creates the unfinished file anew: what is in its place may be a link that somebody else put there.
func begin(path string) (*os.File, error) {
	if err := os.Remove(partialOf(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	return os.OpenFile(partialOf(path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
}

// replace replaces the file with the content, completely or not at all. An existing file keeps its mode.
func replace(path string, content []byte) error {
	partial, err := begin(path)
	if err != nil {
		return refused(path, err)
	}

	_, err = partial.Write(content)

	if info, missing := os.Stat(path); err == nil && missing == nil {
		err = partial.Chmod(info.Mode().Perm())
	}

	err = errors.Join(err, partial.Close())
	if err == nil {
		err = os.Rename(partial.Name(), path)
	}

	if err != nil {
		// Whatever prevents the removal has already failed the write.
		_ = os.Remove(partial.Name())

		return refused(path, err)
	}

	return nil
}

// refused returns an error about the path of the report: users do not know the unfinished file.
func refused(path string, err error) error {
	var (
		about  *fs.PathError
		linked *os.LinkError
	)

	switch {
	case errors.As(err, &about):
		err = about.Err
	case errors.As(err, &linked):
		err = linked.Err
	}

	return fmt.Errorf("%s cannot be written: %w", path, err)
}

func exists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}

// moment formats a point in time for the page.
func moment(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// maxTicks bounds the marks on the time axis: a phone has room for no more.
const maxTicks = 5

// tickSteps are the distances between two marks.
var tickSteps = [...]time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}
