// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// downloads returns the images by node, in the order in which the nodes move. Nodes in the middle of their
// upgrade pull no installer, because they may be down and are examined first. All images are pulled through the
// API of the version that the node runs now, including those for later hops.
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
		if step.Component != "" || step.MovesLater {
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

// prepareImages has the nodes of provingDownloads pull the images of all hops before any node is disturbed, which
// proves that all nodes can get them: an image that one of them cannot get stops the run here. The other nodes
// pull ahead of their turn. Installers are pulled onto the disks, which have room for those of all hops, and once
// more, into memory, before they are installed. The nodes that go first pull into memory at once.
func (r *run) prepareImages(ctx context.Context, observed cluster.Observation, made plan.Plan) error {
	proofs := provingDownloads(observed, made, downloads(observed, made), r.parallelPulls(made))
	first := nextInstalls(made, nil, max(made.Budget, 1))

	for index, one := range proofs {
		at := slices.IndexFunc(first, func(next download) bool { return next.node == one.node })
		if at >= 0 {
			proofs[index].toInstall = first[at].toInstall
		}
	}

	findings := make([]*cluster.Finding, len(proofs))

	var group errgroup.Group

	group.SetLimit(r.parallelPulls(made))

	for index, one := range proofs {
		group.Go(func() error {
			if ctx.Err() == nil {
				findings[index] = r.fetch(ctx, one)
			}

			// A pull that was cut off says nothing about the node.
			if ctx.Err() == nil {
				r.ahead.prove(one)
				r.engine.emit(pulled(one, findings[index]))
			}

			return nil
		})
	}

	_ = group.Wait()

	if ctx.Err() != nil {
		return r.stopped(ctx, "while images were being pulled; no node was disturbed")
	}

	return pullFailure(r.request.Target, findings)
}

// provingDownloads returns the downloads of every control plane and every canary, and of one node of each kind:
// one stands for all nodes that pull the same images with the same version of Talos and the same configuration of
// registries. A node whose configuration cannot be read stands only for itself. If these are fewer than together,
// other nodes are added, which takes no longer and gives a small cluster all of its images before it begins.
func provingDownloads(observed cluster.Observation, made plan.Plan, all []download, together int) []download {
	var proofs, rest []download

	canaries := made.Policy.Canaries()
	seen := map[string]bool{}

	for _, one := range all {
		node, _ := observed.Node(one.node)
		kind := kindOf(node, one)

		if kind != "" && seen[kind] && node.Role != cluster.ControlPlane && !slices.Contains(canaries, one.node) {
			rest = append(rest, one)

			continue
		}

		seen[kind] = true
		proofs = append(proofs, one)
	}

	return append(proofs, rest[:min(len(rest), max(together-len(proofs), 0))]...)
}

// kindOf returns what decides whether a node gets its images; empty if that is unknown.
func kindOf(node cluster.Node, one download) string {
	if node.Machine == nil || node.Machine.Config == nil {
		return ""
	}

	images := one.references()
	slices.Sort(images)

	return strings.Join(append(images, string(node.Role), node.Machine.Talos.String(), node.Machine.Config.Registries), "\n")
}

// How many nodes pull at a time if the policy does not say: as many as may be unavailable, so that the next nodes
// are ready when these are back. A pull takes less time than an upgrade, and more than the restart of a kubelet;
// and a registry has to serve all of them.
const (
	leastParallelPulls = 5
	mostParallelPulls  = 50
	pullsPerKubelet    = 3
	// mostKubeletPulls bounds the pulls if many kubelets may restart at a time.
	mostKubeletPulls = 200
)

// parallelPulls returns how many nodes pull at a time.
func (r *run) parallelPulls(made plan.Plan) int {
	if asked := r.request.Policy.ParallelPulls; asked > 0 {
		return asked
	}

	wanted := min(max(leastParallelPulls, made.Budget), mostParallelPulls)
	if !slices.ContainsFunc(made.Steps, func(step plan.Step) bool { return step.Component != "" }) {
		return wanted
	}

	return max(wanted, min(pullsPerKubelet*made.KubeletBudget, mostParallelPulls), min(made.KubeletBudget, mostKubeletPulls))
}

// pullAtTurn has a node pull when its turn has come, within the deadline of the run. It returns permit.ErrStopped
// if the deadline passes first.
func (r *run) pullAtTurn(ctx context.Context, node, reference string, pull func(context.Context) error) error {
	if r.request.Deadline == 0 {
		return r.ahead.atTurn(ctx, node, reference, pull)
	}

	bounded, cancel := r.engine.clock.WithTimeout(ctx, max(r.request.Deadline-r.engine.clock.Now().Sub(r.since), time.Second))
	defer cancel()

	err := r.ahead.atTurn(bounded, node, reference, pull)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", permit.ErrStopped, say.ErrDeadline)
	}

	return err
}

