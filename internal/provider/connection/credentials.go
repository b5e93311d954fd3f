// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
)

// talosconfigEnv is the environment variable with the path of the talosconfig that is used if the provider block names
// none; talosctl reads it as well.
const talosconfigEnv = "TALOSCONFIG"

var (
	// ErrCredentialsUnknown is wrapped if the provider block depends on values that are known only in an apply.
	ErrCredentialsUnknown = errors.New("provider configuration not known yet")
	// ErrCredentialsMissing is wrapped if neither a talosconfig nor a client certificate is given.
	ErrCredentialsMissing = errors.New("no credentials for the Talos API")
	// ErrCredentialsUnusable is wrapped if the given credentials cannot be used.
	ErrCredentialsUnusable = errors.New("unusable credentials")
	// errLent is wrapped if credentials could not be read from the management cluster.
	errLent = errors.New("no credentials from the management cluster")
)

// unanswered returns the endpoints of the Talos API that were tried, with their errors, if err is that none of them
// answered. If err is another one, the text is empty.
func unanswered(err error) string {
	var silence *talosapi.SilenceError
	if !errors.As(err, &silence) {
		return ""
	}

	return silence.Error()
}

// ClientCertificate is a client certificate of the Talos API. Each part is PEM in base64.
type ClientCertificate struct {
	CA, Cert, Key string
}

// ManagementAccess is how the management cluster is reached. One of the two kubeconfigs is set.
type ManagementAccess struct {
	Kubeconfig     string
	KubeconfigPath string
	Context        string
}

// kubeconfig returns the content of the kubeconfig and the name of its source.
func (m ManagementAccess) kubeconfig() (data []byte, source string, err error) {
	if m.Kubeconfig != "" {
		return []byte(m.Kubeconfig), "provider attribute " + attrname.Management + "." + attrname.Kubeconfig, nil
	}

	return readKubeconfig(m.KubeconfigPath, "provider attribute "+attrname.Management+"."+attrname.KubeconfigPath)
}

// CredentialsSource is the object in the management cluster whose Secret contains the credentials.
type CredentialsSource struct {
	Namespace, Name string
}

// String returns the namespace and the name, such as "tenant-a/prod".
func (s CredentialsSource) String() string { return s.Namespace + "/" + s.Name }

// Credentials are the credentials in the provider block.
type Credentials struct {
	Talosconfig     string
	TalosconfigPath string
	Endpoints       []string
	Certificate     *ClientCertificate
	Context         string
	Kubeconfig      string
	KubeconfigPath  string
	// Management is nil if there is no management cluster.
	Management *ManagementAccess
	// From is the object through which a connection finds the talosconfig and the kubeconfig; nil if they are given.
	// Lent is the name of the Secret once they are read from it.
	From *CredentialsSource
	Lent string
	// Unknown are the attributes whose values are not known yet.
	Unknown []string
}

// borrow returns the credentials as read from the management cluster, or unchanged if they are given. unmanaged is
// why the configured management cluster cannot be used; nil if it can, or if none is configured. Errors wrap unmanaged or
// [errLent].
func (c Credentials) borrow(ctx context.Context, management *ManagementCluster, unmanaged error) (Credentials, error) {
	switch {
	case c.From == nil:
		return c, nil
	case unmanaged != nil:
		return Credentials{}, unmanaged
	case management == nil:
		return Credentials{}, fmt.Errorf("%w: %s is set without %s", errLent, attrname.CredentialsFrom, attrname.Management)
	}

	read, err := operator.ReadCredentials(ctx, management.Access, c.From.Namespace, c.From.Name)
	if err != nil {
		return Credentials{}, fmt.Errorf("%w: %s = %s: %w", errLent, attrname.CredentialsFrom, c.From, err)
	}

	c.Talosconfig, c.Kubeconfig, c.Lent = string(read.Talosconfig), string(read.Kubeconfig), read.Source

	return c, nil
}

