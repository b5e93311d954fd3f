// SPDX-License-Identifier: MPL-2.0

package image_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	schematicA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	schematicB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	digest     = "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
)

func TestParseRepository_ReadsNamesOfEveryRegistry(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"ghcr.io/siderolabs/installer":                         "ghcr.io/siderolabs/installer",
		"registry.example.com:5000/talos/installer":            "registry.example.com:5000/talos/installer",
		"localhost:5000/installer":                             "localhost:5000/installer",
		"localhost/installer":                                  "localhost/installer",
		"10.0.0.5:5000/installer":                              "10.0.0.5:5000/installer",
		"[fd00::5]:5000/installer":                             "[fd00::5]:5000/installer",
		"installer":                                            "docker.io/library/installer",
		"acme/installer":                                       "docker.io/acme/installer",
		"docker.io/acme/installer":                             "docker.io/acme/installer",
		"factory.talos.dev/metal-installer/" + schematicA:      "factory.talos.dev/metal-installer/" + schematicA,
		"harbor.example.com/mirror/factory/installer/" + "abc": "harbor.example.com/mirror/factory/installer/abc",
	} {
		got, err := image.ParseRepository(text)
		if err != nil || got.String() != want {
			t.Errorf("ParseRepository(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestParseRepository_RefusesAndQuotesWhatIsNoRepository(t *testing.T) {
	t.Parallel()

	for text, hint := range map[string]string{
		"":                                   "reference",
		"ghcr.io/siderolabs/Installer":       "lowercase",
		"ghcr.io//installer":                 "reference",
		"https://ghcr.io/siderolabs/install": "reference",
		"ghcr.io/siderolabs/ installer":      "reference",
		schematicA:                           "hexadecimal",
		// What follows could be used once the tag is gone, so the error names it.
		"ghcr.io/siderolabs/installer:v1.13.4":           `such as "ghcr.io/siderolabs/installer"`,
		"registry.example.com:5000/installer:v1.13.4":    `such as "registry.example.com:5000/installer"`,
		"ghcr.io/siderolabs/installer@" + digest:         `such as "ghcr.io/siderolabs/installer"`,
		"ghcr.io/siderolabs/installer:v1.13.4@" + digest: `such as "ghcr.io/siderolabs/installer"`,
	} {
		got, err := image.ParseRepository(text)
		if !errors.Is(err, image.ErrReference) {
			t.Errorf("ParseRepository(%q) = %q, %v; want ErrReference", text, got, err)

			continue
		}

		if !strings.Contains(err.Error(), `"`+text+`"`) || !strings.Contains(err.Error(), hint) {
			t.Errorf("ParseRepository(%q): the error lacks the input or %q: %v", text, hint, err)
		}
	}
}

func TestSplit_SeparatesTheTagAndDropsTheDigest(t *testing.T) {
	t.Parallel()

	for text, want := range map[string][2]string{
		"ghcr.io/siderolabs/installer:v1.12.6":              {"ghcr.io/siderolabs/installer", "v1.12.6"},
		"ghcr.io/siderolabs/installer":                      {"ghcr.io/siderolabs/installer", ""},
		"registry.example.com:5000/installer":               {"registry.example.com:5000/installer", ""},
		"registry.example.com:5000/installer:v1.12.6":       {"registry.example.com:5000/installer", "v1.12.6"},
		"ghcr.io/siderolabs/installer@" + digest:            {"ghcr.io/siderolabs/installer", ""},
		"localhost:5000/installer:v1.12.6@" + digest:        {"localhost:5000/installer", "v1.12.6"},
		"acme/installer:latest":                             {"docker.io/acme/installer", "latest"},
		"factory.talos.dev/installer/" + schematicA + ":v1": {"factory.talos.dev/installer/" + schematicA, "v1"},
	} {
		repository, tag, err := image.Split(text)
		if err != nil || repository.String() != want[0] || tag != want[1] {
			t.Errorf("Split(%q) = %q, %q, %v; want %q", text, repository, tag, err, want)
		}
	}

	if _, _, err := image.Split("Registry/Installer:v1"); !errors.Is(err, image.ErrReference) {
		t.Errorf("Split of a name with capitals: %v, want ErrReference", err)
	}
}

func TestRepository_FactoryIsRecognisedBehindMirrors(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]image.Factory{
		"factory.talos.dev/metal-installer/" + schematicA:                  {Platform: "metal", Schematic: schematicA},
		"factory.talos.dev/installer/" + schematicA:                        {Platform: "metal", Schematic: schematicA},
		"factory.talos.dev/installer-secureboot/" + schematicA:             {Platform: "metal", SecureBoot: true, Schematic: schematicA},
		"factory.talos.dev/aws-installer-secureboot/" + schematicB:         {Platform: "aws", SecureBoot: true, Schematic: schematicB},
		"harbor.example.com/proxy/factory/nocloud-installer/" + schematicA: {Platform: "nocloud", Schematic: schematicA},
		"factory.talos.dev/digital-ocean-installer/" + schematicA:          {Platform: "digital-ocean", Schematic: schematicA},
		"localhost:5000/a/b/c/hcloud-installer/" + schematicA:              {Platform: "hcloud", Schematic: schematicA},
	} {
		repository, err := image.ParseRepository(text)
		if err != nil {
			t.Fatal(err)
		}

		got, ok := repository.Factory()
		if !ok || got != want {
			t.Errorf("%s as a factory image: %+v, %t; want %+v", text, got, ok, want)
		}
	}
}

func TestRepository_OtherNamesAreNoFactoryImages(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"ghcr.io/siderolabs/installer",
		"registry.example.com/talos/installer",
		"registry.example.com/" + schematicA,
		"registry.example.com/images/" + schematicA,
		"factory.talos.dev/metal-installer/" + schematicA[1:],
		"factory.talos.dev/metal-installer/" + schematicA + "/more",
		"factory.talos.dev/metal-installer-debug/" + schematicA,
	} {
		repository, err := image.ParseRepository(text)
		if err != nil {
			t.Fatal(err)
		}

		if got, ok := repository.Factory(); ok {
			t.Errorf("%s was taken for the factory image %+v", text, got)
		}
	}

	if got, ok := (image.Repository{}).Factory(); ok {
		t.Errorf("the zero repository was taken for the factory image %+v", got)
	}
}

