// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// service is one of a machine's own services.
type service struct {
	id               string
	running, healthy bool
	// unwatched services have no health check.
	unwatched bool
}

func servicesOf(state model.NodeState) []service {
	list := []service{
		{id: "apid", running: true, healthy: true},
		{id: "auditd", running: true, healthy: true},
		{id: "containerd", running: true, healthy: true},
		{id: "cri", running: true, healthy: true},
		{id: "kubelet", running: state.Kubelet.Running, healthy: state.Kubelet.Running},
		{id: "machined", running: true, healthy: true},
		{id: "syslogd", running: true, unwatched: true},
		{id: "udevd", running: true, healthy: true},
	}

	if state.Role == model.ControlPlane {
		list = append(list,
			service{id: "etcd", running: state.EtcdRunning, healthy: state.EtcdServed},
			service{id: "trustd", running: true, healthy: true})
	}

	return list
}
