// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// installer is the image in the machine configurations of these tests at first, without the version.
const installer = "ghcr.io/siderolabs/installer:v"

// wantNamed wants the configurations of the nodes to have the image instead of the one for the version, and all
// configurations to be unchanged apart from that.
func (s *simulated) wantNamed(before map[string]string, from, image string, nodes ...string) {
	s.t.Helper()

	for node, config := range s.configs() {
		want := before[node]
		if slices.Contains(nodes, node) {
			want = strings.Replace(want, installer+from, image, 1)
		}

		if config != want {
			s.t.Errorf("the configuration of %s is\n%s\nwant\n%s", node, config, want)
		}
	}
}

// TestAccInstallImageFollowsEachHop: a run that stops in between must not leave an old image behind, and an image of
// the user's own has to be written as it is. An image from a module has a tag, and each hop has to use its own.
func TestAccInstallImageFollowsEachHop(t *testing.T) {
	full(t)

	const mirror = "mirror.example/siderolabs/installer"

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosBehind})
	before := s.configs()

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nallow_intermediate_versions = true\nsync_install_image = true\ninstaller_image = "+quote(mirror+":v"+talosTarget))
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, each(2, 1, 1))
	s.wantNamed(before, talosBehind, mirror+":v"+talosTarget, "cp-0", "worker-0")

	changes := map[string]int{}
	for _, change := range s.configured() {
		changes[change]++
	}

	if changes["installer on cp-0"] != 2 || changes["installer on worker-0"] != 2 || len(changes) != 2 {
		t.Errorf("the configurations were changed %v, want one change for each hop", changes)
	}

	w.plan().mustSucceed(0)

	if written := w.attributes()["installer_image"]; written != mirror+":v"+talosTarget {
		t.Errorf("installer_image in state is %q, want what was written", written)
	}

	// Another module that manages the configurations can read it there.
	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n\ndata \"talosupgrade_current_versions\" \"this\" {}\n\n" +
		"output \"installer\" { value = data.talosupgrade_current_versions.this.images.installer }\n")
	w.apply().mustSucceed(0)

	if got := w.output("installer"); got != mirror+":v"+talosTarget {
		t.Errorf("the data source says %q", got)
	}
}
