// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Events implements machine.MachineServiceServer: an empty event first, then
// those asked for, until the machine goes down.
func (m *machineService) Events(request *machine.EventsRequest, stream grpc.ServerStreamingServer[machine.Event]) error {
	if err := stream.Send(&machine.Event{}); err != nil {
		return err
	}

	tail := model.Tail{
		Count: int(request.GetTailEvents()), AfterID: request.GetTailId(),
		Since: time.Duration(request.GetTailSeconds()) * time.Second,
	}

	err := m.world.Follow(stream.Context(), m.node, tail, func(event model.Event) error {
		if actor := request.GetWithActorId(); actor != "" && event.Actor != actor {
			return nil
		}

		return m.send(event, stream)
	})

	return statusOf(err)
}

func (m *machineService) send(event model.Event, stream grpc.ServerStreamingServer[machine.Event]) error {
	payload := eventPayload(event)

	value, err := proto.Marshal(payload)
	if err != nil {
		return err
	}

	return stream.Send(&machine.Event{
		Id: event.ID, ActorId: event.Actor,
		// Talos has a prefix of its own here.
		Data: &anypb.Any{TypeUrl: "talos/runtime/" + string(proto.MessageName(payload)), Value: value},
	})
}

func eventPayload(event model.Event) proto.Message {
	switch event.Kind {
	case model.EventPhase:
		return &machine.PhaseEvent{
			Phase: event.Name, Action: machine.PhaseEvent_Action(startOrStop(event.Action)),
		}
	case model.EventTask:
		return &machine.TaskEvent{Task: event.Name, Action: machine.TaskEvent_Action(startOrStop(event.Action))}
	case model.EventService:
		return &machine.ServiceStateEvent{
			Service: event.Name, Action: machine.ServiceStateEvent_RUNNING, Message: "Health check successful",
			Health: &machine.ServiceHealth{Healthy: true},
		}
	case model.EventStage:
		return stageEvent(event)
	default:
		return sequenceEvent(event)
	}
}

func startOrStop(action string) int32 {
	if action == model.ActionStop {
		return int32(machine.PhaseEvent_STOP)
	}

	return int32(machine.PhaseEvent_START)
}

func sequenceEvent(event model.Event) *machine.SequenceEvent {
	converted := &machine.SequenceEvent{Sequence: event.Name}

	switch event.Action {
	case model.ActionStart:
		converted.Action = machine.SequenceEvent_START
	case model.ActionStop:
		converted.Action = machine.SequenceEvent_STOP
	default:
		converted.Action = machine.SequenceEvent_NOOP
	}

	if event.Error != "" {
		converted.Error = &common.Error{Code: common.Code_FATAL, Message: event.Error}
		if event.Locked {
			converted.Error.Code = common.Code_LOCKED
		}
	}

	return converted
}

func stageEvent(event model.Event) *machine.MachineStatusEvent {
	converted := &machine.MachineStatusEvent{
		Stage:  machine.MachineStatusEvent_MachineStage(stageOf(model.Stage(event.Name))),
		Status: &machine.MachineStatusEvent_MachineStatus{Ready: event.Ready},
	}

	for _, unmet := range event.Unmet {
		converted.Status.UnmetConditions = append(converted.Status.UnmetConditions,
			&machine.MachineStatusEvent_MachineStatus_UnmetCondition{Name: unmet.Name, Reason: unmet.Reason})
	}

	return converted
}
