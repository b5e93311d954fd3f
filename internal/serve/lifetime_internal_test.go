// SPDX-License-Identifier: MPL-2.0

package serve

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// living is a lifetime, and when it ended.
type living struct {
	*lifetime

	left atomic.Int64
}

func newLiving() *living {
	l := &living{}
	begun := time.Now()
	l.lifetime = newLifetime(func() { l.left.Store(int64(time.Since(begun)) + 1) })

	return l
}

// leftAfter fails the test unless the process ended so long after it began.
func (l *living) leftAfter(t *testing.T, want time.Duration) {
	t.Helper()
	time.Sleep(10 * time.Minute)
	synctest.Wait()

	if got := time.Duration(l.left.Load() - 1); got != want {
		t.Errorf("it ended after %s, want %s", got, want)
	}
}

func TestLifetime_IdleProcessEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiving()

		_, done := l.begin(t.Context())
		done()
		time.Sleep(time.Hour)

		if l.left.Load() != 0 {
			t.Error("it ended although nobody had told it to")
		}

		l.stop()
		l.leftAfter(t, time.Hour)
	})
}

// TestLifetime_ProcessEndsWithTheLastThingItDoes: everything is cancelled, what begins later
// as well, and its answers have the time to arrive.
func TestLifetime_ProcessEndsWithTheLastThingItDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiving()

		for _, takes := range []time.Duration{3 * time.Second, 8 * time.Second} {
			bound, done := l.begin(t.Context())

			go func() {
				defer done()

				<-bound.Done()
				time.Sleep(takes)
			}()
		}

		time.Sleep(time.Minute)
		l.stop()
		l.stop()
		time.Sleep(9 * time.Second)

		bound, done := l.begin(t.Context())
		if bound.Err() == nil {
			t.Error("what began later was not cancelled")
		}

		time.Sleep(time.Second)
		done()
		l.leftAfter(t, time.Minute+10*time.Second+lingering)
	})
}

func TestLifetime_ProcessDoesNotWaitForeverForAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiving()
		l.begin(t.Context())
		l.stop()
		l.leftAfter(t, endMost)
	})
}

func TestLifetime_CallEndsWithItsOwnContextToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiving()

		ctx, cancel := context.WithCancel(t.Context())
		bound, done := l.begin(ctx)

		cancel()
		<-bound.Done()
		done()

		if l.left.Load() != 0 {
			t.Error("the process ended with it")
		}
	})
}
