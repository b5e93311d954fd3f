// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"bytes"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/bootstrap"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// rendering is what a machine's configuration comes to. It is kept, because
// machines change often and their configurations rarely.
type rendering struct {
	view      model.NodeState
	arguments extraArguments
	manifests []bootstrap.Manifest
}

func render(view model.NodeState) *rendering {
	made := &rendering{view: view, arguments: readArguments(view.Config)}

	if view.Role == model.ControlPlane {
		made.manifests = bootstrap.Render(view)
	}

	return made
}

// of tells whether it still holds for a machine.
func (r *rendering) of(view model.NodeState) bool {
	return r != nil && bytes.Equal(r.view.Config, view.Config) && r.view.Talos == view.Talos &&
		r.view.ProxyImage == view.ProxyImage && r.view.CoreDNSImage == view.CoreDNSImage
}

// resources are the manifests that a control plane offers, and what they are
// made from.
func (r *rendering) resources() []resource.Resource {
	if r.view.Role != model.ControlPlane {
		return nil
	}

	source := k8s.NewBootstrapManifestsConfig()
	*source.TypedSpec() = k8s.BootstrapManifestsConfigSpec{
		ClusterDomain: clusterDomain, PodCIDRs: []string{podSubnet}, DNSServiceIP: dnsAddress, CNIName: "flannel",
		ProxyEnabled: r.view.ProxyImage != "", ProxyImage: r.view.ProxyImage,
		CoreDNSEnabled: r.view.CoreDNSImage != "", CoreDNSImage: r.view.CoreDNSImage,
	}

	list := []resource.Resource{source}

	for _, manifest := range r.manifests {
		made := k8s.NewManifest(k8s.ControlPlaneNamespaceName, manifest.ID)
		for _, object := range manifest.Objects {
			made.TypedSpec().Items = append(made.TypedSpec().Items, k8s.SingleManifest{Object: object})
		}

		list = append(list, made)
	}

	return list
}
