// SPDX-License-Identifier: MPL-2.0

package engine

import "sync"

// traffic is what the turns of a run must know of each other.
type traffic struct {
	// cordoning is held from the guards before a cordon until it stands: two
	// turns must not both take the other one's node for available.
	cordoning gate

	mu sync.Mutex
	// disturbed are the nodes that this run is taking out of service, by the
	// order in which it began to.
	disturbed map[string]int
	order     int
	// steps counts what turns did to nodes. An observation is as old as the
	// last step before it.
	steps int
}

func newTraffic() *traffic {
	return &traffic{cordoning: newGate(), disturbed: map[string]int{}}
}

// disturb notes that the node is about to be taken out of service.
func (t *traffic) disturb(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if _, known := t.disturbed[node]; known {
		return
	}

	t.order++
	t.disturbed[node] = t.order
}

// calm notes that the turn of the node is over.
func (t *traffic) calm(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	delete(t.disturbed, node)
}

// others are the nodes of other turns: true for those which were taken out of
// service before the given node, false for those which came after it.
func (t *traffic) others(node string) map[string]bool {
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

// count is how many steps there were so far.
func (t *traffic) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.steps
}

// stepped notes that something was done to a node, or came of it.
func (t *traffic) stepped() {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.steps++
}

// claim notes a step about to be done, unless there was another one since the
// given count was taken.
func (t *traffic) claim(seen int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.steps != seen {
		return false
	}

	t.steps++

	return true
}