// ContextName returns the wanted context; the one of the provider block if wanted is empty.
func (c Credentials) ContextName(wanted string) string {
	if wanted != "" {
		return wanted
	}

	return c.Context
}

// talos returns the credentials of the Talos API for a context. Errors wrap [ErrCredentialsUnknown], [ErrCredentialsMissing], [errLent] or
// [ErrCredentialsUnusable] and name the source.
func (c Credentials) talos(wanted string) (talosapi.Config, error) {
	if len(c.Unknown) > 0 {
		return talosapi.Config{}, fmt.Errorf("%w: %s", ErrCredentialsUnknown, strings.Join(c.Unknown, ", "))
	}

	if c.fromParts() {
		return c.fromCertificate(wanted)
	}

	data, source, err := c.talosconfig()
	if err != nil {
		return talosapi.Config{}, err
	}

	config, err := talosapi.ParseConfig(data, c.ContextName(wanted))
	if err != nil {
		return talosapi.Config{}, fmt.Errorf("%w: %s: %w", ErrCredentialsUnusable, source, err)
	}

	return config, nil
}

// fromParts reports whether a certificate is given and no attribute for a talosconfig. The environment is ignored then.
func (c Credentials) fromParts() bool {
	return c.Talosconfig == "" && c.TalosconfigPath == "" && c.Certificate != nil
}

// fromCertificate is [Credentials.parts]. If a context is named, an error that wraps [ErrCredentialsUnusable] is returned.
func (c Credentials) fromCertificate(wanted string) (talosapi.Config, error) {
	if name := c.ContextName(wanted); name != "" {
		return talosapi.Config{}, fmt.Errorf("%w: context %q cannot be looked up in endpoints and client_configuration, which have none; remove context, or use talosconfig",
			ErrCredentialsUnusable, name)
	}

	return c.parts()
}

// ContextRef is a context that the credentials name. Its cluster may not answer.
type ContextRef struct {
	// Wanted is how a resource names it; empty for the one that is used if none is named.
	Wanted string
	// Name is its name in the talosconfig; empty if there is none.
	Name string
}

// Contexts returns the contexts that the credentials reach, sorted by name. Credentials of a single cluster, such as
// those from a management cluster, are one context without a name. Errors wrap [ErrCredentialsUnknown],
// [ErrCredentialsMissing] or [ErrCredentialsUnusable], and name the source. Nothing
// is contacted.
func (c Credentials) Contexts() ([]ContextRef, error) {
	switch {
	case len(c.Unknown) > 0:
		return nil, fmt.Errorf("%w: %s", ErrCredentialsUnknown, strings.Join(c.Unknown, ", "))
	case c.From != nil, c.fromParts():
		return []ContextRef{{}}, nil
	}

	data, source, err := c.talosconfig()
	if err != nil {
		return nil, err
	}

	names, own, err := talosapi.Contexts(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCredentialsUnusable, source, err)
	}

	if own = cmp.Or(c.Context, own); own != "" && !slices.Contains(names, own) {
		_, err := c.talos("")

		return nil, err
	}

	refs := make([]ContextRef, 0, len(names))

	for _, name := range names {
		ref := ContextRef{Wanted: name, Name: name}
		if name == own {
			ref.Wanted = ""
		}

		refs = append(refs, ref)
	}

	return refs, nil
}

// IsAbsentContext reports whether the error is that the talosconfig has no such context.
func IsAbsentContext(err error) bool { return errors.Is(err, talosapi.ErrNoContext) }

// parts returns the endpoints with their certificate. Errors wrap [ErrCredentialsUnusable].
func (c Credentials) parts() (talosapi.Config, error) {
	config, err := talosapi.ConfigFromParts(c.Endpoints, c.Certificate.CA, c.Certificate.Cert, c.Certificate.Key)
	if err != nil {
		return talosapi.Config{}, fmt.Errorf("%w: endpoints and client_configuration: %w", ErrCredentialsUnusable, err)
	}

	return config, nil
}

