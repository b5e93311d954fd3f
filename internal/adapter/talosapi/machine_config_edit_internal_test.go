// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestEditImage_ChangesNothingElse(t *testing.T) {
	t.Parallel()

	for name, test := range everywhere(editCases()) {
		before, want := marked(test.text)

		got, err := editImage([]byte(before), test.change())
		if err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		if string(got) != want {
			t.Errorf("%s:\n%q, want\n%q", name, got, want)
		}

		change := test.change()
		change.From = newImage

		if again, err := editImage(got, change); err != nil || again != nil {
			t.Errorf("%s: a second edit: %q, %v; want nothing to do", name, again, err)
		}
	}
}

// TestEditImage_AgreesWithTheParser: the editor and the parser find the same images.
func TestEditImage_AgreesWithTheParser(t *testing.T) {
	t.Parallel()

	for name, test := range editCases() {
		before, after := marked(test.text)
		change := test.change()

		for content, want := range map[string]string{before: change.From, after: change.To} {
			config, err := parseMachineConfig([]byte(content))
			if err != nil {
				t.Errorf("%s: %v", name, err)

				continue
			}

			got := config.Images[change.Component]
			if change.Component == cluster.Installer {
				got = config.InstallImage
			}

			if got != want || change.Component == cluster.Installer && !config.Installs {
				t.Errorf("%s: %s names %q, want %q", name, change.Component, got, want)
			}
		}
	}
}

func TestEditImage_KeepsRegistriesPortsAndDigests(t *testing.T) {
	t.Parallel()

	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

	for _, image := range []string{
		"registry.example.org:5000/k8s/kubelet:v1.35.0-slim", "10.0.0.1:5000/kubelet:v1.35.0" + digest, "kubelet:v1.35.0-fat",
		"[fd00::1]:5000/kubelet:v1.35.0",
	} {
		for _, text := range []string{"machine:\n  kubelet:\n    image: " + oldImage + "\n", "machine: {kubelet: {image: " + oldImage + ", a: b}}\n"} {
			edited, err := editImage([]byte(text), cluster.ImageChange{Component: cluster.Kubelet, From: oldImage, To: image})
			if err != nil {
				t.Errorf("%s: %v", image, err)

				continue
			}

			config, err := parseMachineConfig(edited)
			if err != nil || config.Images[cluster.Kubelet] != image {
				t.Errorf("%s: %q, %v", image, edited, err)
			}
		}
	}
}

