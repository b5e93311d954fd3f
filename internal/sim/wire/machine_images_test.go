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

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
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

		if _, err := r.pull(r.client(""), firstAddress, factoryImage); err != nil {
			r.Fatal(err)
		}

		system, err := r.images(c, firstAddress, common.ContainerdNamespace_NS_SYSTEM)
		if want := []string{factoryImage, "ghcr.io/siderolabs/kubelet:v1.34.2"}; err != nil || !slices.Equal(system, want) {
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
