// SPDX-License-Identifier: MPL-2.0

package say

import (
	"errors"
	"regexp"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// ResumeRemedy says what to do about a run that another one continues.
const ResumeRemedy = "Run terraform apply again to continue where the cluster is."

// WritableRemedy says what to do if the lease or the journal cannot be read or written.
const WritableRemedy = unwritable + "run terraform apply again to continue where the cluster is."

const unwritable = "Look at why the Kubernetes API does not take it (kubectl get --raw=/readyz?verbose), then "

// WritableRemedyOfAction is [WritableRemedy] for an action: an apply would not repeat it, but begin an upgrade.
const WritableRemedyOfAction = unwritable + "invoke the action again."

// OfAction returns the error of an action that has begun nothing. The remedies of a run speak of the next apply, which
// would not repeat the action, but begin an upgrade.
func OfAction(err error) error {
	var failure *Failure
	if errors.As(err, &failure) {
		failure.Remedy = applyAgain.ReplaceAllStringFunc(failure.Remedy, func(advice string) string {
			if strings.HasPrefix(advice, "Run") {
				return "Invoke the action again"
			}

			return "invoke the action again"
		})
	}

	return err
}

// applyAgain matches the advice to apply again, with what an apply would do then.
var applyAgain = regexp.MustCompile(`(?:[Rr]un terraform )?apply again\b[^.]*`)

// continueRemedy says what to do about a node that an interrupted run has begun to upgrade.
const continueRemedy = "Run terraform apply again: it continues with this node."

// LostRemedy says what to do if another run has the lease, or nobody has.
func LostRemedy(err error) string {
	if errors.Is(err, ErrLeaseFreed) {
		return "Find out who took the lease away, then run terraform apply again: it continues where the cluster is."
	}

	return "Another upgrade has taken over; let it finish, then run terraform apply again."
}

// UnreachedRemedy says what to do about a cluster that does not answer.
func UnreachedRemedy(err error) string {
	switch {
	case errors.Is(err, cluster.ErrCredentials):
		return "Waiting does not help. Check that the credentials belong to this cluster, and renew them if they expired, then run terraform apply again."
	case errors.Is(err, cluster.ErrDenied):
		return "Use credentials that are allowed to do this, then run terraform apply again."
	default:
		return "Check that at least one endpoint of the talosconfig is a control plane that is up and reachable from here, and the server of the kubeconfig as well, then run terraform apply again."
	}
}

// GateRemedy says what to do about a gate.
func GateRemedy(err error) string {
	var missed *GateError
	if errors.As(err, &missed) && !missed.Late {
		return "Waiting does not help: correct the gate, or create what it refers to, then run terraform apply again."
	}

	return "When it holds, run terraform apply again, or give the gate a longer timeout."
}

// PullRemedy says what to do about an image that a node cannot get.
func PullRemedy(err error) string {
	if errors.Is(err, cluster.ErrRefused) {
		return "Waiting does not change what the node says: let it into the registry, correct the reference, make room on its disk and in its memory, or correct its rules of image verification (ImageVerificationConfig); then run terraform apply again."
	}

	return "Check that the image exists and that the nodes reach its registry, then run terraform apply again."
}

// drainRemedy says what to do about pods that did not leave a node in time.
func drainRemedy(err error) string {
	if stuck := (*VolumesError)(nil); errors.As(err, &stuck) {
		return stuck.remedy()
	}

	var ended *DrainError

	switch found := errors.As(err, &ended); {
	case found && ended.ending():
		return "They were told to stop and have not stopped yet: find out what keeps them (a long terminationGracePeriodSeconds, a volume, a finalizer), " +
			"or set a longer drain.timeout, and keep node_timeout longer than that, then run terraform apply again."
	case found && ended.OfNode:
		return "Make room in the PodDisruptionBudgets, or give the node longer: node_timeout covers its whole upgrade and has to be longer than drain.timeout. Then run terraform apply again."
	}

	return "Make room in the PodDisruptionBudgets, or set a longer drain.timeout, then run terraform apply again. drain.on_timeout = \"delete\" deletes such pods without asking their budgets."
}

// CanaryState says what the failure of a canary means for the other nodes.
const CanaryState = "It is a canary, so none of the nodes that wait for it was started."
