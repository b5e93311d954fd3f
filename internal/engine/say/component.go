// SPDX-License-Identifier: MPL-2.0

package say

import (
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// Component is what a person has to know about a failed upgrade of a component of Kubernetes.
type Component struct {
	Step plan.Step
	// At is the step that was entered last.
	At cluster.NodeStep
	// Configured is true if the machine configuration was changed, or may have been; Arrived is true if the node
	// has seen the change.
	Configured, Arrived bool
	// OnlyControlPlane is true if there is no other control plane.
	OnlyControlPlane bool
	// Ended is why the context of the upgrade ended; nil if it did not.
	Ended error
	// Excerpts are the last lines of the logs of the kubelet and the component.
	Excerpts []Excerpt
}

// Failure puts the error of the upgrade into words.
func (c Component) Failure(err error) *Failure {
	failed := &Failure{
		Summary: fmt.Sprintf("Unable to bring %s on node %s to Kubernetes %s", c.Step.Component, c.Step.Node, c.Step.To),
		Node:    c.Step.Node, Component: c.Step.Component, Seen: err.Error(), Excerpts: c.Excerpts, State: c.state(), Remedy: ResumeRemedy, Err: err,
	}

	switch {
	case failed.explained(c.Ended, err):
	case c.Ended != nil:
		failed.Summary = fmt.Sprintf("The upgrade was cancelled while %s on node %s was being replaced", c.Step.Component, c.Step.Node)
		c.interrupted(failed)
	case errors.Is(err, ErrGate):
		failed.Remedy = GateRemedy(err)
	case errors.Is(err, cluster.ErrConflict), errors.Is(err, ErrOverwritten):
		failed.Remedy = "Find out who else writes machine configurations (another pipeline, talos_machine_configuration_apply) and have it name the images that run, " +
			"as data.talosupgrade_current_versions tells. Then run terraform apply again."
		failed.Err = errors.Join(ErrForeignWriter, err)
	case errors.Is(err, cluster.ErrRefused) && c.At == cluster.StepConfigure:
		failed.Remedy = "The node did not accept its machine configuration with the new image, and kept the old one. Correct what it names, then run terraform apply again."
	case errors.Is(err, cluster.ErrBusy):
		failed.Remedy = "Somebody else keeps applying machine configurations to this node; find out who, then run terraform apply again."
	case errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrDenied):
		failed.Remedy = "Renew or correct the credentials, then run terraform apply again."
	case c.Arrived:
		failed.Remedy = c.lookRemedy()
	}

	if c.Step.Canary && c.Ended == nil {
		failed.State += " " + CanaryState
	}

	return failed
}

// state says in which state the node is left.
func (c Component) state() string {
	switch {
	case c.Arrived && c.Step.Component.Static() && c.OnlyControlPlane:
		return fmt.Sprintf("The node is configured for the new %s and is the only control plane: the component is down until it starts there.", c.Step.Component)
	case c.Arrived && c.Step.Component.Static():
		return fmt.Sprintf("The node is configured for the new %s; the other control planes were not touched meanwhile and go on serving.", c.Step.Component)
	case c.Arrived:
		return fmt.Sprintf("The node is configured for the new %s; its pods run on.", c.Step.Component)
	case c.Configured:
		return fmt.Sprintf("The machine configuration of the node may name the new image of %s already; nothing was rebooted.", c.Step.Component)
	default:
		return "The node runs as before."
	}
}

// lookRemedy says where to look for the reason why a component does not run.
func (c Component) lookRemedy() string {
	if c.Step.Component == cluster.Kubelet {
		return fmt.Sprintf("Look at it (talosctl -n %s logs kubelet, kubectl describe node %s). When it runs, or its reason is gone, run terraform apply again: it continues with this node.",
			c.Step.Address, c.Step.Node)
	}

	return fmt.Sprintf("Look at it (kubectl -n kube-system describe pod %s-%s, talosctl -n %s logs -k %s). When it runs, or its reason is gone, run terraform apply again: it continues with this node.",
		c.Step.Component, c.Step.Node, c.Step.Address, cluster.ContainerLog(c.Step.Component, c.Step.Node))
}

// interrupted puts into words the failure of a component's upgrade that was cut off by the end of its context.
func (c Component) interrupted(failed *Failure) {
	failed.Seen = Interrupted(c.Ended, c.activity(failed.Err), failed.Err)

	if c.Configured {
		failed.Remedy = continueRemedy
	}
}

// activity returns what was being done to the component: it completes "while".
func (c Component) activity(err error) string {
	if unpulled := (*PullError)(nil); errors.As(err, &unpulled) {
		return c.Step.Node + " was pulling " + unpulled.Image
	}

	switch c.At {
	case cluster.StepConfigure:
		return fmt.Sprintf("%s was being configured to run %s %s", c.Step.Node, c.Step.Component, c.Step.To)
	case cluster.StepRestart:
		return fmt.Sprintf("waiting for %s on %s to run %s", c.Step.Component, c.Step.Node, c.Step.To)
	default:
		return fmt.Sprintf("waiting until %s on %s could be replaced", c.Step.Component, c.Step.Node)
	}
}
