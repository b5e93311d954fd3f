// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	oldAPIServer = "registry.k8s.io/kube-apiserver:v1.34.2"
	newAPIServer = "registry.k8s.io/kube-apiserver:v1.35.0"
	oldKubelet   = "ghcr.io/siderolabs/kubelet:v1.34.2"
	newKubelet   = "ghcr.io/siderolabs/kubelet:v1.35.0"
	// longest is more than anything takes that a machine does.
	longest = 5 * time.Minute
)

// configOf is a machine's configuration, with something replaced in it.
func (r *rig) configOf(node, old, replacement string) []byte {
	r.Helper()

	text, err := r.world.MachineConfig(node)
	if err != nil {
		r.Fatal(err)
	}

	if !bytes.Contains(text, []byte(old)) {
		r.Fatalf("%s: no %q in\n%s", node, old, text)
	}

	return bytes.Replace(text, []byte(old), []byte(replacement), 1)
}

// submit applies a configuration without a reboot.
func (r *rig) submit(c *client.Client, address string, data []byte) (*machine.ApplyConfiguration, error) {
	return r.submitWith(c, address, &machine.ApplyConfigurationRequest{
		Data: data, Mode: machine.ApplyConfigurationRequest_NO_REBOOT,
	})
}

func (r *rig) submitWith(
	c *client.Client, address string, request *machine.ApplyConfigurationRequest,
) (*machine.ApplyConfiguration, error) {
	response, err := c.ApplyConfiguration(r.at(address), request)
	if err != nil {
		return nil, err
	}

	return response.GetMessages()[0], nil
}

// watch follows one resource of a machine.
func (r *rig) watch(c *client.Client, address string, of resource.Pointer) <-chan state.Event {
	r.Helper()

	events := make(chan state.Event)
	if err := c.COSI.Watch(r.at(address), of, events); err != nil {
		r.Fatal(err)
	}

	return events
}

// next is the next event of a kind that does not tell of an error.
func (r *rig) next(events <-chan state.Event, want state.EventType) resource.Resource {
	r.Helper()

	select {
	case event := <-events:
		if event.Type != want {
			r.Fatalf("got %s %v (%v), want %s", event.Type, event.Resource, event.Error, want)
		}

		return event.Resource
	case <-time.After(3 * time.Minute):
		r.Fatalf("nothing happened, want %s", want)

		return nil
	}
}

func TestNewImageGivesTheConfigurationANewVersion(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 3, Kubernetes: "1.34.2"}, func(r *rig) {
		const target = "10.5.0.3"

		c := r.client("")
		events := r.watch(c, target, k8s.NewAPIServerConfig(k8s.APIServerConfigID).Metadata())
		before := r.next(events, state.Created)

		if before.Metadata().Version().Value() != 1 {
			r.Fatalf("version %s at the start", before.Metadata().Version())
		}

		reply, err := r.submit(c, target, r.configOf("cp-1", oldAPIServer, newAPIServer))
		if err != nil || reply.GetMode() != machine.ApplyConfigurationRequest_NO_REBOOT {
			r.Fatalf("apply: %v, %v", reply, err)
		}

		updated, ok := r.next(events, state.Updated).(*k8s.APIServerConfig)
		if !ok || updated.Metadata().Version().Value() != 2 || updated.TypedSpec().Image != newAPIServer {
			r.Fatalf("after the change: %v", updated)
		}

		stored, err := safe.StateGetByID[*config.MachineConfig](r.at(target), c.COSI, config.ActiveID)
		if err != nil || stored.Metadata().Version().Value() != 2 {
			r.Fatalf("the configuration itself: %v, %v", stored.Metadata(), err)
		}

		pod, err := safe.StateGetByID[*k8s.StaticPod](r.at(target), c.COSI, k8s.APIServerID)
		if err != nil || !strings.Contains(describe(pod.TypedSpec().Pod), `"talos.dev/config-version":"2"`) {
			r.Errorf("the pod that is wanted: %v, %v", pod, err)
		}

		r.until("cp-1", "running the new API server", longest, func(s model.NodeState) bool {
			running := s.StaticPods[model.APIServerName]

			return running.PodImage == newAPIServer && running.PodConfigVersion == 2 && running.Ready
		})

		status, err := safe.StateGetByID[*k8s.StaticPodStatus](r.at(target), c.COSI, "kube-system/kube-apiserver-cp-1")
		if err != nil {
			r.Fatal(err)
		}

		if text := describe(status.TypedSpec().PodStatus); !strings.Contains(text, newAPIServer) || !strings.Contains(text, `{"status":"True","type":"Ready"}`) {
			r.Errorf("the pod that runs: %s", text)
		}

		other, err := safe.StateGetByID[*k8s.SchedulerConfig](r.at(target), c.COSI, k8s.SchedulerConfigID)
		if err != nil || other.Metadata().Version().Value() != 1 {
			r.Errorf("a component nobody touched: %v, %v", other.Metadata(), err)
		}
	})
}

