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

// changes are those of the Node objects, in the order of their versions. They go
// with the turn.
type changes struct {
	list []change
	// forgotten is the newest version of which watches are not told any more.
	forgotten, newest int64
	standing          map[string]*corev1.Node
	// more is closed as soon as there is another change.
	more chan struct{}
}

func newChanges() *changes {
	return &changes{standing: map[string]*corev1.Node{}, more: make(chan struct{})}
}

// take compares the Node objects with those that stood before.
func (c *changes) take(objects []object, next func() string) error {
	var found []change

	present := make(map[string]*corev1.Node, len(objects))

	for _, one := range objects {
		node, ok := one.(*corev1.Node)
		if !ok {
			return apierrors.NewInternalError(fmt.Errorf("%T is no node", one))
		}

		kind, before := watch.Modified, c.standing[node.Name]

		switch {
		case before == nil || before.UID != node.UID:
			kind = watch.Added
		case before.ResourceVersion == node.ResourceVersion:
			present[node.Name] = before

			continue
		}

		// Others change what they got.
		node = node.DeepCopy()
		present[node.Name] = node
		found = append(found, change{kind, node, number(node.ResourceVersion)})
	}

	for name, before := range c.standing {
		if now := present[name]; now == nil || now.UID != before.UID {
			gone := before.DeepCopy()
			gone.ResourceVersion = next()
			found = append(found, change{watch.Deleted, gone, number(gone.ResourceVersion)})
		}
	}

	c.standing = present

	if len(found) == 0 {
		return nil
	}

	slices.SortFunc(found, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	c.list = append(c.list, found...)
	c.newest = found[len(found)-1].version

	if over := len(c.list) - mostRemembered; over > 0 {
		c.forgotten = c.list[over-1].version
		c.list = slices.Clone(c.list[over:])
	}

	close(c.more)
	c.more = make(chan struct{})

	return nil
}

// since are the changes after a version, and a channel that is closed at the next one.
func (c *changes) since(version int64) (list []change, more <-chan struct{}, err error) {
	if version < c.forgotten {
		return nil, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, c.forgotten+1))
	}

	at, _ := slices.BinarySearchFunc(c.list, version+1, func(one change, version int64) int { return cmp.Compare(one.version, version) })

	return slices.Clone(c.list[at:]), c.more, nil
}

func number(version string) int64 {
	parsed, _ := strconv.ParseInt(version, 10, 64)

	return parsed
}

// stream is a watch of Node objects that is open.
type stream struct {
	server *Server
	client string
	write  func(kind watch.EventType, object runtime.Object) error
	// sent is the newest version of which the client was told.
	sent int64
}

// watch tells a client of the Node objects until either of them ends it.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, asked *call) {
	open, ended, err := s.openStream(w, r, asked)
	if err != nil {
		s.reply(w, r, refusal(err))

		return
	}

	s.mu.Lock()
	broken := s.broken
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(r.Context(), ended)
	defer cancel()

	err = open.begin(asked)
	if err == nil {
		err = open.follow(ctx, broken, asked.query.Get("allowWatchBookmarks") == "true")
	}

	if err != nil {
		told, _ := refusal(err).object.(*metav1.Status)
		_ = open.write(watch.Error, told)
	}
}

