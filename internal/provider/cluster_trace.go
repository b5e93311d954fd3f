// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/trace"
)

// runTrace is the trace of one run; empty where the environment asks for none.
type runTrace struct {
	tracer *trace.Tracer
	// err is why there is none although the environment asks for one.
	err error
}

// trace begins the trace of the run that the options and the request describe, of
// the cluster with the ID.
func (c *clusters) trace(ctx context.Context, id string, options engine.Options, request engine.Request, to publication) *runTrace {
	clock := options.Clock
	if clock == nil {
		clock = engine.RealClock()
	}

	made := &runTrace{}
	made.tracer, made.err = trace.Start(ctx, trace.Run{
		ID: options.Run, ClusterName: options.ClusterName, ClusterID: id, Target: request.Target,
		Delegated: to.delegated, Version: c.settings.version, Now: clock.Now,
	})

	return made
}

// observers are the tracer, if there is one.
func (r *runTrace) observers() []cluster.Observer {
	if r == nil || r.tracer == nil {
		return nil
	}

	return []cluster.Observer{r.tracer}
}

// end begins to end the trace of a run that ended with the error, or with none. What
// it returns waits until that is done, and says of the cluster with the name what is
// missing.
func (r *runTrace) end(ctx context.Context, ended error) func(name string) diag.Diagnostics {
	if r == nil {
		return func(string) diag.Diagnostics { return nil }
	}

	missing := make(chan error, 1)

	go func() {
		if r.tracer == nil {
			missing <- nil

			return
		}

		missing <- r.tracer.Close(ctx, outcomeOf(ended))
	}()

	return func(name string) diag.Diagnostics {
		var diagnostics diag.Diagnostics

		if err := errors.Join(<-missing, r.err); err != nil {
			diagnostics.AddWarning(about("Unable to trace the upgrade", name), sentence(err.Error())+
				" Check the OTEL_* variables of this environment, and that their collector is up and takes traces; unset them to trace nothing.\n\nThe upgrade itself does not depend on it.")
		}

		return diagnostics
	}
}

// outcomeOf is the end of a run as its trace tells it.
func outcomeOf(ended error) trace.Outcome {
	if ended == nil {
		return trace.Outcome{}
	}

	made := trace.Outcome{Err: ended, Summary: ended.Error(), Type: "other"}

	var failure *engine.Failure
	if errors.As(ended, &failure) {
		made.Summary = failure.Summary
	}

	for _, kind := range failureKinds() {
		if errors.Is(ended, kind.err) {
			made.Type = kind.name

			break
		}
	}

	return made
}

// failureKind is a reason why a run stopped, in a word that stays.
type failureKind struct {
	err  error
	name string
}

// failureKinds are the reasons, the more telling ones first.
func failureKinds() []failureKind {
	return []failureKind{
		{engine.ErrWrongCluster, "wrong-cluster"},
		{engine.ErrLeaseLost, "lease-lost"},
		{engine.ErrLocked, "locked"},
		{engine.ErrBlocked, "blocked"},
		{engine.ErrRolledBack, "rolled-back"},
		{engine.ErrFallback, "fallback"},
		{engine.ErrUnhealthy, "unhealthy"},
		{engine.ErrInstaller, "installer"},
		{engine.ErrNeverReturned, "never-returned"},
		{engine.ErrDrain, "drain"},
		{engine.ErrUnsettled, "unsettled"},
		{engine.ErrForeignWriter, "foreign-writer"},
		{engine.ErrManifests, "manifests"},
		{engine.ErrGate, "gate"},
		{engine.ErrWindow, "window"},
		{engine.ErrSnapshot, "snapshot"},
		{engine.ErrOperator, "operator"},
		{engine.ErrDeadline, "deadline"},
		{engine.ErrGuard, "guard"},
		{context.Canceled, "cancelled"},
		{cluster.ErrCredentials, "credentials"},
		{cluster.ErrDenied, "denied"},
		{cluster.ErrUnreachable, "unreachable"},
	}
}
