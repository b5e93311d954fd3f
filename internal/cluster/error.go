// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"errors"
	"strings"
)

// Errors of the ports, by meaning. Adapters wrap exactly one of them, unless stated otherwise; an error without a
// meaning here is returned as it is, and the engine then treats the outcome of a mutating call as unknown.
var (
	// ErrUnreachable: nothing answered, which may pass. The call had no known effect, unless ErrOutcomeUnknown is
	// wrapped beside it.
	ErrUnreachable = errors.New("unreachable")
	// ErrForeign: what answered at the address of the node has no certificate of the cluster, as Talos in
	// maintenance mode has none; wrapped beside ErrUnreachable. Waiting seldom helps.
	ErrForeign = errors.New("what answers has no certificate of this cluster")
	// ErrCredentials: the other side does not accept our certificate, or we do not accept its certificate;
	// waiting does not help.
	ErrCredentials = errors.New("credentials not accepted")
	// ErrDenied: the credentials lack a role or a permission.
	ErrDenied = errors.New("permission denied")
	// ErrUnsupported: the node's Talos version does not have the call.
	ErrUnsupported = errors.New("not supported by this version")
	// ErrRefused: the call was refused before it had any effect.
	ErrRefused = errors.New("refused")
	// ErrNotPulled: the node does not have the image to install; wrapped beside ErrRefused.
	ErrNotPulled = errors.New("the image is not on the node")
	// ErrNoInstaller: the image on the node contains no installer; wrapped beside ErrRefused.
	ErrNoInstaller = errors.New("the image has no installer")
	// ErrBusy: an installation is already running on the node.
	ErrBusy = errors.New("another installation is in progress")
	// ErrNotFound: the object or the image does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: somebody else wrote the object since it was read.
	ErrConflict = errors.New("written by somebody else in the meantime")
	// ErrBudget: a PodDisruptionBudget allows no eviction at the moment.
	ErrBudget = errors.New("disruption budget exhausted")
	// ErrOverlap: more than one PodDisruptionBudget covers the pod, so it is never evicted; wrapped beside
	// ErrRefused.
	ErrOverlap = errors.New("more than one disruption budget")
	// ErrOutcomeUnknown: the call was sent and its reply was lost; only another look can show whether it took
	// effect.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrIncomplete: a part of what was asked for is not there yet, and may never be.
	ErrIncomplete = errors.New("not complete yet")
	// ErrUnsaved: the machine that runs the provider cannot save the data; wrapped beside ErrRefused.
	ErrUnsaved = errors.New("not saved")
	// ErrNoKubeconfig: there is no kubeconfig for the Kubernetes API; wrapped beside the reason.
	ErrNoKubeconfig = errors.New("no kubeconfig was configured, and the Talos API gave none")
	// ErrQuorum: etcd has no leader.
	ErrQuorum = errors.New("etcd has no leader")
)

// Unaccepted returns why credentials were not accepted, without the call they were used for, so that the text is
// the same for every node; empty for other errors.
func Unaccepted(err error) string {
	if !errors.Is(err, ErrCredentials) {
		return ""
	}

	_, reason, _ := strings.Cut(err.Error(), ErrCredentials.Error()+": ")

	return reason
}

// Heals reports whether waiting may cure the error.
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
