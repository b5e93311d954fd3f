// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	talosmeta "github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	apiServerPort = 6443
	factoryURL    = "https://factory.talos.dev"
)

// samples has one resource of each type that machines offer.
func samples() []meta.ResourceWithRD {
	return []meta.ResourceWithRD{
		cluster.NewIdentity(cluster.NamespaceName, ""), cluster.NewInfo(), cluster.NewMember(cluster.NamespaceName, ""),
		newConfigDocument("", nil, resource.VersionUndefined), config.NewMachineType(),
		hardware.NewSystemInformation(""),
		k8s.NewNodename(k8s.NamespaceName, ""), k8s.NewNodeStatus(k8s.NamespaceName, ""),
		k8s.NewKubeletStatus(k8s.NamespaceName, ""), k8s.NewKubeletSpec(k8s.NamespaceName, ""), k8s.NewKubeletConfig(k8s.NamespaceName, ""),
		k8s.NewAPIServerConfig(""), k8s.NewControllerManagerConfig(""), k8s.NewSchedulerConfig(""),
		k8s.NewStaticPod(k8s.NamespaceName, ""), k8s.NewStaticPodStatus(k8s.NamespaceName, ""),
		k8s.NewSecretsStatus(k8s.ControlPlaneNamespaceName, ""), k8s.NewConfigStatus(k8s.ControlPlaneNamespaceName, ""),
		k8s.NewManifest(k8s.ControlPlaneNamespaceName, ""), k8s.NewBootstrapManifestsConfig(),
		block.NewVolumeStatus(block.NamespaceName, ""), runtime.NewDiagnostic(runtime.NamespaceName, ""),
		runtime.NewMachineStatus(), runtime.NewExtensionStatus(runtime.NamespaceName, ""),
		runtime.NewPlatformMetadataSpec(runtime.NamespaceName, ""), runtime.NewSecurityStateSpec(runtime.NamespaceName),
		runtime.NewMetaKey(runtime.NamespaceName, ""), runtime.NewVersion(), runtime.NewBootID(),
		runtime.NewImageFactorySchematic(runtime.NamespaceName, ""), timeres.NewStatus(),
		v1alpha1.NewService(""),
	}
}

// memberResources is what discovery knows.
func memberResources(members []model.Member) []resource.Resource {
	list := make([]resource.Resource, 0, len(members))

	for _, state := range members {
		member := cluster.NewMember(cluster.NamespaceName, state.Name)
		*member.TypedSpec() = cluster.MemberSpec{
			NodeID: state.Identity, Hostname: state.Name, MachineType: machineType(state.Role),
			OperatingSystem: "Talos (v" + state.Talos + ")",
		}

		for _, text := range state.Addresses {
			if address, err := netip.ParseAddr(text); err == nil {
				member.TypedSpec().Addresses = append(member.TypedSpec().Addresses, address)
			}
		}

		if state.Role == model.ControlPlane {
			member.TypedSpec().ControlPlane = &cluster.ControlPlane{APIServerPort: apiServerPort}
		}

		list = append(list, member)
	}

	return list
}

// ownResources are all resources of one machine.
func ownResources(world *model.World, state model.NodeState, made *rendering) []resource.Resource {
	var list []resource.Resource

	list = append(list, identityResources(world, state)...)
	list = append(list, runtimeResources(state)...)
	list = append(list, serviceResources(state, made.arguments)...)
	list = append(list, podResources(state, made.arguments)...)
	list = append(list, made.resources()...)

	list = append(list, newConfigDocument(config.ActiveID, state.Config, versionOf(state.ConfigVersion)))
	if state.PersistentConfig != nil {
		list = append(list, newConfigDocument(config.PersistentID, state.PersistentConfig, resource.VersionUndefined))
	}

	return list
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

	boot := runtime.NewBootID()
	boot.TypedSpec().BootID = state.BootID

	disk := block.NewVolumeStatus(block.NamespaceName, constants.EphemeralPartitionLabel)
	disk.TypedSpec().Phase, disk.TypedSpec().Type = block.VolumePhaseReady, block.VolumeTypePartition
	disk.TypedSpec().Location, disk.TypedSpec().ParentLocation = "/dev/sda6", "/dev/sda"
	disk.TypedSpec().Filesystem = block.FilesystemTypeXFS
	disk.TypedSpec().SetSize(model.DiskSize)

	list := []resource.Resource{machineStatus(state), version, platform, boot, disk}
	list = append(list, toldResources(state)...)

	// An installation that has just been made does not show: machines read
	// their metadata when they boot.
	if state.UpgradePending && !state.Armed {
		pending := runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(talosmeta.Upgrade))
		pending.TypedSpec().Value = map[string]string{"A": "B", "B": "A"}[state.Booted]
		list = append(list, pending)
	}

	return append(list, schematicResources(state)...)
}

// toldResources are what a machine may keep to itself: how it booted, and how its
// clock is kept.
func toldResources(state model.NodeState) []resource.Resource {
	var list []resource.Resource

	if !state.SecurityUnknown {
		security := runtime.NewSecurityStateSpec(runtime.NamespaceName)
		security.TypedSpec().SecureBoot, security.TypedSpec().BootedWithUKI = state.SecureBoot, state.BootedWithUKI
		list = append(list, security)
	}

	if clock := state.Vitals.Time; clock != nil {
		status := timeres.NewStatus()
		status.TypedSpec().Synced, status.TypedSpec().SyncDisabled = clock.Synced, clock.Disabled
		list = append(list, status)
	}

	return list
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

func serviceResources(state model.NodeState, arguments extraArguments) []resource.Resource {
	var list []resource.Resource

	for _, entry := range servicesOf(state) {
		if entry.absent {
			continue
		}

		service := v1alpha1.NewService(entry.id)
		service.TypedSpec().Running, service.TypedSpec().Healthy = entry.running, entry.healthy
		service.TypedSpec().Unknown = entry.unwatched
		list = append(list, service)
	}

	source := k8s.NewKubeletConfig(k8s.NamespaceName, k8s.KubeletID)
	*source.TypedSpec() = k8s.KubeletConfigSpec{
		Image: state.KubeletService.Image, ExtraArgs: argValues(arguments[model.KubeletName]),
		ClusterDNS: []string{dnsAddress}, ClusterDomain: clusterDomain, DefaultRuntimeSeccompEnabled: true,
	}

	spec := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
	*spec.TypedSpec() = k8s.KubeletSpecSpec{
		Image: state.KubeletService.Image, ExpectedNodename: state.Name,
		Args: flagsOf(ownFlags(state, model.KubeletName), arguments[model.KubeletName]),
	}

	kubelet := k8s.NewKubeletStatus(k8s.NamespaceName, k8s.KubeletID)
	kubelet.TypedSpec().Image = state.KubeletService.Image

	return append(list, source, spec, kubelet)
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
