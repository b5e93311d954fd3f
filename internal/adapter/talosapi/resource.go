// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// kind is a kind of COSI resource: its namespace and type.
type kind struct{ namespace, name string }

// The resources that are read, as COSI names them. Nodes of an older version
// do not know all of them.
func kindMember() kind         { return kind{"cluster", "Members.cluster.talos.dev"} }
func kindClusterInfo() kind    { return kind{"cluster", "Infos.cluster.talos.dev"} }
func kindIdentity() kind       { return kind{"cluster", "Identities.cluster.talos.dev"} }
func kindMachineConfig() kind  { return kind{"config", "MachineConfigs.config.talos.dev"} }
func kindMachineType() kind    { return kind{"config", "MachineTypes.config.talos.dev"} }
func kindNodename() kind       { return kind{"k8s", "Nodenames.kubernetes.talos.dev"} }
func kindSystem() kind         { return kind{"hardware", "SystemInformations.hardware.talos.dev"} }
func kindMachineStatus() kind  { return kind{"runtime", "MachineStatuses.runtime.talos.dev"} }
func kindExtension() kind      { return kind{"runtime", "ExtensionStatuses.runtime.talos.dev"} }
func kindSecurityState() kind  { return kind{"runtime", "SecurityStates.talos.dev"} }
func kindPlatform() kind       { return kind{"runtime", "PlatformMetadatas.talos.dev"} }
func kindMetaKey() kind        { return kind{"runtime", "MetaKeys.runtime.talos.dev"} }
func kindBootID() kind         { return kind{"runtime", "BootIDs.runtime.talos.dev"} }
func kindImageSchematic() kind { return kind{"runtime", "ImageFactorySchematics.runtime.talos.dev"} }
func kindTimeStatus() kind     { return kind{"runtime", "TimeStatuses.v1alpha1.talos.dev"} }
func kindService() kind        { return kind{"runtime", "Services.v1alpha1.talos.dev"} }
func kindKubeletSpec() kind    { return kind{"k8s", "KubeletSpecs.kubernetes.talos.dev"} }
func kindManifest() kind       { return kind{"controlplane", "Manifests.kubernetes.talos.dev"} }
func kindAPIServer() kind      { return kind{"controlplane", "APIServerConfigs.kubernetes.talos.dev"} }

func kindSecretsStatus() kind {
	return kind{"controlplane", "SecretStatuses.kubernetes.talos.dev"}
}

func kindConfigStatus() kind {
	return kind{"controlplane", "ConfigStatuses.kubernetes.talos.dev"}
}

// idStaticPods is the one status of secrets, and of files, that there is.
const idStaticPods = "static-pods"

func kindController() kind {
	return kind{"controlplane", "ControllerManagerConfigs.kubernetes.talos.dev"}
}
func kindScheduler() kind { return kind{"controlplane", "SchedulerConfigs.kubernetes.talos.dev"} }

// resource reads one resource into the message. It reports false when there is
// none, when the node does not know the type, or when the credentials may not
// read it: the three cannot be told apart by all versions of Talos.
func (c *Client) resource(ctx context.Context, node string, of kind, id string, into proto.Message) (bool, error) {
	_, err := c.read(ctx, node, of, id, into)
	if isAbsent(err) {
		return false, nil
	}

	return err == nil, err
}

// read reads one resource into the message and returns its metadata. The error
// wraps cluster.ErrNotFound when there is none.
func (c *Client) read(ctx context.Context, node string, of kind, id string, into proto.Message) (*cosi.Metadata, error) {
	op := operation{what: fmt.Sprintf("read %s/%s of %s", of.name, id, place(node)), node: node, timeout: readTimeout}

	var metadata *cosi.Metadata

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		response, err := cosi.NewStateClient(api.Conn()).Get(ctx, &cosi.GetRequest{
			Namespace: of.namespace, Type: of.name, Id: id, Options: &cosi.GetOptions{},
		})
		if err != nil {
			return err
		}

		metadata = response.GetResource().GetMetadata()

		return proto.Unmarshal(response.GetResource().GetSpec().GetProtoSpec(), into)
	})

	return metadata, err
}

// resources lists all resources of a kind; decode is called with the spec of
// each. An unknown kind has none. What concerns the whole cluster is asked of
// every endpoint before it counts as empty.
func (c *Client) resources(ctx context.Context, node string, of kind, decode func(spec []byte) error) error {
	var specs [][]byte

	op := operation{what: fmt.Sprintf("list %s of %s", of.name, place(node)), node: node, timeout: readTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		specs = nil

		stream, err := cosi.NewStateClient(api.Conn()).List(ctx, &cosi.ListRequest{
			Namespace: of.namespace, Type: of.name, Options: &cosi.ListOptions{},
		})
		if err != nil {
			return err
		}

		for {
			response, err := stream.Recv()
			if errors.Is(err, io.EOF) && node == "" && len(specs) == 0 {
				return status.Error(codes.NotFound, "there are none")
			}

			if errors.Is(err, io.EOF) {
				return nil
			}

			if err != nil {
				return err
			}

			specs = append(specs, response.GetResource().GetSpec().GetProtoSpec())
		}
	})
	if isAbsent(err) {
		return nil
	}

	if err != nil {
		return err
	}

	for _, spec := range specs {
		if err := decode(spec); err != nil {
			return fmt.Errorf("unable to %s: %w", op.what, err)
		}
	}

	return nil
}

// isAbsent tells that a resource is not there or not for us. A worker that
// does not forward is neither: nothing was asked of the node then.
func isAbsent(err error) bool {
	var failure *callError
	if errors.As(err, &failure) && failure.forwarding {
		return false
	}

	return errors.Is(err, cluster.ErrNotFound) || errors.Is(err, cluster.ErrDenied)
}

// place names the target of a call for people.
func place(node string) string {
	if node == "" {
		return "the cluster"
	}

	return "node " + node
}
