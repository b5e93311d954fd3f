// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"
)

// What an operation on a machine can end with. Faces translate them into
// their own errors; errors.Is finds them below the message.
var (
	// ErrUnknownNode is a name or address no machine has.
	ErrUnknownNode = errors.New("no such machine")
	// ErrUnreachable is a machine whose API does not answer: nothing happened.
	ErrUnreachable = errors.New("connection refused")
	// ErrUnconfigured is a machine in maintenance mode, as a control plane says it that was to call
	// it: an [ErrUnreachable] of its own.
	ErrUnconfigured error = &labelled{ErrUnreachable, "authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"}
	// ErrConnectionLost is a connection that broke while a call was under way:
	// the call may or may not have taken effect.
	ErrConnectionLost = errors.New("error reading from server: EOF")
	// ErrInstallInProgress is a second installer on one machine.
	ErrInstallInProgress = errors.New("another installation/upgrade is already in progress")
	// ErrImageRequired is an upgrade call without an image.
	ErrImageRequired = errors.New("installer image name is required")
	// ErrImageMissing is an installer image that was not pulled before.
	ErrImageMissing = errors.New("not found in containerd store")
	// ErrInstallNotStarted is an install whose container could not be made.
	ErrInstallNotStarted = errors.New("failed to create container")
	// ErrImageDamaged is an install from an image of which the machine lacks the program, as
	// runc says it (Talos 1.13.9 on a machine of QEMU, 2026-11-26).
	ErrImageDamaged = errors.New(`failed to create task: failed to create shim task: OCI runtime create failed: runc create failed: ` +
		`unable to start container process: error during container init: exec: "/bin/installer": stat /bin/installer: no such file or directory`)
	// ErrImageNotFound is an image the registry does not have.
	ErrImageNotFound = errors.New("not found")
	// ErrPullFailed is a registry that does not deliver.
	ErrPullFailed = errors.New("failed to pull image")
	// ErrNotControlPlane is an etcd call to a worker.
	ErrNotControlPlane = errors.New("is only available on control plane nodes")
	// ErrEtcdDown is a member that does not run.
	ErrEtcdDown = errors.New("failed to create etcd client: context deadline exceeded")
	// ErrNoLeader is an etcd cluster without quorum or in an election.
	ErrNoLeader = errors.New("etcdserver: no leader")
	// ErrLearner is a call that a member without a vote does not serve.
	ErrLearner = errors.New("etcdserver: rpc not supported for learner")
	// ErrRefused is a call the machine refused after looking at it.
	ErrRefused = errors.New("refused")
	// ErrApplyInvalid is a configuration that a machine does not accept.
	ErrApplyInvalid = errors.New("invalid configuration")
	// ErrApplyBusy is a configuration that comes while another one is applied.
	ErrApplyBusy = errors.New("another apply configuration is already in progress")
	// ErrApplyModeUnsupported is a mode that this version does not have.
	ErrApplyModeUnsupported = errors.New("the mode is not supported")
	// ErrUnsupported is something this machine's version does not offer.
	ErrUnsupported = errors.New("not supported")
)

// refuse marks a message as a refusal without changing its text.
func refuse(format string, args ...any) error {
	return &labelled{label: ErrRefused, text: fmt.Sprintf(format, args...)}
}

// refuseLate is a refusal because something that the machine asked did not answer
// in time, which is what its code says.
func refuseLate(format string, args ...any) error {
	return &lateRefusal{labelled{label: ErrRefused, text: fmt.Sprintf(format, args...) + ": " + context.DeadlineExceeded.Error()}}
}

type lateRefusal struct{ labelled }

func (e *lateRefusal) Unwrap() []error { return []error{e.label, context.DeadlineExceeded} }

// labelled is an error with a text of its own that errors.Is finds by label.
type labelled struct {
	label error
	text  string
}

func (e *labelled) Error() string { return e.text }

func (e *labelled) Unwrap() error { return e.label }
