// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	// mostRemembered is how many changes of a resource are at least kept for watches.
	mostRemembered = 2048
	// glance is how long a change of a node that the model does not report may stay unnoticed, shortGlance that of
	// a pod.
	glance      = 5*time.Second + 3*time.Millisecond
	shortGlance = 499 * time.Millisecond
	// bookmarkEvery is how often a watch that wants bookmarks gets one.
	bookmarkEvery = time.Minute + 7*time.Millisecond
	// longestWatch is how long a watch lasts that does not set a timeout.
	longestWatch = 30 * time.Minute
)

// change is a change of an object: before is nil if it was created, now if it was deleted.
type change struct {
	before, now object
	version     int64
}

// changes are the changes of the objects of a resource, sorted by version. The lock of the server guards them.
type changes struct {
	list []change
	// forgotten is the newest version that watches cannot get any more.
	forgotten int64
	// more is closed as soon as there is another change; nil while nothing waits for one.
	more chan struct{}
}

func (c *changes) add(one change) {
	// They are forgotten many at a time, because the rest is copied.
	if c.list = append(c.list, one); len(c.list) >= 2*mostRemembered {
		c.forgotten = c.list[mostRemembered-1].version
		c.list = slices.Clone(c.list[mostRemembered:])
	}

	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

// since returns the changes after a version, and a channel that is closed at the next one.
func (c *changes) since(version int64) (list []change, more <-chan struct{}, err error) {
	if version < c.forgotten {
		return nil, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, c.forgotten+1))
	}

	at, _ := slices.BinarySearchFunc(c.list, version+1, func(one change, version int64) int { return cmp.Compare(one.version, version) })

	if c.more == nil {
		c.more = make(chan struct{})
	}

	return slices.Clone(c.list[at:]), c.more, nil
}

// event returns the event of a watch that selects certain objects: an object that is not selected any more is
// deleted. The kind is empty if the change does not concern the watch.
func (c change) event(wanted selection) event {
	told := event{version: c.version}
	was, is := c.before != nil && wanted.matches(c.before), c.now != nil && wanted.matches(c.now)

	switch {
	case is && !was:
		told.kind, told.about = watch.Added, c.now
	case is:
		told.kind, told.about = watch.Modified, c.now
	case was:
		told.kind, told.about = watch.Deleted, c.before
	default:
		return told
	}

	told.about, _ = told.about.DeepCopyObject().(object)
	told.about.SetResourceVersion(strconv.FormatInt(c.version, 10))

	return told
}

// glance returns how often a watch checks for changes of the objects by time alone.
func (t *table) glance() time.Duration {
	if t.name == resourceNodes {
		return glance
	}

	return shortGlance
}

func number(version string) int64 {
	parsed, _ := strconv.ParseInt(version, 10, 64)

	return parsed
}

// stream is an open watch.
type stream struct {
	server *Server
	of     *table
	wanted selection
	who    actor
	write  func(kind watch.EventType, object runtime.Object) error
	// sent is the newest version that the client was sent.
	sent int64
}

// watch sends a client the changes of the objects of a resource until either of them ends it.
func (w *way) watch(out http.ResponseWriter, r *http.Request, asked *call, by *caller) {
	s := w.server

	open, ended, err := w.open(out, r, asked)
	if err != nil {
		s.encode(r, nil, refusal(err)).send(out)

		return
	}

	s.signal.Lock()
	broken := s.broken
	s.signal.Unlock()

	ctx, cancel := context.WithTimeout(r.Context(), ended)
	defer cancel()

	err = open.begin(asked)
	if err == nil {
		err = open.follow(ctx, broken, by, asked.query.Get("allowWatchBookmarks") == "true")
	}

	if err != nil {
		told, _ := refusal(err).object.(*metav1.Status)
		_ = open.write(watch.Error, told)
	}
}

