// SPDX-License-Identifier: MPL-2.0

package kubeapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// claimManager is the field manager of claims, so that [lastWriter] takes them neither for our cordons nor for
	// changes by somebody else.
	claimManager = "talosupgrade-claim"
	// claimTimeout is how long, on the real clock, the watch may take to deliver a claim.
	claimTimeout = 2 * time.Second
	// doubtTime is how long no claim is made after the watch did not deliver one in time.
	doubtTime = 30 * time.Second
	// watchSeconds is how long a watch lasts before it is opened again.
	watchSeconds = 421
	// The shortest and the longest pause between two attempts to follow the nodes.
	followAfter, followAtMost = 500 * time.Millisecond, time.Minute
	// acceptMetadata asks for nothing but the metadata of an object.
	acceptMetadata = runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
		runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
)

// FollowNodes implements [cluster.Kubernetes]. If the nodes are followed already, it does nothing.
func (c *Client) FollowNodes(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	f := &follower{
		client: c, ctx: ctx, run: rand.Text(), turn: make(chan struct{}, 1), more: make(chan struct{}),
	}

	if !c.follower.CompareAndSwap(nil, f) {
		cancel()

		return func() {}
	}

	f.work.Go(f.follow)

	return func() {
		c.follower.CompareAndSwap(f, nil)

		f.mu.Lock()
		f.stopped = true
		f.mu.Unlock()

		cancel()
		f.work.Wait()
	}
}

// NodesNow implements [cluster.Kubernetes].
func (c *Client) NodesNow(ctx context.Context, claim string) ([]cluster.KubeNode, error) {
	f := c.follower.Load()
	if f == nil || claim == "" {
		return c.Nodes(ctx)
	}

	shared := f.join(claim)

	select {
	case <-shared.done:
	case <-ctx.Done():
		return nil, explain(ctx, operation{what: listNodes}, true, cluster.Ended(ctx))
	}

	if shared.abandoned {
		return c.Nodes(ctx)
	}

	return shared.nodes, shared.err
}

// follower keeps the Node objects as a list and a watch deliver them. They may be old. So before they are used, a
// claim is written to one of the nodes: once it has been delivered, everything before it has been delivered, too.
type follower struct {
	client *Client
	ctx    context.Context //nolint:containedctx // It ends with the follower, whoever calls.
	work   sync.WaitGroup
	// run and count make each claim unique.
	run   string
	count int
	// turn lets only one look read the nodes at a time.
	turn chan struct{}

	mu      sync.Mutex
	stopped bool
	// next is the look that waits for its turn and that further callers may join.
	next *sharedLook
	// nodes are the nodes of the last list and of the events since, sorted by name. versions has the resource version
	// of each of them, and of those deleted since the list; listed is the resource version of the list.
	// lent is true if callers have the slice, which is replaced then instead of changed.
	nodes    []cluster.KubeNode
	lent     bool
	versions map[string]string
	listed   string
	// open is the watch; nil if there is none. doubted is the time until which no claim is made, because the watch
	// did not deliver one in time. An event of the watch makes it zero.
	open    watch.Interface
	doubted time.Time
	// more is closed when something is delivered.
	more chan struct{}
}

// sharedLook is a look at the nodes that begins after every caller that shares it has asked.
type sharedLook struct {
	claim string
	done  chan struct{}
	nodes []cluster.KubeNode
	err   error
	// abandoned is true if the nodes are no longer followed.
	abandoned bool
}

// join returns the look that waits for its turn. If there is none, a new one with that claim waits from now on. If
// the follower has stopped, an abandoned look is returned.
func (f *follower) join(claim string) *sharedLook {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.stopped {
		over := &sharedLook{done: make(chan struct{}), abandoned: true}
		close(over.done)

		return over
	}

	if f.next == nil {
		shared := &sharedLook{claim: claim, done: make(chan struct{})}
		f.next = shared
		f.work.Go(func() { f.look(shared) })
	}

	return f.next
}

