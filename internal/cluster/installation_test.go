// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Only an installer of Talos 1.14 tells by its code what it did; one that crashed
// tells nothing.
func TestInstallerRefusedTellsWhatItsCodeMeans(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		talos string
		done  cluster.Installation
		want  bool
	}{
		"invalid input": {"1.14.0", cluster.Installation{Exit: 2, Output: []string{"machine configuration is invalid: boom"}}, true},
		"unsupported":   {"1.14.0", cluster.Installation{Exit: 3}, true},
		"environment":   {"1.15.0-alpha.0", cluster.Installation{Exit: 4}, true},
		"a dependency":  {"1.14.0", cluster.Installation{Exit: 5}, false},
		"unknown":       {"1.14.0", cluster.Installation{Exit: 1}, false},
		"success":       {"1.14.0", cluster.Installation{}, false},
		"killed":        {"1.14.0", cluster.Installation{Exit: 137}, false},
		"older":         {"1.13.4", cluster.Installation{Exit: 4}, false},
		"crashed":       {"1.14.0", cluster.Installation{Exit: 2, Output: []string{"panic: boom", "goroutine 1 [running]:"}}, false},
		"crashed deep":  {"1.14.0", cluster.Installation{Exit: 2, Output: []string{"main.main()", "/src/cmd/installer/main.go:12 +0x1d"}}, false},
		"out of memory": {"1.14.0", cluster.Installation{Exit: 2, Output: []string{"fatal error: runtime: out of memory"}}, false},
	} {
		if got := test.done.Refused(version.MustParse(test.talos)); got != test.want {
			t.Errorf("%s: refused is %t, want %t", name, got, test.want)
		}
	}
}
