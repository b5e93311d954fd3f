// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	clusterpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/cluster"
	hardwarepb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/hardware"
	k8spb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/k8s"
	runtimepb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/runtime"

	"github.com/jxskiss/base62"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	bootIDPath = "/proc/sys/kernel/random/boot_id"
	// bootIDLimit is more than a boot ID needs; the file is a UUID.
	bootIDLimit = 64
	// metaUpgradeTag is the META key that stands from an upgrade until the new
	// system has confirmed itself.
	metaUpgradeTag = "0x06"
)

// Machine observes one node. The boot ID is read before everything else: the
// rest then belongs to that boot or to a later one, never to an earlier one, so
// that nobody can see the new boot ID together with the old version of a node
// that was upgraded in between.
func (c *Client) Machine(ctx context.Context, address string) (cluster.Machine, error) {
	machine := cluster.Machine{Address: address}

	bootID, err := c.bootID(ctx, address)
	if err != nil {
		return cluster.Machine{}, err
	}

	machine.BootID = bootID

	// The parts write different fields, so no lock is needed.
	group, groupCtx := errgroup.WithContext(ctx)

	for _, part := range []func(context.Context, *cluster.Machine) error{
		c.readVersion, c.readStatus, c.readName, c.readRole, c.readExtensions,
		c.readSecurity, c.readIdentity, c.readUUID, c.readUpgradeTag, c.readConfig,
	} {
		group.Go(func() error { return part(groupCtx, &machine) })
	}

	if err := group.Wait(); err != nil {
		return cluster.Machine{}, err
	}

	if err := c.readLateFacts(ctx, &machine); err != nil {
		return cluster.Machine{}, err
	}

	return machine, nil
}

// readLateFacts asks for what only some versions have, once the version is
// known and the usual place held nothing.
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

// bootID is empty when the credentials may not read it. Only admins may read
// the file; from Talos 1.14 on there is a resource for everybody else.
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

// withoutBuild drops what development builds of Talos append to their tag.
func withoutBuild(tag string) string {
	core, _, _ := strings.Cut(tag, "+")

	return core
}

func (c *Client) readStatus(ctx context.Context, machine *cluster.Machine) error {
	var spec runtimepb.MachineStatusSpec

	found, err := c.resource(ctx, machine.Address, kindMachineStatus(), "machine", &spec)
	if err != nil || !found {
		return err
	}

	machine.Stage = stage(int32(spec.GetStage()))
	machine.Ready = spec.GetStatus().GetReady()

	for _, unmet := range spec.GetStatus().GetUnmetConditions() {
		machine.Unmet = append(machine.Unmet, unmet.GetName()+": "+unmet.GetReason())
	}

	return nil
}

// stage spells a stage as Talos prints it.
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

// readStaticPods reads what tells whether pods that Kubernetes shows are those that
// the node runs.
func (c *Client) readStaticPods(ctx context.Context, machine *cluster.Machine) error {
	var files k8spb.ConfigStatusSpec
	if _, err := c.resource(ctx, machine.Address, kindConfigStatus(), idStaticPods, &files); err != nil {
		return err
	}

	machine.FilesVersion = files.GetVersion()

	// A node notes once in each boot, when its clock is right, that the secrets of its
	// static pods are there, and makes the pods after that. The pods themselves are
	// younger than their containers where etcd failed for a moment: Talos takes them
	// away until it is back, and the kubelet may never notice.
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

// role translates the machine type, whose number is the same wherever Talos
// writes it. The first control plane of old clusters has one of its own.
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

// readIdentity leaves the machine ID empty where the node has no identity, or one
// that is none.
func (c *Client) readIdentity(ctx context.Context, machine *cluster.Machine) error {
	var spec clusterpb.IdentitySpec

	_, err := c.resource(ctx, machine.Address, kindIdentity(), "local", &spec)
	machine.MachineID = machineID(spec.GetNodeId())

	return err
}

// machineID is what Talos writes to /etc/machine-id for the identity of a node.
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
	machine.UpgradePending = found && spec.GetValue() != ""

	return err
}