// pullProxies pulls the image of kube-proxy onto the nodes that do not run it yet, before the manifests require
// it on all of them.
func (r *run) pullProxies(ctx context.Context, observed cluster.Observation, made plan.Plan) error {
	var group errgroup.Group

	nodes := slices.DeleteFunc(observed.Managed(), func(node cluster.Node) bool { return node.Machine == nil || slices.Contains(made.Held, node.Name) })
	findings := make([]*cluster.Finding, len(nodes))

	group.SetLimit(r.parallelPulls(made))

	for index, node := range nodes {
		wanted := proxyFor(observed, node)
		if len(wanted) == 0 {
			continue
		}

		group.Go(func() error {
			if r.ahead.has(ctx, node.Name, wanted[0].image) {
				return nil
			}

			one := download{node: node.Name, address: node.Address, parts: wanted}

			if ctx.Err() == nil {
				findings[index] = r.fetch(ctx, one)
			}

			if ctx.Err() == nil {
				r.engine.emit(pulled(one, findings[index]))
			}

			return nil
		})
	}

	_ = group.Wait()

	if ctx.Err() != nil {
		return r.stopped(ctx, "while the image of kube-proxy was being pulled")
	}

	err := pullFailure(r.request.Target, findings)

	var failure *say.Failure
	if errors.As(err, &failure) {
		// The state of the cluster is known when the run has ended.
		failure.Component, failure.State = cluster.Manifests, ""
	}

	return err
}

// fetch has one node pull all of its images, and stops at the first that it cannot get.
func (r *run) fetch(ctx context.Context, one download) *cluster.Finding {
	refused := func(check, reference string, err error) *cluster.Finding {
		return &cluster.Finding{
			Check: check, Severity: cluster.Observed, Node: one.node, Err: err,
			Found: say.Unpulled(reference, err),
		}
	}

	for _, reference := range one.images {
		bring := r.pullOntoDisk
		if reference == one.toInstall {
			bring = r.pullToInstall
		}

		if err := bring(ctx, one.step, reference); err != nil {
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

// pullFailure returns the failure about the findings that are not nil; nil if there are none.
func pullFailure(target cluster.Target, findings []*cluster.Finding) error {
	var failed []cluster.Finding

	for _, finding := range findings {
		if finding != nil {
			failed = append(failed, *finding)
		}
	}

	if len(failed) == 0 {
		return nil
	}

	failure := &say.Failure{
		Summary:  fmt.Sprintf("Unable to pull the installer images for Talos %s", target.Talos),
		Node:     failed[0].Node,
		Findings: together(failed),
		State:    "No node was disturbed.",
		Remedy:   say.PullRemedy(failed[0].Err),
		Err:      errors.Join(say.Causes(failed)...),
	}

	if failed[0].Check == checkImages {
		failure.Summary = fmt.Sprintf("Unable to pull the images for Kubernetes %s", target.Kubernetes)
		failure.Component = cluster.Kubelet
	}

	return failure
}

// together merges findings that differ only in their nodes.
func together(findings []cluster.Finding) []cluster.Finding {
	var (
		merged []cluster.Finding
		nodes  [][]string
	)

	for _, finding := range findings {
		index := slices.IndexFunc(merged, func(one cluster.Finding) bool { return one.Check == finding.Check && one.Found == finding.Found })
		if index < 0 {
			merged, nodes = append(merged, finding), append(nodes, []string{finding.Node})

			continue
		}

		nodes[index] = append(nodes[index], finding.Node)
		merged[index].Err = errors.Join(merged[index].Err, finding.Err)
	}

	for index, names := range nodes {
		if len(names) > 1 {
			merged[index].Node = ""
			merged[index].Found = readable.List(names) + ": " + merged[index].Found
		}
	}

	return merged
}

// pullOntoDisk has one node prove that it can get an image; this is cheap if the image is already there.
func (r *run) pullOntoDisk(ctx context.Context, step plan.Step, reference string) error {
	r.engine.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: step.Node, Step: cluster.StepPull, Text: reference})

	return r.repeated(ctx, step.Node, reference, func(ctx context.Context) error {
		return r.engine.talos.Pull(ctx, step.Address, reference, step.API)
	})
}

// pullToInstall has one node pull the image that it installs next; this is cheap if the image is already there.
// With the legacy API, the upgrade itself pulls into memory.
func (r *run) pullToInstall(ctx context.Context, step plan.Step, reference string) error {
	if step.API == cluster.LegacyAPI {
		return r.pullOntoDisk(ctx, step, reference)
	}

	r.engine.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: step.Node, Step: cluster.StepPull, Text: reference})

	return r.repeated(ctx, step.Node, reference, func(ctx context.Context) error {
		return r.engine.talos.PullToInstall(ctx, step.Address, reference)
	})
}

