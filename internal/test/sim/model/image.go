// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"strings"
)

const (
	genericRepository = "ghcr.io/siderolabs/installer"
	factoryHost       = "factory.talos.dev"
	schematicLength   = 64
)

// system is what an installer image writes into a slot.
type system struct {
	image     string
	digest    string
	broken    string // what its installer fails with, where it was built badly
	talos     string
	tag       string // what it calls its version, where that is another one
	schematic string
	platform  string // of its UKI: metal, unless it was built for another one
	secure    bool
}

// parseInstaller reads what an installer image holds from its name, as the
// registries lay them out.
func parseInstaller(image string) (system, error) {
	name, _, _ := strings.Cut(image, "@")

	colon := strings.LastIndex(name, ":")
	if colon < strings.LastIndex(name, "/") || colon < 0 {
		return system{}, missingImage(image)
	}

	repository, tag := name[:colon], name[colon+1:]

	version, err := parseVersion(tag)
	if err != nil || !strings.HasPrefix(tag, "v") || !released(version) {
		return system{}, missingImage(image)
	}

	if repository == genericRepository && AtLeast(version.String(), 1, 14) {
		return system{}, missingImage(image)
	}

	content := system{image: image, talos: version.String(), platform: "metal"}
	content.flavour(strings.Split(repository, "/"))

	return content, nil
}

// flavour fills in what the Image Factory puts into the last two elements of
// the name: <platform>-installer[-secureboot]/<schematic>. People's own builds have
// no schematic.
func (s *system) flavour(elements []string) {
	if platform, own := strings.CutSuffix(elements[len(elements)-1], "-installer"); own {
		s.platform = platform
	}

	if len(elements) < 2 {
		return
	}

	kind, schematic := elements[len(elements)-2], elements[len(elements)-1]
	if !isSchematic(schematic) {
		return
	}

	kind, s.secure = strings.CutSuffix(kind, "-secureboot")

	platform, isInstaller := strings.CutSuffix(kind, "-installer")

	switch {
	case isInstaller:
		s.platform = platform
	case kind == "installer":
		s.platform = "metal"
	default:
		s.secure = false

		return
	}

	s.schematic = schematic
}

func isSchematic(text string) bool {
	if len(text) != schematicLength {
		return false
	}

	return strings.Trim(text, "0123456789abcdef") == ""
}

// installerFor is the image a machine of these options was installed with.
func (o Options) installerFor(talos, schematic string) string {
	if schematic == "" && !AtLeast(talos, 1, 14) && !o.SecureBoot {
		return genericRepository + ":v" + talos
	}

	if schematic == "" {
		schematic = EmptySchematic
	}

	flavour := "-installer"
	if o.SecureBoot {
		flavour += "-secureboot"
	}

	return fmt.Sprintf("%s/%s%s/%s:v%s", factoryHost, o.Platform, flavour, schematic, talos)
}
