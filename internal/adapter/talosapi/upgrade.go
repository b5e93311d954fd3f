// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Names of the sequence of a legacy upgrade and of its phase that runs the installer (machined's v1alpha1
// sequencer).
const (
	upgradeSequence = "upgrade"
	installPhase    = "upgrade"
)

// beginLimit is how long a node may take from accepting an upgrade to the first event of it. It waits a minute for
// another sequence to give way. If it never starts the upgrade, there are no events of it.
const beginLimit = 90 * time.Second

// Upgrade requests a legacy upgrade from a node and follows it to the end of the installer. The node pulls and
// checks before it answers, which can take minutes, and continues by itself afterwards. None of the request's
// switches is ever set: each of them turns a check off.
func (c *Client) Upgrade(
	ctx context.Context, address, image string, mode cluster.RebootMode, accepted func(),
) (cluster.Installation, error) {
	op := operation{
		what: fmt.Sprintf("upgrade %s to %s", place(address), image), node: address, timeout: legacyTimeout, mutates: true,
	}

	request := &machineapi.UpgradeRequest{Image: image, RebootMode: machineapi.UpgradeRequest_DEFAULT}
	if mode == cluster.RebootPowercycle {
		request.RebootMode = machineapi.UpgradeRequest_POWERCYCLE
	}

	var actor string

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		response, err := api.MachineClient.Upgrade(ctx, request) //nolint:staticcheck // all that Talos before 1.13 has
		for _, message := range response.GetMessages() {
			actor = message.GetActorId()
		}

		return err
	})
	if err != nil {
		return cluster.Installation{}, err
	}

	if accepted != nil {
		accepted()
	}

	result, err := c.followUpgrade(ctx, address, actor)
	if errors.Is(err, cluster.ErrBusy) {
		return result, fmt.Errorf("unable to %s: %w", op.what, err)
	}

	if err != nil {
		return result, fmt.Errorf("%w: the node accepted, and then its events broke off: %w", cluster.ErrOutcomeUnknown, err)
	}

	return result, nil
}

// followUpgrade reads the node's events since its last boot until those of the actor say how the installer ended.
// It returns an error if the node goes down before that, or if there is no event of the actor.
func (c *Client) followUpgrade(ctx context.Context, address, actor string) (cluster.Installation, error) {
	op := operation{what: "follow the upgrade of " + place(address), node: address, timeout: followTimeout}

	var result cluster.Installation

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()

		late := make(chan struct{})
		watchdog := time.AfterFunc(beginLimit, func() { close(late); cancel() })

		defer watchdog.Stop()

		stream, err := api.MachineClient.Events(ctx, &machineapi.EventsRequest{TailEvents: -1, WithActorId: actor})
		if err != nil {
			return err
		}

		result, err = readUpgrade(stream, func() { watchdog.Stop() })

		select {
		case <-late:
			return status.Error(codes.DeadlineExceeded, fmt.Sprintf("it had not begun after %s", beginLimit))
		default:
			return err
		}
	})

	return result, err
}

type eventStream interface {
	Recv() (*machineapi.Event, error)
}

// readUpgrade reads events until the phase of the installer is followed by another one, which means that it
// succeeded, or until the sequence fails. A sequence may be accepted and still not start, because another one holds
// the lock: the error wraps cluster.ErrBusy then. begun is called for each event.
func readUpgrade(stream eventStream, begun func()) (cluster.Installation, error) {
	installing := false

	for {
		event, err := stream.Recv()
		if err != nil {
			return cluster.Installation{}, err
		}

		// The first event is empty and comes before anything has happened.
		if event.GetData().GetTypeUrl() != "" {
			begun()
		}

		switch payload := payloadOf(event).(type) {
		case *machineapi.PhaseEvent:
			if payload.GetAction() != machineapi.PhaseEvent_START {
				continue
			}

			if installing && payload.GetPhase() != installPhase {
				return cluster.Installation{}, nil
			}

			installing = installing || payload.GetPhase() == installPhase
		case *machineapi.SequenceEvent:
			failure := payload.GetError()
			if payload.GetSequence() != upgradeSequence || failure == nil {
				continue
			}

			if failure.GetCode() == common.Code_LOCKED {
				return cluster.Installation{}, fmt.Errorf("%w: %s", cluster.ErrBusy, failure.GetMessage())
			}

			return cluster.Installation{Exit: 1, Output: []string{failure.GetMessage()}}, nil
		}
	}
}

