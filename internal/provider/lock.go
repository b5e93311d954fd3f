// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"sync"
)

// lockTable holds one lock per cluster. The lease in the cluster keeps other
// processes away; this one makes resources of the same process wait for each
// other instead of failing.
type lockTable struct {
	mu    sync.Mutex
	locks map[string]chan struct{}
}

func newLockTable() *lockTable { return &lockTable{locks: map[string]chan struct{}{}} }

// acquire waits for the lock of the cluster and returns what releases it. The
// error is the cause of the context's end.
func (t *lockTable) acquire(ctx context.Context, cluster string) (release func(), err error) {
	t.mu.Lock()

	lock, ok := t.locks[cluster]
	if !ok {
		lock = make(chan struct{}, 1)
		t.locks[cluster] = lock
	}

	t.mu.Unlock()

	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
