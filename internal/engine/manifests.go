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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// applyTimeout bounds how long applying the manifests may take, including API servers that come and go.
const applyTimeout = 10 * time.Minute

// incompleteTimeout is how long to wait for manifests that a control plane has to download, which it does again
// after each boot.
const incompleteTimeout = 2 * time.Minute

// manifestsDue records in the journal that the manifests have to be synced, before a step begins that requires
// it: a run that dies after the last node leaves no other trace of that.
func (r *run) manifestsDue(ctx context.Context, made plan.Plan, next plan.Step) error {
	current, _ := r.journal.read()
	if current.Manifests != nil || next.Component == cluster.Manifests || !synced(made.Steps) {
		return nil
	}

	record := &cluster.ManifestsDue{Run: r.engine.runID, Written: r.engine.clock.Now()}

	err := r.journal.change(ctx, "", func(j cluster.Journal) cluster.Journal { return j.WithManifests(record) })
	if err != nil {
		return &say.Failure{Summary: "Unable to record what has to be done", Seen: err.Error(), Remedy: say.WritableRemedy, Err: err}
	}

	return nil
}

// synced reports whether the steps end with a sync of the manifests.
func synced(steps []plan.Step) bool {
	return len(steps) > 0 && steps[len(steps)-1].Component == cluster.Manifests
}

// sync applies the bootstrap manifests and waits for the rollout of what they change.
func (r *run) sync(ctx context.Context, step plan.Step) error {
	if err := r.applyManifests(ctx); err != nil {
		return r.manifestFailure(ctx, step, err, false)
	}

	if err := r.awaitDaemonSets(ctx, step); err != nil {
		return r.manifestFailure(ctx, step, err, true)
	}

	if current, _ := r.journal.read(); current.Manifests != nil {
		err := r.journal.change(ctx, "", func(j cluster.Journal) cluster.Journal { return j.WithManifests(nil) })
		if err != nil {
			return &say.Failure{
				Summary: "Unable to record that the bootstrap manifests are in sync", Component: cluster.Manifests, Seen: err.Error(),
				State: "They are in sync; the next run looks at them once more.", Remedy: say.ResumeRemedy, Err: err,
			}
		}
	}

	r.engine.emit(cluster.Event{Kind: cluster.EventNodeDone, Component: cluster.Manifests, Target: r.request.Target, To: step.To})

	return nil
}

// applyManifests applies what a control plane renders. It is repeated while it fails in a way that may heal,
// because each part of it is safe to repeat.
func (r *run) applyManifests(ctx context.Context) error {
	if r.engine.manifests == nil {
		return errNoConnection
	}

	bounded, cancel := r.engine.clock.WithTimeout(ctx, applyTimeout)
	defer cancel()

	// missing is why the last attempt was incomplete, and since is when the first such attempt was made.
	var (
		missing error
		since   time.Time
		begun   = r.engine.clock.Now()
	)

	err := r.engine.wait(bounded, "", "the bootstrap manifests to be applied", func(ctx context.Context) (bool, string, error) {
		observed, err := r.observe(ctx, inquiry{proxies: true, machines: runsControlPlane, others: true})
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		renderer, options, seen := r.renders(observed)
		if seen == "" && options.Prune {
			seen = unasked(observed)
		}

		if seen != "" {
			return false, seen, nil
		}

		r.engine.emit(cluster.Event{
			Kind: cluster.EventNodeStep, Component: cluster.Manifests, Step: cluster.StepApply, Text: "as " + renderer.Name + " renders them",
		})

		now := r.engine.clock.Now()
		patient := now.Sub(since) < incompleteTimeout && now.Sub(begun) < applyTimeout-incompleteTimeout
		options.Incomplete = !options.Prune && missing != nil && !patient

		changes, err := r.leased.applyManifests(ctx, renderer.Address, options)

		switch {
		case errors.Is(err, cluster.ErrIncomplete):
			missing = err

			if since.IsZero() {
				since = r.engine.clock.Now()
			}
		case err != nil && ctx.Err() == nil:
			// Everything is rendered by now, or nothing is known about it.
			missing = nil
		}

		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		for _, change := range changes {
			r.engine.emit(cluster.Event{
				Kind: cluster.EventNodeStep, Component: cluster.Manifests, Step: cluster.StepApply, Text: string(change.Action) + " " + change.Object,
			})
		}

		if options.Incomplete && missing != nil {
			r.engine.emit(cluster.Event{Kind: cluster.EventWarning, Component: cluster.Manifests, Text: "the bootstrap manifests were synced without some of them: " + missing.Error()})
		}

		return true, "", nil
	})

	var waited *say.WaitError
	if errors.As(err, &waited) && missing != nil {
		return &incompleteError{error: err, missing: missing}
	}

	return err
}