func TestRepository_FactoryNamesItsImagesAsTheFactoryDoes(t *testing.T) {
	t.Parallel()

	for want, factory := range map[string]image.Factory{
		"factory.talos.dev/metal-installer/" + schematicA:          {Platform: "metal", Schematic: schematicA},
		"factory.talos.dev/aws-installer-secureboot/" + schematicA: {Platform: "aws", SecureBoot: true, Schematic: schematicA},
		"factory.talos.dev/installer/" + schematicA:                {Platform: "equinixMetal", Schematic: schematicA},
		"factory.talos.dev/installer-secureboot/" + schematicA:     {SecureBoot: true, Schematic: schematicA},
	} {
		repository, err := factory.Repository(image.FactoryHost)
		if err != nil || repository.String() != want {
			t.Errorf("%+v is named %q, %v; want %q", factory, repository, err, want)
		}
	}

	if got, err := (image.Factory{Platform: "metal", Schematic: schematicA}).Repository("NO HOST"); !errors.Is(err, image.ErrReference) {
		t.Errorf("a factory without a usable host: %q, %v; want ErrReference", got, err)
	}
}

func TestRepository_AtCarriesTheTagWithV(t *testing.T) {
	t.Parallel()

	repository, err := image.ParseRepository("registry.example.com:5000/talos/installer")
	if err != nil {
		t.Fatal(err)
	}

	if got, want := repository.At(version.MustParse("1.14.0-rc.1")), "registry.example.com:5000/talos/installer:v1.14.0-rc.1"; got != want {
		t.Errorf("At = %q, want %q", got, want)
	}

	if (image.Repository{}).String() != "" {
		t.Error("the zero repository has a name")
	}
}

// FuzzParseRepository holds the parser to three promises: it never panics, what
// it accepts survives being printed and parsed again, and the reference of a
// version splits back into the repository and the version.
func FuzzParseRepository(f *testing.F) {
	for _, seed := range []string{
		"", "installer", "ghcr.io/siderolabs/installer", "localhost:5000/a/b", "a:b", "a@" + digest, "[::1]:5000/a",
		"docker.io/library/x", "index.docker.io/x", "factory.talos.dev/installer/" + schematicA, schematicA, "docker.io/" + schematicA, "A/b", "a.b/c__d/e---f",
	} {
		f.Add(seed)
	}

	target := version.MustParse("1.13.4")

	f.Fuzz(func(t *testing.T, text string) {
		repository, err := image.ParseRepository(text)
		if err != nil {
			if !errors.Is(err, image.ErrReference) {
				t.Fatalf("ParseRepository(%q): %v does not wrap ErrReference", text, err)
			}

			return
		}

		again, err := image.ParseRepository(repository.String())
		if err != nil || again.String() != repository.String() {
			t.Fatalf("ParseRepository(%q) = %q, which parses as %q, %v", text, repository, again, err)
		}

		split, tag, err := image.Split(repository.At(target))
		if err != nil || split.String() != repository.String() || tag != target.Tag() {
			t.Fatalf("%q splits into %q and %q, %v", repository.At(target), split, tag, err)
		}

		if factory, ok := repository.Factory(); ok && factory.Platform == "" {
			t.Fatalf("%q is a factory image without a platform", text)
		}
	})
}

func TestRepository_TellsInstallersFromOtherImagesOfARelease(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]bool{
		"ghcr.io/siderolabs/imager":                           true,
		"ghcr.io/siderolabs/imager:v1.13.4":                   true,
		"registry.example.com/ghcr/siderolabs/installer-base": true,
		"ghcr.io/siderolabs/talos@" + digest:                  true,
		"ghcr.io/siderolabs/installer":                        false,
		"registry.example.com/talos":                          false,
		"registry.example.com/acme/imager":                    false,
		"factory.talos.dev/metal-installer/" + schematicA:     false,
	} {
		repository, err := image.ParseInstaller(text)
		if err != nil || repository.InstallsNothing() != want {
			t.Errorf("%s: %t, %v; want %t", text, repository.InstallsNothing(), err, want)
		}
	}
}
