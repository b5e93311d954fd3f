// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestConfig_ClusterAtRestRunsWhatItNames(t *testing.T) {
	const mirror = "mirror.example:5000/talos/kubelet"

	for name, test := range map[string]struct {
		options                         model.Options
		kubelet, server, proxy, coreDNS string
		named                           bool // the configuration names the API server's image
		want                            model.Components
	}{
		"pinned": {
			model.Options{Kubernetes: "1.34.2"},
			"ghcr.io/siderolabs/kubelet:v1.34.2", "registry.k8s.io/kube-apiserver:v1.34.2",
			"registry.k8s.io/kube-proxy:v1.34.2", "registry.k8s.io/coredns/coredns:v1.13.2", true, all("1.34.2"),
		},
		"unpinned": {
			model.Options{Kubernetes: "1.34.2", Unpinned: true},
			"ghcr.io/siderolabs/kubelet:v1.34.2",
			"registry.k8s.io/kube-apiserver:v1.34.2", "registry.k8s.io/kube-proxy:v1.34.2",
			"registry.k8s.io/coredns/coredns:v1.13.2", false, all("1.34.2"),
		},
		"without kube-proxy": {
			model.Options{Kubernetes: "1.34.2", ProxyDisabled: true},
			"ghcr.io/siderolabs/kubelet:v1.34.2",
			"registry.k8s.io/kube-apiserver:v1.34.2", "", "registry.k8s.io/coredns/coredns:v1.13.2", true,
			model.Components{APIServer: "1.34.2", ControllerManager: "1.34.2", Scheduler: "1.34.2", Kubelet: "1.34.2"},
		},
		"in documents": {
			model.Options{Talos: "1.14.1", Kubernetes: "1.36.1", Documents: true},
			"ghcr.io/siderolabs/kubelet:v1.36.1",
			"registry.k8s.io/kube-apiserver:v1.36.1", "registry.k8s.io/kube-proxy:v1.36.1",
			"registry.k8s.io/coredns/coredns:v1.14.0", true, all("1.36.1"),
		},
		"in documents without kube-proxy": {
			model.Options{Talos: "1.14.1", Kubernetes: "1.36.1", Documents: true, ProxyDisabled: true},
			"ghcr.io/siderolabs/kubelet:v1.36.1", "registry.k8s.io/kube-apiserver:v1.36.1", "",
			"registry.k8s.io/coredns/coredns:v1.14.0", true,
			model.Components{APIServer: "1.36.1", ControllerManager: "1.36.1", Scheduler: "1.36.1", Kubelet: "1.36.1"},
		},
		"from a mirror, one component pinned to a digest": {
			model.Options{
				Talos: "1.12.0", Kubernetes: "1.34.2", ComponentImages: map[string]string{"kubelet": mirror},
				ConfiguredImages: map[string]string{
					"kube-apiserver": "registry.k8s.io/kube-apiserver:v1.34.1@sha256:" + schematic, "coredns": "mirror.example/coredns:v1.11.0",
				},
			},
			mirror + ":v1.34.2", "registry.k8s.io/kube-apiserver:v1.34.1@sha256:" + schematic, "registry.k8s.io/kube-proxy:v1.34.2",
			"mirror.example/coredns:v1.11.0", true,
			model.Components{APIServer: "1.34.1", ControllerManager: "1.34.2", Scheduler: "1.34.2", Proxy: "1.34.2", Kubelet: "1.34.2"},
		},
	} {
		test.options.ControlPlanes, test.options.Workers = 1, 1

		t.Run(name, func(t *testing.T) {
			inWorld(t, test.options, func(r rig) {
				plane, worker := r.node("cp-0"), r.node("worker-0")

				if named := strings.Contains(string(plane.Config), test.server); named != test.named || plane.ConfigVersion != 1 {
					r.t.Errorf("version %d, names its image: %t\n%s", plane.ConfigVersion, named, plane.Config)
				}

				if plane.ProxyImage != test.proxy || plane.CoreDNSImage != test.coreDNS || worker.ProxyImage != "" {
					r.t.Errorf("rendered: %q, %q, %q", plane.ProxyImage, plane.CoreDNSImage, worker.ProxyImage)
				}

				for _, state := range []model.NodeState{plane, worker} {
					if !kubeletRuns(test.want.Kubelet)(state) || state.KubeletService.Image != test.kubelet || !slices.Contains(state.Images, test.kubelet) {
						r.t.Errorf("kubelet of %s: %+v, images %v", state.Name, state.KubeletService, state.Images)
					}
				}

				if !serves(model.APIServerName, test.server)(plane) || len(plane.StaticPods) != 3 || len(worker.StaticPods) != 0 {
					r.t.Errorf("static pods: %+v, %+v", plane.StaticPods, worker.StaticPods)
				}

				if want := (model.Components{Proxy: test.want.Proxy, Kubelet: test.want.Kubelet}); plane.Components != test.want || worker.Components != want {
					r.t.Errorf("components: %+v, %+v", plane.Components, worker.Components)
				}

				if !strings.HasSuffix(plane.InstallImage, plane.Talos) {
					r.t.Errorf("installer %q of Talos %s", plane.InstallImage, plane.Talos)
				}
			})
		})
	}
}