func TestEditImage_RefusesWhatItCannotChangeSafely(t *testing.T) {
	t.Parallel()

	const secret = "verysecret"

	kubelet := cluster.ImageChange{Component: cluster.Kubelet, From: oldImage, To: newImage}
	unset := cluster.ImageChange{Component: cluster.Kubelet, To: newImage}

	for name, test := range map[string]struct {
		change cluster.ImageChange
		text   string
		want   error
	}{
		"another image":            {kubelet, "machine: {kubelet: {image: \"other:v1\"}}", cluster.ErrConflict},
		"no image":                 {kubelet, "machine: {kubelet: {}}", cluster.ErrConflict},
		"an image where none was":  {unset, "machine: {kubelet: {image: \"other:v1\"}}", cluster.ErrConflict},
		"a document decides":       {kubelet, "machine: {kubelet: {image: \"OLD\"}}\n---\nkind: KubeletConfig\n", cluster.ErrConflict},
		"alias":                    {kubelet, "x: &i OLD\nmachine: {kubelet: {image: *i}}", cluster.ErrRefused},
		"alias of the parent":      {kubelet, "x: &k {image: OLD}\nmachine: {kubelet: *k}", cluster.ErrRefused},
		"anchor on the image":      {kubelet, "machine: {kubelet: {image: &i OLD}, other: *i}", cluster.ErrRefused},
		"anchor on the parent":     {kubelet, "machine:\n  kubelet: &k\n    image: OLD\n  other: *k\n", cluster.ErrRefused},
		"anchor, image unset":      {unset, "machine:\n  kubelet: &k {a: b}\n  other: *k\n", cluster.ErrRefused},
		"merge key":                {kubelet, "x: &k {image: OLD}\nmachine: {kubelet: {<<: *k}}", cluster.ErrRefused},
		"merge key above":          {unset, "x: &k {kubelet: {}}\nmachine: {<<: *k, a: b}", cluster.ErrRefused},
		"tag":                      {kubelet, "machine: {kubelet: {image: !!str OLD}}", cluster.ErrRefused},
		"number":                   {unset, "machine: {kubelet: {image: 17}}", cluster.ErrRefused},
		"list":                     {unset, "machine: {kubelet: [a]}", cluster.ErrRefused},
		"text for a parent":        {unset, "machine: verysecret", cluster.ErrRefused},
		"block scalar":             {kubelet, "machine:\n  kubelet:\n    image: |-\n      OLD\n", cluster.ErrRefused},
		"several lines":            {cluster.ImageChange{Component: cluster.Kubelet, From: "a b", To: newImage}, "machine:\n  kubelet:\n    image: a\n      b\n", cluster.ErrRefused},
		"duplicate key":            {kubelet, "machine:\n  kubelet:\n    image: OLD\n    image: OLD\n", cluster.ErrRefused},
		"duplicate document":       {kubelet, "kind: KubeletConfig\nimage: OLD\n---\nkind: KubeletConfig\nimage: OLD\n", cluster.ErrRefused},
		"two general documents":    {kubelet, "machine: {kubelet: {image: OLD}}\n---\nmachine: {}\n", cluster.ErrRefused},
		"no document":              {kubelet, "kind: Unknown\nimage: OLD\n", cluster.ErrRefused},
		"nothing":                  {kubelet, "", cluster.ErrRefused},
		"no YAML":                  {kubelet, "machine: {token: verysecret\n  x: [", cluster.ErrRefused},
		"an alias by mistake":      {kubelet, "machine: {token: *verysecret}", cluster.ErrRefused},
		"a key twice":              {kubelet, "machine: {verysecret: 1, verysecret: 2, kubelet: {image: OLD}}", cluster.ErrRefused},
		"no UTF-8":                 {kubelet, "machine: {kubelet: {image: OLD}}\n# \xff\n", cluster.ErrRefused},
		"no component":             {cluster.ImageChange{Component: cluster.Manifests, To: newImage}, "machine: {}", cluster.ErrRefused},
		"no image to set":          {cluster.ImageChange{Component: cluster.Kubelet, From: oldImage}, "machine: {kubelet: {image: OLD}}", cluster.ErrRefused},
		"an image with a newline":  {cluster.ImageChange{Component: cluster.Kubelet, To: "a\nb: c"}, "machine: {kubelet: {}}", cluster.ErrRefused},
		"an image with quotes":     {cluster.ImageChange{Component: cluster.Kubelet, To: `a", b: "c`}, "machine: {kubelet: {}}", cluster.ErrRefused},
		"an image like a number":   {cluster.ImageChange{Component: cluster.Kubelet, From: oldImage, To: "17"}, "machine:\n  kubelet:\n    image: OLD\n", cluster.ErrRefused},
		"a secret beside an error": {kubelet, "machine: {token: verysecret, kubelet: {image: [\"verysecret\"]}}", cluster.ErrRefused},
	} {
		edited, err := editImage([]byte(strings.ReplaceAll(test.text, "OLD", oldImage)), test.change)
		if !errors.Is(err, test.want) || edited != nil {
			t.Errorf("%s: %q, %v; want %v", name, edited, err, test.want)

			continue
		}

		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v quotes the configuration", name, err)
		}
	}
}

