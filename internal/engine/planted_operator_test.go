// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// besideObject is an object that an operator acts on, as the history names it, and
// plantedRun the run with the bug.
const (
	besideObject = "KubernetesCluster/tenant-a/prod"
	plantedRun   = "run-2"
)

// annotates has somebody write an annotation of the object.
func (h hand) annotates(by, key, value string) {
	h.rig.World().Record("", history.KindAnnotation, map[string]string{"object": besideObject, "key": key, "value": value, "by": by})
}

// shows has a run change the status of the object.
func (h hand) shows(detail map[string]string) {
	detail["object"], detail["by"] = besideObject, "client"
	h.rig.World().Record("", history.KindStatus, detail)
}

// plantedOperators are bugs beside an operator: S7, and S9 for what is its own.
func plantedOperators() []planted {
	const hold = "do-not-reconcile"

	beside := setup{Judging: []checker.Option{checker.Operated(besideObject)}}
	first := func(do func(h hand)) meddling {
		return ahead("Cordon", "worker-0", 1, func(_ context.Context, h hand) { do(h) })
	}

	return []planted{
		{
			name: "an operator is started as well", want: []checker.Invariant{checker.S7},
			lie: func(claims map[string]string) { claims["talos-target"] = toLifecycle },
		},
		{name: "the operator is not held", want: []checker.Invariant{checker.S7}, setup: beside},
		{
			name: "the operator is held by the name of another run", want: []checker.Invariant{checker.S7},
			meddle: first(func(h hand) { h.annotates("client", hold, "run-1") }),
		},
		{
			name: "the operator is never let go", want: []checker.Invariant{checker.S7}, setup: beside,
			meddle: first(func(h hand) { h.annotates("client", hold, plantedRun) }),
		},
		{
			name: "the operator is let go with what it remembers", want: []checker.Invariant{checker.S7}, setup: beside,
			meddle: meddlings(
				first(func(h hand) {
					h.annotates("other", "talos-current", "1.12.0")
					h.annotates("client", hold, plantedRun)
				}),
				behind("Uncordon", "cp-2", 1, func(_ context.Context, h hand) { h.annotates("client", hold, "") }),
			),
		},
		{
			name: "somebody else's hold is taken over", want: []checker.Invariant{checker.S9},
			meddle: first(func(h hand) {
				h.annotates("other", hold, "maintenance")
				h.annotates("client", hold, plantedRun)
			}),
		},
		{
			name: "an operator was to do it", want: []checker.Invariant{checker.S7},
			setup: setup{Judging: []checker.Option{checker.Delegated()}},
		},
		{
			name: "a condition of somebody else is changed", want: []checker.Invariant{checker.S9},
			meddle: first(func(h hand) { h.shows(map[string]string{"condition": "Valid", "status": "False", "reason": "Unknown"}) }),
		},
	}
}

// plantedStatuses are bugs about what is offered, and about phases and conditions:
// S8.
func plantedStatuses() []planted {
	talos := func(name string, bug planted) planted {
		bug.name, bug.want = name, []checker.Invariant{checker.S8}

		return bug
	}

	says := func(name, key, value string) planted {
		return talos(name, planted{lie: func(claims map[string]string) { claims[key] = value }})
	}

	shown := func(name string, detail map[string]string) planted {
		return talos(name, planted{meddle: behind("Install", "worker-0", 1, func(_ context.Context, h hand) { h.shows(detail) })})
	}

	return []planted{
		says("what runs already is offered", "talos-available", "1.8.0"),
		says("what Talos does not support is offered", "kubernetes-available", "1.60.0"),
		says("a version is spelled with v", "talos-current", "v1.8.0"),
		says("a status is none", "talos-status", "busy"),
		talos("nothing is said to go on", planted{meddle: behind("Reboot", "worker-0", 1, func(ctx context.Context, h hand) {
			h.claims(ctx, "talos-status", "idle")
		})}),
		shown("the cluster is said to be ready", map[string]string{"field": "phase", "value": "Ready"}),
		shown("a condition contradicts itself", map[string]string{"condition": "TalosUpgrade", "status": "False", "reason": "InProgress"}),
		talos("an upgrade is said to go on for ever", planted{prepare: outlived}),
	}
}

// outlived has a run say minutes after its end that it goes on.
func outlived(r *rig) {
	for _, holder := range []string{"run-1", ""} {
		r.World().Record("", history.KindLease, map[string]string{"holder": holder, "by": "client"})
	}

	time.Sleep(10 * time.Minute)
	r.World().Record("", history.KindStatus, map[string]string{
		"object": besideObject, "field": "phase", "value": "UpgradingTalos", "by": "client",
	})
}

// meddlings does both.
func meddlings(outer, inner meddling) meddling {
	return func(r *rig, client *ports.Client) ports.Interceptor {
		around, within := outer(r, client), inner(r, client)

		return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			return around(ctx, call, func(ctx context.Context) error { return within(ctx, call, next) })
		}
	}
}