func all(version string) model.Components {
	return model.Components{APIServer: version, ControllerManager: version, Scheduler: version, Proxy: version, Kubelet: version}
}

func TestConfig_OptionsAboutComponentsAreChecked(t *testing.T) {
	for want, options := range map[string]model.Options{
		"1.14":                              {Talos: "1.13.4", Documents: true},
		"want a component and a repository": {Talos: "1.13.4", ComponentImages: map[string]string{"kubelet": "mirror.example/kubelet:v1.34.0"}},
		"want a component and an image":     {Talos: "1.13.4", ConfiguredImages: map[string]string{"kube-apiserver": "registry.k8s.io/kube-apiserver"}},
		`component image etcd`:              {Talos: "1.13.4", ComponentImages: map[string]string{"etcd": "mirror.example/etcd"}},
	} {
		options.ControlPlanes = 1

		if _, err := model.New(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", options, err, want)
		}
	}
}

func TestConfig_StaysAcrossReboots(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.mustApply("cp-0", "# Set by the platform team.", "# Changed by the platform team.")

		before := r.node("cp-0")
		if before.ConfigVersion != 2 {
			r.t.Errorf("version %d after a change", before.ConfigVersion)
		}

		after := r.reboot("cp-0")
		if !bytes.Equal(after.Config, before.Config) || after.ConfigVersion != 1 {
			r.t.Errorf("after the reboot: version %d\n%s", after.ConfigVersion, after.Config)
		}
	})
}

func TestConfig_UnpinnedControlPlaneMovesWithTalos(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Talos: "1.12.4", Kubernetes: "1.35.0", Unpinned: true}, func(r rig) {
		r.legacy("cp-0", model.LegacyOptions{Image: "ghcr.io/siderolabs/installer:v1.13.4"})
		r.until("cp-0", "down", 3*time.Minute, down)

		state := r.until("cp-0", "ready", 6*time.Minute, ready)
		if !serves(model.APIServerName, "registry.k8s.io/kube-apiserver:v1.36.0")(state) || state.Kubelet.Version != "1.36.0" {
			r.t.Errorf("after the upgrade: %+v", state)
		}

		if state.CoreDNSImage != "registry.k8s.io/coredns/coredns:v1.13.2" || state.ProxyImage != "registry.k8s.io/kube-proxy:v1.36.0" {
			r.t.Errorf("rendered: %q, %q", state.CoreDNSImage, state.ProxyImage)
		}

		if state.Components.Proxy != "1.35.0" {
			r.t.Errorf("kube-proxy moved to %s although its DaemonSet did not change", state.Components.Proxy)
		}

		r.SetProxy("cp-0", "v1.36.0")

		if got := r.node("cp-0").Components.Proxy; got != "1.36.0" || r.components("cp-0", model.ProxyName) != "ready@1.36.0" {
			r.t.Errorf("kube-proxy %q, history %q", got, r.components("cp-0", model.ProxyName))
		}
	})
}