// parts returns the images of components that nodes pull before anything is restarted, by the name of the node.
// The image of kube-proxy is needed on all nodes, although only control planes have a step for it.
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

// pullComponent has one node pull one image; this is cheap if the image is already there.
func (r *run) pullComponent(ctx context.Context, node, address string, component cluster.Component, image string) error {
	r.engine.emit(cluster.Event{Kind: cluster.EventNodeStep, Node: node, Component: component, Step: cluster.StepPull, Text: image})

	return r.repeated(ctx, node, image, func(ctx context.Context) error {
		return r.engine.talos.PullComponent(ctx, address, component, image)
	})
}

// maxBackoff bounds the pause between two attempts, however many there were.
const maxBackoff = 5 * time.Minute

// backoff returns the pause before an attempt, counted from 1; there is none before the first.
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

// pullTimeout is how long a pull that may heal is retried whatever the policy says: from Talos 1.14 on a node
// tries only once, and a registry that briefly limits its clients must not end a run.
const pullTimeout = 5 * time.Minute

// pullPause is the shortest pause before an attempt beyond those of the policy.
const pullPause = 10 * time.Second

// repeated retries a pull that failed in a way that may heal: as often as the policy allows, and beyond that
// until [pullTimeout] has passed, within the time that one image may take.
func (r *run) repeated(ctx context.Context, node, image string, do func(context.Context) error) error {
	bounded, cancel := r.engine.clock.WithTimeout(ctx, cluster.PullTimeout)
	defer cancel()

	repeat := r.request.Policy.Repeat
	begun := r.engine.clock.Now()

	for attempt := 1; ; attempt++ {
		err := do(bounded)
		if err == nil || !cluster.Heals(err) || bounded.Err() != nil {
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

// download is what one node pulls before anything is disturbed: one installer image for each hop of Talos that
// concerns it, and the images of its components for each hop of Kubernetes.
type download struct {
	node, address string
	// step is the first step of the node in Talos, if it has one.
	step   plan.Step
	images []string
	parts  []part
	// toInstall is the one of images that is installed soon; empty if none is.
	toInstall string
}

// references returns all images that the node pulls.
func (d download) references() []string {
	references := slices.Clone(d.images)
	for _, part := range d.parts {
		references = append(references, part.image)
	}

	return references
}

// key identifies the node and what it pulls.
func (d download) key() string {
	return strings.Join(append([]string{d.node}, d.references()...), "\n")
}

// part is the image of one component.
type part struct {
	component cluster.Component
	image     string
}

// proxyFor returns the image of kube-proxy that the manifests will have a node run, if it runs another one; none
// if no configuration names one.
func proxyFor(observed cluster.Observation, node cluster.Node) []part {
	for _, renderer := range observed.ControlPlanes() {
		if renderer.Machine == nil || renderer.Machine.Config == nil {
			continue
		}

		named := renderer.Machine.Config.Images[cluster.Proxy]
		if pod, runs := node.Pods[cluster.Proxy]; named != "" && !health.Disables(renderer, cluster.Proxy) && (!runs || pod.Image != named) {
			return []part{{component: cluster.Proxy, image: named}}
		}

		return nil
	}

	return nil
}

// pulled returns the event about a node that has pulled its images, or about the finding why it could not.
func pulled(one download, failed *cluster.Finding) cluster.Event {
	event := cluster.Event{Kind: cluster.EventPulled, Node: one.node}

	switch {
	case failed != nil:
		event.Text, event.Err = failed.Found, failed.Err
	case one.step.API == cluster.LegacyAPI && len(one.images) > 0:
		event.Text = "the node reaches the registry; its upgrade downloads the image once more, into its memory"
	case one.toInstall == "" && len(one.images) > 0:
		event.Text = "the node reaches the registry; it downloads the image once more, into its memory, when its turn comes"
	}

	return event
}

// ahead has the nodes whose turn comes next pull their images while others reboot.
type ahead struct {
	engine *Engine
	// fetch has a node pull; it returns nil if the node got all of its images.
	fetch func(context.Context, download) *cluster.Finding
	// noMoreStarts returns why no further pull may begin.
	noMoreStarts func() error
	// slots bounds the nodes that pull at a time.
	slots chan struct{}
	// group waits for the pulls in progress, and for the goroutine that serves the queue.
	group sync.WaitGroup

	mu sync.Mutex
	// queue are the downloads that come next. One goroutine serves it while it is not empty, so that a node whose
	// turn has come waits for at most one of them.
	queue   []download
	serving bool
	// begun are the pulls, by node and images; each channel is closed when its pull has ended.
	begun map[string]chan struct{}
	// have is when a node pulled an image ahead, by node and image; proven are the images that were pulled before
	// the first cordon and need not be pulled again.
	have   map[string]time.Time
	proven map[string]bool
}

func newAhead(e *Engine, fetch func(context.Context, download) *cluster.Finding, noMoreStarts func() error) *ahead {
	return &ahead{engine: e, fetch: fetch, noMoreStarts: noMoreStarts, begun: map[string]chan struct{}{}, have: map[string]time.Time{}, proven: map[string]bool{}}
}

// prepare sets how many nodes pull at a time.
func (a *ahead) prepare(parallel int) {
	if a.slots == nil {
		a.slots = make(chan struct{}, parallel)
	}
}

// aheadFactor is how far ahead nodes pull what they install, in multiples of the nodes that may be unavailable,
// because the images are kept in memory.
const aheadFactor = 2

// begin replaces the queue with the next nodes of the plan that are not among the running steps. The pulls end
// with the context.
func (a *ahead) begin(ctx context.Context, observed cluster.Observation, made plan.Plan, running []plan.Step) {
	next := nextInstalls(made, running, aheadFactor*max(made.Budget, 1))

	a.serve(ctx, append(next, nextKubelets(observed, made, running)...))
}

// nextKubelets returns the downloads of all nodes whose kubelets are to be replaced in parallel in this hop, in
// order. All of them may pull, because images of components are kept on disk, and the control planes take longer
// than all these pulls.
func nextKubelets(observed cluster.Observation, made plan.Plan, running []plan.Step) []download {
	var next []download

	proxy := slices.IndexFunc(made.Steps, func(step plan.Step) bool { return step.Component == cluster.Proxy && step.Image != "" })

	for _, step := range made.Steps {
		switch {
		case step.Hop != made.Steps[0].Hop:
			return next
		case step.Component != cluster.Kubelet || step.Image == "" || !step.Parallel():
			continue
		case slices.ContainsFunc(running, func(busy plan.Step) bool { return busy.Node == step.Node }):
			continue
		}

		node, _ := observed.Node(step.Node)
		wanted := []part{{component: step.Component, image: step.Image}}

		// Until the control planes name the image, the plan does.
		if proxy >= 0 {
			wanted = append(wanted, part{component: cluster.Proxy, image: made.Steps[proxy].Image})
		} else {
			wanted = append(wanted, proxyFor(observed, node)...)
		}

		next = append(next, download{node: step.Node, address: step.Address, parts: wanted})
	}

	return next
}

// nextInstalls returns the downloads of the next nodes of the plan that install Talos and are not running, at
// most the given number, and at most one of those that are upgraded alone.
func nextInstalls(made plan.Plan, running []plan.Step, most int) []download {
	var next []download

	for _, step := range made.Steps {
		alone := !step.Parallel() && slices.ContainsFunc(next, func(one download) bool { return !one.step.Parallel() })

		switch {
		case len(next) == most || step.Hop != made.Steps[0].Hop:
			return next
		case alone || step.Component != "" || step.Finish || step.API == "" || step.Image == "":
		case slices.ContainsFunc(running, func(busy plan.Step) bool { return busy.Node == step.Node }):
		default:
			next = append(next, download{node: step.Node, address: step.Address, step: step, images: []string{step.Image}, toInstall: step.Image})
		}
	}

	return next
}

// stop empties the queue.
func (a *ahead) stop() { a.serve(context.Background(), nil) }

// serve replaces the queue, and starts the goroutine that serves it.
func (a *ahead) serve(ctx context.Context, next []download) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.queue = next
	if a.serving || len(next) == 0 {
		return
	}

	a.serving = true

	a.group.Go(func() {
		for {
			select {
			case a.slots <- struct{}{}:
			case <-ctx.Done():
			}

			one, done, found := a.take(ctx)
			if !found {
				return
			}

			a.group.Go(func() {
				defer func() { <-a.slots }()
				defer close(done)

				a.pull(ctx, one)
			})
		}
	})
}

// take returns the next download that has not begun or been proven; none if no further pull may begin. In that
// case the slot is free again.
func (a *ahead) take(ctx context.Context) (one download, done chan struct{}, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for len(a.queue) > 0 && ctx.Err() == nil && a.noMoreStarts() == nil {
		one, a.queue = a.queue[0], a.queue[1:]

		if _, told := a.begun[one.key()]; !told && !a.provenLocked(one) {
			done = make(chan struct{})
			a.begun[one.key()] = done

			return one, done, true
		}
	}

	a.serving, a.queue = false, nil

	if ctx.Err() == nil {
		<-a.slots
	}

	return download{}, nil, false
}

// pull has one node pull. An image that it cannot get is tried again when its turn comes, and fails its upgrade
// only then.
func (a *ahead) pull(ctx context.Context, one download) {
	failed := a.fetch(ctx, one)
	if ctx.Err() != nil {
		return
	}

	a.engine.emit(pulled(one, failed))

	if failed != nil {
		a.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: one.node, Err: failed.Err, Text: fmt.Sprintf(
			"%s %s ahead of its turn; it is tried again then", one.node, failed.Found)})

		return
	}

	a.note(one)
}

