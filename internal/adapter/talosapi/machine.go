// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	cosiclient "github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"github.com/jxskiss/base62"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	clusterpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/cluster"
	extensionspb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/extensions"
	hardwarepb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/hardware"
	k8spb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/k8s"
	runtimepb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/runtime"
	timepb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/time"
	"github.com/siderolabs/talos/pkg/machinery/client"
	_ "github.com/siderolabs/talos/pkg/machinery/resources/k8s" // registers the types that are decoded
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	bootIDPath = "/proc/sys/kernel/random/boot_id"
	// bootIDLimit is more than a boot ID needs; the file is a UUID.
	bootIDLimit = 64
	// metaUpgradeTag is the META key that an installer writes. Talos removes it once the machine is ready, or if it
	// makes the boot loader start the other system because machined failed.
	metaUpgradeTag = "0x06"
)

// mostLooks is how often a node is read if it reboots while it is being read.
const mostLooks = 3

// Machine observes one node. Everything that it returns is of one boot: the status of a node is created once in
// each boot, so what is read between two reads of the same status belongs to the boot of that status. For a node
// without a status, which Talos has had since 1.2, this is not guaranteed.
func (c *Client) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	before := cluster.Machine{Address: address}

	if known != nil && !known.StatusSince.IsZero() && (!known.Partial || extent == cluster.BootOnly) {
		again, err := c.machineAgain(ctx, *known, extent)
		if err != nil || again.StatusSince.Equal(known.StatusSince) {
			return again, err
		}

		before.StatusSince = again.StatusSince
	} else if err := c.readStatus(ctx, &before); err != nil {
		return cluster.Machine{}, err
	}

	for range mostLooks {
		machine, err := c.machineAnew(ctx, address, extent)
		if err != nil || machine.StatusSince.Equal(before.StatusSince) {
			return machine, err
		}

		before = machine
	}

	return cluster.Machine{}, fmt.Errorf("unable to observe %s: %w: it keeps rebooting while it is being asked", place(address), cluster.ErrUnreachable)
}

// machineAgain reads what changes within a boot, for a machine that is known already. If the returned status is not
// the known one, the node is in another boot, and the rest of the answer is not valid. A system that has confirmed
// itself stays confirmed for as long as it runs.
func (c *Client) machineAgain(ctx context.Context, machine cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	if extent == cluster.Everything {
		if err := c.readChanging(ctx, &machine); err != nil {
			return cluster.Machine{}, err
		}
	}

	if err := c.readStatus(ctx, &machine); err != nil {
		return cluster.Machine{}, err
	}

	return machine, nil
}

// readChanging reads what changes within a boot and is pending or not known, except for the status.
func (c *Client) readChanging(ctx context.Context, machine *cluster.Machine) error {
	var parts []machinePart

	if machine.UpgradePending {
		parts = append(parts, c.readUpgradeTag)
	}

	if machine.Role == cluster.ControlPlane && machine.FilesVersion == "" {
		parts = append(parts, c.readStaticPods)
	}

	if machine.Config == nil {
		parts = append(parts, c.readConfig)
	}

	return readAll(ctx, machine, parts...)
}

// machineAnew reads everything within the extent from a node. The boot ID is read first, so that a new boot ID is
// never combined with an old version, and the status last.
func (c *Client) machineAnew(ctx context.Context, address string, extent cluster.Extent) (cluster.Machine, error) {
	bootID, err := c.bootID(ctx, address)
	if err != nil {
		return cluster.Machine{}, err
	}

	machine := cluster.Machine{Address: address, BootID: bootID, Partial: extent == cluster.BootOnly}

	if machine.Partial {
		err = c.readVersion(ctx, &machine)
		machine.Platform = ""
	} else {
		err = c.readRest(ctx, &machine)
	}

	if err != nil {
		return cluster.Machine{}, err
	}

	if err := c.readStatus(ctx, &machine); err != nil {
		return cluster.Machine{}, err
	}

	return machine, nil
}

