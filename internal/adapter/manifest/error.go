// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	ssaerrors "github.com/fluxcd/pkg/ssa/errors"
	"github.com/siderolabs/go-kubernetes/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// failure is a failed step. It hides errors that the libraries would retry: they would do so for minutes, and
// retrying is up to the caller.
type failure struct {
	// object is what failed; empty if the cause names it.
	object  string
	mutates bool
	cause   error
}

// failed wraps an error. It returns nil, and errors that the libraries have to recognise, unchanged.
func failed(object string, mutates bool, err error) error {
	if err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return err
	}

	var dryRun *ssaerrors.DryRunErr
	if errors.As(err, &dryRun) {
		// The error has the whole object, which may be a Secret.
		err = dryRun.Unwrap()
	}

	return &failure{object: object, mutates: mutates, cause: err}
}

// Error must not quote the cause: the libraries take "not found" anywhere in it for an object that does not exist.
func (f *failure) Error() string { return "step failed" }

func (f *failure) Unwrap() error {
	if passing(f.cause) {
		return nil
	}

	return f.cause
}

// job is a call of [Client].
type job struct {
	// what completes "unable to ...".
	what    string
	mutates bool
	// base and each, the allowance per object, bound the call.
	base, each time.Duration
	options    cluster.ManifestOptions
	// limit is the resulting bound.
	limit time.Duration
}

// bound limits the job to the time for the number of objects.
func (j *job) bound(ctx context.Context, objects int) (context.Context, context.CancelFunc) {
	j.limit = j.base + time.Duration(objects)*j.each

	return context.WithTimeout(ctx, j.limit)
}

// explain gives an error of the libraries its meaning. The outer context is the caller's, the inner one that of the
// job.
func (j *job) explain(outer, inner context.Context, err error) error {
	if err == nil {
		return nil
	}

	what, mutates, cause := j.what, j.mutates, err

	var step *failure
	if errors.As(err, &step) {
		mutates, cause = step.mutates, step.cause

		if step.object != "" {
			what += ": " + step.object
		}
	}

	switch {
	case outer.Err() == nil && inner.Err() != nil:
		cause = fmt.Errorf("not done within %s: %w", j.limit, cause)
	case outer.Err() == nil && step == nil && !passing(cause) && !answered(cause):
		// The error is a decision of the library itself, such as that an object belongs to another inventory.
		return fmt.Errorf("unable to %s: %w: %w", what, cluster.ErrRefused, cause)
	}

	explained := kubeapi.Explain(outer, what, mutates, cause)
	if errors.Is(explained, cluster.ErrRefused) && apierrors.IsInvalid(cause) {
		return fmt.Errorf("%w. %s", explained, j.hint(cause))
	}

	return explained
}

// hint returns what to do about an object that the API server finds invalid.
func (j *job) hint(err error) string {
	switch {
	case !j.options.ServerSide:
		return "If this is a field that may not change, delete the object, which loses what belongs to it: Talos before 1.13 cannot recreate it; or leave it as it is, with kubernetes.manifests.exclude"
	case j.options.Force:
		return "It is not recreated, because immutable fields are not all that is wrong with it; kubernetes.manifests.exclude leaves it as it is"
	case strings.Contains(err.Error(), "immutable"):
		return "That field may not change; kubernetes.manifests.force recreates the object, and kubernetes.manifests.exclude leaves it as it is"
	default:
		return "If this is a field that may not change, kubernetes.manifests.force recreates the object, and kubernetes.manifests.exclude leaves it as it is"
	}
}

// passing reports whether the libraries would retry after the error.
func passing(err error) bool {
	var network net.Error

	return kubernetes.IsRetryableError(err) || errors.As(err, &network) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, io.EOF)
}

// answered reports whether the error is an answer of the API server.
func answered(err error) bool {
	var status apierrors.APIStatus

	return errors.As(err, &status)
}
