// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

var _ cluster.Observer = progressLog{}

// progressLog writes the events of a run to Terraform's log.
type progressLog struct {
	// ctx carries the logger of the request.
	ctx context.Context
}

// Observe implements [cluster.Observer].
func (p progressLog) Observe(event cluster.Event) {
	fields := map[string]any{"event": string(event.Kind)}
	if event.Node != "" {
		fields["node"] = cluster.Printable(event.Node)
	}

	if event.Component != "" {
		fields["component"] = string(event.Component)
	}

	if event.Step != "" {
		fields["step"] = string(event.Step)
	}

	if !event.To.IsZero() {
		fields["to"] = event.To.String()
	}

	for name, half := range map[string]cluster.Progress{"talos": event.Talos, "kubernetes": event.Kubernetes} {
		if half.Managed && half.Total > 0 {
			fields[name+"_progress"] = fmt.Sprintf("%d/%d", half.Done, half.Total)
		}
	}

	if event.Err != nil {
		fields["error"] = cluster.Printable(event.Err.Error())
	}

	message := "upgrade: " + string(event.Kind)
	if event.Text != "" {
		message += ": " + cluster.Printable(event.Text)
	}

	switch event.Kind {
	case cluster.EventWarning, cluster.EventRollingBack, cluster.EventRunFailed:
		tflog.Warn(p.ctx, message, fields)
	default:
		tflog.Info(p.ctx, message, fields)
	}
}
