// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/go-kubernetes/kubernetes/manifests"
	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// describe returns a part of an object as JSON with sorted keys.
func describe(object any) string {
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}

	return string(text)
}

func TestResourceConfig_ComponentImagesArePulledByOperators(t *testing.T) {
	const target = "10.5.0.2"

	legacy := func(into common.ContainerdNamespace, image string) func(*rig, *client.Client) error {
		return func(r *rig, c *client.Client) error {
			return c.ImagePull(r.at(target), into, image) //nolint:staticcheck // what upstream's upgrade calls
		}
	}

	service := func(into common.ContainerdNamespace, image string) func(*rig, *client.Client) error {
		return func(r *rig, c *client.Client) error {
			stream, err := c.ImageClient.Pull(r.at(target), &machine.ImageServicePullRequest{
				Containerd: &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: into}, ImageRef: image,
			})
			if err != nil {
				return err
			}

			for {
				response, err := stream.Recv()
				if err != nil || strings.Contains(response.GetName(), "@sha256:") {
					return err
				}
			}
		}
	}

	for name, pull := range map[string]func(*rig, *client.Client) error{
		"legacy, of a pod":   legacy(common.ContainerdNamespace_NS_CRI, newAPIServer),
		"legacy, of kubelet": legacy(common.ContainerdNamespace_NS_SYSTEM, newKubelet),
		"new, of a pod":      service(common.ContainerdNamespace_NS_CRI, newAPIServer),
		"new, of kubelet":    service(common.ContainerdNamespace_NS_SYSTEM, newKubelet),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
				r.wantCode("by a reader", pull(r, r.client("-reader")), codes.PermissionDenied, "not authorized")

				c := r.client("-operator")

				for i, want := range []struct{ least, most time.Duration }{
					{10 * time.Second, 2 * time.Minute}, // from the registry
					{0, 2 * time.Second},                // found on the machine
				} {
					began := time.Now()

					if err := pull(r, c); err != nil {
						r.Fatal(err)
					}

					if took := time.Since(began); took < want.least || took > want.most {
						r.Errorf("pull %d took %s, want between %s and %s", i+1, took, want.least, want.most)
					}
				}
			})
		})
	}
}

func TestResourceConfig_PullFaultsTellInstallersFromComponents(t *testing.T) {
	const target = "10.5.0.2"

	for name, test := range map[string]struct {
		step                 model.Step
		component, installer codes.Code
	}{
		"of installers": {model.StepPull, codes.OK, codes.NotFound},
		"of components": {model.StepComponentPull, codes.NotFound, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
				c := r.client("")
				r.world.SetFaults([]model.Fault{{Node: "cp-0", Step: test.step, Effect: model.EffectNotFound, Times: 1}})

				err := c.ImagePull(r.at(target), common.ContainerdNamespace_NS_SYSTEM, newKubelet) //nolint:staticcheck // see above
				r.wantCode("the kubelet", err, test.component, "error pulling image")

				_, err = r.pull(c, target, factoryImage)
				r.wantCode("the installer", err, test.installer, "error pulling image")
			})
		})
	}
}

func TestResourceConfig_RemovedFlagsAreFound(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		for node, change := range map[string][2]string{
			"cp-0": {
				"image: " + oldAPIServer,
				"image: " + oldAPIServer + "\n    extraArgs:\n      feature-gates: SizeMemoryBackedVolumes=true",
			},
			"worker-0": {
				"image: " + oldKubelet,
				"image: " + oldKubelet + "\n    extraArgs:\n      pod-infra-container-image: pause:3.9",
			},
		} {
			address := map[string]string{"cp-0": "10.5.0.2", "worker-0": "10.5.0.3"}[node]

			before := checksOf(r, c)
			if _, err := r.submit(c, address, r.configOf(node, change[0], change[1])); err != nil {
				r.Fatalf("%s: %v", node, err)
			}

			after := checksOf(r, c)
			if after.count() != before.count()+1 {
				r.Errorf("%s: found %+v before and %+v after", node, before, after)
			}
		}
	})
}

type findings struct {
	upgrade.ComponentRemovedItemsError
}

