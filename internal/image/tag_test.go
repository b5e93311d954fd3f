// SPDX-License-Identifier: MPL-2.0

package image_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestTagVersion_DropsWhatVendorsAdd(t *testing.T) {
	t.Parallel()

	for tag, want := range map[string]string{
		"v1.34.1":                            "1.34.1",
		"1.34.1":                             "1.34.1",
		"v1.34.1-slim":                       "1.34.1",
		"v1.34.1-fat":                        "1.34.1",
		"v1.34.2-eks.1":                      "1.34.2",
		"v1.34.2-eks-1-34-12":                "1.34.2",
		"v1.34.2-gke.1000":                   "1.34.2",
		"v1.34.2_vmware.1":                   "1.34.2",
		"v1.34.2-amd64":                      "1.34.2",
		"v1.34.2-20260101":                   "1.34.2",
		"v1.34.2-rc":                         "1.34.2",
		"v1.34.2-slim-fat":                   "1.34.2",
		"v1.35.0-rc.0":                       "1.35.0-rc.0",
		"v1.35.0-alpha.10":                   "1.35.0-alpha.10",
		"v1.35.0-beta.2":                     "1.35.0-beta.2",
		"v1.35.0-rc.0-fat":                   "1.35.0-rc.0",
		"v1.35.0-rc.0_vmware.1":              "1.35.0-rc.0",
		"v1.35.0-rc.0.eks.1":                 "1.35.0-rc.0",
		"v1.35.0-alpha.2.34-gdeadbeef-dirty": "1.35.0-alpha.2",
	} {
		got, err := image.TagVersion(tag)
		if err != nil || got.String() != want {
			t.Errorf("TagVersion(%q) = %s, %v; want %s", tag, got, err, want)
		}
	}

	for _, tag := range []string{"", "latest", "v1.34", "-slim", "v1.34-eks.1", "vv1.34.1", "eks-v1.34.1", "v1.034.1-eks", "v1.34.2x"} {
		if got, err := image.TagVersion(tag); !errors.Is(err, version.ErrMalformed) {
			t.Errorf("TagVersion(%q) = %s, %v; want ErrMalformed", tag, got, err)
		}
	}
}

// FuzzTagVersion holds it to three promises: it never panics, what it reads is a
// version whose own tag says the same, and a suffix of a vendor changes nothing.
func FuzzTagVersion(f *testing.F) {
	for _, seed := range []string{"", "latest", "v1.34.1", "v1.34.1-slim", "v1.34.2-eks.1", "v1.35.0-rc.0-fat", "v1.35.0-rc.0.1", "1.2.3-0", "v1.2.3_x", "v1.2.3-é"} {
		f.Add(seed, "eks.1")
	}

	f.Fuzz(func(t *testing.T, tag, vendor string) {
		read, err := image.TagVersion(tag)
		if err != nil {
			if !errors.Is(err, version.ErrMalformed) {
				t.Fatalf("TagVersion(%q): %v does not wrap ErrMalformed", tag, err)
			}

			return
		}

		if again, err := image.TagVersion(read.Tag()); err != nil || !again.Equal(read) {
			t.Fatalf("TagVersion(%q) = %s, and of its own tag %s, %v", tag, read, again, err)
		}

		if !strings.HasPrefix(strings.TrimPrefix(tag, "v"), read.String()) {
			t.Fatalf("TagVersion(%q) = %s, which it does not begin with", tag, read)
		}

		// What the vendor adds is no pre-release by itself and can be in a tag.
		if _, tagged, err := image.Split("registry.example.com/kubelet:" + read.Tag() + "-x" + vendor); err == nil && tagged == read.Tag()+"-x"+vendor {
			if again, err := image.TagVersion(tagged); err != nil || !again.Equal(read) {
				t.Fatalf("TagVersion(%q) = %s, %v; want %s", tagged, again, err, read)
			}
		}
	})
}

// FuzzSplit holds it to three promises: it never panics, the tag is the text of
// the reference, and the two parts make a reference that splits the same way.
func FuzzSplit(f *testing.F) {
	for _, seed := range []string{
		"", "installer", "ghcr.io/siderolabs/installer:v1.12.6", "localhost:5000/a/b:v1@" + digest, "a:b", "a@" + digest, "[::1]:5000/a:t", "registry.k8s.io/kubelet:v1.34.1-slim",
		"registry.example.com:99999/a:b", "user:s3cret@host/a:b", "A/b:c", "docker.io/library/x:y_z.1-2",
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		repository, tag, err := image.Split(text)
		if err != nil {
			if !errors.Is(err, image.ErrReference) {
				t.Fatalf("Split(%q): %v does not wrap ErrReference", text, err)
			}

			return
		}

		if !strings.Contains(text, tag) {
			t.Fatalf("Split(%q): the tag %q is not of it", text, tag)
		}

		whole := repository.String()
		if tag != "" {
			whole += ":" + tag
		}

		again, tagged, err := image.Split(whole)
		if err != nil || again.String() != repository.String() || tagged != tag {
			t.Fatalf("Split(%q) = %q and %q, which together split into %q and %q, %v", text, repository, tag, again, tagged, err)
		}
	})
}
