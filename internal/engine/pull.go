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
)

const (
	// pullAttempts is how often a pull is tried that failed in a way which may
	// heal; a pull changes nothing, so it may be repeated.
	pullAttempts = 3
	pullBackoff  = 10 * time.Second
)

// download is what one node pulls before anything is disturbed: one image for
// each hop that concerns it.
type download struct {
	step   plan.Step
	images []string
}

// downloads are the images by node, in the order in which the nodes move. A
// node in the middle of its turn may be away, and is looked at first. What
// pulls is the version that a node runs now, for later hops too.
func downloads(steps []plan.Step) []download {
	var (
		found []download
		index = map[string]int{}
	)

	for _, step := range steps {
		at, known := index[step.Node]
		if !known {
			at = len(found)
			index[step.Node] = at
			found = append(found, download{step: step})
		}

		if node := &found[at]; !node.step.Finish && !slices.Contains(node.images, step.Image) {
			node.images = append(node.images, step.Image)
		}
	}

	return found
}

// pullEverywhere brings the images of all hops onto all nodes before any node
// is disturbed: an image that one node cannot get stops the run here.
func (r *run) pullEverywhere(ctx context.Context, steps []plan.Step) error {
	var (
		group    errgroup.Group
		wanted   = downloads(steps)
		findings = make([]*cluster.Finding, len(wanted))
	)

	group.SetLimit(pullParallel)

	for index, one := range wanted {
		group.Go(func() error {
			for _, reference := range one.images {
				if err := r.pull(ctx, one.step, reference); err != nil {
					findings[index] = &cluster.Finding{
						Check: "installer-image", Severity: cluster.Observed, Node: one.step.Node, Err: err,
						Found: fmt.Sprintf("could not pull %s: %v", reference, err),
					}

					return nil
				}
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

	return &Failure{
		Summary:  fmt.Sprintf("Unable to pull the installer images for Talos %s", r.request.Target.Talos),
		Node:     failed[0].Node,
		Findings: failed,
		State:    "No node was disturbed.",
		Remedy:   "Check that the image exists and that the nodes reach its registry, then run terraform apply again.",
		Err:      errors.Join(causes(failed)...),
	}
}

// pull brings one node its image; where it is there already this is cheap.
func (r *run) pull(ctx context.Context, step plan.Step, reference string) error {
	r.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: step.Node, Step: cluster.StepPull, Text: reference})

	bounded, cancel := r.clock.WithTimeout(ctx, cluster.PullTimeout)
	defer cancel()

	for attempt := 1; ; attempt++ {
		err := r.talos.Pull(bounded, step.Address, reference, step.API)
		if err == nil || !cluster.Heals(err) || attempt == pullAttempts {
			return err
		}

		if sleepErr := r.clock.Sleep(bounded, pullBackoff); sleepErr != nil {
			return err
		}
	}
}