// readRest reads everything but the boot ID and the status.
func (c *Client) readRest(ctx context.Context, machine *cluster.Machine) error {
	err := readAll(ctx, machine,
		c.readVersion, c.readName, c.readRole, c.readExtensions,
		c.readSecurity, c.readIdentity, c.readUUID, c.readUpgradeTag, c.readConfig,
	)
	if err != nil {
		return err
	}

	return c.readLateFacts(ctx, machine)
}

// machinePart reads some of the fields of a machine.
type machinePart func(context.Context, *cluster.Machine) error

// readAll reads the parts at once. They write different fields, so no lock is needed.
func readAll(ctx context.Context, machine *cluster.Machine, parts ...machinePart) error {
	group, groupCtx := errgroup.WithContext(ctx)

	for _, part := range parts {
		group.Go(func() error { return part(groupCtx, machine) })
	}

	return group.Wait()
}

// readLateFacts reads what only some versions have, once the version is known and the usual place is empty.
func (c *Client) readLateFacts(ctx context.Context, machine *cluster.Machine) error {
	if machine.Schematic == "" && machine.Talos.AtLeast(1, 14) {
		var spec runtimepb.ImageFactorySchematicSpec
		if _, err := c.resource(ctx, machine.Address, kindImageSchematic(), "image-factory-schematic", &spec); err != nil {
			return err
		}

		machine.Schematic = spec.GetSchematicId()
	}

	if machine.Platform == "" {
		var spec runtimepb.PlatformMetadataSpec
		if _, err := c.resource(ctx, machine.Address, kindPlatform(), "platformmetadata", &spec); err != nil {
			return err
		}

		machine.Platform = spec.GetPlatform()
	}

	return nil
}

// bootID returns the boot ID; empty if the credentials may not read it. Only admins may read the file; from Talos
// 1.14 on there is a resource for everybody else.
func (c *Client) bootID(ctx context.Context, address string) (string, error) {
	if !c.config.certificate.admin() {
		var spec runtimepb.BootIDSpec

		_, err := c.resource(ctx, address, kindBootID(), "boot-id", &spec)

		return spec.GetBootId(), err
	}

	var content []byte

	op := operation{what: "read the boot ID of " + place(address), node: address, timeout: readTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		reader, err := api.Read(ctx, bootIDPath)
		if err != nil {
			return err
		}
		defer reader.Close()

		content, err = io.ReadAll(io.LimitReader(reader, bootIDLimit))

		return err
	})
	if isAbsent(err) {
		return "", nil
	}

	return strings.TrimSpace(string(content)), err
}

func (c *Client) readVersion(ctx context.Context, machine *cluster.Machine) error {
	var answer *machineapi.VersionResponse

	op := operation{what: "read the version of " + place(machine.Address), node: machine.Address, timeout: readTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) (err error) {
		answer, err = api.MachineClient.Version(ctx, &emptypb.Empty{})

		return err
	})
	if err != nil {
		return err
	}

	if len(answer.GetMessages()) == 0 {
		return fmt.Errorf("unable to %s: the answer is empty", op.what)
	}

	message := answer.GetMessages()[0]

	tag := message.GetVersion().GetTag()
	machine.Talos, err = version.Parse(withoutBuild(tag))

	switch {
	case err != nil && tag == "":
		return fmt.Errorf("unable to %s: %w", op.what, err)
	case err != nil:
		machine.TalosTag = tag
	}

	machine.Platform = message.GetPlatform().GetName()

	return nil
}

// withoutBuild removes what development builds of Talos append to their tag.
func withoutBuild(tag string) string {
	core, _, _ := strings.Cut(tag, "+")

	return core
}

// readStatus reads the status and when it was created: once in each boot, because it is updated from then on and
// never recreated (MachineStatusController, from Talos 1.2 to 1.14).
func (c *Client) readStatus(ctx context.Context, machine *cluster.Machine) error {
	var spec runtimepb.MachineStatusSpec

	machine.StatusSince, machine.Stage, machine.Ready, machine.Unmet = time.Time{}, "", false, nil

	metadata, err := c.read(ctx, machine.Address, kindMachineStatus(), "machine", &spec)
	if isAbsent(err) {
		return nil
	}

	if err != nil {
		return err
	}

	if created := metadata.GetCreated(); created.IsValid() {
		machine.StatusSince = created.AsTime()
	}

	machine.Stage = stage(int32(spec.GetStage()))
	machine.Ready = spec.GetStatus().GetReady()

	for _, unmet := range spec.GetStatus().GetUnmetConditions() {
		machine.Unmet = append(machine.Unmet, unmet.GetName()+": "+unmet.GetReason())
	}

	return nil
}

