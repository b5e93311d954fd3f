// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/registry"
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
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

var errReadOnly = status.Error(codes.PermissionDenied, "write access is not allowed")

// access returns the rule that decides who may read which resources on a machine of a version. It records each read
// in the model.
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

// offered reports whether a type exists in a version of Talos.
func offered(of resource.Type, talos string) bool {
	switch of {
	case runtime.ImageFactorySchematicType, runtime.BootIDType, k8s.KubeletStatusType:
		return model.AtLeast(talos, 1, 14)
	default:
		return true
	}
}

// observed returns what the history calls a read of a type.
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

// namespaces returns those of a machine, whether or not this simulation keeps anything in them.
func namespaces() []resource.Namespace {
	return []resource.Namespace{
		meta.NamespaceName, "runtime", "cluster", "cluster-raw", "config", "containers", "controlplane", "cri", "etcd", "files",
		"hardware", "k8s", "kubespan", "network", "network-config", "perf", "secrets", "security", "storage",
	}
}

const (
	apiServerPort = 6443
	factoryURL    = "https://factory.talos.dev"
)

// samples returns one resource of each type that machines offer.
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

// memberResources returns the members that discovery lists.
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

// ownResources returns all resources of one machine.
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

	// An installation of the present boot does not show: machines read their metadata when they boot.
	if state.UpgradePending && !state.Armed {
		pending := runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(talosmeta.Upgrade))
		pending.TypedSpec().Value = state.UpgradeTag
		list = append(list, pending)
	}

	return append(list, schematicResources(state)...)
}

// toldResources returns what a machine may fail to report: how it booted, and the state of its clock.
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

