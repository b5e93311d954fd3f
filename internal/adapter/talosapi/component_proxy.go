// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"cmp"
	"context"
	"fmt"

	k8spb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/k8s"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// proxyManifest is the ID of the manifest with kube-proxy, as Talos has always
// named it.
const proxyManifest = "10-kube-proxy"

// proxy reads the image that a control plane renders for kube-proxy: the nodes
// run it as a DaemonSet, of which a machine knows nothing but the manifest.
func (c *Client) proxy(ctx context.Context, address string) (cluster.ComponentStatus, error) {
	image, err := c.renderedProxy(ctx, address)
	if err != nil {
		return cluster.ComponentStatus{}, err
	}

	if image == "" {
		return cluster.ComponentStatus{}, fmt.Errorf("%w: %s renders no %s", cluster.ErrNotFound, place(address), cluster.Proxy)
	}

	return cluster.ComponentStatus{Image: image}, nil
}

// renderedProxy is the image in the manifest of kube-proxy. Where that is not
// found by its ID all manifests are looked at; empty when none has it.
func (c *Client) renderedProxy(ctx context.Context, address string) (image string, err error) {
	var own k8spb.ManifestSpec

	found, err := c.resource(ctx, address, kindManifest(), proxyManifest, &own)
	if err != nil {
		return "", err
	}

	if image = manifestProxy(&own); found && image != "" {
		return image, nil
	}

	err = c.resources(ctx, address, kindManifest(), func(spec []byte) error {
		var manifest k8spb.ManifestSpec
		if err := proto.Unmarshal(spec, &manifest); err != nil {
			return err
		}

		image = cmp.Or(image, manifestProxy(&manifest))

		return nil
	})

	return image, err
}

// manifestProxy is the image of kube-proxy in a manifest, empty for none.
func manifestProxy(manifest *k8spb.ManifestSpec) string {
	for _, item := range manifest.GetItems() {
		if image := proxyImage(item.GetObject()); image != "" {
			return image
		}
	}

	return ""
}

// proxyImage is the image in the DaemonSet of kube-proxy; empty for any other
// object.
func proxyImage(object *structpb.Struct) string {
	metadata := field(structpb.NewStructValue(object), "metadata")
	name, namespace := field(metadata, "name").GetStringValue(), field(metadata, "namespace").GetStringValue()

	if object.GetFields()["kind"].GetStringValue() != "DaemonSet" || name != string(cluster.Proxy) || namespace != "kube-system" {
		return ""
	}

	containers := field(structpb.NewStructValue(object), "spec", "template", "spec", "containers")
	for _, container := range containers.GetListValue().GetValues() {
		if field(container, "name").GetStringValue() == string(cluster.Proxy) {
			return field(container, "image").GetStringValue()
		}
	}

	return ""
}

// field walks into an object; nil, which every getter takes, where there is
// nothing.
func field(value *structpb.Value, path ...string) *structpb.Value {
	for _, name := range path {
		value = value.GetStructValue().GetFields()[name]
	}

	return value
}
