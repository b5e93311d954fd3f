// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	busyKey  = "upgrade_in_progress"
	stateKey = "upgrade_state"
)

// atWork is what the Secret says of an operator at work on the half.
func atWork(half, target, state string) map[string]string {
	return map[string]string{busyKey: "true", "upgrade_type": half, "upgrade_target": target, stateKey: state}
}

// TestAnUpgradeThatFailedIsNotWork: the operator leaves its Secret busy then,
// whatever the annotations say by now.
func TestAnUpgradeThatFailedIsNotWork(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		annotations, secret map[string]string
		half                version.Product
		busy                bool
	}{
		"a run of ours turned failed into idle": {
			map[string]string{"kubernetes-status": "idle"}, atWork("kubernetes", "1.35.2", `{"upgradeType":"kubernetes","targetVersion":"1.35.2","phase":"failed"}`), version.Kubernetes, false,
		},
		"nothing else is known":     {nil, atWork("talos", "1.13.4", `{"phase":"Failed"}`), version.Talos, false},
		"completed":                 {nil, atWork("talos", "1.13.4", `{"phase":"completed"}`), version.Talos, false},
		"at a node":                 {nil, atWork("talos", "1.13.4", `{"phase":"upgrading-workers"}`), version.Talos, true},
		"an earlier one failed":     {nil, atWork("talos", "1.13.4", `{"targetVersion":"1.13.0","phase":"failed"}`), version.Talos, true},
		"the other half failed":     {nil, atWork("talos", "1.13.4", `{"upgradeType":"kubernetes","phase":"failed"}`), version.Talos, true},
		"no state":                  {nil, atWork("talos", "1.13.4", ""), version.Talos, true},
		"a state of another shape":  {nil, atWork("talos", "1.13.4", `["failed"]`), version.Talos, true},
		"it is there by the object": {map[string]string{"talos-current": "v1.13.4", "talos-status": "idle"}, atWork("talos", "1.13.4", ""), version.Talos, false},
		"it is there by the Secret": {nil, atWork("talos", "1.12.6", ""), version.Talos, false},
		"the other half is there":   {map[string]string{"kubernetes-current": "1.13.4"}, atWork("talos", "1.13.4", ""), version.Talos, true},
	} {
		report, err := operator.New(prod(), vitistack(t, test.annotations, test.secret)).Report(t.Context())
		if half := report.Of(test.half); err != nil || half.Status.Busy() != test.busy || (half.Target != "") != test.busy {
			t.Errorf("%s: %v %+v", name, err, half)
		}
	}
}

// TestAnUpgradeThatARunFinishedIsOver: the operator failed at it, and a run of ours
// brought the cluster there.
func TestAnUpgradeThatARunFinishedIsOver(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		hold         string
		half, target string
		talos        version.Version
		want         string
	}{
		"in a run":                  {run, "talos", "v1.13.4", parsed("1.13.4"), "false"},
		"to another version":        {run, "talos", "1.13.6", parsed("1.13.4"), "true"},
		"of the other half":         {run, "kubernetes", "1.13.4", parsed("1.13.4"), "true"},
		"of which nothing is known": {run, "talos", "1.13.4", version.Version{}, "true"},
		"of no half":                {run, "", "1.13.4", parsed("1.13.4"), "true"},
		"and the hold is gone":      {"", "talos", "1.13.4", parsed("1.13.4"), "true"},
		"under somebody's hold":     {"maintenance", "talos", "1.13.4", parsed("1.13.4"), "true"},
	} {
		api := vitistack(t, map[string]string{"do-not-reconcile": test.hold}, atWork(test.half, test.target, ""))
		if err := operator.New(prod(), api).Settle(t.Context(), test.talos, parsed("1.34.2")); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		if got := string(api.secrets[secretKey].Data[busyKey]); got != test.want {
			t.Errorf("%s: %s is %q, want %q", name, busyKey, got, test.want)
		}
	}
}

