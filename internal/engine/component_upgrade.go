// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

const (
	// componentTimeout bounds the upgrade of one component on one node. Its image
	// is there already; talosctl gives a static pod 5 minutes and a kubelet 3.
	componentTimeout = 10 * time.Minute
	// renderTimeout is how long a node may take to apply its machine configuration. It is a matter of seconds; if
	// it takes longer, somebody else has changed the configuration back.
	renderTimeout = time.Minute
	// pollComponents is the longest pause between two observations of a component that restarts, which takes
	// seconds: there are many of them, one after the other.
	pollComponents = time.Second
)

// componentUpgrade is the upgrade of one component on one node: its image is set in the machine configuration, and
// the component is restarted from it. This needs no journal: every part may be repeated, and the node shows what is
// already done.
type componentUpgrade struct {
	run *run

	step plan.Step
	// at is the step that was entered last.
	at cluster.NodeStep
	// before is what the node reported before anything was changed.
	before cluster.ComponentStatus
	// configured is true if the configuration was changed, or may have been.
	configured bool
	// arrived is true once the node has taken over the change.
	arrived bool
	// judged is the last check of the API server of the node.
	judged judgedPod
	// kubelet is what the node last reported about its kubelet, and watched is since when its effect on the static
	// pods is waited for.
	kubelet cluster.ComponentStatus
	watched time.Time
	// onlyControlPlane is true if there is no other control plane.
	onlyControlPlane bool
	// ready is the last transition of the node's Ready condition, as seen by the wait for its kubelet.
	ready time.Time
}

// upgradeComponent upgrades a component. It returns the last transition of the node's Ready condition if the
// component is the kubelet.
func (r *run) upgradeComponent(ctx context.Context, step plan.Step) (time.Time, error) {
	c := &componentUpgrade{run: r, step: step}
	defer r.shared.done(step.Node)

	if step.Image == "" {
		// The node did not answer when the step was planned. The next plan knows
		// more.
		return c.ready, permit.ErrStopped
	}

	// The pull has its own timeout. It may have to be repeated, because the node drops images that nothing runs.
	err := r.pullAtTurn(ctx, step.Node, step.Image, func(ctx context.Context) error {
		return r.pullComponent(ctx, step.Node, step.Address, step.Component, step.Image)
	})

	switch {
	case errors.Is(err, permit.ErrStopped):
		return c.ready, err
	case err != nil:
		return c.ready, c.failure(ctx, &say.PullError{Image: step.Image, Err: err})
	}

	if err := c.upgradeWhenAllowed(ctx); err != nil {
		return c.ready, err
	}

	r.engine.emit(cluster.Event{
		Kind: cluster.EventNodeDone, Node: step.Node, Component: step.Component, Target: r.request.Target, To: step.To,
	})

	return c.ready, nil
}

// upgradeWhenAllowed waits for the gates and then upgrades the component, whose time starts at that moment.
func (c *componentUpgrade) upgradeWhenAllowed(ctx context.Context) error {
	err := c.run.whileGatesHold(ctx, c.awaitGates, func(ctx context.Context) error {
		bounded, cancel := c.run.engine.clock.WithTimeout(ctx, componentTimeout)
		defer cancel()

		return c.upgrade(bounded)
	})
	if err == nil || errors.Is(err, permit.ErrStopped) {
		return err
	}

	return c.failure(ctx, err)
}

// awaitGates waits for the gates before a component is restarted. A component that is already configured is
// finished without them, because it may be the reason why a gate does not hold.
func (c *componentUpgrade) awaitGates(ctx context.Context) error {
	if !c.changes() || !c.run.hasGates() {
		return nil
	}

	c.emitStep(cluster.StepGates, "")

	return upgradeGateError(c.run.awaitGates(ctx, c.step.Node))
}

// changes reports whether the configuration still has to be changed.
func (c *componentUpgrade) changes() bool { return c.step.Configured != c.step.Image && !c.configured }