// payloadOf decodes the events that matter here. Their type URL has a prefix of Talos' own, which anypb does not
// know.
func payloadOf(event *machineapi.Event) proto.Message {
	data := event.GetData()
	_, name, _ := strings.Cut(data.GetTypeUrl(), "/")

	var payload proto.Message

	switch strings.TrimPrefix(name, "runtime/") {
	case "machine.PhaseEvent":
		payload = &machineapi.PhaseEvent{}
	case "machine.SequenceEvent":
		payload = &machineapi.SequenceEvent{}
	default:
		return nil
	}

	if proto.Unmarshal(data.GetValue(), payload) != nil {
		return nil
	}

	return payload
}

// onDisk is the containerd of the kubelet, which keeps its images on the disk of the node.
func onDisk(namespace common.ContainerdNamespace) *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: namespace}
}

// inMemory is the containerd of Talos itself, whose content does not outlive a boot. Installers are pulled into it
// and run from it, as in Talos before 1.13 and, since https://github.com/siderolabs/talos/pull/13920 (2026-07-30),
// by Talos' own tools. The reason is what happens to an image on the disk of a node that loses its power within a
// minute of the download: the names in the image are on the disk at once, the content of the files is not. The
// container and the lease of an installer that ran keep the damaged content, so removing the image and pulling it
// again changes nothing. An installer that finds half of a system to install installs that half, with an empty boot
// loader, and ends with exit code 0. Neither system boots then (Talos 1.13.9 on a QEMU machine, 2026-11-27).
func inMemory() *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM}
}

// Install runs the installer of a pulled image beside the running system. If the stream ends without an exit code,
// the outcome is unknown: the installer continues without the stream.
func (c *Client) Install(ctx context.Context, address, image string) (cluster.Installation, error) {
	var (
		output lines
		exit   *int32
	)

	op := operation{
		what: fmt.Sprintf("install %s on %s", image, place(address)), node: address, timeout: installTimeout, mutates: true,
	}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)

		stream, err := api.LifecycleClient.Upgrade(ctx, upgradeRequest(image))
		if err != nil {
			return err
		}

		heard := make(chan struct{}, 1)

		var doubting sync.WaitGroup

		doubting.Go(func() { c.doubtInstaller(ctx, address, heard, cancel) })

		exit, err = follow(heardStream{stream, heard}, &output)
		if gone := context.Cause(ctx); err != nil && errors.Is(gone, errInstallerGone) {
			err = status.Error(codes.Unavailable, gone.Error())
		}

		cancel(nil)
		doubting.Wait()

		return err
	})
	if err != nil {
		return cluster.Installation{Output: output.last()}, err
	}

	if exit == nil {
		return cluster.Installation{Output: output.last()}, fmt.Errorf(
			"unable to %s: %w: the installer's output ended without an exit code", op.what, cluster.ErrOutcomeUnknown)
	}

	return cluster.Installation{Exit: *exit, Output: output.last()}, nil
}

// installerSilence is how long an installer may print nothing before the node is asked whether one is running, and
// the time between two such questions.
const installerSilence = time.Minute

var errInstallerGone = errors.New("no installer runs on the node any more, and what it says has not ended: the node was likely started anew")

