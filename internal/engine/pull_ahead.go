// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// ahead has the nodes whose turn comes next pull their images while others reboot.
type ahead struct {
	engine *Engine
	// fetch has a node pull; it returns nil if the node got all of its images.
	fetch func(context.Context, download) *cluster.Finding
	// noMoreStarts returns why no further pull may begin.
	noMoreStarts func() error
	// slots bounds the nodes that pull at a time.
	slots chan struct{}
	// group waits for the pulls in progress, and for the goroutine that serves the queue.
	group sync.WaitGroup

	mu sync.Mutex
	// queue are the downloads that come next. One goroutine serves it while it is not empty, so that a node whose
	// turn has come waits for at most one of them.
	queue   []download
	serving bool
	// begun are the pulls, by node and images; each channel is closed when its pull has ended.
	begun map[string]chan struct{}
	// have is when a node pulled an image ahead, by node and image; proven are the images that were pulled before
	// the first cordon and need not be pulled again.
	have   map[string]time.Time
	proven map[string]bool
}

func newAhead(e *Engine, fetch func(context.Context, download) *cluster.Finding, noMoreStarts func() error) *ahead {
	return &ahead{engine: e, fetch: fetch, noMoreStarts: noMoreStarts, begun: map[string]chan struct{}{}, have: map[string]time.Time{}, proven: map[string]bool{}}
}

// prepare sets how many nodes pull at a time.
func (a *ahead) prepare(parallel int) {
	if a.slots == nil {
		a.slots = make(chan struct{}, parallel)
	}
}

// aheadFactor is how far ahead nodes pull what they install, in multiples of the nodes that may be unavailable,
// because the images are kept in memory.
const aheadFactor = 2

// begin replaces the queue with the next nodes of the plan that are not among the running steps. The pulls end
// with the context.
func (a *ahead) begin(ctx context.Context, observed cluster.Observation, made plan.Plan, running []plan.Step) {
	next := nextInstalls(made, running, aheadFactor*max(made.Budget, 1))

	a.serve(ctx, append(next, nextKubelets(observed, made, running)...))
}

// nextKubelets returns the downloads of all nodes whose kubelets are to be replaced in parallel in this hop, in
// order. All of them may pull, because images of components are kept on disk, and the control planes take longer
// than all these pulls.
func nextKubelets(observed cluster.Observation, made plan.Plan, running []plan.Step) []download {
	var next []download

	proxy := slices.IndexFunc(made.Steps, func(step plan.Step) bool { return step.Component == cluster.Proxy && step.Image != "" })

	for _, step := range made.Steps {
		switch {
		case step.Hop != made.Steps[0].Hop:
			return next
		case step.Component != cluster.Kubelet || step.Image == "" || !step.Parallel():
			continue
		case slices.ContainsFunc(running, func(busy plan.Step) bool { return busy.Node == step.Node }):
			continue
		}

		node, _ := observed.Node(step.Node)
		wanted := []part{{component: step.Component, image: step.Image}}

		// Until the control planes name the image, the plan does.
		if proxy >= 0 {
			wanted = append(wanted, part{component: cluster.Proxy, image: made.Steps[proxy].Image})
		} else {
			wanted = append(wanted, proxyFor(observed, node)...)
		}

		next = append(next, download{node: step.Node, address: step.Address, parts: wanted})
	}

	return next
}

// nextInstalls returns the downloads of the next nodes of the plan that install Talos and are not running, at
// most the given number, and at most one of those that are upgraded alone.
func nextInstalls(made plan.Plan, running []plan.Step, most int) []download {
	var next []download

	for _, step := range made.Steps {
		alone := !step.Parallel() && slices.ContainsFunc(next, func(one download) bool { return !one.step.Parallel() })

		switch {
		case len(next) == most || step.Hop != made.Steps[0].Hop:
			return next
		case alone || step.Component != "" || step.Finish || step.API == "" || step.Image == "":
		case slices.ContainsFunc(running, func(busy plan.Step) bool { return busy.Node == step.Node }):
		default:
			next = append(next, download{node: step.Node, address: step.Address, step: step, images: []string{step.Image}, toInstall: step.Image})
		}
	}

	return next
}

// stop empties the queue.
func (a *ahead) stop() { a.serve(context.Background(), nil) }

