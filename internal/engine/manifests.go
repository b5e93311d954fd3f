// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// applyPatience bounds how long the manifests may take to be applied, API
// servers that come and go included.
const applyPatience = 10 * time.Minute

// due has the journal remember that the manifests have to be synced, before a
// step is begun that they have to follow: a run that dies after the last node
// leaves nothing else that would tell.
func (s *schedule) due(ctx context.Context, next plan.Step) error {
	current, _ := s.journal.read()
	if current.Manifests != nil || next.Component == cluster.Manifests || !synced(s.made.Steps) {
		return nil
	}

	record := &cluster.ManifestsDue{Run: s.run.run, Written: s.clock.Now()}

	err := s.amend(ctx, "", func(j cluster.Journal) cluster.Journal { return j.WithManifests(record) })
	if err != nil {
		return &Failure{Summary: "Unable to record what has to be done", Seen: err.Error(), Remedy: resumeRemedy, Err: err}
	}

	return nil
}

// synced tells whether the steps end with a sync of the manifests.
func synced(steps []plan.Step) bool {
	return len(steps) > 0 && steps[len(steps)-1].Component == cluster.Manifests
}

// unrepeated drops a sync that this run has done already, where the policy does
// not wait for what it changes: the pods of kube-proxy follow in their own time.
func (s *schedule) unrepeated(made plan.Plan) plan.Plan {
	if s.request.Policy.Kubernetes.Manifests.Timeout > 0 || len(made.Steps) == 0 {
		return made
	}

	if first := made.Steps[0]; first.Component == cluster.Manifests && s.turns[keyOf(first)] > 0 {
		made.Steps = made.Steps[1:]
		made.Kubernetes.Steps--
	}

	return made
}

// sync brings the bootstrap manifests into the cluster and waits for what they
// change to be rolled out.
func (r *run) sync(ctx context.Context, step plan.Step) error {
	if err := r.applyManifests(ctx); err != nil {
		return r.manifestFailure(ctx, step, err, false)
	}

	if err := r.rollout(ctx, step); err != nil {
		return r.manifestFailure(ctx, step, err, true)
	}

	if current, _ := r.journal.read(); current.Manifests != nil {
		err := r.amend(ctx, "", func(j cluster.Journal) cluster.Journal { return j.WithManifests(nil) })
		if err != nil {
			return &Failure{
				Summary: "Unable to record that the bootstrap manifests are in sync", Component: cluster.Manifests, Seen: err.Error(),
				State: "They are in sync; the next run looks at them once more.", Remedy: resumeRemedy, Err: err,
			}
		}
	}

	r.emit(cluster.Event{Kind: cluster.EventNodeDone, Component: cluster.Manifests, Target: r.request.Target, To: step.To})

	return nil
}

// applyManifests applies what a control plane renders. It is repeated for as
// long as it fails in a way that may heal: each part of it may be.
func (r *run) applyManifests(ctx context.Context) error {
	if r.manifests == nil {
		return errNoConnection
	}

	bounded, cancel := r.clock.WithTimeout(ctx, applyPatience)
	defer cancel()

	return r.wait(bounded, "", "the bootstrap manifests to be applied", func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := r.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		snapshot, err := r.observe(ctx, func(cluster.Node) bool { return true })
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		renderer, options, seen := r.renders(snapshot)
		if seen != "" {
			return false, seen, nil
		}

		r.emit(cluster.Event{
			Kind: cluster.EventNodeStep, Component: cluster.Manifests, Step: cluster.StepApply, Text: "as " + renderer.Name + " renders them",
		})

		changes, err := r.manifests.Apply(ctx, renderer.Address, options)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		for _, change := range changes {
			r.emit(cluster.Event{
				Kind: cluster.EventNodeStep, Component: cluster.Manifests, Step: cluster.StepApply, Text: string(change.Action) + " " + change.Object,
			})
		}

		return true, "", nil
	})
}

// renders is the control plane whose manifests are applied, and how. Held ones
// may render what is old.
func (r *run) renders(snapshot cluster.Snapshot) (cluster.Node, cluster.ManifestOptions, string) {
	policy := r.request.Policy.Kubernetes.Manifests

	// What the oldest Talos of the cluster does decides, as it does for talosctl.
	lowest, _ := snapshot.TalosVersions()
	options := cluster.ManifestOptions{ServerSide: lowest.AtLeast(1, 13), Prune: policy.Prune, Force: policy.Force}

	if snapshot.KubernetesError != nil {
		return cluster.Node{}, options, "the Kubernetes API does not answer: " + snapshot.KubernetesError.Error()
	}

	var chosen *cluster.Node

	for _, node := range snapshot.ControlPlanes() {
		if node.Machine == nil && options.Prune {
			return cluster.Node{}, options, fmt.Sprintf("%s does not answer, and what it alone renders must not be pruned", node.Name)
		}

		if node.Machine == nil {
			continue
		}

		options.Also = append(options.Also, node.Address)

		if r.request.Policy.Holds(node.Name) {
			continue
		}

		// One that renders kube-proxy knows more than one that does not.
		if chosen == nil || rendersProxy(node) && !rendersProxy(*chosen) {
			chosen = &node
		}
	}

	if chosen == nil {
		return cluster.Node{}, options, "no control plane answers that could render them"
	}

	options.Also = slices.DeleteFunc(options.Also, func(address string) bool { return address == chosen.Address })

	return *chosen, options, ""
}

