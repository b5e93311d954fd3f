// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

// WriteSuspension implements [cluster.Kubernetes].
func (f *fakeCluster) WriteSuspension(_ context.Context, _ cluster.Lease, reason *string) (cluster.Lease, error) {
	if f.leaseErr != nil {
		return cluster.Lease{}, f.leaseErr
	}

	f.lease.Suspended, f.lease.ResourceVersion = nil, "8"
	if reason != nil {
		f.lease.Suspended = &cluster.Suspension{Reason: *reason, By: "talosupgrade_suspend", Since: time.Date(2026, 11, 25, 3, 10, 0, 0, time.UTC)}
	}

	return f.lease, nil
}

func TestSuspendAndResumeSayWhoSuspended(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")
	reason := map[string]tftypes.Value{attrReason: wireText("ola: storage is degraded")}

	for _, step := range []struct {
		action string
		set    map[string]tftypes.Value
		says   string
	}{
		{"resume", nil, "Upgrades of this cluster were not suspended."},
		{"suspend", reason, "Upgrades of this cluster are suspended: ola: storage is degraded."},
		{"suspend", map[string]tftypes.Value{attrReason: wireText("kari")}, "Upgrades of this cluster were suspended already, since 2026-11-25T03:10:00Z (talosupgrade_suspend): ola: storage is degraded. " +
			"That stays as it is: talosupgrade_resume takes it away."},
		{"resume", nil, "Upgrades of this cluster are no longer suspended. They had been suspended since 2026-11-25T03:10:00Z (talosupgrade_suspend): ola: storage is degraded."},
	} {
		if told := fake.invoke(t.Context(), t, step.action, step.set, nil).well(t); !slices.Equal(told.lines, []string{step.says}) {
			t.Errorf("%s says %q, want %q", step.action, told.lines, step.says)
		}
	}

	fake.leaseErr = cluster.ErrDenied

	for action, set := range map[string]map[string]tftypes.Value{"suspend": reason, "resume": nil} {
		if failed := fake.invoke(t.Context(), t, action, set, nil).failed(t); !strings.Contains(failed.Detail, "patch leases in kube-system") {
			t.Errorf("%s says %s: %s", action, failed.Summary, failed.Detail)
		}
	}
}

func TestReasonsThatSuspendNothingAreRefused(t *testing.T) {
	for reason, says := range map[string]string{
		" ": "reason is empty", "": "reason is empty", "false": "as good as no suspension", strings.Repeat("x", 501): "has 501 characters, and 500 are allowed",
	} {
		fake := threeNodes("1.12.6", "1.34.1")

		failed := fake.invoke(t.Context(), t, "suspend", map[string]tftypes.Value{attrReason: wireText(reason)}, nil).failed(t)
		if !strings.Contains(failed.Detail, says) || fake.dialled > 0 {
			t.Errorf("%q: %s", reason, failed.Detail)
		}
	}
}

func TestPreflightActionFailsWhereAnApplyWouldBeRefused(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")

	passed := fake.invoke(t.Context(), t, "preflight", map[string]tftypes.Value{attrTalosVersion: wireText("1.13.4")}, nil)
	if !strings.Contains(passed.text(), "Planned: Rolling upgrade of 3 of 3 nodes") || !strings.Contains(passed.text(), "Passed: ") {
		t.Errorf("it says %s", passed.text())
	}

	failed := fake.invoke(t.Context(), t, "preflight", map[string]tftypes.Value{attrTalosVersion: wireText("1.11.0")}, nil)
	if refused := failed.failed(t); !strings.Contains(refused.Summary, "an apply would be refused") || !strings.Contains(refused.Detail, "Nothing was touched.") {
		t.Errorf("it says %s", failed.text())
	}

	if !strings.Contains(strings.Join(failed.lines, "\n"), "would stop an apply: ") {
		t.Errorf("it says %s", failed.text())
	}

	contradiction := map[string]tftypes.Value{attrTalosVersion: wireText("1.13.4"), attrKubernetesVersion: wireText("1.20.0")}
	if refused := fake.invoke(t.Context(), t, "preflight", contradiction, nil); len(refused.diagnostics) == 0 {
		t.Errorf("it says %s", refused.text())
	}
}

func TestSnapshotActionSaysWhatItSaved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	set := map[string]tftypes.Value{attrDirectory: wireText(dir)}

	fake := threeNodes("1.12.6", "1.34.1")
	if failed := fake.invoke(t.Context(), t, "etcd_snapshot", set, nil).failed(t); failed.Summary != "Unable to take a snapshot of etcd" {
		t.Errorf("it says %s: %s", failed.Summary, failed.Detail)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	set[attrDirectory] = wireText(file)
	if failed := fake.invoke(t.Context(), t, "etcd_snapshot", set, nil).failed(t); failed.Summary != "Unable to save a snapshot of etcd" {
		t.Errorf("it says %s: %s", failed.Summary, failed.Detail)
	}
}

