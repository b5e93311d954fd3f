// SPDX-License-Identifier: MPL-2.0

package harness

import (
	"context"
	"errors"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// Upgrade runs the engine, and checks how a failure is worded.
func (w *Worker) Upgrade(ctx context.Context, request engine.Request) (cluster.Observation, error) {
	observed, err := w.Engine.Upgrade(ctx, request)
	NoteFailure(w.t, err)

	return observed, err
}

// Delegate has the operator upgrade, and checks how the engine words a failure.
func (w *Worker) Delegate(ctx context.Context, request engine.Request) (cluster.Observation, error) {
	observed, err := w.Engine.Delegate(ctx, request)
	NoteFailure(w.t, err)

	return observed, err
}

// RollBackNode rolls a node back, and checks how the engine words a failure.
func (w *Worker) RollBackNode(ctx context.Context, request engine.NodeRequest) (cluster.Entry, error) {
	entry, err := w.Engine.RollBackNode(ctx, request)
	NoteFailure(w.t, err)

	return entry, err
}

// AllowRetry allows another attempt on a node, and checks how the engine words a failure.
func (w *Worker) AllowRetry(ctx context.Context, request engine.NodeRequest) (cluster.Entry, error) {
	entry, err := w.Engine.AllowRetry(ctx, request)
	NoteFailure(w.t, err)

	return entry, err
}

// NoteFailure records the message with which a run failed, and fails the test if a part of it is missing.
func NoteFailure(t testing.TB, err error) {
	t.Helper()

	if err == nil {
		return
	}

	var failed *say.Failure
	if !errors.As(err, &failed) {
		t.Errorf("a run ended with %v, which says neither how the cluster is left nor what to do", err)

		return
	}

	for part, missing := range map[string]bool{
		"what was seen":    failed.Seen == "" && len(failed.Findings) == 0,
		"how things are":   failed.State == "",
		"what to do":       failed.Remedy == "",
		"the summary line": failed.Summary == "",
	} {
		if missing {
			t.Errorf("%s is missing: %v", part, failed)
		}
	}

	wording.Note(t, wording.Entry{Kind: wording.KindFailure, Summary: failed.Summary, Detail: failed.Detail()})

	for _, finding := range failed.Findings {
		wording.Note(t, wording.Entry{Kind: wording.KindFinding, Summary: finding.Check, Detail: finding.String()})
	}
}
