// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// hidden replaces secrets.
const hidden = "(hidden)"

// secrets are the credentials of the exporter. A collector may repeat in its answer what it was sent.
type secrets []string

// knownSecrets returns the secrets in the environment.
func knownSecrets() secrets {
	var found secrets

	for _, name := range []string{envHeaders, envTracesHeaders} {
		for pair := range strings.SplitSeq(setting(name), ",") {
			_, value, _ := strings.Cut(pair, "=")
			found = found.with(value)

			if decoded, err := url.PathUnescape(strings.TrimSpace(value)); err == nil {
				found = found.with(decoded)
				// "Bearer <token>" and the like are echoed without their scheme too.
				found = found.with(decoded[strings.LastIndex(decoded, " ")+1:])
			}
		}
	}

	for _, name := range []string{envEndpoint, envTracesEndpoint} {
		endpoint, err := url.Parse(setting(name))
		if err != nil {
			continue
		}

		if endpoint.User != nil {
			password, _ := endpoint.User.Password()
			found = found.with(endpoint.User.String()).with(endpoint.User.Username()).with(password)
		}

		found = found.with(endpoint.RawQuery)
	}

	// A secret that contains another one is replaced first.
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(len(b), len(a)) })

	return found
}

// secretLeast is the minimum length of a secret in bytes: anything shorter occurs in every text.
const secretLeast = 3

func (s secrets) with(value string) secrets {
	if value = strings.TrimSpace(value); len(value) >= secretLeast {
		return append(s, value)
	}

	return s
}

// hide returns the text with its secrets replaced.
func (s secrets) hide(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, hidden)
	}

	return text
}
