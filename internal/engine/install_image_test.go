// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// naming is a request that has the machine configurations follow.
func naming(target string) engine.Request {
	request := to(target)
	request.Policy.SyncInstallImage = true

	return request
}

func TestInstallImageFollowsAConfirmedUpgrade(t *testing.T) {
	for name, given := range map[string]struct {
		setup  setup
		target string
	}{
		"in v1alpha1":  {setup: setup{Options: model.Options{Talos: fromLegacy}}, target: toLegacy},
		"in documents": {setup: setup{Options: model.Options{Talos: "1.14.0", Documents: true}}, target: "1.14.1"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, given.setup, func(r *rig) {
				r.Must(r.Worker("run-1"), naming(given.target))
				r.At(given.target)

				for _, node := range r.World().Nodes() {
					if !strings.HasSuffix(node.InstallImage, ":v"+given.target) {
						t.Errorf("the configuration of %s names %s", node.Name, node.InstallImage)
					}
				}

				again := r.Worker("run-2")
				r.Must(again, naming(given.target))

				if _, mutating := again.Client.Calls(); mutating > 0 {
					t.Errorf("another upgrade made %d mutating calls", mutating)
				}
			})
		})
	}
}

func TestInstallImageIsLeftAloneUnlessAskedFor(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		before := r.State("worker-0").InstallImage
		r.Must(r.Worker("run-1"), to(toLifecycle))

		if after := r.State("worker-0").InstallImage; after != before || len(r.Judge.Of(history.KindConfig)) > 0 {
			t.Errorf("the configuration names %s, was %s", after, before)
		}
	})
}

// A configuration without an image means Talos' own choice.
func TestInstallImageThatIsUnsetStaysUnset(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		before := r.State("worker-0").InstallImage

		err := r.World().SetConfigByHand("worker-0", func(old string) (string, error) {
			return strings.Replace(old, "    image: "+before+"\n", "", 1), nil
		})
		if err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-1"), naming(toLifecycle))
		r.At(toLifecycle)

		if after := r.State("worker-0").InstallImage; before == "" || after != "" {
			t.Errorf("the configuration names %q, named %q and then nothing", after, before)
		}
	})
}

// A fallback is no confirmed upgrade.
func TestInstallImageDoesNotFollowAFallback(t *testing.T) {
	faults := []model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback}}

	inCluster(t, setup{Options: model.Options{Faults: faults}}, func(r *rig) {
		if err := r.Worker("run-1").Apply(context.Background(), naming(toLifecycle)); err == nil {
			t.Fatal("the node did not fall back")
		}

		if image := r.State("worker-0").InstallImage; strings.Contains(image, toLifecycle) {
			t.Errorf("the configuration names %s", image)
		}
	})
}

// A run that dies between the confirmation and the change leaves it to the next.
func TestInstallImageFollowsAfterACrash(t *testing.T) {
	for _, kind := range harness.Crashes() {
		t.Run(string(kind), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1}}, func(r *rig) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				first := r.Worker("run-1")
				first.Client.Intercept(atMethod("Configure", newStrike(kind, atWill, cancel)))
				_ = first.Apply(ctx, naming(toLifecycle))

				r.Must(r.Worker("run-2"), naming(toLifecycle))
				r.At(toLifecycle)
				r.Once()

				if changes := r.configured(); len(changes) != 2 {
					t.Errorf("the configurations were changed %v, want each once", changes)
				}

				for _, node := range r.World().Nodes() {
					if !strings.HasSuffix(node.InstallImage, ":v"+toLifecycle) {
						t.Errorf("the configuration of %s names %s", node.Name, node.InstallImage)
					}
				}
			})
		})
	}
}

// To be refused costs a warning and nothing else: the upgrade is done.
func TestInstallImageThatIsRefusedIsAWarning(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(withCall("Configure", cluster.ErrRefused))
		r.Must(w, naming(toLifecycle))
		r.At(toLifecycle)

		if warned := w.Texts(cluster.EventWarning); len(warned) != 5 || !strings.Contains(warned[0], "could not be made to name it") {
			t.Errorf("told %q, want a warning for each node", warned)
		}
	})
}
