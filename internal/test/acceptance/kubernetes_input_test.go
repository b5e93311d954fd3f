// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// badKubernetesInput is a configuration that a plan refuses with one error.
type badKubernetesInput struct {
	resource string
	says     []string
	// points is the line that the error is shown with.
	points string
}

func badKubernetesInputs() map[string]badKubernetesInput {
	with := func(kubernetes string) string {
		return "kubernetes_version = \"" + kubernetesTarget + "\"\nkubernetes = { " + kubernetes + " }"
	}

	return map[string]badKubernetesInput{
		"unknown version":          {`kubernetes_version = "1.99.0"`, []string{"1.99"}, `kubernetes_version = "1.99.0"`},
		"no version":               {`kubernetes_version = "latest"`, []string{"latest"}, `kubernetes_version = "latest"`},
		"older version":            {`kubernetes_version = "1.33.1"`, []string{"1.33.1", kubernetes, "downgrade"}, `kubernetes_version = "1.33.1"`},
		"two minors ahead":         {`kubernetes_version = "1.36.1"`, []string{"1.36.1", "1.35", "allow_intermediate_versions"}, `kubernetes_version = "1.36.1"`},
		"unsupported by the Talos": {"kubernetes_version = \"1.37.0\"\nallow_intermediate_versions = true", []string{"1.37", "Talos 1.13"}, `kubernetes_version = "1.37.0"`},
		"image with a tag":         {with(`images = { kubelet = "ghcr.io/siderolabs/kubelet:v1.35.2" }`), []string{"kubelet", "v1.35.2", "tag"}, ""},
		"image that is none":       {with(`images = { kube_scheduler = "not an image" }`), []string{"kube_scheduler", "not an image"}, ""},
		"manifests that contradict": {
			with(`manifests = { sync = false, prune = true }`), []string{"manifests", "prune"}, "",
		},
		"images without a version": {
			"talos_version = \"1.13.4\"\nkubernetes = { images = { kubelet = \"mirror.example/kubelet\" } }", []string{"kubernetes_version"}, "",
		},
		"kubelets that are no number": {with(`max_unavailable_kubelets = "some"`), []string{"some", "from 1% to 100%"}, ""},
	}
}

func TestAccBadKubernetesInput(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosTarget})

	for title, input := range badKubernetesInputs() {
		t.Run(title, func(t *testing.T) {
			w := newWorkspace(t)
			w.write(use(s), input.resource)

			refused := w.plan().mustFail(input.says...)
			if input.points != "" {
				refused.mustPoint(t, input.points)
			}
		})
	}

	s.unchanged()
}
