// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestStatusAfterADelegationThatFailed: it failed in the half that the operator was
// asked for last, whatever the error is made of, and where it was asked for nothing
// the cluster is as it was.
func TestStatusAfterADelegationThatFailed(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	prior := stored(t, fake, "1.13.4", "1.34.2")

	seen, err := fake.clusters(t).observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		err               error
		asked             version.Product
		phase             string
		talos, kubernetes string
	}{
		"somebody else has asked it":            {&engine.Failure{Err: engine.ErrOperator}, "", protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusCompleted},
		"refused":                               {&engine.Failure{Err: engine.ErrBlocked}, "", protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusCompleted},
		"Talos":                                 {&engine.Failure{Err: engine.ErrOperator}, version.Talos, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusCompleted},
		"Kubernetes before more of Talos":       {&engine.Failure{Err: engine.ErrOperator}, version.Kubernetes, protocol.PhaseUpgradeFailed, protocol.StatusCompleted, protocol.StatusFailed},
		"refused after the first leg":           {&engine.Failure{Err: engine.ErrBlocked}, version.Talos, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusCompleted},
		"a gate after the first leg":            {&engine.Failure{Err: errors.Join(engine.ErrNotBegun, engine.ErrGate)}, version.Talos, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusCompleted},
		"a lease that was lost while it was at": {&engine.Failure{Err: engine.ErrLeaseLost}, version.Talos, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			failed := (&requestRecorder{last: test.asked}).failed(test.err)

			got := stopped(*prior, *desired("1.13.5", "1.35.0"), seen.Observation, "Unable to bring the cluster there", failed)
			if got.Phase != test.phase || got.Talos.Status != test.talos || got.Kubernetes.Status != test.kubernetes {
				t.Errorf("phase %s, talos %s, kubernetes %s", got.Phase, got.Talos.Status, got.Kubernetes.Status)
			}

			if test.asked != "" && got.Message != "Unable to bring the cluster there." {
				t.Errorf("the message is %q", got.Message)
			}
		})
	}
}

// TestDelegationToAnOperatorThatDoesNotAnswer fails in the end, is remembered, and
// what was asked for is taken back.
func TestDelegationToAnOperatorThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := threeNodes("1.12.6", "1.34.2")
		board := &noticeboard{annotations: map[string]any{}}
		held := &leased{fakeCluster: fake}

		prior := stored(t, fake, "1.12.6", "")
		prior.PublishTo, prior.Mode = publishedTo("", "KubernetesCluster", "tenant-a", "prod"), types.StringValue(modeDelegate)
		plan := *prior
		plan.TalosVersion = types.StringValue("1.12.7")

		got, diagnostics := apply(t, beside(held, board), prior, &plan)
		check(t, diagnostics, outcome{diag.SeverityError, "did not react"})

		if phase := text(got.Status, "phase"); phase != protocol.PhaseUpgradeFailed || earlierStatus(got.Status, "talos") != protocol.StatusFailed {
			t.Errorf("stored %s", got.Status)
		}

		if target, stands := board.annotations["upgrade.vitistack.io/talos-target"]; stands {
			t.Errorf("it is still asked for %v", target)
		}

		// Somebody else has asked it meanwhile: nothing is asked for.
		board.annotations["upgrade.vitistack.io/kubernetes-target"] = "1.35.0"

		got, diagnostics = apply(t, beside(held, board), prior, &plan)
		check(t, diagnostics, outcome{diag.SeverityError, "1.35.0"})

		if phase := text(got.Status, "phase"); phase != protocol.PhaseReady {
			t.Errorf("stored %s, although nothing was done", got.Status)
		}
	})
}