// stage returns a stage as Talos prints it.
func stage(number int32) cluster.Stage {
	stages := []cluster.Stage{
		"unknown", cluster.StageBooting, cluster.StageInstalling, "maintenance", cluster.StageRunning,
		cluster.StageRebooting, cluster.StageShuttingDown, cluster.StageResetting, cluster.StageUpgrading,
	}

	if number < 0 || int(number) >= len(stages) {
		return cluster.Stage(fmt.Sprintf("stage %d", number))
	}

	return stages[number]
}

func (c *Client) readName(ctx context.Context, machine *cluster.Machine) error {
	var spec k8spb.NodenameSpec
	if _, err := c.resource(ctx, machine.Address, kindNodename(), "nodename", &spec); err != nil {
		return err
	}

	if !spec.GetSkipNodeRegistration() {
		machine.NodeName = spec.GetNodename()
	}

	return nil
}

func (c *Client) readRole(ctx context.Context, machine *cluster.Machine) error {
	var spec configpb.MachineTypeSpec
	if _, err := c.resource(ctx, machine.Address, kindMachineType(), "machine-type", &spec); err != nil {
		return err
	}

	machine.Role = role(int32(spec.GetMachineType()))
	if machine.Role != cluster.ControlPlane {
		return nil
	}

	return c.readStaticPods(ctx, machine)
}

// readStaticPods reads what shows whether the pods in Kubernetes are those that the node runs.
func (c *Client) readStaticPods(ctx context.Context, machine *cluster.Machine) error {
	var files k8spb.ConfigStatusSpec
	if _, err := c.resource(ctx, machine.Address, kindConfigStatus(), idStaticPods, &files); err != nil {
		return err
	}

	machine.FilesVersion, machine.PodsSince = files.GetVersion(), time.Time{}

	// Once in each boot, when its clock is synchronised, a node creates this status of the secrets of its static
	// pods, and the pods after that. The pods' own creation time does not help: if etcd fails for a moment, Talos
	// removes them until it is back, and the kubelet may never notice, so that they are younger than their
	// containers.
	metadata, err := c.read(ctx, machine.Address, kindSecretsStatus(), idStaticPods, &k8spb.SecretsStatusSpec{})
	if err != nil {
		if isAbsent(err) {
			return nil
		}

		return err
	}

	if created := metadata.GetCreated(); created.IsValid() {
		machine.PodsSince = created.AsTime()
	}

	return nil
}

// role translates the machine type, which has the same numbers everywhere in Talos. The first control plane of old
// clusters has a type of its own.
func role(machineType int32) cluster.Role {
	switch configpb.MachineType(machineType) {
	case configpb.MachineType_INIT, configpb.MachineType_CONTROL_PLANE:
		return cluster.ControlPlane
	case configpb.MachineType_WORKER:
		return cluster.Worker
	case configpb.MachineType_UNKNOWN:
		return ""
	default:
		return ""
	}
}

func (c *Client) readSecurity(ctx context.Context, machine *cluster.Machine) error {
	var spec runtimepb.SecurityStateSpec

	found, err := c.resource(ctx, machine.Address, kindSecurityState(), "securitystate", &spec)
	machine.SecureBoot, machine.BootedWithUKI, machine.BootUnknown = spec.GetSecureBoot(), spec.GetBootedWithUki(), !found

	return err
}

// readIdentity leaves the machine ID empty if the node has no identity or one that is not valid.
func (c *Client) readIdentity(ctx context.Context, machine *cluster.Machine) error {
	var spec clusterpb.IdentitySpec

	_, err := c.resource(ctx, machine.Address, kindIdentity(), "local", &spec)
	machine.MachineID = machineID(spec.GetNodeId())

	return err
}

