// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestOtherAPIServersAreOnTheControlPlanes(t *testing.T) {
	seen := cluster.Observation{Nodes: []cluster.Node{
		{Name: "worker-0", Role: cluster.Worker, Address: "10.5.0.9"},
		{Name: "cp-0", Role: cluster.ControlPlane, Address: "10.5.0.2"},
		{Name: "cp-1", Role: cluster.ControlPlane, Address: "fd00::3"},
		{Name: "cp-2", Role: cluster.ControlPlane},
	}}

	for name, test := range map[string]struct {
		tell func(*serverAddresses)
		want []string
	}{
		"nothing is known": {func(*serverAddresses) {}, nil},
		"endpoints of Talos": {func(b *serverAddresses) {
			b.expect("cp.example.com", "10.5.0.2:50000", "fd00::3", "[fd00::4]:50000", "https://talos.example.com:443", "[fd00::5]")
			b.at("https://vip.example.com:6443")
		}, []string{"cp.example.com:6443", "10.5.0.2:6443", "[fd00::3]:6443", "[fd00::4]:6443", "talos.example.com:6443", "[fd00::5]:6443"}},
		"behind a load balancer": {func(b *serverAddresses) {
			b.expect("10.5.0.2", "10.5.0.3")
			b.at("https://vip.example.com")
		}, []string{"10.5.0.2:6443", "10.5.0.3:6443", "10.5.0.2:443", "10.5.0.3:443"}},
		"observed": {func(b *serverAddresses) {
			b.expect("vip.example.com")
			b.at("https://vip.example.com:6443")
			b.notice(seen)
			b.expect("vip.example.com")
		}, []string{"10.5.0.2:6443", "[fd00::3]:6443"}},
		"behind a tunnel": {func(b *serverAddresses) {
			b.at("https://127.0.0.1:7443")
			b.notice(seen)
		}, nil},
		"an observation of nothing": {func(b *serverAddresses) {
			b.expect("vip.example.com")
			b.notice(cluster.Observation{})
		}, []string{"vip.example.com:6443"}},
	} {
		t.Run(name, func(t *testing.T) {
			var book serverAddresses

			test.tell(&book)

			if got := book.addresses(); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