// A section that holds only an image would be an instruction to install somewhere.
func TestEditImage_AddsNoSectionForAnInstaller(t *testing.T) {
	t.Parallel()

	for name, text := range map[string]string{
		"none":                    "machine: {type: worker}\n",
		"an empty one":            "machine:\n  install:\n  type: worker\n",
		"no machine":              "version: v1alpha1\n",
		"nothing of the machine":  "machine: ~\n",
		"documents about another": "kind: KubeletConfig\nimage: OLD\ninstaller: {image: OLD}\n",
		"nothing":                 "",
	} {
		for _, from := range []string{"", oldImage} {
			content := strings.ReplaceAll(text, "OLD", oldImage)

			edited, err := editImage([]byte(content), cluster.ImageChange{Component: cluster.Installer, From: from, To: newImage})
			if !errors.Is(err, cluster.ErrNotFound) || errors.Is(err, cluster.ErrRefused) || edited != nil {
				t.Errorf("%s: %q, %v; want none found", name, edited, err)

				continue
			}

			if !strings.Contains(err.Error(), "machine.install") || !strings.Contains(err.Error(), "UnattendedInstallConfig") {
				t.Errorf("%s: %v, want it to name both sections", name, err)
			}

			if config, err := parseMachineConfig([]byte(content)); err != nil || config.Installs {
				t.Errorf("%s: %+v, %v; want it to have no place for an installer", name, config, err)
			}
		}
	}

	other := cluster.ImageChange{Component: cluster.Installer, From: oldImage, To: newImage}
	if edited, err := editImage([]byte("machine: {install: {disk: /dev/sda}}"), other); !errors.Is(err, cluster.ErrConflict) || edited != nil {
		t.Errorf("a section without the image that was expected: %q, %v; want a conflict", edited, err)
	}
}

func TestEditImage_NamesWhatItFoundInstead(t *testing.T) {
	t.Parallel()

	_, err := editImage([]byte("machine: {kubelet: {image: \"other:v1\"}}"), cluster.ImageChange{Component: cluster.Kubelet, From: oldImage, To: newImage})
	if err == nil || !strings.Contains(err.Error(), "other:v1") || !strings.Contains(err.Error(), oldImage) {
		t.Errorf("%v, want it to name both images", err)
	}
}

