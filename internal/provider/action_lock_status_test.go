// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestLockStatusOfAClusterThatNobodyUpgrades(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")

	told := fake.invoke(t.Context(), t, "lock_status", nil, nil).well(t)
	if diff := cmp.Diff([]string{
		"Nobody holds the lease kube-system/talosupgrade.",
		"Upgrades of this cluster are not suspended.",
		"No node is in the middle of an upgrade.",
	}, told.lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestLockStatusSaysWhatItFound in sentences that tell what comes next.
func TestLockStatusSaysWhatItFound(t *testing.T) {
	at := time.Date(2026, 11, 25, 3, 10, 0, 0, time.UTC)
	held := cluster.Lease{Holder: "run-1 (terraform)", Acquired: at, ResourceVersion: "7"}

	for name, test := range map[string]struct {
		status engine.LockStatus
		want   string
	}{
		"alive": {
			engine.LockStatus{Lease: held, Alive: true},
			"The lease kube-system/talosupgrade is held by run-1 (terraform) since 2026-11-25T03:10:00Z and is being renewed: that run is alive.",
		},
		"gone": {
			engine.LockStatus{Lease: held},
			"The lease kube-system/talosupgrade is held by run-1 (terraform) since 2026-11-25T03:10:00Z, and stood still for as long as it is good for: that run is gone, and the next apply takes it over.",
		},
		"given back": {
			engine.LockStatus{Lease: cluster.Lease{Acquired: at, ResourceVersion: "8"}, Journal: cluster.Journal{Holder: "run-1"}},
			"Nobody holds the lease kube-system/talosupgrade.",
		},
		"deleted": {
			engine.LockStatus{LastHolder: "run-1", Journal: cluster.Journal{Holder: "run-1"}},
			"Nobody holds the lease kube-system/talosupgrade. run-1 held it last, and did not give it back: the next apply waits for half a minute before it takes it.",
		},
	} {
		if got := lockLines(test.status)[0]; got != test.want {
			t.Errorf("%s: %s\nwant %s", name, got, test.want)
		}
	}

	status := engine.LockStatus{
		Lease: cluster.Lease{Suspended: &cluster.Suspension{Reason: "ola: storage is degraded", By: "kubectl-annotate", Since: at}},
		Journal: cluster.Journal{
			Entries: map[string]cluster.Entry{
				"b": {Node: "worker-1", Phase: cluster.PhaseFallback, Target: version.MustParse("1.13.4"), Previous: version.MustParse("1.12.6")},
				"a": {Node: "cp-0", Phase: cluster.PhaseInstalled, Target: version.MustParse("1.13.4")},
			},
			Manifests: &cluster.ManifestsDue{Run: "run-1"},
		},
	}

	if diff := cmp.Diff([]string{
		"Upgrades of this cluster are suspended since 2026-11-25T03:10:00Z (kubectl-annotate): ola: storage is degraded.",
		"cp-0: its upgrade to Talos 1.13.4 is unfinished (phase installed).",
		"worker-1: Talos 1.13.4 failed on it, and it runs 1.12.6 again (phase fallback). It is left alone until it is to be tried again.",
		"The bootstrap manifests have not been synced since the roll of run-1.",
	}, lockLines(status)[1:]); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestLockStatusCannotBeRead: it says why, as an apply does.
func TestLockStatusCannotBeRead(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")
	fake.leaseErr = fmt.Errorf("unable to read the lease kube-system/talosupgrade: %w", cluster.ErrDenied)

	failed := fake.invoke(t.Context(), t, "lock_status", nil, nil).failed(t)
	if failed.Summary != "Unable to read the lease kube-system/talosupgrade" {
		t.Errorf("it says %s: %s", failed.Summary, failed.Detail)
	}
}
