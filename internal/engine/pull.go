// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// download is what one node pulls before anything is disturbed: one installer
// image for each hop of Talos that concerns it, and the images of its
// components for each hop of Kubernetes.
type download struct {
	node, address string
	// step is the first upgrade of the node in Talos, if it has one.
	step   plan.Step
	images []string
	parts  []part
}

// downloads are the images by node, in the order in which the nodes move. A
// node in the middle of its upgrade may be away, and is looked at first. What
// pulls is the version that a node runs now, for later hops too.
func downloads(observed cluster.Observation, made plan.Plan) []download {
	var (
		found []*download
		index = map[string]*download{}
	)

	of := func(name, address string) *download {
		if index[name] == nil {
			index[name] = &download{node: name, address: address}
			found = append(found, index[name])
		}

		return index[name]
	}

	for _, step := range made.Steps {
		if step.Component != "" {
			continue
		}

		one := of(step.Node, step.Address)
		if one.step.Node == "" {
			one.step = step
		}

		if !one.step.Finish && !slices.Contains(one.images, step.Image) {
			one.images = append(one.images, step.Image)
		}
	}

	wanted := parts(observed, made)

	for _, node := range observed.Managed() {
		if len(wanted[node.Name]) > 0 && node.Machine != nil {
			of(node.Name, node.Address).parts = wanted[node.Name]
		}
	}

	ordered := make([]download, 0, len(found))
	for _, one := range found {
		ordered = append(ordered, *one)
	}

	return ordered
}

// pullEverywhere brings the images of all hops onto all nodes before any node
// is disturbed: an image that one node cannot get stops the run here.
func (r *run) pullEverywhere(ctx context.Context, observed cluster.Observation, made plan.Plan) error {
	var (
		group    errgroup.Group
		wanted   = downloads(observed, made)
		findings = make([]*cluster.Finding, len(wanted))
	)

	group.SetLimit(pullParallel)

	for index, one := range wanted {
		group.Go(func() error {
			if ctx.Err() == nil {
				findings[index] = r.fetch(ctx, one)
			}

			// What was cut off says nothing of the node.
			if ctx.Err() == nil {
				r.engine.emit(pulled(one, findings[index]))
			}

			return nil
		})
	}

	_ = group.Wait()

	if ctx.Err() != nil {
		return r.stopped(ctx, "while images were being pulled; no node was disturbed")
	}

	var failed []cluster.Finding

	for _, finding := range findings {
		if finding != nil {
			failed = append(failed, *finding)
		}
	}

	if len(failed) == 0 {
		return nil
	}

	return pullFailure(r.request.Target, failed)
}

// pulled tells of a node that has its images, or of the finding why not.
func pulled(one download, failed *cluster.Finding) cluster.Event {
	event := cluster.Event{Kind: cluster.EventPulled, Node: one.node}

	switch {
	case failed != nil:
		event.Text, event.Err = failed.Found, failed.Err
	case one.step.API == cluster.LegacyAPI && len(one.images) > 0:
		event.Text = "the node reaches the registry; its upgrade downloads the image once more, into a store of its own"
	}

	return event
}

// fetch has one node pull all of its images, up to the first that it cannot
// get.
func (r *run) fetch(ctx context.Context, one download) *cluster.Finding {
	refused := func(check, reference string, err error) *cluster.Finding {
		return &cluster.Finding{
			Check: check, Severity: cluster.Observed, Node: one.node, Err: err,
			Found: fmt.Sprintf("could not pull %s: %v", reference, err),
		}
	}

	for _, reference := range one.images {
		if err := r.pull(ctx, one.step, reference); err != nil {
			return refused(cluster.CheckInstallerImage, reference, err)
		}
	}

	for _, part := range one.parts {
		if err := r.pullComponent(ctx, one.node, one.address, part.component, part.image); err != nil {
			return refused(checkImages, part.image, err)
		}
	}

	return nil
}

// checkImages is the check of findings about the images of components.
const checkImages = cluster.CheckComponentImages

func pullFailure(target cluster.Target, failed []cluster.Finding) *Failure {
	failure := &Failure{
		Summary:  fmt.Sprintf("Unable to pull the installer images for Talos %s", target.Talos),
		Node:     failed[0].Node,
		Findings: failed,
		State:    "No node was disturbed.",
		Remedy:   "Check that the image exists and that the nodes reach its registry, then run terraform apply again.",
		Err:      errors.Join(causes(failed)...),
	}

	if errors.Is(failed[0].Err, cluster.ErrRefused) {
		failure.Remedy = "Waiting does not change what the node says: let it into the registry, correct the reference, make room on its disk, or correct its rules of image verification (ImageVerificationConfig); then run terraform apply again."
	}

	if failed[0].Check == checkImages {
		failure.Summary = fmt.Sprintf("Unable to pull the images for Kubernetes %s", target.Kubernetes)
		failure.Component = cluster.Kubelet
	}

	return failure
}

