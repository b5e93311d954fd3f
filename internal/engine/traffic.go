// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// coordinator is what the upgrades of a run must know of each other.
type coordinator struct {
	// cordoning is held from before the guards of a cordon until it stands: two
	// upgrades must not both take the other one's node for available.
	cordoning semaphore

	mu sync.Mutex
	// disturbed are the nodes that this run is taking out of service, by the
	// order in which it began to.
	disturbed map[string]int
	order     int
	// steps counts what upgrades did to nodes. An observation is as old as the
	// last step before it.
	steps generation
	// ended is closed when the next upgrade ends.
	ended chan struct{}
}

// generation is how many steps there were at some time: all of them, and those of
// control planes, which concern everybody.
type generation struct{ all, grave int }

func newCoordinator() *coordinator {
	return &coordinator{cordoning: newSemaphore(), disturbed: map[string]int{}, ended: make(chan struct{})}
}

// disturb notes that the node is about to be taken out of service.
func (t *coordinator) disturb(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if _, known := t.disturbed[node]; known {
		return
	}

	t.order++
	t.disturbed[node] = t.order
}

// done notes that the upgrade of the node is over.
func (t *coordinator) done(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	delete(t.disturbed, node)
	close(t.ended)
	t.ended = make(chan struct{})
}

// peerDone is closed when the next upgrade ends.
func (t *coordinator) peerDone() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.ended
}

// others are the nodes of other upgrades: true for those which were taken out of
// service before the given node, false for those which came after it.
func (t *coordinator) others(node string) map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	mine, moving := t.disturbed[node]
	found := make(map[string]bool, len(t.disturbed))

	for name, place := range t.disturbed {
		if name != node {
			found[name] = !moving || place < mine
		}
	}

	return found
}

// generation is how many steps there were so far.
func (t *coordinator) generation() generation {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.steps
}

// acted notes that something was done to a node of that role, or came of it.
func (t *coordinator) acted(role cluster.Role) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.advance(role)
}

// reserve notes a step about to be done, unless there was another one since the
// given count was taken that it has to take into account. A worker that is out
// of service already was counted when that began, so what other workers do in
// their own upgrades is nothing to it.
func (t *coordinator) reserve(seen generation, role cluster.Role, occupied bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if role == cluster.Worker && occupied {
		seen.all = t.steps.all
	}

	if t.steps != seen {
		return false
	}

	t.advance(role)

	return true
}

func (t *coordinator) advance(role cluster.Role) {
	t.steps.all++

	if role != cluster.Worker {
		t.steps.grave++
	}
}
