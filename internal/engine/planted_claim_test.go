// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
)

// plantedClaims are bugs about what is published: S8.
func plantedClaims() []planted {
	const lastServer = 3

	talos := func(name string, lie func(map[string]string)) planted {
		return planted{name: name, want: []checker.Invariant{checker.S8}, lie: lie}
	}

	kubernetes := func(name string, lie func(map[string]string)) planted {
		return planted{name: name, want: []checker.Invariant{checker.S8}, lie: lie, setup: oldKubernetes(), request: newKubernetes}
	}

	says := func(key, value string) func(map[string]string) {
		return func(claims map[string]string) { claims[key] = value }
	}

	return []planted{
		talos("completion is claimed too early", says("talos-status", "completed")),
		talos("progress is counted too high", func(claims map[string]string) {
			claims["talos-progress"] = strings.NewReplacer("0/", "1/", "1/", "2/", "2/", "3/", "3/", "4/").Replace(claims["talos-progress"])
		}),
		talos("progress is no progress", says("talos-progress", "nearly there")),
		talos("a rollback is told of that is none", says("talos-status", "rolling-back")),
		talos("a node fails that does not exist", says("failed-nodes", "worker-0,worker-9")),
		talos("the target is claimed to run", says("talos-current", toLifecycle)),
		kubernetes("completion of Kubernetes is claimed too early", says("kubernetes-status", "completed")),
		kubernetes("progress of Kubernetes is no progress", says("kubernetes-progress", "nearly there")),
		kubernetes("the target of Kubernetes is claimed to run", says("kubernetes-current", toKubernetes)),
		{
			name: "progress of Kubernetes is counted too high", want: []checker.Invariant{checker.S8}, setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Configure", "cp-0", 2, func(ctx context.Context, h hand) { h.claims(ctx, "kubernetes-progress", "5/5") }),
		},
		{
			name: "completion is claimed while a component restarts", want: []checker.Invariant{checker.S8}, setup: oldKubernetes(), request: newKubernetes,
			meddle: behind("Configure", "cp-2", lastServer, func(ctx context.Context, h hand) { h.claims(ctx, "kubernetes-status", "completed") }),
		},
		{
			name: "completion is claimed before the manifests are synced", want: []checker.Invariant{checker.S8}, setup: oldKubernetes(), request: newKubernetes,
			meddle: ahead("Apply", "cp-0", 1, func(ctx context.Context, h hand) { h.claims(ctx, "kubernetes-status", "completed") }),
		},
	}
}
