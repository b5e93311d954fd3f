// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Release has the paths of the programs of one release of Kubernetes.
type Release struct {
	APIServer, ControllerManager, Scheduler, Kubelet string
}

// releasePackages are those of the tool directives of internal/tools/kube that a real machine runs.
var releasePackages = [...]string{
	"k8s.io/kubernetes/cmd/kube-apiserver",
	"k8s.io/kubernetes/cmd/kube-controller-manager",
	"k8s.io/kubernetes/cmd/kube-scheduler",
	"k8s.io/kubernetes/cmd/kubelet",
}

// KubernetesRelease returns programs that report the given release as their version. They are built from the source
// that internal/tools/kube pins, whatever the release: linking again takes seconds, and a patch release of the same
// source differs only in its name in a way that an upgrade could notice.
func KubernetesRelease(ctx context.Context, wanted version.Version, options Options) (Release, error) {
	dir, err := ensureModule(ctx, "kube", "kubernetes-"+wanted.String(), options, func(ctx context.Context, module, dir string) error {
		return build{
			dir:      module,
			output:   dir + string(filepath.Separator),
			packages: releasePackages[:],
			link:     releaseLink(wanted),
			what:     "Kubernetes " + wanted.String(),
		}.announced(ctx, options.progress(),
			fmt.Sprintf("building Kubernetes %s for real machines: once, some minutes for the first release and seconds for the next", wanted))
	})
	if err != nil {
		return Release{}, err
	}

	return Release{
		APIServer:         filepath.Join(dir, executable("kube-apiserver")),
		ControllerManager: filepath.Join(dir, executable("kube-controller-manager")),
		Scheduler:         filepath.Join(dir, executable("kube-scheduler")),
		Kubelet:           filepath.Join(dir, executable("kubelet")),
	}, nil
}

// releaseLink returns the linker flags that a build of Kubernetes itself sets.
func releaseLink(wanted version.Version) string {
	minor := wanted.Minor()

	var flags []string

	for _, holder := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			fmt.Sprintf("-X %s.gitVersion=%s", holder, wanted.Tag()), fmt.Sprintf("-X %s.gitTreeState=clean", holder),
			fmt.Sprintf("-X %s.gitMajor=%d", holder, minor.Major), fmt.Sprintf("-X %s.gitMinor=%d", holder, minor.Minor))
	}

	return strings.Join(flags, " ")
}