// steppedClock moves on with each look.
type steppedClock struct {
	engine.Clock

	mu  sync.Mutex
	now time.Time
}

// Now implements [engine.Clock].
func (c *steppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.now = c.now.Add(3 * time.Second)

	return c.now
}

// TestSnapshotActionCountsWhatHasCome, every few seconds.
func TestSnapshotActionCountsWhatHasCome(t *testing.T) {
	var lines []string

	on := &invocation{lines: newProgressLines(func(line string) { lines = append(lines, line) })}
	counted := countedStore{on: on, clock: &steppedClock{}}
	writer := &countedWriter{Writer: io.Discard, store: counted, said: counted.clock.Now()}

	for range 4 {
		if _, err := writer.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}

	on.lines.close()

	if want := []string{"2.0 MiB so far", "4.0 MiB so far"}; !slices.Equal(lines, want) {
		t.Errorf("it says %q, want %q", lines, want)
	}
}

// board is where a run publishes.
type board map[string]string

func (b board) Patch(context.Context, map[string]*string) error {
	return errors.New("nobody is to write it")
}

func (b board) Read(context.Context) (map[string]string, error) { return b, nil }

func (b board) String() string { return "ConfigMap kube-system/talosupgrade" }

// TestFollowTellsHowTheRunEnded by what it published, and not by what an earlier one did.
func TestFollowTellsHowTheRunEnded(t *testing.T) {
	talos, kubernetes := protocol.KeyTalosStatus, protocol.KeyKubernetesStatus

	for name, test := range map[string]struct {
		first, last board
		end         engine.FollowEnd
		fails       string
		says        string
	}{
		"completed":                 {board{talos: protocol.StatusInProgress}, board{talos: protocol.StatusCompleted, protocol.KeyTalosMessage: "now running 1.13.4"}, engine.RunEnded, "", "Talos completed: now running 1.13.4"},
		"failed":                    {board{talos: protocol.StatusInProgress}, board{talos: protocol.StatusFailed, protocol.KeyTalosMessage: "Talos upgrade failed", protocol.KeyFailedNodes: "worker-0"}, engine.RunEnded, "the run that was followed failed", "Talos failed"},
		"an earlier one had failed": {board{kubernetes: protocol.StatusFailed}, board{kubernetes: protocol.StatusFailed, talos: protocol.StatusCompleted}, engine.RunEnded, "", "The upgrade has ended."},
		"without a word":            {board{talos: protocol.StatusInProgress}, board{talos: protocol.StatusInProgress, protocol.KeyLastUpdate: "2026-11-25T03:10:00Z"}, engine.RunEnded, "Unable to tell how the upgrade ended", ""},
		"dead":                      {board{talos: protocol.StatusInProgress}, board{talos: protocol.StatusInProgress}, engine.RunDied, "the run is gone", ""},
		"nothing published":         {board{}, board{}, engine.RunEnded, "", "It published nothing in ConfigMap kube-system/talosupgrade."},
		"nobody":                    {board{}, board{}, engine.NobodyRuns, "", "Nobody upgrades this cluster now."},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string

			on := &invocation{lines: newProgressLines(func(line string) { lines = append(lines, line) })}
			told := &published{store: test.first, on: on}

			if err := told.look(t.Context()); err != nil {
				t.Fatal(err)
			}

			told.store = test.last
			if err := told.look(t.Context()); err != nil {
				t.Fatal(err)
			}

			err := told.ended(test.end)
			on.lines.close()

			if (err != nil) != (test.fails != "") {
				t.Fatalf("it ended with %v", err)
			}

			if err != nil {
				found := noted(t, diag.Diagnostics{problem("follow the upgrade of the cluster", credentials{}, err)})
				if !strings.Contains(found[0].Summary(), test.fails) {
					t.Errorf("it says %s: %s", found[0].Summary(), found[0].Detail())
				}
			}

			if !strings.Contains(strings.Join(lines, "\n"), test.says) {
				t.Errorf("it says %q, want %q", lines, test.says)
			}
		})
	}
}

func TestFollowEndsAtOnceWhereNobodyRuns(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.1")
	fake.store = board{protocol.KeyTalosStatus: protocol.StatusCompleted, protocol.KeyTalosMessage: "Talos upgrade completed"}

	told := fake.invoke(t.Context(), t, "follow", nil, nil).well(t)
	if !slices.Contains(told.lines, "Nobody upgrades this cluster now.") {
		t.Errorf("it says %q", told.lines)
	}

	fake.store = nil
	if failed := fake.invoke(t.Context(), t, "follow", nil, nil).failed(t); !strings.Contains(failed.Detail, "which holds") {
		t.Errorf("it says %s", failed.Detail)
	}
}
