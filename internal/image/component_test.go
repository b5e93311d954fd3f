// SPDX-License-Identifier: MPL-2.0

package image_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestComponent_KeepsWhatPeopleChose(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		component, current, override string
		want, digest                 string
	}{
		"nothing named, a kubelet":         {component: "kubelet", want: "ghcr.io/siderolabs/kubelet:v1.35.2"},
		"nothing named, an API server":     {component: "kube-apiserver", want: "registry.k8s.io/kube-apiserver:v1.35.2"},
		"the repository of before":         {current: "ghcr.io/siderolabs/kubelet:v1.34.1", want: "ghcr.io/siderolabs/kubelet:v1.35.2"},
		"a mirror with port and path":      {current: "registry.example.com:5000/k8s/kubelet:v1.34.1", want: "registry.example.com:5000/k8s/kubelet:v1.35.2"},
		"a port and no tag":                {current: "registry.example.com:5000/kubelet", want: "registry.example.com:5000/kubelet:v1.35.2"},
		"a slim kubelet":                   {current: "ghcr.io/siderolabs/kubelet:v1.34.1-slim", want: "ghcr.io/siderolabs/kubelet:v1.35.2-slim"},
		"a fat kubelet":                    {current: "ghcr.io/siderolabs/kubelet:v1.34.1-fat", want: "ghcr.io/siderolabs/kubelet:v1.35.2-fat"},
		"a suffix of a vendor":             {current: "r.example.com/kubelet:v1.34.1_acme.3", want: "r.example.com/kubelet:v1.35.2_acme.3"},
		"a pre-release, and its variant":   {current: "r.example.com/kubelet:v1.35.0-rc.0-fat", want: "r.example.com/kubelet:v1.35.2-fat"},
		"a build between two versions":     {current: "r.example.com/kubelet:v1.35.0-alpha.2.34-gdeadbeef", want: "r.example.com/kubelet:v1.35.2"},
		"a suffix that reads as a version": {current: "r.example.com/kubelet:v1.35.0-rc.0-rc.1", want: "r.example.com/kubelet:v1.35.2"},
		"versions without a v":             {current: "r.example.com/kubelet:1.34.1-slim", want: "r.example.com/kubelet:1.35.2-slim"},
		"a tag that is no version":         {current: "r.example.com/kubelet:stable", want: "r.example.com/kubelet:v1.35.2"},
		"a digest is of the old image":     {current: "host:5000/path/kubelet:v1.34.1-slim@" + digest, want: "host:5000/path/kubelet:v1.35.2-slim", digest: digest},
		"a digest alone":                   {current: "host:5000/path/kubelet@" + digest, want: "host:5000/path/kubelet:v1.35.2", digest: digest},
		"an override":                      {current: "ghcr.io/siderolabs/kubelet:v1.34.1", override: "mirror.example.com:5000/k", want: "mirror.example.com:5000/k:v1.35.2"},
		"an override keeps the variant":    {current: "ghcr.io/siderolabs/kubelet:v1.34.1-slim", override: "mirror.example.com/k", want: "mirror.example.com/k:v1.35.2-slim"},
		"an override spells with a v":      {current: "r.example.com/kubelet:1.34.1", override: "mirror.example.com/k", want: "mirror.example.com/k:v1.35.2"},
		"an override that changes nothing": {current: "r.example.com/kubelet:1.34.1", override: "r.example.com/kubelet", want: "r.example.com/kubelet:1.35.2"},
		"an override where none was named": {override: "mirror.example.com/k", want: "mirror.example.com/k:v1.35.2"},
		"an override of what is no image":  {current: "Not An Image", override: "mirror.example.com/k", want: "mirror.example.com/k:v1.35.2"},
		"a short name":                     {current: "acme/kubelet:v1.34.1", want: "docker.io/acme/kubelet:v1.35.2"},
	} {
		got, err := image.Component(test.current, test.override, test.component, version.MustParse("1.35.2"))
		if err != nil || got.Reference != test.want || got.Digest != test.digest {
			t.Errorf("%s: %+v, %v; want %s without %q", behaviour, got, err, test.want, test.digest)
		}
	}
}

func TestComponent_UnreadableIsRefused(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct{ current, override, says string }{
		"no image":                {current: "Not An Image", says: "Not An Image"},
		"a port that is none":     {current: "registry.example.com:99999/kubelet:v1.34.1", says: "port"},
		"an override with a tag":  {override: "registry.example.com/kubelet:v1.34.1", says: "give the repository alone"},
		"an override of no image": {override: "Not An Image", says: "Not An Image"},
		"a suffix that is too long": {
			current: "registry.example.com/kubelet:v1.34.1-" + strings.Repeat("x", 120), says: "invalid tag",
		},
	} {
		target := version.MustParse("1.35.12")

		got, err := image.Component(test.current, test.override, "kubelet", target)
		if !errors.Is(err, image.ErrReference) || got != (image.ComponentChoice{}) {
			t.Errorf("%s: %+v, %v; want ErrReference", behaviour, got, err)

			continue
		}

		if !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v does not say %q", behaviour, err, test.says)
		}
	}
}

func TestComponent_RepositoryIsToldByItsName(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		image, repository string
		want              bool
	}{
		{"registry.example.com:5000/kubelet:v1.34.1@" + digest, "registry.example.com:5000/kubelet", true},
		{"registry.example.com:5000/kubelet:v1.34.1", "registry.example.com/kubelet", false},
		{"acme/kubelet:v1.34.1", "docker.io/acme/kubelet", true},
		{"Not An Image", "Not An Image", false},
		{"", "ghcr.io/siderolabs/kubelet", false},
	} {
		if got := image.SameRepository(test.image, test.repository); got != test.want {
			t.Errorf("%q of %q: %t, want %t", test.image, test.repository, got, test.want)
		}
	}
}

// FuzzComponent holds it to two promises: what it chooses is an image of the
// target, and choosing again from that changes nothing.
func FuzzComponent(f *testing.F) {
	for _, seed := range []string{
		"", "kubelet", "ghcr.io/siderolabs/kubelet:v1.34.1-slim", "host:5000/a@" + digest, "a:1.35.0-rc.0-rc.1", "a:v1.35.0-alpha.2.34-g1", "a:1.2.3-0", "user:s3cret@host/a:b",
	} {
		f.Add(seed)
	}

	target := version.MustParse("1.35.2")

	f.Fuzz(func(t *testing.T, current string) {
		chosen, err := image.Component(current, "", "kubelet", target)
		if err != nil {
			if !errors.Is(err, image.ErrReference) {
				t.Fatalf("%q: %v does not wrap ErrReference", current, err)
			}

			return
		}

		_, tag, err := image.Split(chosen.Reference)
		if err != nil {
			t.Fatalf("%q: %q is no image: %v", current, chosen.Reference, err)
		}

		if stands, err := image.TagVersion(tag); err != nil || !stands.Equal(target) {
			t.Fatalf("%q: %q stands for %s, %v", current, chosen.Reference, stands, err)
		}

		if again, err := image.Component(chosen.Reference, "", "kubelet", target); err != nil || again.Reference != chosen.Reference {
			t.Fatalf("%q: %q and then %q, %v", current, chosen.Reference, again.Reference, err)
		}
	})
}