func (f findings) count() int {
	return len(f.AdmissionFlags) + len(f.CLIFlags) + len(f.FeatureGates)
}

// checksOf returns what upstream's checks find before an upgrade.
func checksOf(r *rig, c *client.Client) findings {
	r.Helper()

	path, err := upgrade.NewPath("1.34.2", "1.35.0")
	if err != nil {
		r.Fatal(err)
	}

	checks, err := upgrade.NewChecks(path, c.COSI, nil, []string{"10.5.0.2"}, []string{"10.5.0.3"}, r.Logf)
	if err != nil {
		r.Fatal(err)
	}

	var found findings

	err = checks.Run(r.Context())
	if err != nil && !errors.As(err, &found.ComponentRemovedItemsError) {
		r.Fatal(err)
	}

	return found
}

func TestResourceConfig_ManifestsAreThoseOfTheConfiguration(t *testing.T) {
	const proxy = "registry.k8s.io/kube-proxy:v1.34.2"

	for name, test := range map[string]struct {
		disabled bool
		images   int
	}{
		"with kube-proxy":    {false, 1},
		"without kube-proxy": {true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2", ProxyDisabled: test.disabled}, func(r *rig) {
				c := r.client("-reader")

				objects, err := manifests.GetBootstrapManifests(r.at("10.5.0.2"), c.COSI, nil)
				if err != nil || len(objects) < 4 {
					r.Fatalf("%d objects, %v", len(objects), err)
				}

				found := 0
				for _, object := range objects {
					found += strings.Count(describe(object), proxy)
				}

				if found != test.images {
					r.Errorf("kube-proxy's image is there %d times, want %d", found, test.images)
				}

				source, err := safe.StateGetByID[*k8s.BootstrapManifestsConfig](r.at("10.5.0.2"), c.COSI, k8s.BootstrapManifestsConfigID)
				if err != nil || source.TypedSpec().ProxyEnabled == test.disabled {
					r.Errorf("their source: %v, %v", source, err)
				}

				if objects, err := manifests.GetBootstrapManifests(r.at("10.5.0.3"), c.COSI, nil); err != nil || len(objects) != 0 {
					r.Errorf("a worker has %d objects, %v", len(objects), err)
				}
			})
		})
	}
}

func TestResourceConfig_MachinesAreHealthyEnoughForUpstream(t *testing.T) {
	const least = 10 << 30

	inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("-reader")

		disk, err := safe.StateGetByID[*block.VolumeStatus](r.at("10.5.0.2"), c.COSI, "EPHEMERAL")
		if err != nil || disk.TypedSpec().Size < least {
			r.Errorf("disk: %v, %v", disk, err)
		}

		complaints, err := safe.StateListAll[*runtime.Diagnostic](r.at("10.5.0.2"), c.COSI)
		if err != nil || complaints.Len() != 0 {
			r.Errorf("%d complaints, %v", complaints.Len(), err)
		}

		_, err = safe.StateGetByID[*k8s.KubeletSpec](r.at("10.5.0.2"), c.COSI, k8s.KubeletID)
		r.wantCode("a reader and the kubelet", err, codes.PermissionDenied, "not authorized")

		_, err = safe.StateGetByID[*k8s.APIServerConfig](r.at("10.5.0.2"), c.COSI, k8s.APIServerConfigID)
		r.wantCode("a reader and the API server", err, codes.PermissionDenied, "not authorized")

		pods, err := safe.StateListAll[*k8s.StaticPodStatus](r.at("10.5.0.2"), c.COSI)
		if err != nil || pods.Len() != 3 {
			r.Errorf("%d static pods, %v", pods.Len(), err)
		}
	})
}

// document returns a machine configuration as it is served; found is false if there is none.
func (r *rig) document(c *client.Client, address, id string) (text []byte, version uint64, found bool) {
	r.Helper()

	stored, err := safe.StateGetByID[*config.MachineConfig](r.at(address), c.COSI, id)
	if state.IsNotFoundError(err) {
		return nil, 0, false
	}

	if err != nil {
		r.Fatal(err)
	}

	if text, err = stored.Provider().Bytes(); err != nil {
		r.Fatal(err)
	}

	return text, stored.Metadata().Version().Value(), true
}

