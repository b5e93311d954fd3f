// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var errDown = errors.New("the API server is down")

// memory is a store that can be slow, down, or lose replies.
type memory struct {
	mutex   sync.Mutex
	found   map[string]string
	patches []map[string]*string
	// until is when it starts to answer.
	until time.Time
	// takes is how long each patch takes.
	takes time.Duration
	// loses lets patches take effect and fail.
	loses int
	// after runs after each patch that took effect, with the lock held.
	after func(found map[string]string)
}

func (m *memory) String() string { return "the memory" }

func (m *memory) Patch(ctx context.Context, changes map[string]*string) error {
	timer := time.NewTimer(m.takes)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}

	m.mutex.Lock()
	defer m.mutex.Unlock()

	if time.Now().Before(m.until) {
		return errDown
	}

	if m.found == nil {
		m.found = map[string]string{}
	}

	m.patches = append(m.patches, changes)

	for key, value := range changes {
		if value == nil {
			delete(m.found, key)
		} else {
			m.found[key] = *value
		}
	}

	if m.after != nil {
		m.after(m.found)
	}

	if m.loses > 0 {
		m.loses--

		return errDown
	}

	return nil
}

func (m *memory) Read(context.Context) (map[string]string, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()

	if time.Now().Before(m.until) {
		return nil, errDown
	}

	return maps.Clone(m.found), nil
}

func (m *memory) get(key string) string {
	m.mutex.Lock()
	defer m.mutex.Unlock()

	value, exists := m.found[key]
	if !exists {
		return "absent"
	}

	return value
}

// progress is a half with that many of all nodes done, and as many steps left.
func progress(done, total int, lowest string) cluster.Progress {
	made := cluster.Progress{Managed: true, Done: done, Total: total, Steps: total - done}
	if lowest != "" {
		made.Lowest = version.MustParse(lowest)
	}

	return made
}

// story is a run that goes well, told as the engine tells it.
func story() []cluster.Event {
	target := cluster.Target{Talos: version.MustParse("v1.13.4")}
	none, one, all := progress(0, 2, "1.12.6"), progress(1, 2, "1.12.6"), progress(2, 2, "1.13.4")

	return []cluster.Event{
		{Kind: cluster.EventRunStarted, Talos: none, Target: target},
		{Kind: cluster.EventNodeStarted, Node: "worker-0", Talos: none, Target: target},
		{Kind: cluster.EventNodeStep, Node: "worker-0", Step: cluster.StepDrain},
		{Kind: cluster.EventNodeDone, Node: "worker-0", Target: target},
		{Kind: cluster.EventNodeStarted, Node: "cp-0", Talos: one, Target: target},
		{Kind: cluster.EventNodeDone, Node: "cp-0", Target: target},
		{Kind: cluster.EventRunDone, Talos: all, Target: target},
	}
}

var _ publish.Store = (*memory)(nil)
