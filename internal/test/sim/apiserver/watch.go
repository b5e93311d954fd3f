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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

const (
	// mostRemembered is of how many changes of nodes watches can still be told.
	mostRemembered = 2048
	// glance is how long a change may stay unnoticed that the model does not tell of.
	glance = 5*time.Second + 3*time.Millisecond
	// bookmarkEvery is how often a watch that wants bookmarks gets one.
	bookmarkEvery = time.Minute + 7*time.Millisecond
	// longestWatch is when a watch ends that does not say how long it is to last.
	longestWatch = 30 * time.Minute
)

// change is an event of a Node object.
type change struct {
	kind    watch.EventType
	node    *corev1.Node
	version int64
}

// changes are those of the Node objects, in the order of their versions; with the lock
// of the server.
type changes struct {
	list []change
	// forgotten is the newest version of which watches are not told any more.
	forgotten int64
	// more is closed as soon as there is another change.
	more chan struct{}
}

func newChanges() *changes { return &changes{more: make(chan struct{})} }

func (c *changes) add(before, now object) {
	kind := watch.Modified
	if before == nil {
		kind = watch.Added
	}

	c.append(kind, now)
}

func (c *changes) remove(before object, version string) {
	gone, _ := before.DeepCopyObject().(object)
	gone.SetResourceVersion(version)
	c.append(watch.Deleted, gone)
}

func (c *changes) append(kind watch.EventType, now object) {
	node, ok := now.(*corev1.Node)
	if !ok {
		return
	}

	c.list = append(c.list, change{kind, node, number(node.ResourceVersion)})

	if over := len(c.list) - mostRemembered; over > 0 {
		c.forgotten = c.list[over-1].version
		c.list = slices.Clone(c.list[over:])
	}

	close(c.more)
	c.more = make(chan struct{})
}

// since are the changes after a version, as copies, and a channel that is closed at the
// next one.
func (c *changes) since(version int64) (list []change, more <-chan struct{}, err error) {
	if version < c.forgotten {
		return nil, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, c.forgotten+1))
	}

	at, _ := slices.BinarySearchFunc(c.list, version+1, func(one change, version int64) int { return cmp.Compare(one.version, version) })

	list = slices.Clone(c.list[at:])
	for i := range list {
		list[i].node = list[i].node.DeepCopy()
	}

	return list, c.more, nil
}

func number(version string) int64 {
	parsed, _ := strconv.ParseInt(version, 10, 64)

	return parsed
}

// stream is a watch of Node objects that is open.
type stream struct {
	server *Server
	who    actor
	write  func(kind watch.EventType, object runtime.Object) error
	// sent is the newest version of which the client was told.
	sent int64
}

// watch tells a client of the Node objects until either of them ends it.
func (w *way) watch(out http.ResponseWriter, r *http.Request, asked *call, by *caller) {
	s := w.server

	open, ended, err := w.open(out, r, asked)
	if err != nil {
		s.encode(r, refusal(err)).send(out)

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

	if asked.Resource != resourceNodes || asked.target.version != corev1.SchemeGroupVersion {
		return nil, 0, apierrors.NewMethodNotSupported(asked.group(), verbWatch)
	}

	if asked.query.Get("sendInitialEvents") != "" && w.options.Older {
		return nil, 0, invalid(&table{kind: "Node"}, "", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
	}

	seconds, err := strconv.Atoi(cmp.Or(asked.query.Get("timeoutSeconds"), "0"))
	if err != nil || seconds < 0 {
		return nil, 0, apierrors.NewBadRequest("timeoutSeconds is no number of seconds")
	}

	write, err := s.codec.stream(accepted(r.Header), corev1.SchemeGroupVersion, out)

	return &stream{server: s, who: asked.who, write: write}, cmp.Or(time.Duration(seconds)*time.Second, longestWatch), err
}

// begin sends what there is, unless the client knows a version of that.
func (w *stream) begin(asked *call) error {
	version := asked.query.Get("resourceVersion")
	initial := asked.query.Get("sendInitialEvents") == "true"

	if version != "" && version != "0" && !initial {
		w.sent = number(version)

		return nil
	}

	nodes, newest := w.server.nodesStanding()
	for _, node := range nodes {
		if err := w.write(watch.Added, node); err != nil {
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

// nodesStanding are copies of the nodes as they are, and the version of that.
func (s *Server) nodesStanding() (nodes []*corev1.Node, newest int64) {
	s.lock()
	defer s.mu.Unlock()

	of := s.core(resourceNodes)
	s.refresh(of)

	for _, one := range of.objects {
		if node, ok := one.(*corev1.Node); ok {
			nodes = append(nodes, node.DeepCopy())
		}
	}

	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })

	return nodes, int64(s.version)
}

// tell adds to the history that the client looks at the nodes.
func (w *stream) tell(via string, version int64, more ...string) {
	if w.who.by != byClient || w.server.beside {
		return
	}

	detail := map[string]string{"what": "nodes", "client": w.who.client, "via": via, "version": strconv.FormatInt(version, 10)}
	for i := 0; i+1 < len(more); i += 2 {
		detail[more[i]] = more[i+1]
	}

	w.server.record("", history.KindRead, detail)
}

func (w *stream) bookmark(annotations map[string]string) error {
	return w.write(watch.Bookmark, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.FormatInt(w.sent, 10), Annotations: annotations,
	}})
}

// follow sends changes until the watch ends.
func (w *stream) follow(ctx context.Context, broken <-chan struct{}, by *caller, bookmarks bool) error {
	look, mark := time.NewTicker(glance), time.NewTicker(bookmarkEvery)
	defer look.Stop()
	defer mark.Stop()

	for {
		noticed, still := w.server.noticed()

		if !w.server.up(by) {
			by.breakOff()
		}

		var more <-chan struct{}

		// Nothing is sent while the watches stand still.
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

// send tells the client of what has changed, and the history of what the client was
// told.
func (w *stream) send() (<-chan struct{}, error) {
	list, more, err := w.server.changed(w.sent)
	if err != nil {
		return nil, err
	}

	for _, one := range list {
		// It is what there was a moment ago, and the client may act on it at once.
		w.tell("watch", one.version, "object", one.node.Name)

		if err := w.write(one.kind, one.node); err != nil {
			return nil, err
		}

		w.sent = one.version
	}

	return more, nil
}

// changed are the changes after a version, those among them that nobody has noticed yet.
func (s *Server) changed(version int64) ([]change, <-chan struct{}, error) {
	s.lock()
	defer s.mu.Unlock()

	s.refresh(s.core(resourceNodes))

	return s.nodeLog.since(version)
}

// noticed is closed when a node may have changed; still tells that the watches stand
// still.
func (s *Server) noticed() (change <-chan struct{}, still bool) {
	s.signal.Lock()
	defer s.signal.Unlock()

	return s.change, s.stalled
}

// StallWatches has all watches stand still, or go on: nothing but bookmarks comes, and
// nobody is told why.
func (s *Server) StallWatches(on bool) {
	s.signal.Lock()
	defer s.signal.Unlock()

	s.stalled = on
	s.wake()
}

// BreakWatches ends all watches, as an API server does that nobody should rely on.
func (s *Server) BreakWatches() {
	s.signal.Lock()
	defer s.signal.Unlock()

	close(s.broken)
	s.broken = make(chan struct{})
}

// ForgetVersions has all versions so far be too old to begin a watch with: 410 Gone.
func (s *Server) ForgetVersions() {
	s.lock()
	defer s.mu.Unlock()

	s.nodeLog.list, s.nodeLog.forgotten = nil, number(s.next())
}
