// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// schematic is the ID of a schematic that is not empty.
const schematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

func TestAccNodesKeepTheirSchematic(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Schematic: schematic})
	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\norder = \"control-planes-first\"\nreboot_mode = \"powercycle\"")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))

	for name, node := range s.verdict().Nodes {
		if node.Schematic != schematic {
			t.Errorf("%s now runs schematic %q", name, node.Schematic)
		}
	}

	if got := at(w.attributes(), "nodes", "cp-0", "schematic"); got != schematic {
		t.Errorf("the schematic in state is %v", got)
	}
}

// TestAccExtensionThatIsLost: the name of a custom image does not say what is in it. The first node that comes back
// without an extension has to stop the roll and stay cordoned, until its loss is accepted.
func TestAccExtensionThatIsLost(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Extensions: []string{"iscsi-tools"}})
	s.policy = []checker.Option{checker.Skips("schematic")}
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)

	for range 2 {
		w.apply().mustFail("worker-0", "ran the extension iscsi-tools before and came back without", model.OwnRepository+":v1.13.4", "rollback")
		s.untouched("cp-0")
		s.wantCordoned("worker-0")
	}

	w.write(use(s), "talos_version = \"1.13.4\"\npreflight = { skip = [\"schematic\"] }")
	w.apply().mustSucceed(0).mustWarn("came back without")
	s.wantUpgraded(talosTarget, once(1, 1))
	w.plan().mustSucceed(0)
}

// TestAccPlatformIsKept: a UKI of the generic installer is built for metal. The plan has to say which image is used
// instead, and an override that would lose the platform has to be refused.
func TestAccPlatformIsKept(t *testing.T) {
	full(t)

	const factory = "factory.talos.dev/aws-installer/" + model.EmptySchematic

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Platform: "aws", UKI: true})
	w := newWorkspace(t)

	w.write(use(s), "talos_version = \"1.13.4\"\ninstaller_image = \"ghcr.io/siderolabs/installer\"")
	w.apply().mustFail("ghcr.io/siderolabs/installer", "metal", "aws")
	s.unchanged()

	w.write(use(s), `talos_version = "1.13.4"`)
	w.plan().mustSucceed(2).mustWarn(factory)
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))

	for _, install := range s.installs() {
		if install.Detail["image"] != factory+":v"+talosTarget {
			t.Errorf("%s: %v", install.Node, install.Detail)
		}
	}

	for _, boot := range s.history() {
		if boot.Kind == history.KindBoot && boot.Detail["platform"] != "aws" {
			t.Errorf("%s: %v", boot.Node, boot.Detail)
		}
	}

	w.plan().mustSucceed(0)
}

func TestAccTimeLimitStopsBetweenNodes(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\ntimeouts = { create = \"2m\" }")

	w.apply().mustFail("timeouts", "Run terraform apply again to continue")

	judged := s.verdict()
	for name, node := range judged.Nodes {
		if node.Cordoned || node.Installs != node.Reboots {
			t.Errorf("%s was left in the middle of its turn", name)
		}
	}

	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))

	// Each command has its own limit.
	w.write(use(s), "talos_version = \"1.13.9\"\ntimeouts = {\n  create = \"24h\"\n  update = \"2m\"\n}")
	w.apply().mustFail("timeouts", "Run terraform apply again")
}