// upgrade changes the configuration, if that is still to be done, and waits for the component to run from the
// image.
func (c *componentUpgrade) upgrade(ctx context.Context) error {
	if err := c.readComponent(ctx); err != nil {
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

// readComponent asks the node what it is configured to run now.
func (c *componentUpgrade) readComponent(ctx context.Context) error {
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

// configure sets the image in the machine configuration, based on an observation on which the guards hold. A call
// whose outcome is unknown is repeated: it changes nothing if the image is already set.
func (c *componentUpgrade) configure(ctx context.Context) error {
	change := cluster.ImageChange{Component: c.step.Component, From: c.step.Configured, To: c.step.Image}

	var last error

	for announced := false; ; announced = true {
		c.at = ""
		err := c.awaitGuards(ctx)

		switch {
		case err != nil && last != nil && errors.Is(cluster.Ended(ctx), context.DeadlineExceeded):
			// The last error says more than that the time is up.
			return outOfTime(last)
		case err != nil:
			return err
		}

		if !announced {
			c.emitStep(cluster.StepConfigure, c.step.Image)
		}

		before := c.configured
		c.at, c.configured = cluster.StepConfigure, true

		last = c.run.leased.configure(ctx, c.step.Address, change)
		c.configured = before || !unreached(last)

		c.run.engine.facts.Acted(c.step.Role)

		if last == nil || !cluster.Heals(last) || errors.Is(last, cluster.ErrConflict) {
			return last
		}

		if c.run.engine.clock.Sleep(ctx, maxPoll) != nil {
			return outOfTime(last)
		}
	}
}

func outOfTime(last error) error {
	return fmt.Errorf("the machine configuration could not be changed within %s: %w", componentTimeout, last)
}

// awaitArrival waits until the node is configured to run the image.
func (c *componentUpgrade) awaitArrival(ctx context.Context) error {
	bounded, cancel := c.run.engine.clock.WithTimeout(ctx, renderTimeout)
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

			return status.Image == c.step.Image, "it is configured to run " + status.Image, nil
		})
	if err != nil && answered && ctx.Err() == nil && bounded.Err() != nil {
		return fmt.Errorf("%w (%w)", say.ErrOverwritten, err)
	}

	return err
}

func (c *componentUpgrade) emitStep(step cluster.NodeStep, text string) {
	c.at = step
	c.run.engine.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: c.step.Node, Component: c.step.Component, Step: step, Text: text})
}

// awaitRunning waits until the component runs from the image and is healthy. kube-proxy is not waited for: this
// node only has its configuration, and the sync of the manifests decides what it runs from.
func (c *componentUpgrade) awaitRunning(ctx context.Context) error {
	var try look

	switch {
	case c.step.Component.Static():
		try = c.staticPodRuns
	case c.step.Component == cluster.Kubelet:
		try = c.kubeletRuns
	default:
		return nil
	}

	what := fmt.Sprintf("%s on %s to run %s", c.step.Component, c.step.Node, c.step.To)
	if err := c.run.engine.waitClosely(ctx, c.step.Node, what, pollComponents, try); err != nil {
		return err
	}

	if c.remakesPods() && !c.onlyControlPlane {
		c.watched = c.run.engine.clock.Now()

		what := fmt.Sprintf("%s, whose kubelet has restarted, to make its kube-apiserver anew or to keep it", c.step.Node)
		if err := c.run.engine.wait(ctx, c.step.Node, what, c.apiServerStays); err != nil {
			return err
		}
	}

	c.run.engine.facts.Acted(c.step.Role)

	return nil
}

// remakesPods reports whether a control plane gets the kubelet of another minor version. Such a kubelet finds the
// running static pods changed and recreates them, because what it makes of their sources has other fields
// (kubernetes#116080, talos#14227, 2026-09-02).
func (c *componentUpgrade) remakesPods() bool {
	return c.step.Component == cluster.Kubelet && c.step.Role == cluster.ControlPlane && c.step.From.Minor() != c.step.To.Minor()
}

// apiServerStays reports whether the API server of a node with a restarted kubelet has restarted as well, or stays,
// and is Ready.
func (c *componentUpgrade) apiServerStays(ctx context.Context) (bool, string, error) {
	pods, err := c.run.engine.kubernetes.StaticPods(ctx, c.step.Node, cluster.APIServer)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	if seen := c.toRestart(pods); seen != "" {
		return false, seen, nil
	}

	// The kubelet may have restarted once more.
	c.kubelet, err = c.run.engine.talos.Component(ctx, c.step.Address, cluster.Kubelet)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	if seen := c.toRestart(pods); seen != "" {
		return false, seen, nil
	}

	return c.apiServerRuns(ctx, pods)
}

// toRestart says that the kubelet may still restart the API server of its node; empty if it already has, or has had
// enough time to.
func (c *componentUpgrade) toRestart(pods []cluster.ComponentPod) string {
	index := indexOf(pods, cluster.APIServer)
	if index < 0 || c.run.engine.clock.Now().Sub(c.watched) >= rule.KeepsPods {
		return ""
	}

	return rule.APIServerToRestart(c.kubelet, pods[index])
}