func TestEditImage_VerifyFindsEveryOtherChange(t *testing.T) {
	t.Parallel()

	const before = "machine:\n  kubelet:\n    image: a:1\n  x: [1, 2]\n---\nkind: Other\n"

	path := []string{"machine", "kubelet", imageKey}

	if err := verifyEdit([]byte(before), []byte(strings.ReplaceAll(before, "a:1", "a:2")), 0, path, "a:2"); err != nil {
		t.Error(err)
	}

	for name, after := range map[string]string{
		"unchanged":          before,
		"another image":      strings.ReplaceAll(before, "a:1", "a:3"),
		"a change elsewhere": "machine:\n  kubelet:\n    image: a:2\n  x: [1, 3]\n---\nkind: Other\n",
		"an added key":       "machine:\n  kubelet:\n    image: a:2\n    y: z\n  x: [1, 2]\n---\nkind: Other\n",
		"a lost document":    "machine:\n  kubelet:\n    image: a:2\n  x: [1, 2]\n",
		"no YAML":            "machine: [",
	} {
		if err := verifyEdit([]byte(before), []byte(after), 0, path, "a:2"); !errors.Is(err, cluster.ErrRefused) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}

// FuzzEditImage: an edit keeps everything before and after one place, changes nothing else in meaning, and can be
// reverted to the same bytes.
func FuzzEditImage(f *testing.F) {
	for _, test := range editCases() {
		before, _ := marked(test.text)
		f.Add(before, string(test.change().Component))
	}

	f.Fuzz(func(t *testing.T, content, component string) {
		config, err := parseMachineConfig([]byte(content))
		if err != nil {
			return
		}

		change := cluster.ImageChange{Component: cluster.Component(component), To: newImage}
		if change.From = config.Images[change.Component]; change.Component == cluster.Installer {
			change.From = config.InstallImage
		}

		edited, err := editImage([]byte(content), change)
		if err != nil || edited == nil {
			return
		}

		start := commonLength(content, string(edited), false)
		end := min(commonLength(content, string(edited), true), len(content)-start)

		if inserted := string(edited)[start : len(edited)-end]; len(content)-start-end > len(change.From)+len("null") || len(inserted) > len(newImage)+200 {
			t.Fatalf("%q became %q", content, edited)
		}

		after, err := parseMachineConfig(edited)
		if err != nil {
			t.Fatalf("%q became %q: %v", content, edited, err)
		}

		named := after.Images[change.Component]
		if change.Component == cluster.Installer {
			named = after.InstallImage
		}

		if named != newImage {
			t.Fatalf("%q became %q, which names %q", content, edited, named)
		}

		if change.From == "" {
			return
		}

		back, err := editImage(edited, cluster.ImageChange{Component: change.Component, From: newImage, To: change.From})
		if err == nil && string(back) != content && !strings.Contains(content, "\\") && plainImage.MatchString(change.From) {
			t.Fatalf("%q became %q and then %q", content, edited, back)
		}
	})
}

// commonLength returns how much two texts share at their beginning, or at their end.
func commonLength(a, b string, atEnd bool) int {
	count := 0

	for count < len(a) && count < len(b) {
		i, j := count, count
		if atEnd {
			i, j = len(a)-1-count, len(b)-1-count
		}

		if a[i] != b[j] {
			break
		}

		count++
	}

	return count
}

const (
	oldImage = "ghcr.io/siderolabs/kubelet:v1.34.2"
	newImage = "ghcr.io/siderolabs/kubelet:v1.35.0"
)

var (
	removed = regexp.MustCompile(`(?s)\[-(.*?)-\]`)
	added   = regexp.MustCompile(`(?s)\[\+(.*?)\+\]`)
)

// marked returns the two sides of a text in which [-what goes-] and [+what comes+] are marked. OLD and NEW stand for
// the images.
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

// everywhere returns the cases, and each of them with other line breaks and with
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

// imagesOf returns the images that Talos itself reads from a machine configuration.
func imagesOf(t *testing.T, content []byte) map[cluster.Component]string {
	t.Helper()

	loaded, err := configloader.NewFromBytes(content)
	if err != nil {
		t.Fatal(err)
	}

	return map[cluster.Component]string{
		cluster.Kubelet:           loaded.K8sKubeletConfig().Image(),
		cluster.APIServer:         loaded.K8sAPIServerConfig().Image(),
		cluster.ControllerManager: loaded.K8sControllerManagerConfig().Image(),
		cluster.Scheduler:         loaded.K8sSchedulerConfig().Image(),
		cluster.Proxy:             loaded.K8sProxyConfig().Image(),
	}
}

// TestEditImage_GeneratedConfigIsEditedWhereTalosLooks: the configurations have all their comments and examples, of
// both generations.
func TestEditImage_GeneratedConfigIsEditedWhereTalosLooks(t *testing.T) {
	t.Parallel()

	bundle, err := secrets.NewBundle(secrets.NewClock(), config.TalosVersion1_12)
	if err != nil {
		t.Fatal(err)
	}

	for name, contract := range map[string]*config.VersionContract{"1.12": config.TalosVersion1_12, "1.13": config.TalosVersion1_13, "1.14": config.TalosVersion1_14} {
		input, err := generate.NewInput("test", "https://10.5.0.2:6443", "1.34.2",
			generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle), generate.WithInstallDisk("/dev/sda"))
		if err != nil {
			t.Fatal(err)
		}

		generated, err := input.Config(machine.TypeControlPlane)
		if err != nil {
			t.Fatal(err)
		}

		for comments, option := range map[string]encoder.CommentsFlags{"all comments": encoder.CommentsAll, "no comments": encoder.CommentsDisabled} {
			content, err := generated.EncodeBytes(encoder.WithComments(option))
			if err != nil {
				t.Fatal(err)
			}

			for _, component := range cluster.Components(cluster.ControlPlane) {
				from := imagesOf(t, content)[component]
				to := strings.ReplaceAll(from, "1.34.2", "1.35.0")

				edited, err := editImage(content, cluster.ImageChange{Component: component, From: from, To: to})
				if err != nil {
					t.Errorf("%s, %s, %s: %v", name, comments, component, err)

					continue
				}

				if from == to || string(edited) != strings.Replace(string(content), from, to, 1) {
					t.Errorf("%s, %s, %s: %s became something else than %s", name, comments, component, from, to)
				}

				if got := imagesOf(t, edited)[component]; got != to {
					t.Errorf("%s, %s, %s: Talos reads %s, want %s", name, comments, component, got, to)
				}
			}
		}
	}
}
