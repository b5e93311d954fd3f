// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// persistent is a request that tries again what has fallen back.
func (r *rig) persistent(target string) engine.Request {
	request := to(target)
	request.Policy.Retry = map[string]string{}

	for _, entry := range r.Journal().Entries {
		if entry.Phase == cluster.PhaseFallback {
			request.Policy.Retry[entry.Node] = entry.BootID
		}
	}

	return request
}

// whole tells that every machine answers and an API server serves.
func (r *rig) whole() bool {
	for _, state := range r.World().Nodes() {
		if !state.Reachable {
			return false
		}
	}

	return r.anyServer()
}
