// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestLogs_LastLinesOfAService(t *testing.T) {
	inBubble(t, model.Options{Faults: []model.Fault{{
		Node: "worker-0", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1,
		Message: "\x1b[31mfailed\x1b[0m\a to set up " + strings.Repeat("ø", 2000),
	}}}, func(r *rig) {
		c := r.client("-reader")

		lines, err := c.Logs(r.Context(), worker0, "kubelet", 1)
		if err != nil || len(lines) != 1 {
			r.Fatalf("%q, %v", lines, err)
		}

		if !strings.Contains(lines[0], `node "worker-0" is not ready: failed to set up øøø`) || utf8.RuneCountInString(lines[0]) != 512 {
			r.Errorf("%d characters: %q", utf8.RuneCountInString(lines[0]), lines[0])
		}

		if lines, err := c.Logs(r.Context(), worker0, "machined", 1<<30); err != nil || len(lines) == 0 || !strings.Contains(lines[0], "v1.13.2 starts") {
			r.Errorf("machined: %q, %v", lines, err)
		}

		if lines, err := c.Logs(r.Context(), worker0, "machined", 0); err != nil || len(lines) != 0 {
			r.Errorf("no lines: %q, %v", lines, err)
		}

		if _, err := c.Logs(r.Context(), worker0, "etcd", 5); !errors.Is(err, cluster.ErrNotFound) {
			r.Errorf("etcd on a worker: %v, want it not found", err)
		}
	})
}

// TestLogs_LastLinesOfAContainer: without what the container runtime writes in front of each.
func TestLogs_LastLinesOfAContainer(t *testing.T) {
	crashes := model.Fault{Node: "cp-0", Step: model.StepStaticPod, Effect: model.EffectCrashLoop, Component: model.SchedulerName}

	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")
		name := cluster.ContainerLog(cluster.Scheduler, "cp-0")

		if lines, err := c.Logs(r.Context(), worker0, cluster.ContainerLog(cluster.Scheduler, "worker-0"), 5); !errors.Is(err, cluster.ErrNotFound) {
			r.Errorf("of a worker: %q, %v", lines, err)
		}

		r.world.SetFaults([]model.Fault{crashes})

		if err := c.Reboot(r.Context(), cp0, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "down", isDown)
		r.until("cp-0", "back with a scheduler that crashes", func(model.NodeState) bool {
			lines, err := c.Logs(r.Context(), cp0, name, 5)

			return err == nil && len(lines) == 1 && strings.HasPrefix(lines[0], "E") && strings.HasSuffix(lines[0], `"command failed" err="context deadline exceeded"`)
		})
	})
}

// TestLogs_LastLinesOfMachinedAreNotOurOwnCalls: between a message of machined and the end of its log are hundreds
// of lines about the calls of this provider.
func TestLogs_LastLinesOfMachinedAreNotOurOwnCalls(t *testing.T) {
	for _, talos := range []string{"1.13.2", "1.14.1"} {
		t.Run(talos, func(t *testing.T) {
			inBubble(t, model.Options{Talos: talos}, func(r *rig) {
				c := r.client("")

				for range 40 {
					if _, err := c.Machine(r.Context(), worker0, nil, cluster.Everything); err != nil {
						r.Fatal(err)
					}
				}

				raw, err := r.world.Logs(r.Context(), "worker-0", "machined", 200)
				if err != nil || len(raw) != 200 || slices.ContainsFunc(raw, func(line string) bool { return strings.Contains(line, "[talos]") }) {
					r.Fatalf("the log of a node that was asked so often: %q, %v", raw, err)
				}

				lines, err := c.Logs(r.Context(), worker0, "machined", 3)
				if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "[talos] machined v"+talos+" starts") {
					r.Errorf("%q, %v", lines, err)
				}
			})
		})
	}
}

func TestLogs_LastLinesOfANodeThatIsDown(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		if err := c.Reboot(r.Context(), worker0, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("worker-0", "down", isDown)

		if lines, err := c.Logs(r.Context(), worker0, "machined", 5); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) || lines != nil {
			r.Errorf("%q, %v, want it unreachable", lines, err)
		}

		r.until("worker-0", "back", isUp)

		if lines, err := c.Logs(r.Context(), worker0, "machined", 5); err != nil || len(lines) != 5 {
			r.Errorf("once it is back: %q, %v", lines, err)
		}
	})
}
