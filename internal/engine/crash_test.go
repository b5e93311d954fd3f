// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// mutationsOf are the methods of the mutating calls of an undisturbed upgrade.
func mutationsOf(t *testing.T, given setup, request engine.Request) []string {
	t.Helper()

	var (
		mu      sync.Mutex
		methods []string
	)

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Mutation > 0 {
				mu.Lock()
				methods = append(methods, call.Method)
				mu.Unlock()
			}

			return next(ctx)
		})
		r.Must(w, request)
	})

	return methods
}

// lasts tells which calls take their time; in the middle of any other one there
// is nothing but before and after.
func lasts(method string) bool { return method == "Pull" || method == "Install" || method == "Upgrade" }

// crashOnce strikes one call and has the next run finish the work.
func crashOnce(t *testing.T, given setup, request engine.Request, kind crash, mutation int) {
	t.Helper()

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

		struck, wait, err := r.Crashing("run-1", request, kind, mutationOf(mutation))
		if kind != loseReply && struck != "" && !errors.Is(err, harness.ErrKilled) {
			t.Errorf("%s %s: the run ended with %v before it was killed", kind, struck, err)
		}

		if kind == loseReply && err != nil {
			t.Errorf("%s %s: the run did not get over it: %v\n%s", kind, struck, err, r.Judge.Text())
		}

		next := r.Worker("run-2")
		if err := next.Apply(context.Background(), request); err != nil {
			t.Errorf("%s %s: the next run failed: %v\n%s", kind, struck, err, r.Judge.Text())
		}

		wait()

		if t.Failed() {
			return
		}

		if violations := r.Judge.Verdict().Violations; len(violations) > 0 {
			t.Errorf("%s %s: %+v\n%s", kind, struck, violations, r.Judge.Text())

			return
		}

		// Even a run that died with nothing left to do but say so has its last
		// word said, and its lease given back.
		r.At(request.Target.Talos.String())
	})
}
