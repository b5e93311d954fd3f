// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// images lists what a machine has in a namespace, by both APIs.
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

func TestImagesOfAMachine(t *testing.T) {
	inBubble(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("-reader")

		pinned, err := r.pull(r.client(""), firstAddress, factoryImage)
		if err != nil {
			r.Fatal(err)
		}

		system, err := r.images(c, firstAddress, common.ContainerdNamespace_NS_SYSTEM)
		if want := []string{factoryImage, pinned, "ghcr.io/siderolabs/kubelet:v1.34.2"}; err != nil || !slices.Equal(system, want) {
			r.Errorf("system: %q, %v, want %q", system, err, want)
		}

		cri, err := r.images(c, firstAddress, common.ContainerdNamespace_NS_CRI)
		if err != nil || !slices.Contains(cri, "registry.k8s.io/kube-apiserver:v1.34.2") || slices.Contains(cri, factoryImage) {
			r.Errorf("CRI: %q, %v", cri, err)
		}

		_, err = r.images(c, firstAddress, common.ContainerdNamespace_NS_UNKNOWN)
		r.wantCode("no namespace", err, codes.InvalidArgument, "unsupported namespace")

		// Nothing runs from it.
		time.Sleep(2 * time.Hour)

		if system, err := r.images(c, firstAddress, common.ContainerdNamespace_NS_SYSTEM); err != nil || slices.Contains(system, factoryImage) {
			r.Errorf("hours later: %q, %v", system, err)
		}
	})
}

func TestImagesOfTalosItself(t *testing.T) {
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

func TestImageIsRemoved(t *testing.T) {
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
