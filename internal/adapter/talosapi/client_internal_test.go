// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"strings"
	"testing"
)

func TestEndpoint_SplitReadsWhatTalosctlReads(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"10.5.0.2":               "10.5.0.2 50000",
		"10.5.0.2:1234":          "10.5.0.2 1234",
		"cp.example.org":         "cp.example.org 50000",
		"fd00::1":                "fd00::1 50000",
		"[fd00::1]":              "fd00::1 50000",
		"[fd00::1]:1234":         "fd00::1 1234",
		"https://cp.example.org": "cp.example.org 443",
		"https://[fd00::1]:8443": "fd00::1 8443",
		"":                       "error",
		"10.5.0.2/path":          "error",
		"10.5.0.2, 10.5.0.3":     "error",
		"a:b:c":                  "error",
		"https://":               "error",

		"https://admin:s3cret@10.5.0.2": "error",
		"admin:s3cret@10.5.0.2":         "error",
	} {
		host, port, err := splitEndpoint(text)

		got := host + " " + port
		if err != nil {
			got = "error"
		}

		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error shows a password: %v", text, err)
		}

		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