// look waits for its turn and reads the nodes. Callers that ask after its turn has come share the next look.
func (f *follower) look(shared *sharedLook) {
	defer close(shared.done)

	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-f.ctx.Done():
	}

	f.mu.Lock()
	f.next = nil
	f.mu.Unlock()

	nodes, proven := f.proven(shared.claim)
	if !proven {
		nodes, shared.err = f.client.Nodes(f.ctx)
	}

	shared.nodes = nodes
	shared.abandoned = f.ctx.Err() != nil
}

// proven writes a claim to the named node, and returns the nodes once the claim has been delivered. It returns false
// if no claim was written, or if it was not delivered in time.
func (f *follower) proven(name string) ([]cluster.KubeNode, bool) {
	if !f.reliable() {
		return nil, false
	}

	version, err := f.claim(name)
	if err != nil {
		return nil, false
	}

	late := time.NewTimer(claimTimeout)
	defer late.Stop()

	for {
		nodes, arrived, more := f.delivered(name, version)
		if arrived {
			return nodes, true
		}

		select {
		case <-more:
		case <-f.ctx.Done():
			return nil, false
		case <-late.C:
			f.doubt()

			return nil, false
		}
	}
}

// claim writes an annotation to a node and returns the resource version of the write. Nothing depends on the value,
// and nothing that others write is undone.
func (f *follower) claim(name string) (version string, err error) {
	f.count++

	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		ClaimAnnotation: f.run + "-" + strconv.Itoa(f.count),
	}}})
	if err != nil {
		return "", err
	}

	request := f.client.core.Patch(types.MergePatchType).Resource("nodes").Name(name).
		Param("fieldManager", claimManager).SetHeader("Accept", acceptMetadata).Body(body).MaxRetries(0)

	err = do(f.ctx, operation{what: "mark node " + name, mutates: true}, func(ctx context.Context) error {
		written, err := request.Do(ctx).Get()
		if err != nil {
			return err
		}

		object, err := meta.Accessor(written)
		if err == nil {
			version = object.GetResourceVersion()
		}

		return err
	})

	return version, err
}

// reliable reports whether a claim is likely to be delivered.
func (f *follower) reliable() bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.open != nil && f.nodes != nil && time.Now().After(f.doubted)
}

// delivered returns the nodes if the given version of the named node, or a later one, has been delivered. If not, it
// returns a channel that is closed when more is delivered.
func (f *follower) delivered(name, version string) (nodes []cluster.KubeNode, arrived bool, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if !contains(f.versions[name], version) && !contains(f.listed, version) {
		return nil, false, f.more
	}

	f.lent = true

	return f.nodes, true, nil
}

// contains reports whether the delivered version is the given one or a later one. Versions that are not numbers can
// only be compared for equality.
func contains(delivered, version string) bool {
	one, err := strconv.ParseUint(delivered, 10, 64)
	other, err2 := strconv.ParseUint(version, 10, 64)

	if errors.Join(err, err2) != nil {
		return delivered == version && version != ""
	}

	return one >= other
}

// doubt ends a watch that has not delivered a claim in time. No claim is made until an event has been delivered or
// doubtTime has passed.
func (f *follower) doubt() {
	f.mu.Lock()
	open := f.open
	f.doubted = time.Now().Add(doubtTime)
	f.mu.Unlock()

	if open != nil {
		open.Stop()
	}
}

// follow lists and watches the nodes until the follower ends, again and again.
func (f *follower) follow() {
	reflector := cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch},
		&corev1.Node{}, f, cache.ReflectorOptions{Name: "nodes", Clock: promptClock{ended: f.ctx.Done()}},
	)

	for pause := followAfter; f.ctx.Err() == nil; {
		began := time.Now()

		// Whatever the error is, the nodes are listed and watched again.
		_ = reflector.ListAndWatchWithContext(f.ctx)

		if time.Since(began) > followAtMost {
			pause = followAfter
		}

		if sleep(f.ctx, pause) != nil {
			return
		}

		pause = min(2*pause, followAtMost)
	}
}

// promptClock is a clock whose pauses end with the follower. If the first watch of a reflector is refused, the
// reflector pauses, and the end of its context does not end that pause.
type promptClock struct {
	clock.RealClock

	ended <-chan struct{}
}

