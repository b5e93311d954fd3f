// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"
)

// The errors of operations on a machine. Faces translate them into their own errors; errors.Is finds them below the
// message.
var (
	// ErrUnknownNode is returned if no machine has the name or address.
	ErrUnknownNode = errors.New("no such machine")
	// ErrUnreachable is returned if the API of a machine does not answer: nothing happened.
	ErrUnreachable = errors.New("connection refused")
	// ErrUnconfigured is returned if a machine is in maintenance mode, with the message of a control plane that was
	// to call it. It is an [ErrUnreachable].
	ErrUnconfigured error = &labelled{ErrUnreachable, "authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"}
	// ErrConnectionLost is returned if the connection broke while a call was under way: the call may or may not
	// have taken effect.
	ErrConnectionLost = errors.New("error reading from server: EOF")
	// ErrInstallInProgress is returned if an installer already runs on the machine.
	ErrInstallInProgress = errors.New("another installation/upgrade is already in progress")
	// ErrImageRequired is returned for an upgrade call without an image.
	ErrImageRequired = errors.New("installer image name is required")
	// ErrImageMissing is returned if the installer image was not pulled before.
	ErrImageMissing = errors.New("not found in containerd store")
	// ErrInstallNotStarted is returned if the container of an install could not be made.
	ErrInstallNotStarted = errors.New("failed to create container")
	// ErrImageDamaged is returned for an install from an image of which the machine lacks the program, with the
	// message of runc (Talos 1.13.9 on a machine of QEMU, 2026-11-26).
	ErrImageDamaged = errors.New(`failed to create task: failed to create shim task: OCI runtime create failed: runc create failed: ` +
		`unable to start container process: error during container init: exec: "/bin/installer": stat /bin/installer: no such file or directory`)
	// ErrImageNotFound is returned if the registry does not have the image.
	ErrImageNotFound = errors.New("not found")
	// ErrPullFailed is returned if the registry does not deliver.
	ErrPullFailed = errors.New("failed to pull image")
	// ErrNotControlPlane is returned for an etcd call to a worker.
	ErrNotControlPlane = errors.New("is only available on control plane nodes")
	// ErrEtcdDown is returned if the member does not run.
	ErrEtcdDown = errors.New("failed to create etcd client: context deadline exceeded")
	// ErrNoLeader is returned if the etcd cluster has no quorum or is in an election.
	ErrNoLeader = errors.New("etcdserver: no leader")
	// ErrLearner is returned for a call that a member without a vote does not serve.
	ErrLearner = errors.New("etcdserver: rpc not supported for learner")
	// ErrRefused is returned if the machine checked a call and refused it.
	ErrRefused = errors.New("refused")
	// ErrApplyInvalid is returned if a machine does not accept a configuration.
	ErrApplyInvalid = errors.New("invalid configuration")
	// ErrApplyBusy is returned for a configuration that comes while another one is being applied.
	ErrApplyBusy = errors.New("another apply configuration is already in progress")
	// ErrApplyModeUnsupported is returned for a mode that this version does not have.
	ErrApplyModeUnsupported = errors.New("the mode is not supported")
	// ErrUnsupported is returned for something that this machine's version does not offer.
	ErrUnsupported = errors.New("not supported")
)

// refuse marks a message as a refusal without changing its text.
func refuse(format string, args ...any) error {
	return &labelled{label: ErrRefused, text: fmt.Sprintf(format, args...)}
}

// refuseLate returns a refusal because something that the machine asked did not answer in time, which its code
// says.
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
