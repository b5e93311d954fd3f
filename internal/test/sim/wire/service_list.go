// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// service is one of a machine's own services.
type service struct {
	id               string
	running, healthy bool
	// unwatched services have no health check.
	unwatched bool
	// absent services are known and not there just now.
	absent bool
	since  time.Time
}

func servicesOf(state model.NodeState) []service {
	kubelet := state.KubeletService

	list := []service{
		{id: "apid", running: true, healthy: true},
		{id: "auditd", running: true, healthy: true},
		{id: "containerd", running: true, healthy: true},
		{id: "cri", running: true, healthy: true},
		{
			id: model.KubeletName, running: kubelet.Running, healthy: kubelet.Healthy,
			absent: kubelet.Since.IsZero(), since: kubelet.Since,
		},
		{id: "machined", running: true, healthy: true},
		{id: "syslogd", running: true, unwatched: true},
		{id: "udevd", running: true, healthy: true},
	}

	if state.Role == model.ControlPlane {
		list = append(list,
			service{id: "etcd", running: state.EtcdRunning, healthy: state.EtcdServed},
			service{id: "trustd", running: true, healthy: true})
	}

	for i := range list {
		if list[i].since.IsZero() {
			list[i].since = state.BootedAt
		}
	}

	return list
}

// info is the service as machines list it, with how it got where it is.
func (s service) info() *machine.ServiceInfo {
	at := timestamppb.New(s.since)
	info := &machine.ServiceInfo{
		Id: s.id, State: "Finished",
		Health: &machine.ServiceHealth{Healthy: s.healthy, Unknown: s.unwatched, LastChange: at},
		Events: &machine.ServiceEvents{Events: []*machine.ServiceEvent{
			{Msg: "Running pre state", State: "Preparing", Ts: at},
		}},
	}

	last := &machine.ServiceEvent{Msg: "Service finished successfully", State: info.GetState(), Ts: at}
	if s.running {
		info.State = "Running"
		last = &machine.ServiceEvent{Msg: "Started task " + s.id, State: info.GetState(), Ts: at}
	}

	info.Events.Events = append(info.Events.Events, last)

	return info
}