// pull brings one node its image; where it is there already this is cheap.
func (r *run) pull(ctx context.Context, step plan.Step, reference string) error {
	r.engine.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: step.Node, Step: cluster.StepPull, Text: reference})

	return r.repeated(ctx, step.Node, reference, func(ctx context.Context) error {
		return r.engine.talos.Pull(ctx, step.Address, reference, step.API)
	})
}

// part is the image of one component.
type part struct {
	component cluster.Component
	image     string
}

// parts are the images of components that nodes pull before anything is
// restarted, by the name of the node. Those of kube-proxy belong on all nodes,
// although only control planes have a step for it.
func parts(observed cluster.Observation, made plan.Plan) map[string][]part {
	found := map[string][]part{}

	add := func(node string, wanted part) {
		if !slices.Contains(found[node], wanted) {
			found[node] = append(found[node], wanted)
		}
	}

	for _, step := range made.Steps {
		if step.Component == "" || step.Image == "" {
			continue
		}

		add(step.Node, part{component: step.Component, image: step.Image})

		if step.Component != cluster.Proxy {
			continue
		}

		for _, node := range observed.Managed() {
			if node.Machine != nil && !slices.Contains(made.Held, node.Name) {
				add(node.Name, part{component: step.Component, image: step.Image})
			}
		}
	}

	return found
}

// pullComponent brings one image onto one node; where it is there already this
// is cheap.
func (r *run) pullComponent(ctx context.Context, node, address string, component cluster.Component, image string) error {
	r.engine.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: node, Component: component, Step: cluster.StepPull, Text: image})

	return r.repeated(ctx, node, image, func(ctx context.Context) error {
		return r.engine.talos.PullComponent(ctx, address, component, image)
	})
}

// maxBackoff bounds the pause between two attempts, however many there were.
const maxBackoff = 5 * time.Minute

// backoff is the pause before an attempt, which is counted from 1: there is none
// before the first.
func backoff(repeat cluster.Repeat, attempt int) time.Duration {
	if attempt < 2 {
		return 0
	}

	pause := repeat.Backoff
	for range attempt - 2 {
		if pause >= maxBackoff {
			break
		}

		pause *= 2
	}

	return max(repeat.Backoff, min(pause, maxBackoff))
}

// pullTimeout is how long a pull that may heal is tried again whatever the policy
// says: from Talos 1.14 on a node tries once, and a registry that has had enough
// for a moment must not end a run.
const pullTimeout = 5 * time.Minute

// pullPause is the least pause before an attempt that the policy did not ask for.
const pullPause = 10 * time.Second

// repeated tries a pull again that failed in a way which may heal: for as long as
// [pullTimeout], then as often as the policy allows, and within the time that one
// image may take.
func (r *run) repeated(ctx context.Context, node, image string, do func(context.Context) error) error {
	bounded, cancel := r.engine.clock.WithTimeout(ctx, cluster.PullTimeout)
	defer cancel()

	repeat := r.request.Policy.Repeat
	begun := r.engine.clock.Now()

	for attempt := 1; ; attempt++ {
		err := do(bounded)
		if err == nil || !cluster.Heals(err) {
			return err
		}

		pause := backoff(repeat, attempt+1)

		if attempt >= repeat.Attempts {
			left := pullTimeout - r.engine.clock.Now().Sub(begun)
			if left <= 0 {
				return err
			}

			pause = min(max(pause, pullPause), left)
		}

		r.engine.emit(cluster.Event{Kind: cluster.EventWaiting, Node: node, Text: fmt.Sprintf(
			"%s to be pulled on %s, which is tried again in %s: %v", image, node, pause.Round(time.Second), err)})

		if r.engine.clock.Sleep(bounded, pause) != nil {
			return err
		}
	}
}

// waitBeforeRetry waits before an install is tried again that did not take. No install is pending
// then.
func (u *nodeUpgrade) waitBeforeRetry(ctx context.Context, attempt int) error {
	if err := u.forget(ctx); err != nil {
		return fmt.Errorf("%s: %w", u.untaken(attempt-1), err)
	}

	pause := backoff(u.run.request.Policy.Repeat, attempt)
	if err := u.run.engine.clock.Sleep(ctx, pause); err != nil {
		return fmt.Errorf("%s, and another attempt was to follow after %s: %w", u.untaken(attempt-1), pause, err)
	}

	return nil
}

// untaken says how often an install did not take, which is not known of a node
// that was not heard to begin it.
func (u *nodeUpgrade) untaken(attempts int) string {
	if u.installs >= attempts {
		return fmt.Sprintf("%s was installed %s and did not take", u.entry.Image, readable.Times(attempts))
	}

	return fmt.Sprintf("the node was asked %s to install %s, and whether it began is not known", readable.Times(attempts), u.entry.Image)
}
