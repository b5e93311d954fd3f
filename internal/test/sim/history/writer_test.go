// SPDX-License-Identifier: MPL-2.0

package history_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

func TestWhatIsRecordedConcurrentlyIsReadBackInOrderAndWhole(t *testing.T) {
	t.Parallel()

	var (
		out   bytes.Buffer
		group sync.WaitGroup
		seen  []int64
	)

	writer := history.NewWriter(&out, func() time.Duration { return 90 * time.Second })
	writer.OnEvent(func(event history.Event) { seen = append(seen, event.Seq) })

	const each, writers = 50, 4

	for index := range writers {
		group.Go(func() {
			for range each {
				writer.Record(fmt.Sprintf("worker-%d", index), history.KindCordon, map[string]string{"unschedulable": "true"})
			}
		})
	}

	group.Wait()

	if err := writer.Err(); err != nil {
		t.Fatal(err)
	}

	next := int64(1)

	err := history.Read(&out, func(event history.Event) {
		if event.Seq != next || event.Sim != 90 || event.Kind != history.KindCordon || event.Detail["unschedulable"] != "true" {
			t.Errorf("event %d is %+v", next, event)
		}

		next++
	})
	if err != nil {
		t.Fatal(err)
	}

	if next != each*writers+1 || len(seen) != each*writers {
		t.Errorf("read %d events and saw %d, want %d", next-1, len(seen), each*writers)
	}
}

func TestReadLeavesOutALineThatIsStillBeingWritten(t *testing.T) {
	t.Parallel()

	var read int

	err := history.Read(strings.NewReader(`{"seq":1,"kind":"boot"}`+"\n"+`{"seq":2,"ki`), func(history.Event) { read++ })
	if err != nil || read != 1 {
		t.Errorf("read %d events, %v; want the complete one", read, err)
	}
}

func TestReadNamesTheLineThatIsNoEvent(t *testing.T) {
	t.Parallel()

	err := history.Read(strings.NewReader(`{"seq":1}`+"\nnonsense\n"), func(history.Event) {})
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v, want an error that names line 2", err)
	}
}

func TestTheFirstFailedWriteIsKept(t *testing.T) {
	t.Parallel()

	full := errors.New("disk full")
	writer := history.NewWriter(failing{full}, func() time.Duration { return 0 })
	writer.Record("", history.KindLease, nil)

	if err := writer.Err(); !errors.Is(err, full) {
		t.Errorf("got %v, want the write's error", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
