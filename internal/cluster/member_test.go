// SPDX-License-Identifier: MPL-2.0

package cluster_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestMemberIsLookedForInsideFirst(t *testing.T) {
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
