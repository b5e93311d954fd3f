// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestApply_RefusedConfigurations(t *testing.T) {
	const document = "\n---\napiVersion: v1alpha1\nkind: KubeletConfig\nimage: ghcr.io/siderolabs/kubelet:v1.35.0\n"

	for name, test := range map[string]struct {
		talos string
		mode  model.ApplyMode
		edit  func(string) string
		want  error
		text  string
	}{
		"no YAML": {"1.13.4", model.ApplyNoReboot, func(string) string { return "machine: [" }, model.ErrApplyInvalid, "yaml: line 1"},
		"nothing": {"1.13.4", model.ApplyNoReboot, func(string) string { return "" }, model.ErrApplyInvalid, "doesn't contain v1alpha1 config"},
		"documents only": {
			"1.14.1", model.ApplyNoReboot, func(string) string { return strings.TrimPrefix(document, "\n---\n") },
			model.ErrApplyInvalid, "doesn't contain v1alpha1 config",
		},
		"unknown field": {
			"1.13.4", model.ApplyNoReboot, func(old string) string { return old + "machines: {}\n" },
			model.ErrApplyInvalid, "unknown keys found during decoding",
		},
		"a document of 1.14 before that": {
			"1.13.4", model.ApplyNoReboot, func(old string) string { return old + document },
			model.ErrApplyInvalid, `"KubeletConfig" "v1alpha1": not registered`,
		},
		"a component in both forms": {
			"1.14.1", model.ApplyNoReboot, func(old string) string { return old + document },
			model.ErrApplyInvalid, "kubelet config is already set in v1alpha1 config (.machine.kubelet)",
		},
		"a document without its image": {
			"1.14.1", model.ApplyNoReboot, func(old string) string {
				return strings.ReplaceAll(old, "  scheduler:\n    image: registry.k8s.io/kube-scheduler:v1.35.0\n", "") +
					"---\napiVersion: v1alpha1\nkind: KubeSchedulerConfig\n"
			},
			model.ErrApplyInvalid, "kube-scheduler image cannot be empty",
		},
		"a document twice": {
			"1.14.1", model.ApplyNoReboot, func(old string) string {
				const scheduler = "---\napiVersion: v1alpha1\nkind: KubeSchedulerConfig\n"

				return strings.ReplaceAll(old, "  scheduler:\n    image: registry.k8s.io/kube-scheduler:v1.35.0\n", "") + scheduler + scheduler
			},
			model.ErrApplyInvalid, "more than one document of kind KubeSchedulerConfig",
		},
		"Kubernetes that is too new": {
			"1.14.1", model.ApplyNoReboot, func(old string) string { return strings.ReplaceAll(old, "kubelet:v1.35.0", "kubelet:v1.38.0") },
			model.ErrApplyInvalid, "version of Kubernetes 1.38.0 is too new to be used with Talos 1.14.1",
		},
		"Kubernetes that is too old": {
			"1.14.1", model.ApplyNoReboot, func(old string) string { return strings.ReplaceAll(old, "kubelet:v1.35.0", "kubelet:v1.31.9") },
			model.ErrApplyInvalid, "version of Kubernetes 1.31.9 is too old to be used with Talos 1.14.1",
		},
		"a change that takes a reboot": {
			"1.13.4", model.ApplyNoReboot, func(old string) string { return strings.ReplaceAll(old, "persist: true", "persist: false") },
			model.ErrApplyInvalid, "this config change can't be applied in immediate mode\ndiff: -.persist: true",
		},
		"no machine type": {
			"1.13.4", model.ApplyNoReboot, func(old string) string { return strings.ReplaceAll(old, "type: controlplane", "type: planet") },
			model.ErrApplyInvalid, `unknown machine type "planet"`,
		},
		"an image that is none": {
			"1.13.4", model.ApplyNoReboot, func(old string) string {
				return strings.ReplaceAll(old, "ghcr.io/siderolabs/kubelet:v1.35.0", "[a, b]")
			}, model.ErrApplyInvalid, "kubelet: image [a b] is not a valid reference",
		},
		"a reboot from 1.14 on": {
			"1.14.1", model.ApplyReboot, func(old string) string { return old + "# a comment\n" },
			model.ErrApplyModeUnsupported, "the REBOOT mode is not supported",
		},
		"a mode that does not exist": {"1.13.4", "soon", func(old string) string { return old }, model.ErrApplyInvalid, `"soon"`},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Talos: test.talos, Kubernetes: "1.35.0"}, func(r rig) {
				before := r.node("cp-0")

				_, err := r.ApplyConfig(r.t.Context(), "cp-0", []byte(test.edit(string(before.Config))), test.mode, false)
				if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
					r.t.Errorf("got %v, want %q", err, test.text)
				}

				r.pass(time.Minute)

				after := r.node("cp-0")
				if !bytes.Equal(after.Config, before.Config) || after.ConfigVersion != 1 || !ready(after) {
					r.t.Errorf("something changed: %+v", after)
				}

				if applied := r.applied("cp-0"); strings.HasPrefix(applied, "OK") || !strings.HasSuffix(applied, "/client") {
					r.t.Errorf("history: %s", applied)
				}
			})
		})
	}
}