// schematicResources returns the extensions of the running image and the schematic that it was made of. An image
// that does not come from the Image Factory has only the extensions.
func schematicResources(state model.NodeState) []resource.Resource {
	var list []resource.Resource

	for i, name := range state.Extensions {
		extension := runtime.NewExtensionStatus(runtime.NamespaceName, strconv.Itoa(i))
		extension.TypedSpec().Metadata.Name, extension.TypedSpec().Metadata.Version = name, "v0.2.0"
		extension.TypedSpec().Metadata.Author = "Sidero Labs"
		list = append(list, extension)
	}

	if state.Schematic == "" {
		return list
	}

	schematic := runtime.NewExtensionStatus(runtime.NamespaceName, strconv.Itoa(len(state.Extensions)))
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

// sharedResources are those that are the same on every machine: definitions, and the member list. With many
// machines, a copy for each would be large.
type sharedResources struct {
	world       *model.World
	definitions state.CoreState

	mu      sync.Mutex
	members *mirror
	// listed are the machines that members shows.
	listed []model.Member
}

func newSharedResources(world *model.World) (*sharedResources, error) {
	shared := &sharedResources{
		world: world, members: newMirror(), definitions: namespaced.NewState(inmem.Build),
	}

	ctx := context.Background()
	definitions := state.WrapCore(shared.definitions)

	if err := registry.NewNamespaceRegistry(definitions).RegisterDefault(ctx); err != nil {
		return nil, err
	}

	types := registry.NewResourceRegistry(definitions)
	if err := types.RegisterDefault(ctx); err != nil {
		return nil, err
	}

	for _, sample := range samples() {
		if err := types.Register(ctx, sample); err != nil {
			return nil, err
		}
	}

	if err := shared.refresh(ctx); err != nil {
		return nil, err
	}

	return shared, nil
}

// refresh updates the member list.
func (s *sharedResources) refresh(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	// Most changes of machines do not change the list.
	members := s.world.Members()
	if reflect.DeepEqual(members, s.listed) {
		return nil
	}

	if err := s.members.apply(ctx, memberResources(members)); err != nil {
		return err
	}

	s.listed = members

	return nil
}

// nodeResources is the COSI state of one machine. It starts empty, with
// versions from 1, at each boot.
type nodeResources struct {
	world  *model.World
	node   string
	shared *sharedResources
	stale  atomic.Bool

	mu     sync.Mutex
	bootID string
	own    *mirror
	// rendered is what the last configuration was rendered to.
	rendered *rendering
	// kubelet is when the last kubelet service was created.
	kubelet time.Time
}

func newNodeResources(world *model.World, node string, shared *sharedResources) *nodeResources {
	return &nodeResources{world: world, node: node, shared: shared, own: newMirror()}
}

// refresh updates the machine's resources.
func (r *nodeResources) refresh(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.stale.Store(false)

	view, err := r.world.Node(r.node)
	if err != nil || !view.Up {
		return err
	}

	if view.BootID != r.bootID {
		r.bootID, r.own, r.kubelet = view.BootID, newMirror(), time.Time{}
	}

	if !r.rendered.of(view) {
		r.rendered = render(view)
	}

	wanted := ownResources(r.world, view, r.rendered)

	if err := r.removeKubelet(ctx, view.KubeletService.Since, wanted); err != nil {
		return err
	}

	return r.own.apply(ctx, wanted)
}

// removeKubelet removes the kubelet service if another one has replaced it since the last refresh: watchers must
// see that it was gone.
func (r *nodeResources) removeKubelet(ctx context.Context, since time.Time, wanted []resource.Resource) error {
	before := r.kubelet
	r.kubelet = since

	if before.IsZero() || since.IsZero() || since.Equal(before) {
		return nil
	}

	return r.own.apply(ctx, slices.DeleteFunc(slices.Clone(wanted), func(entry resource.Resource) bool {
		return entry.Metadata().Type() == v1alpha1.ServiceType && entry.Metadata().ID() == model.KubeletName
	}))
}

// holder returns the state that has resources of a type, up to date.
func (r *nodeResources) holder(ctx context.Context, of resource.Type) (state.CoreState, error) {
	switch of {
	case meta.ResourceDefinitionType, meta.NamespaceType:
		return r.shared.definitions, nil
	case cluster.MemberType:
		return r.shared.members.core, r.shared.refresh(ctx)
	}

	if r.stale.Load() {
		if err := r.refresh(ctx); err != nil {
			return nil, err
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	return r.own.core, nil
}

// Get implements state.CoreState.
func (r *nodeResources) Get(ctx context.Context, at resource.Pointer, options ...state.GetOption) (resource.Resource, error) {
	core, err := r.holder(ctx, at.Type())
	if err != nil {
		return nil, err
	}

	found, err := core.Get(ctx, at, options...)

	kubelet := at.Type() == v1alpha1.ServiceType && at.ID() == model.KubeletName
	if err != nil || at.Type() != k8s.SecretsStatusType && !kubelet {
		return found, err
	}

	view, err := r.world.Node(r.node)
	if err != nil {
		return nil, err
	}

	if kubelet {
		return aged(found, view.KubeletService.Since), nil
	}

	return aged(found, view.BootedAt), nil
}

// aged returns a resource with a creation time by the clock of the machine: the state uses the wall clock.
func aged(found resource.Resource, created time.Time) resource.Resource {
	found = found.DeepCopy()
	found.Metadata().SetCreated(created)

	return found
}

// List implements state.CoreState.
func (r *nodeResources) List(ctx context.Context, kind resource.Kind, options ...state.ListOption) (resource.List, error) {
	core, err := r.holder(ctx, kind.Type())
	if err != nil {
		return resource.List{}, err
	}

	return core.List(ctx, kind, options...)
}

// Watch implements state.CoreState.
func (r *nodeResources) Watch(ctx context.Context, at resource.Pointer, events chan<- state.Event, options ...state.WatchOption) error {
	core, err := r.holder(ctx, at.Type())
	if err != nil {
		return err
	}

	return core.Watch(ctx, at, events, options...)
}

// WatchKind implements state.CoreState.
func (r *nodeResources) WatchKind(
	ctx context.Context, kind resource.Kind, events chan<- state.Event, options ...state.WatchKindOption,
) error {
	core, err := r.holder(ctx, kind.Type())
	if err != nil {
		return err
	}

	return core.WatchKind(ctx, kind, events, options...)
}

// WatchKindAggregated implements state.CoreState.
func (r *nodeResources) WatchKindAggregated(
	ctx context.Context, kind resource.Kind, events chan<- []state.Event, options ...state.WatchKindOption,
) error {
	core, err := r.holder(ctx, kind.Type())
	if err != nil {
		return err
	}

	return core.WatchKindAggregated(ctx, kind, events, options...)
}

// Create implements state.CoreState, and always fails: clients may only read.
func (r *nodeResources) Create(context.Context, resource.Resource, ...state.CreateOption) error {
	return errReadOnly
}

// Update implements state.CoreState, and always fails: clients may only read.
func (r *nodeResources) Update(context.Context, resource.Resource, ...state.UpdateOption) error {
	return errReadOnly
}

// Destroy implements state.CoreState, and always fails: clients may only read.
func (r *nodeResources) Destroy(context.Context, resource.Pointer, ...state.DestroyOption) error {
	return errReadOnly
}

// mirror keeps the resources of a state equal to a wanted set. Versions count the changes, unless the wanted
// resource has a version: then it gets that one.
type mirror struct {
	core state.CoreState
	kept map[string]kept
}

type kept struct {
	resource.Resource
	version uint64
}

func newMirror() *mirror {
	return &mirror{core: namespaced.NewState(inmem.Build), kept: map[string]kept{}}
}

func (m *mirror) apply(ctx context.Context, wanted []resource.Resource) error {
	present := map[string]bool{}

	for _, want := range wanted {
		key := nameOf(want)
		present[key] = true

		if err := m.put(ctx, key, want); err != nil {
			return err
		}
	}

	for key, old := range m.kept {
		if present[key] {
			continue
		}

		if err := m.remove(ctx, key, old); err != nil {
			return err
		}
	}

	return nil
}

// nameOf returns a name that is unique among the resources of one state, whatever their versions.
func nameOf(entry resource.Resource) string {
	metadata := entry.Metadata()

	return metadata.Namespace() + "/" + metadata.Type() + "/" + metadata.ID()
}

func (m *mirror) put(ctx context.Context, key string, want resource.Resource) error {
	target := want.Metadata().Version().Value()
	old, exists := m.kept[key]

	if exists && target > 0 && target < old.version {
		if err := m.remove(ctx, key, old); err != nil {
			return err
		}

		exists = false
	}

	if !exists {
		if err := m.core.Create(ctx, want); err != nil {
			return err
		}

		old = kept{want, 1}
		m.kept[key] = old
	}

	if target == 0 && !reflect.DeepEqual(old.Spec(), want.Spec()) {
		target = old.version + 1
	}

	for version := old.version; version < target; version++ {
		parsed, err := resource.ParseVersion(strconv.FormatUint(version, 10))
		if err != nil {
			return err
		}

		want.Metadata().SetVersion(parsed)

		if err := m.core.Update(ctx, want); err != nil {
			return err
		}

		m.kept[key] = kept{want, version + 1}
	}

	return nil
}

func (m *mirror) remove(ctx context.Context, key string, old kept) error {
	if err := m.core.Destroy(ctx, old.Metadata()); err != nil {
		return err
	}

	delete(m.kept, key)

	return nil
}
