// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestUpgrade_OfOneMachine(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 3, Workers: 1, Schematic: schematic}, func(r *rig) {
		const target = "10.5.0.2" // also one of the endpoints

		c := r.client("")

		before, err := r.bootID(c, target)
		if err != nil {
			r.Fatal(err)
		}

		if name, err := r.pull(c, target, factoryImage); err != nil || !strings.Contains(name, "@sha256:") {
			r.Fatalf("pull: %q, %v", name, err)
		}

		if exit, err := r.install(c, target, factoryImage); err != nil || exit != 0 {
			r.Fatalf("install: %d, %v", exit, err)
		}

		if version, err := r.version(c, target); err != nil || version != "v1.13.2" {
			r.Fatalf("before the reboot: %q, %v", version, err)
		}

		if err := c.Reboot(r.at(target)); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "down", time.Minute, down)

		if _, err := r.version(c, "10.5.0.3"); err != nil {
			r.Fatalf("the other endpoints while one is down: %v", err)
		}

		r.until("cp-0", "ready", 5*time.Minute, ready)
		time.Sleep(15 * time.Second) // the proxies' pause

		after, err := r.bootID(c, target)
		if err != nil || after == before {
			r.Fatalf("boot ID %q before, %q after, %v", before, after, err)
		}

		if version, err := r.version(c, target); err != nil || version != "v1.13.4" {
			r.Fatalf("afterwards: %q, %v", version, err)
		}

		status, err := safe.StateGetByID[*runtime.MachineStatus](r.at(target), c.COSI, runtime.MachineStatusID)
		if err != nil || status.TypedSpec().Stage != runtime.MachineStageRunning || !status.TypedSpec().Status.Ready {
			r.Fatalf("machine status: %v, %v", status, err)
		}
	})
}

func TestUpgrade_EndpointDisappearsDuringTheRebootAndReturns(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		c := r.client("")
		events, err := c.Events(r.Context(), client.WithTailEvents(-1))
		if err != nil {
			r.Fatal(err)
		}

		if err := c.Reboot(r.within(time.Minute)); err != nil {
			r.Fatal(err)
		}

		var seen []string

		for {
			event, err := events.Recv()
			if err != nil {
				r.wantCode("the stream of events", err, codes.Unavailable, "")

				break
			}

			seen = append(seen, event.GetData().GetTypeUrl())
		}

		if !slices.Contains(seen, "talos/runtime/machine.SequenceEvent") || seen[0] != "" {
			r.Fatalf("events before it broke: %v", seen)
		}

		if _, err := c.Version(r.within(10 * time.Second)); err == nil {
			r.Fatal("the endpoint answers while its machine is down")
		}

		if _, err := r.server.Dialer()(r.Context(), "10.5.0.2:50000"); err == nil {
			r.Fatal("the endpoint accepts connections while its machine is down")
		}

		r.until("cp-0", "ready", 5*time.Minute, ready)

		if _, err := r.client("").Version(r.within(10 * time.Second)); err != nil {
			r.Fatalf("afterwards: %v", err)
		}
	})
}

func TestUpgrade_LegacyWithEventsUntilRunning(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.6"}, func(r *rig) {
		c := r.client("")

		response, err := c.UpgradeWithOptions(r.at("10.5.0.3"), //nolint:staticcheck // the only way on this version
			client.WithUpgradeImage("ghcr.io/siderolabs/installer:v1.13.4"))
		if err != nil || response.GetMessages()[0].GetAck() == "" {
			r.Fatalf("upgrade: %v, %v", response, err)
		}

		r.until("worker-0", "down", 3*time.Minute, down)
		r.until("worker-0", "ready", 5*time.Minute, ready)
		time.Sleep(15 * time.Second) // the proxies' pause

		running := false
		enough := errors.New("enough")

		channel := make(chan client.EventResult)
		ctx := client.WithNode(r.within(time.Minute), "10.5.0.3")

		if err := c.EventsWatchV2(ctx, channel, client.WithTailEvents(-1)); err != nil {
			r.Fatal(err)
		}

		for result := range channel {
			if result.Error != nil {
				r.Fatalf("%v, %v", enough, result.Error)
			}

			status, ok := result.Event.Payload.(*machine.MachineStatusEvent)
			if ok && status.GetStage() == machine.MachineStatusEvent_RUNNING && status.GetStatus().GetReady() {
				running = true

				break
			}
		}

		if version, err := r.version(c, "10.5.0.3"); !running || err != nil || version != "v1.13.4" {
			r.Fatalf("running %t, %q, %v", running, version, err)
		}
	})
}