func (s *Server) openStream(w http.ResponseWriter, r *http.Request, asked *call) (*stream, time.Duration, error) {
	of := s.find(asked.target)
	if of == nil || of.name != resourceNodes {
		return nil, 0, apierrors.NewMethodNotSupported(asked.group(), "watch")
	}

	if asked.query.Get("sendInitialEvents") != "" && s.options.Older {
		return nil, 0, invalid(of, "", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
	}

	seconds, err := strconv.Atoi(cmp.Or(asked.query.Get("timeoutSeconds"), "0"))
	if err != nil || seconds < 0 {
		return nil, 0, apierrors.NewBadRequest("timeoutSeconds is no number of seconds")
	}

	write, err := s.codec.stream(accepted(r.Header), of.version, w)

	return &stream{server: s, client: asked.Client, write: write}, cmp.Or(time.Duration(seconds)*time.Second, longestWatch), err
}

// begin sends what there is, unless the client knows a version of that.
func (w *stream) begin(asked *call) error {
	version := asked.query.Get("resourceVersion")
	initial := asked.query.Get("sendInitialEvents") == "true"

	if version != "" && version != "0" && !initial {
		w.sent = number(version)

		return nil
	}

	nodes, newest, err := w.server.nodesStanding()
	if err != nil {
		return err
	}

	for _, node := range nodes {
		if err := w.write(watch.Added, node); err != nil {
			return err
		}
	}

	w.sent = newest

	if initial {
		if err := w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}); err != nil {
			return err
		}

		w.server.cluster.World().Record("", history.KindRead, map[string]string{
			"what": "nodes", "client": w.client, "via": "cache", "version": strconv.FormatInt(newest, 10),
		})
	}

	return nil
}

// nodesStanding are the nodes as they are, and the version of that.
func (s *Server) nodesStanding() ([]*corev1.Node, int64, error) {
	s.turn.Lock()
	defer s.turn.Unlock()

	if _, err := s.stamped(s.find(target{version: corev1.SchemeGroupVersion, resource: resourceNodes})); err != nil {
		return nil, 0, err
	}

	var nodes []*corev1.Node
	for _, node := range s.nodeChanges.standing {
		nodes = append(nodes, node)
	}

	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })

	return nodes, s.nodeChanges.newest, nil
}

func (w *stream) bookmark(annotations map[string]string) error {
	return w.write(watch.Bookmark, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.FormatInt(w.sent, 10), Annotations: annotations,
	}})
}

// follow sends changes until the watch ends.
func (w *stream) follow(ctx context.Context, broken <-chan struct{}, bookmarks bool) error {
	look, mark := time.NewTicker(glance), time.NewTicker(bookmarkEvery)
	defer look.Stop()
	defer mark.Stop()

	for {
		noticed := w.server.noticed()

		more, err := w.send()
		if err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return nil
		case <-broken:
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
// told. Nothing is sent while the watches stand still.
func (w *stream) send() (<-chan struct{}, error) {
	if w.server.still() {
		return nil, nil
	}

	list, more, err := w.server.changed(w.sent)
	if err != nil {
		return nil, err
	}

	for _, one := range list {
		if err := w.write(one.kind, one.node); err != nil {
			return nil, err
		}

		w.sent = one.version
		w.server.cluster.World().Record("", history.KindRead, map[string]string{
			"what": "nodes", "client": w.client, "via": "watch", "object": one.node.Name, "version": strconv.FormatInt(one.version, 10),
		})
	}

	return more, nil
}

// changed are the changes after a version, those among them that nobody has noticed yet.
func (s *Server) changed(version int64) ([]change, <-chan struct{}, error) {
	s.turn.Lock()
	defer s.turn.Unlock()

	if _, err := s.stamped(s.find(target{version: corev1.SchemeGroupVersion, resource: resourceNodes})); err != nil {
		return nil, nil, err
	}

	return s.nodeChanges.since(version)
}

// notice has the watches look at a node that the model tells of.
func (s *Server) notice(string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	close(s.change)
	s.change = make(chan struct{})
}

func (s *Server) noticed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.change
}

func (s *Server) still() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.stalled
}

// StallWatches has all watches stand still, or go on: nothing but bookmarks comes, and
// nobody is told why.
func (s *Server) StallWatches(on bool) {
	s.mu.Lock()
	s.stalled = on
	s.mu.Unlock()

	s.notice("")
}

// BreakWatches ends all watches, as an API server does that nobody should rely on.
func (s *Server) BreakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()

	close(s.broken)
	s.broken = make(chan struct{})
}

// ForgetVersions has all versions so far be too old to begin a watch with: 410 Gone.
func (s *Server) ForgetVersions() {
	s.turn.Lock()
	defer s.turn.Unlock()

	s.nodeChanges.list, s.nodeChanges.forgotten = nil, number(s.cluster.NextVersion())
	s.nodeChanges.newest = s.nodeChanges.forgotten
}
