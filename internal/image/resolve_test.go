// SPDX-License-Identifier: MPL-2.0

package image_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	generic = "ghcr.io/siderolabs/installer"
	factory = "factory.talos.dev/"
	empty   = image.EmptySchematic
)

func TestResolve_KeepsWhatTheNodeRuns(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		node     image.Running
		target   string
		override string
		want     image.Choice
	}{
		"own factory image: only the tag changes": {
			node: image.Running{InstallImage: factory + "metal-installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "metal", Extensions: []string{"iscsi-tools"}},
			want: image.Choice{Reference: factory + "metal-installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"own factory image with secure boot on another platform": {
			node: image.Running{InstallImage: factory + "aws-installer-secureboot/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "aws", SecureBoot: true},
			want: image.Choice{Reference: factory + "aws-installer-secureboot/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"own factory image in the spelling without a platform": {
			node: image.Running{InstallImage: factory + "installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "metal"},
			want: image.Choice{Reference: factory + "installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"own factory image behind a mirror keeps host, port and prefix": {
			node: image.Running{InstallImage: "harbor.example.com:8443/proxy/factory/metal-installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "metal"},
			want: image.Choice{Reference: "harbor.example.com:8443/proxy/factory/metal-installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"own factory image pinned by digest: the digest belongs to the old version": {
			node: image.Running{InstallImage: factory + "installer/" + schematicA + ":v1.12.6@" + digest, Schematic: schematicA, Platform: "metal"},
			want: image.Choice{Reference: factory + "installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"own factory image on Equinix Metal, which has no name at the factory": {
			node: image.Running{InstallImage: factory + "installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "equinixMetal"},
			want: image.Choice{Reference: factory + "installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"own factory image of a bare node that reports no schematic": {
			node: image.Running{InstallImage: factory + "metal-installer/" + empty + ":v1.12.6", Platform: "metal"},
			want: image.Choice{Reference: factory + "metal-installer/" + empty + ":v1.13.4", Schematic: empty},
		},
		"own private build": {
			node: image.Running{InstallImage: "registry.example.com:5000/talos/installer:v1.12.6", Platform: "metal", Extensions: []string{"drbd"}},
			want: image.Choice{Reference: "registry.example.com:5000/talos/installer:v1.13.4"},
		},
		"own private mirror of the generic installer stays at home from 1.14 on": {
			node:   image.Running{InstallImage: "registry.example.com/siderolabs/installer:v1.13.4", Platform: "metal"},
			target: "1.14.0",
			want:   image.Choice{Reference: "registry.example.com/siderolabs/installer:v1.14.0"},
		},
		"own private mirror that names the running schematic last": {
			node: image.Running{InstallImage: "registry.example.com/talos/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "metal"},
			want: image.Choice{Reference: "registry.example.com/talos/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"own private build on the empty schematic": {
			node: image.Running{InstallImage: "registry.example.com/talos/installer:v1.12.6", Schematic: empty, Platform: "metal"},
			want: image.Choice{Reference: "registry.example.com/talos/installer:v1.13.4"},
		},
		"generic below 1.14": {
			node: image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal"},
			want: image.Choice{Reference: generic + ":v1.13.4"},
		},
		"generic below 1.14 with the empty schematic": {
			node: image.Running{InstallImage: generic + ":v1.12.6", Schematic: empty, Platform: "metal"},
			want: image.Choice{Reference: generic + ":v1.13.4"},
		},
		"generic becomes the factory's from 1.14 on": {
			node: image.Running{InstallImage: generic + ":v1.13.4", Platform: "metal"}, target: "1.14.0",
			want: image.Choice{Reference: factory + "metal-installer/" + empty + ":v1.14.0", Schematic: empty},
		},
		"generic becomes the factory's for pre-releases of 1.14 as well": {
			node: image.Running{InstallImage: generic + ":v1.13.4", Platform: "metal"}, target: "1.14.0-rc.1",
			want: image.Choice{Reference: factory + "metal-installer/" + empty + ":v1.14.0-rc.1", Schematic: empty},
		},
		"generic becomes the factory's of the node's platform": {
			node: image.Running{InstallImage: generic + ":v1.13.4", Platform: "vmware"}, target: "1.14.0",
			want: image.Choice{Reference: factory + "vmware-installer/" + empty + ":v1.14.0", Schematic: empty},
		},
		"generic becomes the plain factory installer on Equinix Metal": {
			node: image.Running{InstallImage: generic + ":v1.13.4", Platform: "equinixMetal"}, target: "1.14.0",
			want: image.Choice{Reference: factory + "installer/" + empty + ":v1.14.0", Schematic: empty},
		},
		"generic under secure boot becomes the factory's secure flavour even before 1.14": {
			node: image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal", SecureBoot: true},
			want: image.Choice{Reference: factory + "metal-installer-secureboot/" + empty + ":v1.13.4", Schematic: empty},
		},
		"generic with a schematic running becomes that schematic's image": {
			node: image.Running{InstallImage: generic + ":v1.12.6", Schematic: schematicA, Extensions: []string{"qemu-guest-agent"}, Platform: "nocloud"},
			want: image.Choice{Reference: factory + "nocloud-installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"missing install image below 1.10, where the factory has one installer for all platforms": {
			node: image.Running{Schematic: schematicA, Platform: "aws"}, target: "1.9.5",
			want: image.Choice{Reference: factory + "installer/" + schematicA + ":v1.9.5", Schematic: schematicA},
		},
		"generic with a schematic running, below 1.10": {
			node: image.Running{InstallImage: generic + ":v1.8.4", Schematic: schematicA, Extensions: []string{"drbd"}, Platform: "nocloud", UKI: true}, target: "1.9.5",
			want: image.Choice{Reference: factory + "installer/" + schematicA + ":v1.9.5", Schematic: schematicA},
		},
		"missing install image: the factory image of what runs": {
			node: image.Running{Schematic: schematicA, Platform: "aws", SecureBoot: true},
			want: image.Choice{Reference: factory + "aws-installer-secureboot/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"missing install image, schematic and platform: bare metal": {
			want: image.Choice{Reference: factory + "metal-installer/" + empty + ":v1.13.4", Schematic: empty},
		},
		"override with the running schematic": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Schematic: schematicA, Platform: "metal"},
			override: "harbor.example.com/f/metal-installer/" + schematicA,
			want:     image.Choice{Reference: "harbor.example.com/f/metal-installer/" + schematicA + ":v1.13.4", Schematic: schematicA, Demanded: true},
		},
		"override with another schematic is a demand": {
			node:     image.Running{InstallImage: factory + "metal-installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Extensions: []string{"iscsi-tools"}, Platform: "metal"},
			override: factory + "metal-installer/" + schematicB,
			want:     image.Choice{Reference: factory + "metal-installer/" + schematicB + ":v1.13.4", Schematic: schematicB, Demanded: true},
		},
		"override that a mirror ends in the running schematic": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Schematic: schematicA, Platform: "metal"},
			override: "registry.example.com/talos/" + schematicA,
			want:     image.Choice{Reference: "registry.example.com/talos/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"override with a private repository on a bare node": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal"},
			override: "registry.example.com:5000/talos/installer",
			want:     image.Choice{Reference: "registry.example.com:5000/talos/installer:v1.13.4"},
		},
		"override with the generic installer on a bare node below 1.14": {
			node:     image.Running{InstallImage: "registry.example.com/talos:v1.12.6", Schematic: empty, Platform: "metal"},
			override: generic,
			want:     image.Choice{Reference: generic + ":v1.13.4"},
		},
		"override with the generic installer from 1.14 on": {
			node:     image.Running{InstallImage: generic + ":v1.13.4", Platform: "metal"},
			override: generic, target: "1.14.0",
			want: image.Choice{Reference: factory + "metal-installer/" + empty + ":v1.14.0", Schematic: empty},
		},
		"override by digest": {
			node:     image.Running{InstallImage: factory + "metal-installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "metal"},
			override: factory + "metal-installer/" + schematicA + "@" + digest,
			want:     image.Choice{Reference: factory + "metal-installer/" + schematicA + "@" + digest, Schematic: schematicA, Demanded: true},
		},
		"override with a private build by digest": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal"},
			override: "registry.example.com:5000/talos/installer@" + digest,
			want:     image.Choice{Reference: "registry.example.com:5000/talos/installer@" + digest},
		},
		"override with the generic installer by digest: nothing takes its place": {
			node:     image.Running{InstallImage: generic + ":v1.13.4", Platform: "metal"},
			override: generic + "@" + digest, target: "1.14.0",
			want: image.Choice{Reference: generic + "@" + digest},
		},
		"override makes a broken install image irrelevant": {
			node:     image.Running{InstallImage: "NOT AN IMAGE", Platform: "metal"},
			override: generic,
			want:     image.Choice{Reference: generic + ":v1.13.4"},
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			got, err := image.Resolve(test.node, targetOf(test.target), image.Wish{Repository: test.override})
			if err != nil || got != test.want {
				t.Errorf("Resolve = %+v, %v\nwant      %+v", got, err, test.want)
			}
		})
	}
}

func TestResolve_RefusesWhatWouldCostTheNodeSomething(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		node     image.Running
		target   string
		override string
		kind     error
		// says are parts of the message: what was found, and what to do.
		says []string
	}{
		"generic, extensions and no schematic": {
			node: image.Running{InstallImage: generic + ":v1.12.6", Extensions: []string{"drbd", "iscsi-tools"}, Platform: "metal"},
			says: []string{"generic installer", "drbd, iscsi-tools", "no schematic", "set installer_image"},
		},
		"generic, extensions and no schematic from 1.14 on": {
			node: image.Running{InstallImage: generic + ":v1.13.4", Extensions: []string{"drbd"}, Platform: "metal"}, target: "1.14.0",
			says: []string{"drbd", "set installer_image"},
		},
		"extensions and neither schematic nor install image": {
			node: image.Running{Extensions: []string{"drbd"}, Platform: "metal"},
			says: []string{"drbd", "neither a schematic nor an install image", "set installer_image"},
		},
		"own factory image of another schematic than runs": {
			node: image.Running{InstallImage: factory + "metal-installer/" + schematicB + ":v1.12.6", Schematic: schematicA, Extensions: []string{"drbd"}, Platform: "metal"},
			says: []string{schematicA, schematicB, "drbd", "set installer_image"},
		},
		"own factory image of the empty schematic though extensions run": {
			node: image.Running{InstallImage: factory + "metal-installer/" + empty + ":v1.12.6", Extensions: []string{"drbd"}, Platform: "metal"},
			says: []string{"drbd", empty, "set installer_image"},
		},
		"own private build that does not name the running schematic": {
			node: image.Running{InstallImage: "registry.example.com/talos/installer:v1.12.6", Schematic: schematicA, Platform: "metal"},
			says: []string{schematicA, "registry.example.com/talos/installer", "set installer_image", "/<platform>-installer/" + schematicA},
		},
		"own factory image without secure boot on a node with it": {
			node: image.Running{InstallImage: factory + "metal-installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "metal", SecureBoot: true},
			says: []string{"metal-installer/" + schematicA, "is without secure boot", "boots with secure boot", "set installer_image to the installer with secure boot"},
		},
		"own factory image for another platform": {
			node: image.Running{InstallImage: factory + "aws-installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "metal"},
			says: []string{"platform aws", "runs on metal", "metal-installer"},
		},
		"another platform's image on Equinix Metal": {
			node: image.Running{InstallImage: factory + "aws-installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "equinixMetal"},
			says: []string{"platform aws", "runs on equinixMetal", "metal-installer"},
		},
		"override generic while the node has extensions": {
			node:     image.Running{InstallImage: factory + "metal-installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Extensions: []string{"drbd"}, Platform: "metal"},
			override: generic,
			says:     []string{generic, "drbd", "use a repository that ends in /<platform>-installer/" + schematicA},
		},
		"override generic while the node has extensions of an unknown schematic": {
			node:     image.Running{InstallImage: "registry.example.com/talos:v1.12.6", Extensions: []string{"drbd"}, Platform: "metal"},
			override: generic,
			says:     []string{generic, "drbd", "/<platform>-installer/<schematic>"},
		},
		"override private while the node has a schematic": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Schematic: schematicA, Platform: "metal"},
			override: "registry.example.com/talos/installer",
			says:     []string{"registry.example.com/talos/installer", "what its schematic adds", "use a repository"},
		},
		"override with secure boot on a node without": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal"},
			override: factory + "metal-installer-secureboot/" + schematicA,
			says:     []string{"is with secure boot", "boots without secure boot", "set installer_image to the installer without secure boot"},
		},
		"override for another platform": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal"},
			override: factory + "aws-installer/" + schematicA,
			says:     []string{"platform aws", "runs on metal", "metal-installer"},
		},
		"override by digest with the generic installer on a node with secure boot": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal", SecureBoot: true},
			override: generic + "@" + digest, kind: image.ErrBoot,
			says: []string{generic + " is without secure boot", "boots with secure boot"},
		},
		"override by digest in the spelling without a platform": {
			node:     image.Running{InstallImage: factory + "aws-installer/" + schematicA + ":v1.12.6", Platform: "aws", Schematic: schematicA},
			override: factory + "installer/" + schematicA + "@" + digest, kind: image.ErrPlatform,
			says: []string{"platform metal", "runs on aws", "aws-installer"},
		},
		"override with a tag and a digest": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal"},
			override: generic + ":v1.13.4@" + digest, kind: image.ErrReference,
			says: []string{"a tag and a digest", "leave the tag out"},
		},
		"override with the tag latest": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal"},
			override: generic + ":latest", kind: image.ErrReference,
			says: []string{generic + ":latest", "the tag latest, which is no version of Talos", "give the repository alone", generic + "@sha256:"},
		},
		"override that is no reference": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal"},
			override: "Registry/Installer", kind: image.ErrReference,
			says: []string{"Registry/Installer"},
		},
		"install image that is no reference": {
			node: image.Running{InstallImage: "ghcr.io/Siderolabs/installer:v1.12.6", Platform: "metal"},
			kind: image.ErrReference,
			says: []string{"machine.install.image", "ghcr.io/Siderolabs/installer:v1.12.6", "lowercase"},
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			kind := test.kind
			if kind == nil {
				kind = image.ErrUnsuitable
			}

			got, err := image.Resolve(test.node, targetOf(test.target), image.Wish{Repository: test.override})
			if !errors.Is(err, kind) {
				t.Fatalf("Resolve = %+v, %v; want %v", got, err, kind)
			}

			if got.Reference != "" {
				t.Errorf("a refusal came with the image %s", got.Reference)
			}

			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
		})
	}
}

// TestResolve_RefusedOverrideStillTellsItsDemand: otherwise a node with the right
// version and another schematic would pass for finished.
func TestResolve_RefusedOverrideStillTellsItsDemand(t *testing.T) {
	t.Parallel()

	got, err := image.Resolve(image.Running{Platform: "metal", Schematic: schematicA}, targetOf(""), image.Wish{Repository: factory + "aws-installer/" + schematicB})
	if !errors.Is(err, image.ErrUnsuitable) || !got.Demanded || got.Schematic != schematicB || got.Reference != "" {
		t.Errorf("Resolve = %+v, %v; want the demand for %s and ErrUnsuitable", got, err, schematicB)
	}
}

// targetOf is the version of that text, 1.13.4 by default.
func targetOf(text string) version.Version {
	if text == "" {
		text = "1.13.4"
	}

	return version.MustParse(text)
}

// TestResolve_UnnamedImagesComeFromTheChosenFactory: behind an air
// gap the public one is out of reach.
func TestResolve_UnnamedImagesComeFromTheChosenFactory(t *testing.T) {
	t.Parallel()

	for title, node := range map[string]image.Running{
		"no image":             {Platform: "metal", Schematic: schematicA},
		"the generic image":    {Platform: "metal", Schematic: schematicA, InstallImage: "ghcr.io/siderolabs/installer:v1.13.0"},
		"an image of its own":  {Platform: "metal", Schematic: schematicA, InstallImage: "factory.talos.dev/metal-installer/" + schematicA + ":v1.13.0"},
		"the generic override": {Platform: "metal", Schematic: image.EmptySchematic},
	} {
		wish := image.Wish{Factory: "factory.example.com:8443/talos"}
		want := "factory.example.com:8443/talos/metal-installer/" + node.Schematic + ":v1.14.0"

		switch title {
		case "an image of its own":
			want = "factory.talos.dev/metal-installer/" + schematicA + ":v1.14.0"
		case "the generic override":
			wish.Repository = "ghcr.io/siderolabs/installer"
		}

		got, err := image.Resolve(node, version.MustParse("1.14.0"), wish)
		if err != nil || got.Reference != want {
			t.Errorf("%s: %q, %v; want %q", title, got.Reference, err, want)
		}
	}
}

// TestResolve_KeepsThePlatform: from Talos 1.10 on an installer holds a UKI of one
// platform, and a node that takes its kernel arguments from there runs on that one
// afterwards.
func TestResolve_KeepsThePlatform(t *testing.T) {
	t.Parallel()

	const mirror = "harbor.example.com:8443/proxy/"

	for behaviour, test := range map[string]struct {
		node     image.Running
		target   string
		override string
		want     image.Choice
		// advice are parts of what is said about it, refused of why there is none.
		advice, refused []string
	}{
		"generic, bare, a UKI": {
			node:   image.Running{InstallImage: generic + ":v1.12.6", Platform: "aws", UKI: true},
			want:   image.Choice{Reference: factory + "aws-installer/" + empty + ":v1.13.4", Schematic: empty},
			advice: []string{generic + " is built for platform metal", "a node on aws", "taken from " + factory + "aws-installer/" + empty},
		},
		"generic, the empty schematic, a UKI": {
			node:   image.Running{InstallImage: generic + ":v1.12.6", Schematic: empty, Platform: "vmware", UKI: true},
			want:   image.Choice{Reference: factory + "vmware-installer/" + empty + ":v1.13.4", Schematic: empty},
			advice: []string{"vmware"},
		},
		"generic, a schematic, a UKI": {
			node:   image.Running{InstallImage: generic + ":v1.12.6", Schematic: schematicA, Platform: "aws", UKI: true},
			want:   image.Choice{Reference: factory + "aws-installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
			advice: []string{"aws"},
		},
		"generic, the first minor version with a UKI in it": {
			node: image.Running{InstallImage: generic + ":v1.9.5", Platform: "aws", UKI: true}, target: "1.10.0-beta.0",
			want:   image.Choice{Reference: factory + "aws-installer/" + empty + ":v1.10.0-beta.0", Schematic: empty},
			advice: []string{"aws"},
		},
		"generic, no UKI in the image": {
			node: image.Running{InstallImage: generic + ":v1.8.4", Platform: "aws", UKI: true}, target: "1.9.5",
			want: image.Choice{Reference: generic + ":v1.9.5"},
		},
		"generic, the bootloader has kernel arguments of its own": {
			node: image.Running{InstallImage: generic + ":v1.12.6", Platform: "aws"},
			want: image.Choice{Reference: generic + ":v1.13.4"},
		},
		"generic, metal": {
			node: image.Running{InstallImage: generic + ":v1.12.6", Platform: "metal", UKI: true},
			want: image.Choice{Reference: generic + ":v1.13.4"},
		},
		"generic, nobody knows the platform": {
			node: image.Running{InstallImage: generic + ":v1.12.6", UKI: true},
			want: image.Choice{Reference: generic + ":v1.13.4"},
		},
		"a factory's image without a platform in its name": {
			node:   image.Running{InstallImage: mirror + "installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "vmware", UKI: true},
			want:   image.Choice{Reference: mirror + "vmware-installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
			advice: []string{mirror + "installer/" + schematicA, "built for platform metal and " + mirror + "vmware-installer/" + schematicA + " for platform vmware"},
		},
		"a factory's image without a platform in its name, secure boot": {
			node:   image.Running{InstallImage: factory + "installer-secureboot/" + schematicA + ":v1.8.6", Schematic: schematicA, Platform: "aws", SecureBoot: true, UKI: true},
			target: "1.9.5",
			want:   image.Choice{Reference: factory + "aws-installer-secureboot/" + schematicA + ":v1.9.5", Schematic: schematicA},
			advice: []string{"aws"},
		},
		"a factory's image without a platform in its name, no UKI": {
			node:   image.Running{InstallImage: factory + "installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "vmware"},
			want:   image.Choice{Reference: factory + "vmware-installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
			advice: []string{"vmware"},
		},
		"a factory's image without a platform in its name, which serves all below 1.10": {
			node: image.Running{InstallImage: factory + "installer/" + schematicA + ":v1.8.4", Schematic: schematicA, Platform: "vmware"}, target: "1.9.5",
			want: image.Choice{Reference: factory + "installer/" + schematicA + ":v1.9.5", Schematic: schematicA},
		},
		"an override of a factory's image without a platform in its name": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "aws", UKI: true},
			override: mirror + "installer/" + schematicB,
			want:     image.Choice{Reference: mirror + "aws-installer/" + schematicB + ":v1.13.4", Schematic: schematicB, Demanded: true},
			advice:   []string{"aws-installer/" + schematicB + " for platform aws"},
		},
		"an override for the platform at another host": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "aws", UKI: true},
			override: "registry.example.com/talos/aws-installer",
			want:     image.Choice{Reference: "registry.example.com/talos/aws-installer:v1.13.4"},
		},
		"an override whose name says nothing": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "aws", UKI: true},
			override: "registry.example.com/talos/installer",
			want:     image.Choice{Reference: "registry.example.com/talos/installer:v1.13.4"},
			advice:   []string{"registry.example.com/talos/installer does not say which platform it is built for", "a node on aws", "the roll stops"},
		},
		"an override whose name says nothing, no UKI": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "aws"},
			override: "registry.example.com/talos/installer",
			want:     image.Choice{Reference: "registry.example.com/talos/installer:v1.13.4"},
		},
		"an override with the generic installer": {
			node:     image.Running{InstallImage: factory + "aws-installer/" + empty + ":v1.12.6", Schematic: empty, Platform: "aws", UKI: true},
			override: generic,
			refused:  []string{generic + " is built for platform metal", "runs on aws", "would lose it", "/aws-installer/" + empty},
		},
		"an override with the generic installer, no UKI": {
			node:     image.Running{InstallImage: factory + "aws-installer/" + empty + ":v1.12.6", Schematic: empty, Platform: "aws"},
			override: generic,
			want:     image.Choice{Reference: generic + ":v1.13.4"},
		},
		"an override with a mirror of the generic installer": {
			node:     image.Running{InstallImage: generic + ":v1.12.6", Platform: "aws", UKI: true},
			override: "registry.example.com/siderolabs/installer",
			refused:  []string{"registry.example.com/siderolabs/installer is built for platform metal", "would lose it"},
		},
		"a mirror of the generic installer": {
			node:    image.Running{InstallImage: "registry.example.com/siderolabs/installer:v1.12.6", Platform: "vmware", UKI: true},
			refused: []string{"registry.example.com/siderolabs/installer is built for platform metal", "/vmware-installer/" + empty},
		},
		"a mirror of the generic installer, no UKI": {
			node: image.Running{InstallImage: "registry.example.com/siderolabs/installer:v1.12.6", Platform: "vmware"},
			want: image.Choice{Reference: "registry.example.com/siderolabs/installer:v1.13.4"},
		},
		"generic on Equinix Metal, which no factory builds for": {
			node:    image.Running{InstallImage: generic + ":v1.12.6", Platform: "equinixMetal", UKI: true},
			refused: []string{"runs on equinixMetal", "would lose it", "a build of your own"},
		},
		"a factory's image on Equinix Metal": {
			node:    image.Running{InstallImage: factory + "installer/" + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "equinixMetal", UKI: true},
			refused: []string{"runs on equinixMetal", "would lose it", "a build of your own"},
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			got, err := image.Resolve(test.node, targetOf(test.target), image.Wish{Repository: test.override})

			said := got.Advice
			if got.Advice = ""; err != nil {
				said = err.Error()
			}

			if got != test.want || errors.Is(err, image.ErrPlatform) != (test.refused != nil) || (err == nil) != (test.refused == nil) {
				t.Fatalf("Resolve = %+v, %v\nwant      %+v", got, err, test.want)
			}

			if said != "" && test.advice == nil && test.refused == nil {
				t.Errorf("said for nothing: %s", said)
			}

			for _, part := range slices.Concat(test.advice, test.refused) {
				if !strings.Contains(said, part) {
					t.Errorf("it does not say %q: %s", part, said)
				}
			}
		})
	}
}
