// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestAccTagThatIsPushedAgain: a node does not download a tag that it has in its memory. The
// failure says what it has, and the image by its digest gets over it.
func TestAccTagThatIsPushedAgain(t *testing.T) {
	full(t)

	const repository, tagged = "ghcr.io/siderolabs/installer", "ghcr.io/siderolabs/installer:v" + talosTarget

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})

	push := func(broken string) string {
		digest, err := s.World.PushImage(tagged, broken)
		if err != nil {
			t.Fatal(err)
		}

		return digest
	}

	old := push("unexpected EOF in initramfs")

	for _, node := range []string{"cp-0", "worker-0"} {
		if _, err := s.World.PullInto(t.Context(), node, tagged, model.NamespaceOwn, nil); err != nil {
			t.Fatal(err)
		}
	}

	w := newWorkspace(t)

	w.write(use(s), "talos_version = "+quote(talosTarget))
	w.apply().mustFail("worker-0", "unexpected EOF in initramfs", "The node has "+tagged+" as "+old, "image remove --namespace inmem "+tagged)

	mended := push("")
	w.apply().mustFail("cp-0", "unexpected EOF in initramfs", old)
	s.wantRunning(talosTarget, "worker-0")

	pinned := repository + "@" + mended
	w.write(use(s), "talos_version = "+quote(talosTarget)+"\ninstaller_image = "+quote(pinned)+"\nsync_install_image = true")
	w.plan().mustSucceed(2).mustWarn(pinned)
	w.apply().mustSucceed(0)
	w.plan().mustSucceed(0)

	if image := at(w.attributes(), "nodes", "cp-0", "install_image"); image != pinned {
		t.Errorf("the image of cp-0 in state is %q, want %s", image, pinned)
	}
}