func rendersProxy(node cluster.Node) bool {
	return node.Machine.Config != nil && !node.Machine.Config.Disabled[cluster.Proxy]
}

// rollout waits until what was applied runs everywhere, if that is asked for.
// Pods of a DaemonSet are replaced one after the other, so the time begins anew
// whenever something is seen to have moved.
func (r *run) rollout(ctx context.Context, step plan.Step) error {
	timeout := r.request.Policy.Kubernetes.Manifests.Timeout
	if timeout <= 0 {
		return nil
	}

	r.emit(cluster.Event{Kind: cluster.EventNodeStep, Component: cluster.Manifests, Step: cluster.StepRollout})

	seen, standing := map[string]bool{}, false

	for {
		bounded, cancel := r.clock.WithTimeout(ctx, timeout)
		moved := false

		err := r.wait(bounded, "", "the bootstrap manifests to be rolled out", func(ctx context.Context) (bool, string, error) {
			lacking, answered, err := r.lacking(ctx, step)
			if err != nil || !answered {
				return false, lacking, err
			}

			// What was seen before is no progress, or a flapping pod would have all
			// the time in the world.
			moved = standing && !seen[lacking]
			seen[lacking], standing = true, true

			return lacking == "" || moved, lacking, nil
		})

		cancel()

		if err != nil || !moved || seen[""] {
			return err
		}
	}
}

// lacking is what is not rolled out yet, empty when everything is.
func (r *run) lacking(ctx context.Context, step plan.Step) (text string, answered bool, err error) {
	snapshot, err := r.observe(ctx, func(cluster.Node) bool { return true })
	if err != nil {
		return err.Error(), false, onlyFatal(err)
	}

	renderer, _, missing := r.renders(snapshot)
	if missing != "" {
		return missing, false, nil
	}

	unready, err := r.manifests.Unready(ctx, renderer.Address)
	if err != nil {
		return err.Error(), false, onlyFatal(err)
	}

	unready = append(unready, r.oldProxies(snapshot, step)...)
	if away := notReady(snapshot); len(unready) > 0 && len(away) > 0 {
		unready = append(unready, "a rollout that replaces one pod at a time waits for nodes that are not Ready: "+strings.Join(away, ", "))
	}

	return strings.Join(unready, "; "), true, nil
}

func notReady(snapshot cluster.Snapshot) []string {
	var away []string

	for _, node := range snapshot.Managed() {
		if node.Kube != nil && !node.Kube.Ready {
			away = append(away, node.Name)
		}
	}

	return away
}

// oldProxies are the nodes on which kube-proxy does not run what the hop leads
// to. Where Talos alone was moved that is none. Of nodes that are not there, or
// to be left alone, nothing is expected.
func (r *run) oldProxies(snapshot cluster.Snapshot, step plan.Step) []string {
	var old []string

	for _, node := range snapshot.Managed() {
		running, known := node.Versions[cluster.Proxy]
		if !known || !running.Less(step.To) || step.From.Equal(step.To) {
			continue
		}

		if node.Kube != nil && node.Kube.Ready && !r.request.Policy.Holds(node.Name) {
			old = append(old, fmt.Sprintf("kube-proxy on %s runs %s", node.Name, running))
		}
	}

	return old
}

// manifestRights is what to do where the kubeconfig may not sync manifests.
const manifestRights = "The kubeconfig must be allowed to get, create and patch what Talos renders, cluster roles included, as that of an administrator is. " +
	"kubernetes.manifests.sync = false leaves the manifests to you."

// errNoConnection is a cluster of which only the Talos API can be reached.
var errNoConnection = errors.New("there is no connection to the Kubernetes API")

func (r *run) manifestFailure(ctx context.Context, step plan.Step, err error, applied bool) *Failure {
	failed := &Failure{
		Summary: "Unable to sync the bootstrap manifests", Component: cluster.Manifests, Seen: err.Error(),
		State:  "All nodes that had their turns run what they were moved to. What of the manifests was applied stays; the journal remembers that they have to be synced.",
		Remedy: resumeRemedy, Err: errors.Join(ErrManifests, err),
	}

	switch {
	case errors.Is(err, ErrLeaseLost), errors.Is(context.Cause(ctx), ErrLeaseLost):
		failed.Remedy = lostRemedy
	case ctx.Err() != nil:
		failed.Summary = "The upgrade was cancelled while the bootstrap manifests were being synced"
	case applied && !errors.Is(err, cluster.ErrDenied) && !errors.Is(err, cluster.ErrCredentials):
		failed.Summary = "Unable to finish the rollout of the bootstrap manifests"
		failed.Remedy = "Look at what does not come up (kubectl -n kube-system get pods -o wide), bring back nodes that are not Ready or delete their Node objects, " +
			"then run terraform apply again. " +
			"A longer kubernetes.manifests.timeout gives it more time, and \"0s\" does not wait for it."
	case errors.Is(err, cluster.ErrDenied), errors.Is(err, cluster.ErrCredentials):
		failed.Remedy = manifestRights
	case errors.Is(err, cluster.ErrRefused):
		failed.Remedy = "Where a field changed that may not change, kubernetes.manifests.force = true recreates the object. " +
			"kubernetes.manifests.sync = false leaves the manifests to you."
	}

	if !step.From.Equal(step.To) {
		failed.Summary += " of Kubernetes " + step.To.String()
	}

	return failed
}