// doubtInstaller ends a call in which nothing is heard, once the node has said twice that no installer is running.
// A node that loses its power does not close its connections, and the endpoint that forwards the call keeps waiting
// for it.
func (c *Client) doubtInstaller(ctx context.Context, address string, heard <-chan struct{}, end context.CancelCauseFunc) {
	silence := time.NewTimer(installerSilence)
	defer silence.Stop()

	doubted := false

	for {
		select {
		case <-ctx.Done():
			return
		case <-heard:
			doubted = false
		case <-silence.C:
			// A node that does not answer may still be installing.
			idle, err := c.InstallerIdle(ctx, address)
			if err == nil && idle && doubted {
				end(errInstallerGone)

				return
			}

			doubted = err == nil && idle
		}

		silence.Reset(installerSilence)
	}
}

// heardStream signals each message of a stream.
type heardStream struct {
	installStream

	heard chan<- struct{}
}

func (h heardStream) Recv() (*machineapi.LifecycleServiceUpgradeResponse, error) {
	response, err := h.installStream.Recv()

	select {
	case h.heard <- struct{}{}:
	default:
	}

	return response, err
}

// InstallerIdle reports whether no installer runs on the node. It requests an upgrade to an image without a name,
// which a node refuses after it has checked whether it is busy, and before it does anything.
func (c *Client) InstallerIdle(ctx context.Context, address string) (bool, error) {
	op := operation{what: "ask whether an installer runs on " + place(address), node: address, timeout: readTimeout}
	idle := false

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		stream, err := api.LifecycleClient.Upgrade(ctx, upgradeRequest(""))
		if err == nil {
			_, err = stream.Recv()
		}

		idle = status.Code(err) == codes.InvalidArgument
		if idle {
			return nil
		}

		if err == nil || errors.Is(err, io.EOF) {
			return status.Error(codes.Internal, "the node took an upgrade without an image")
		}

		return err
	})
	if errors.Is(err, cluster.ErrBusy) {
		return false, nil
	}

	return idle, err
}

func upgradeRequest(image string) *machineapi.LifecycleServiceUpgradeRequest {
	return &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: inMemory(),
		Source:     &machineapi.InstallArtifactsSource{ImageName: image},
	}
}

type installStream interface {
	Recv() (*machineapi.LifecycleServiceUpgradeResponse, error)
}

// follow reads the stream to its end. The exit code is nil if none came.
func follow(stream installStream, output *lines) (*int32, error) {
	var exit *int32

	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return exit, nil
		}

		if err != nil && exit != nil {
			// The installer has ended and said so; how the connection ended does not matter.
			return exit, nil
		}

		if err != nil {
			return nil, err
		}

		switch progress := response.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			output.write(progress.Message)
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			exit = &progress.ExitCode
		}
	}
}

// Pull downloads an installer image to the disk of the node. The caller's context and [cluster.PullTimeout] bound
// it.
func (c *Client) Pull(ctx context.Context, address, image string, api cluster.UpgradeAPI) error {
	return c.pull(ctx, address, image, api, common.ContainerdNamespace_NS_SYSTEM)
}

// PullToInstall downloads an installer image into the memory of the node. It is bounded like [Client.Pull].
func (c *Client) PullToInstall(ctx context.Context, address, image string) error {
	return c.pullInto(ctx, address, image, inMemory())
}

// PullComponent downloads the image of a component to the node: the kubelet's to the namespace of the system's
// containers, and every other one to where the kubelet looks for it. It is bounded like [Client.Pull].
func (c *Client) PullComponent(ctx context.Context, address string, component cluster.Component, image string) error {
	machine := cluster.Machine{Address: address}
	if err := c.readVersion(ctx, &machine); err != nil {
		return err
	}

	namespace := common.ContainerdNamespace_NS_CRI
	if component == cluster.Kubelet {
		namespace = common.ContainerdNamespace_NS_SYSTEM
	}

	err := c.pull(ctx, address, image, machine.UpgradeAPI(), namespace)
	if machine.UpgradeAPI() != cluster.LegacyAPI && errors.Is(err, cluster.ErrUnsupported) {
		// Nothing was pulled; the older call still exists for some releases.
		return c.pull(ctx, address, image, cluster.LegacyAPI, namespace)
	}

	return err
}

