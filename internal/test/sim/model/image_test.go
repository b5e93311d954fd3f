// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const badArchive = "error running installer: unexpected EOF in initramfs"

// digestOf returns the digest that a machine has under a reference; empty if it has none.
func (r rig) digestOf(name, reference string, in model.ImageNamespace) string {
	r.t.Helper()

	list, err := r.Images(r.t.Context(), name, in)
	if err != nil {
		r.t.Fatal(err)
	}

	at := slices.IndexFunc(list, func(image model.Image) bool { return image.Name == reference })
	if at < 0 {
		return ""
	}

	return list[at].Digest
}

// try pulls an image, unless it is there already, and returns how its installer ends.
func (r rig) try(name, reference string) (int, string) {
	r.t.Helper()

	if _, err := r.Pull(r.t.Context(), name, reference, nil); err != nil {
		r.t.Fatal(err)
	}

	var last string

	exit, err := r.Install(r.t.Context(), name, reference, func(line string) { last = line })
	if err != nil {
		r.t.Fatal(err)
	}

	return exit, last
}

func TestImage_TagThatIsPushedAgainIsNotDownloadedAgain(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		repository, _, _ := strings.Cut(factoryImage, ":v")

		broken, err := r.PushImage(factoryImage, badArchive)
		if err != nil {
			t.Fatal(err)
		}

		if exit, last := r.try("worker-0", factoryImage); exit != 1 || last != badArchive {
			t.Fatalf("the broken build ended with %d: %s", exit, last)
		}

		mended, err := r.PushImage(factoryImage, "")
		if err != nil || mended == broken {
			t.Fatalf("pushed %s over %s, %v", mended, broken, err)
		}

		if named, err := r.Pull(r.t.Context(), "worker-0", factoryImage, nil); err != nil || named != repository+"@"+broken {
			t.Errorf("a pull of what is there has %s, %v, want %s", named, err, broken)
		}

		if exit, _ := r.try("worker-0", factoryImage); exit != 1 || r.node("worker-0").Armed {
			t.Errorf("the tag installs what was not downloaded: exit %d", exit)
		}

		// Under its digest, the other build is another image, with and without a tag.
		for _, reference := range []string{factoryImage + "@" + mended, repository + "@" + mended} {
			if named, err := r.Pull(r.t.Context(), "worker-0", reference, nil); err != nil || named != repository+"@"+mended {
				t.Errorf("%s is %s, %v", reference, named, err)
			}
		}

		if _, err := r.Install(r.t.Context(), "worker-0", factoryImage+"@"+mended, nil); !errors.Is(err, model.ErrImageMissing) {
			t.Errorf("an installer is found under a name that no store has: %v", err)
		}

		if exit, last := r.try("worker-0", repository+"@"+mended); exit != 0 {
			t.Errorf("the mended build ended with %d: %s", exit, last)
		}

		if err := r.RemoveImage(r.t.Context(), "worker-0", factoryImage, model.NamespaceSystem); err != nil {
			t.Fatal(err)
		}

		if err := r.RemoveImage(r.t.Context(), "worker-0", factoryImage, model.NamespaceSystem); !errors.Is(err, model.ErrImageNotFound) {
			t.Errorf("what is not there was removed: %v", err)
		}

		if exit, last := r.try("worker-0", factoryImage); exit != 0 || r.digestOf("worker-0", factoryImage, model.NamespaceSystem) != mended {
			t.Errorf("the tag that was removed ended with %d: %s", exit, last)
		}
	})
}

func TestImage_DigestThatNobodyPushedIsNotFound(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
		repository, _, _ := strings.Cut(factoryImage, ":v")

		if _, err := r.Pull(r.t.Context(), "cp-0", repository+"@sha256:"+strings.Repeat("0", 64), nil); !errors.Is(err, model.ErrImageNotFound) {
			t.Errorf("pulled it: %v", err)
		}

		sum, err := r.ImageDigest(factoryImage)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := r.Pull(r.t.Context(), "cp-0", repository+"@"+sum, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestImage_LegacyMachineForgetsItsOwnWhenItGoesDown(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.2"}, func(r rig) {
		broken, err := r.PushImage(factoryImage, badArchive)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := r.LegacyUpgrade(r.t.Context(), "worker-0", model.LegacyOptions{Image: factoryImage}); err != nil {
			t.Fatal(err)
		}

		if sum := r.digestOf("worker-0", factoryImage, model.NamespaceOwn); sum != broken {
			t.Errorf("its own containerd has %q, want %s", sum, broken)
		}

		if sum := r.digestOf("worker-0", factoryImage, model.NamespaceSystem); sum != "" {
			t.Errorf("the kubelet's containerd has %q", sum)
		}

		r.until("worker-0", "back", time.Hour, func(n model.NodeState) bool { return n.Up && n.Stage == model.StageRunning && n.Ready })
		synctest.Wait()

		if list := r.node("worker-0").OwnImages; len(list) != 0 || r.node("worker-0").Talos != "1.12.2" {
			t.Errorf("after the boot it has %q", list)
		}

		if _, err := r.PushImage(factoryImage, ""); err != nil {
			t.Fatal(err)
		}

		if _, err := r.LegacyUpgrade(r.t.Context(), "worker-0", model.LegacyOptions{Image: factoryImage}); err != nil {
			t.Fatal(err)
		}

		r.until("worker-0", "upgraded", time.Hour, func(n model.NodeState) bool { return n.Talos == "1.13.4" })
	})
}
