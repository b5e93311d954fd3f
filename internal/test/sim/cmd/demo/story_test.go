// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

var update = flag.Bool("update", false, "write the golden files")

// at returns an event, its detail given as alternating keys and values.
func at(sim float64, node string, kind history.Kind, detail ...string) history.Event {
	event := history.Event{Sim: sim, Node: node, Kind: kind, Detail: map[string]string{}}
	for index := 0; index+1 < len(detail); index += 2 {
		event.Detail[detail[index]] = detail[index+1]
	}

	return event
}

// recorded returns the events of a run of the demo: those of its history that the story uses.
func recorded(t *testing.T, name string) []history.Event {
	t.Helper()

	events, err := openTail(filepath.Join("testdata", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer events.close()

	ended, end := context.WithCancel(t.Context())
	end()

	var all []history.Event
	if err := events.follow(ended, func(event history.Event) { all = append(all, event) }); err != nil {
		t.Fatal(err)
	}

	return all
}

// troubledRoll returns the events of a control plane where one thing after the other goes wrong.
func troubledRoll() []history.Event {
	return []history.Event{
		at(300, "cp-0", history.KindFault, "step", "pull", "effect", "fail"),
		at(301, "cp-0", history.KindPull, "image", "ghcr.io/siderolabs/installer:v1.13.4", "ok", "false"),
		at(310, "cp-0", history.KindCordon, "unschedulable", "true", "by", "client"),
		at(311, "cp-0", history.KindDelete, "namespace", "default", "pod", "web-1", "by", "client"),
		at(320, "cp-0", history.KindInstall, "talos", "1.13.4", "slot", "B", "exit", "1", "by", "client"),
		at(330, "cp-0", history.KindInstall, "talos", "1.13.4", "slot", "B", "exit", "0", "by", "client"),
		at(340, "cp-0", history.KindStage, "from", "running", "to", "rebooting"),
		at(341, "cp-0", history.KindEtcd, "member", "1", "state", "down"),
		at(342, "cp-0", history.KindDown, "by", "client"),
		at(400, "cp-0", history.KindBoot, "talos", "1.12.6", "slot", "A", "fallback", "true", "cause", "fallback"),
		at(410, "cp-0", history.KindEtcd, "member", "1", "state", "healthy"),
		at(420, "cp-0", history.KindKubelet, "ready", "true"),
		at(430, "worker-0", history.KindCordon, "unschedulable", "true", "by", "client"),
		at(431, "worker-0", history.KindInstall, "talos", "1.13.4", "slot", "A", "exit", "0", "by", "client"),
		at(440, "", history.KindLease, "holder", "", "action", "release"),
		at(450, "worker-0", history.KindDown, "by", "client"),
	}
}

// introduction introduces a control plane and a worker, and begins with the lease.
func introduction() []history.Event {
	return []history.Event{
		at(0, "cp-0", history.KindNode, "role", "controlplane", "talos", "1.12.6"),
		at(0, "worker-0", history.KindNode, "role", "worker", "talos", "1.12.6"),
		// While the cluster starts, the story says nothing.
		at(1, "cp-0", history.KindKubelet, "ready", "true", "version", "1.34.2"),
		at(2, "worker-0", history.KindPull, "image", "installer:v1.13.4", "ok", "false"),
		at(30, "", history.KindLease, "action", "acquire"),
	}
}

// TestStoryReadsLikeWhatHappened compares the stories of two recorded runs, and of one in which one thing after the
// other goes wrong, with stored ones.
func TestStoryReadsLikeWhatHappened(t *testing.T) {
	for name, events := range map[string][]history.Event{
		"roll":     recorded(t, "roll"),
		"fallback": recorded(t, "fallback"),
		"trouble":  append(introduction(), troubledRoll()...),
	} {
		t.Run(name, func(t *testing.T) {
			var text bytes.Buffer

			show := &screen{Terminal: toolchain.NewPlain(&text)}
			told := newStory("1.13.4")
			doing := ""

			var statuses strings.Builder

			for _, event := range events {
				for _, entry := range told.tell(event) {
					show.tell(entry)
				}

				// A change of the time alone is ignored.
				if status := told.status(); status[:6]+status[13:] != doing {
					doing = status[:6] + status[13:]
					statuses.WriteString(status + "\n")
				}
			}

			text.WriteString("\n")

			for _, line := range told.protected() {
				row(show, line)
			}

			requireGolden(t, name, text.String()+"\nstatus:\n"+statuses.String())
		})
	}
}

func requireGolden(t *testing.T, name, text string) {
	t.Helper()

	golden := filepath.Join("testdata", name+".golden")

	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	wanted, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(wanted), text); diff != "" {
		t.Errorf("the story changed (-golden +now); run with -update if it is meant to:\n%s", diff)
	}
}

func TestStoryIgnoresNodesThatWereNeverIntroduced(t *testing.T) {
	told := newStory("1.13.4")

	if lines := told.tell(at(1, "ghost", history.KindDown)); len(lines) != 0 {
		t.Errorf("got %v for a node nobody introduced", lines)
	}
}
