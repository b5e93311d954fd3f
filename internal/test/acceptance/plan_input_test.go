// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// wrongRoll has arguments of the resource that cannot work, the line that is at fault, and what the only error about
// it says.
type wrongRoll struct {
	arguments, line string
	says            []string
}

func wrongRolls() map[string]wrongRoll {
	const other = "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

	return map[string]wrongRoll{
		"a part of a worker": {
			"", `max_unavailable = "1.5"`,
			[]string{"max_unavailable", `"1.5"`, "whole number"},
		},
		"canary that does not exist": {
			"", `canary = ["worker-0", "nobody"]`,
			[]string{"canary[1]", "no node nobody", "kubectl get nodes"},
		},
		"canary that is a control plane": {
			"", `canary = ["cp-0"]`,
			[]string{"canary[0]", "cp-0", "control plane"},
		},
		"canary twice": {
			"", `canary = ["worker-0", "worker-0"]`,
			[]string{"canary[1]", "canary[0]", "worker-0"},
		},
		"canary that is held": {
			`node_overrides = { "worker-0" = { hold = true } }`, `canary = ["worker-0"]`,
			[]string{"canary[0]", "worker-0", "hold"},
		},
		"hold of a node that does not exist": {
			"", `node_overrides = { "nobody" = { hold = true } }`,
			[]string{`node_overrides["nobody"]`, "no node nobody", "kubectl get nodes"},
		},
		"image of a node that does not exist": {
			"", `node_overrides = { "nobody" = { installer_image = "` + other + `" } }`,
			[]string{`node_overrides["nobody"]`, "no node nobody", "kubectl get nodes"},
		},
		"image without the schematic of the nodes": {
			"", `installer_image = "ghcr.io/siderolabs/installer"`,
			[]string{"installer_image", schematic},
		},
		"image for another platform": {
			"", `installer_image = "factory.talos.dev/aws-installer/` + schematic + `"`,
			[]string{"installer_image", "aws", "metal"},
		},
		"image without the schematic of its node": {
			"", `node_overrides = { "worker-0" = { installer_image = "ghcr.io/siderolabs/installer" } }`,
			[]string{`node_overrides["worker-0"].installer_image`, schematic},
		},
		"image of a node for another platform": {
			"", `node_overrides = { "worker-0" = { installer_image = "` + strings.Replace(other, "metal", "aws", 1) + `" } }`,
			[]string{`node_overrides["worker-0"].installer_image`, "aws", "metal"},
		},
		"image of a node with another tag": {
			"", `node_overrides = { "worker-0" = { installer_image = "` + other + `:v1.13.3" } }`,
			[]string{`node_overrides["worker-0"].installer_image`, "has the tag v1.13.3"},
		},
		"malformed intermediate version": {
			"allow_intermediate_versions = true", `intermediate_versions = ["1.12.6", "newest"]`,
			[]string{"intermediate_versions[1]", "newest", "1.13.4"},
		},
		"intermediate version that is on no way": {
			"allow_intermediate_versions = true", `intermediate_versions = ["1.12.6", "1.14.1"]`,
			[]string{"intermediate_versions[1]", "1.14.1"},
		},
		"intermediate version where the way ends": {
			"allow_intermediate_versions = true", `intermediate_versions = ["1.13.2"]`,
			[]string{"intermediate_versions[0]", "1.13.2"},
		},
		"intermediate versions without leave": {
			"", `intermediate_versions = ["1.12.6"]`,
			[]string{"intermediate_versions", "allow_intermediate_versions"},
		},
		"settle that is no time": {
			"", `settle = "a while"`,
			[]string{"settle", "a while", "0s"},
		},
	}
}

func TestAccWrongRoll(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosLegacy, Schematic: schematic})

	// In a complete run they run in parallel: the group ends once all of them have ended.
	t.Run("each", func(t *testing.T) {
		for title, wrong := range wrongRolls() {
			t.Run(title, func(t *testing.T) {
				// This one needs both the configuration and the cluster.
				if title != "canary that does not exist" {
					full(t)
				}

				w := newWorkspace(t)
				w.write(use(s), "talos_version = \"1.13.4\"\n"+wrong.arguments+"\n"+wrong.line)

				lines := []string{wrong.line}
				if strings.Contains(wrong.says[0], "].") {
					// The CLI finds no line for a part of an element, so the error itself has to name it.
					lines = append(lines, `resource "talosupgrade_cluster" "this" {`)
				}

				w.plan().mustFail(wrong.says...).mustPoint(t, lines...)
				w.apply().mustFail(wrong.says...)

				if w.attributes() != nil {
					t.Error("something was stored")
				}
			})
		}
	})

	s.unchanged()
}
