// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// secret stands for key material that must not show up anywhere.
const secret = "c2VjcmV0LWtleS1tYXRlcmlhbA=="

func TestCredentialsThatCannotBeUsed(t *testing.T) {
	malformed := filepath.Join(t.TempDir(), "talosconfig")
	if err := os.WriteFile(malformed, []byte("contexts: [unclosed "+secret), 0o600); err != nil {
		t.Fatal(err)
	}

	const text = "context: a\ncontexts:\n  a:\n    endpoints: [10.5.0.2]\n    ca: " + secret + "\n    crt: " + secret + "\n    key: " + secret + "\n"

	for name, test := range map[string]struct {
		access credentials
		env    string
		wanted string
		is     error
		says   string
	}{
		"nothing given":          {credentials{}, "", "", errMissing, "no credentials"},
		"not known yet":          {credentials{Unknown: []string{"talosconfig"}}, "", "", errUnknown, "talosconfig"},
		"path that is not there": {credentials{TalosconfigPath: "does/not/exist"}, "", "", errUnusable, "provider attribute talosconfig_path"},
		"variable names nothing": {credentials{}, "does/not/exist", "", errUnusable, "environment variable TALOSCONFIG"},
		"malformed file":         {credentials{TalosconfigPath: malformed}, "", "", errUnusable, "talosconfig_path"},
		"malformed text":         {credentials{Talosconfig: "{"}, "", "", errUnusable, "provider attribute talosconfig"},
		"attribute wins":         {credentials{Talosconfig: "{"}, malformed, "", errUnusable, "provider attribute talosconfig"},
		"unknown context":        {credentials{Talosconfig: text}, "", "b", errUnusable, `"b"`},
		"provider's context":     {credentials{Talosconfig: text, Context: "c"}, "", "", errUnusable, `"c"`},
		"certificate is not PEM": {credentials{Talosconfig: text}, "", "", errUnusable, "PEM"},
		"context without talosconfig": {
			credentials{Endpoints: []string{"10.5.0.2"}, Certificate: &clientCertificate{CA: secret, Cert: secret, Key: secret}},
			"", "prod",
			errUnusable, "remove context",
		},
		"broken certificate": {
			credentials{Endpoints: []string{"10.5.0.2"}, Certificate: &clientCertificate{CA: secret, Cert: secret, Key: secret}},
			"", "",
			errUnusable, "client_configuration",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(talosconfigEnv, test.env)

			_, err := test.access.talos(test.wanted)
			if !errors.Is(err, test.is) {
				t.Fatalf("got %v, want %v", err, test.is)
			}

			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}

			if strings.Contains(err.Error(), secret) {
				t.Errorf("the secret is in the error: %s", err)
			}
		})
	}
}

func TestKubeconfigIsOptional(t *testing.T) {
	if data, err := (credentials{}).kubeconfig(); data != nil || err != nil {
		t.Errorf("got %q, %v", data, err)
	}

	if data, err := (credentials{Kubeconfig: "text"}).kubeconfig(); string(data) != "text" || err != nil {
		t.Errorf("got %q, %v", data, err)
	}

	if _, err := (credentials{KubeconfigPath: "does/not/exist"}).kubeconfig(); !errors.Is(err, errUnusable) {
		t.Errorf("got %v", err)
	}
}
