// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// timers are delays in simulated time after which a key is looked at again.
type timers struct {
	ctx   context.Context
	clock Clock
	queue workqueue.TypedRateLimitingInterface[key]
	wait  sync.WaitGroup

	mutex sync.Mutex
	ended bool
	set   map[key]map[string]*timer
}

type timer struct {
	fired  bool
	cancel context.CancelFunc
}

func newTimers(ctx context.Context, clock Clock, queue workqueue.TypedRateLimitingInterface[key]) *timers {
	return &timers{ctx: ctx, clock: clock, queue: queue, set: map[key]map[string]*timer{}}
}

// due tells whether d has passed since it was first asked for this key and
// purpose. Until then the key is looked at again when it has.
func (t *timers) due(k key, purpose string, d time.Duration) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if known := t.set[k][purpose]; known != nil {
		return known.fired
	}

	if t.ended {
		return false
	}

	if t.set[k] == nil {
		t.set[k] = map[string]*timer{}
	}

	ctx, cancel := context.WithCancel(t.ctx)
	started := &timer{cancel: cancel}
	t.set[k][purpose] = started

	t.wait.Go(func() {
		defer cancel()

		if t.clock.Sleep(ctx, d) != nil {
			return
		}

		t.mutex.Lock()
		started.fired = true
		t.mutex.Unlock()

		t.queue.Add(k)
	})

	return false
}

// forget drops the timers of a key: the one for the purpose, or all.
func (t *timers) forget(k key, purposes ...string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if len(purposes) == 0 {
		for _, known := range t.set[k] {
			known.cancel()
		}

		delete(t.set, k)

		return
	}

	for _, purpose := range purposes {
		if known := t.set[k][purpose]; known != nil {
			known.cancel()
			delete(t.set[k], purpose)
		}
	}
}

// stop returns when no timer runs any more; the context must have ended.
func (t *timers) stop() {
	t.mutex.Lock()
	t.ended = true
	t.mutex.Unlock()

	t.wait.Wait()
}

// spread is a duration between low and high that depends on the seed and on
// what it is for, and on nothing else.
func spread(seed uint64, what string, low, high time.Duration) time.Duration {
	hash := fnv.New64a()
	// Writing to a hash does not fail.
	_, _ = fmt.Fprintf(hash, "%d/%s", seed, what)

	return low + time.Duration(hash.Sum64()%uint64(high-low))
}
