// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

var errReadOnly = status.Error(codes.PermissionDenied, "write access is not allowed")

// access decides who may see which resources on a machine of a version, and
// lets the model know that somebody looked.
func (s *station) access(talos string) state.FilteringRule {
	definitions := map[resource.Type]meta.ResourceDefinitionSpec{}
	for _, sample := range samples() {
		definition := sample.ResourceDefinition()
		definitions[definition.Type] = definition
	}

	return func(ctx context.Context, access state.Access) error {
		if !access.Verb.Readonly() {
			return errReadOnly
		}

		switch access.ResourceType {
		case meta.ResourceDefinitionType, meta.NamespaceType:
			return nil
		}

		definition, known := definitions[access.ResourceType]

		switch {
		case !known || !offered(access.ResourceType, talos):
			return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
		case !slices.Contains(namespaces(), access.ResourceNamespace):
			return status.Errorf(codes.PermissionDenied, "namespace %q is not supported", access.ResourceNamespace)
		case definition.Sensitivity == meta.Sensitive && !rolesOf(ctx).Includes(role.Admin):
			return errNotAuthorized
		}

		_, err := s.server.world.Observe(ctx, s.address, observed(access.ResourceType))

		return statusOf(err)
	}
}

// offered tells whether a type existed in a version of Talos.
func offered(of resource.Type, talos string) bool {
	switch of {
	case runtime.ImageFactorySchematicType, runtime.BootIDType, k8s.KubeletStatusType:
		return model.AtLeast(talos, 1, 14)
	default:
		return true
	}
}

// observed is how the history names a look at a type.
func observed(of resource.Type) string {
	switch of {
	case runtime.MachineStatusType:
		return "machine"
	case cluster.MemberType:
		return "members"
	case config.MachineConfigType:
		return "config"
	case runtime.BootIDType:
		return "boot_id"
	default:
		return "resources"
	}
}

// namespaces are those a machine has, whether or not this simulation keeps
// anything in them.
func namespaces() []resource.Namespace {
	return []resource.Namespace{
		meta.NamespaceName, "runtime", "cluster", "cluster-raw", "config", "containers", "controlplane", "cri", "etcd", "files",
		"hardware", "k8s", "kubespan", "network", "network-config", "perf", "secrets", "security", "storage",
	}
}
