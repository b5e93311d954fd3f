// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Executable tells what of a plan this engine cannot carry out: Kubernetes
// steps, as one [cluster.Permanent] finding. It is empty for a plan that moves
// Talos alone.
func Executable(made plan.Plan) []cluster.Finding {
	var running, asked []version.Version

	for _, step := range made.Steps {
		if step.Component == "" {
			continue
		}

		asked = append(asked, step.To)
		if !step.From.IsZero() {
			running = append(running, step.From)
		}
	}

	if len(asked) == 0 {
		return nil
	}

	runs := "another version"
	if lowest := version.Lowest(running...); !lowest.IsZero() {
		runs = "Kubernetes " + lowest.String()
	}

	return []cluster.Finding{{
		Check: "versions", Severity: cluster.Permanent, Attribute: "kubernetes_version",
		Found:  fmt.Sprintf("the cluster runs %s and kubernetes_version asks for %s, but this version of the provider upgrades Talos only", runs, version.Highest(asked...)),
		Remedy: "Set kubernetes_version to what runs, or leave it out and upgrade Kubernetes with talosctl upgrade-k8s.",
	}}
}

// refusals are the findings that forbid to begin, or to go on.
func refusals(made plan.Plan) []cluster.Finding {
	return append(cluster.Blocking(made.Findings), Executable(made)...)
}
