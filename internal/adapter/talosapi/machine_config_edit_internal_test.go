// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestEditImageChangesNothingElse(t *testing.T) {
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

// TestParserAndEditorAgreeAboutImages: what one of them reads is what the other
// one expects to find.
func TestParserAndEditorAgreeAboutImages(t *testing.T) {
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

func TestEditImageKeepsRegistriesPortsAndDigests(t *testing.T) {
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

func TestEditImageRefusesWhatItCannotChangeSafely(t *testing.T) {
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

// A section with nothing but an image would be an order to install somewhere.
func TestEditImageAddsNoSectionForAnInstaller(t *testing.T) {
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

func TestEditImageNamesWhatItFoundInstead(t *testing.T) {
	t.Parallel()

	_, err := editImage([]byte("machine: {kubelet: {image: \"other:v1\"}}"), cluster.ImageChange{Component: cluster.Kubelet, From: oldImage, To: newImage})
	if err == nil || !strings.Contains(err.Error(), "other:v1") || !strings.Contains(err.Error(), oldImage) {
		t.Errorf("%v, want it to name both images", err)
	}
}

func TestVerifyEditFindsEveryOtherChange(t *testing.T) {
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

// FuzzEditImage: an edit that is made keeps everything before and after one
// place, means nothing else, and can be taken back to the same bytes.
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

// commonLength is how much two texts share at their beginning, or at their end.
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
