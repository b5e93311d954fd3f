// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// ErrConfig is wrapped by every error of [ParseConfig] and [ConfigFromParts].
var ErrConfig = errors.New("talosconfig not usable")

// Config is a parsed and checked set of credentials for one cluster. It holds
// secrets: print nothing of it but what its methods return.
type Config struct {
	name        string
	endpoints   []string
	context     clientconfig.Context
	certificate Certificate
}

// ParseConfig reads a talosconfig (YAML) and picks the named context, or the
// current one when the name is empty. Errors wrap [ErrConfig] and never quote
// the content.
func ParseConfig(talosconfig []byte, context string) (Config, error) {
	if strings.TrimSpace(string(talosconfig)) == "" {
		return Config{}, fmt.Errorf("%w: it is empty", ErrConfig)
	}

	parsed, err := clientconfig.FromBytes(talosconfig)
	if err != nil {
		return Config{}, fmt.Errorf("%w: malformed YAML: %s", ErrConfig, withoutQuotes(err.Error()))
	}

	name, err := pickContext(parsed, context)
	if err != nil {
		return Config{}, err
	}

	config, err := newConfig(name, *parsed.Contexts[name])
	if err != nil {
		return Config{}, fmt.Errorf("%w: context %q: %w", ErrConfig, name, err)
	}

	return config, nil
}

// ConfigFromParts builds credentials from what the siderolabs/talos provider
// emits as client_configuration: ca, cert and key are base64 of PEM. Errors
// wrap [ErrConfig] and never quote the content.
func ConfigFromParts(endpoints []string, ca, cert, key string) (Config, error) {
	config, err := newConfig("", clientconfig.Context{Endpoints: endpoints, CA: ca, Crt: cert, Key: key})
	if err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}

	return config, nil
}

// Context is the name of the context the credentials came from; empty for
// [ConfigFromParts].
func (c Config) Context() string { return c.name }

// Endpoints are the addresses of the Talos API as the configuration lists
// them.
func (c Config) Endpoints() []string { return slices.Clone(c.endpoints) }

// Certificate are the facts about the client certificate.
func (c Config) Certificate() Certificate { return c.certificate }

// String names the configuration without its secrets.
func (c Config) String() string {
	if c.name == "" {
		return "client configuration for " + strings.Join(c.endpoints, ", ")
	}

	return fmt.Sprintf("talosconfig context %q", c.name)
}

// GoString keeps the secrets out of %#v.
func (c Config) GoString() string { return c.String() }

func pickContext(parsed *clientconfig.Config, wanted string) (string, error) {
	names := slices.Sorted(maps.Keys(parsed.Contexts))
	if len(names) == 0 {
		return "", fmt.Errorf("%w: it has no contexts", ErrConfig)
	}

	name, origin := wanted, "context"
	if name == "" {
		name, origin = parsed.Context, "current context"
	}

	if name == "" && len(names) == 1 {
		name = names[0]
	}

	if name == "" {
		return "", fmt.Errorf("%w: it names no current context, so one must be chosen: there are %s", ErrConfig, quoted(names))
	}

	if parsed.Contexts[name] == nil {
		return "", fmt.Errorf("%w: %s %q does not exist, there are %s", ErrConfig, origin, name, quoted(names))
	}

	return name, nil
}

func newConfig(name string, context clientconfig.Context) (Config, error) {
	if context.Auth.SideroV1 != nil && context.Crt == "" {
		return Config{}, errors.New("it signs in through Omni (auth.siderov1), which is not supported: use a talosconfig with a client certificate")
	}

	endpoints, err := checkEndpoints(context.Endpoints)
	if err != nil {
		return Config{}, err
	}

	certificate, err := checkCredentials(context)
	if err != nil {
		return Config{}, err
	}

	return Config{name: name, endpoints: endpoints, context: context, certificate: certificate}, nil
}

func checkEndpoints(endpoints []string) ([]string, error) {
	var checked []string

	for _, endpoint := range endpoints {
		endpoint = strings.TrimSpace(endpoint)
		if _, _, err := splitEndpoint(endpoint); err != nil {
			return nil, err
		}

		if !slices.Contains(checked, endpoint) {
			checked = append(checked, endpoint)
		}
	}

	if len(checked) == 0 {
		return nil, errors.New("it has no endpoints: list the addresses of the control plane nodes")
	}

	return checked, nil
}

// splitEndpoint reads the spellings that talosctl accepts: host, host:port,
// and URLs. Without a port it is apid's own, for https URLs 443.
func splitEndpoint(endpoint string) (host, port string, err error) {
	malformed := fmt.Errorf("endpoint %q is neither a host, host:port nor an https URL", endpoint)
	port = fmt.Sprint(constants.ApidPort)

	if strings.Contains(endpoint, "://") {
		parsed, err := url.Parse(endpoint)
		if err != nil || parsed.Hostname() == "" {
			return "", "", malformed
		}

		if parsed.Scheme == "https" {
			port = "443"
		}

		if parsed.Port() != "" {
			port = parsed.Port()
		}

		return parsed.Hostname(), port, nil
	}

	if host, port, err := net.SplitHostPort(endpoint); err == nil && host != "" && port != "" {
		return host, port, nil
	}

	host = strings.TrimSuffix(strings.TrimPrefix(endpoint, "["), "]")
	if host == "" || strings.ContainsAny(host, " \t/,") || (strings.Contains(host, ":") && net.ParseIP(host) == nil) {
		return "", "", malformed
	}

	return host, port, nil
}

func checkCredentials(context clientconfig.Context) (Certificate, error) {
	parts := map[string][]byte{}

	for _, part := range []struct{ name, value string }{{"ca", context.CA}, {"crt", context.Crt}, {"key", context.Key}} {
		if part.value == "" {
			return Certificate{}, fmt.Errorf("%q is missing", part.name)
		}

		decoded, err := base64.StdEncoding.DecodeString(part.value)
		if err != nil {
			return Certificate{}, fmt.Errorf("%q is not base64", part.name)
		}

		parts[part.name] = decoded
	}

	return parseCertificate(parts["ca"], parts["crt"], parts["key"])
}

func quoted(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%q", name)
	}

	return strings.Join(texts, ", ")
}

// quotedContent is what an error quotes; a single character is punctuation.
var quotedContent = regexp.MustCompile("`[^`]*`|\"(?:[^\"\\\\]|\\\\.)*\"|'[^']{2,}'")

// withoutQuotes drops what YAML errors quote from the document, since that may
// be part of a key.
func withoutQuotes(text string) string {
	return quotedContent.ReplaceAllString(strings.ReplaceAll(text, "\n", " "), "a value")
}
