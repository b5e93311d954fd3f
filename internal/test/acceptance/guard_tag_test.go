// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestAccTagThatIsPushedAgain: a node does not download a tag that it has already. The failure has to say what the
// node has, and the image by its digest has to work.
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

// TestAccInstallerImageCarriesATag: a module makes the tag, which is known while planning or not. It has to be that
// of talos_version.
func TestAccInstallerImageCarriesATag(t *testing.T) {
	full(t)

	const repository = "mirror.example/siderolabs/installer"

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)

	// configure makes the image an output of a resource, which is not known before the apply.
	configure := func(tag string) {
		w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n\nresource \"terraform_data\" \"image\" {\n  input = " + quote(repository+":"+tag) + "\n}\n\n" +
			"resource \"talosupgrade_cluster\" \"this\" {\n  talos_version = " + quote(talosTarget) + "\n  installer_image = terraform_data.image.output\n}\n")
	}

	configure("v" + talosModern)
	w.plan().mustSucceed(2)
	w.apply().mustFail("installer_image", "has the tag v"+talosModern, "talos_version is "+talosTarget, "give the image the tag v"+talosTarget)
	s.wantRunning(talosModern, "cp-0", "worker-0")

	configure("latest")
	w.apply().mustFail("installer_image", "the tag latest, which is no version of Talos")

	configure("v" + talosTarget)
	w.apply().mustSucceed(0)
	s.wantRunning(talosTarget, "cp-0", "worker-0")
	w.plan().mustSucceed(0)
}
