// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// begin looks at the cluster for the first time under the lease, where whatever
// blocks is an error at once, and brings the images onto the nodes.
func (s *rollout) begin(ctx context.Context) error {
	for !s.begun {
		ready, err := s.observe(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}

		s.begun = ready
	}

	s.run.emit(s.run.progress(cluster.Event{Kind: cluster.EventRunStarted}, s.made))

	return s.prepare(ctx)
}

// prepare does once what comes before anything is moved: the gates, the snapshot
// and the images. Nodes that only return to service need none of it.
func (s *rollout) prepare(ctx context.Context) error {
	if s.imagesReady || !slices.ContainsFunc(s.made.Steps, func(step plan.Step) bool { return !step.Done }) {
		return nil
	}

	s.imagesReady = true

	// A node that is out of service may be what keeps a gate from holding, and
	// only its own upgrade brings it back.
	if !slices.ContainsFunc(s.made.Steps, func(step plan.Step) bool { return step.Finish }) {
		if err := s.run.awaitGates(ctx, ""); err != nil {
			return s.gateFailure(ctx, err)
		}
	}

	if err := s.backUp(ctx); err != nil {
		return err
	}

	return s.run.pullEverywhere(ctx, s.snapshot, s.made)
}
