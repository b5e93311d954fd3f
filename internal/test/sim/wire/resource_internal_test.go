// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestResource_VersionsAreThoseThatWereWanted(t *testing.T) {
	scheduler := func(image string, version int) resource.Resource {
		made := k8s.NewSchedulerConfig(k8s.SchedulerConfigID)
		made.TypedSpec().Image = image
		made.Metadata().SetVersion(versionOf(version))

		return made
	}

	for name, test := range map[string]struct {
		wanted []resource.Resource
		events []state.EventType
		last   uint64
	}{
		"equal at each look":        {[]resource.Resource{scheduler("a", 1), scheduler("a", 1)}, []state.EventType{state.Created}, 1},
		"new version, nothing else": {[]resource.Resource{scheduler("a", 1), scheduler("a", 2)}, []state.EventType{state.Created, state.Updated}, 2},
		"two changes between looks": {[]resource.Resource{scheduler("a", 1), scheduler("c", 3)}, []state.EventType{state.Created, state.Updated, state.Updated}, 3},
		"later at the first look":   {[]resource.Resource{scheduler("b", 2)}, []state.EventType{state.Created, state.Updated}, 2},
		"begun anew": {
			[]resource.Resource{scheduler("a", 1), scheduler("b", 2), scheduler("b", 1)},
			[]state.EventType{state.Created, state.Updated, state.Destroyed, state.Created},
			1,
		},
		"counted here": {
			[]resource.Resource{scheduler("a", 0), scheduler("a", 0), scheduler("b", 0)},
			[]state.EventType{state.Created, state.Updated},
			2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMirror()
				events := make(chan state.Event, 16)
				kind := k8s.NewSchedulerConfig("").Metadata()

				if err := m.core.WatchKind(t.Context(), kind, events); err != nil {
					t.Fatal(err)
				}

				for _, want := range test.wanted {
					if err := m.apply(t.Context(), []resource.Resource{want}); err != nil {
						t.Fatal(err)
					}
				}

				synctest.Wait()

				var seen []state.EventType
				for range len(events) {
					seen = append(seen, (<-events).Type)
				}

				if !slices.Equal(seen, test.events) {
					t.Errorf("saw %v, want %v", seen, test.events)
				}

				now, err := m.core.Get(t.Context(), test.wanted[0].Metadata())
				if err != nil || now.Metadata().Version().Value() != test.last {
					t.Errorf("ended with %v, %v; want version %d", now, err, test.last)
				}
			})
		})
	}
}

func TestResource_FlagsOfAComponent(t *testing.T) {
	t.Parallel()

	const classic = `version: v1alpha1
machine:
  kubelet:
    extraArgs: {v: "2", node-labels: [a=b, c=d]}
cluster:
  apiServer:
    extraArgs:
      enable-admission-plugins: PodNodeSelector
      secure-port: "6444"
---
apiVersion: v1alpha1
kind: FlannelConfig
extraArgs: [--iface=eth1]
`

	const documents = `version: v1alpha1
machine: {type: controlplane}
---
apiVersion: v1alpha1
kind: KubeAPIServerConfig
extraArgs: {profiling: "false"}
`

	own := map[string]string{"enable-admission-plugins": "NodeRestriction", "secure-port": "6443"}

	for name, test := range map[string]struct {
		config, component string
		own               map[string]string
		want              []string
	}{
		"nothing configured":      {"version: v1alpha1\n", model.APIServerName, own, []string{"--enable-admission-plugins=NodeRestriction", "--secure-port=6443"}},
		"added and overridden":    {classic, model.APIServerName, own, []string{"--enable-admission-plugins=NodeRestriction,PodNodeSelector", "--secure-port=6444"}},
		"several values":          {classic, model.KubeletName, nil, []string{"--node-labels=a=b", "--node-labels=c=d", "--v=2"}},
		"a document of its own":   {documents, model.APIServerName, nil, []string{"--profiling=false"}},
		"of another component":    {documents, model.SchedulerName, nil, nil},
		"not a configuration":     {"a: [", model.APIServerName, nil, nil},
		"arguments of wrong form": {"cluster: {scheduler: {extraArgs: [a]}}\n", model.SchedulerName, nil, nil},
	} {
		if got := flagsOf(test.own, readArguments([]byte(test.config))[test.component]); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestResource_InstallersAreToldFromComponentsByName(t *testing.T) {
	t.Parallel()

	for image, want := range map[string]bool{
		"ghcr.io/siderolabs/installer:v1.13.4":                      true,
		"factory.talos.dev/metal-installer-secureboot/0123:v1.14.1": true,
		"mirror.example:5000/installer/0123@sha256:00":              true,
		"ghcr.io/siderolabs/kubelet:v1.35.0":                        false,
		"mirror.example:5000/talos/kubelet:v1.35.0-slim@sha256:00":  false,
		"registry.k8s.io/kube-apiserver:v1.35.0":                    false,
	} {
		if got := isInstaller(image); got != want {
			t.Errorf("%s: got %t, want %t", image, got, want)
		}
	}
}

func TestResource_KubeletReplacedBetweenLooksIsSeenToGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, err := model.New(model.Options{ControlPlanes: 1, Talos: "1.13.2", Kubernetes: "1.34.2"})
		if err != nil {
			t.Fatal(err)
		}

		defer world.Stop()

		shared, err := newSharedResources(world)
		if err != nil {
			t.Fatal(err)
		}

		resources := newNodeResources(world, "cp-0", shared)
		if err := resources.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}

		events := make(chan state.Event, 16)
		service := resource.NewMetadata("runtime", "Services.v1alpha1.talos.dev", model.KubeletName, resource.VersionUndefined)

		if err := resources.Watch(t.Context(), service, events); err != nil {
			t.Fatal(err)
		}

		if err := world.SetImage("cp-0", model.KubeletName, "ghcr.io/siderolabs/kubelet:v1.34.3"); err != nil {
			t.Fatal(err)
		}

		for range 300 {
			time.Sleep(time.Second)

			view, err := world.Node("cp-0")
			if err != nil {
				t.Fatal(err)
			}

			if view.Kubelet.Version == "1.34.3" && view.KubeletService.Healthy {
				break
			}
		}

		if err := resources.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}

		synctest.Wait()

		var seen []state.EventType
		for range len(events) {
			seen = append(seen, (<-events).Type)
		}

		if want := []state.EventType{state.Created, state.Destroyed, state.Created}; !slices.Equal(seen, want) {
			t.Errorf("saw %v, want %v", seen, want)
		}
	})
}
