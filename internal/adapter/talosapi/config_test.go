// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
)

func TestParseConfigPicksTheContext(t *testing.T) {
	t.Parallel()

	keys := mint(t, time.Now().Add(time.Hour), "os:admin", "os:etcd:backup")
	context := fmt.Sprintf("{endpoints: [10.5.0.2, 10.5.0.3], ca: %s, crt: %s, key: %s}", keys.ca, keys.crt, keys.key)
	two := "context: one\ncontexts:\n  one: " + context + "\n  two: " + context + "\n"

	for name, test := range map[string]struct{ yaml, wanted, want string }{
		"the current one":               {two, "", "one"},
		"the one asked for":             {two, "two", "two"},
		"the only one, without current": {"contexts:\n  only: " + context + "\n", "", "only"},
	} {
		config, err := talosapi.ParseConfig([]byte(test.yaml), test.wanted)
		if err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		if config.Context() != test.want {
			t.Errorf("%s: context %q, want %q", name, config.Context(), test.want)
		}

		if want := []string{"10.5.0.2", "10.5.0.3"}; !slices.Equal(config.Endpoints(), want) {
			t.Errorf("%s: endpoints %v, want %v", name, config.Endpoints(), want)
		}

		if want := []string{"os:admin", "os:etcd:backup"}; !slices.Equal(config.Certificate().Roles(), want) {
			t.Errorf("%s: roles %v, want %v", name, config.Certificate().Roles(), want)
		}
	}
}

func TestParseConfigNamesWhatIsWrongAndKeepsSecrets(t *testing.T) {
	t.Parallel()

	keys := mint(t, time.Now().Add(time.Hour), "os:admin")
	other := mint(t, time.Now().Add(time.Hour), "os:admin")
	noPEM := base64.StdEncoding.EncodeToString([]byte("no PEM at all"))

	context := func(endpoints, ca, crt, key string) string {
		return fmt.Sprintf("context: prod\ncontexts:\n  prod: {endpoints: [%s], ca: %q, crt: %q, key: %q}\n  staging: {}\n", endpoints, ca, crt, key)
	}

	for name, test := range map[string]struct{ yaml, wanted, want string }{
		"empty":              {" \n", "", "it is empty"},
		"malformed YAML":     {"contexts: [" + keys.key, "", "malformed YAML"},
		"other YAML":         {"contexts: " + keys.key, "", "malformed YAML"},
		"a kubeconfig":       {"clusters: []\ncontexts: []\nusers: [{name: u, user: {token: " + keys.key + "}}]\n", "", "it is a kubeconfig"},
		"no contexts":        {"context: prod\n", "", "no contexts"},
		"unknown context":    {context("10.5.0.2", keys.ca, keys.crt, keys.key), "nope", `context "nope" does not exist, there are "prod", "staging"`},
		"unknown current":    {"context: gone\ncontexts: {a: {}}\n", "", `current context "gone" does not exist, there are "a"`},
		"ambiguous":          {"contexts: {a: {}, b: {}}\n", "", `there are "a", "b"`},
		"no endpoints":       {context("", keys.ca, keys.crt, keys.key), "", `context "prod": it has no endpoints`},
		"malformed endpoint": {context(`"10.5.0.2/x"`, keys.ca, keys.crt, keys.key), "", `endpoint "10.5.0.2/x"`},
		"no ca":              {context("10.5.0.2", "", keys.crt, keys.key), "", `"ca" is missing`},
		"no certificate":     {context("10.5.0.2", keys.ca, "", keys.key), "", `"crt" is missing`},
		"no key":             {context("10.5.0.2", keys.ca, keys.crt, ""), "", `"key" is missing`},
		"ca not base64":      {context("10.5.0.2", "***", keys.crt, keys.key), "", `"ca" is not base64`},
		"ca not PEM":         {context("10.5.0.2", noPEM, keys.crt, keys.key), "", `"ca" holds no PEM certificate`},
		"certificate no PEM": {context("10.5.0.2", keys.ca, noPEM, keys.key), "", `"crt" is not PEM`},
		"key no PEM":         {context("10.5.0.2", keys.ca, keys.crt, noPEM), "", `"key" is not PEM`},
		"key as certificate": {context("10.5.0.2", keys.ca, keys.key, keys.key), "", `"crt" is not a certificate`},
		"foreign key":        {context("10.5.0.2", keys.ca, keys.crt, other.key), "", "do not belong together"},
		"Omni":               {"contexts: {o: {endpoints: [10.5.0.2], auth: {siderov1: {identity: me}}}}\n", "", "Omni"},
	} {
		_, err := talosapi.ParseConfig([]byte(test.yaml), test.wanted)
		if !errors.Is(err, talosapi.ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", name, err)

			continue
		}

		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, test.want)
		}

		for _, secret := range []string{keys.key, other.key} {
			if strings.Contains(err.Error(), secret[:12]) {
				t.Errorf("%s: the error shows the beginning of a key", name)
			}
		}
	}
}

func TestConfigNeverPrintsItsKey(t *testing.T) {
	t.Parallel()

	keys := mint(t, time.Now().Add(time.Hour), "os:admin")

	config, err := talosapi.ConfigFromParts([]string{"https://cp.example.org", "[fd00::1]:50000", "10.5.0.2"}, keys.ca, keys.crt, keys.key)
	if err != nil {
		t.Fatal(err)
	}

	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if printed := fmt.Sprintf(verb, config); strings.Contains(printed, keys.key[:12]) || strings.Contains(printed, keys.crt[:12]) {
			t.Errorf("%s prints the credentials", verb)
		}
	}
}

func TestNewDialsNothing(t *testing.T) {
	t.Parallel()

	keys := mint(t, time.Now().Add(time.Hour), "os:admin")

	config, err := talosapi.ConfigFromParts([]string{"10.5.0.2", "10.5.0.3"}, keys.ca, keys.crt, keys.key)
	if err != nil {
		t.Fatal(err)
	}

	client, err := talosapi.New(config, talosapi.Options{DialContext: refuse(t)})
	if err != nil {
		t.Fatal(err)
	}

	if roles := client.Roles(); !slices.Equal(roles, []string{"os:admin"}) {
		t.Errorf("roles %v, want os:admin", roles)
	}

	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
