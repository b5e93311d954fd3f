// SPDX-License-Identifier: MPL-2.0

package history_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

func TestHistory_ConcurrentRecordsAreReadBackWholeAndInOrder(t *testing.T) {
	t.Parallel()

	var (
		out   bytes.Buffer
		group sync.WaitGroup
		seen  int
	)

	writer := history.NewWriter(&out, func() time.Duration { return 90 * time.Second })
	writer.OnEvent(func(history.Event) { seen++ })

	const each, writers = 50, 4

	for index := range writers {
		group.Go(func() {
			for i := range each {
				name := fmt.Sprintf("worker-%d", index)
				writer.Record(name, history.KindCordon, map[string]string{"index": strconv.Itoa(i), "by": name})
			}
		})
	}

	group.Wait()

	if err := writer.Err(); err != nil {
		t.Fatal(err)
	}

	read := map[string]int{}

	err := history.Read(&out, func(event history.Event) {
		if event.Sim != 90 || event.Kind != history.KindCordon || event.Detail["by"] != event.Node {
			t.Errorf("read %+v", event)
		}

		if event.Detail["index"] != strconv.Itoa(read[event.Node]) {
			t.Errorf("%s: event %d is %+v", event.Node, read[event.Node], event)
		}

		read[event.Node]++
	})
	if err != nil {
		t.Fatal(err)
	}

	if want := map[string]int{"worker-0": each, "worker-1": each, "worker-2": each, "worker-3": each}; !maps.Equal(read, want) || seen != each*writers {
		t.Errorf("read %v events and saw %d, want %v", read, seen, want)
	}
}

func TestWriter_LeavesOutWhatTheLinesBeforeSay(t *testing.T) {
	t.Parallel()

	var (
		out  bytes.Buffer
		seen int
	)

	writer := history.NewWriter(&out, func() time.Duration { return 1500*time.Millisecond + 400 })
	writer.OnEvent(func(history.Event) { seen++ })

	read := func(node, what string) { writer.Record(node, history.KindRead, map[string]string{"what": what}) }
	call := func(code, mutating string) {
		writer.Record("cp-0", history.KindRPC, map[string]string{"code": code, "mutating": mutating})
	}

	read("cp-0", "etcd")
	call("OK", "false")
	call("NotFound", "false")
	call("Unavailable", "false")
	call("Unavailable", "false")
	read("cp-0", "etcd")
	read("cp-0", "machine")
	read("cp-1", "etcd")
	call("OK", "true")
	read("cp-0", "etcd")
	read("", "nodes")
	read("", "nodes")
	read("cp-0", "etcd")

	const want = `{"sim":1.5,"node":"cp-0","kind":"read","what":"etcd"}
{"sim":1.5,"node":"cp-0","kind":"rpc","code":"Unavailable","mutating":"false"}
{"sim":1.5,"node":"cp-0","kind":"read","what":"machine"}
{"sim":1.5,"node":"cp-1","kind":"read","what":"etcd"}
{"sim":1.5,"node":"cp-0","kind":"rpc","code":"OK","mutating":"true"}
{"sim":1.5,"node":"cp-0","kind":"read","what":"etcd"}
{"sim":1.5,"kind":"read","what":"nodes"}
{"sim":1.5,"kind":"read","what":"nodes"}
{"sim":1.5,"node":"cp-0","kind":"read","what":"etcd"}
`
	if out.String() != want || seen != 13 {
		t.Errorf("%d events were seen, and written was\n%s\nwant\n%s", seen, out.String(), want)
	}
}

func TestHistory_ReadLeavesOutAnUnfinishedLine(t *testing.T) {
	t.Parallel()

	var read int

	err := history.Read(strings.NewReader(`{"kind":"boot"}`+"\n"+`{"ki`), func(history.Event) { read++ })
	if err != nil || read != 1 {
		t.Errorf("read %d events, %v; want the complete one", read, err)
	}
}

func TestHistory_ReadNamesTheLineThatIsNoEvent(t *testing.T) {
	t.Parallel()

	err := history.Read(strings.NewReader(`{}`+"\nnonsense\n"), func(history.Event) {})
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v, want an error that names line 2", err)
	}
}

func TestHistory_FirstFailedWriteIsKept(t *testing.T) {
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
