// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// Stage is the MachineStatus stage, spelled as Talos prints it.
type Stage string

// The stages machines of this model go through.
const (
	StageBooting   Stage = "booting"
	StageRunning   Stage = "running"
	StageRebooting Stage = "rebooting"
	StageUpgrading Stage = "upgrading"
)

// Condition is a reason why a machine is not ready.
type Condition struct {
	Name, Reason string
}

// report is what was last said about a machine in the history.
type report struct {
	stage   Stage
	ready   bool
	unmet   []Condition
	kubelet Kubelet
	etcd    bool
}

// unmet returns the readiness conditions that are not met; Talos checks them only while it boots and runs.
func (n *node) unmet() []Condition {
	if n.stage != StageBooting && n.stage != StageRunning {
		return nil
	}

	var unmet []Condition

	if n.suffers(StepClock, EffectUnsynced) {
		unmet = append(unmet, Condition{"time", "time is not synced"})
	}

	if n.stuck != nil {
		unmet = append(unmet, Condition{"network", n.stuckFor})
	}

	if reasons := n.unhealthyServices(); len(reasons) > 0 {
		unmet = append(unmet, Condition{"services", strings.Join(reasons, ", ")})
	}

	if reasons := n.troubled(); len(reasons) > 0 {
		unmet = append(unmet, Condition{"staticPods", strings.Join(reasons, ", ")})
	}

	if !n.kubelet.Ready {
		unmet = append(unmet, Condition{"nodeReady", fmt.Sprintf("node %q is not ready", n.name)})
	}

	return unmet
}

func (n *node) unhealthyServices() []string {
	var reasons []string

	if n.etcd != nil && !n.etcd.served {
		reasons = append(reasons, "etcd not healthy")
	}

	switch {
	case !n.kubelet.Running:
		reasons = append(reasons, "kubelet not running")
	case !n.service.Healthy:
		reasons = append(reasons, "kubelet not healthy")
	}

	return reasons
}

// settle compares what a machine shows with what was last recorded about it, and records the difference.
func (w *World) settle(n *node) {
	unmet := n.unmet()
	now := report{n.stage, len(unmet) == 0, unmet, n.kubelet, n.etcd != nil && n.etcd.healthy()}
	before := n.reported
	n.reported = now

	if n.up && (now.stage != before.stage || now.ready != before.ready) {
		detail := map[string]string{
			"from": string(before.stage), "to": string(now.stage), "ready": strconv.FormatBool(now.ready),
		}

		if n.byHand {
			detail["by"] = n.asker()
		}

		w.record(n.name, history.KindStage, detail)
	}

	if n.up && (now.stage != before.stage || !slices.Equal(now.unmet, before.unmet)) {
		n.events.add(w.clock.Now(), Event{Kind: EventStage, Name: string(now.stage), Ready: now.ready, Unmet: unmet})
	}

	if now.kubelet.Ready != before.kubelet.Ready || now.kubelet.Version != before.kubelet.Version {
		w.record(n.name, history.KindKubelet, map[string]string{
			"ready": strconv.FormatBool(now.kubelet.Ready), "version": now.kubelet.Version,
		})
	}

	if n.etcd != nil && now.etcd != before.etcd {
		state := "down"
		if now.etcd {
			state = "healthy"
		}

		w.record(n.name, history.KindEtcd, map[string]string{
			"member": memberID(n.etcd.id), "state": state, "leader": memberID(w.etcd.leader),
		})
	}
}
