// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"regexp"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	oldImage = "ghcr.io/siderolabs/kubelet:v1.34.2"
	newImage = "ghcr.io/siderolabs/kubelet:v1.35.0"
)

var (
	removed = regexp.MustCompile(`(?s)\[-(.*?)-\]`)
	added   = regexp.MustCompile(`(?s)\[\+(.*?)\+\]`)
)

// marked are the two sides of a text in which [-what goes-] and [+what comes+]
// are marked. OLD and NEW stand for the images.
func marked(text string) (before, after string) {
	text = strings.NewReplacer("OLD", oldImage, "NEW", newImage).Replace(text)
	before = removed.ReplaceAllString(added.ReplaceAllString(text, ""), "$1")
	after = added.ReplaceAllString(removed.ReplaceAllString(text, ""), "$1")

	return before, after
}

type editCase struct {
	component cluster.Component
	// text has the change marked; without an old image in it, none is expected
	// to be there.
	text string
}

func (c editCase) change() cluster.ImageChange {
	component := c.component
	if component == "" {
		component = cluster.Kubelet
	}

	change := cluster.ImageChange{Component: component, To: newImage}
	if strings.Contains(c.text, "[-OLD-]") {
		change.From = oldImage
	}

	return change
}

func editCases() map[string]editCase {
	return map[string]editCase{
		"plain": {text: "machine:\n  kubelet:\n    image: [-OLD-][+NEW+]\n    extraArgs: {}\n"},
		"comments and blank lines": {
			text: "# top\n\nversion: v1alpha1 # v\n\nmachine: # m\n    # k\n    kubelet: # kk\n        # before\n        image: [-OLD-][+NEW+] # after\n\n        # last\n    nothing: else\n\n# end\n",
		},
		"double quotes":        {text: "machine:\n  kubelet:\n    image: \"[-OLD-][+NEW+]\"   # x\n"},
		"single quotes":        {text: "machine: {kubelet: {image: '[-OLD-][+NEW+]', x: y}}\n"},
		"flow":                 {text: "machine: { type: worker, kubelet: { image: [-OLD-][+NEW+] , a: b } }\n"},
		"JSON":                 {text: `{"machine":{"type":"worker","kubelet":{"image":"[-OLD-][+NEW+]","x":1}},"cluster":{}}`},
		"CRLF":                 {text: "version: v1alpha1\r\nmachine:\r\n  kubelet:\r\n    image: [-OLD-][+NEW+]\r\n    x: y\r\n"},
		"no end of line":       {text: "machine:\n  kubelet:\n    image: [-OLD-][+NEW+]"},
		"byte order mark":      {text: "\ufeffmachine: {kubelet: {image: [-OLD-][+NEW+]}}\n"},
		"wide characters":      {text: "# é ☃ 𝄞\nmachine: {\"ключ ☃ 𝄞\": ü, kubelet: {image: [-OLD-][+NEW+]}}\n"},
		"odd line breaks":      {text: "machine:\n  a: \"x\u2028y\u0085z\"\n  kubelet:\n    image: [-OLD-][+NEW+]\n"},
		"on a line of its own": {text: "machine:\n  kubelet:\n    image:\n      [-OLD-][+NEW+]\n    x: y\n"},
		"quoted key":           {text: "machine:\n  \"kubelet\":\n    'image': [-OLD-][+NEW+]\n"},
		"block scalars before": {
			text: "machine:\n  files:\n    - content: |\n        kubelet:\n          image: OLD\n\n        # no comment\n      path: /x\n    - content: >-\n        a\n        b\n  kubelet:\n    image: [-OLD-][+NEW+]\n",
		},
		"the same image elsewhere": {
			text: "machine:\n  pods:\n    - image: OLD\n  kubelet:\n    image: [-OLD-][+NEW+]\ncluster:\n  image: OLD\n",
		},
		"many documents": {
			text: "--- # first\napiVersion: v1alpha1\nkind: Unknown\nimage: OLD\nmachine: {kubelet: {image: OLD}}\n---\n# second\nversion: v1alpha1\nmachine:\n  kubelet:\n    image: [-OLD-][+NEW+]\n...\n---\nkind: Another\n\n",
		},
		"a document of its own": {
			text: "version: v1alpha1\nmachine:\n  type: worker\n---\napiVersion: v1alpha1\nkind: KubeletConfig\nimage: [-OLD-][+NEW+]\nextraConfig: {}\n",
		},
		"a document of its own, first": {
			text: "apiVersion: v1alpha1\nkind: KubeletConfig\nextraConfig: {}\nimage: \"[-OLD-][+NEW+]\"\n---\nversion: v1alpha1\nmachine:\n  kubelet:\n    image: OLD\n",
		},
		"other components": {
			component: cluster.Scheduler,
			text:      "machine:\n  kubelet: {image: OLD}\ncluster:\n  apiServer: {image: OLD}\n  scheduler:\n    image: [-OLD-][+NEW+]\n  proxy:\n    image: OLD\n",
		},
		"other components, documents": {
			component: cluster.APIServer,
			text:      "kind: KubeletConfig\nimage: OLD\n---\nkind: KubeAPIServerConfig\nimage: [-OLD-][+NEW+]\n---\nkind: KubeProxyConfig\nimage: OLD\n",
		},
		"controller manager": {component: cluster.ControllerManager, text: "cluster:\n  controllerManager:\n    image: [-OLD-][+NEW+]\n"},
		"proxy":              {component: cluster.Proxy, text: "kind: KubeProxyConfig\nmode: nftables\nimage: [-OLD-][+NEW+]\n"},

		"installer": {
			component: cluster.Installer,
			text:      "machine:\n  kubelet: {image: OLD}\n  install:\n    disk: /dev/sda\n    image: [-OLD-][+NEW+] # pinned\n    wipe: false\n",
		},
		"installer in a document of its own": {
			component: cluster.Installer,
			text:      "machine: {type: worker}\n---\napiVersion: v1alpha1\nkind: UnattendedInstallConfig\ninstaller:\n    image: [-OLD-][+NEW+]\nprovisioning:\n    image: OLD\n",
		},
		"installer, the document decides": {
			component: cluster.Installer,
			text:      "kind: UnattendedInstallConfig\ninstaller: {image: \"[-OLD-][+NEW+]\"}\n---\nmachine: {install: {image: OLD}}\n",
		},
		"installer unset in its section": {
			component: cluster.Installer, text: "machine:\n  install:\n[+    image: NEW\n+]    disk: /dev/sda\n",
		},
		"installer unset in an empty section": {component: cluster.Installer, text: "machine: {install: {[+image: \"NEW\"+]}}\n"},
		"installer unset in its document": {
			component: cluster.Installer, text: "kind: UnattendedInstallConfig\ninstaller: {[+image: \"NEW\"+]}\nprovisioning: {}\n",
		},
		"installer missing in its document": {
			component: cluster.Installer,
			text:      "kind: UnattendedInstallConfig\n[+installer:\n    image: NEW\n+]provisioning: {}\n",
		},

		"unset, in a block": {text: "machine:\n    kubelet:\n[+        image: NEW\n+]        # about arguments\n        extraArgs:\n            a: b\n"},
		"unset, indented by two": {
			text: "machine:\n  type: worker\n  kubelet: # here\n[+    image: NEW\n+]\n    extraArgs: {}\n",
		},
		"unset, CRLF":               {text: "machine:\r\n  kubelet:\r\n[+    image: NEW\r\n+]    x: y\r\n"},
		"unset, empty braces":       {text: "machine:\n  kubelet: {[+image: \"NEW\"+]} # nothing\n"},
		"unset, braces":             {text: "machine: {kubelet: {[+image: \"NEW\", +]x: y}}\n"},
		"unset, JSON":               {text: `{"machine":{"kubelet":{[+"image": "NEW", +]"x":"y"}}}`},
		"unset, nothing":            {text: "machine:\n  kubelet:[+ {image: \"NEW\"}+] # nothing\n  type: worker\n"},
		"unset, nothing at the end": {text: "machine:\n  kubelet:[+ {image: \"NEW\"}+]"},
		"unset, null":               {text: "machine:\n  kubelet: [-null-][+{image: \"NEW\"}+]\n  x: y\n"},
		"unset, tilde":              {text: "machine: {kubelet: [-~-][+{image: \"NEW\"}+], x: y}\n"},
		"empty text":                {text: "machine:\n  kubelet:\n    image: \"[+NEW+]\" # unset\n"},
		"empty text, single quotes": {text: "machine:\n  kubelet:\n    image: '[+NEW+]'\n"},
		"empty value":               {text: "machine:\n  kubelet:\n    image:[+ NEW+] # unset\n    x: y\n"},
		"null value":                {text: "machine:\n  kubelet:\n    image: [-null-][+NEW+]\n"},
		"missing parent": {
			component: cluster.Scheduler,
			text:      "cluster:\n[+  scheduler:\n    image: NEW\n+]  # about the id\n  id: x\n  apiServer:\n    image: OLD\n",
		},
		"missing parent in braces": {component: cluster.Scheduler, text: "cluster: {[+scheduler: {image: \"NEW\"}, +]id: x}\n"},
		"missing parent of nothing": {
			component: cluster.Scheduler, text: "cluster:[+ {scheduler: {image: \"NEW\"}}+]\nversion: v1alpha1\n",
		},
		"missing both parents": {
			component: cluster.Scheduler,
			text:      "# about it\n[+cluster:\n  scheduler:\n    image: NEW\n+]version: v1alpha1\nmachine:\n  type: controlplane\n",
		},
		"missing everything": {text: "---\n[+machine:\n    kubelet:\n        image: NEW\n+]version: v1alpha1\n"},
		"missing in a document of its own": {
			text: "apiVersion: v1alpha1\nkind: KubeletConfig # kind\n[+image: NEW\n+]\n# about it\nextraConfig: {}\n---\nversion: v1alpha1\nmachine: {kubelet: {image: OLD}}\n",
		},
		"missing at the end of a document": {text: "version: v1alpha1\n---\napiVersion: v1alpha1\nkind: KubeletConfig[+\nimage: NEW+]"},
		"missing before the next document": {text: "apiVersion: v1alpha1\nkind: KubeletConfig\n[+image: NEW\n+]---\nversion: v1alpha1\n"},
		"missing, kind first":              {text: "kind: KubeletConfig\n[+image: NEW\n+]apiVersion: v1alpha1\n"},
		"anchors elsewhere":                {text: "machine:\n  a: &x {b: c}\n  d: *x\n  kubelet:\n    image: [-OLD-][+NEW+]\n    e: *x\n"},
		"anchor that nobody uses":          {text: "machine:\n  kubelet: &k\n    image: [-OLD-][+NEW+]\n"},
	}
}

// everywhere are the cases, and each of them with other line breaks and with
// other documents around it.
func everywhere(cases map[string]editCase) map[string]editCase {
	variations := map[string]func(string) string{
		"": func(text string) string { return text },
		"other ends": func(text string) string {
			return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
		},
		"old ends": func(text string) string {
			return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r")
		},
		"marked": func(text string) string { return "\ufeff" + strings.TrimPrefix(text, "\ufeff") },
		"later": func(text string) string {
			return "kind: Before\nimage: OLD # ---\ntext: |\n  ---\n  é\n---\n" + strings.TrimPrefix(strings.TrimPrefix(text, "\ufeff"), "---\n")
		},
		"earlier": func(text string) string { return text + "\n---\nkind: After\nimage: OLD\n" },
	}

	all := map[string]editCase{}

	for name, test := range cases {
		for variation, vary := range variations {
			all[name+" "+variation] = editCase{component: test.component, text: vary(test.text)}
		}
	}

	return all
}