func TestResourceConfig_StoredIsServedBesideTheOneInEffect(t *testing.T) {
	const target = "10.5.0.2"

	for name, test := range map[string]struct {
		mode             machine.ApplyConfigurationRequest_Mode
		inEffect, stored bool // the new one
		version          uint64
	}{
		"at once": {machine.ApplyConfigurationRequest_NO_REBOOT, true, true, 2},
		"staged":  {machine.ApplyConfigurationRequest_STAGED, false, true, 1},
		"tried":   {machine.ApplyConfigurationRequest_TRY, true, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
				c := r.client("")

				if _, _, found := r.document(c, target, config.PersistentID); found {
					r.Error("something is stored although nothing was applied since the boot")
				}

				before, wanted := r.configOf("cp-0", oldKubelet, oldKubelet), r.configOf("cp-0", oldKubelet, newKubelet)

				if _, err := r.submitWith(c, target, &machine.ApplyConfigurationRequest{Data: wanted, Mode: test.mode}); err != nil {
					r.Fatal(err)
				}

				time.Sleep(time.Minute)

				inEffect := before
				if test.inEffect {
					inEffect = wanted
				}

				if text, version, _ := r.document(c, target, config.ActiveID); !bytes.Equal(text, inEffect) || version != test.version {
					r.Errorf("in effect is version %d, want %d:\n%s", version, test.version, text)
				}

				text, _, found := r.document(c, target, config.PersistentID)
				if found != test.stored || found && !bytes.Equal(text, wanted) {
					r.Errorf("stored is (%t):\n%s", found, text)
				}
			})
		})
	}
}

func TestResourceConfig_PodsHaveTheVersionOfTheFinalOne(t *testing.T) {
	const target = "10.5.0.2"

	inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.14.1", Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")
		check := func(image, version string) {
			r.Helper()

			final, err := safe.StateGetByID[*k8s.APIServerConfig](r.at(target), c.COSI, k8s.FinalAPIServerConfigID)
			if err != nil || final.TypedSpec().Image != image || final.Metadata().Version().String() != version {
				r.Errorf("the final configuration: %v, %v; want version %s with %s", final, err, version, image)
			}

			source, err := safe.StateGetByID[*k8s.APIServerConfig](r.at(target), c.COSI, k8s.APIServerConfigID)
			if err != nil || source.TypedSpec().Image != image || source.Metadata().Version().String() == version {
				r.Errorf("its source: %v, %v; want another version than %s", source, err, version)
			}

			pod, err := safe.StateGetByID[*k8s.StaticPod](r.at(target), c.COSI, k8s.APIServerID)
			if err != nil || !strings.Contains(describe(pod.TypedSpec().Pod), `"talos.dev/config-version":"`+version+`"`) {
				r.Errorf("the pod: %v, %v; want version %s", pod, err, version)
			}
		}

		check(oldAPIServer, "1")

		for range 2 {
			if _, err := r.submit(c, target, r.configOf("cp-0", oldKubelet, newKubelet)); err != nil {
				r.Fatal(err)
			}

			if _, err := r.submit(c, target, r.configOf("cp-0", newKubelet, oldKubelet)); err != nil {
				r.Fatal(err)
			}
		}

		time.Sleep(time.Minute)
		check(oldAPIServer, "1")

		if _, err := r.submit(c, target, r.configOf("cp-0", oldAPIServer, newAPIServer)); err != nil {
			r.Fatal(err)
		}

		time.Sleep(time.Minute)
		check(newAPIServer, "2")
	})

	inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
		_, err := safe.StateGetByID[*k8s.APIServerConfig](r.at(target), r.client("").COSI, k8s.FinalAPIServerConfigID)
		if !state.IsNotFoundError(err) {
			r.Errorf("before 1.14: %v, want no final configuration", err)
		}
	})
}

