// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// pull downloads an image into one of containerd's namespaces: an installer,
// which lives beside the kubelet, or an image of Kubernetes.
func pull(
	ctx context.Context, world *model.World, node, image string, into model.ImageNamespace, progress func(model.Progress),
) (string, error) {
	switch {
	case into != model.NamespaceCRI && isInstaller(image):
		return world.PullInto(ctx, node, image, into, progress)
	default:
		return world.PullComponent(ctx, node, image, into, progress)
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