func TestKubeletServiceGoesAndReturns(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		const target = "10.5.0.3"

		c := r.client("")
		events := r.watch(c, target, v1alpha1.NewService(model.KubeletName).Metadata())

		before, ok := r.next(events, state.Created).(*v1alpha1.Service)
		if !ok || !before.TypedSpec().Running || !before.TypedSpec().Healthy {
			r.Fatalf("at the start: %v", before)
		}

		if _, err := r.submit(c, target, r.configOf("worker-0", oldKubelet, newKubelet)); err != nil {
			r.Fatal(err)
		}

		var seen []state.EventType

		for {
			event := <-events
			seen = append(seen, event.Type)

			if event.Type == state.Errored {
				r.Fatal(event.Error)
			}

			after, ok := event.Resource.(*v1alpha1.Service)
			if slices.Contains(seen, state.Destroyed) && event.Type != state.Destroyed && ok && after.TypedSpec().Healthy {
				break
			}
		}

		r.until("worker-0", "running the new kubelet", 3*time.Minute, func(s model.NodeState) bool {
			return s.Kubelet.Version == "1.35.0" && s.KubeletService.Healthy
		})

		spec, err := safe.StateGetByID[*k8s.KubeletSpec](r.at(target), c.COSI, k8s.KubeletID)
		if err != nil || spec.TypedSpec().Image != newKubelet {
			r.Errorf("after %v: %v, %v", seen, spec, err)
		}

		info, err := c.ServiceInfo(r.at(target), model.KubeletName)
		if err != nil || len(info) != 1 {
			r.Fatalf("service: %v, %v", info, err)
		}

		past := info[0].Service.GetEvents().GetEvents()
		if len(past) == 0 || past[len(past)-1].GetState() != "Running" {
			r.Errorf("events of the service: %v", past)
		}
	})
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	const target = "10.5.0.2"

	for name, test := range map[string]struct {
		talos, context string
		mode           machine.ApplyConfigurationRequest_Mode
		data           string
		code           codes.Code
		text           string
	}{
		"by an operator": {
			talos: "1.13.2", context: "-operator", mode: machine.ApplyConfigurationRequest_NO_REBOOT,
			code: codes.PermissionDenied, text: "not authorized",
		},
		"by a reader": {
			talos: "1.13.2", context: "-reader", mode: machine.ApplyConfigurationRequest_NO_REBOOT,
			code: codes.PermissionDenied, text: "not authorized",
		},
		"no YAML": {
			talos: "1.13.2", mode: machine.ApplyConfigurationRequest_NO_REBOOT, data: "a: [",
			code: codes.InvalidArgument,
		},
		"nothing": {
			talos: "1.14.1", mode: machine.ApplyConfigurationRequest_NO_REBOOT, data: "\n",
			code: codes.InvalidArgument,
		},
		"the mode of old": {
			talos: "1.14.1", mode: machine.ApplyConfigurationRequest_REBOOT, //nolint:staticcheck // on purpose
			code: codes.Unimplemented, text: "REBOOT mode is not supported",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{ControlPlanes: 1, Talos: test.talos, Kubernetes: "1.34.2"}, func(r *rig) {
				data := []byte(test.data)
				if test.data == "" {
					data = r.configOf("cp-0", oldAPIServer, newAPIServer)
				}

				_, err := r.submitWith(r.client(test.context), target, &machine.ApplyConfigurationRequest{Data: data, Mode: test.mode})
				r.wantCode(name, err, test.code, test.text)

				after, err := r.world.Node("cp-0")
				if err != nil || after.ConfigVersion != 1 {
					r.Errorf("the configuration changed: version %d, %v", after.ConfigVersion, err)
				}
			})
		})
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		_, err := r.submitWith(c, "10.5.0.2", &machine.ApplyConfigurationRequest{
			Data: r.configOf("cp-0", oldAPIServer, newAPIServer), DryRun: true,
			Mode: machine.ApplyConfigurationRequest_NO_REBOOT,
		})
		if err != nil {
			r.Fatal(err)
		}

		time.Sleep(time.Minute)

		now, err := safe.StateGetByID[*k8s.APIServerConfig](r.at("10.5.0.2"), c.COSI, k8s.APIServerConfigID)
		if err != nil || now.TypedSpec().Image != oldAPIServer || now.Metadata().Version().Value() != 1 {
			r.Fatalf("after a dry run: %v, %v", now, err)
		}
	})
}

func TestSecondConfigurationAtOnceIsRefused(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")
		first := r.configOf("cp-0", oldAPIServer, newAPIServer)
		second := r.configOf("cp-0", oldKubelet, newKubelet)
		ended := make(chan error, 1)

		go func() {
			_, err := r.submit(c, "10.5.0.2", first)
			ended <- err
		}()

		time.Sleep(100 * time.Millisecond)

		_, err := r.submit(c, "10.5.0.2", second)
		r.wantCode("the second", err, codes.FailedPrecondition, "already in progress")

		if err := <-ended; err != nil {
			r.Errorf("the first: %v", err)
		}
	})
}
