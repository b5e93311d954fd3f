// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkBudgets counts the workers that are away, and the turns. A kubelet may
// always restart where no other does.
func (r *roll) checkBudgets(made plan.Plan, step plan.Step) {
	most, away := made.Budget, r.away()

	if step.Component == cluster.Kubelet {
		most, away = made.KubeletBudget, r.unready()
	}

	alone := step.Component == cluster.Kubelet && len(r.busy) == 0
	counts := step.Role == cluster.Worker && (step.Component == "" || step.Component == cluster.Kubelet)

	if counts && !alone && !away[step.Node] && len(away)+1 > most {
		r.t.Fatalf("%s %s begins while %v are unavailable, and %d may be", step.Node, step.Component, away, most)
	}

	if len(r.busy)+1 > most {
		r.t.Fatalf("%d turns at a time, and %d may be", len(r.busy)+1, most)
	}
}

// unready are the workers whose kubelets are away, and those that are about to
// be.
func (r *roll) unready() map[string]bool {
	away := map[string]bool{}

	for _, node := range r.snapshot.Workers() {
		if !node.Kube.Ready || slices.ContainsFunc(r.busy, func(s plan.Step) bool { return s.Node == node.Name }) {
			away[node.Name] = true
		}
	}

	return away
}

// checkCanaries wants every canary past the release that another node is about
// to get.
func (r *roll) checkCanaries(step plan.Step) {
	for _, name := range r.policy.Canary {
		behind := r.node(name).Machine == nil || r.node(name).Machine.Talos.Minor().Compare(step.To.Minor()) < 0
		if step.Component == "" && !step.Canary && behind {
			r.t.Fatalf("%s begins before the canary %s is done", step.Node, name)
		}

		kubelet := r.node(name).Versions[cluster.Kubelet]
		if step.Component == cluster.Kubelet && !step.Canary && !r.policy.Hold[name] && kubelet.Minor().Compare(step.To.Minor()) < 0 {
			r.t.Fatalf("the kubelet of %s begins before that of the canary %s is done", step.Node, name)
		}
	}
}

// checkFaltering lets each canary in turn that is not on its way fall out of
// service for a moment: nothing that is to wait for canaries may begin then.
func (r *roll) checkFaltering() {
	for _, name := range r.policy.Canary {
		node := r.node(name)
		if !node.Available() || slices.ContainsFunc(r.busy, func(s plan.Step) bool { return s.Node == name }) {
			continue
		}

		node.Kube.Ready = false

		for _, step := range r.make().Startable(r.snapshot, r.busy) {
			if step.Component == "" && !step.Canary && !step.Finish {
				r.t.Fatalf("%s begins while the canary %s is not Ready", step.Node, name)
			}
		}

		node.Kube.Ready = true
	}
}

// checkVersions holds the turn against S5.
func (r *roll) checkVersions(node cluster.Node, step plan.Step) {
	running := node.Machine.Talos

	if step.Component != "" {
		running = node.Versions[step.Component]

		_, tag, _ := strings.Cut(step.Configured, ":v")
		if named := version.MustParse(tag); step.Component == cluster.Proxy || named.Less(running) {
			running = named
		}

		if step.Configured != node.Machine.Config.Images[step.Component] || !strings.HasSuffix(step.Image, ":"+step.To.Tag()) {
			r.t.Fatalf("%s %s names %s and is to go from %q to %q", step.Node, step.Component, node.Machine.Config.Images[step.Component], step.Configured, step.Image)
		}
	}

	if !running.Equal(step.From) || !step.From.Less(step.To) || step.To.Minor().Compare(step.From.Minor().Next()) > 0 {
		r.t.Fatalf("%s %s runs %s and is to go from %s to %s", step.Node, step.Component, running, step.From, step.To)
	}

	if step.Component == cluster.Kubelet {
		for _, other := range r.snapshot.Nodes {
			if api, found := other.Versions[cluster.APIServer]; found && api.Minor().Compare(step.To.Minor()) < 0 {
				r.t.Fatalf("the kubelet of %s moves to %s, and the API server of %s is %s", step.Node, step.To, other.Name, api)
			}
		}
	}
}

// checkSynced wants the manifests behind whatever was done, and with them the
// pods of kube-proxy at the target.
func (s *scene) checkSynced(rt *rapid.T) {
	if !s.policy.Kubernetes.Manifests.Sync || s.unrendered() {
		return
	}

	if s.snapshot.Journal.Manifests != nil {
		rt.Fatal("the roll ended without a sync of the manifests")
	}

	if s.target.Kubernetes.IsZero() {
		return
	}

	for _, node := range s.snapshot.Nodes {
		if pod, runs := node.Versions[cluster.Proxy]; runs && !s.policy.Hold[node.Name] && !pod.Equal(s.target.Kubernetes) {
			rt.Fatalf("the kube-proxy of %s is %s in the end", node.Name, pod)
		}
	}
}

// unsupported is the first pair of versions, of whichever nodes, that the
// matrix does not allow.
func (r *roll) unsupported() string {
	for _, one := range r.snapshot.Nodes {
		if one.Machine == nil {
			continue
		}

		for _, other := range r.snapshot.Nodes {
			for component, running := range other.Versions {
				// Pods that nothing syncs stay behind, as the policy wants it.
				if component == cluster.Proxy && (!r.policy.Kubernetes.Manifests.Sync || r.unrendered()) {
					continue
				}

				if err := compat.Supports(one.Machine.Talos, running); err != nil {
					return fmt.Sprintf("%s beside %s: %v", one.Name, other.Name, err)
				}
			}
		}
	}

	return ""
}
