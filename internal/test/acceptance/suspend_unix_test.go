// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// The commands of the guide.
const (
	guideSuspend = "kubectl -n kube-system annotate lease talosupgrade upgrade.vitistack.io/suspend='ola: storage is degraded'"
	guideResume  = "kubectl -n kube-system annotate lease talosupgrade upgrade.vitistack.io/suspend-"

	suspendedBy = "(kubectl-annotate): ola: storage is degraded"
)

// TestAccUpgradesAreSuspended: somebody with kubectl suspends a roll in the middle of a node. That node has to be
// finished, no other may begin, the reason has to be visible everywhere, and the roll has to go on once it is
// resumed.
func TestAccUpgradesAreSuspended(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	k := newKubectl(t, s.Kubeconfig())
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("worker-0 being installed", func(e history.Event) bool { return e.Kind == history.KindInstall && e.Node == "worker-0" })
	k.says(guideSuspend)

	k.until(guideConfigMap, "the suspension", func(said string) bool { return strings.Contains(said, suspendedBy) })
	k.until("kubectl get events -A --field-selector reason=UpgradesSuspended -o jsonpath='{.items[*].note}{.items[*].message}'", "the Event",
		func(said string) bool { return strings.Contains(said, suspendedBy) })
	s.renewals(aWhile)
	s.wantCordoned()
	s.times(map[string]int{"worker-0": 1})
	k.until(guideConfigMap, "what is waited for", func(said string) bool { return strings.Contains(said, suspendedBy+" (1/3)") })

	k.says(guideResume)
	run.wait().mustSucceed(0).mustWarn(suspendedBy)
	s.wantUpgraded(talosTarget, once(1, 2))
	s.nothingLeft()
	k.until("kubectl get events -A --field-selector reason=UpgradesResumed -o name", "the Event", func(said string) bool { return said != "" })
}

// TestAccSuspendedUpgradesStopAnApply: with on_suspend = "stop" the plan and the apply have to say who suspended the
// upgrades, and an apply has to continue once they are resumed.
func TestAccSuspendedUpgradesStopAnApply(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	k := newKubectl(t, s.Kubeconfig())

	// There is no lease yet.
	k.says(`kubectl apply -f - <<EOF
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: talosupgrade
  namespace: kube-system
EOF`)
	k.says(guideSuspend)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\non_suspend = \"stop\"")
	s.forget()

	planned := w.plan().mustSucceed(2)
	planned.mustWarn(suspendedBy)
	planned.mustWarn("An apply stops before it starts anything")

	w.apply().mustFail("Upgrades of this cluster are suspended", suspendedBy, "Nothing was touched.", "upgrade.vitistack.io/suspend-")
	s.onlyLocked()

	w.write(use(s), "talos_version = \"1.13.4\"\non_suspend = \"later\"")
	w.plan().mustFail("on_suspend", `"wait"`, `"stop"`)

	k.says(guideResume)
	w.write(use(s), "talos_version = \"1.13.4\"\non_suspend = \"stop\"")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))

	// A destroy does not lift a suspension.
	k.says(guideSuspend)
	w.destroy().mustSucceed(0).mustWarn(suspendedBy)
	k.wants("kubectl -n kube-system get lease talosupgrade -o name", "lease.coordination.k8s.io/talosupgrade\n")
}
