// SPDX-License-Identifier: MPL-2.0

package diagnostic

import (
	"testing"
)

func TestDiagnostic_SentencesCapitalizeWordsButNoNames(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"":                                  "",
		"no control plane was found":        "No control plane was found.",
		"endpoint: refused.":                "Endpoint: refused.",
		"über alles":                        "Über alles.",
		"cp-0 is a control plane":           "cp-0 is a control plane.",
		"node1.example.com is down":         "node1.example.com is down.",
		"talos_version asks for 1.13.4":     "talos_version asks for 1.13.4.",
		`worker-0, worker-1: the node runs`: "worker-0, worker-1: the node runs.",
		"alpha is a control plane":          "alpha is a control plane.",
		"alphabet soup":                     "Alphabet soup.",
		`"1.13" is malformed`:               `"1.13" is malformed.`,
	} {
		if got := Sentence(text, "alpha", "beta"); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
