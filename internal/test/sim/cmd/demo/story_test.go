// SPDX-License-Identifier: MPL-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

var update = flag.Bool("update", false, "write the golden files")

// at is an event, its detail given as key and value in turn.
func at(sim float64, node string, kind history.Kind, detail ...string) history.Event {
	event := history.Event{Sim: sim, Node: node, Kind: kind, Detail: map[string]string{}}
	for index := 0; index+1 < len(detail); index += 2 {
		event.Detail[detail[index]] = detail[index+1]
	}

	return event
}

// legacyRoll is a worker below Talos 1.13: one call does it all.
func legacyRoll() []history.Event {
	const image = "factory.talos.dev/metal-installer/abc:v1.13.4"

	return []history.Event{
		at(0, "cp-0", history.KindNode, "role", "controlplane", "talos", "1.12.6"),
		at(0, "worker-0", history.KindNode, "role", "worker", "talos", "1.12.6"),
		// While the cluster starts, nothing is told.
		at(1, "cp-0", history.KindKubelet, "ready", "true", "version", "1.34.2"),
		at(30, "", history.KindLease, "holder", "run", "action", "acquire"),
		at(31, "", history.KindAnnotation, "key", "talos-progress", "value", "0/2"),
		at(75.5, "worker-0", history.KindPull, "image", image, "ok", "true"),
		// The pull of each turn finds the image that is there.
		at(76, "worker-0", history.KindPull, "image", image, "ok", "true"),
		// An election: the member itself was never down.
		at(76, "cp-0", history.KindEtcd, "member", "1", "state", "healthy", "leader", "1"),
		at(76, "", history.KindLease, "holder", "run", "action", "renew"),
		at(80, "worker-0", history.KindCordon, "unschedulable", "true", "by", "client"),
		at(81, "worker-0", history.KindEvict, "namespace", "default", "pod", "web-1", "outcome", "dry-run"),
		at(82, "worker-0", history.KindEvict, "namespace", "default", "pod", "web-1", "outcome", "evicted"),
		at(83, "worker-0", history.KindEvict, "namespace", "default", "pod", "web-2", "outcome", "blocked", "budget", "default/web"),
		at(93, "worker-0", history.KindEvict, "namespace", "default", "pod", "web-2", "outcome", "evicted"),
		at(94, "worker-0", history.KindRPC, "method", "/machine.MachineService/Upgrade", "code", "OK", "mutating", "true"),
		at(95, "worker-0", history.KindStage, "from", "running", "to", "upgrading", "ready", "true"),
		at(110, "worker-0", history.KindInstall, "image", image, "talos", "1.13.4", "slot", "B", "exit", "0", "by", "legacy"),
		at(111, "worker-0", history.KindStage, "from", "upgrading", "to", "rebooting", "ready", "true"),
		at(112, "worker-0", history.KindKubelet, "ready", "false", "version", "1.34.2"),
		at(113, "worker-0", history.KindDown, "by", "client"),
		at(180, "worker-0", history.KindBoot, "boot_id", "b2", "talos", "1.13.4", "slot", "B", "fallback", "false", "cause", "upgrade"),
		at(215, "worker-0", history.KindKubelet, "ready", "true", "version", "1.34.2"),
		at(220, "worker-0", history.KindCordon, "unschedulable", "false", "by", "client"),
		at(221, "", history.KindAnnotation, "key", "talos-progress", "value", "1/2"),
	}
}

// troubledRoll is a control plane where one thing after the other goes wrong.
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
		at(430, "", history.KindLease, "holder", "", "action", "release"),
	}
}

func render(told *story, events []history.Event) string {
	var text strings.Builder

	for _, event := range events {
		for _, entry := range told.tell(event) {
			fmt.Fprintf(&text, "%s\n", entry)

			if entry.overview {
				fmt.Fprintf(&text, "%17s%s\n", "", told.overview())
			}
		}
	}

	return text.String()
}

func TestStoryReadsLikeWhatHappened(t *testing.T) {
	told := newStory("1.13.4")
	text := render(told, append(legacyRoll(), troubledRoll()...))
	text += "\n" + nodeTable(told, verdict{Nodes: map[string]fate{"worker-0": {Talos: "1.13.4"}, "cp-0": {Talos: "1.12.6"}}})

	golden := filepath.Join("testdata", "story.golden")

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