func TestConfig_SetImageKeepsTheRest(t *testing.T) {
	for name, options := range map[string]model.Options{
		"pinned":                 {Kubernetes: "1.34.2"},
		"unpinned":               {Kubernetes: "1.34.2", Unpinned: true},
		"documents":              {Talos: "1.14.1", Kubernetes: "1.35.0", Documents: true},
		"documents, unpinned":    {Talos: "1.14.1", Kubernetes: "1.35.0", Documents: true, Unpinned: true},
		"by hand below a mirror": {Kubernetes: "1.34.2", ComponentImages: map[string]string{"kube-scheduler": "mirror.example:5000/scheduler"}},
	} {
		options.ControlPlanes = 1

		t.Run(name, func(t *testing.T) {
			inWorld(t, options, func(r rig) {
				before := string(r.node("cp-0").Config)

				for component, image := range map[string]string{
					model.KubeletName: newKubelet, model.APIServerName: newServer, model.SchedulerName: newScheduler,
					model.ProxyName: "registry.k8s.io/kube-proxy:v1.35.2",
				} {
					if err := r.SetImage("cp-0", component, image); err != nil {
						r.t.Fatal(err)
					}
				}

				state := r.until("cp-0", "at the new images", 4*time.Minute, func(state model.NodeState) bool {
					return serves(model.APIServerName, newServer)(state) && serves(model.SchedulerName, newScheduler)(state) &&
						kubeletRuns("1.35.2")(state) && state.ProxyImage == "registry.k8s.io/kube-proxy:v1.35.2"
				})

				for line := range strings.Lines(before) {
					if !strings.Contains(line, "image:") && !strings.Contains(line, "{}") && !strings.Contains(string(state.Config), line) {
						r.t.Errorf("line %q is lost in\n%s", line, state.Config)
					}
				}
			})
		})
	}
}

func TestConfig_SetImageRefusesWhatTheMachineHasNot(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2"}, func(r rig) {
		for node, component := range map[string]string{"worker-0": model.APIServerName, "cp-0": "etcd", "cp-7": model.KubeletName} {
			if err := r.SetImage(node, component, "registry.k8s.io/pause:v1.35.2"); err == nil {
				r.t.Errorf("%s of %s was set", component, node)
			}
		}
	})
}

func TestConfig_InstallerImageChangesWithoutAReboot(t *testing.T) {
	const other = "factory.talos.dev/metal-installer/" + schematic + ":v1.14.2"

	for name, options := range map[string]model.Options{
		"in one document":           {Talos: "1.12.6"},
		"in one document from 1.14": {Talos: "1.14.1"},
		"in a document of its own":  {Talos: "1.14.1", Documents: true},
	} {
		options.ControlPlanes, options.Workers, options.SecureBoot = 1, 1, true

		t.Run(name, func(t *testing.T) {
			inWorld(t, options, func(r rig) {
				before := r.node("worker-0")
				wanted := strings.Replace(string(before.Config), "image: "+before.InstallImage, "image: "+other, 1)

				reply, err := r.ApplyConfig(r.t.Context(), "worker-0", []byte(wanted), model.ApplyNoReboot, false)
				if err != nil || reply.Mode != model.ApplyNoReboot {
					r.t.Fatalf("%+v, %v", reply, err)
				}

				time.Sleep(5 * time.Minute)

				after := r.node("worker-0")
				if after.InstallImage != other || string(after.Config) != wanted || after.BootID != before.BootID || !ready(after) {
					r.t.Errorf("got %+v", after)
				}

				if applied := r.log.of("worker-0", history.KindConfig); len(applied) != 1 || applied[0].Detail["changed"] != model.InstallerName {
					r.t.Errorf("the history says %v", applied)
				}

				if err := r.SetImage("worker-0", model.InstallerName, before.InstallImage); err != nil {
					r.t.Fatal(err)
				}

				if text := string(r.node("worker-0").Config); text != string(before.Config) {
					r.t.Errorf("set back by hand:\n%s", text)
				}
			})
		})
	}
}

