// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"testing"
	"testing/synctest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

// TestAStatusThatWasLeftBehindIsMadeTrue: a run or an operator that died wrote the
// annotations and not the status, and what the annotations say is kept.
func TestAStatusThatWasLeftBehindIsMadeTrue(t *testing.T) {
	const words = "Talos upgrade completed: now running v1.13.4"

	own := publish.Options{Announce: true, Available: newest}
	completed := map[string]string{talosStatus: "completed", talosCurrent: "v1.13.4", talosMessage: words, talosAvailable: "1.14.0"}
	failed := map[string]string{
		talosStatus: "completed", talosCurrent: "1.13.4", kubernetesStatus: "failed", kubernetesMessage: "Kubernetes upgrade failed: why", kubernetesCurrent: "1.34.2",
		protocol.KeyFailedNodes: "cp-1",
	}

	for name, test := range map[string]struct {
		annotations           map[string]string
		phase                 string
		kind, status, reason  string
		wantPhase, want       string
		standing, anyWouldSay bool
	}{
		"at work":            {completed, "UpgradingTalos", protocol.ConditionTalos, "True", "InProgress", "Ready", "False Completed " + words, false, true},
		"failed":             {completed, "UpgradeFailed", protocol.ConditionTalos, "False", "Failed", "Ready", "False Completed " + words, false, true},
		"only the phase":     {completed, "UpgradingTalos", protocol.ConditionTalos, "False", "Completed", "Ready", "False Completed theirs", true, true},
		"nothing":            {completed, "Ready", protocol.ConditionTalos, "False", "Completed", "Ready", "False Completed theirs", true, false},
		"a phase of its own": {completed, "Provisioned", protocol.ConditionTalos, "False", "Succeeded", "Provisioned", "False Succeeded theirs", true, false},
		"the failure of another half": {
			failed, "UpgradeFailed", protocol.ConditionKubernetes, "False", "Failed", "UpgradeFailed", "False Failed theirs", true, false,
		},
		"that failure as going on": {
			failed, "UpgradingKubernetes", protocol.ConditionKubernetes, "True", "InProgress", "UpgradeFailed", "False Failed Kubernetes upgrade failed: why", false, true,
		},
		"that failure as completed": {
			failed, "Ready", protocol.ConditionKubernetes, "False", "Completed", "UpgradeFailed", "False Failed Kubernetes upgrade failed: why", false, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			shelf := toldTo(t, own, test.annotations, nothingToDo()...)
			shelf.write(map[string]any{"status": map[string]any{"phase": test.phase, "conditions": []any{
				foreign("Valid", "True"),
				map[string]any{"type": test.kind, "status": test.status, "reason": test.reason, "message": "theirs", "lastTransitionTime": "2026-01-01T00:00:00Z"},
			}}})

			announces := func() bool {
				return publish.New(publish.NewObjectStore(shelf, published()), own).Announces(t.Context(), nothingToDo()[1])
			}

			if got := announces(); got != test.anyWouldSay {
				t.Errorf("there is something to announce: %t", got)
			}

			synctest.Test(t, func(t *testing.T) {
				publisher := publish.New(publish.NewObjectStore(shelf, published()), own)

				for _, event := range nothingToDo() {
					publisher.Observe(event)
					synctest.Wait()
				}

				if err := publisher.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})

			expect(t, shelf, map[string]string{"phase": test.wantPhase, test.kind: test.want, "Valid": "absent", kubernetesStatus: shelf.get(kubernetesStatus)})

			if got := shelf.condition("Valid"); got != "True Checked it is" {
				t.Errorf("somebody else's says %s", got)
			}

			if announces() {
				t.Error("after it was told there is something to announce")
			}
		})
	}
}

// TestAFailureOfAHalfThatIsNotManagedOutlivesARun that moves the other one.
func TestAFailureOfAHalfThatIsNotManagedOutlivesARun(t *testing.T) {
	before := map[string]string{
		kubernetesStatus: "failed", kubernetesMessage: "Kubernetes upgrade failed: node cp-1", kubernetesProgress: "2/5", kubernetesCurrent: "1.34.2", protocol.KeyFailedNodes: "cp-1",
	}
	run := nothingToDo()
	run[0].Talos = left(5, 0, 5, "1.12.6")

	for name, test := range map[string]struct{ phase, talos string }{
		"while it goes on": {"UpgradingTalos", "in-progress"},
		"when it is done":  {"UpgradeFailed", "completed"},
	} {
		t.Run(name, func(t *testing.T) {
			events := run
			if test.talos == "in-progress" {
				events = run[:1]
			}

			expect(t, toldTo(t, publish.Options{Available: newest}, before, events...), map[string]string{
				talosStatus: test.talos, kubernetesStatus: "failed", kubernetesMessage: before[kubernetesMessage], kubernetesProgress: "2/5",
				protocol.KeyFailedNodes: "cp-1", "phase": test.phase,
			})
		})
	}
}

// TestNothingIsClaimedOfNodesThatAreHeld, not even that the cluster is ready.
func TestNothingIsClaimedOfNodesThatAreHeld(t *testing.T) {
	events := nothingToDo()
	for i := range events {
		events[i].Talos, events[i].Kubernetes = left(0, 0, 0, ""), aside(0, "")
	}

	expect(t, toldTo(t, publish.Options{Available: newest}, nil, events...), map[string]string{
		talosStatus: "absent", "phase": "", protocol.ConditionTalos: "absent", kubernetesStatus: "absent",
	})
}
