// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// statusOf is how a machine's services report what the model answered.
func statusOf(err error) error {
	if err == nil {
		return nil
	}

	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}

	code := codes.Unknown

	for _, known := range []struct {
		err  error
		code codes.Code
	}{
		{model.ErrUnreachable, codes.Unavailable},
		{model.ErrConnectionLost, codes.Unavailable},
		{model.ErrUnknownNode, codes.Unavailable},
		{model.ErrNoLeader, codes.Unavailable},
		{model.ErrEtcdDown, codes.DeadlineExceeded},
		{model.ErrInstallInProgress, codes.FailedPrecondition},
		{model.ErrImageRequired, codes.InvalidArgument},
		{model.ErrImageMissing, codes.Internal},
		{model.ErrInstallNotStarted, codes.Internal},
		{model.ErrImageNotFound, codes.NotFound},
		{model.ErrNotControlPlane, codes.Unimplemented},
		{model.ErrUnsupported, codes.Unimplemented},
		{model.ErrApplyInvalid, codes.InvalidArgument},
		{model.ErrApplyBusy, codes.FailedPrecondition},
		{model.ErrApplyModeUnsupported, codes.Unimplemented},
	} {
		if errors.Is(err, known.err) {
			code = known.code

			break
		}
	}

	return status.Error(code, err.Error())
}