func TestUpgrade_OlderMachinesDoNotKnowTheNewServices(t *testing.T) {
	for _, talos := range []string{"1.11.5", "1.12.6"} {
		inBubble(t, model.Options{ControlPlanes: 1, Talos: talos}, func(r *rig) {
			c := r.client("")

			_, err := r.install(c, "10.5.0.2", factoryImage)
			r.wantCode(talos+" upgrade", err, codes.Unimplemented, "unknown service machine.LifecycleService")

			_, err = r.pull(c, "10.5.0.2", factoryImage)
			r.wantCode(talos+" pull", err, codes.Unimplemented, "unknown service machine.ImageService")

			if err := c.ImagePull(r.at("10.5.0.2"), common.ContainerdNamespace_NS_SYSTEM, factoryImage); err != nil { //nolint:staticcheck // all these versions have
				r.Errorf("%s legacy pull: %v", talos, err)
			}
		})
	}
}

func TestUpgrade_InstallAnswersAsTalosDoes(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1}, func(r *rig) {
		const target = "10.5.0.2"

		c := r.client("")

		_, err := r.install(c, target, factoryImage)
		r.wantCode("an image that was not pulled", err, codes.Internal, "not found in containerd store")

		_, err = r.install(c, target, "")
		r.wantCode("no image", err, codes.InvalidArgument, "installer image name is required")

		_, err = r.pull(c, target, "ghcr.io/siderolabs/installer:v1.14.1")
		r.wantCode("an image that does not exist", err, codes.NotFound, "error pulling image")

		if _, err := r.pull(c, target, factoryImage); err != nil {
			r.Fatal(err)
		}

		r.world.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}})

		if exit, err := r.install(c, target, factoryImage); err != nil || exit != 1 {
			r.Fatalf("an installer that fails: exit %d, %v", exit, err)
		}
	})
}

func TestUpgrade_ConnectionIsLostAfterTheEffect(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1}, func(r *rig) {
		const target = "10.5.0.2"

		lost := func(step model.Step, effect model.Effect) model.Fault {
			return model.Fault{Node: "cp-0", Step: step, Effect: effect, Times: 1}
		}

		c := r.client("")
		r.world.SetFaults([]model.Fault{
			lost(model.StepPull, model.EffectConnectionLost),
			lost(model.StepInstall, model.EffectConnectionLostEarly),
			lost(model.StepReboot, model.EffectConnectionLost),
		})

		_, err := r.pull(c, target, factoryImage)
		r.wantCode("pull", err, codes.Unavailable, "EOF")

		_, err = r.install(c, target, factoryImage)
		r.wantCode("install", err, codes.Unavailable, "EOF")

		_, err = r.install(c, target, "")
		r.wantCode("question whether it runs", err, codes.FailedPrecondition, "already in progress")

		r.until("cp-0", "armed", time.Minute, func(s model.NodeState) bool { return s.Armed && !s.Installing })
		r.wantCode("reboot", c.Reboot(r.at(target)), codes.Unavailable, "EOF")
		r.until("cp-0", "down", time.Minute, down)
		r.until("cp-0", "ready", 5*time.Minute, ready)

		if version, err := r.version(r.client(""), target); err != nil || version != "v1.13.4" {
			r.Fatalf("afterwards: %q, %v", version, err)
		}
	})
}

func TestUpgrade_TwoMembersAreRefusedByTheLegacyCallOnly(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 2}, func(r *rig) {
		const target = "10.5.0.2"

		c := r.client("")

		_, err := c.UpgradeWithOptions(r.at(target), client.WithUpgradeImage(factoryImage)) //nolint:staticcheck // on purpose
		r.wantCode("legacy", err, codes.Unknown, "etcd member count(2) is insufficient")

		if _, err := r.pull(c, target, factoryImage); err != nil {
			r.Fatal(err)
		}

		if exit, err := r.install(c, target, factoryImage); err != nil || exit != 0 {
			r.Fatalf("new: exit %d, %v", exit, err)
		}
	})
}

