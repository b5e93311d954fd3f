// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestOtherFacesAreAskedBeforeACallChangesSomething(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1}, func(r *rig) {
		c := r.client("")

		if _, err := r.version(c, "10.5.0.2"); err != nil {
			r.Fatal(err)
		}

		if _, err := r.pull(c, "10.5.0.2", factoryImage); err != nil {
			r.Fatal(err)
		}

		var kinds []history.Kind
		for _, event := range r.log.soFar() {
			kinds = append(kinds, event.Kind)
		}

		want := []history.Kind{
			history.KindNode, history.KindRead, history.KindRPC, kindSync, history.KindPull, history.KindRPC,
		}
		if !slices.Equal(kinds, want) {
			r.Fatalf("got %v, want %v", kinds, want)
		}
	})
}

func TestSameSeedSameHistoryOverTheWire(t *testing.T) {
	run := func() []string {
		var lines []string

		inBubble(t, model.Options{ControlPlanes: 3, Workers: 1, Seed: 11}, func(r *rig) {
			c := r.client("")

			for _, target := range []string{"10.5.0.5", "10.5.0.2"} {
				if _, err := r.pull(c, target, factoryImage); err != nil {
					r.Fatal(err)
				}

				if exit, err := r.install(c, target, factoryImage); err != nil || exit != 0 {
					r.Fatalf("install: %d, %v", exit, err)
				}

				if err := c.Reboot(r.at(target)); err != nil {
					r.Fatal(err)
				}

				r.until(target, "down", 1<<40, down)
				r.until(target, "ready", 1<<40, ready)
			}

			for _, event := range r.log.soFar() {
				// The end of a call and what the call set off happen at the same
				// instant, in either order.
				if event.Kind != history.KindRPC {
					lines = append(lines, fmt.Sprint(event.Node, event.Kind, event.Detail))
				}
			}
		})

		return lines
	}

	if first, second := run(), run(); !slices.Equal(first, second) {
		t.Fatalf("one seed, two histories:\n%v\n---\n%v", first, second)
	}
}