func TestApply_Modes(t *testing.T) {
	const slow, fast = "persist: true", "kubelet:v1.34.2"

	for name, test := range map[string]struct {
		talos   string
		mode    model.ApplyMode
		old     string
		to      string
		want    model.ApplyMode
		reboots int
		version int // of the configuration a moment later
	}{
		"auto, at once":            {"1.13.4", model.ApplyAuto, fast, "kubelet:v1.34.3", model.ApplyNoReboot, 0, 2},
		"auto, with a reboot":      {"1.13.4", model.ApplyAuto, slow, "persist: false", model.ApplyReboot, 1, 2},
		"auto of 1.14, at once":    {"1.14.1", model.ApplyAuto, slow, "persist: false", model.ApplyNoReboot, 0, 2},
		"a reboot that was wanted": {"1.13.4", model.ApplyReboot, fast, "kubelet:v1.34.3", model.ApplyReboot, 1, 2},
		"staged":                   {"1.13.4", model.ApplyStaged, slow, "persist: false", model.ApplyStaged, 0, 1},
		"try":                      {"1.13.4", model.ApplyTry, fast, "kubelet:v1.34.3", model.ApplyNoReboot, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Talos: test.talos, Kubernetes: "1.34.2"}, func(r rig) {
				text := r.edited("cp-0", test.old, test.to)

				reply, err := r.ApplyConfig(r.t.Context(), "cp-0", text, test.mode, false)
				if err != nil || reply.Mode != test.want || reply.Details == "" {
					r.t.Fatalf("got %+v, %v", reply, err)
				}

				if state := r.node("cp-0"); state.ConfigVersion != test.version || state.Reboots != test.reboots {
					r.t.Errorf("version %d, %d reboots", state.ConfigVersion, state.Reboots)
				}

				if test.want == model.ApplyReboot {
					_, err := r.ApplyConfig(r.t.Context(), "cp-0", text, model.ApplyNoReboot, false)
					if !errors.Is(err, model.ErrApplyBusy) || !strings.Contains(err.Error(), "node is rebooting") {
						r.t.Errorf("while it reboots: %v", err)
					}

					r.until("cp-0", "down", time.Minute, down)
				}

				if test.want == model.ApplyStaged {
					r.reboot("cp-0")
				}

				r.until("cp-0", "ready with the configuration", 5*time.Minute, func(s model.NodeState) bool {
					return ready(s) && bytes.Equal(s.Config, text)
				})
			})
		})
	}
}

func TestApply_StagedConfigurationIsReplacedByALaterOne(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r rig) {
		staged := r.edited("cp-0", "persist: true", "persist: false")
		if _, err := r.ApplyConfig(r.t.Context(), "cp-0", staged, model.ApplyStaged, false); err != nil {
			r.t.Fatal(err)
		}

		r.mustApply("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.2")

		if state := r.reboot("cp-0"); !kubeletRuns("1.35.2")(state) || !strings.Contains(string(state.Config), "persist: true") {
			r.t.Errorf("after the reboot:\n%s", state.Config)
		}
	})
}

func TestApply_DryRunChangesNothing(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "*", Step: model.StepApply, Effect: model.EffectFail}})

		reply, err := r.ApplyConfig(r.t.Context(), "cp-0", r.edited("cp-0", "v1.34.2", "v1.35.2"), model.ApplyNoReboot, true)
		if err != nil || !strings.Contains(reply.Details, "Changed: kubelet, kube-apiserver, ") {
			r.t.Fatalf("got %+v, %v", reply, err)
		}

		r.pass(2 * time.Minute)

		if state := r.node("cp-0"); state.ConfigVersion != 1 || !serves(model.APIServerName, "registry.k8s.io/kube-apiserver:v1.34.2")(state) {
			r.t.Errorf("something changed: %+v", state)
		}

		if events := r.log.text(); !strings.Contains(events, "dry_run=true") {
			r.t.Errorf("history:\n%s", events)
		}
	})
}

func TestApply_SameBytesAreAWriteThatChangesNothing(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.mustApply("cp-0")
		r.pass(time.Minute)

		state := r.node("cp-0")
		if pod := state.StaticPods[model.APIServerName]; state.ConfigVersion != 2 || pod.ConfigVersion != 1 || pod.PodConfigVersion != 1 {
			r.t.Errorf("version %d, API server %+v", state.ConfigVersion, pod)
		}
	})
}