func (w *way) open(out http.ResponseWriter, r *http.Request, asked *call) (*stream, time.Duration, error) {
	s := w.server

	of, wanted, typed, err := s.watched(asked)
	if err != nil {
		return nil, 0, err
	}

	if asked.query.Get("sendInitialEvents") != "" && w.options.Older {
		return nil, 0, invalid(of, "", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
	}

	seconds, err := strconv.Atoi(cmp.Or(asked.query.Get("timeoutSeconds"), "0"))
	if err != nil || seconds < 0 {
		return nil, 0, apierrors.NewBadRequest("timeoutSeconds is no number of seconds")
	}

	write, err := s.stream(out, r, of, typed)

	return &stream{server: s, of: of, wanted: wanted, who: asked.who, write: write}, cmp.Or(time.Duration(seconds)*time.Second, longestWatch), err
}

// watched returns what a watch is about, and whether that has a Go type.
func (s *Server) watched(asked *call) (of *table, wanted selection, typed bool, err error) {
	s.lock()
	defer s.mu.Unlock()

	if of, err = s.served(asked); err != nil {
		return nil, selection{}, false, err
	}

	wanted, err = of.selection(asked.Namespace, asked.query)

	return of, wanted, of.custom == nil, err
}

// begin sends the existing objects, unless the client has a version of them.
func (w *stream) begin(asked *call) error {
	version := asked.query.Get("resourceVersion")
	initial := asked.query.Get("sendInitialEvents") == "true"

	if version != "" && version != "0" && !initial {
		w.sent = number(version)

		return nil
	}

	standing, newest := w.server.standing(w.of, w.wanted)
	for _, one := range standing {
		if err := w.write(watch.Added, one); err != nil {
			return err
		}
	}

	w.sent = newest

	if !initial {
		return nil
	}

	w.tell("cache", newest)

	return w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// standing returns copies of the existing objects, and their version.
func (s *Server) standing(of *table, wanted selection) (standing []object, newest int64) {
	s.lock()
	defer s.mu.Unlock()

	for _, one := range s.chosen(of, wanted) {
		copied, _ := one.DeepCopyObject().(object)
		standing = append(standing, copied)
	}

	return standing, int64(s.version)
}

// tell records that the client reads the nodes.
func (w *stream) tell(via string, version int64, more ...string) {
	if w.of.name != resourceNodes || w.who.by != byClient || w.server.beside {
		return
	}

	detail := map[string]string{"what": "nodes", "client": w.who.client, "via": via, "version": strconv.FormatInt(version, 10)}
	for i := 0; i+1 < len(more); i += 2 {
		detail[more[i]] = more[i+1]
	}

	w.server.record("", history.KindRead, detail)
}

func (w *stream) bookmark(annotations map[string]string) error {
	mark := w.of.empty()
	mark.SetResourceVersion(strconv.FormatInt(w.sent, 10))
	mark.SetAnnotations(annotations)

	return w.write(watch.Bookmark, mark)
}

// follow sends changes until the watch ends.
func (w *stream) follow(ctx context.Context, broken <-chan struct{}, by *caller, bookmarks bool) error {
	look, mark := time.NewTicker(w.server.real(w.of.glance())), time.NewTicker(bookmarkEvery)
	defer look.Stop()
	defer mark.Stop()

	for {
		noticed, still := w.server.noticed()

		if !w.server.up(by) {
			by.breakOff()
		}

		var more <-chan struct{}

		// Nothing is sent while the watches are stalled.
		if !still {
			var err error
			if more, err = w.send(); err != nil {
				return err
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-broken:
			return nil
		case <-w.server.life.Done():
			return nil
		case <-more:
		case <-look.C:
		case <-noticed:
		case <-mark.C:
			if bookmarks {
				if err := w.bookmark(nil); err != nil {
					return err
				}
			}
		}
	}
}

// send sends the client the changes, and records what it sent.
func (w *stream) send() (<-chan struct{}, error) {
	list, more, err := w.server.changed(w.of, w.wanted, w.sent)
	if err != nil {
		return nil, err
	}

	for _, one := range list {
		if one.kind != "" {
			// The state is a moment old, and the client may act on it at once.
			w.tell("watch", one.version, "object", one.about.GetName())

			if err := w.write(one.kind, one.about); err != nil {
				return nil, err
			}
		}

		w.sent = one.version
	}

	return more, nil
}

// event is an event of a watch; the kind is empty for none.
type event struct {
	kind    watch.EventType
	about   object
	version int64
}

// changed returns the events of a watch after a version, including changes that were not noticed yet. The objects
// are copies: encoding one, as every request does under the lock, writes into it.
func (s *Server) changed(of *table, wanted selection, version int64) (events []event, more <-chan struct{}, err error) {
	s.lock()
	defer s.mu.Unlock()

	s.refresh(of)

	list, more, err := of.log.since(version)
	if err != nil {
		return nil, nil, err
	}

	for _, one := range list {
		events = append(events, one.event(wanted))
	}

	return events, more, nil
}

// noticed returns a channel that is closed when a node may have changed; still is true while the watches are
// stalled.
func (s *Server) noticed() (change <-chan struct{}, still bool) {
	s.signal.Lock()
	defer s.signal.Unlock()

	return s.change, s.stalled
}

// StallWatches stalls all watches, or lets them go on: only bookmarks are sent, without an error.
func (s *Server) StallWatches(on bool) {
	s.signal.Lock()
	defer s.signal.Unlock()

	s.stalled = on
	s.wake()
}

// BreakWatches ends all watches; clients must not rely on an API server that keeps them.
func (s *Server) BreakWatches() {
	s.signal.Lock()
	defer s.signal.Unlock()

	close(s.broken)
	s.broken = make(chan struct{})
}

// ForgetVersions makes all versions so far too old to begin a watch with: 410 Gone.
func (s *Server) ForgetVersions() {
	s.lock()
	defer s.mu.Unlock()

	s.next()

	for _, of := range s.tables {
		of.log.list, of.log.forgotten = nil, int64(s.version)
	}
}
