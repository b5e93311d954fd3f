// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

// watched has an assertion look after engines with a bug, and returns what it says;
// empty when it holds.
func (r *rig) watched(bug planted, assertion func(*rig)) string {
	watching := &watcher{TB: r.T, bug: bug}
	over := make(chan struct{})

	// A fatal failure ends the goroutine.
	go func() {
		defer close(over)

		assertion(&rig{&harness.Rig{Cluster: r.Cluster, T: watching, Judge: r.Judge}})
	}()

	<-over

	return watching.said()
}

// Worker connects an engine, with a bug where a test watches what comes of it.
func (r *rig) Worker(run string) *worker {
	if watching, is := r.T.(*watcher); is {
		return r.lying(run, watching.bug)
	}

	return r.Rig.Worker(run)
}

// watcher is a test whose failures are no failures of the test.
type watcher struct {
	testing.TB

	bug planted

	mu    sync.Mutex
	lines []string
}

func (w *watcher) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return strings.Join(w.lines, "\n")
}

func (w *watcher) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.lines = append(w.lines, text)
}

func (w *watcher) FailNow()                          { runtime.Goexit() }
func (w *watcher) Helper()                           {}
func (w *watcher) Failed() bool                      { return w.said() != "" }
func (w *watcher) Error(args ...any)                 { w.note(fmt.Sprint(args...)) }
func (w *watcher) Errorf(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }

func (w *watcher) Fatal(args ...any) {
	w.note(fmt.Sprint(args...))
	w.FailNow()
}

func (w *watcher) Fatalf(format string, args ...any) { w.Fatal(fmt.Sprintf(format, args...)) }
