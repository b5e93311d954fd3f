// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestDisabledComponentHasNoPod(t *testing.T) {
	for name, options := range map[string]model.Options{
		"v1alpha1":  {Talos: "1.13.4"},
		"documents": {Talos: "1.14.1", Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			options.ControlPlanes, options.Kubernetes = 1, "1.34.2"
			options.DisabledComponents = []string{model.SchedulerName}

			inWorld(t, options, func(r rig) {
				check := func(when string, version int) {
					r.t.Helper()

					state := r.node("cp-0")
					pod := state.StaticPods[model.SchedulerName]

					if !pod.Disabled || pod.PodImage != "" || pod.PodConfigVersion != 0 || pod.Ready || pod.ConfigVersion != version {
						r.t.Errorf("%s: %+v", when, pod)
					}

					if state.Components.Scheduler != "" || state.Components.ControllerManager != "1.34.2" || !ready(state) {
						r.t.Errorf("%s: %+v, unmet %v", when, state.Components, state.Unmet)
					}
				}

				check("at the start", 1)

				if !strings.Contains(string(r.node("cp-0").Config), "kube-scheduler:v1.34.2") {
					r.t.Error("its image is not named")
				}

				r.mustApply("cp-0", "kube-scheduler:v1.34.2", "kube-scheduler:v1.35.2")
				r.pass(3 * time.Minute)
				check("with another image", 2)
				r.reboot("cp-0")
				check("after a boot", 1)

				// At the start, because of the other image, and after the boot.
				if got := r.components("cp-0", model.SchedulerName); got != "stopped@ stopped@ stopped@" {
					r.t.Errorf("history: %s", got)
				}

				if slices.Contains(r.node("cp-0").Images, newScheduler) {
					r.t.Error("its image was pulled")
				}
			})
		})
	}
}

func TestComponentIsSwitchedOffAndOn(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		const off = "  controlPlane:\n    scheduler:\n      disabled: true\n"

		r.mustApply("cp-0", "  install:\n", off+"  install:\n")

		gone := r.until("cp-0", "without a scheduler", time.Minute, func(s model.NodeState) bool { return s.Components.Scheduler == "" })
		if got := r.components("cp-0", model.SchedulerName); got != "stopped@1.34.2 stopped@" {
			r.t.Errorf("history: %s", got)
		}

		if pod := gone.StaticPods[model.SchedulerName]; pod.PodImage != "" || pod.Ready || !ready(gone) {
			r.t.Errorf("switched off: %+v, unmet %v", pod, gone.Unmet)
		}

		r.mustApply("cp-0", off, "")
		r.until("cp-0", "with a scheduler", 2*time.Minute, serves(model.SchedulerName, "registry.k8s.io/kube-scheduler:v1.34.2"))

		if got := r.node("cp-0").Components.Scheduler; got != "1.34.2" {
			r.t.Errorf("version %q", got)
		}
	})
}

func TestOnlySomeComponentsCanBeDisabled(t *testing.T) {
	_, err := model.New(model.Options{ControlPlanes: 1, Talos: "1.13.4", DisabledComponents: []string{model.APIServerName}})
	if err == nil || !strings.Contains(err.Error(), model.APIServerName) {
		t.Errorf("got %v", err)
	}
}
