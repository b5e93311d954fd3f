// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccAPIServerThatFlapsIsGotOver has the only fault of the Kubernetes half that closes connections. The fault
// that stops it is in TestAccFailedUpdateKeepsWhatWasWanted.
func TestAccAPIServerThatFlapsIsGotOver(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 3, Workers: 1, Talos: talosTarget})
	s.faults(`faults: [{node: cp-0, step: api-server, effect: flap, times: 2, for: 45s}]`)

	w := newWorkspace(t)
	w.write(use(s), `kubernetes_version = "`+kubernetesTarget+`"`)
	w.apply().mustSucceed(0)
	s.wantKubernetes(kubernetesTarget)
	s.notRebooted()
	w.plan().mustSucceed(0)
}
