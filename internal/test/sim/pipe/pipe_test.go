// SPDX-License-Identifier: MPL-2.0

package pipe_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/pipe"
)

// both returns the ends of a connection.
func both(t *testing.T) (near, far net.Conn) {
	t.Helper()

	listener := pipe.Listen(1 << 10)
	accepted := make(chan net.Conn, 1)

	go func() {
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
		}

		accepted <- conn
	}()

	near, err := listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return near, <-accepted
}

// The race detector ends a process if timers that are due at once are created concurrently in a bubble: this test
// proves something only with -race.
func TestPipe_ExpiredDeadlinesAreSetConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		defer work.Wait()

		for range 8 {
			near, far := both(t)

			for _, end := range []net.Conn{near, far} {
				work.Go(func() {
					for range 5000 {
						if err := errors.Join(
							end.SetDeadline(time.Now()), end.SetReadDeadline(time.Unix(1, 0)), end.SetWriteDeadline(time.Now().Add(-time.Hour)),
						); err != nil {
							t.Error(err)

							return
						}
					}
				})
			}
		}
	})
}

func TestPipe_DeadlinesHold(t *testing.T) {
	for title, set := range map[string]func(net.Conn, time.Time) error{"both": net.Conn.SetDeadline, "read": net.Conn.SetReadDeadline} {
		for at, given := range map[string]struct {
			in    time.Duration
			takes time.Duration
		}{"come": {0, time.Nanosecond}, "past": {-time.Hour, time.Nanosecond}, "ahead": {time.Minute, time.Minute}} {
			t.Run(title+" "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					near, _ := both(t)

					start := time.Now()
					if err := set(near, start.Add(given.in)); err != nil {
						t.Fatal(err)
					}

					_, err := near.Read(make([]byte, 1))

					var late net.Error
					if !errors.As(err, &late) || !late.Timeout() || time.Since(start) != given.takes {
						t.Errorf("%v after %s, want a timeout after %s", err, time.Since(start), given.takes)
					}

					if err := set(near, time.Time{}); err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
}

func TestPipe_NoDeadlineIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := both(t)

		if err := errors.Join(near.SetDeadline(time.Now()), near.SetDeadline(time.Time{})); err != nil {
			t.Fatal(err)
		}

		time.AfterFunc(time.Hour, func() {
			if _, err := far.Write([]byte("late")); err != nil {
				t.Error(err)
			}
		})

		content := make([]byte, 10)
		if count, err := near.Read(content); err != nil || string(content[:count]) != "late" {
			t.Errorf("got %q and %v", content[:count], err)
		}
	})
}
