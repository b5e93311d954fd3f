// SPDX-License-Identifier: MPL-2.0

package image_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestFactory_IsAHostWithPortAndPath(t *testing.T) {
	t.Parallel()

	for _, host := range []string{
		image.FactoryHost, "registry.example.com:5000/mirror/factory", "localhost", "localhost:5000", "localhost/factory", "factory:5000", "10.0.0.5", "[fd00::5]:5000/factory",
		"docker.io/acme", "Factory.Example.com",
	} {
		if err := image.CheckFactory(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}

		for _, factory := range []image.Factory{{Platform: "metal", Schematic: schematicA}, {Platform: "equinixMetal", SecureBoot: true, Schematic: schematicB}} {
			repository, err := factory.Repository(host)
			if err != nil || !strings.HasPrefix(repository.String(), host+"/") {
				t.Errorf("%+v at %s is %s, %v", factory, host, repository, err)
			}
		}
	}
}

func TestFactory_ThatWouldBeLookedForElsewhereIsRefused(t *testing.T) {
	t.Parallel()

	for host, says := range map[string]string{
		"":                              `""`,
		"factory":                       `"factory"`,
		"factory/mirror":                "has no dot and no port",
		"Factory":                       "has no dot and no port",
		"NO HOST":                       "NO HOST",
		"index.docker.io":               "index.docker.io",
		"factory.example.com/Mirror":    "factory.example.com/Mirror",
		"factory.example.com/":          "factory.example.com/",
		"factory.example.com:":          "factory.example.com:",
		"factory.example.com:0":         "port",
		"factory.example.com:65536":     "port",
		"[fd00::5]:99999":               "port",
		"factory.example.com:443/a:tag": "factory.example.com:443/a:tag",
		"https://factory.example.com":   "https://factory.example.com",
		"factory.example.com:5000000000000000000000000000000000000000000000000000000": "port",
	} {
		err := image.CheckFactory(host)
		if !errors.Is(err, image.ErrFactory) || !errors.Is(err, image.ErrReference) {
			t.Errorf("%q: %v, want ErrFactory and ErrReference", host, err)

			continue
		}

		if !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "such as "+image.FactoryHost) {
			t.Errorf("%q: the error lacks %q or an example: %v", host, says, err)
		}

		if got, err := (image.Factory{Platform: "metal", Schematic: schematicA}).Repository(host); !errors.Is(err, image.ErrFactory) {
			t.Errorf("%q names the image %q, %v", host, got, err)
		}
	}
}

// TestFactory_NotBlamedForOddPlatforms: a node says which platform it is on.
func TestFactory_NotBlamedForOddPlatforms(t *testing.T) {
	t.Parallel()

	_, err := image.Factory{Platform: "no platform", Schematic: schematicA}.Repository(image.FactoryHost)
	if !errors.Is(err, image.ErrReference) || errors.Is(err, image.ErrFactory) {
		t.Errorf("%v, want ErrReference alone", err)
	}
}

func TestFactory_BlamedByResolveWhereItIsAtFault(t *testing.T) {
	t.Parallel()

	_, err := image.Resolve(image.Running{Platform: "metal"}, version.MustParse("1.14.0"), image.Wish{Factory: "factory"})
	if !errors.Is(err, image.ErrFactory) || strings.Contains(err.Error(), "machine.install.image") {
		t.Errorf("%v, want ErrFactory", err)
	}
}

// TestFactory_ErrorsNeverRepeatCredentials holds every entrance of the package to it,
// with text that people paste from a browser or from a configuration.
func TestFactory_ErrorsNeverRepeatCredentials(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"https://user:s3cret@registry.example.com/talos/installer",
		"https://s3cret@registry.example.com/talos/installer",
		"user:s3cret@registry.example.com/talos/installer",
		"user:s3cret@registry.example.com/talos/Installer",
		"user:s3cret@registry.example.com:5000",
		"user:s3cret/s3cret@registry.example.com/talos/installer",
		"user:s3cret@registry.example.com/talos/installer:v1.13.4@" + digest,
		"user:p@s3cret@registry.example.com/talos/installer",
		"USER:s3cret@registry.example.com/talos/installer@" + digest,
		"oci://user:s3cret@registry.example.com/talos/installer",
		"https://registry.example.com/talos/installer?token=s3cret",
		"registry.example.com/talos/installer?token=s3cret",
		"registry.example.com/talos/installer#s3cret?",
	} {
		_, parsed := image.ParseRepository(text)
		_, _, split := image.Split(text)
		_, named := image.Factory{Platform: "metal", Schematic: schematicA}.Repository(text)
		_, wished := image.Resolve(image.Running{}, version.MustParse("1.14.0"), image.Wish{Repository: text})
		_, served := image.Resolve(image.Running{}, version.MustParse("1.14.0"), image.Wish{Factory: text})
		_, owned := image.Resolve(image.Running{InstallImage: text}, version.MustParse("1.14.0"), image.Wish{})

		for entrance, err := range map[string]error{
			"ParseRepository": parsed, "Split": split, "CheckFactory": image.CheckFactory(text), "Repository": named, "wish": wished, "factory": served, "install image": owned,
		} {
			switch {
			case !errors.Is(err, image.ErrReference):
				t.Errorf("%s of %q: %v, want ErrReference", entrance, text, err)
			case strings.Contains(err.Error(), "s3cret"):
				t.Errorf("%s repeats it: %v", entrance, err)
			}
		}
	}
}
