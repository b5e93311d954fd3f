// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// schematic is one with extensions in it, as far as its ID tells.
const schematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

// TestAccClusterThatMustNotBeTouched is about clusters in which an upgrade
// would do harm.
func TestAccClusterThatMustNotBeTouched(t *testing.T) {
	full(t)

	for title, test := range map[string]struct {
		options sim.Options
		extra   string
		// atApply tells that the plan only warns.
		atApply bool
		says    []string
	}{
		"component images are not pinned": {
			sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosLegacy, Unpinned: true},
			"", true,
			[]string{"component-images", `{"machine":{"kubelet":{"image":"ghcr.io/siderolabs/kubelet:v`},
		},
		"two members of etcd": {
			sim.Options{ControlPlanes: 2, Talos: talosModern},
			"", true,
			[]string{"two-members"},
		},
		"image without the schematic": {
			sim.Options{ControlPlanes: 1, Talos: talosModern, Schematic: schematic},
			"\ninstaller_image = \"ghcr.io/siderolabs/installer\"", false,
			[]string{"installer_image", schematic},
		},
		"image for another platform": {
			sim.Options{ControlPlanes: 1, Talos: talosModern, Schematic: schematic},
			"\ninstaller_image = \"factory.talos.dev/aws-installer/" + schematic + "\"", false,
			[]string{"installer_image", "metal"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := start(t, test.options)
			w := newWorkspace(t)
			w.write(use(s), `talos_version = "1.13.4"`+test.extra)

			if test.atApply {
				w.plan().mustSucceed(2).mustWarn(test.says[0])
				w.apply().mustFail(test.says...)
			} else {
				w.plan().mustFail(test.says...)
			}

			s.unchanged()
		})
	}
}

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

func TestAccTimeLimitStopsBetweenNodes(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\ntimeouts = { create = \"2m\" }")

	w.apply().mustFail("timeouts", "run apply again")

	judged := s.verdict()
	for name, node := range judged.Nodes {
		if node.Cordoned || node.Installs != node.Reboots {
			t.Errorf("%s was left in the middle of its turn", name)
		}
	}

	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
}
