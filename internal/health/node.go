// SPDX-License-Identifier: MPL-2.0

package health

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Leaving reports whether a machine in that stage is going out of service. A healthy machine does not enter such
// a stage by itself.
func Leaving(stage cluster.Stage) bool {
	switch stage {
	case cluster.StageUpgrading, cluster.StageRebooting, cluster.StageInstalling, cluster.StageResetting, cluster.StageShuttingDown:
		return true
	case cluster.StageBooting, cluster.StageRunning:
		return false
	default:
		return false
	}
}

// Disables reports whether the machine configuration of the node switches the component off; false if it could
// not be read.
func Disables(node cluster.Node, component cluster.Component) bool {
	return node.Machine != nil && node.Machine.Config != nil && node.Machine.Config.Disabled[component]
}

// Confirmation is how a machine with [cluster.Machine.UpgradePending] came to run its present system.
type Confirmation int

const (
	// Undecided is a machine for which that is unknown, as with GRUB, which names its entries A and B.
	Undecided Confirmation = iota
	// Installed is a machine that runs another system than before the install.
	Installed
	// SentBack is a machine that runs what it ran before the install. A version that was
	// installed over itself looks the same.
	SentBack
)

// ConfirmationOf compares the running system with the one in UpgradeTag: the file name of a UKI such as
// Talos-v1.13.9.efi, or Talos-v1.13.9~1.efi if there was one of that version already. Firmware and bootloader do
// not preserve the case of the name.
func ConfirmationOf(machine cluster.Machine) Confirmation {
	name, isFile := strings.CutSuffix(strings.ToLower(machine.UpgradeTag), ".efi")
	name, isTalos := strings.CutPrefix(name, "talos-")
	before, _, _ := strings.Cut(name, "~")

	switch running := talosTag(machine); {
	case !isFile || !isTalos || running == "":
		return Undecided
	case strings.EqualFold(before, running):
		return SentBack
	default:
		return Installed
	}
}

// talosTag returns what the running system calls its version; empty if it is unknown.
func talosTag(machine cluster.Machine) string {
	if machine.TalosTag != "" || machine.Talos.IsZero() {
		return machine.TalosTag
	}

	return "v" + machine.Talos.String()
}

// UnconfirmedFound says what is known about a machine with [cluster.Machine.UpgradePending].
func UnconfirmedFound(machine cluster.Machine) string {
	runs, key := "the machine runs Talos "+strings.TrimPrefix(talosTag(machine), "v"), "META key 0x06"
	if machine.UpgradeTag != "" {
		key += " (" + machine.UpgradeTag + ")"
	}

	switch ConfirmationOf(machine) {
	case Installed:
		return fmt.Sprintf("%s, which was installed and has not been ready yet; %s names the system before it", runs, key)
	case SentBack:
		return fmt.Sprintf("%s, and %s names that version itself: it was rolled back before the new system was ready, or that version was installed over itself", runs, key)
	default:
		return fmt.Sprintf("%s and has not been ready since another system was installed or it was rolled back; %s does not tell which of the two", runs, key)
	}
}

// UnconfirmedRemedy is what helps then. Waiting comes first, because Talos removes the key in every case. A
// reboot starts the same system again, and a rollback is right only after an install: otherwise it starts the
// system that somebody rolled back from.
func UnconfirmedRemedy(machine cluster.Machine, address string) string {
	wait := fmt.Sprintf("Wait until it is ready (talosctl -n %s get machinestatus): Talos removes the key then", address)

	switch ConfirmationOf(machine) {
	case Installed:
		return fmt.Sprintf("%s. If it does not become ready, talosctl -n %s rollback starts the system before it; a mere reboot starts the same one again.", wait, address)
	case SentBack:
		return wait + ". Until then, the system that was left starts again if this one fails."
	default:
		return wait + "."
	}
}
