// SPDX-License-Identifier: MPL-2.0

package toolchain

import "context"

// Kubectl returns the path of a kubectl of the same release as the control plane of [Kubernetes]. The first call on a
// machine compiles it. It has its own entry in the cache, because fewer tests need it.
func Kubectl(ctx context.Context, options Options) (string, error) {
	return pinned{
		name: "kubectl", tool: "k8s.io/kubernetes/cmd/kubectl", notice: "building kubectl: once, a minute or two",
	}.build(ctx, options)
}