// machineID returns what Talos writes to /etc/machine-id for the identity of a node.
func machineID(identity string) string {
	const size = 16

	raw, err := base62.DecodeString(identity)
	if err != nil || len(raw) < size {
		return ""
	}

	return hex.EncodeToString(raw[:size])
}

func (c *Client) readUUID(ctx context.Context, machine *cluster.Machine) error {
	var spec hardwarepb.SystemInformationSpec

	_, err := c.resource(ctx, machine.Address, kindSystem(), "systeminformation", &spec)
	machine.UUID = spec.GetUuid()

	return err
}

func (c *Client) readUpgradeTag(ctx context.Context, machine *cluster.Machine) error {
	var spec runtimepb.MetaKeySpec

	found, err := c.resource(ctx, machine.Address, kindMetaKey(), metaUpgradeTag, &spec)
	machine.UpgradeTag = ""
	if found {
		machine.UpgradeTag = spec.GetValue()
	}

	machine.UpgradePending = machine.UpgradeTag != ""

	return err
}

// The Image Factory marks its images with a pseudo extension whose version is the schematic. Talos itself adds
// another one for the kernel modules.
const (
	schematicExtension = "schematic"
	modulesExtension   = "modules.dep"
)

func (c *Client) readExtensions(ctx context.Context, machine *cluster.Machine) error {
	err := c.resources(ctx, machine.Address, kindExtension(), func(spec []byte) error {
		var layer extensionspb.Layer
		if err := proto.Unmarshal(spec, &layer); err != nil {
			return err
		}

		switch name := layer.GetMetadata().GetName(); name {
		case schematicExtension:
			machine.Schematic = layer.GetMetadata().GetVersion()
		case modulesExtension, "":
		default:
			machine.Extensions = append(machine.Extensions, name)
		}

		return nil
	})

	slices.Sort(machine.Extensions)

	return err
}

// State returns the state of one node for libraries that need one. Get and List go through any endpoint, with the
// deadlines of every other read; the rest returns an error for which [state.IsUnsupportedError] is true. Errors
// wrap the sentinels of package cluster; [state.IsNotFoundError] works as well.
func (c *Client) State(address string) state.State {
	return state.WrapCore(nodeState{client: c, address: address})
}

// nodeState reads the resources of one node.
type nodeState struct {
	client  *Client
	address string
}

// Get implements state.CoreState.
func (s nodeState) Get(ctx context.Context, at resource.Pointer, options ...state.GetOption) (resource.Resource, error) {
	var found resource.Resource

	err := s.read(ctx, fmt.Sprintf("read %s/%s", at.Type(), at.ID()), func(ctx context.Context, core state.CoreState) (err error) {
		found, err = core.Get(ctx, at, options...)

		return err
	})

	return found, err
}

// List implements state.CoreState.
func (s nodeState) List(ctx context.Context, of resource.Kind, options ...state.ListOption) (resource.List, error) {
	var found resource.List

	err := s.read(ctx, "list "+of.Type(), func(ctx context.Context, core state.CoreState) (err error) {
		found, err = core.List(ctx, of, options...)

		return err
	})

	return found, err
}

func (s nodeState) read(ctx context.Context, what string, do func(context.Context, state.CoreState) error) error {
	op := operation{what: what + " of " + place(s.address), node: s.address, timeout: readTimeout}
	missing := false

	err := s.client.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		err := do(ctx, cosiclient.NewAdapter(cosi.NewStateClient(api.Conn()), cosiclient.WithDisableWatchRetry()))

		missing = state.IsNotFoundError(err)
		if missing {
			// The adapter hides the code of the answer.
			return status.Error(codes.NotFound, strings.TrimPrefix(err.Error(), "rpc error: code = NotFound desc = "))
		}

		return err
	})
	if missing && err != nil {
		return notFoundError{err}
	}

	return err
}

// Create implements state.CoreState.
func (s nodeState) Create(context.Context, resource.Resource, ...state.CreateOption) error {
	return s.unsupported("create a resource")
}

