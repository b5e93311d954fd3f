// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const installer = "ghcr.io/siderolabs/installer"

// push replaces what the registries have under the tag of a version, and returns its
// digest.
func (r *rig) push(talos, broken string) string {
	r.T.Helper()

	digest, err := r.World().PushImage(installer+":v"+talos, broken)
	if err != nil {
		r.T.Fatal(err)
	}

	return digest
}

// TestTagThatIsPushedAgainIsExplainedAndGotOver: a node does not download a tag that
// it has. Who reads the failure finds both ways out in it.
func TestTagThatIsPushedAgainIsExplainedAndGotOver(t *testing.T) {
	const tagged = installer + ":v" + toLifecycle

	for name, mend := range map[string]func(r *rig, digest string) engine.Request{
		"removed": func(r *rig, _ string) engine.Request {
			for _, node := range r.World().Nodes() {
				if err := r.World().RemoveImage(context.Background(), node.Name, tagged, model.NamespaceSystem); err != nil {
					r.T.Error(err)
				}
			}

			return to(toLifecycle)
		},
		"by its digest": func(_ *rig, digest string) engine.Request {
			request := to(toLifecycle)
			request.Target.InstallerImage = installer + "@" + digest

			return request
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: fromLifecycle}}, func(r *rig) {
				broken := r.push(toLifecycle, "unexpected EOF in initramfs")

				var mended string

				for _, run := range []string{"run-1", "run-2"} {
					failed := failure(t, r.Worker(run).Apply(context.Background(), to(toLifecycle)), engine.ErrInstaller, "worker-0")

					for _, part := range []string{
						"The node has " + tagged + " as " + broken,
						"talosctl -n " + r.State("worker-0").Address + " image remove --namespace system " + tagged,
						`installer_image = "` + installer + `@sha256:<digest>"`,
					} {
						if !strings.Contains(failed.Remedy, part) {
							t.Errorf("%s: the remedy lacks %q: %s", run, part, failed.Remedy)
						}
					}

					mended = r.push(toLifecycle, "")
				}

				r.Must(r.Worker("run-3"), mend(r, mended))
				r.At(toLifecycle)
			})
		})
	}
}

// TestImageThatCannotBePushedOverIsNotExplained: under a digest there is one image for
// ever, and a node below Talos 1.13 downloads a tag for each upgrade.
func TestImageThatCannotBePushedOverIsNotExplained(t *testing.T) {
	for name, test := range map[string]struct {
		from, to string
		pinned   bool
	}{
		"by its digest": {fromLifecycle, toLifecycle, true},
		"legacy":        {fromLegacy, toLegacy, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: test.from}}, func(r *rig) {
				request := to(test.to)
				if digest := r.push(test.to, "unexpected EOF in initramfs"); test.pinned {
					request.Target.InstallerImage = installer + "@" + digest
				}

				failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), engine.ErrInstaller, "worker-0")
				if strings.Contains(failed.Remedy, "image remove") {
					t.Errorf("the remedy is %q", failed.Remedy)
				}

				again := to(test.to)
				if digest := r.push(test.to, ""); test.pinned {
					again.Target.InstallerImage = installer + "@" + digest
				}

				r.Must(r.Worker("run-2"), again)
				r.At(test.to)
			})
		})
	}
}

// TestOneImageByItsDigestIsRefusedForTwoSteps: it is of one version.
func TestOneImageByItsDigestIsRefusedForTwoSteps(t *testing.T) {
	inCluster(t, setup{Options: model.Options{Talos: "1.11.5"}}, func(r *rig) {
		request := to("1.13.4")
		request.Policy.AllowIntermediate = true
		request.Target.InstallerImage = installer + "@" + r.push("1.13.4", "")

		failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), engine.ErrBlocked, "")
		if said := failed.Error(); strings.Count(said, "a node needs another one before it, of Talos 1.12.") != 1 {
			t.Error(said)
		}
	})
}

// TestImageThatDidNotComeUpIsNamedByItsDigest: whoever allows it to be tried again wants
// to know what that would be.
func TestImageThatDidNotComeUpIsNamedByItsDigest(t *testing.T) {
	fault := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}

	inCluster(t, setup{Options: model.Options{Talos: fromLifecycle, Faults: []model.Fault{fault}}}, func(r *rig) {
		digest := r.push(toLifecycle, "")
		failed := failure(t, r.Worker("run-1").Apply(context.Background(), to(toLifecycle)), engine.ErrFallback, "worker-0")

		if want := "The node has " + installer + ":v" + toLifecycle + " as " + digest; !strings.Contains(failed.Remedy, want) {
			t.Errorf("the remedy lacks %q: %s", want, failed.Remedy)
		}
	})
}
