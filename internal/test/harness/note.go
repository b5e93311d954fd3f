// SPDX-License-Identifier: MPL-2.0

package harness

import (
	"fmt"
	"runtime/debug"
	"sync"
	"testing"
)

// Note records what is wrong in a case instead of failing the test, so that a sweep goes on and finds the rest.
type Note struct {
	testing.TB

	mu    sync.Mutex
	found []string
}

// givenUp is the value with which a note panics to leave a case.
type givenUp struct{}

// Helper implements [testing.TB].
func (n *Note) Helper() {}

// Error implements [testing.TB].
func (n *Note) Error(words ...any) { n.Take(fmt.Sprint(words...)) }

// Errorf implements [testing.TB].
func (n *Note) Errorf(format string, words ...any) { n.Take(fmt.Sprintf(format, words...)) }

// Fatal implements [testing.TB].
func (n *Note) Fatal(words ...any) {
	n.Take(fmt.Sprint(words...))
	panic(givenUp{})
}

// Fatalf implements [testing.TB].
func (n *Note) Fatalf(format string, words ...any) {
	n.Take(fmt.Sprintf(format, words...))
	panic(givenUp{})
}

// FailNow implements [testing.TB].
func (n *Note) FailNow() { panic(givenUp{}) }

// Failed implements [testing.TB].
func (n *Note) Failed() bool { return len(n.All()) > 0 }

// Take records a text.
func (n *Note) Take(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.found = append(n.found, text)
}

// All returns what was recorded, in order.
func (n *Note) All() []string {
	n.mu.Lock()
	defer n.mu.Unlock()

	return append([]string(nil), n.found...)
}

// Guarded calls do and records its panics.
func (n *Note) Guarded(do func()) {
	defer func() {
		switch reason := recover().(type) {
		case nil, givenUp:
		default:
			n.Take(fmt.Sprintf("panic: %v\n%s", reason, debug.Stack()))
		}
	}()

	do()
}