func TestApply_TwoAtATime(t *testing.T) {
	for talos, want := range map[string]error{"1.13.2": nil, "1.13.3": model.ErrApplyBusy, "1.14.1": model.ErrApplyBusy} {
		t.Run(talos, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Talos: talos, Kubernetes: "1.34.2"}, func(r rig) {
				first := make(chan error)

				go func() { first <- r.apply("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.1") }()

				r.pass(300 * time.Millisecond)

				err := r.apply("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.2")
				if !errors.Is(err, want) {
					r.t.Errorf("the second: got %v, want %v", err, want)
				}

				if err := <-first; err != nil {
					r.t.Errorf("the first: %v", err)
				}

				// If both were changed, the last writer wins.
				version := "1.35.2"
				if want != nil {
					version = "1.35.1"
				}

				r.until("cp-0", "at "+version, 3*time.Minute, kubeletRuns(version))
				r.pass(2 * time.Minute)
				r.until("cp-0", "still at "+version, time.Second, kubeletRuns(version))
			})
		})
	}
}

func TestApply_CallerThatHasGoneAppliesNothing(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		cancel()

		_, err := r.ApplyConfig(ctx, "cp-0", r.edited("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.2"), model.ApplyNoReboot, false)
		r.pass(time.Minute)

		if !errors.Is(err, context.Canceled) || r.node("cp-0").ConfigVersion != 1 {
			r.t.Errorf("got %v and version %d", err, r.node("cp-0").ConfigVersion)
		}
	})
}

func TestApply_EndsWithoutItsCaller(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		ctx, cancel := context.WithTimeout(r.t.Context(), 100*time.Millisecond)
		defer cancel()

		_, err := r.ApplyConfig(ctx, "cp-0", r.edited("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.2"), model.ApplyNoReboot, false)
		if !errors.Is(err, context.DeadlineExceeded) {
			r.t.Errorf("got %v", err)
		}

		r.until("cp-0", "at the new kubelet", 3*time.Minute, kubeletRuns("1.35.2"))
	})
}

func TestApply_Faults(t *testing.T) {
	for _, test := range []struct {
		fault   model.Fault
		want    error
		version int
		applied string
		moves   bool
	}{
		{model.Fault{Effect: model.EffectFail, Message: "no such thing"}, model.ErrApplyInvalid, 1, "InvalidArgument/kubelet/client", false},
		{model.Fault{Effect: model.EffectBusy}, model.ErrApplyBusy, 1, "FailedPrecondition/kubelet/client", false},
		{model.Fault{Effect: model.EffectConnectionLost}, model.ErrConnectionLost, 2, "OK/kubelet/client", true},
		{model.Fault{Effect: model.EffectOverwritten}, nil, 3, "OK/kubelet/client OK/kubelet/fault", false},
		{model.Fault{Effect: model.EffectFail, Component: model.SchedulerName}, nil, 2, "OK/kubelet/client", true},
		{model.Fault{Effect: model.EffectFail, Component: model.KubeletName}, model.ErrApplyInvalid, 1, "InvalidArgument/kubelet/client", false},
	} {
		test.fault.Node, test.fault.Step, test.fault.Times = "cp-0", model.StepApply, 1

		t.Run(string(test.fault.Effect)+" "+test.fault.Component, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
				before := r.node("cp-0")
				r.SetFaults([]model.Fault{test.fault})

				err := r.apply("cp-0", "kubelet:v1.34.2", "kubelet:v1.35.2")
				if !errors.Is(err, test.want) || !strings.Contains(errorText(err), test.fault.Message) {
					r.t.Errorf("got %v, want %v", err, test.want)
				}

				state := r.node("cp-0")
				if state.ConfigVersion != test.version || r.applied("cp-0") != test.applied {
					r.t.Errorf("version %d, history %s", state.ConfigVersion, r.applied("cp-0"))
				}

				if !test.moves && !bytes.HasPrefix(state.Config, before.Config) {
					r.t.Errorf("the old configuration is lost:\n%s", state.Config)
				}

				r.pass(2 * time.Minute)

				if moved := kubeletRuns("1.35.2")(r.node("cp-0")); moved != test.moves {
					r.t.Errorf("moved: %t, %+v", moved, r.node("cp-0").KubeletService)
				}
			})
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}

func TestApply_OfAPersonIsNotStruckByFaults(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "*", Step: model.StepApply, Effect: model.EffectFail}})

		if err := r.SetImage("cp-0", model.KubeletName, newKubelet); err != nil {
			r.t.Fatal(err)
		}

		if applied := r.applied("cp-0"); applied != "OK/kubelet/other" {
			r.t.Errorf("history: %s", applied)
		}

		refusal := errors.New("not today")
		if err := r.SetConfigByHand("cp-0", func(string) (string, error) { return "", refusal }); !errors.Is(err, refusal) {
			r.t.Errorf("got %v", err)
		}
	})
}
