// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// failure puts the error of a component's upgrade into words.
func (c *componentUpgrade) failure(ctx context.Context, err error) *Failure {
	failed := &Failure{
		Summary: fmt.Sprintf("Unable to bring %s on node %s to Kubernetes %s", c.step.Component, c.step.Node, c.step.To),
		Node:    c.step.Node, Component: c.step.Component, Seen: err.Error(), Excerpts: c.excerpts(ctx), State: c.state(), Remedy: resumeRemedy, Err: err,
	}

	switch {
	case failed.explained(ctx, err):
	case ctx.Err() != nil:
		failed.Summary = fmt.Sprintf("The upgrade was cancelled while %s on node %s was being replaced", c.step.Component, c.step.Node)
	case errors.Is(err, ErrGate):
		failed.Remedy = gateRemedy(err)
	case errors.Is(err, cluster.ErrConflict), errors.Is(err, errOverwritten):
		failed.Remedy = "Find out who else writes machine configurations (another pipeline, talos_machine_configuration_apply) and have it name the images that run, " +
			"as data.talosupgrade_current_versions tells. Then run terraform apply again."
		failed.Err = errors.Join(ErrForeignWriter, err)
	case errors.Is(err, cluster.ErrRefused) && c.configured:
		failed.Remedy = "The node did not accept its machine configuration with the new image, and kept the old one. Correct what it names, then run terraform apply again."
	case errors.Is(err, cluster.ErrBusy):
		failed.Remedy = "Somebody else keeps applying machine configurations to this node; find out who, then run terraform apply again."
	case errors.Is(err, cluster.ErrCredentials), errors.Is(err, cluster.ErrDenied):
		failed.Remedy = "Renew or correct the credentials, then run terraform apply again."
	case c.arrived:
		failed.Remedy = c.lookRemedy()
	}

	if c.step.Canary && ctx.Err() == nil {
		failed.State += " " + canaryState
	}

	return failed
}

// state says how the node is left.
func (c *componentUpgrade) state() string {
	switch {
	case c.arrived && c.step.Component.Static() && c.onlyControlPlane:
		return fmt.Sprintf("The node means to run the new %s, and it is the only control plane: what does not run there runs nowhere.", c.step.Component)
	case c.arrived && c.step.Component.Static():
		return fmt.Sprintf("The node means to run the new %s; the other control planes were not touched meanwhile and go on serving.", c.step.Component)
	case c.arrived:
		return fmt.Sprintf("The node means to run the new %s; its pods run on.", c.step.Component)
	case c.configured:
		return fmt.Sprintf("The machine configuration of the node may name the new image of %s already; nothing was rebooted.", c.step.Component)
	default:
		return "The node runs as before."
	}
}

// lookRemedy is where to look for the reason why a component does not run.
func (c *componentUpgrade) lookRemedy() string {
	if c.step.Component == cluster.Kubelet {
		return fmt.Sprintf("Look at it (talosctl -n %s logs kubelet, kubectl describe node %s). When it runs, or its reason is gone, run terraform apply again: it continues with this node.",
			c.step.Address, c.step.Node)
	}

	return fmt.Sprintf("Look at it (kubectl -n kube-system describe pod %s-%s, talosctl -n %s containers --kubernetes). When it runs, or its reason is gone, run terraform apply again: it continues with this node.",
		c.step.Component, c.step.Node, c.step.Address)
}
