// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// lookupTime is what a machine takes to find an image that it has, confirmTime
// what it takes to confirm its upgrade once it is ready.
const (
	lookupTime  = 730 * time.Millisecond
	confirmTime = 613 * time.Millisecond
)

// TestOverheadIsReported measures what the engine adds to the time that the
// nodes need themselves: the pulls, one after the other the installs, and from
// each reboot until the node has confirmed its new system.
func TestOverheadIsReported(t *testing.T) {
	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 21}}, func(r *rig) {
				begun := time.Now()
				r.Must(r.Worker("run-1"), to(hop.to))
				took := time.Since(begun).Seconds()
				needed := r.criticalPath()

				t.Logf("%s: the run took %.1f s, the nodes needed %.1f s: %.2f %% on top", name, took, needed, 100*(took/needed-1))

				if took < needed {
					t.Errorf("the run took %.1f s, less than the %.1f s that the nodes need", took, needed)
				}
			})
		})
	}
}

// criticalPath is the time, in seconds, that the nodes need for a roll.
func (r *rig) criticalPath() float64 {
	var (
		pulled, needed float64
		begun          = map[string]float64{}
	)

	for _, event := range r.Judge.Of(history.KindPull, history.KindJournal, history.KindInstall, history.KindStage, history.KindKubelet) {
		switch event.Kind {
		case history.KindPull:
			if len(begun) == 0 && event.Sim-pulled > lookupTime.Seconds()+1e-6 {
				pulled = event.Sim
			}
		case history.KindJournal:
			if event.Detail["phase"] == "intent" {
				begun[event.Node] = event.Sim
			}
		case history.KindInstall:
			if event.Detail["by"] == "client" {
				needed += event.Sim - begun[event.Node]
				begun[event.Node] = 0
			}
		case history.KindStage:
			if to := event.Detail["to"]; begun[event.Node] == 0 && strings.HasPrefix(to, "rebooting") {
				begun[event.Node] = event.Sim
			}
		case history.KindKubelet:
			if event.Detail["ready"] == "true" {
				needed += event.Sim - begun[event.Node] + confirmTime.Seconds() + lookupTime.Seconds()
			}
		default:
		}
	}

	return pulled + needed
}
