// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
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
	// errLent is wrapped when credentials could not be had from the management
	// cluster.
	errLent = errors.New("no credentials from the management cluster")
)

// clientCertificate is a client certificate of the Talos API, each part PEM in
// base64.
type clientCertificate struct {
	CA, Cert, Key string
}

// managementAccess is how the management cluster is reached: one of the two
// kubeconfigs is set.
type managementAccess struct {
	Kubeconfig     string
	KubeconfigPath string
	Context        string
}

// kubeconfig is the text of the kubeconfig and a name of where it is from.
func (m managementAccess) kubeconfig() (data []byte, source string, err error) {
	if m.Kubeconfig != "" {
		return []byte(m.Kubeconfig), "provider attribute " + attrManagement + "." + attrKubeconfig, nil
	}

	return readCredentials(m.KubeconfigPath, "provider attribute "+attrManagement+"."+attrKubeconfigPath)
}

// lender is the object in the management cluster beside which the credentials
// are.
type lender struct {
	Namespace, Name string
}

// String is "tenant-a/prod".
func (l lender) String() string { return l.Namespace + "/" + l.Name }

// credentials are what the provider block says.
type credentials struct {
	Talosconfig     string
	TalosconfigPath string
	Endpoints       []string
	Certificate     *clientCertificate
	Context         string
	Kubeconfig      string
	KubeconfigPath  string
	// Management is nil where there is no management cluster.
	Management *managementAccess
	// From is where a connection looks for the talosconfig and the kubeconfig; nil
	// where they are given. Lent are they once they were read from there, by the name
	// of the Secret.
	From *lender
	Lent string
	// Unknown are the attributes whose values are not known yet.
	Unknown []string
}

// borrow are the credentials as they are in the management cluster; those that are
// given stay as they are. Unmanaged is why there is no management cluster. Errors
// wrap it or [errLent].
func (c credentials) borrow(ctx context.Context, management *home, unmanaged error) (credentials, error) {
	switch {
	case c.From == nil:
		return c, nil
	case unmanaged != nil:
		return credentials{}, unmanaged
	case management == nil:
		return credentials{}, fmt.Errorf("%w: %s is set without %s", errLent, attrCredentialsFrom, attrManagement)
	}

	read, err := operator.ReadCredentials(ctx, management.access, c.From.Namespace, c.From.Name)
	if err != nil {
		return credentials{}, fmt.Errorf("%w: %s = %s: %w", errLent, attrCredentialsFrom, c.From, err)
	}

	c.Talosconfig, c.Kubeconfig, c.Lent = string(read.Talosconfig), string(read.Kubeconfig), read.Source

	return c, nil
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
	if c.Lent != "" {
		return []byte(c.Talosconfig), c.lent("talosconfig"), nil
	}

	if c.From != nil {
		return nil, "", fmt.Errorf("%w: %s was not read", errLent, attrCredentialsFrom)
	}

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

// lent names what was read from the management cluster.
func (c credentials) lent(what string) string {
	return what + " in " + c.Lent + ", where " + attrCredentialsFrom + " leads"
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