// Update implements state.CoreState.
func (s nodeState) Update(context.Context, resource.Resource, ...state.UpdateOption) error {
	return s.unsupported("update a resource")
}

// Destroy implements state.CoreState.
func (s nodeState) Destroy(context.Context, resource.Pointer, ...state.DestroyOption) error {
	return s.unsupported("destroy a resource")
}

// Watch implements state.CoreState.
func (s nodeState) Watch(context.Context, resource.Pointer, chan<- state.Event, ...state.WatchOption) error {
	return s.unsupported("watch a resource")
}

// WatchKind implements state.CoreState.
func (s nodeState) WatchKind(context.Context, resource.Kind, chan<- state.Event, ...state.WatchKindOption) error {
	return s.unsupported("watch resources")
}

// WatchKindAggregated implements state.CoreState.
func (s nodeState) WatchKindAggregated(context.Context, resource.Kind, chan<- []state.Event, ...state.WatchKindOption) error {
	return s.unsupported("watch resources")
}

func (s nodeState) unsupported(what string) error {
	return unsupportedError{fmt.Errorf("unable to %s of %s: %w: this state is only for reading", what, place(s.address), cluster.ErrUnsupported)}
}

// notFoundError marks an error for the COSI library as a missing resource.
type notFoundError struct{ error }

func (e notFoundError) Unwrap() error { return e.error }

// NotFoundError implements state.ErrNotFound.
func (notFoundError) NotFoundError() {}

// unsupportedError marks an error for the COSI library as an unsupported call.
type unsupportedError struct{ error }

func (e unsupportedError) Unwrap() error { return e.error }

// UnsupportedError implements state.ErrUnsupported.
func (unsupportedError) UnsupportedError() {}

// kind is a kind of COSI resource: its namespace and type.
type kind struct{ namespace, name string }