// TestConfig_StoredForTheNextBoot goes through the modes: what is in effect, what is stored, and what a boot then
// uses.
func TestConfig_StoredForTheNextBoot(t *testing.T) {
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

// TestConfig_PodsAreMadeFromTheFinalOne: since Talos 1.14 two resources have versions, which must not be confused.
func TestConfig_PodsAreMadeFromTheFinalOne(t *testing.T) {
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

func TestConfig_DisabledComponentHasNoPod(t *testing.T) {
	for name, options := range map[string]model.Options{
		"v1alpha1":  {Talos: "1.13.4"},
		"documents": {Talos: "1.14.1", Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			options.ControlPlanes, options.Kubernetes = 1, "1.34.2"
			options.DisabledComponents = []string{model.SchedulerName}

			inWorld(t, options, func(r rig) {
				check := func(when string, version int) {
					r.t.Helper()

					state := r.node("cp-0")
					pod := state.StaticPods[model.SchedulerName]

					if !pod.Disabled || pod.PodImage != "" || pod.PodConfigVersion != 0 || pod.Ready || pod.ConfigVersion != version {
						r.t.Errorf("%s: %+v", when, pod)
					}

					if state.Components.Scheduler != "" || state.Components.ControllerManager != "1.34.2" || !ready(state) {
						r.t.Errorf("%s: %+v, unmet %v", when, state.Components, state.Unmet)
					}
				}

				check("at the start", 1)

				if !strings.Contains(string(r.node("cp-0").Config), "kube-scheduler:v1.34.2") {
					r.t.Error("its image is not named")
				}

				r.mustApply("cp-0", "kube-scheduler:v1.34.2", "kube-scheduler:v1.35.2")
				r.pass(3 * time.Minute)
				check("with another image", 2)
				r.reboot("cp-0")
				check("after a boot", 1)

				// At the start, because of the other image, and after the boot.
				if got := r.components("cp-0", model.SchedulerName); got != "stopped@ stopped@ stopped@" {
					r.t.Errorf("history: %s", got)
				}

				if slices.Contains(r.node("cp-0").Images, newScheduler) {
					r.t.Error("its image was pulled")
				}
			})
		})
	}
}

func TestConfig_ComponentIsSwitchedOffAndOn(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		const off = "  controlPlane:\n    scheduler:\n      disabled: true\n"

		r.mustApply("cp-0", "  install:\n", off+"  install:\n")

		gone := r.until("cp-0", "without a scheduler", time.Minute, func(s model.NodeState) bool { return s.Components.Scheduler == "" })
		if got := r.components("cp-0", model.SchedulerName); got != "stopped@1.34.2 stopped@" {
			r.t.Errorf("history: %s", got)
		}

		if pod := gone.StaticPods[model.SchedulerName]; pod.PodImage != "" || pod.Ready || !ready(gone) {
			r.t.Errorf("switched off: %+v, unmet %v", pod, gone.Unmet)
		}

		r.mustApply("cp-0", off, "")
		r.until("cp-0", "with a scheduler", 2*time.Minute, serves(model.SchedulerName, "registry.k8s.io/kube-scheduler:v1.34.2"))

		if got := r.node("cp-0").Components.Scheduler; got != "1.34.2" {
			r.t.Errorf("version %q", got)
		}
	})
}

func TestConfig_OnlySomeComponentsCanBeDisabled(t *testing.T) {
	_, err := model.New(model.Options{ControlPlanes: 1, Talos: "1.13.4", DisabledComponents: []string{model.APIServerName}})
	if err == nil || !strings.Contains(err.Error(), model.APIServerName) {
		t.Errorf("got %v", err)
	}
}
