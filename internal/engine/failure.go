// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// ended returns what matters to a person about the upgrade, as it ended.
func (u *nodeUpgrade) ended(ctx context.Context) say.Node {
	return say.Node{
		Step: u.step, Entry: u.entry, Open: u.recorded(), MayHaveInstalled: u.mayHaveInstalled(), Rebooted: u.rebooted(), InService: u.phase == inService,
		Cordoned: u.cordoned, Runs: u.result.runs, NotSentBack: u.result.rollbackSkipReason, At: u.at, Waits: u.waits, Ended: context.Cause(ctx),
	}
}

// failure returns why the upgrade ended, with what the node reports about it.
func (u *nodeUpgrade) failure(ctx context.Context, err error) *say.Failure {
	left := u.ended(ctx)
	left.Excerpts, left.Stored = u.excerpts(ctx, err), u.storedImage(ctx, err)

	return left.Failure(err)
}

// rollbackFailure returns why a rollback that a person asked for ended.
func (u *nodeUpgrade) rollbackFailure(ctx context.Context, err error) *say.Failure {
	var held *permit.LeftError
	if errors.As(err, &held) {
		return rollbackSuspended(u.step.Node, held.Why)
	}

	return u.ended(ctx).RollbackFailure(err)
}

// rollbackSuspended returns the refusal of a rollback while the upgrades are suspended.
func rollbackSuspended(node, why string) *say.Failure {
	return say.Undisturbed(&say.Failure{
		Summary: "Unable to roll back node " + node, Seen: say.Sentence(why), State: "No node was disturbed.",
		Remedy: "Ask whoever suspended them. When they may go on (" + resumeSuspended + "), run the rollback again.", Err: say.ErrSuspended,
	})
}

// storedImage returns what the node has under the tag of an image whose upgrade failed; nil if that does not
// matter, or is unknown.
func (u *nodeUpgrade) storedImage(ctx context.Context, err error) *say.StoredImage {
	failed := errors.Is(err, say.ErrInstaller) || errors.Is(err, say.ErrFallback) || errors.Is(err, say.ErrRolledBack) || errors.Is(err, say.ErrExtensions) || errors.Is(err, cluster.ErrNoInstaller)
	if ctx.Err() != nil || !failed {
		return nil
	}

	if _, tag, malformed := image.Split(u.entry.Image); malformed != nil || tag == "" {
		return nil
	}

	bounded, cancel := u.run.engine.cleanupContext(ctx)
	defer cancel()

	digest, err := u.run.engine.talos.ImageDigest(bounded, u.step.Address, u.entry.Image)
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return nil
	}

	return &say.StoredImage{Digest: digest}
}

// The services whose logs say why a node, or a component on it, is not healthy.
const (
	serviceMachined = "machined"
	serviceKubelet  = "kubelet"
)

// maxExcerptLines is how many lines of a log a message shows at most.
const maxExcerptLines = 12

// tailLog returns the last lines of the log of a service on a node, as far as it can be read: an error is no reason
// to say less about the rest.
func (e *Engine) tailLog(ctx context.Context, address, service string) []string {
	lines, _ := e.talos.Logs(ctx, address, service, maxExcerptLines)

	return lines
}

// excerpts returns what the installer and the node report about an upgrade that failed. If the upgrade was cut off,
// the node is not asked, because its log explains nothing.
func (u *nodeUpgrade) excerpts(ctx context.Context, err error) []say.Excerpt {
	var found []say.Excerpt

	var installer *say.InstallerError
	if errors.As(err, &installer) && len(installer.Output) > 0 {
		found = append(found, say.Excerpt{Source: "the installer on " + u.step.Node, Lines: installer.Output})
	}

	if ctx.Err() != nil || !u.speaks(err) {
		return found
	}

	bounded, cancel := u.run.engine.cleanupContext(ctx)
	defer cancel()

	words := u.result.logTail
	if len(words) == 0 {
		words = u.run.engine.tailLog(bounded, u.step.Address, serviceMachined)
		found = append(found, u.run.engine.tailPods(bounded, u.step)...)
	}

	if len(words) > 0 {
		found = append(found, say.Excerpt{Source: "the log of machined on " + u.step.Node, Lines: words})
	}

	return found
}

// speaks reports whether the node itself is the reason why its upgrade failed.
func (u *nodeUpgrade) speaks(err error) bool {
	// The log of a boot that failed is gone with it.
	if errors.Is(err, say.ErrFallback) || errors.Is(err, say.ErrRolledBack) {
		return len(u.result.logTail) > 0
	}

	for _, own := range []error{say.ErrInstaller, say.ErrUnhealthy, say.ErrNeverReturned} {
		if errors.Is(err, own) {
			return true
		}
	}

	// It runs the new system and did not get back into service with it.
	return u.recorded() && u.rebooted() && !u.result.runs.IsZero() && u.result.runs.Equal(u.entry.Target) && !errors.Is(err, say.ErrLeaseLost)
}

// tailPods returns the last lines of the containers of those static pods of a control plane that are not Ready. If
// the Kubernetes API does not answer, only the API server of the node matters.
func (e *Engine) tailPods(ctx context.Context, step plan.Step) []say.Excerpt {
	if step.Role != cluster.ControlPlane {
		return nil
	}

	pods, err := e.kubernetes.StaticPods(ctx, step.Node)
	if err != nil {
		pods = []cluster.ComponentPod{{Node: step.Node, Component: cluster.APIServer}}
	}

	var found []say.Excerpt

	for _, pod := range pods {
		if pod.Ready {
			continue
		}

		lines, err := e.talos.Logs(ctx, step.Address, cluster.ContainerLog(pod.Component, pod.Node), maxExcerptLines)
		if err != nil && !errors.Is(err, cluster.ErrNotFound) {
			break
		}

		if len(lines) > 0 {
			found = append(found, say.Excerpt{Source: fmt.Sprintf("the log of %s on %s", pod.Component, pod.Node), Lines: lines})
		}
	}

	return found
}
