// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
)

func TestComponent_ImagesAreThoseAllConfigurationsAgreeOn(t *testing.T) {
	const kubelet, mirrored = "registry.k8s.io/kubelet:v1.34.2", "registry.example.com/kubelet:v1.34.2"

	set := func(index int, component cluster.Component, image string) func(*fakeCluster) {
		return func(f *fakeCluster) { f.nodes[index].images = map[cluster.Component]string{component: image} }
	}

	for name, test := range map[string]struct {
		change func(*fakeCluster)
		// want are images by attribute, empty for null.
		want     map[string]string
		warnings []outcome
	}{
		"all agree": {func(*fakeCluster) {}, map[string]string{
			attrname.Kubelet: kubelet, attrname.APIServer: "registry.k8s.io/kube-apiserver:v1.34.2", attrname.ControllerManager: "registry.k8s.io/kube-controller-manager:v1.34.2",
			attrname.Scheduler: "registry.k8s.io/kube-scheduler:v1.34.2", attrname.Proxy: "registry.k8s.io/kube-proxy:v1.34.2", attrname.Installer: "ghcr.io/siderolabs/installer:v1.13.4",
		}, nil},
		"one kubelet is another": {set(2, cluster.Kubelet, mirrored), map[string]string{attrname.Kubelet: "", attrname.APIServer: "registry.k8s.io/kube-apiserver:v1.34.2"}, []outcome{
			{diag.SeverityWarning, "- kubelet: " + kubelet + " on worker-0, cp-0; " + mirrored + " on worker-1."},
		}},
		"one kubelet is not set": {set(0, cluster.Kubelet, ""), map[string]string{attrname.Kubelet: ""}, []outcome{
			{diag.SeverityWarning, "nothing on cp-0"},
		}},
		"no kubelet is set": {func(f *fakeCluster) {
			for index := range f.nodes {
				set(index, cluster.Kubelet, "")(f)
			}
		}, map[string]string{attrname.Kubelet: "", attrname.Proxy: "registry.k8s.io/kube-proxy:v1.34.2"}, nil},
		"workers do not decide about the control plane": {set(1, cluster.Proxy, "kube-proxy:v1.0.0"), map[string]string{attrname.Proxy: "registry.k8s.io/kube-proxy:v1.34.2"}, nil},
		"installers may differ":                         {func(f *fakeCluster) { f.nodes[1].talos = "1.13.0" }, map[string]string{attrname.Installer: "", attrname.Kubelet: kubelet}, nil},
		"a node that does not answer says nothing": {func(f *fakeCluster) {
			set(2, cluster.Kubelet, mirrored)(f)

			f.nodes[2].unreachable = cluster.ErrUnreachable
		}, map[string]string{attrname.Kubelet: kubelet}, nil},
		"what runs is not what is configured": {func(f *fakeCluster) { f.nodes[1].kubelet = "1.34.1" }, map[string]string{attrname.Kubelet: kubelet}, []outcome{
			{diag.SeverityWarning, "- worker-0: kubelet runs 1.34.1, and the machine configuration names " + kubelet + "."},
		}},
		"configurations that may not be read": {func(f *fakeCluster) {
			for index := range f.nodes {
				f.nodes[index].unread = true
			}
		}, map[string]string{attrname.Kubelet: "", attrname.Proxy: "", attrname.Installer: ""}, nil},
		"one configuration that may not be read": {func(f *fakeCluster) {
			set(2, cluster.Kubelet, mirrored)(f)

			f.nodes[0].unread = true
		}, map[string]string{attrname.Kubelet: "", attrname.Installer: ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			test.change(fake)

			got, diagnostics := readCurrent(t, fake.clusters(t))
			check(t, diagnostics, test.warnings...)

			for attribute, want := range test.want {
				if found := text(got.Images, attribute); found != want {
					t.Errorf("%s is %q, want %q", attribute, found, want)
				}
			}
		})
	}
}

func TestComponent_EveryNodeShowsTheImagesItDecidesAbout(t *testing.T) {
	got, diagnostics := readCurrent(t, threeNodes("1.13.4", "1.34.2").clusters(t))
	check(t, diagnostics)

	for node, want := range map[string]string{"cp-0": "registry.k8s.io/kube-scheduler:v1.34.2", "worker-0": ""} {
		if found := text(got.Nodes[node].Images, attrname.Scheduler); found != want {
			t.Errorf("%s: scheduler is %q, want %q", node, found, want)
		}

		if found := text(got.Nodes[node].Images, attrname.Kubelet); found != "registry.k8s.io/kubelet:v1.34.2" {
			t.Errorf("%s: kubelet is %q", node, found)
		}
	}
}

// TestComponent_ImageWarningsOfManyNodesStayReadable: whoever has a thousand nodes reads no
// thousand lines either.
func TestComponent_ImageWarningsOfManyNodesStayReadable(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")

	for number := range 300 {
		fake.nodes = append(fake.nodes, fakeNode{
			name: fmt.Sprintf("worker-%d", number+2), role: cluster.Worker, talos: "1.13.4", kubernetes: "1.34.2", kubelet: "1.34.1",
			images: map[cluster.Component]string{cluster.Kubelet: fmt.Sprintf("registry.example.com/kubelet-%d:v1.34.2", number)},
		})
	}

	_, diagnostics := readCurrent(t, fake.clusters(t))
	check(t, diagnostics, outcome{diag.SeverityWarning, "and 291 more images"}, outcome{diag.SeverityWarning, "- and 290 more differences"})

	if slices.ContainsFunc(diagnostics, func(d diag.Diagnostic) bool { return len(d.Detail()) > 2048 || strings.Count(d.Detail(), "\n") > 20 }) {
		t.Error("too much to read")
	}
}
