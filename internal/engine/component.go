// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

const (
	// componentPatience bounds the upgrade of one component on one node. Its image
	// is there already; talosctl gives a static pod 5 minutes and a kubelet 3.
	componentPatience = 10 * time.Minute
	// renderPatience is how long a node may take to make use of what its machine
	// configuration says. It is a matter of seconds; when it takes longer,
	// somebody else has changed the configuration back.
	renderPatience = time.Minute
	// pollComponents is the longest pause between two looks at a component that
	// restarts, which takes seconds: there are many of them, one after the other.
	pollComponents = 500 * time.Millisecond
)

// errOverwritten is a machine configuration that does not keep what was
// written.
var errOverwritten = errors.New("its machine configuration does not keep the new image: something else writes it")

// componentUpgrade is the upgrade of one component on one node: the machine
// configuration is made to name its image, and the component to run from it.
// Nothing of it needs the journal: every part may be repeated, and what is done
// already shows on the node.
type componentUpgrade struct {
	run *run

	step plan.Step
	// before is what the node said before anything was changed.
	before cluster.ComponentStatus
	// configured tells that the configuration was changed, or may have been.
	configured bool
	// arrived tells that the node has seen the change.
	arrived bool
	// onlyControlPlane tells that there is no other control plane.
	onlyControlPlane bool
	// ready is the last transition of the node's Ready condition, as the wait for
	// its kubelet saw it.
	ready time.Time
}

// upgradeComponent gives a component its upgrade. It returns the last transition of the
// node's Ready condition where the component is the kubelet.
func (r *run) upgradeComponent(ctx context.Context, step plan.Step) (time.Time, error) {
	c := &componentUpgrade{run: r, step: step}
	defer r.coordinator.done(step.Node)

	if step.Image == "" {
		// The node did not answer when the step was planned. The next plan knows
		// more.
		return c.ready, errStopped
	}

	// It has its own time. The node drops images that nothing runs.
	if err := r.pullComponent(ctx, step.Node, step.Address, step.Component, step.Image); err != nil {
		return c.ready, c.failure(ctx, err)
	}

	if err := c.upgradeWhenAllowed(ctx); err != nil {
		return c.ready, err
	}

	r.emit(cluster.Event{
		Kind: cluster.EventNodeDone, Node: step.Node, Component: step.Component, Target: r.request.Target, To: step.To,
	})

	return c.ready, nil
}

// upgradeWhenAllowed waits for the gates and moves the component, which has all of its time
// then. A gate that closes in between is waited for anew.
func (c *componentUpgrade) upgradeWhenAllowed(ctx context.Context) error {
	for range closuresMost {
		if err := c.awaitGates(ctx); err != nil {
			return err
		}

		bounded, cancel := c.run.engine.clock.WithTimeout(ctx, componentPatience)
		err := c.upgrade(bounded)

		cancel()

		switch {
		case errors.Is(err, errGateClosed):
			// A context that ended is noticed by the wait for the gates.
			_ = c.run.engine.clock.Sleep(ctx, maxPoll)
		case err == nil, errors.Is(err, errStopped):
			return err
		default:
			return c.failure(ctx, err)
		}
	}

	return c.failure(ctx, errFlickers)
}

// changes tells whether the configuration has still to be changed.
func (c *componentUpgrade) changes() bool { return c.step.Configured != c.step.Image && !c.configured }

// upgrade changes the configuration, if that is left to do, and waits for the
// component to run from the image.
func (c *componentUpgrade) upgrade(ctx context.Context) error {
	if err := c.observe(ctx); err != nil {
		return err
	}

	if c.step.Configured != c.step.Image || c.before.Image != c.step.Image {
		if err := c.configure(ctx); err != nil {
			return err
		}
	}

	c.emitStep(cluster.StepRestart, c.step.Image)

	if err := c.awaitArrival(ctx); err != nil {
		return err
	}

	c.arrived = true

	return c.awaitRunning(ctx)
}

// observe asks the node what it means to run now.
func (c *componentUpgrade) observe(ctx context.Context) error {
	return c.run.engine.wait(ctx, c.step.Node, fmt.Sprintf("%s to say what %s is", c.step.Node, c.step.Component),
		func(ctx context.Context) (bool, string, error) {
			status, err := c.run.engine.talos.Component(ctx, c.step.Address, c.step.Component)
			if errors.Is(err, cluster.ErrNotFound) && c.step.Component == cluster.Proxy {
				// It renders none yet.
				err = nil
			}

			if err != nil {
				return false, err.Error(), permanentOnly(err)
			}

			c.before = status

			return true, "", nil
		})
}

// configure has the machine configuration name the image, on an observation on
// which the guards hold. A call whose outcome is not known is repeated: it
// changes nothing where the image is named already.
func (c *componentUpgrade) configure(ctx context.Context) error {
	change := cluster.ImageChange{Component: c.step.Component, From: c.step.Configured, To: c.step.Image}

	var last error

	for announced := false; ; announced = true {
		err := c.awaitGuards(ctx)

		switch {
		case err != nil && last != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
			// Why it was not done before says more than that the time is up.
			return outOfTime(last)
		case err != nil:
			return err
		}

		if !announced {
			c.emitStep(cluster.StepConfigure, c.step.Image)
		}

		c.configured = true

		last = c.run.engine.callWhole(ctx, func(ctx context.Context) error { return c.run.engine.talos.Configure(ctx, c.step.Address, change) })
		c.run.coordinator.acted(c.step.Role)

		if last == nil || !cluster.Heals(last) || errors.Is(last, cluster.ErrConflict) {
			return last
		}

		if c.run.engine.clock.Sleep(ctx, maxPoll) != nil {
			return outOfTime(last)
		}
	}
}

func outOfTime(last error) error {
	return fmt.Errorf("the machine configuration could not be changed within %s: %w", componentPatience, last)
}

// awaitArrival waits until the node means to run the image.
func (c *componentUpgrade) awaitArrival(ctx context.Context) error {
	bounded, cancel := c.run.engine.clock.WithTimeout(ctx, renderPatience)
	defer cancel()

	answered := false

	err := c.run.engine.waitClosely(bounded, c.step.Node, fmt.Sprintf("%s to take over the new image of %s", c.step.Node, c.step.Component), pollComponents,
		func(ctx context.Context) (bool, string, error) {
			status, err := c.run.engine.talos.Component(ctx, c.step.Address, c.step.Component)
			if errors.Is(err, cluster.ErrNotFound) {
				return false, "it says nothing about it", nil
			}

			if err != nil {
				return false, err.Error(), permanentOnly(err)
			}

			answered = true

			return status.Image == c.step.Image, "it means to run " + status.Image, nil
		})
	if err != nil && answered && ctx.Err() == nil && bounded.Err() != nil {
		return fmt.Errorf("%w (%w)", errOverwritten, err)
	}

	return err
}

func (c *componentUpgrade) emitStep(step cluster.NodeStep, text string) {
	c.run.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: c.step.Node, Component: c.step.Component, Step: step, Text: text})
}
