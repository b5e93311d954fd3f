// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// translate gives an error of the model the meaning that the adapter derives from it on the wire. Errors without a
// meaning stay as they are.
func translate(ctx context.Context, what string, mutates bool, err error) error {
	return cluster.Worded(meaning(ctx, what, mutates, err))
}

func meaning(ctx context.Context, what string, mutates bool, err error) error {
	if err == nil {
		return nil
	}

	if ctx.Err() != nil {
		return fmt.Errorf("unable to %s: %w", what, interrupted(ctx, mutates))
	}

	// What etcd refuses to a reader for the moment, it may answer later.
	if !mutates && !errors.Is(err, model.ErrNoLeader) && strings.Contains(err.Error(), "etcdserver: ") {
		return fmt.Errorf("unable to %s: %w: %w", what, cluster.ErrUnreachable, err)
	}

	for _, known := range []struct{ answer, meaning error }{
		{model.ErrUnconfigured, fmt.Errorf("%w: %w", cluster.ErrUnreachable, cluster.ErrForeign)},
		{model.ErrUnreachable, cluster.ErrUnreachable},
		{model.ErrUnknownNode, cluster.ErrUnreachable},
		{model.ErrInstallInProgress, cluster.ErrBusy},
		{model.ErrImageRequired, cluster.ErrRefused},
		{model.ErrImageMissing, fmt.Errorf("%w: %w", cluster.ErrRefused, cluster.ErrNotPulled)},
		{model.ErrInstallNotStarted, cluster.ErrRefused},
		{model.ErrImageDamaged, fmt.Errorf("%w: %w", cluster.ErrRefused, cluster.ErrNoInstaller)},
		{model.ErrImageNotFound, cluster.ErrNotFound},
		{model.ErrNoLeader, cluster.ErrQuorum},
		{model.ErrEtcdDown, cluster.ErrUnreachable},
		{model.ErrNotControlPlane, cluster.ErrUnsupported},
		{model.ErrUnsupported, cluster.ErrUnsupported},
		{model.ErrApplyBusy, cluster.ErrBusy},
		{model.ErrApplyModeUnsupported, cluster.ErrUnsupported},
		{model.ErrApplyInvalid, cluster.ErrRefused},
		{model.ErrRefused, cluster.ErrRefused},
	} {
		if errors.Is(err, known.answer) {
			return fmt.Errorf("unable to %s: %w: %w", what, known.meaning, err)
		}
	}

	if errors.Is(err, model.ErrConnectionLost) {
		return fmt.Errorf("unable to %s: %w: %w", what, lost(mutates), err)
	}

	return fmt.Errorf("unable to %s: %w", what, err)
}

// lost returns the meaning of an answer that did not come.
func lost(mutates bool) error {
	if mutates {
		return fmt.Errorf("%w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
	}

	return cluster.ErrUnreachable
}

// interrupted returns the meaning of a call that the caller's own context ended.
func interrupted(ctx context.Context, sent bool) error {
	cause := cluster.Ended(ctx)

	switch {
	case sent:
		return fmt.Errorf("%w: %w", lost(true), cause)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", cluster.ErrUnreachable, cause)
	default:
		return cause
	}
}

// code returns the gRPC code with which a call ends on the wire.
func code(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "OK"
	case ctx.Err() != nil:
		return "Canceled"
	case errors.Is(err, model.ErrConnectionLost), errors.Is(err, model.ErrNoLeader):
		return "Unavailable"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, model.ErrEtcdDown):
		return "DeadlineExceeded"
	case errors.Is(err, model.ErrInstallInProgress), errors.Is(err, model.ErrApplyBusy):
		return "FailedPrecondition"
	case errors.Is(err, model.ErrImageRequired), errors.Is(err, model.ErrApplyInvalid):
		return "InvalidArgument"
	case errors.Is(err, model.ErrImageMissing), errors.Is(err, model.ErrInstallNotStarted), errors.Is(err, model.ErrImageDamaged):
		return "Internal"
	case errors.Is(err, model.ErrImageNotFound):
		return "NotFound"
	case errors.Is(err, model.ErrUnsupported), errors.Is(err, model.ErrNotControlPlane),
		errors.Is(err, model.ErrApplyModeUnsupported):
		return "Unimplemented"
	default:
		return "Unknown"
	}
}