// incompleteError is the error of a wait that ended because a manifest was never rendered.
type incompleteError struct {
	error

	missing error
}

func (i *incompleteError) Unwrap() []error { return []error{i.error, i.missing} }

// renders returns the control plane whose manifests are applied, and how. Held ones are skipped, because they may
// render old manifests.
func (r *run) renders(observed cluster.Observation) (cluster.Node, cluster.ManifestOptions, string) {
	policy := r.request.Policy.Kubernetes.Manifests

	// The oldest Talos in the cluster decides, as it does for talosctl.
	lowest, _ := observed.TalosVersions()
	serverSide := lowest.AtLeast(1, 13)
	options := cluster.ManifestOptions{ServerSide: serverSide, Prune: policy.Prune && serverSide, Force: policy.Force, Exclude: policy.Exclude}

	if observed.KubernetesError != nil {
		return cluster.Node{}, options, "the Kubernetes API does not answer: " + observed.KubernetesError.Error()
	}

	var chosen *cluster.Node

	for _, node := range observed.ControlPlanes() {
		if node.Machine == nil {
			continue
		}

		options.Also = append(options.Also, node.Address)

		if r.policy().Holds(node.Name) {
			continue
		}

		// One that renders kube-proxy is preferred.
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

// unasked says which control plane does not answer: what only that one renders must not be pruned.
func unasked(observed cluster.Observation) string {
	for _, node := range observed.ControlPlanes() {
		if node.Machine == nil {
			return fmt.Sprintf("%s does not answer, and what it alone renders must not be pruned", node.Name)
		}
	}

	return ""
}

func rendersProxy(node cluster.Node) bool {
	return node.Machine.Config != nil && !node.Machine.Config.Disabled[cluster.Proxy]
}

// manifestRights says what to do if the kubeconfig may not sync manifests.
const manifestRights = "Use a kubeconfig that may get, create, update, patch and, with prune or force, delete the manifests that Talos renders, cluster roles included, such as an administrator's; " +
	"or set kubernetes.manifests.sync = false, which leaves the manifests to you."

// errNoConnection is returned if only the Talos API of the cluster can be reached.
var errNoConnection = errors.New("there is no connection to the Kubernetes API")

func (r *run) manifestFailure(ctx context.Context, step plan.Step, err error, applied bool) *say.Failure {
	manifests := "the bootstrap manifests"
	if !step.From.Equal(step.To) {
		manifests += " of Kubernetes " + step.To.String()
	}

	failed := &say.Failure{
		Summary: "Unable to sync " + manifests, Component: cluster.Manifests, Seen: err.Error(),
		State:  "The nodes that were upgraded run their new versions. Manifests that were applied stay applied; the journal remembers that the sync has to be finished.",
		Remedy: say.ResumeRemedy, Err: errors.Join(say.ErrManifests, err),
	}

	switch {
	case errors.Is(err, say.ErrLeaseLost), errors.Is(cluster.Ended(ctx), say.ErrLeaseLost):
		failed.Remedy = say.LostRemedy(errors.Join(cluster.Ended(ctx), err))
	case ctx.Err() != nil:
		failed.Summary = "The upgrade was cancelled while " + manifests + " were being synced"
		failed.Seen = say.Interrupted(context.Cause(ctx), manifestActivity(applied), err)
	case applied && !errors.Is(err, cluster.ErrDenied) && !errors.Is(err, cluster.ErrCredentials):
		failed.Summary = "Unable to finish the rollout of " + manifests
		failed.Remedy = "Look at what does not come up (kubectl -n kube-system get pods -o wide), bring back nodes that are not Ready (delete Node objects only of machines that are gone for good), " +
			"then run terraform apply again. " +
			"A longer kubernetes.manifests.timeout gives it more time, and \"0s\" does not wait for it."
	case errors.Is(err, cluster.ErrDenied), errors.Is(err, cluster.ErrCredentials):
		failed.Remedy = manifestRights + " Then run terraform apply again."
	case errors.Is(err, cluster.ErrIncomplete):
		failed.Remedy = "Look at why the control planes do not render them (talosctl get extramanifestsconfig, talosctl dmesg), then run terraform apply again. " +
			"kubernetes.manifests.prune = false syncs without them, kubernetes.manifests.sync = false leaves the manifests to you."
	case errors.Is(err, cluster.ErrRefused):
		failed.Remedy = "Correct what it names, then run terraform apply again. If an immutable field changed, kubernetes.manifests.force = true deletes the object, with all that belongs to it such as the objects of a CRD, and creates it again. " +
			"kubernetes.manifests.sync = false leaves the manifests to you."
	}

	return failed
}

// manifestActivity returns what was being done with the manifests: it completes "while".
func manifestActivity(applied bool) string {
	if applied {
		return "waiting for the bootstrap manifests to be rolled out"
	}

	return "the bootstrap manifests were being applied"
}

// maxRolloutLooks is how often visible progress extends the time for a rollout: enough for a thousand nodes with
// two pods each, but not for pods that flap for ever.
const maxRolloutLooks = 2000

// awaitDaemonSets waits until what was applied runs everywhere, if the policy has a timeout for that. Pods of a
// DaemonSet are replaced one after the other, so the timeout starts again with each progress.
func (r *run) awaitDaemonSets(ctx context.Context, step plan.Step) error {
	timeout := r.request.Policy.Kubernetes.Manifests.Timeout
	if timeout <= 0 {
		return nil
	}

	r.engine.emit(cluster.Event{Kind: cluster.EventNodeStep, Component: cluster.Manifests, Step: cluster.StepRollout})

	seen, standing, last := map[string]bool{}, false, ""

	for again := maxRolloutLooks; ; again-- {
		bounded, cancel := r.engine.clock.WithTimeout(ctx, timeout)
		moved := false

		err := r.engine.wait(bounded, "", "the bootstrap manifests to be rolled out", func(ctx context.Context) (bool, string, error) {
			lacking, answered, err := r.notRolledOut(ctx, step)
			if err != nil || !answered {
				return false, lacking, err
			}

			// A state that was seen before is no progress: otherwise a flapping pod would extend the wait without
			// end.
			moved = standing && !seen[lacking]
			seen[lacking], standing, last = true, true, lacking

			return lacking == "" || moved, lacking, nil
		})

		cancel()

		if err != nil || !moved || seen[""] {
			return err
		}

		if again == 0 || r.deadlinePassed() {
			return fmt.Errorf("the bootstrap manifests are still being rolled out: %w; last seen: %s", say.ErrDeadline, last)
		}
	}
}

// notRolledOut says what is not rolled out yet; empty if everything is.
func (r *run) notRolledOut(ctx context.Context, step plan.Step) (text string, answered bool, err error) {
	observed, err := r.observe(ctx, inquiry{proxies: true, machines: runsControlPlane, others: true})
	if err != nil {
		return err.Error(), false, permanentOnly(err)
	}

	renderer, options, missing := r.renders(observed)
	if missing != "" {
		return missing, false, nil
	}

	unready, err := r.engine.manifests.Unready(ctx, renderer.Address)
	if err != nil {
		return err.Error(), false, permanentOnly(err)
	}

	// What the sync excludes is not waited for either.
	unready = slices.DeleteFunc(unready, func(text string) bool {
		object, _, _ := strings.Cut(text, ": ")

		return options.Excludes(object)
	})

	unready = append(unready, r.oldProxies(observed, step)...)
	if away := notReady(observed); len(unready) > 0 && len(away) > 0 {
		unready = append(unready, "a rollout that replaces one pod at a time waits for nodes that are not Ready: "+strings.Join(away, ", "))
	}

	return strings.Join(unready, "; "), true, nil
}

func notReady(observed cluster.Observation) []string {
	var away []string

	for _, node := range observed.Managed() {
		if node.Kube != nil && !node.Kube.Ready {
			away = append(away, node.Name)
		}
	}

	return away
}

// oldProxies returns the nodes on which kube-proxy is older than the target of the hop; none if only Talos was
// moved. Nodes that are not Ready, or held, are not expected to follow; the wait for the rollout does not expect it of
// those that are not Ready either.
func (r *run) oldProxies(observed cluster.Observation, step plan.Step) []string {
	var old []string

	for _, node := range observed.Managed() {
		running, known := node.Versions[cluster.Proxy]
		if !known || !running.Less(step.To) || step.From.Equal(step.To) {
			continue
		}

		if node.Kube != nil && node.Kube.Ready && !r.policy().Holds(node.Name) {
			old = append(old, fmt.Sprintf("kube-proxy on %s runs %s", node.Name, running))
		}
	}

	return old
}