// serve replaces the queue, and starts the goroutine that serves it.
func (a *ahead) serve(ctx context.Context, next []download) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.queue = next
	if a.serving || len(next) == 0 {
		return
	}

	a.serving = true

	a.group.Go(func() {
		for {
			select {
			case a.slots <- struct{}{}:
			case <-ctx.Done():
			}

			one, done, found := a.take(ctx)
			if !found {
				return
			}

			a.group.Go(func() {
				defer func() { <-a.slots }()
				defer close(done)

				a.pull(ctx, one)
			})
		}
	})
}

// take returns the next download that has not begun or been proven; none if no further pull may begin. In that
// case the slot is free again.
func (a *ahead) take(ctx context.Context) (one download, done chan struct{}, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for len(a.queue) > 0 && ctx.Err() == nil && a.noMoreStarts() == nil {
		one, a.queue = a.queue[0], a.queue[1:]

		if _, told := a.begun[one.key()]; !told && !a.provenLocked(one) {
			done = make(chan struct{})
			a.begun[one.key()] = done

			return one, done, true
		}
	}

	a.serving, a.queue = false, nil

	if ctx.Err() == nil {
		<-a.slots
	}

	return download{}, nil, false
}

// pull has one node pull. An image that it cannot get is tried again when its turn comes, and fails its upgrade
// only then.
func (a *ahead) pull(ctx context.Context, one download) {
	failed := a.fetch(ctx, one)
	if ctx.Err() != nil {
		return
	}

	a.engine.emit(pulled(one, failed))

	if failed != nil {
		a.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: one.node, Err: failed.Err, Text: fmt.Sprintf(
			"%s %s ahead of its turn; it is tried again then", one.node, failed.Found)})

		return
	}

	a.note(one)
}

// prove records a node that has pulled before the first cordon. An installer that was only pulled onto the disk
// does not count, because it is pulled into memory later, unless the legacy upgrade does that itself. The images
// of components count as pulled ahead, too.
func (a *ahead) prove(one download) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, reference := range one.references() {
		if reference != one.toInstall && one.step.API != cluster.LegacyAPI && slices.Contains(one.images, reference) {
			continue
		}

		a.proven[one.node+"\n"+reference] = true
	}

	for _, component := range one.parts {
		a.have[one.node+"\n"+component.image] = a.engine.clock.Now()
	}
}

// provenLocked reports whether a node has pulled all of it before the first cordon. The caller holds the lock.
func (a *ahead) provenLocked(one download) bool {
	return !slices.ContainsFunc(one.references(), func(reference string) bool { return !a.proven[one.node+"\n"+reference] })
}

// note records a node that has pulled ahead.
func (a *ahead) note(one download) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, reference := range one.references() {
		a.have[one.node+"\n"+reference] = a.engine.clock.Now()
	}
}

// keptFor is how long a node certainly keeps what it has pulled: Talos removes images that were not used for an
// hour.
const keptFor = 20 * time.Minute

// atTurn has a node whose turn has come pull, within the limit of parallel pulls, unless it has recently pulled
// ahead.
func (a *ahead) atTurn(ctx context.Context, node, reference string, pull func(context.Context) error) error {
	a.leave(node)

	if a.has(ctx, node, reference) {
		return nil
	}

	a.mu.Lock()
	there := a.proven[node+"\n"+reference]
	a.mu.Unlock()

	// Checking an image that was pulled before takes only a moment, and no slot.
	if there {
		return pull(ctx)
	}

	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()

		return pull(ctx)
	case <-ctx.Done():
		return cluster.Ended(ctx)
	}
}

// leave removes a node whose turn has come from the queue.
func (a *ahead) leave(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.queue = slices.DeleteFunc(a.queue, func(one download) bool { return one.node == node })
}

// has waits until the node pulls nothing ahead, and reports whether it certainly has the image.
func (a *ahead) has(ctx context.Context, node, reference string) bool {
	ended := a.await(ctx, node, reference)

	return !ended.IsZero() && a.engine.clock.Now().Sub(ended) < keptFor
}

// await waits until the node pulls nothing ahead, so that it does not pull twice at the same time. It returns
// when the node pulled the image ahead; zero if it has not.
func (a *ahead) await(ctx context.Context, node, reference string) (ended time.Time) {
	a.mu.Lock()

	var under []chan struct{}

	for key, done := range a.begun {
		if name, _, _ := strings.Cut(key, "\n"); name == node {
			under = append(under, done)
		}
	}

	a.mu.Unlock()

	for _, done := range under {
		select {
		case <-done:
		case <-ctx.Done():
			return time.Time{}
		}
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	return a.have[node+"\n"+reference]
}