// indexOf returns the index of the pod of a component among those of one node; -1 if there is none.
func indexOf(pods []cluster.ComponentPod, component cluster.Component) int {
	return slices.IndexFunc(pods, func(pod cluster.ComponentPod) bool { return pod.Component == component })
}

// staticPodRuns reports whether the static pod is made from the configuration that names the image, and is Ready.
// Neither alone is enough: the old pod is Ready as well, and a new one may never be.
func (c *componentUpgrade) staticPodRuns(ctx context.Context) (bool, string, error) {
	pods, err := c.run.engine.kubernetes.StaticPods(ctx, c.step.Node, c.step.Component, cluster.APIServer)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	index := indexOf(pods, c.step.Component)

	switch {
	case index < 0:
		return false, "it has no pod", nil
	case pods[index].Image != c.step.Image:
		return false, "its pod still runs " + pods[index].Image + fact.Troubled(pods[index]), nil
	case !pods[index].Ready:
		return false, "its pod is not Ready" + fact.Troubled(pods[index]), nil
	}

	if serves, seen, err := c.apiServerRuns(ctx, pods); err != nil || !serves {
		return false, seen, err
	}

	// The node is asked last, because that costs most, and because its answer has to hold when the wait ends.
	status, err := c.run.engine.talos.Component(ctx, c.step.Address, c.step.Component)

	switch {
	case err != nil:
		return false, err.Error(), permanentOnly(err)
	case status.Image != c.step.Image:
		return false, "the node is configured to run " + status.Image, nil
	case pods[index].ConfigVersion != status.ConfigVersion:
		return false, fmt.Sprintf("its pod was made from version %s of its configuration, and %s is the newest", pods[index].ConfigVersion, status.ConfigVersion), nil
	default:
		return true, "", nil
	}
}

// apiServerRuns reports whether the API server of the node is the one that the node made last, and is Ready: some
// versions of Talos recreate it together with the scheduler.
func (c *componentUpgrade) apiServerRuns(ctx context.Context, pods []cluster.ComponentPod) (bool, string, error) {
	index := indexOf(pods, cluster.APIServer)
	if index < 0 {
		return true, "", nil
	}

	pod, now := pods[index], c.run.engine.clock.Now()
	spokenAgainst := pod == c.judged.pod && now.Sub(c.judged.at) < maxPoll

	// The node is not asked about a pod that is not Ready, nor so soon again about one that it has reported as
	// outdated.
	if seen := fact.Unready(c.judged.machine, pod); seen != "" && (!pod.Ready || spokenAgainst) {
		return false, seen, nil
	}

	machine, err := c.run.engine.machine(ctx, c.step.Address)
	if err != nil {
		return false, err.Error(), permanentOnly(err)
	}

	c.judged = judgedPod{pod: pod, machine: machine, at: now}
	seen := fact.Unready(machine, pod)

	return seen == "", seen, nil
}

// judgedPod is the pod of an API server, with what its node last reported.
type judgedPod struct {
	pod     cluster.ComponentPod
	machine cluster.Machine
	at      time.Time
}

// kubeletRuns reports whether the service is healthy after its restart, and the node is Ready as the new kubelet
// reports it: a kubelet writes its version together with the state of the node.
func (c *componentUpgrade) kubeletRuns(ctx context.Context) (bool, string, error) {
	node, err := c.run.engine.kubernetes.Node(ctx, c.step.Node)

	switch {
	case errors.Is(err, cluster.ErrNotFound):
		return false, "it has no Node object in Kubernetes", nil
	case err != nil:
		return false, err.Error(), permanentOnly(err)
	case !node.Kubelet.Equal(c.step.To):
		return false, fmt.Sprintf("its kubelet reports version %s", node.Kubelet), nil
	case !node.Ready:
		return false, "the node is not Ready: " + node.ReadyReason, nil
	}

	status, err := c.run.engine.talos.Component(ctx, c.step.Address, cluster.Kubelet)

	switch {
	case err != nil:
		return false, err.Error(), permanentOnly(err)
	case status.Image != c.step.Image:
		return false, "the node is configured to run " + status.Image, nil
	case !status.Running:
		return false, "its kubelet does not run", nil
	case !status.Healthy:
		return false, "its kubelet is not healthy", nil
	case c.before.Image != c.step.Image && status.Since.Equal(c.before.Since):
		return false, "its kubelet has not restarted yet", nil
	default:
		c.ready, c.kubelet = node.ReadySince, status

		return true, "", nil
	}
}

