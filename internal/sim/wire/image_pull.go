// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// pull downloads an image into one of containerd's namespaces: an installer,
// which lives beside the kubelet, or an image of Kubernetes.
func pull(
	ctx context.Context, world *model.World, node, image string, into common.ContainerdNamespace, progress func(model.Progress),
) (string, error) {
	switch {
	case into == common.ContainerdNamespace_NS_CRI:
		return world.PullComponent(ctx, node, image, model.NamespaceCRI, progress)
	case isInstaller(image):
		return world.Pull(ctx, node, image, progress)
	default:
		return world.PullComponent(ctx, node, image, model.NamespaceSystem, progress)
	}
}

// isInstaller tells by its name whether an image installs Talos: installer,
// metal-installer/<schematic>, and so on.
func isInstaller(image string) bool {
	repository, _, _ := strings.Cut(image, "@")

	return slices.ContainsFunc(strings.Split(repository, "/"), func(element string) bool {
		name, _, _ := strings.Cut(element, ":")

		return name == "installer" || strings.HasPrefix(name, "installer-") ||
			strings.HasSuffix(name, "-installer") || strings.HasSuffix(name, "-installer-secureboot")
	})
}