// TestWhatARunLeftAtWorkIsCutOffWithItsHold: no operator acts on a target beside it.
func TestWhatARunLeftAtWorkIsCutOffWithItsHold(t *testing.T) {
	t.Parallel()

	const message = "The upgrade was cut off"

	for name, test := range map[string]struct {
		standing, secret map[string]string
		want             map[string]string
	}{
		"in a node": {
			map[string]string{"do-not-reconcile": run, "talos-status": "in-progress", "talos-message": "x", "kubernetes-status": "blocked", "kubernetes-message": "y"},
			nil,
			map[string]string{"talos-status": "idle", "talos-message": message, "kubernetes-status": "blocked", "kubernetes-message": "y"},
		},
		"while it took one back": {
			map[string]string{"do-not-reconcile": run, "talos-status": "rolling-back", "kubernetes-status": "in-progress"},
			nil,
			map[string]string{"talos-status": "idle", "talos-message": message, "kubernetes-status": "idle", "kubernetes-message": message},
		},
		"after its last word": {
			map[string]string{"do-not-reconcile": run, "talos-status": "completed", "kubernetes-status": "failed", "kubernetes-message": "y"},
			nil,
			map[string]string{"talos-status": "completed", "kubernetes-status": "failed", "kubernetes-message": "y"},
		},
		"and another holds it": {
			map[string]string{"do-not-reconcile": "talosupgrade-new", "talos-status": "in-progress"},
			nil,
			map[string]string{"do-not-reconcile": "talosupgrade-new", "talos-status": "in-progress"},
		},
		"and the operator is at work": {
			map[string]string{"do-not-reconcile": run, "talos-status": "in-progress", "kubernetes-status": "in-progress"},
			atWork("talos", "1.13.4", `{"phase":"running"}`),
			map[string]string{"talos-status": "in-progress", "kubernetes-status": "idle", "kubernetes-message": message},
		},
		"and the operator failed": {
			map[string]string{"do-not-reconcile": run, "talos-status": "in-progress"},
			atWork("talos", "1.13.4", `{"phase":"failed"}`),
			map[string]string{"talos-status": "idle", "talos-message": message},
		},
	} {
		for _, of := range []cluster.Reference{prod(), {APIVersion: "example.org/v1", Kind: "Thing", Namespace: "tenant-a", Name: "prod"}} {
			if of != prod() && test.secret != nil {
				continue
			}

			api := vitistack(t, test.standing, test.secret)
			api.put(annotated(of, test.standing))

			if err := operator.New(of, api).Release(t.Context(), run); err != nil {
				t.Errorf("%s: %s: %v", of, name, err)
			}

			for _, key := range []string{"do-not-reconcile", "talos-status", "talos-message", "kubernetes-status", "kubernetes-message"} {
				if got, _ := api.annotation(of, "upgrade.vitistack.io/"+key); got != test.want[key] {
					t.Errorf("%s: %s: %s is %q, want %q", of, name, key, got, test.want[key])
				}
			}

			if len(api.changes()) > 1 {
				t.Errorf("%s: %s: it took %q", of, name, api.changes())
			}
		}
	}
}

// TestARunIsCutOffAlsoWhereTheSecretCannotBeRead: a release is worth more.
func TestARunIsCutOffAlsoWhereTheSecretCannotBeRead(t *testing.T) {
	t.Parallel()

	api := vitistack(t, map[string]string{"do-not-reconcile": run, "talos-status": "in-progress"}, atWork("talos", "1.13.4", ""))
	api.before = func(request string) error {
		if strings.Contains(request, "Secret") {
			return cluster.ErrUnreachable
		}

		return nil
	}

	if err := operator.New(prod(), api).Release(t.Context(), run); err != nil {
		t.Error(err)
	}

	status, _ := api.annotation(prod(), "upgrade.vitistack.io/talos-status")
	if got, stands := api.annotation(prod(), hold); stands || status != "idle" {
		t.Errorf("hold %q, status %q", got, status)
	}
}
