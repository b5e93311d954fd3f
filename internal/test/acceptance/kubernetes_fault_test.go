// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// kubernetesFault is a fault of the Kubernetes half: it stops an apply, and the
// next one, without it, finishes the job; or the apply gets over it.
type kubernetesFault struct {
	script string
	// says is what the error says, empty where there is none.
	says []string
	// before tells that no machine configuration was changed.
	before bool
}

// kubernetesFaults are one of each kind, as failingFaults.
func kubernetesFaults() map[string]kubernetesFault {
	return map[string]kubernetesFault{
		"static pod crashes": {
			`faults: [{node: cp-1, step: static-pod, effect: crash-loop, component: kube-scheduler}]`,
			[]string{"kube-scheduler", "cp-1", "CrashLoopBackOff"},
			false,
		},
		"kubelet stays down": {
			`faults: [{node: worker-0, step: kubelet-restart, effect: stays-down}]`,
			[]string{"kubelet", "worker-0", "talosctl"},
			false,
		},
		"API server flaps": {
			`faults: [{node: cp-0, step: api-server, effect: flap, times: 2, for: 45s}]`, nil, false,
		},
		"configuration changed by somebody else": {
			`faults: [{node: cp-0, step: apply, effect: overwritten}]`,
			[]string{"cp-0", "data.talosupgrade_current_versions"},
			false,
		},
		"image missing": {
			`faults: [{node: worker-0, step: component-pull, effect: not-found, component: kubelet, times: 0}]`,
			[]string{"worker-0", "ghcr.io/siderolabs/kubelet:v" + kubernetesTarget},
			true,
		},
	}
}

func TestAccKubernetesFaults(t *testing.T) {
	full(t)

	for title, fault := range kubernetesFaults() {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 3, Workers: 1, Talos: talosTarget})
			s.faults(fault.script)

			w := newWorkspace(t)
			w.write(use(s), `kubernetes_version = "`+kubernetesTarget+`"`)

			if len(fault.says) == 0 {
				w.apply().mustSucceed(0)
			} else {
				w.apply().mustFail(append(fault.says, "nothing is tainted")...)

				if w.attributes() != nil {
					t.Error("a failed create stored something")
				}
			}

			if changed := s.configured(); fault.before && len(changed) > 0 {
				t.Errorf("configured %v", changed)
			}

			s.faults("")
			s.settle()
			w.apply().mustSucceed(0)
			s.wantKubernetes(kubernetesTarget)
			s.notRebooted()
			w.plan().mustSucceed(0)
		})
	}
}
