// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"
)

// syncTimeout bounds a call of Sync whose context has no end.
const syncTimeout = 10 * time.Second

// applyTimeout bounds how long etcd may still apply a write after the API server
// has given it up; applyPoll is how often that is looked at.
const applyTimeout, applyPoll = 250 * time.Millisecond, 5 * time.Millisecond

// markPath is what Sync asks for, markQuery the number it gives.
const markPath, markQuery = "/version", "mark"

// auditor reads the audit log of the API server as it is written, keeps a copy
// in a file, and turns it into history.
type auditor struct {
	// pipe is what the API server's standard output is copied to.
	pipe    *io.PipeWriter
	file    *os.File
	ledger  *ledger
	budgets *budgets
	reading sync.WaitGroup

	mutex sync.Mutex
	// client asks what became of a request whose answer does not tell; nil until
	// the API server serves.
	client *client
	marks  int64
	// open are the requests that arrived and are not answered yet.
	open map[string]bool
	// waiting are calls of Sync whose mark has not been read yet, settling
	// those that wait for requests which were open at their mark.
	waiting  map[int64]chan struct{}
	settling []*settling
}

// settling is closed when the last of its requests is done.
type settling struct {
	open map[string]bool
	done chan struct{}
}

// newAuditor writes what it reads to the path as well.
func newAuditor(path string, ledger *ledger) (*auditor, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}

	reader, writer := io.Pipe()
	a := &auditor{
		pipe: writer, file: file, budgets: ledger.budgets, ledger: ledger,
		open:    map[string]bool{},
		waiting: map[int64]chan struct{}{},
	}

	ledger.became = a.became
	a.reading.Go(func() { a.read(reader) })

	return a, nil
}

// Write takes what the API server prints.
func (a *auditor) Write(text []byte) (int, error) { return a.pipe.Write(text) }

// close ends the reader; the API server must have ended before.
func (a *auditor) close() error {
	// Closing a pipe's writer does not fail.
	_ = a.pipe.Close()

	a.reading.Wait()

	if err := a.file.Close(); err != nil {
		return fmt.Errorf("closing the audit log: %w", err)
	}

	return nil
}

// read must never wait for a request that the API server logs: that waits for it.
func (a *auditor) read(pipe io.Reader) {
	lines := bufio.NewReaderSize(pipe, 64<<10)

	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			a.line(line)
		}

		if err != nil {
			return
		}
	}
}

func (a *auditor) line(line []byte) {
	var event auditEvent

	// The API server's own messages go to the standard error; anything else
	// that is no event is nothing we can use.
	if json.Unmarshal(line, &event) != nil || event.AuditID == "" {
		return
	}

	if mark, ok := event.mark(); ok {
		a.marked(mark)

		return
	}

	// The copy is for people; the history is what counts.
	_, _ = a.file.Write(line)

	if event.Stage == stageReceived {
		a.received(event.AuditID)

		return
	}

	a.ledger.take(event)
	a.completed(event.AuditID)
}

// asks has requests looked into whose answer does not tell what became of them.
func (a *auditor) asks(client *client) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	a.client = client
}

// became is a request that failed as it would be logged had its client waited for
// the answer; ok is false where it did not take effect. The API server logs a write
// whose client went away meanwhile as failed (504) even if it took effect, and only
// the object tells that, before its next change.
func (a *auditor) became(event auditEvent) (settled auditEvent, ok bool) {
	a.mutex.Lock()
	client := a.client
	a.mutex.Unlock()

	path := event.objectPath()
	if client == nil || path == "" || event.ResponseStatus.Code < http.StatusInternalServerError {
		return event, false
	}

	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()

	ticker := time.NewTicker(applyPoll)
	defer ticker.Stop()

	for {
		object, found, err := client.raw(ctx, path)
		if err == nil && event.shownBy(object, found) {
			event.ResponseObject, event.ResponseStatus.Code = object, http.StatusOK

			return event, true
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return event, false
		}
	}
}

func (a *auditor) received(id string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	a.open[id] = true
}

func (a *auditor) completed(id string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	delete(a.open, id)

	kept := a.settling[:0]

	for _, waiter := range a.settling {
		delete(waiter.open, id)

		if len(waiter.open) == 0 {
			close(waiter.done)
		} else {
			kept = append(kept, waiter)
		}
	}

	a.settling = kept
}

// marked lets a call of Sync go once everything that was open before its mark
// is done.
func (a *auditor) marked(mark int64) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	done, ok := a.waiting[mark]
	if !ok {
		return
	}

	delete(a.waiting, mark)

	if len(a.open) == 0 {
		close(done)

		return
	}

	a.settling = append(a.settling, &settling{open: maps.Clone(a.open), done: done})
}

// sync returns when every request that was answered before the call has become
// history.
func (a *auditor) sync(ctx context.Context, client *client) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	done := make(chan struct{})

	a.mutex.Lock()
	a.marks++
	mark := a.marks
	a.waiting[mark] = done
	a.mutex.Unlock()

	if err := leaveMark(ctx, client, mark); err != nil {
		a.mutex.Lock()
		delete(a.waiting, mark)
		a.mutex.Unlock()

		return fmt.Errorf("marking the audit log: %w", err)
	}

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the audit log: %w", ctx.Err())
	}
}

// leaveMark makes a request that the audit log shows and nothing else does.
func leaveMark(ctx context.Context, client *client, mark int64) error {
	query := url.Values{markQuery: {strconv.FormatInt(mark, 10)}}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, client.host+markPath+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}

	response, err := client.http.Do(request)
	if err != nil {
		return err
	}

	_, err = io.Copy(io.Discard, response.Body)

	return errors.Join(err, response.Body.Close())
}

// Follow has the history tell of what was answered on another cluster before it tells
// that the lease was taken or given back here; sync waits for that.
func (s *Server) Follow(sync func(context.Context) error) {
	ledger := s.auditor.ledger

	ledger.mutex.Lock()
	defer ledger.mutex.Unlock()

	ledger.elsewhere = func() {
		// One that has ended has nothing more to tell.
		_ = sync(context.Background())
	}
}

// Sync returns when every Kubernetes request that was answered before the call
// is in the history, so that what the caller records next comes after it.
func (s *Server) Sync(ctx context.Context) error {
	return s.auditor.sync(ctx, s.simulator)
}
