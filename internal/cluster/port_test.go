// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Only an installer of Talos 1.14 tells by its code what it did; one that crashed
// tells nothing.
func TestInstallation_RefusedTellsWhatTheExitCodeMeans(t *testing.T) {
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

func TestMember_LookedForAtItsInnerAddressFirst(t *testing.T) {
	t.Parallel()

	for addresses, want := range map[string]string{
		"203.0.113.5 10.5.0.5 fd05::5": "10.5.0.5",
		"2001:db8::5 fd05::5":          "fd05::5",
		"192.168.1.5 10.5.0.5":         "192.168.1.5",
		"203.0.113.5 2001:db8::5":      "203.0.113.5",
		"cp-0.example.com 172.16.0.5":  "172.16.0.5",
		"":                             "",
	} {
		if got := (cluster.Member{Addresses: strings.Fields(addresses)}).Address(); got != want {
			t.Errorf("of %q it is %q, want %q", addresses, got, want)
		}
	}
}

func TestManifestObject_NamesObjectsAsChangesSpellThem(t *testing.T) {
	t.Parallel()

	job := cluster.ManifestObject{Kind: "Job", Namespace: "storage", Name: "once"}
	anywhere := cluster.ManifestObject{Kind: "Job", Name: "once"}

	for object, want := range map[string][2]bool{
		"Job/storage/once":     {true, true},
		"Job/other/once":       {false, true},
		"Job/once":             {false, true},
		"CronJob/storage/once": {false, false},
		"Job/storage/twice":    {false, false},
		"Job":                  {false, false},
	} {
		if got := [2]bool{job.Is(object), anywhere.Is(object)}; got != want {
			t.Errorf("%s: got %v, want %v", object, got, want)
		}
	}
}
