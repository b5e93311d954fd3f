// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"errors"
	"strings"
)

// Errors of the ports, by meaning. Adapters wrap exactly one of them; what they
// cannot name they return as it is, and the engine then takes the outcome of a
// mutating call for unknown.
var (
	// ErrUnreachable: nothing answered; it may heal by itself. The call had no
	// effect that anyone could know of, except where ErrOutcomeUnknown is
	// wrapped beside it.
	ErrUnreachable = errors.New("unreachable")
	// ErrForeign: what answers in place of the node has no certificate of the cluster, as Talos in
	// maintenance mode has none; wrapped beside ErrUnreachable. Waiting seldom helps.
	ErrForeign = errors.New("what answers has no certificate of this cluster")
	// ErrCredentials: the other side does not accept our certificate, or we do
	// not accept its; waiting does not help.
	ErrCredentials = errors.New("credentials not accepted")
	// ErrDenied: the credentials lack a role or a permission.
	ErrDenied = errors.New("permission denied")
	// ErrUnsupported: the node's Talos version does not have the call.
	ErrUnsupported = errors.New("not supported by this version")
	// ErrRefused: the call was refused before it had any effect.
	ErrRefused = errors.New("refused")
	// ErrNotPulled: the node does not have the image to install; wrapped beside ErrRefused.
	ErrNotPulled = errors.New("the image is not on the node")
	// ErrNoInstaller: what the node has of the image has no installer in it; wrapped beside
	// ErrRefused.
	ErrNoInstaller = errors.New("the image has no installer")
	// ErrBusy: an installation is already running on the node.
	ErrBusy = errors.New("another installation is in progress")
	// ErrNotFound: the object or the image does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: somebody else wrote the object since it was read.
	ErrConflict = errors.New("written by somebody else in the meantime")
	// ErrBudget: a PodDisruptionBudget has nothing to give right now.
	ErrBudget = errors.New("disruption budget exhausted")
	// ErrOverlap: more than one PodDisruptionBudget covers the pod, so that it is
	// never evicted; wrapped beside ErrRefused.
	ErrOverlap = errors.New("more than one disruption budget")
	// ErrOutcomeUnknown: the call was sent and its reply was lost; whether it
	// took effect must be found out by looking.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrIncomplete: a part of what was asked for is not there yet; it may come, or
	// never.
	ErrIncomplete = errors.New("not complete yet")
	// ErrUnsaved: the machine that applies cannot keep what it was given; wrapped
	// beside ErrRefused.
	ErrUnsaved = errors.New("not saved")
	// ErrNoKubeconfig: the Kubernetes API cannot be asked for want of a kubeconfig;
	// wrapped beside the reason.
	ErrNoKubeconfig = errors.New("no kubeconfig was configured, and the Talos API gave none")
	// ErrQuorum: etcd has no leader.
	ErrQuorum = errors.New("etcd has no leader")
)

// Unaccepted is why credentials were not accepted, without what they were used
// for, so that it is the same for every node; empty for other errors.
func Unaccepted(err error) string {
	if !errors.Is(err, ErrCredentials) {
		return ""
	}

	_, reason, _ := strings.Cut(err.Error(), ErrCredentials.Error()+": ")

	return reason
}

// Heals tells whether waiting may cure the error.
func Heals(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, ErrCredentials), errors.Is(err, ErrDenied), errors.Is(err, ErrUnsupported),
		errors.Is(err, ErrRefused), errors.Is(err, ErrNotFound):
		return false
	default:
		return true
	}
}