func (c *Client) pull(
	ctx context.Context, address, image string, api cluster.UpgradeAPI, namespace common.ContainerdNamespace,
) error {
	if api == cluster.LegacyAPI {
		return c.call(ctx, pulling(address, image), func(ctx context.Context, api *client.Client) error {
			_, err := api.MachineClient.ImagePull(ctx, &machineapi.ImagePullRequest{ //nolint:staticcheck // all that Talos before 1.13 has
				Namespace: namespace,
				Reference: image,
			})

			return err
		})
	}

	return c.pullInto(ctx, address, image, onDisk(namespace))
}

// pullInto downloads an image into one of the node's instances of containerd.
func (c *Client) pullInto(ctx context.Context, address, image string, into *common.ContainerdInstance) error {
	return c.call(ctx, pulling(address, image), func(ctx context.Context, api *client.Client) error {
		stream, err := api.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{Containerd: into, ImageRef: image})
		if err != nil {
			return err
		}

		return drain(stream)
	})
}

func pulling(address, image string) operation {
	return operation{
		what: fmt.Sprintf("pull %s on %s", image, place(address)), node: address, timeout: cluster.PullTimeout, mutates: true,
	}
}

// ImageDigest returns the digest of an installer image that the node has in its memory under exactly that
// reference; [cluster.ErrNotFound] if it has none, and [cluster.ErrUnsupported] if it runs Talos before 1.13, which
// does not list digests.
func (c *Client) ImageDigest(ctx context.Context, address, image string) (string, error) {
	op := operation{what: "list the images of " + place(address), node: address, timeout: readTimeout}
	digest := ""

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		stream, err := api.ImageClient.List(ctx, &machineapi.ImageServiceListRequest{Containerd: inMemory()})

		for err == nil {
			var one *machineapi.ImageServiceListResponse

			if one, err = stream.Recv(); err == nil && one.GetName() == image {
				digest = one.GetDigest()
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		return err
	})
	if err == nil && digest == "" {
		err = fmt.Errorf("unable to find %s on %s: %w", image, place(address), cluster.ErrNotFound)
	}

	return digest, err
}

type pullStream interface {
	Recv() (*machineapi.ImageServicePullResponse, error)
}

// drain reads the progress of a pull to its end. Only the name of the image, which comes last, means that the image
// is there.
func drain(stream pullStream) error {
	pulled := false

	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) && pulled {
			return nil
		}

		if err != nil {
			// A clean end without a name counts as a lost answer, too.
			return err
		}

		pulled = pulled || response.GetName() != ""
	}
}

// Reboot requests a reboot from a node. It returns once the node has accepted.
func (c *Client) Reboot(ctx context.Context, address string, mode cluster.RebootMode) error {
	op := operation{what: "reboot " + place(address), node: address, timeout: rebootTimeout, mutates: true}

	request := &machineapi.RebootRequest{Mode: machineapi.RebootRequest_DEFAULT}
	if mode == cluster.RebootPowercycle {
		request.Mode = machineapi.RebootRequest_POWERCYCLE
	}

	return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		_, err := api.MachineClient.Reboot(ctx, request)

		return err
	})
}

// Rollback makes a node boot its previous system. It returns once the boot loader was changed.
func (c *Client) Rollback(ctx context.Context, address string) error {
	op := operation{what: "roll back " + place(address), node: address, timeout: rebootTimeout, mutates: true}

	return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		return namedRollback(api.Rollback(ctx))
	})
}

// namedRollback gives the answer of a boot loader that has no other system to start, GRUB or sd-boot, the code
// FailedPrecondition, which it lacks.
func namedRollback(err error) error {
	text := status.Convert(err).Message()

	if err != nil && (strings.Contains(text, "cannot rollback to") || strings.Contains(text, "previous UKI not found")) {
		return status.Error(codes.FailedPrecondition, text)
	}

	return err
}
