// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccInstallImageFollows is about machine.install.image, in both generations of
// machine configurations.
func TestAccInstallImageFollows(t *testing.T) {
	full(t)

	for title, test := range map[string]struct {
		options sim.Options
		target  string
	}{
		"v1alpha1":  {sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern}, talosTarget},
		"documents": {sim.Options{ControlPlanes: 1, Workers: 1, Talos: "1.14.0", Documents: true}, "1.14.1"},
	} {
		t.Run(title, func(t *testing.T) {
			s := start(t, test.options)
			before := s.configs()
			w := newWorkspace(t)

			w.write(use(s), "talos_version = "+quote(test.target)+"\nsync_install_image = true")
			w.apply().mustSucceed(0)
			s.wantUpgraded(test.target, once(1, 1))

			after := s.configs()
			for _, node := range []string{"cp-0", "worker-0"} {
				image, isText := at(w.attributes(), "nodes", node, "install_image").(string)
				if !isText || !strings.HasSuffix(image, ":v"+test.target) {
					t.Errorf("the image of %s in state is %q", node, image)
				}

				// Nothing else of the configuration changes, byte for byte.
				named := strings.Replace(before[node], ":v"+test.options.Talos, ":v"+test.target, 1)
				if after[node] != named {
					t.Errorf("the configuration of %s became\n%s\nwant\n%s", node, after[node], named)
				}
			}

			w.plan().mustSucceed(0)
		})
	}
}

// TestAccInstallImageStays: nothing is written where nobody asked for it.
func TestAccInstallImageStays(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	before := s.configs()

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0)

	if after := s.configs(); after["cp-0"] != before["cp-0"] {
		t.Errorf("the configuration is\n%s\nand was\n%s", after["cp-0"], before["cp-0"])
	}
}
