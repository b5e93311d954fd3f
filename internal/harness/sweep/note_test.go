// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"fmt"
	"runtime/debug"
	"sync"
	"testing"
)

// note takes down what a case finds wrong instead of failing the test, so that
// the sweep goes on and finds the rest.
type note struct {
	testing.TB

	mu    sync.Mutex
	found []string
}

// given up is what a note panics with to leave a case.
type givenUp struct{}

func (n *note) Helper() {}

func (n *note) Error(words ...any) { n.take(fmt.Sprint(words...)) }

func (n *note) Errorf(format string, words ...any) { n.take(fmt.Sprintf(format, words...)) }

func (n *note) Fatal(words ...any) {
	n.take(fmt.Sprint(words...))
	panic(givenUp{})
}

func (n *note) Fatalf(format string, words ...any) {
	n.take(fmt.Sprintf(format, words...))
	panic(givenUp{})
}

func (n *note) FailNow() { panic(givenUp{}) }

func (n *note) Failed() bool { return len(n.all()) > 0 }

func (n *note) take(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.found = append(n.found, text)
}

func (n *note) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()

	return append([]string(nil), n.found...)
}

// guarded does something and notes its panics.
func (n *note) guarded(do func()) {
	defer func() {
		switch reason := recover().(type) {
		case nil, givenUp:
		default:
			n.take(fmt.Sprintf("panic: %v\n%s", reason, debug.Stack()))
		}
	}()

	do()
}
