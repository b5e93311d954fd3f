// SPDX-License-Identifier: MPL-2.0

package image

import (
	"fmt"
	"strings"
)

// ErrFactory is wrapped by errors about text that is not the address of an Image Factory. It is an [ErrReference].
var ErrFactory error = factoryError{}

type factoryError struct{}

func (factoryError) Error() string { return "not the address of an image factory" }

func (factoryError) Unwrap() error { return ErrReference }

// Factory is what the name of a factory image says about its content.
type Factory struct {
	// Platform is "metal" if the name contains none.
	Platform   string
	SecureBoot bool
	Schematic  string
}

// Repository returns the repository of the image at the factory of the host. Errors wrap [ErrReference], and
// [ErrFactory] if the host is invalid.
func (f Factory) Repository(host string) (Repository, error) {
	if err := CheckFactory(host); err != nil {
		return Repository{}, err
	}

	return ParseRepository(host + "/" + f.path())
}

// path returns the name of the image within its factory.
func (f Factory) path() string {
	installer := f.Platform + "-installer"

	// The factory has no platform names with capitals. Talos on Equinix Metal uses the plain installer.
	if f.Platform == "" || f.Platform == equinixMetal {
		installer = "installer"
	}

	if f.SecureBoot {
		installer += "-secureboot"
	}

	return installer + "/" + f.Schematic
}

// CheckFactory returns nil if host is the address of an Image Factory without a scheme: a host, with an optional
// port and path, to which image names are appended. Errors wrap [ErrFactory] and quote the address, but no password
// in it.
func CheckFactory(host string) error {
	// An address that is valid with the longest image name is valid with all of them.
	longest := Factory{Platform: "digital-ocean", SecureBoot: true, Schematic: EmptySchematic}

	repository, err := ParseRepository(host + "/" + longest.path())
	registry, _, _ := strings.Cut(host, "/")

	var fault string

	switch {
	case confidential(host):
		return fmt.Errorf("%w: it holds what may be a password and is not repeated here; %s", ErrFactory, factoryHint())
	case strings.Contains(host, "://"):
		fault = "carries a scheme"
	case !reachable(registry):
		fault = "has a port that is not one of 1 to 65535"
	case err != nil:
		fault = "cannot begin the name of an image"
	case registry != "localhost" && !strings.ContainsAny(registry, ".:"):
		fault = "has no dot and no port, so it would be looked for on docker.io"
	case !strings.HasPrefix(repository.String(), host+"/"):
		fault = "stands for " + strings.TrimSuffix(repository.String(), "/"+longest.path())
	default:
		return nil
	}

	return fmt.Errorf("%w: %q %s; %s", ErrFactory, host, fault, factoryHint())
}

func factoryHint() string {
	return "want a host, with port and path if it has them, such as " + FactoryHost + " or registry.example.com:5000/mirror"
}
