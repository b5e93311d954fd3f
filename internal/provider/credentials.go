// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/talosapi"
)

// talosconfigEnv is the environment variable that talosctl reads as well.
const talosconfigEnv = "TALOSCONFIG"

var (
	// errUnknown is wrapped when the provider block depends on values that only
	// an apply will know.
	errUnknown = errors.New("provider configuration not known yet")
	// errMissing is wrapped when no credentials were given at all.
	errMissing = errors.New("no credentials for the Talos API")
	// errUnusable is wrapped when what was given cannot be used.
	errUnusable = errors.New("unusable credentials")
)

// clientCertificate is a client certificate of the Talos API, each part PEM in
// base64.
type clientCertificate struct {
	CA, Cert, Key string
}

// credentials are what the provider block says.
type credentials struct {
	Talosconfig     string
	TalosconfigPath string
	Endpoints       []string
	Certificate     *clientCertificate
	Context         string
	Kubeconfig      string
	KubeconfigPath  string
	// Unknown are the attributes whose values are not known yet.
	Unknown []string
}

// contextName is the context to use where a resource asks for one.
func (c credentials) contextName(wanted string) string {
	if wanted != "" {
		return wanted
	}

	return c.Context
}

// talos reads the credentials of the Talos API for a context. Errors wrap
// [errUnknown], [errMissing] or [errUnusable] and name the source.
func (c credentials) talos(wanted string) (talosapi.Config, error) {
	if len(c.Unknown) > 0 {
		return talosapi.Config{}, fmt.Errorf("%w: %s", errUnknown, strings.Join(c.Unknown, ", "))
	}

	if c.Talosconfig == "" && c.TalosconfigPath == "" && c.Certificate != nil {
		return c.fromCertificate(wanted)
	}

	data, source, err := c.talosconfig()
	if err != nil {
		return talosapi.Config{}, err
	}

	config, err := talosapi.ParseConfig(data, c.contextName(wanted))
	if err != nil {
		return talosapi.Config{}, fmt.Errorf("%w: %s: %w", errUnusable, source, err)
	}

	return config, nil
}

func (c credentials) fromCertificate(wanted string) (talosapi.Config, error) {
	if name := c.contextName(wanted); name != "" {
		return talosapi.Config{}, fmt.Errorf("%w: context %q cannot be looked up in endpoints and client_configuration, which have none; remove context, or use talosconfig",
			errUnusable, name)
	}

	config, err := talosapi.ConfigFromParts(c.Endpoints, c.Certificate.CA, c.Certificate.Cert, c.Certificate.Key)
	if err != nil {
		return talosapi.Config{}, fmt.Errorf("%w: endpoints and client_configuration: %w", errUnusable, err)
	}

	return config, nil
}

// talosconfig is the text of the talosconfig and a name of where it is from.
func (c credentials) talosconfig() (data []byte, source string, err error) {
	if c.Talosconfig != "" {
		return []byte(c.Talosconfig), "provider attribute talosconfig", nil
	}

	if c.TalosconfigPath != "" {
		return readCredentials(c.TalosconfigPath, "provider attribute talosconfig_path")
	}

	if file := os.Getenv(talosconfigEnv); file != "" {
		return readCredentials(file, "environment variable "+talosconfigEnv)
	}

	return nil, "", errMissing
}

// kubeconfig is the kubeconfig that the configuration gives, nil when it leaves
// that to the Talos API.
func (c credentials) kubeconfig() ([]byte, error) {
	if c.Kubeconfig != "" {
		return []byte(c.Kubeconfig), nil
	}

	if c.KubeconfigPath == "" {
		return nil, nil
	}

	data, _, err := readCredentials(c.KubeconfigPath, "provider attribute kubeconfig_path")

	return data, err
}

func readCredentials(file, source string) ([]byte, string, error) {
	expanded := file

	if rest, ok := strings.CutPrefix(file, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, "", fmt.Errorf("%w: %s: %w", errUnusable, source, err)
		}

		expanded = home + string(os.PathSeparator) + rest
	}

	data, err := os.ReadFile(expanded)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s: %w", errUnusable, source, err)
	}

	return data, source + " (" + file + ")", nil
}
