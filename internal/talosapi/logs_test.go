// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

func TestLastWordsOfAService(t *testing.T) {
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

func TestLastWordsOfANodeThatIsDown(t *testing.T) {
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
