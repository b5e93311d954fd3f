// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/go-kubernetes/kubernetes/manifests"
	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// describe is a part of an object as JSON, with its keys in order.
func describe(object any) string {
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}

	return string(text)
}

func TestComponentImagesArePulledByOperators(t *testing.T) {
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

func TestFaultsOfPullsTellInstallersFromComponents(t *testing.T) {
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

func TestRemovedFlagsAreFoundInTheConfiguration(t *testing.T) {
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

// checksOf is what upstream's checks find before an upgrade.
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

func TestManifestsAreThoseOfTheConfiguration(t *testing.T) {
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

func TestMachinesAreHealthyEnoughForUpstream(t *testing.T) {
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
