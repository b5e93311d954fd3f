// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// installer is what machine configurations of these tests name at first, without
// the tag.
const installer = "ghcr.io/siderolabs/installer:v"

// wantNamed asserts that of the configurations those of the nodes name the image
// in the place of the one for the version, and that they are as before otherwise.
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

// TestAccInstallImageFollowsEachHop: a run that stops in between leaves nothing
// stale, and an image of the user's own is named as it is.
func TestAccInstallImageFollowsEachHop(t *testing.T) {
	full(t)

	const mirror = "mirror.example/siderolabs/installer"

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosBehind})
	before := s.configs()

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nallow_intermediate_versions = true\nsync_install_image = true\ninstaller_image = "+quote(mirror))
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

	// Whoever manages the configurations gets it from there.
	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n\ndata \"talosupgrade_current_versions\" \"this\" {}\n\n" +
		"output \"installer\" { value = data.talosupgrade_current_versions.this.images.installer }\n")
	w.apply().mustSucceed(0)

	if got := w.output("installer"); got != mirror+":v"+talosTarget {
		t.Errorf("the data source says %q", got)
	}
}

// TestAccInstallImageInTrouble is about configurations that somebody else writes
// as well, or nobody can.
func TestAccInstallImageInTrouble(t *testing.T) {
	full(t)

	for title, test := range map[string]struct {
		script string
		// stale tells that worker-0 keeps what it had, with a warning.
		stale bool
	}{
		"answer lost":        {`faults: [{node: worker-0, step: apply, effect: connection-lost, component: installer}]`, false},
		"refused every time": {`faults: [{node: worker-0, step: apply, effect: fail, component: installer, times: 0}]`, true},
	} {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
			before := s.configs()
			s.faults(test.script)

			w := newWorkspace(t)
			w.write(use(s), "talos_version = \"1.13.4\"\nsync_install_image = true")

			// The upgrade itself is done, whatever becomes of the configuration.
			applied := w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, once(1, 1))

			if test.stale {
				applied.mustWarn("worker-0: the node runs " + installer + talosTarget + ", and its machine configuration could not be made to name it")
				s.wantNamed(before, talosModern, installer+talosTarget, "cp-0")
			} else {
				s.wantNamed(before, talosModern, installer+talosTarget, "cp-0", "worker-0")
			}

			w.plan().mustSucceed(0)
		})
	}
}

// TestAccInstallImageThatIsUnsetStaysUnset: a configuration without an image means
// Talos' own choice.
func TestAccInstallImageThatIsUnsetStaysUnset(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})

	without := strings.Replace(s.configs()["cp-0"], "    image: "+installer+talosModern+"\n", "", 1)
	if without == s.configs()["cp-0"] {
		t.Fatal("the configuration names no image from the beginning")
	}

	s.overwrite("cp-0", without)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nsync_install_image = true")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 0))

	if config := s.configs()["cp-0"]; config != without {
		t.Errorf("the configuration became\n%s", config)
	}
}