// images lists what a machine has in a namespace, with both APIs.
func (r *rig) images(c *client.Client, address string, in common.ContainerdNamespace) (names []string, err error) {
	stream, err := c.ImageClient.List(r.at(address), &machine.ImageServiceListRequest{
		Containerd: &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: in},
	})
	if err != nil {
		return nil, err
	}

	for {
		image, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return nil, err
		}

		if !strings.HasPrefix(image.GetDigest(), "sha256:") || image.GetSize() == 0 || image.GetCreatedAt().AsTime().Year() < 2000 {
			r.Errorf("an image without a digest, a size or an instant: %v", image)
		}

		names = append(names, image.GetName())
	}

	legacy, err := c.ImageList(r.at(address), in) //nolint:staticcheck // machines offer it still
	if err != nil {
		return nil, err
	}

	for _, name := range names {
		if image, err := legacy.Recv(); err != nil || image.GetName() != name {
			r.Errorf("the old API has %v, %v, want %s", image, err, name)
		}
	}

	if _, err := legacy.Recv(); !errors.Is(err, io.EOF) {
		r.Errorf("the old API has more: %v", err)
	}

	return names, nil
}

func TestUpgrade_ImagesOfAMachine(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("-reader")

		pinned, err := r.pull(r.client(""), firstAddress, factoryImage)
		if err != nil {
			r.Fatal(err)
		}

		system, err := r.images(c, firstAddress, common.ContainerdNamespace_NS_SYSTEM)
		_, digest, _ := strings.Cut(pinned, "@")
		if want := []string{factoryImage, pinned, "ghcr.io/siderolabs/kubelet:v1.34.2", digest}; err != nil || !slices.Equal(system, want) {
			r.Errorf("system: %q, %v, want %q", system, err, want)
		}

		cri, err := r.images(c, firstAddress, common.ContainerdNamespace_NS_CRI)
		if err != nil || !slices.Contains(cri, "registry.k8s.io/kube-apiserver:v1.34.2") || slices.Contains(cri, factoryImage) {
			r.Errorf("CRI: %q, %v", cri, err)
		}

		_, err = r.images(c, firstAddress, common.ContainerdNamespace_NS_UNKNOWN)
		r.wantCode("no namespace", err, codes.InvalidArgument, "unsupported namespace")

		// No container uses the image.
		time.Sleep(2 * time.Hour)

		if system, err := r.images(c, firstAddress, common.ContainerdNamespace_NS_SYSTEM); err != nil || slices.Contains(system, factoryImage) {
			r.Errorf("hours later: %q, %v", system, err)
		}
	})
}

func TestUpgrade_ImagesOfTalosItself(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r *rig) {
		const address = "10.5.0.3"

		own := &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM}
		admin, reader := r.client(""), r.client("-reader")

		list := func() (names []string) {
			stream, err := reader.ImageClient.List(r.at(address), &machine.ImageServiceListRequest{Containerd: own})
			for err == nil {
				var image *machine.ImageServiceListResponse
				if image, err = stream.Recv(); err == nil {
					names = append(names, image.GetName())
				}
			}

			if !errors.Is(err, io.EOF) {
				r.Error(err)
			}

			return names
		}

		if names := list(); len(names) != 0 {
			r.Errorf("it has %q and was not upgraded", names)
		}

		if _, err := admin.MachineClient.Upgrade(r.at(address), &machine.UpgradeRequest{Image: factoryImage}); err != nil { //nolint:staticcheck // what fills that store
			r.Fatal(err)
		}

		if names := list(); !slices.Contains(names, factoryImage) {
			r.Errorf("it is being upgraded and has %q", names)
		}

		if system, err := r.images(reader, address, common.ContainerdNamespace_NS_SYSTEM); err != nil || slices.Contains(system, factoryImage) {
			r.Errorf("the kubelet's containerd has %q, %v", system, err)
		}
	})
}

func TestUpgrade_ImageIsRemoved(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		admin := r.client("")

		if _, err := r.pull(admin, firstAddress, factoryImage); err != nil {
			r.Fatal(err)
		}

		for _, image := range []string{factoryImage, "ghcr.io/siderolabs/kubelet:v1.34.2"} {
			request := &machine.ImageServiceRemoveRequest{Containerd: containerd(), ImageRef: image}

			_, err := r.client("-operator").ImageClient.Remove(r.at(firstAddress), request)
			r.wantCode("an operator", err, codes.PermissionDenied, "not authorized")

			if _, err := admin.ImageClient.Remove(r.at(firstAddress), request); err != nil {
				r.Error(err)
			}

			_, err = admin.ImageClient.Remove(r.at(firstAddress), request)
			r.wantCode("once more", err, codes.NotFound, image+" not found")
		}
	})
}
