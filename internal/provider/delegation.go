// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// petition is an operator that may be asked, and what it was asked for last.
type petition struct {
	cluster.Operator

	// last is empty as long as it was asked for nothing.
	last cluster.Half
}

// Ask implements [cluster.Operator]. Also what fails may have taken effect.
func (p *petition) Ask(ctx context.Context, half cluster.Half, to version.Version) error {
	p.last = half

	return p.Operator.Ask(ctx, half, to)
}

// failed is the error of an upgrade through the operator; nil for none.
func (p *petition) failed(err error) error {
	if err == nil {
		return nil
	}

	return &delegationError{error: err, asked: p.last}
}

// delegationError is why an upgrade through an operator ended.
type delegationError struct {
	error

	// asked is the half for which the operator was asked last; empty where it was
	// asked for nothing.
	asked cluster.Half
}

// Unwrap is the error of the engine.
func (e *delegationError) Unwrap() error { return e.error }

// stopped is the status of a cluster that was observed to be like this in the end:
// as it was where the operator was asked for nothing.
func (e *delegationError) stopped(observed status, summary string) status {
	if e.asked == "" {
		return observed
	}

	return observed.failed(summary+".", e.asked == cluster.HalfKubernetes)
}
