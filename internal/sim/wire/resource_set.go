// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	talosmeta "github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

const (
	apiServerPort = 6443
	factoryURL    = "https://factory.talos.dev"
)

// samples has one resource of each type that machines offer.
func samples() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		cluster.NewIdentity(cluster.NamespaceName, ""), cluster.NewInfo(), cluster.NewMember(cluster.NamespaceName, ""),
		newConfigDocument("", nil), config.NewMachineType(),
		hardware.NewSystemInformation(""),
		k8s.NewNodename(k8s.NamespaceName, ""), k8s.NewNodeStatus(k8s.NamespaceName, ""),
		k8s.NewKubeletStatus(k8s.NamespaceName, ""),
		runtime.NewMachineStatus(), runtime.NewExtensionStatus(runtime.NamespaceName, ""),
		runtime.NewPlatformMetadataSpec(runtime.NamespaceName, ""), runtime.NewSecurityStateSpec(runtime.NamespaceName),
		runtime.NewMetaKey(runtime.NamespaceName, ""), runtime.NewVersion(), runtime.NewBootID(),
		runtime.NewImageFactorySchematic(runtime.NamespaceName, ""),
		v1alpha1.NewService(""),
	}
}

// memberResources is what discovery knows.
func memberResources(members []model.NodeState) []resource.Resource {
	list := make([]resource.Resource, 0, len(members))

	for _, state := range members {
		member := cluster.NewMember(cluster.NamespaceName, state.Name)
		*member.TypedSpec() = cluster.MemberSpec{
			NodeID: state.Identity, Hostname: state.Name, MachineType: machineType(state.Role),
			OperatingSystem: "Talos (v" + state.Talos + ")",
		}

		if address, err := netip.ParseAddr(state.Address); err == nil {
			member.TypedSpec().Addresses = []netip.Addr{address}
		}

		if state.Role == model.ControlPlane {
			member.TypedSpec().ControlPlane = &cluster.ControlPlane{APIServerPort: apiServerPort}
		}

		list = append(list, member)
	}

	return list
}

// ownResources are all resources of one machine.
func ownResources(world *model.World, state model.NodeState, configuration []byte) []resource.Resource {
	var list []resource.Resource

	list = append(list, identityResources(world, state)...)
	list = append(list, runtimeResources(state)...)
	list = append(list, serviceResources(state)...)

	return append(list,
		newConfigDocument(config.ActiveID, configuration),
		newConfigDocument(config.PersistentID, configuration))
}

func identityResources(world *model.World, state model.NodeState) []resource.Resource {
	identity := cluster.NewIdentity(cluster.NamespaceName, cluster.LocalIdentity)
	identity.TypedSpec().NodeID = state.Identity

	info := cluster.NewInfo()
	info.TypedSpec().ClusterID, info.TypedSpec().ClusterName = world.ClusterID(), world.ClusterName()

	kind := config.NewMachineType()
	kind.SetMachineType(machineType(state.Role))

	system := hardware.NewSystemInformation(hardware.SystemInformationID)
	system.TypedSpec().UUID = state.UUID
	system.TypedSpec().Manufacturer, system.TypedSpec().ProductName = "talossim", "Virtual machine"

	name := k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)
	name.TypedSpec().Nodename = state.Name

	status := k8s.NewNodeStatus(k8s.NamespaceName, state.Name)
	*status.TypedSpec() = k8s.NodeStatusSpec{
		Nodename: state.Name, NodeReady: state.Kubelet.Ready, Unschedulable: state.Unschedulable,
	}

	return []resource.Resource{identity, info, kind, system, name, status}
}

func runtimeResources(state model.NodeState) []resource.Resource {
	version := runtime.NewVersion()
	version.TypedSpec().Name, version.TypedSpec().Version = "Talos", "v"+state.Talos

	platform := runtime.NewPlatformMetadataSpec(runtime.NamespaceName, "")
	platform.TypedSpec().Platform, platform.TypedSpec().Hostname = state.Platform, state.Name

	security := runtime.NewSecurityStateSpec(runtime.NamespaceName)
	security.TypedSpec().SecureBoot, security.TypedSpec().BootedWithUKI = state.SecureBoot, state.SecureBoot

	boot := runtime.NewBootID()
	boot.TypedSpec().BootID = state.BootID

	list := []resource.Resource{machineStatus(state), version, platform, security, boot}

	// An installation that has just been made does not show: machines read
	// their metadata when they boot.
	if state.UpgradePending && !state.Armed {
		pending := runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(talosmeta.Upgrade))
		pending.TypedSpec().Value = map[string]string{"A": "B", "B": "A"}[state.Booted]
		list = append(list, pending)
	}

	return append(list, schematicResources(state)...)
}

// schematicResources tell what the running image was made of; an image that
// does not come from the Image Factory tells nothing.
func schematicResources(state model.NodeState) []resource.Resource {
	if state.Schematic == "" {
		return nil
	}

	var list []resource.Resource

	if state.Schematic != model.EmptySchematic {
		tools := runtime.NewExtensionStatus(runtime.NamespaceName, "0")
		tools.TypedSpec().Metadata.Name, tools.TypedSpec().Metadata.Version = "iscsi-tools", "v0.2.0"
		tools.TypedSpec().Metadata.Author = "Sidero Labs"
		list = append(list, tools)
	}

	schematic := runtime.NewExtensionStatus(runtime.NamespaceName, "1")
	schematic.TypedSpec().Metadata.Name, schematic.TypedSpec().Metadata.Version = "schematic", state.Schematic
	schematic.TypedSpec().Metadata.Author = "Image Factory (" + factoryURL + ")"

	factory := runtime.NewImageFactorySchematic(runtime.NamespaceName, runtime.ImageFactorySchematicID)
	*factory.TypedSpec() = runtime.ImageFactorySchematicSpec{SchematicID: state.Schematic, APIURL: factoryURL}

	return append(list, schematic, factory)
}

func machineStatus(state model.NodeState) resource.Resource {
	status := runtime.NewMachineStatus()
	status.TypedSpec().Stage = stageOf(state.Stage)
	status.TypedSpec().Status.Ready = state.Ready

	for _, unmet := range state.Unmet {
		status.TypedSpec().Status.UnmetConditions = append(status.TypedSpec().Status.UnmetConditions,
			runtime.UnmetCondition{Name: unmet.Name, Reason: unmet.Reason})
	}

	return status
}

func serviceResources(state model.NodeState) []resource.Resource {
	var list []resource.Resource

	for _, entry := range servicesOf(state) {
		service := v1alpha1.NewService(entry.id)
		service.TypedSpec().Running, service.TypedSpec().Healthy = entry.running, entry.healthy
		list = append(list, service)
	}

	kubelet := k8s.NewKubeletStatus(k8s.NamespaceName, "kubelet")
	kubelet.TypedSpec().Image = "ghcr.io/siderolabs/kubelet:v" + state.Kubelet.Version

	return append(list, kubelet)
}

func stageOf(stage model.Stage) runtime.MachineStage {
	switch stage {
	case model.StageBooting:
		return runtime.MachineStageBooting
	case model.StageRunning:
		return runtime.MachineStageRunning
	case model.StageRebooting:
		return runtime.MachineStageRebooting
	case model.StageUpgrading:
		return runtime.MachineStageUpgrading
	default:
		return runtime.MachineStageUnknown
	}
}

func machineType(role model.Role) machine.Type {
	if role == model.ControlPlane {
		return machine.TypeControlPlane
	}

	return machine.TypeWorker
}
