// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Names of the legacy upgrade's sequence and of the phase in it that runs the
// installer (machined's v1alpha1 sequencer).
const (
	upgradeSequence = "upgrade"
	installPhase    = "upgrade"
)

// beginLimit is how long a node may take from accepting an upgrade to the first
// event of it. It waits a minute for another sequence to give way; an upgrade
// that did not get its turn has no event of its own.
const beginLimit = 90 * time.Second

// Upgrade asks a node for a legacy upgrade and follows it to the end of the
// installer. The node pulls and checks before it answers, which can take
// minutes, and goes on by itself afterwards. None of the request's switches is
// ever set: each of them turns a check off.
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

// followUpgrade reads the node's events from its last boot on until those of
// the actor say how the installer ended. It ends with an error when the node
// goes down without having said so, or when there is no event of the actor.
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

// readUpgrade reads events until the installer's phase is followed by another
// one, which means that it succeeded, or until the sequence fails. A sequence
// that another one keeps from starting never happens, although it was accepted.
// begun is called with each event.
func readUpgrade(stream eventStream, begun func()) (cluster.Installation, error) {
	installing := false

	for {
		event, err := stream.Recv()
		if err != nil {
			return cluster.Installation{}, err
		}

		// The first one is empty, and comes before anything has happened.
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

// payloadOf decodes the events that matter here. Their type URL has a prefix of
// Talos' own, so that anypb does not know them.
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
