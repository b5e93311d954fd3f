// SPDX-License-Identifier: MPL-2.0

package report

import (
	"bytes"
	"context"
	"fmt"
	"html/template"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// beat is how often the file of a run that goes on is written at the least.
	beat = 10 * time.Second
	// pauseLeast is how long it stays as it is, whatever happens.
	pauseLeast = time.Second
	// refresh is how often a browser looks again meanwhile.
	refresh = 10 * time.Second
	// effort is how many times longer than drawing and writing it takes the file
	// then stays as it is: that of a thousand nodes must not keep a processor busy.
	effort = 20
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

		pause := time.NewTimer(max(pauseLeast, effort*time.Since(began)))

		select {
		case <-r.done:
			pause.Stop()

			return
		case <-pause.C:
		}

		next := time.NewTimer(beat)

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

// write draws the story as it stands.
func (r *Report) write(now time.Time) error {
	r.mu.Lock()
	shown := r.story.view(r.options, now)
	r.mu.Unlock()

	var content bytes.Buffer

	if err := r.layout.Execute(&content, shown); err != nil {
		return err
	}

	return replace(r.options.Path, []byte(cluster.Escaped(content.String())))
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
	return fmt.Errorf("%s was not written in time: %w", r.options.Path, context.Cause(ctx))
}
