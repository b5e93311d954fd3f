// SPDX-License-Identifier: MPL-2.0

package image_test

import (
	"errors"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
)

// TestUnsuitable_ReasonsAreToldApartAndAcceptedOneByOne: another schematic and another way
// to boot can each be accepted, and then an image comes of it; another platform
// cannot.
func TestUnsuitable_ReasonsAreToldApartAndAcceptedOneByOne(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		node     image.Running
		target   string
		override string
		kind     error
		want     image.Choice
	}{
		"own factory image of another schematic": {
			node: image.Running{InstallImage: factory + "metal-installer/" + schematicB + ":v1.12.6", Schematic: schematicA, Platform: "metal"}, kind: image.ErrSchematic,
			want: image.Choice{Reference: factory + "metal-installer/" + schematicB + ":v1.13.4", Schematic: schematicB},
		},
		"own factory image that may not hold the extensions": {
			node: image.Running{InstallImage: factory + "metal-installer/" + empty + ":v1.12.6", Extensions: []string{"drbd"}, Platform: "metal"}, kind: image.ErrSchematic,
			want: image.Choice{Reference: factory + "metal-installer/" + empty + ":v1.13.4", Schematic: empty},
		},
		"own private build that does not name the schematic": {
			node: image.Running{InstallImage: "registry.example.com/talos:v1.12.6", Schematic: schematicA}, kind: image.ErrSchematic,
			want: image.Choice{Reference: "registry.example.com/talos:v1.13.4"},
		},
		"generic, extensions and no schematic": {
			node: image.Running{InstallImage: generic + ":v1.12.6", Extensions: []string{"drbd"}, Platform: "metal"}, kind: image.ErrSchematic,
			want: image.Choice{Reference: generic + ":v1.13.4"},
		},
		"generic, extensions and no schematic from 1.14 on": {
			node: image.Running{InstallImage: generic + ":v1.13.4", Extensions: []string{"drbd"}, Platform: "aws"}, target: "1.14.0", kind: image.ErrSchematic,
			want: image.Choice{Reference: factory + "aws-installer/" + empty + ":v1.14.0", Schematic: empty},
		},
		"extensions and neither schematic nor install image": {
			node: image.Running{Extensions: []string{"drbd"}, Platform: "metal"}, kind: image.ErrSchematic,
			want: image.Choice{Reference: factory + "metal-installer/" + empty + ":v1.13.4", Schematic: empty},
		},
		"override that drops the schematic": {
			node: image.Running{InstallImage: generic + ":v1.12.6", Schematic: schematicA}, override: "registry.example.com/talos", kind: image.ErrSchematic,
			want: image.Choice{Reference: "registry.example.com/talos:v1.13.4"},
		},
		"override with the generic installer drops the schematic from 1.14 on as well": {
			node: image.Running{Schematic: schematicA, Platform: "metal"}, override: generic, target: "1.14.0", kind: image.ErrSchematic,
			want: image.Choice{Reference: factory + "metal-installer/" + empty + ":v1.14.0", Schematic: empty},
		},
		"own factory image without secure boot": {
			node: image.Running{InstallImage: factory + "metal-installer/" + schematicA + ":v1.12.6", Schematic: schematicA, SecureBoot: true}, kind: image.ErrBoot,
			want: image.Choice{Reference: factory + "metal-installer/" + schematicA + ":v1.13.4", Schematic: schematicA},
		},
		"override with secure boot": {
			node: image.Running{Platform: "metal"}, override: factory + "metal-installer-secureboot/" + schematicA, kind: image.ErrBoot,
			want: image.Choice{Reference: factory + "metal-installer-secureboot/" + schematicA + ":v1.13.4", Schematic: schematicA, Demanded: true},
		},
		"override for another platform": {
			node: image.Running{Platform: "metal"}, override: factory + "aws-installer/" + schematicA, kind: image.ErrPlatform,
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			_, err := image.Resolve(test.node, targetOf(test.target), image.Wish{Repository: test.override})

			var refused *image.UnsuitableError
			if !errors.As(err, &refused) || !errors.Is(err, image.ErrUnsuitable) || refused.Found == "" || refused.Remedy == "" {
				t.Fatalf("Resolve: %v; want a refusal that says what was found and what to do", err)
			}

			for _, lenient := range []image.Leniency{{}, {AnySchematic: true}, {AnyBoot: true}, {AnySchematic: true, AnyBoot: true}} {
				accepted := map[error]bool{image.ErrSchematic: lenient.AnySchematic, image.ErrBoot: lenient.AnyBoot}[test.kind]
				if lenient.Accepts(err) != accepted {
					t.Errorf("%+v accepts %v: %t", lenient, err, !accepted)
				}

				got, err := image.Resolve(test.node, targetOf(test.target), image.Wish{Repository: test.override, Lenient: lenient})
				if accepted && (err != nil || got != test.want) {
					t.Errorf("Resolve with %+v = %+v, %v\nwant %+v", lenient, got, err, test.want)
				}

				if !accepted && (!errors.Is(err, test.kind) || got.Reference != "") {
					t.Errorf("Resolve with %+v = %+v, %v; want %v", lenient, got, err, test.kind)
				}
			}
		})
	}
}

// TestUnsuitable_NodeThatDoesNotSayHowItBootsIsNotContradicted: what its own image says is
// the better guess.
func TestUnsuitable_NodeThatDoesNotSayHowItBootsIsNotContradicted(t *testing.T) {
	t.Parallel()

	for _, flavour := range []string{"metal-installer/", "metal-installer-secureboot/"} {
		node := image.Running{InstallImage: factory + flavour + schematicA + ":v1.12.6", Schematic: schematicA, Platform: "metal", BootUnknown: true}

		got, err := image.Resolve(node, targetOf(""), image.Wish{})
		if want := factory + flavour + schematicA + ":v1.13.4"; err != nil || got.Reference != want {
			t.Errorf("Resolve = %+v, %v; want %s", got, err, want)
		}
	}
}
