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

// ahead pulls the images of the nodes whose turn comes next while others reboot.
type ahead struct {
	engine *Engine
	// fetch has a node pull; nil where it got all of its images.
	fetch func(context.Context, download) *cluster.Finding
	// noMoreStarts is why no pull may begin any more.
	noMoreStarts func() error
	// slots bound the nodes that pull at a time.
	slots chan struct{}
	// group are the pulls that go on, and what serves the queue.
	group sync.WaitGroup

	mu sync.Mutex
	// queue are those that are to pull next; one goroutine serves it while there are any, so
	// that a node whose turn has come waits behind one of them at most.
	queue   []download
	serving bool
	// begun are the pulls, by node and images; each is closed when it has ended.
	begun map[string]chan struct{}
	// have is when a node has pulled an image ahead, by both, and proven are those that were
	// pulled before the first cordon and need not be pulled again.
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

// aheadFactor is how far ahead nodes pull what they install, in multiples of those that may be
// unavailable: they have it in their memory.
const aheadFactor = 2

// begin has the next nodes of the plan pull that are not on their way or about to be, and none
// besides. The context ends the pulls.
func (a *ahead) begin(ctx context.Context, observed cluster.Observation, made plan.Plan, running []plan.Step) {
	next := nextInstalls(made, running, aheadFactor*max(made.Budget, 1))

	a.serve(ctx, append(next, nextKubelets(observed, made, running)...))
}

// nextKubelets are the downloads of all nodes whose kubelets are still to be replaced beside others in this hop, in
// their order: images of components are on disks, and control planes take longer than all of these pulls.
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

		// Until the control planes name it, the plan does.
		if proxy >= 0 {
			wanted = append(wanted, part{component: cluster.Proxy, image: made.Steps[proxy].Image})
		} else {
			wanted = append(wanted, proxyFor(observed, node)...)
		}

		next = append(next, download{node: step.Node, address: step.Address, parts: wanted})
	}

	return next
}

// nextInstalls are the downloads of the next nodes of the plan to install Talos that are not on
// their way, at most that many, and one at most of those that go alone.
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

// stop has no more nodes pull ahead.
func (a *ahead) stop() { a.serve(context.Background(), nil) }

// serve replaces the queue, and has it served.
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

// take is the next one that is to pull and has not been told to; none where nothing more is
// to begin. Without one the slot that was taken for it is free again.
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

// pull has one node pull. What it cannot get is tried again when its turn comes, and fails
// its upgrade then.
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

// prove takes note of a node that has pulled before the first cordon. What it has to install it
// pulls once more, unless its upgrade does that itself. The images of its components it has for a while.
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

// provenLocked tells whether a node has pulled all of it before the first cordon. The lock is
// held.
func (a *ahead) provenLocked(one download) bool {
	return !slices.ContainsFunc(one.references(), func(reference string) bool { return !a.proven[one.node+"\n"+reference] })
}

// note takes note of a node that has pulled.
func (a *ahead) note(one download) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, reference := range one.references() {
		a.have[one.node+"\n"+reference] = a.engine.clock.Now()
	}
}

// keptFor is how long a node certainly has what it has pulled: Talos takes images away that
// nothing has used for an hour.
const keptFor = 20 * time.Minute

// atTurn has a node whose turn has come pull, beside no more others than may, unless it has
// just done so ahead.
func (a *ahead) atTurn(ctx context.Context, node, reference string, pull func(context.Context) error) error {
	a.leave(node)

	if a.has(ctx, node, reference) {
		return nil
	}

	a.mu.Lock()
	there := a.proven[node+"\n"+reference]
	a.mu.Unlock()

	// To look for what it has pulled before takes a moment, and no place.
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

// leave takes a node whose turn has come from the queue.
func (a *ahead) leave(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.queue = slices.DeleteFunc(a.queue, func(one download) bool { return one.node == node })
}

// has waits until nothing is being pulled ahead on the node any more, and tells whether it certainly has the image.
func (a *ahead) has(ctx context.Context, node, reference string) bool {
	ended := a.await(ctx, node, reference)

	return !ended.IsZero() && a.engine.clock.Now().Sub(ended) < keptFor
}

// await waits until nothing is being pulled ahead on the node any more, so that the node is
// not asked twice at the same time. It returns when the node has pulled the image ahead, zero
// where it has not.
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