// After implements [clock.Clock].
func (c promptClock) After(pause time.Duration) <-chan time.Time {
	over := make(chan time.Time, 1)

	go func() {
		timer := time.NewTimer(pause)
		defer timer.Stop()

		select {
		case <-timer.C:
		case <-c.ended:
		}

		over <- time.Now()
	}()

	return over
}

func (f *follower) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	// There are few enough nodes for one answer, and the API server answers a list without a limit from memory.
	if options.Continue == "" {
		options.Limit = 0
	}

	list := &corev1.NodeList{}
	err := f.client.core.Get().Resource("nodes").VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(list)

	return list, err
}

func (f *follower) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	seconds := int64(watchSeconds)
	options.TimeoutSeconds, options.Watch = &seconds, true

	opened, err := f.client.core.Get().Resource("nodes").VersionedParams(&options, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, err
	}

	one := &openWatch{Interface: opened, follower: f}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.open = one

	return one, nil
}

// openWatch is a watch that removes itself from its follower when it is stopped.
type openWatch struct {
	watch.Interface
	follower *follower
}

// Stop implements [watch.Interface].
func (w *openWatch) Stop() {
	w.Interface.Stop()

	w.follower.mu.Lock()
	defer w.follower.mu.Unlock()

	if w.follower.open == w {
		w.follower.open = nil
	}
}

// Add implements [cache.ReflectorStore].
func (f *follower) Add(object any) error { return f.event(object, false) }

// Update implements [cache.ReflectorStore].
func (f *follower) Update(object any) error { return f.event(object, false) }

// Delete implements [cache.ReflectorStore].
func (f *follower) Delete(object any) error { return f.event(object, true) }

// Resync implements [cache.ReflectorStore].
func (f *follower) Resync() error { return nil }

func byName(node cluster.KubeNode, name string) int { return cmp.Compare(node.Name, name) }

// event applies an event of the watch.
func (f *follower) event(object any, gone bool) error {
	node, ok := object.(*corev1.Node)
	if !ok {
		return fmt.Errorf("%T is no node", object)
	}

	found := f.client.kubeNode(node)

	f.mu.Lock()
	defer f.mu.Unlock()

	if f.versions == nil {
		f.versions = map[string]string{}
	}

	f.versions[node.Name] = node.ResourceVersion

	f.set(found, gone)

	f.doubted = time.Time{}
	f.tell()

	return nil
}

// set replaces or inserts a node, or removes it if it is gone. Most events, such as those of claims, change nothing
// that is known about the node.
func (f *follower) set(found cluster.KubeNode, gone bool) {
	at, known := slices.BinarySearchFunc(f.nodes, found.Name, byName)
	if !known && gone || known && !gone && reflect.DeepEqual(f.nodes[at], found) {
		return
	}

	if f.lent {
		f.nodes, f.lent = slices.Clone(f.nodes), false
	}

	switch {
	case gone:
		f.nodes = slices.Delete(f.nodes, at, at+1)
	case known:
		f.nodes[at] = found
	default:
		f.nodes = slices.Insert(f.nodes, at, found)
	}
}

// Replace implements [cache.ReflectorStore]: it applies a list.
func (f *follower) Replace(objects []any, version string) error {
	nodes, versions := make([]cluster.KubeNode, 0, len(objects)), make(map[string]string, len(objects))

	for _, object := range objects {
		node, ok := object.(*corev1.Node)
		if !ok {
			return fmt.Errorf("%T is no node", object)
		}

		nodes, versions[node.Name] = append(nodes, f.client.kubeNode(node)), node.ResourceVersion
	}

	slices.SortFunc(nodes, func(a, b cluster.KubeNode) int { return byName(a, b.Name) })

	f.mu.Lock()
	defer f.mu.Unlock()

	f.nodes, f.lent, f.versions, f.listed = nodes, false, versions, version
	f.tell()

	return nil
}

// tell wakes those who wait for a delivery.
func (f *follower) tell() {
	close(f.more)
	f.more = make(chan struct{})
}