func TestResourceConfig_DisabledComponentHasNoPod(t *testing.T) {
	const target = "10.5.0.2"

	for _, talos := range []string{"1.13.4", "1.14.1"} {
		t.Run(talos, func(t *testing.T) {
			options := model.Options{
				ControlPlanes: 1, Talos: talos, Kubernetes: "1.34.2", DisabledComponents: []string{model.ControllerManagerName},
			}

			inBubble(t, options, func(r *rig) {
				c := r.client("")

				spec, err := safe.StateGetByID[*k8s.ControllerManagerConfig](r.at(target), c.COSI, k8s.ControllerManagerConfigID)
				if err != nil || spec.TypedSpec().Enabled || spec.TypedSpec().Image == "" {
					r.Errorf("its configuration: %v, %v", spec, err)
				}

				pods, err := safe.StateListAll[*k8s.StaticPod](r.at(target), c.COSI)
				if err != nil || pods.Len() != 2 {
					r.Errorf("%d pods are wanted, %v", pods.Len(), err)
				}

				statuses, err := safe.StateListAll[*k8s.StaticPodStatus](r.at(target), c.COSI)
				if err != nil || statuses.Len() != 2 {
					r.Errorf("%d pods run, %v", statuses.Len(), err)
				}
			})
		})
	}
}

func TestResourceConfig_SeparateDocumentsAreServedAsTheyAre(t *testing.T) {
	options := model.Options{ControlPlanes: 1, Talos: "1.14.1", Kubernetes: "1.34.2", Documents: true}

	inBubble(t, options, func(r *rig) {
		const target = "10.5.0.2"

		c := r.client("")
		events := r.watch(c, target, k8s.NewAPIServerConfig(k8s.APIServerConfigID).Metadata())
		r.next(events, state.Created)

		before, err := r.world.MachineConfig("cp-0")
		if err != nil || !strings.Contains(string(before), "kind: KubeAPIServerConfig") {
			r.Fatalf("%v, the configuration has no document of the API server:\n%s", err, before)
		}

		wanted := r.configOf("cp-0", "image: "+oldAPIServer, "image: "+newAPIServer+"\nextraArgs:\n  profiling: \"false\"")
		if _, err := r.submit(c, target, wanted); err != nil {
			r.Fatal(err)
		}

		updated, ok := r.next(events, state.Updated).(*k8s.APIServerConfig)
		if !ok || updated.TypedSpec().Image != newAPIServer {
			r.Errorf("the API server: %v", updated)
		}

		pod, err := safe.StateGetByID[*k8s.StaticPod](r.at(target), c.COSI, k8s.APIServerID)
		if err != nil || !strings.Contains(describe(pod.TypedSpec().Pod), "--profiling=false") {
			r.Errorf("its pod: %v, %v", pod, err)
		}

		stored, err := safe.StateGetByID[*config.MachineConfig](r.at(target), c.COSI, config.ActiveID)
		if err != nil {
			r.Fatal(err)
		}

		text, err := stored.Provider().Bytes()
		if err != nil || !bytes.Equal(text, wanted) {
			r.Errorf("%v, served:\n%s\nwant:\n%s", err, text, wanted)
		}

		kubelet, err := safe.StateGetByID[*k8s.KubeletStatus](r.at(target), r.client("-reader").COSI, k8s.KubeletID)
		if err != nil || kubelet.TypedSpec().Image != oldKubelet {
			r.Errorf("what a reader may know of the kubelet: %v, %v", kubelet, err)
		}
	})
}

func TestResourceConfig_VersionsBeginAnewAfterAReboot(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		if _, err := r.submit(c, "10.5.0.2", r.configOf("cp-0", oldAPIServer, newAPIServer)); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "running the new API server", longest, func(s model.NodeState) bool {
			return s.StaticPods[model.APIServerName].PodImage == newAPIServer && s.StaticPods[model.APIServerName].Ready
		})

		if err := c.Reboot(r.at("10.5.0.2")); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "down", longest, down)
		r.until("cp-0", "ready", longest, ready)

		now, err := safe.StateGetByID[*k8s.APIServerConfig](r.at("10.5.0.2"), r.client("").COSI, k8s.APIServerConfigID)
		if err != nil || now.TypedSpec().Image != newAPIServer || now.Metadata().Version().Value() != 1 {
			r.Errorf("after the reboot: %v, %v", now, err)
		}
	})
}
