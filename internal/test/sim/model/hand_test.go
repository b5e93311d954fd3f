// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// stages lists what the history says of a machine's stages, with who asked for it.
func (r rig) stages(name string) []string {
	var said []string

	for _, event := range r.log.of(name, history.KindStage) {
		word := strings.TrimSpace(event.Detail["to"] + " " + event.Detail["by"])
		if len(said) == 0 || said[len(said)-1] != word {
			said = append(said, word)
		}
	}

	return said
}

func TestPersonWithTalosctl(t *testing.T) {
	for name, test := range map[string]struct {
		act    func(rig) error
		stages []string
		talos  string
		asked  string // of Kubernetes
	}{
		"reboots": {
			func(r rig) error { return r.RebootByHand("worker-0", model.RebootDefault) },
			[]string{"rebooting other", "booting", "running"},
			"1.13.2", "",
		},
		"upgrades": {
			func(r rig) error { return r.UpgradeByHand("worker-0", genericImage) },
			[]string{"upgrading other", "rebooting other", "booting", "running"},
			"1.13.4", "cordon worker-0, drain worker-0 5m0s, uncordon worker-0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
				kubernetes := &face{}
				r.SetKubernetes(kubernetes)
				// Faults of the calls are not for people.
				r.SetFaults([]model.Fault{
					{Node: "worker-0", Step: model.StepReboot, Effect: model.EffectFail},
					{Node: "worker-0", Step: model.StepLegacyUpgrade, Effect: model.EffectFail},
				})

				if err := test.act(r); err != nil {
					r.t.Fatal(err)
				}

				if err := test.act(r); !errors.Is(err, model.ErrRefused) {
					r.t.Errorf("a second time at once: %v", err)
				}

				r.until("worker-0", "down", 3*time.Minute, down)
				state := r.until("worker-0", "ready", 5*time.Minute, ready)
				time.Sleep(time.Second)

				if state.Talos != test.talos || kubernetes.text() != test.asked || !slices.Equal(r.stages("worker-0"), test.stages) {
					r.t.Errorf("Talos %s, asked %q, stages %q", state.Talos, kubernetes.text(), r.stages("worker-0"))
				}

				for _, event := range r.log.of("worker-0", history.KindDown, history.KindInstall) {
					if event.Detail["by"] != "other" {
						r.t.Errorf("the history says %+v", event)
					}
				}

				r.SetFaults(nil)
				r.reboot("worker-0")

				downs := r.log.of("worker-0", history.KindDown)
				if len(downs) != 2 || downs[1].Detail["by"] != "client" {
					r.t.Errorf("after a reboot of ours: %v", downs)
				}
			})
		})
	}
}
