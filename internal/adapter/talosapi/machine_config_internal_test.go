// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// The texts are those that Talos gives.
func TestConfigure_AnswersAreStrippedOfTheirContent(t *testing.T) {
	t.Parallel()

	const secret = "verysecret"

	for name, test := range map[string]struct{ text, want string }{
		"no immediate change": {
			"this config change can't be applied in immediate mode\ndiff: -  token: verysecret\n", "this config change can't be applied in immediate mode",
		},
		"a difference on the same line": {"not applied, diff: verysecret", "not applied,"},
		"what follows the first line":   {"configuration validation failed\ntoken: verysecret", "configuration validation failed"},
		"a list of problems": {
			"configuration validation failed: 2 errors occurred:\n\t* version of Kubernetes 1.37.0 is too new to be used with Talos 1.13.4\n\t* invalid token \"verysecret\"\n\n",
			"configuration validation failed: 2 errors occurred: version of Kubernetes 1.37.0 is too new to be used with Talos 1.13.4 invalid token a value",
		},
		"a quoted value":               {"cannot unmarshal !!str `verysecret` into int", "cannot unmarshal !!str a value into int"},
		"an escaped quote":             {`unknown keys found: "a\"verysecret"`, "unknown keys found: a value"},
		"a quotation of several lines": {"invalid value \"verysecret\nmore\" given", "invalid value a value"},
		"an endless list":              {"5 errors occurred:\n\t* a\n\t* b\n\t* c\n\t* verysecret\n", "5 errors occurred: a b c"},
	} {
		err := withoutConfig(status.Error(codes.InvalidArgument, test.text))
		if got := status.Convert(err); got.Code() != codes.InvalidArgument || got.Message() != test.want {
			t.Errorf("%s: %q, want %q", name, got.Message(), test.want)
		}

		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v keeps the secret", name, err)
		}
	}

	if err := withoutConfig(nil); err != nil {
		t.Errorf("no error became %v", err)
	}

	if other := errors.New("other"); !errors.Is(withoutConfig(other), other) {
		t.Error("an error that is no answer was changed")
	}
}

func TestConfigure_CompareFindsOtherWriters(t *testing.T) {
	t.Parallel()

	before := storedConfig{text: []byte("a: 1 # one\n"), version: "4"}
	ours := []byte("a: 2 # one\n")

	for name, test := range map[string]struct {
		after storedConfig
		want  error
	}{
		"ours":                     {storedConfig{ours, "5"}, nil},
		"written anew by the node": {storedConfig{[]byte("a: 2\n"), "5"}, nil},
		"somebody else's":          {storedConfig{[]byte("a: 3\n"), "5"}, cluster.ErrConflict},
		"no YAML":                  {storedConfig{[]byte("a: [\n"), "5"}, cluster.ErrConflict},
		"one in between":           {storedConfig{ours, "6"}, cluster.ErrConflict},
		"a restart":                {storedConfig{ours, "1"}, cluster.ErrConflict},
		"no version":               {storedConfig{ours, "undefined"}, nil},
	} {
		if err := compareConfigs(before, test.after, ours); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

func TestConfigure_StagedConfigurationIsNotUndone(t *testing.T) {
	t.Parallel()

	active := storedConfig{text: []byte("a: 1 # one\n")}

	for text, want := range map[string]error{
		"a: 1 # one\n":               nil,
		"a: 1\n":                     nil,
		"a: verysecret\n":            cluster.ErrConflict,
		"a: 1\n---\nb: verysecret\n": cluster.ErrConflict,
	} {
		err := assertSettled(storedConfig{text: []byte(text)}, active)
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}

		if err != nil && strings.Contains(err.Error(), "verysecret") {
			t.Errorf("%q: %v quotes it", text, err)
		}
	}
}
