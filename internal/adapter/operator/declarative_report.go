// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// The states that matter here. Machines and control planes have others.
const (
	stateInstalling          = "Installing"
	stateBooting             = "Booting"
	stateUpgrading           = "Upgrading"
	stateUpgradingKubernetes = "UpgradingKubernetes"
	stateFailed              = "Failed"
	stateKubernetesFailed    = "KubernetesUpgradeFailed"
)

// mostNames bounds the names in a message.
const mostNames = 5

// machine is what a TalosMachine says.
type machine struct {
	found object
	// own is the version that it is to run by itself, owned by the object that it
	// belongs to, observed what it runs; each is without "v", or empty.
	own, owned, observed string
	state                string
}

func machineFrom(found object, owned string) machine {
	return machine{
		found:    found,
		own:      plain(found.text("spec", "version")),
		owned:    plain(owned),
		observed: plain(found.text("status", "observedVersion")),
		state:    found.text("status", "state"),
	}
}

// moving tells that the machine is being changed. Its observed version may be the
// new one already: the operator notes that when it has asked for the upgrade.
func (m machine) moving() bool {
	return m.state == stateUpgrading || m.state == stateInstalling || m.state == stateBooting
}

func (m machine) failed() bool { return m.state == stateFailed }

// target is what the machine is to run and does not; empty where it is at rest.
func (m machine) target() string {
	for _, wanted := range []string{m.owned, m.own} {
		if wanted != "" && wanted != m.observed {
			return wanted
		}
	}

	if m.moving() {
		return m.observed
	}

	return ""
}

// talosHalf is how far the machines are, with the names of those that failed. What
// follows from the objects alone is not said: it must not look as if an operator
// had reacted where there is none.
func (d *declarative) talosHalf(all holdings) (cluster.OperatorHalf, []string) {
	var (
		moving, failed []string
		observed       []version.Version
		waiting        int
		why            string
	)

	spec := plain(all.plane.text("spec", "version"))
	half := cluster.OperatorHalf{Status: cluster.OperatorIdle}

	for _, one := range all.machines {
		target := one.target()
		if target != "" && (half.Target == "" || target == spec) {
			half.Target = target
		}

		if seen, err := version.Parse(one.observed); err == nil {
			observed = append(observed, seen)
		}

		switch {
		case one.moving():
			moving = append(moving, one.found.name())
		case one.failed():
			failed = append(failed, one.found.name())
			why = cmp.Or(why, one.found.failure())
		case target != "":
			waiting++
		}
	}

	if len(observed) > 0 {
		half.Current = version.Lowest(observed...).String()
	}

	if half.Target != "" {
		half.Undo = fmt.Sprintf("Set spec.version of %s, and of its workers and machines, back to %s.", d.of, cmp.Or(half.Current, "what it was"))
	}

	total := len(all.machines)

	switch {
	case len(moving) > 0:
		half.Status, half.Message = cluster.OperatorWorking, "Upgrading "+machines(moving)
		half.Progress = fmt.Sprintf("%d/%d", total-len(moving)-len(failed)-waiting, total)
	case len(failed) > 0:
		half.Status, half.Message = cluster.OperatorFailed, because("Talos upgrade failed: "+machines(failed), why)
	case total == 0:
		half.Status = planeStatus(all.plane)
	}

	return half, failed
}

// planeStatus is how far the operator is where it keeps no machines.
func planeStatus(plane object) cluster.OperatorStatus {
	switch plane.text("status", "state") {
	case stateUpgrading, stateInstalling:
		return cluster.OperatorWorking
	case stateFailed:
		return cluster.OperatorFailed
	default:
		return cluster.OperatorIdle
	}
}

// kubernetesHalf is how far the control plane is. A failure is told whatever the
// versions are: being asked for another one must not make it look new.
func (d *declarative) kubernetesHalf(plane object) cluster.OperatorHalf {
	wanted := plain(plane.text("spec", "kubeVersion"))
	half := cluster.OperatorHalf{Status: cluster.OperatorIdle, Current: plain(plane.text("status", "observedKubeVersion"))}

	if wanted != half.Current {
		half.Target = wanted
	}

	switch state := plane.text("status", "state"); state {
	case stateUpgradingKubernetes:
		half.Status = cluster.OperatorWorking
		half.Message = fmt.Sprintf("Upgrading Kubernetes: %s → %s", half.Current, wanted)
	case stateKubernetesFailed, stateFailed:
		half.Status = cluster.OperatorFailed
		half.Message = because(fmt.Sprintf("Kubernetes upgrade failed: %s is in the state %s", d.of, state), plane.failure())
	}

	return half
}

func because(what, why string) string {
	if why == "" {
		return what
	}

	return what + ": " + why
}

// machines names machines for people.
func machines(names []string) string {
	noun := "machine "
	if len(names) > 1 {
		noun = "machines "
	}

	if more := len(names) - mostNames; more > 0 {
		names = append(slices.Clone(names[:mostNames]), fmt.Sprintf("%d more", more))
	}

	return noun + strings.Join(names, ", ")
}
