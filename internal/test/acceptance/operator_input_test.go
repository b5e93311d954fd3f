// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"
)

// TestAccOperatorInput wants a plan to refuse arguments about operators that cannot work, without a request to any
// cluster.
func TestAccOperatorInput(t *testing.T) {
	full(t)

	const (
		talos      = "talos_version = \"1.13.4\""
		management = "management = { kubeconfig_path = \"/nowhere/kubeconfig\" }"
		from       = "credentials_from = {\n namespace = \"tenant-a\"\n name = \"prod\"\n}"
	)

	object := publishTo("", "KubernetesCluster", tenant, owned)
	for title, test := range map[string]struct {
		provider, resource string
		says               []string
	}{
		"no such mode":             {"", talos + object + "\nmode = \"delegated\"", []string{"mode", `Did you mean "delegate"?`}},
		"nobody to delegate to":    {"", talos + delegating, []string{"mode", "publish_to"}},
		"nobody acts on it":        {"", talos + delegating + publishTo("", "ConfigMap", tenant, owned), []string{"ConfigMap", "KubernetesCluster", "TalosControlPlane"}},
		"cannot be held":           {"", talos + publishTo("", "TalosControlPlane", tenant, owned), []string{"TalosControlPlane", `mode = "delegate"`}},
		"the operator's own":       {"", talos + object + delegating + "\ndrain = { enabled = false }\nmax_unavailable = \"2\"", []string{"drain", "max_unavailable", "operator"}},
		"a kind without a version": {"", talos + publishTo("", "Kluster", tenant, owned), []string{"publish_to", "Kluster", "api_version"}},
		"a misspelt kind":          {"", talos + publishTo("", "KubernetesClusters", tenant, owned), []string{`Did you mean "KubernetesCluster"?`}},
		"a secret":                 {"", talos + publishTo("v1", "Secret", tenant, owned), []string{"publish_to", "Secret"}},
		"a name that is none":      {"", talos + publishTo("", "KubernetesCluster", "Tenant A", owned), []string{"publish_to.namespace", "Tenant A"}},
		"no management for it":     {from, talos, []string{"credentials_from", "management"}},
		"two sources": {
			management + "\n" + from + "\ntalosconfig_path = \"/nowhere/talosconfig\"", talos,
			[]string{"credentials_from", "talosconfig_path"},
		},
		"two management kubeconfigs": {
			"management = {\n kubeconfig_path = \"/nowhere\"\n kubeconfig = \"{}\"\n}", talos,
			[]string{"management", "kubeconfig_path"},
		},
		"management of nothing": {"management = {}", talos, []string{"management", "kubeconfig"}},
	} {
		t.Run(title, func(t *testing.T) {
			w := newUnhurried(t)
			w.write(test.provider, test.resource)
			w.plan().mustFail(test.says...)
		})
	}
}
