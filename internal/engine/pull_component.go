// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// part is the image of one component.
type part struct {
	component cluster.Component
	image     string
}

// parts are the images of components that nodes pull before anything is
// restarted, by the name of the node. Those of kube-proxy belong on all nodes,
// although only control planes have a step for it.
func parts(snapshot cluster.Snapshot, made plan.Plan) map[string][]part {
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

		for _, node := range snapshot.Managed() {
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
	r.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: node, Component: component, Step: cluster.StepPull, Text: image})

	return r.repeated(ctx, node, image, func(ctx context.Context) error {
		return r.engine.talos.PullComponent(ctx, address, component, image)
	})
}
