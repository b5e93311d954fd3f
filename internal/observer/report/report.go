// SPDX-License-Identifier: MPL-2.0

// Package report draws a run as one HTML file: what was planned, what every node
// did and for how long, what it ran before and runs now and, where the run stopped,
// what was seen and what to do. It observes the engine and never holds it up.
//
// The file needs nothing but itself, not even scripts, and forbids the browser to
// load anything. It holds what the errors, the warnings and the plan of the provider
// hold, and therefore no secrets.
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
	// beat is how often the file of a run that goes on is written at the least.
	beat = 10 * time.Second
	// pauseLeast is how long it stays as it is, whatever happens.
	pauseLeast = time.Second
	// refresh is how often a browser looks again meanwhile.
	refresh = 10 * time.Second
	// effort is how many times longer than drawing and writing it takes the file
	// then stays as it is: that of a thousand nodes must not keep a processor busy.
	effort = 100
)

// Options are what a [Report] is about.
type Options struct {
	// Path is that of the file. Directories that are missing are made.
	Path string
	// Cluster is what people call the cluster, Run what names the run in lease and
	// journal.
	Cluster, Run string
	// Version is the provider's.
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

// New makes a report; it writes nothing.
func New(options Options) *Report {
	return &Report{
		options: options, layout: layout(), story: newStory(),
		wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Observe takes note of an event and returns at once. The file is written for the
// first time with [cluster.EventPlanned].
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

// keep writes the file whenever there is something new, and now and then.
func (r *Report) keep() {
	defer close(r.ended)

	for {
		began := time.Now()
		// The last attempt, by Close, is the one that counts.
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

// paceOf is how often the file is written at the least where it rested for so long: twice
// that where it is more than the beat, because the page grows.
func paceOf(rest time.Duration) time.Duration {
	if rest <= beat {
		return beat
	}

	return (2*rest + time.Minute).Truncate(time.Minute)
}

// write draws the story as it stands.
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

// Close writes the file for the last time. A run in which nothing was to be done
// leaves the file of an earlier run as it is. The error says why the file could not
// be written; it does not concern the upgrade itself.
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
	// A disk behind a network may hang for ever.
	go func() { written <- r.write(now) }()

	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return r.late(ctx)
	}
}

// late is the error of a disk that does not answer.
func (r *Report) late(ctx context.Context) error {
	return fmt.Errorf("%s was not written in time: %w", r.options.Path, cluster.Ended(ctx))
}

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
	// Versions and Upgrades are folded away where they are long.
	Versions []versionRow
	Upgrades []upgradeRow
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

type upgradeRow struct{ Number, Node, Part, From, To, Image, Estimate, Note string }

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

// beating tells a live run from a dead one.
func (s *story) beating() string {
	return "This file is written again at least every " + took(max(s.pace, beat)) + " while the apply lives. When it is older than that, the apply was cut off: " +
		"run terraform apply again, it continues where the cluster is."
}

// headline says how the run stands: the style, one line, and a sentence more.
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

// failedStep says in which step the last upgrade of the node ended.
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

// busy are the nodes with an upgrade that is going on.
func (s *story) busy() []string {
	var names []string

	for _, name := range s.order {
		if slices.ContainsFunc(s.lanes[name].upgrades, func(one *upgrade) bool { return one.state == upgradeRunning }) {
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

// upgrades is the plan as it was made before anything was touched.
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
			// A finding names its node itself.
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

// layout is the page. Everything that is put into it is escaped, but for the style
// sheet, which is a part of this package.
func layout() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(style) }, //nolint:gosec // embedded
	}).Parse(markup))
}

const (
	// generator is the program that draws reports.
	generator = "terraform-provider-talosupgrade"
	// signature is in the head of every report, by which it is known again.
	signature = `<meta name="generator" content="` + generator + ` `
	// maxHead is how far into a file it is looked for.
	maxHead = 4 << 10

	directoryMode = 0o755
	// A report holds nothing secret, and whoever runs a pipeline has to be able to
	// keep it. What the umask of the process forbids stays forbidden.
	fileMode = 0o644
)

// ErrForeign is wrapped when the path is that of a file that is no report.
var ErrForeign = errors.New("it is there already and is no report of this provider")

// Check tells whether a report can be written to the path, and where that is, as
// [Find] does. It makes the directories that are missing.
func Check(path string) (string, error) {
	place, err := Find(path)
	if err != nil {
		return "", err
	}

	if err := os.MkdirAll(filepath.Dir(place), directoryMode); err != nil {
		return "", refused(place, err)
	}

	// File modes alone do not tell.
	probe, err := begin(place)
	if err != nil {
		return "", refused(place, err)
	}

	return place, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Find tells where a report is that is written to the path: the place is absolute, and
// leads through no symbolic link. It writes nothing. The error names the path where a
// directory or a device is there, and wraps [ErrForeign] where somebody else's file
// would be lost.
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

// Probe tells whether the place, as [Find] gives it, takes a file: one is made beside it, or in the nearest directory
// that is there, and removed.
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

// ours refuses what must not be written over.
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

// partialOf is where the file lies that is not whole yet: one that a run left that
// was killed goes with the next.
func partialOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".partial")
}

// begin makes the file that is not whole yet, anew: what lies in its place may be a
// link that somebody else put there.
func begin(path string) (*os.File, error) {
	if err := os.Remove(partialOf(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	return os.OpenFile(partialOf(path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
}

// replace puts the content in the place of the file, whole or not at all. A file
// that is there keeps its mode.
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
		// What is in the way of its removal was in the way of it all.
		_ = os.Remove(partial.Name())

		return refused(path, err)
	}

	return nil
}

// refused is the error about the path itself: of what is not whole yet nobody knows.
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

// moment is a point in time as the page writes it.
func moment(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// maxTicks bounds the marks on the axis of time: a phone has room for so many.
const maxTicks = 5

// tickSteps are the distances between two marks.
var tickSteps = [...]time.Duration{
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}