// bounds matches where the words of a type begin.
var bounds = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`)

// all returns the readable name of the resources of the kind, such as machine configs or boot IDs.
func (k kind) all() string {
	name, _, _ := strings.Cut(k.name, ".")
	words := strings.Fields(bounds.ReplaceAllString(name, "$1$3 $2$4"))

	for index, word := range words {
		if len(word) == 1 || strings.ToLower(word[1:]) == word[1:] {
			words[index] = strings.ToLower(word)
		}
	}

	return strings.Join(words, " ")
}

// one returns the readable name of one of them, such as machine config or boot ID.
func (k kind) one() string {
	name := k.all()

	switch {
	case strings.HasSuffix(name, "ies"):
		return strings.TrimSuffix(name, "ies") + "y"
	case strings.HasSuffix(name, "uses"):
		return strings.TrimSuffix(name, "es")
	default:
		return strings.TrimSuffix(name, "s")
	}
}

// The resources that are read, as COSI names them. Nodes of older versions do not have all of them.
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

// idStaticPods is the ID of the only status of secrets, and of the only status of files.
const idStaticPods = "static-pods"

func kindController() kind {
	return kind{"controlplane", "ControllerManagerConfigs.kubernetes.talos.dev"}
}
func kindScheduler() kind { return kind{"controlplane", "SchedulerConfigs.kubernetes.talos.dev"} }

// resource reads one resource into the message. It returns false if there is none, if the node does not know the
// type, or if the credentials may not read it: not all versions of Talos distinguish the three.
func (c *Client) resource(ctx context.Context, node string, of kind, id string, into proto.Message) (bool, error) {
	_, err := c.read(ctx, node, of, id, into)
	if isAbsent(err) {
		return false, nil
	}

	return err == nil, err
}

// read reads one resource into the message and returns its metadata. The error wraps cluster.ErrNotFound if there
// is none.
func (c *Client) read(ctx context.Context, node string, of kind, id string, into proto.Message) (*cosi.Metadata, error) {
	what := of.one()
	if !strings.Contains(strings.ToLower(what), strings.ReplaceAll(id, "-", " ")) {
		what += " " + id
	}

	op := operation{what: fmt.Sprintf("read the %s of %s", what, place(node)), node: node, timeout: readTimeout}

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

// resources lists all resources of a kind and calls decode with the spec of each. An unknown kind has none.
// Resources of the whole cluster are read through every endpoint before the list counts as empty.
func (c *Client) resources(ctx context.Context, node string, of kind, decode func(spec []byte) error) error {
	var specs [][]byte

	op := operation{what: fmt.Sprintf("list the %s of %s", of.all(), place(node)), node: node, timeout: readTimeout}

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

// isAbsent reports whether a resource does not exist or may not be read. If a worker refused to forward the call,
// it reports false, because the node was not asked.
func isAbsent(err error) bool {
	var failure *callError
	if errors.As(err, &failure) && failure.forwarding {
		return false
	}

	return errors.Is(err, cluster.ErrNotFound) || errors.Is(err, cluster.ErrDenied)
}

// place returns the readable name of the target of a call.
func place(node string) string {
	if node == "" {
		return "the cluster"
	}

	return "node " + node
}

const (
	// ephemeralMount is where Talos mounts the volume EPHEMERAL, which holds the local data of pods and, unless
	// there is a volume for them, images.
	ephemeralMount = "/var"
	// imagesPath is where the container runtime keeps images, constant CRIContainerdDataPath of Talos. From 1.14 on
	// it may be a volume of its own, CRI.
	imagesPath = "/var/lib/containerd"
)

// Vitals returns what the node says about its disk and its clock. What an answer lacks, and what cannot be read
// because of the node or the credentials, is nil; in the latter case DiskError or TimeError has the reason. An
// error means that the node did not answer at all.
//
// A node has to query each of its mounts, and one of them, such as that of an NFS server that is gone, may block the
// answer for as long as the node runs, and every further call as well. A node that did not answer in time is not asked
// for its mounts again for hungTime.
func (c *Client) Vitals(ctx context.Context, address string) (cluster.Vitals, error) {
	var (
		vitals           cluster.Vitals
		diskErr, timeErr error
		group            errgroup.Group
	)

	// One failure must not cancel the other call, and they write different fields.
	group.Go(func() error { vitals.Disk, diskErr = c.diskSpace(ctx, address); return nil })
	group.Go(func() error { vitals.Time, timeErr = c.timeSync(ctx, address); return nil })

	_ = group.Wait()

	if isSilence(ctx, diskErr) && isSilence(ctx, timeErr) {
		return cluster.Vitals{}, diskErr
	}

	vitals.DiskError = diskErr

	var failure *callError
	if errors.As(diskErr, &failure) && failure.silent && ctx.Err() == nil && c.hungMounts(address) == nil {
		c.hung.Store(address, hungMounts{err: diskErr, since: time.Now()})
	}

	// A node without the resource does not know; that is not an error.
	if !errors.Is(timeErr, cluster.ErrNotFound) {
		vitals.TimeError = timeErr
	}

	return vitals, nil
}

// hungTime is how long a node whose mounts did not answer is not asked again. It may have been busy, or have rebooted.
const hungTime = 10 * time.Minute

// hungMounts is the error of mounts that did not answer, and when.
type hungMounts struct {
	err   error
	since time.Time
}

// hungMounts returns the error of mounts that did not answer, if that was within the last hungTime; nil otherwise.
func (c *Client) hungMounts(address string) error {
	known, _ := c.hung.Load(address)
	if hung, found := known.(hungMounts); found && time.Since(hung.since) < hungTime {
		return hung.err
	}

	return nil
}

// isSilence reports whether an error is not an answer of the node.
func isSilence(ctx context.Context, err error) bool {
	var failure *callError

	switch {
	case err == nil:
		return false
	case ctx.Err() != nil, errors.Is(err, cluster.ErrUnreachable), errors.Is(err, cluster.ErrCredentials):
		return true
	default:
		return errors.As(err, &failure) && failure.forwarding
	}
}

// diskSpace returns nil if no file system for images is found.
func (c *Client) diskSpace(ctx context.Context, address string) (*cluster.DiskSpace, error) {
	if err := c.hungMounts(address); err != nil {
		return nil, err
	}

	var answer *machineapi.MountsResponse

	op := operation{what: "read the mounts of " + place(address), node: address, timeout: mountsTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) (err error) {
		answer, err = api.MachineClient.Mounts(ctx, &emptypb.Empty{})

		return err
	})
	if err != nil {
		return nil, err
	}

	return spaceForImages(answer), nil
}

// spaceForImages returns the size in bytes of the file system of images: the innermost mount, from /var on, that
// contains their directory. If two mounts are at the same place, the later one hides the other. A size of zero is
// one that the node could not determine.
func spaceForImages(answer *machineapi.MountsResponse) *cluster.DiskSpace {
	var (
		space *cluster.DiskSpace
		place string
	)

	for _, message := range answer.GetMessages() {
		for _, mount := range message.GetStats() {
			at := mount.GetMountedOn()

			switch {
			case !within(imagesPath, at) || !within(at, ephemeralMount) || len(at) < len(place):
				continue
			case len(at) > len(place):
				place, space = at, nil
			}

			if mount.GetSize() > 0 {
				space = &cluster.DiskSpace{Size: signed(mount.GetSize()), Available: signed(mount.GetAvailable())}
			}
		}
	}

	return space
}

// within reports whether a path is a directory or below it.
func within(path, directory string) bool {
	return path == directory || strings.HasPrefix(path, directory+"/")
}

func signed(size uint64) int64 { return int64(min(size, math.MaxInt64)) }

// timeSync returns nil if the node does not know, as one that has just booted.
func (c *Client) timeSync(ctx context.Context, address string) (*cluster.TimeSync, error) {
	var spec timepb.StatusSpec

	// Unlike resource, read distinguishes a node that has none from one that does not answer.
	if _, err := c.read(ctx, address, kindTimeStatus(), "node", &spec); err != nil {
		return nil, err
	}

	return &cluster.TimeSync{Synced: spec.GetSynced(), Disabled: spec.GetSyncDisabled()}, nil
}

// ClusterID returns the ID that all machines of the cluster share; empty if the configuration has none. Every role
// may read it. It never changes, so it is read only until it is known: a machine that is booting would have none.
func (c *Client) ClusterID(ctx context.Context) (string, error) {
	if known := c.clusterID.Load(); known != nil {
		return *known, nil
	}

	var spec clusterpb.InfoSpec
	if _, err := c.resource(ctx, "", kindClusterInfo(), "current", &spec); err != nil {
		return "", err
	}

	id := spec.GetClusterId()
	if id != "" {
		c.clusterID.Store(&id)
	}

	return id, nil
}

// Members lists the machines that discovery knows, as seen by the endpoint. The list lags behind by minutes.
func (c *Client) Members(ctx context.Context) ([]cluster.Member, error) {
	var members []cluster.Member

	err := c.resources(ctx, "", kindMember(), func(spec []byte) error {
		var member clusterpb.MemberSpec
		if err := proto.Unmarshal(spec, &member); err != nil {
			return err
		}

		found := cluster.Member{Hostname: member.GetHostname(), Role: role(int32(member.GetMachineType()))}

		for _, ip := range member.GetAddresses() {
			if address, ok := netip.AddrFromSlice(ip.GetIp()); ok {
				found.Addresses = append(found.Addresses, address.Unmap().String())
			}
		}

		members = append(members, found)

		return nil
	})

	return members, err
}

// Kubeconfig reads the admin kubeconfig of the cluster from a control plane, as YAML. Without os:admin the error
// wraps cluster.ErrDenied.
func (c *Client) Kubeconfig(ctx context.Context) ([]byte, error) {
	var kubeconfig []byte

	op := operation{what: "get the kubeconfig of the cluster", timeout: kubeconfigTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) (err error) {
		kubeconfig, err = api.Kubeconfig(ctx)

		return err
	})
	if err != nil {
		return nil, err
	}

	if len(kubeconfig) == 0 {
		return nil, fmt.Errorf("unable to %s: %w", op.what, errors.New("the answer is empty"))
	}

	return kubeconfig, nil
}
