// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// kubectlPackage is the tool directive of internal/tools/kubectl.
const kubectlPackage = "k8s.io/kubernetes/cmd/kubectl"

// Kubectl returns the path of a kubectl of the same release as the control plane
// of [Kubernetes]. The first call on a machine compiles it. It is an entry of its own
// in the cache, because less is done with it than with those.
func Kubectl(ctx context.Context, options Options) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}

	cache, err := CacheDir()
	if err != nil {
		return "", err
	}

	module := filepath.Join(root, "internal", "tools", "kubectl")

	name, err := moduleKey(ctx, module)
	if err != nil {
		return "", err
	}

	dir, err := entry{cache: cache, name: "kubectl-" + name}.ensure(ctx, options.progress(),
		func(ctx context.Context, dir string) error { return buildKubectl(ctx, module, dir, options) })
	if err != nil {
		return "", err
	}

	return filepath.Join(dir, executable("kubectl")), nil
}

func buildKubectl(ctx context.Context, module, dir string, options Options) error {
	progress := options.progress()
	started := time.Now()

	fmt.Fprintln(progress, "building kubectl: once, a minute or two")

	err := build{
		dir:      module,
		output:   dir + string(filepath.Separator),
		packages: []string{kubectlPackage},
		what:     "kubectl",
	}.run(ctx, progress)
	if err != nil {
		return err
	}

	fmt.Fprintf(progress, "built kubectl in %s\n", time.Since(started).Round(time.Second))

	return nil
}
