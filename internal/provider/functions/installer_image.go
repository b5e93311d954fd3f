// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/function"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ function.Function = installerImageFunction{}

// The attributes of the argument of installer_image.
const (
	imagePlatform   = "platform"
	imageSchematic  = "schematic"
	imageVersion    = "version"
	imageSecureBoot = "secure_boot"
	imageFactory    = "factory"
)

// installerImageFunction is installer_image(image).
type installerImageFunction struct{}

func newInstallerImageFunction() function.Function { return installerImageFunction{} }

// Metadata implements [function.Function].
func (installerImageFunction) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "installer_image"
}

// Definition implements [function.Function].
func (installerImageFunction) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "Returns the installer image of an Image Factory.",
		MarkdownDescription: "Returns the reference of the installer image that an Image Factory builds for a platform, a schematic and a Talos version, such as " +
			"`factory.talos.dev/metal-installer/<schematic>:v1.13.4`. The factory is not contacted: an unknown schematic shows only when a node pulls the image.",
		Parameters: []function.Parameter{
			function.DynamicParameter{
				Name: "image",
				MarkdownDescription: "Object with the attributes `platform` (as Talos names it: `metal`, `aws`, `nocloud`, ...), `schematic` (ID of 64 hexadecimal digits), " +
					"`version` (of Talos, with or without `v`), `secure_boot` (default `false`) and `factory` (host of the factory or a mirror, with port and path if any, without `https://`; default " +
					"`" + image.FactoryHost + "`). If `version` is omitted, the result has no tag, as `installer_image` of `talosupgrade_cluster` takes it. " +
					"`secure_boot` and `factory` may be null or omitted. Other attributes are an error.",
			},
		},
		Return: function.StringReturn{},
	}
}

// Run implements [function.Function].
func (installerImageFunction) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	reference, refused := installerImage(ctx, req.Arguments)
	if refused != nil {
		resp.Error = refused

		return
	}

	resp.Error = resp.Result.Set(ctx, reference)
}

// imageArgument is the argument of installer_image.
type imageArgument struct {
	objectArgument
}

func installerImage(ctx context.Context, arguments function.ArgumentsData) (string, *function.FuncError) {
	object, refused := readObject(ctx, arguments, 0, imagePlatform, imageSchematic, imageVersion, imageSecureBoot, imageFactory)
	if refused != nil {
		return "", refused
	}

	argument := imageArgument{object}

	talos, refused := argument.talosVersion()
	if refused != nil {
		return "", refused
	}

	platform, refused := argument.platform(talos)
	if refused != nil {
		return "", refused
	}

	schematic, refused := argument.schematic()
	if refused != nil {
		return "", refused
	}

	secure, refused := argument.flag(imageSecureBoot)
	if refused != nil {
		return "", refused
	}

	repository, refused := argument.repository(image.Factory{Platform: platform, SecureBoot: secure, Schematic: schematic})
	if refused != nil {
		return "", refused
	}

	if talos.IsZero() {
		return repository.String(), nil
	}

	return repository.At(talos), nil
}

// talosVersion returns the version; zero if it is omitted. Null is refused: an unset variable must not result in an
// image without a tag, which is the latest.
func (a imageArgument) talosVersion() (version.Version, *function.FuncError) {
	if value, given := a.values[imageVersion]; given && value.IsNull() {
		return version.Version{}, refusal(a.position, "%s is null; set it, or leave the attribute out to get the repository without a tag", imageVersion)
	}

	return a.version(imageVersion)
}

func (a imageArgument) schematic() (string, *function.FuncError) {
	schematic, refused := a.required(imageSchematic, image.EmptySchematic)
	if refused != nil {
		return "", refused
	}

	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(schematic) {
		return "", refusal(a.position, "%s is %q; want the ID of 64 hexadecimal digits in lower case that the Image Factory gave, or %s for Talos without extensions",
			imageSchematic, schematic, image.EmptySchematic)
	}

	return schematic, nil
}

// repository returns the repository of the image at the factory.
func (a imageArgument) repository(of image.Factory) (image.Repository, *function.FuncError) {
	factory, refused := a.text(imageFactory)
	if refused != nil {
		return image.Repository{}, refused
	}

	if factory == "" {
		factory = image.FactoryHost
	}

	// Such text may contain a password and is not repeated.
	if strings.ContainsAny(factory, "@?") {
		return image.Repository{}, refusal(a.position, "%s holds a user name or a query; write the host alone, and credentials into the registry configuration of the nodes", imageFactory)
	}

	if scheme, host, found := strings.Cut(factory, "://"); found {
		return image.Repository{}, refusal(a.position, "%s is %q; write the host without %s://: %q", imageFactory, factory, scheme, strings.TrimRight(host, "/"))
	}

	repository, err := of.Repository(factory)
	// Without a dot or a port, the text is not taken as a host, but as a path on another registry.
	if err != nil || !strings.HasPrefix(repository.String(), factory+"/") || !portInRange(factory) {
		return image.Repository{}, refusal(a.position,
			"%s is %q, which is no registry; write its host, with port and path if it has them, such as %q or \"registry.example.com:5000/mirror\", without a slash at the end",
			imageFactory, factory, image.FactoryHost)
	}

	return repository, nil
}

// portInRange reports whether the port of the registry is valid. It is true if the registry has no port.
func portInRange(registry string) bool {
	host, _, _ := strings.Cut(registry, "/")

	colon := strings.LastIndexByte(host, ':')
	if colon < 0 || strings.HasSuffix(host, "]") {
		return true
	}

	port, err := strconv.ParseUint(host[colon+1:], 10, 16)

	return err == nil && port > 0
}

// talosPlatform is a platform on which Talos can be installed.
type talosPlatform struct {
	name string
	// since is the first Talos version with the platform; empty if it is older than all versions that matter here.
	since string
}

// talosPlatforms returns the platforms of machinery's package platforms, sorted by name.
func talosPlatforms() []talosPlatform {
	return []talosPlatform{
		{"akamai", "1.7.0"},
		{"alibabacloud", "1.14.0-beta.2"},
		{"aws", ""},
		{"azure", ""},
		{"cloudstack", "1.8.0-alpha.2"},
		{"digital-ocean", ""},
		{"equinixMetal", ""},
		{"exoscale", "1.3.0"},
		{"gcp", ""},
		{"hcloud", ""},
		{"metal", ""},
		{"nocloud", ""},
		{"opennebula", "1.7.0"},
		{"openstack", ""},
		{"oracle", ""},
		{"scaleway", ""},
		{"upcloud", ""},
		{"vmware", ""},
		{"vultr", ""},
	}
}

// platform returns the platform in the argument. The Talos version, if there is one, must have it.
func (a imageArgument) platform(talos version.Version) (string, *function.FuncError) {
	named, refused := a.required(imagePlatform, "metal")
	if refused != nil {
		return "", refused
	}

	names := make([]string, 0, len(talosPlatforms()))

	for _, known := range talosPlatforms() {
		if known.name != named {
			names = append(names, known.name)

			continue
		}

		if known.since != "" && !talos.IsZero() && talos.Less(version.MustParse(known.since)) {
			return "", refusal(a.position, "Talos %s has no platform %s, which came with Talos %s", talos, named, known.since)
		}

		return named, nil
	}

	return "", refusal(a.position, "%s is %q; Talos knows %s", imagePlatform, named, strings.Join(names, ", "))
}