// prove records a node that has pulled before the first cordon. An installer that was only pulled onto the disk
// does not count, because it is pulled into memory later, unless the legacy upgrade does that itself. The images
// of components count as pulled ahead, too.
func (a *ahead) prove(one download) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, reference := range one.references() {
		if reference != one.toInstall && one.step.API != cluster.LegacyAPI && slices.Contains(one.images, reference) {
			continue
		}

		a.proven[one.node+"\n"+reference] = true
	}

	for _, component := range one.parts {
		a.have[one.node+"\n"+component.image] = a.engine.clock.Now()
	}
}

// provenLocked reports whether a node has pulled all of it before the first cordon. The caller holds the lock.
func (a *ahead) provenLocked(one download) bool {
	return !slices.ContainsFunc(one.references(), func(reference string) bool { return !a.proven[one.node+"\n"+reference] })
}

// note records a node that has pulled ahead.
func (a *ahead) note(one download) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, reference := range one.references() {
		a.have[one.node+"\n"+reference] = a.engine.clock.Now()
	}
}

// keptFor is how long a node certainly keeps what it has pulled: Talos removes images that were not used for an
// hour.
const keptFor = 20 * time.Minute

// atTurn has a node whose turn has come pull, within the limit of parallel pulls, unless it has recently pulled
// ahead.
func (a *ahead) atTurn(ctx context.Context, node, reference string, pull func(context.Context) error) error {
	a.leave(node)

	if a.has(ctx, node, reference) {
		return nil
	}

	a.mu.Lock()
	there := a.proven[node+"\n"+reference]
	a.mu.Unlock()

	// Checking an image that was pulled before takes only a moment, and no slot.
	if there {
		return pull(ctx)
	}

	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()

		return pull(ctx)
	case <-ctx.Done():
		return cluster.Ended(ctx)
	}
}

// leave removes a node whose turn has come from the queue.
func (a *ahead) leave(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.queue = slices.DeleteFunc(a.queue, func(one download) bool { return one.node == node })
}

// has waits until the node pulls nothing ahead, and reports whether it certainly has the image.
func (a *ahead) has(ctx context.Context, node, reference string) bool {
	ended := a.await(ctx, node, reference)

	return !ended.IsZero() && a.engine.clock.Now().Sub(ended) < keptFor
}

// await waits until the node pulls nothing ahead, so that it does not pull twice at the same time. It returns
// when the node pulled the image ahead; zero if it has not.
func (a *ahead) await(ctx context.Context, node, reference string) (ended time.Time) {
	a.mu.Lock()

	var under []chan struct{}

	for key, done := range a.begun {
		if name, _, _ := strings.Cut(key, "\n"); name == node {
			under = append(under, done)
		}
	}

	a.mu.Unlock()

	for _, done := range under {
		select {
		case <-done:
		case <-ctx.Done():
			return time.Time{}
		}
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	return a.have[node+"\n"+reference]
}