// talosconfig returns the content of the talosconfig and the name of its source.
func (c Credentials) talosconfig() (data []byte, source string, err error) {
	if c.Lent != "" {
		return []byte(c.Talosconfig), c.lent("talosconfig"), nil
	}

	if c.From != nil {
		return nil, "", fmt.Errorf("%w: %s was not read", errLent, attrname.CredentialsFrom)
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

	return nil, "", ErrCredentialsMissing
}

// lent returns a name for what was read from the management cluster.
func (c Credentials) lent(what string) string {
	return what + " in " + c.Lent + ", where " + attrname.CredentialsFrom + " leads"
}

// UnusableAttribute is an attribute of the provider block with which no cluster can be reached. The error wraps
// [ErrCredentialsUnusable].
type UnusableAttribute struct {
	Name string
	Err  error
}

// Unusable returns the attributes whose values cannot be used, whichever context is chosen: talosconfig, kubeconfig,
// their paths, and client_configuration. It reads files and contacts nothing. Values that are not known yet are not
// checked; nor is client_configuration if endpoints are unknown.
func (c Credentials) Unusable() []UnusableAttribute {
	var found []UnusableAttribute

	for _, given := range []struct {
		name, text, file string
		check            func([]byte) error
	}{
		{attrname.Talosconfig, c.Talosconfig, "", talosapi.CheckConfig},
		{attrname.TalosconfigPath, "", c.TalosconfigPath, talosapi.CheckConfig},
		{attrname.Kubeconfig, c.Kubeconfig, "", kubeapi.CheckConfig},
		{attrname.KubeconfigPath, "", c.KubeconfigPath, kubeapi.CheckConfig},
	} {
		if given.text == "" && given.file == "" {
			continue
		}

		data, source, err := []byte(given.text), "provider attribute "+given.name, error(nil)
		if given.file != "" {
			data, source, err = readCredentials(given.file, source)
		}

		if err == nil {
			if wrong := given.check(data); wrong != nil {
				err = fmt.Errorf("%w: %s: %w", ErrCredentialsUnusable, source, wrong)
			}
		}

		if err != nil {
			found = append(found, UnusableAttribute{given.name, err})
		}
	}

	certain := !slices.Contains(c.Unknown, attrname.ClientConfiguration) && !slices.Contains(c.Unknown, attrname.Endpoints)
	if certain && c.Certificate != nil {
		if _, err := c.parts(); err != nil {
			found = append(found, UnusableAttribute{attrname.ClientConfiguration, err})
		}
	}

	return found
}

// kubeconfig returns the kubeconfig that was given or read from the management cluster; nil if there is none, and the
// Talos API is to be asked.
func (c Credentials) kubeconfig() ([]byte, error) {
	if c.Kubeconfig != "" {
		return []byte(c.Kubeconfig), nil
	}

	if c.KubeconfigPath == "" {
		return nil, nil
	}

	data, _, err := readKubeconfig(c.KubeconfigPath, "provider attribute kubeconfig_path")

	return data, err
}

func readCredentials(file, source string) ([]byte, string, error) {
	expanded, err := attribute.ExpandHome(file)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s: %w", ErrCredentialsUnusable, source, err)
	}

	data, err := os.ReadFile(expanded)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s: %w", ErrCredentialsUnusable, source, err)
	}

	return data, source + " (" + file + ")", nil
}

// readKubeconfig is [readCredentials] of a kubeconfig, in which paths are relative to its file.
func readKubeconfig(file, source string) ([]byte, string, error) {
	data, source, err := readCredentials(file, source)
	if err != nil {
		return nil, "", err
	}

	// That has expanded it without an error.
	expanded, _ := attribute.ExpandHome(file)

	return kubeapi.ResolveFrom(expanded, data), source, nil
}
