// SPDX-License-Identifier: MPL-2.0

package label_test

import (
	"errors"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/label"
)

func TestSelector_MatchesLabelsAsKubectlDoes(t *testing.T) {
	t.Parallel()

	node := map[string]string{"pool": "gpu", "node-role.kubernetes.io/worker": ""}

	for text, want := range map[string]bool{
		"pool=gpu": true, "pool==gpu": true, "pool!=gpu": false, "pool in (gpu, cpu)": true, "pool notin (gpu)": false, "pool": true, "!pool": false,
		"!spare": true, "pool=gpu,spare": false, "node-role.kubernetes.io/worker": true, "node-role.kubernetes.io/worker=": true, "spare!=yes": true,
	} {
		selector, err := label.Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)

			continue
		}

		if got := selector.Matches(node); got != want {
			t.Errorf("%q matches: %t, want %t", text, got, want)
		}
	}
}

func TestSelector_RefusesAnInvalidOne(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", " ", "\t"} {
		if _, err := label.Parse(text); !errors.Is(err, label.ErrEmpty) {
			t.Errorf("%q: got %v, want ErrEmpty", text, err)
		}
	}

	for _, text := range []string{"pool=", "=gpu", "pool in", "pool in (", "a b", "pool=gpu;", ",", "pool=g p u", "-pool=gpu"} {
		if selector, err := label.Parse(text); err == nil && text != "pool=" {
			t.Errorf("%q was taken for %q", text, selector)
		}
	}
}
