// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestWhatIsStoredForTheNextBoot goes through the modes: what is in effect, what
// is stored, and what a boot then takes.
func TestWhatIsStoredForTheNextBoot(t *testing.T) {
	const old, second, first = "kubelet:v1.34.2", "kubelet:v1.34.3", "kubelet:v1.34.4"

	for name, test := range map[string]struct {
		talos   string
		modes   []model.ApplyMode
		active  string
		stored  string // empty for none
		version int
		booted  string
	}{
		"nothing applied":     {"1.13.4", nil, old, "", 1, old},
		"at once":             {"1.13.4", []model.ApplyMode{model.ApplyNoReboot}, second, second, 2, second},
		"staged":              {"1.13.4", []model.ApplyMode{model.ApplyStaged}, old, second, 1, second},
		"tried":               {"1.13.4", []model.ApplyMode{model.ApplyTry}, second, "", 2, old},
		"tried after another": {"1.14.1", []model.ApplyMode{model.ApplyNoReboot, model.ApplyTry}, first, second, 3, second},
		"staged, then tried":  {"1.13.4", []model.ApplyMode{model.ApplyStaged, model.ApplyTry}, first, second, 2, second},
		"tried, then kept":    {"1.13.4", []model.ApplyMode{model.ApplyTry, model.ApplyNoReboot}, first, first, 3, first},
		"before it was shown": {"1.9.6", []model.ApplyMode{model.ApplyNoReboot}, second, "", 2, second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Talos: test.talos, Kubernetes: "1.34.2"}, func(r rig) {
				begin := string(r.node("cp-0").Config)
				text := func(image string) string { return string(replaced(begin, old, image)) }

				for i, mode := range test.modes {
					to := []string{second, first}[i]
					if _, err := r.ApplyConfig(r.t.Context(), "cp-0", []byte(text(to)), mode, false); err != nil {
						r.t.Fatal(err)
					}
				}

				r.pass(time.Minute)

				state := r.node("cp-0")
				if string(state.Config) != text(test.active) || state.ConfigVersion != test.version {
					r.t.Errorf("version %d, want %d and %s in effect:\n%s", state.ConfigVersion, test.version, test.active, state.Config)
				}

				if test.stored == "" && state.PersistentConfig != nil || test.stored != "" && string(state.PersistentConfig) != text(test.stored) {
					r.t.Errorf("stored, want %q:\n%s", test.stored, state.PersistentConfig)
				}

				state = r.reboot("cp-0")
				if string(state.Config) != text(test.booted) || state.ConfigVersion != 1 || state.PersistentConfig != nil {
					r.t.Errorf("after a boot version %d, stored %q, want %s in effect:\n%s",
						state.ConfigVersion, state.PersistentConfig, test.booted, state.Config)
				}
			})
		})
	}
}

// TestPodsAreMadeFromTheFinalConfiguration: from Talos 1.14 on two resources
// have versions, and they must not be confused.
func TestPodsAreMadeFromTheFinalConfiguration(t *testing.T) {
	for talos, want := range map[string]struct{ before, between, after int }{
		"1.13.4": {1, 1, 2},
		"1.14.1": {2, 3, 4},
	} {
		t.Run(talos, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Talos: talos, Kubernetes: "1.34.2"}, func(r rig) {
				check := func(source, made int) {
					r.t.Helper()

					pod := r.node("cp-0").StaticPods[model.APIServerName]
					if pod.SourceVersion != source || pod.ConfigVersion != made || pod.PodConfigVersion != made || !pod.Ready {
						r.t.Errorf("got %+v, want source %d and configuration %d", pod, source, made)
					}
				}

				check(want.before, 1)
				r.mustApply("cp-0")
				r.pass(time.Minute)
				check(want.between, 1)
				r.mustApply("cp-0", "kube-apiserver:v1.34.2", "kube-apiserver:v1.35.2")
				r.pass(3 * time.Minute)
				check(want.after, 2)
			})
		})
	}
}

func replaced(text, old, to string) []byte { return []byte(strings.Replace(text, old, to, 1)) }
