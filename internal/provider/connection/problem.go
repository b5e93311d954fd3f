// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
)

// errSilent is wrapped if nodes are known and none of them answered, errUnlisted if it is not even known which nodes
// exist.
var (
	errSilent   = errors.New("no node answered over the Talos API")
	errUnlisted = errors.New("which nodes there are is not known, because discovery lists none and the Kubernetes API did not answer")
)

// SummaryUnobserved is the summary of every warning about an unreachable cluster. With the name of the cluster, the
// command line folds the warnings of refresh and plan into one.
const SummaryUnobserved = "Unable to observe the cluster"

// Problem turns an error into the one diagnostic that a person sees. doing completes "Unable to", such as "upgrade
// the cluster".
func Problem(doing string, access Credentials, err error) diag.Diagnostic {
	var failure *say.Failure
	if errors.As(err, &failure) {
		return FailureProblem(failure)
	}

	summary, detail := "Unable to "+doing, diagnostic.Sentence(cluster.Plain(err.Error()))

	switch {
	case errors.Is(err, ErrCredentialsUnknown):
		return diag.NewErrorDiagnostic(summary, "The provider configuration depends on values that are known only after an apply ("+
			strings.Join(access.Unknown, ", ")+").\n\nApply what they come from first, for example with -target.")
	case errors.Is(err, ErrCredentialsMissing):
		return diag.NewErrorDiagnostic("Missing credentials for the Talos API", summary+": there are no credentials. "+lookedAt(access)+
			"\n\nSet one of them, for example talosconfig = data.talos_client_configuration.this.talos_config in the provider block.")
	case errors.Is(err, ErrCredentialsUnusable):
		return UnusableProblem(err)
	case errors.Is(err, errLent) && !errors.Is(err, context.Canceled):
		return diag.NewErrorDiagnostic("Missing credentials from the management cluster", summary+": "+err.Error()+".\n\n"+lentRemedy(err))
	case errors.Is(err, errClaimed):
		return diag.NewErrorDiagnostic(summary+": another resource does", detail+" Nothing was touched for this one.\n\n"+
			"Keep one resource per cluster: remove this one or the other. Where for_each makes them, look for two contexts of the talosconfig that reach the same cluster.")
	case errors.Is(err, context.Canceled):
		return diag.NewErrorDiagnostic(summary, "Interrupted before it was done. Run the command again to continue.")
	}

	if silence := unanswered(err); silence != "" {
		// It is irrelevant which call failed first.
		detail = diagnostic.Sentence(silence)
	}

	return diag.NewErrorDiagnostic(summary, detail+"\n\n"+cmp.Or(Remedy(err), "Correct what it names, then run the command again."))
}

// UnusableProblem returns the error of credentials with which nothing can be reached.
func UnusableProblem(err error) diag.Diagnostic {
	return diag.NewErrorDiagnostic("Unusable credentials", diagnostic.Sentence(err.Error())+"\n\nCorrect them and run the command again; nothing was changed.")
}

// Remedy returns what to do about an error of a port; empty if its meaning is not known.
func Remedy(err error) string {
	switch {
	case errors.Is(err, cluster.ErrCredentials):
		return "Waiting does not help. Check that the talosconfig belongs to this cluster, and renew its certificate if it expired (talosctl config new, " +
			"or a refresh of the data source that it comes from)."
	case errors.Is(err, errUnlisted) && errors.Is(err, cluster.ErrNoKubeconfig):
		return "Set " + attrname.Kubeconfig + " in the provider block: without discovery Kubernetes alone tells which nodes there are, and only os:admin may ask the Talos API for a kubeconfig."
	case errors.Is(err, cluster.ErrDenied):
		return "Use credentials that are allowed to do this: reading needs os:reader, upgrading needs os:admin, and endpoints must be control planes."
	case errors.Is(err, errUnlisted):
		return "Make the Kubernetes API answer, or let the nodes find each other (talosctl get members, cluster.discovery in the machine configurations), then run the command again."
	case errors.Is(err, cluster.ErrUnreachable), errors.Is(err, errSilent):
		return "Check that at least one endpoint of the talosconfig is a control plane that is up and reachable from here " +
			"(talosctl version --nodes <address>), then run the command again."
	case errors.Is(err, context.DeadlineExceeded):
		return "Find out why the cluster takes so long to answer. In the resource and in data talosupgrade_preflight, timeouts.read gives it more time."
	default:
		return ""
	}
}

