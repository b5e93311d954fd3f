// SPDX-License-Identifier: MPL-2.0

package release_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestSource_Locations(t *testing.T) {
	t.Parallel()

	for location, test := range map[string]struct {
		talos, kubernetes bool
		words             string
	}{
		"embedded":                            {true, true, ""},
		"factory":                             {true, false, "Talos alone"},
		"oci://ghcr.io/siderolabs/installer":  {true, true, ""},
		"oci://localhost:5000/kube-apiserver": {true, true, ""},
		"":                                    {false, false, "allowed are"},
		"Factory":                             {false, false, "allowed are"},
		"https://factory.talos.dev":           {false, false, "allowed are"},
		"ghcr.io/siderolabs/installer":        {false, false, `"oci://`},
		"oci://":                              {false, false, "oci://REGISTRY/REPOSITORY"},
		"oci://installer":                     {false, false, "oci://REGISTRY/REPOSITORY"},
		"oci://ghcr.io/siderolabs/installer:v1.1": {false, false, "without a tag"},
		"oci://ghcr.io/Siderolabs/installer":      {false, false, "without a tag"},
		"oci://user:password@ghcr.io/a/b":         {false, false, "without a tag"},
		"docker://ghcr.io/siderolabs/installer":   {false, false, "allowed are"},
	} {
		t.Run(location, func(t *testing.T) {
			t.Parallel()

			for product, valid := range map[version.Product]bool{version.Talos: test.talos, version.Kubernetes: test.kubernetes} {
				_, err := release.New(product, location, release.Options{})
				if valid != (err == nil) || err != nil && !errors.Is(err, release.ErrLocation) {
					t.Errorf("%s: %v", product, err)
				}

				if err != nil && (!strings.Contains(err.Error(), test.words) || !strings.Contains(err.Error(), product.Name())) {
					t.Errorf("%s: %v does not say %q", product, err, test.words)
				}
			}
		})
	}
}

func TestSource_FactoryURLs(t *testing.T) {
	t.Parallel()

	for text, valid := range map[string]bool{
		"https://factory.talos.dev":            true,
		"http://localhost:8080/factory/":       true,
		"https://[::1]:8443":                   true,
		"factory.talos.dev":                    false,
		"//factory.talos.dev":                  false,
		"":                                     false,
		"ftp://factory.talos.dev":              false,
		"https://":                             false,
		"https://factory.talos.dev?token=1":    false,
		"https://factory.talos.dev?":           false,
		"https://factory.talos.dev#versions":   false,
		"https://me:hunter2@factory.talos.dev": false,
		"https://me:hunter2@factory talos dev": false,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()

			err := release.CheckFactoryURL(text)
			if valid != (err == nil) || err != nil && !errors.Is(err, release.ErrLocation) {
				t.Errorf("got %v", err)
			}

			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the password is in the message: %v", err)
			}

			if text == "" {
				return
			}

			if _, err := release.New(version.Talos, release.Factory, release.Options{FactoryURL: text}); valid != (err == nil) {
				t.Errorf("the source says %v", err)
			}
		})
	}
}

func TestSource_EmbeddedListSaysHowOldItIs(t *testing.T) {
	t.Parallel()

	for _, product := range []version.Product{version.Talos, version.Kubernetes} {
		t.Run(string(product), func(t *testing.T) {
			t.Parallel()

			list, err := open(t, product, release.Embedded, release.Options{}).Versions(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			if !regexp.MustCompile(`^20\d\d-[01]\d-[0-3]\d$`).MatchString(list.AsOf) || list.Source != "embedded" {
				t.Errorf("got %q as of %q", list.Source, list.AsOf)
			}

			if !slices.IsSortedFunc(list.Versions, version.Version.Compare) || len(list.Versions) < 50 {
				t.Errorf("got %v", list.Versions)
			}
		})
	}
}

func TestSource_GivenListIsSortedWithoutPreReleases(t *testing.T) {
	t.Parallel()

	versions := []version.Version{
		version.MustParse("1.14.0"), version.MustParse("v1.13.4"), version.MustParse("1.15.0-beta.1"), version.MustParse("1.13.4"),
	}

	if got := texts(t, release.Given("talos_versions", version.Talos, versions, release.Options{})); got != "[1.13.4 1.14.0]" {
		t.Errorf("got %s", got)
	}

	if got := texts(t, release.Given("talos_versions", version.Talos, versions, release.Options{PreReleases: true})); got != "[1.13.4 1.14.0 1.15.0-beta.1]" {
		t.Errorf("got %s", got)
	}

	refused(t, release.Given("talos_versions", version.Talos, nil, release.Options{}), release.ErrEmpty, "talos_versions")
}