// awaitGuards waits until it is safe to restart the component, with an observation that is newer than all steps
// that invalidate it.
func (c *componentUpgrade) awaitGuards(ctx context.Context) error {
	var world permit.World

	return c.run.awaitGuarded(ctx, guardedAction{
		before: "restart " + string(c.step.Component) + " on", node: c.step.Node, timeout: guardTimeout, pause: pollComponents,
		observe: func(ctx context.Context) (err error) {
			world, err = c.observeForGuards(ctx)

			return err
		},
		permit: func() permit.Verdict { return c.run.permit(permit.Ask{Stage: rule.Component, Acts: true}, world) },
	})
}

// observeForGuards makes the observation that the guards need. If a gate is closed, or the upgrades are suspended,
// it asks for nothing else.
func (c *componentUpgrade) observeForGuards(ctx context.Context) (permit.World, error) {
	// Other kubelets do not invalidate the observation for this one: the budget says how many may restart at a
	// time.
	world := permit.World{
		View:     rule.View{Step: c.step, Run: c.run.engine.runID, Policy: c.run.policy(), Starting: c.changes()},
		Occupied: c.step.Component == cluster.Kubelet,
	}

	if c.changes() {
		world.Closed = append(c.run.suspensionFindings(ctx), c.run.closedGates(ctx, c.step.Node)...)
		if len(world.Closed) > 0 {
			return world, nil
		}
	}

	world.Intruded, world.Looked = c.run.operatorConflicts(ctx, true), c.run.engine.facts.Steps()

	asked := inquiry{claim: c.step.Node, staticPods: true, etcd: true, machines: func(node cluster.Node) bool {
		return node.Role == cluster.ControlPlane || node.Name == c.step.Node
	}}

	if c.step.Role == cluster.Worker {
		// For the kubelet of a worker, only the alarms of etcd matter.
		asked.age, asked.staticPods, asked.etcdAge = answerAge, false, planAge
	}

	observed, err := c.run.observe(ctx, asked)
	if err != nil {
		return world, err
	}

	c.onlyControlPlane = len(observed.ControlPlanes()) == 1
	world.Observation, world.Policy, world.Seen = observed, c.run.selectIn(observed), observed.Taken
	world.Dates = c.run.engine.facts.Dates(observed, c.step.Node)

	return world, c.readKubelets(ctx, &world.View)
}

// readKubelets asks the other control planes for the services of their kubelets while they matter: an earlier run
// may have ended right after one of them restarted.
func (c *componentUpgrade) readKubelets(ctx context.Context, seen *rule.View) error {
	if !c.remakesPods() || c.run.engine.clock.Now().Sub(c.run.since) >= rule.KeepsPods {
		return nil
	}

	seen.Kubelets = map[string]cluster.ComponentStatus{}

	for _, node := range seen.ControlPlanes() {
		if node.Name == c.step.Node || node.Machine == nil {
			continue
		}

		status, err := c.run.engine.talos.Component(ctx, node.Address, cluster.Kubelet)
		if err != nil {
			return fmt.Errorf("unable to ask %s for its kubelet: %w", node.Name, err)
		}

		seen.Kubelets[node.Name] = status
	}

	return nil
}

// failure returns why the upgrade failed, with what the kubelet and the component report about it.
func (c *componentUpgrade) failure(ctx context.Context, err error) *say.Failure {
	left := say.Component{
		Step: c.step, At: c.at, Configured: c.configured, Arrived: c.arrived, OnlyControlPlane: c.onlyControlPlane, Ended: context.Cause(ctx), Excerpts: c.excerpts(ctx),
	}

	return left.Failure(err)
}

// excerpts returns the last lines of the kubelet and of the static pods that are not Ready; nil if the node has not
// taken over the change, or the upgrade was cut off.
func (c *componentUpgrade) excerpts(ctx context.Context) []say.Excerpt {
	if ctx.Err() != nil || !c.arrived {
		return nil
	}

	bounded, cancel := c.run.engine.cleanupContext(ctx)
	defer cancel()

	// The log of the kubelet is read first, so that it does not wait for pods about which the node may not answer.
	lines := c.run.engine.tailLog(bounded, c.step.Address, serviceKubelet)

	found := c.run.engine.tailPods(bounded, c.step)
	if len(lines) > 0 {
		found = append(found, say.Excerpt{Source: "the log of the kubelet on " + c.step.Node, Lines: lines})
	}

	return found
}