// lentRemedy returns what to do about credentials that could not be read from the management cluster.
func lentRemedy(err error) string {
	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return "Correct " + attrname.CredentialsFrom + " and " + attrname.Management + " in the provider block: the one names the KubernetesCluster, the other the cluster that holds it. " +
			"The Secret beside it is there once its operator has made the cluster."
	case errors.Is(err, cluster.ErrCredentials):
		return "Waiting does not help. Check that the kubeconfig of " + attrname.Management + " in the provider block belongs to the management cluster, and renew it if it expired."
	case errors.Is(err, cluster.ErrDenied):
		return "Use a kubeconfig in " + attrname.Management + " in the provider block that may get the KubernetesCluster, and get and list Secrets in its namespace."
	case errors.Is(err, cluster.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return "Check that the API server in the kubeconfig of " + attrname.Management + " in the provider block is up and can be reached from here, then run the command again."
	default:
		return "Look at that Secret, or give the credentials themselves, for example with " + attrname.Talosconfig + " in the provider block."
	}
}

// lookedAt lists the ways to give credentials, in the order in which they are tried.
func lookedAt(access Credentials) string {
	state := func(set bool) string {
		if set {
			return "set"
		}

		return "not set"
	}

	return fmt.Sprintf("Looked at, in this order: provider attributes talosconfig (%s), talosconfig_path (%s), endpoints with client_configuration (%s), "+
		"and the environment variable %s (%s).",
		state(access.Talosconfig != ""), state(access.TalosconfigPath != ""), state(access.Certificate != nil),
		talosconfigEnv, state(os.Getenv(talosconfigEnv) != ""))
}

// FailureProblem returns the diagnostic of an upgrade that stopped. It points at a place in the configuration if all
// findings agree on it.
func FailureProblem(failure *say.Failure) diag.Diagnostic {
	at := path.Empty()

	for index, finding := range failure.Findings {
		if index > 0 && !diagnostic.PathOf(finding).Equal(at) {
			at = path.Empty()

			break
		}

		at = diagnostic.PathOf(finding)
	}

	if silence := unanswered(failure.Err); silence != "" && failure.Node == "" && failure.Component == "" && len(failure.Findings) == 0 {
		// It is irrelevant which call failed first.
		reworded := *failure
		reworded.Seen, failure = diagnostic.Sentence(silence), &reworded
	}

	detail := folded(*failure).Detail()
	if advice := Remedy(failure.Err); advice != "" && failure.Remedy == "" && len(failure.Findings) == 0 {
		detail += "\n\n" + advice
	}

	return diagnostic.ErrorAt(at, failure.Summary, detail)
}

// folded returns the failure with its findings merged into readable text, however many nodes they are about.
func folded(failure say.Failure) *say.Failure {
	if len(failure.Findings) > 0 {
		failure.Seen = strings.TrimPrefix(failure.Seen+"\n\n"+diagnostic.List(diagnostic.ByCause(failure.Findings)), "\n\n")
		failure.Findings = nil
	}

	return &failure
}

// WrongClusterProblem returns the error of a state that belongs to another cluster than the one that was reached. name is
// that of the context that reached it.
func WrongClusterProblem(stateID, reachedID, name string) diag.Diagnostic {
	return diag.NewErrorDiagnostic("Wrong cluster",
		fmt.Sprintf("The state belongs to cluster %s, but this provider reaches cluster %s (%s). Nothing was touched.\n\n"+
			"Correct the talosconfig or the context. If the cluster was rebuilt on purpose, remove the resource from state (terraform state rm) and apply again.",
			stateID, reachedID, name))
}

// WaitingHelps reports whether waiting may resolve the error of an observation. An error in the configuration is not
// resolved by waiting.
func WaitingHelps(err error) bool {
	return !errors.Is(err, ErrCredentialsMissing) && !errors.Is(err, ErrCredentialsUnusable) && !errors.Is(err, ErrCredentialsUnknown) && cluster.Heals(err)
}

// reason returns why it is unknown which cluster a context reaches, as text.
func reason(err error) string {
	if silence := unanswered(err); silence != "" {
		return silence
	}

	return err.Error()
}
