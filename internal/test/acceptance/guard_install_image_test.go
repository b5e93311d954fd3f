// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccInstallImageFollows checks the image in a configuration with several documents;
// TestAccInstallImageFollowsEachHop checks machine.install.image.
func TestAccInstallImageFollows(t *testing.T) {
	full(t)

	const from, target = "1.14.0", "1.14.1"

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: from, Documents: true})
	before := s.configs()
	w := newWorkspace(t)

	w.write(use(s), "talos_version = "+quote(target)+"\nsync_install_image = true")
	w.apply().mustSucceed(0)
	s.wantUpgraded(target, once(1, 1))

	after := s.configs()
	for _, node := range []string{"cp-0", "worker-0"} {
		image, isText := at(w.attributes(), "nodes", node, "install_image").(string)
		if !isText || !strings.HasSuffix(image, ":v"+target) {
			t.Errorf("the image of %s in state is %q", node, image)
		}

		// Nothing else in the configuration changes, byte for byte.
		if named := strings.Replace(before[node], ":v"+from, ":v"+target, 1); after[node] != named {
			t.Errorf("the configuration of %s became\n%s\nwant\n%s", node, after[node], named)
		}
	}

	w.plan().mustSucceed(0)
}
