// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ cluster.BootstrapManifests = (*Client)(nil)

// AddOldObject adds an object, as "Kind/namespace/name", that an earlier sync
// applied and that Talos does not render any more.
func (c *Cluster) AddOldObject(object string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.workloads.old = append(c.workloads.old, object)
}

// Objects are the images of the objects in the cluster that Talos renders, by
// their names; those that it does not render any more have none.
func (c *Cluster) Objects() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()

	objects := map[string]string{}
	for _, old := range c.workloads.old {
		objects[old] = ""
	}

	for name, image := range map[string]string{objectProxy: c.workloads.proxy, objectCoreDNS: c.workloads.coreDNS} {
		if image != "" {
			objects[name] = image
		}
	}

	return objects
}

// Diff implements [cluster.BootstrapManifests].
func (c *Client) Diff(
	ctx context.Context, address string, options cluster.ManifestOptions,
) (changes []cluster.ManifestChange, err error) {
	err = c.look(ctx, "Diff", address, func() error {
		rendering, err := c.rendering(ctx, address)
		if err == nil {
			changes = c.cluster.manifestChanges(rendering, options)
		}

		return err
	})

	return changes, err
}

// Apply implements [cluster.BootstrapManifests].
func (c *Client) Apply(
	ctx context.Context, address string, options cluster.ManifestOptions,
) (changes []cluster.ManifestChange, err error) {
	err = c.request(ctx, "Apply", address, func(ctx context.Context) error {
		rendering, err := c.rendering(ctx, address)
		if err == nil {
			changes = c.cluster.applyManifests(c.name, rendering, options)
		}

		return err
	})
	if err != nil {
		return nil, err
	}

	return changes, nil
}

// Unready implements [cluster.BootstrapManifests].
func (c *Client) Unready(ctx context.Context, address string) (lacking []string, err error) {
	err = c.look(ctx, "Unready", address, func() error {
		rendering, err := c.rendering(ctx, address)
		if err == nil {
			lacking = c.cluster.unready(rendering)
		}

		return err
	})

	return lacking, err
}

// rendering is the state of the control plane whose manifests count.
func (c *Client) rendering(ctx context.Context, address string) (state model.NodeState, err error) {
	what := "read the manifests of " + address

	err = c.ask(ctx, what, func(ctx context.Context) error {
		state, err = c.cluster.world.Observe(ctx, address, "resources")
		if err == nil && state.Role != model.ControlPlane {
			return fmt.Errorf("%w: workers render no manifests", cluster.ErrNotFound)
		}

		return err
	})

	return state, err
}

// manifestChanges is what a sync changes.
func (c *Cluster) manifestChanges(rendering model.NodeState, options cluster.ManifestOptions) []cluster.ManifestChange {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.changes(rendering, options)
}

func (c *Cluster) changes(rendering model.NodeState, options cluster.ManifestOptions) []cluster.ManifestChange {
	var changes []cluster.ManifestChange

	// Only the inventory of server-side apply knows what an earlier sync did.
	prune := options.Prune && options.ServerSide

	for _, object := range []struct{ name, has, wants string }{
		{objectProxy, c.workloads.proxy, rendering.ProxyImage},
		{objectCoreDNS, c.workloads.coreDNS, rendering.CoreDNSImage},
	} {
		change := cluster.ManifestChange{Object: object.name, Diff: imageDiff(object.has, object.wants)}

		switch {
		case object.has == object.wants:
			continue
		case object.wants == "" && !prune:
			continue
		case object.wants == "":
			change.Action = cluster.ManifestPruned
		case object.has == "":
			change.Action = cluster.ManifestCreated
		default:
			change.Action = cluster.ManifestConfigured
		}

		changes = append(changes, change)
	}

	if prune {
		for _, old := range c.workloads.old {
			changes = append(changes, cluster.ManifestChange{Object: old, Action: cluster.ManifestPruned})
		}
	}

	return changes
}

func imageDiff(before, after string) string {
	var diff strings.Builder

	if before != "" {
		diff.WriteString("-        image: " + before + "\n")
	}

	if after != "" {
		diff.WriteString("+        image: " + after + "\n")
	}

	return diff.String()
}

// applyManifests brings the objects to what a control plane renders.
func (c *Cluster) applyManifests(client string, rendering model.NodeState, options cluster.ManifestOptions) []cluster.ManifestChange {
	c.mu.Lock()
	defer c.mu.Unlock()

	changes := c.changes(rendering, options)

	for _, change := range changes {
		c.recordObject(client, change, options)

		switch change.Object {
		case objectProxy:
			c.setProxy(rendering.ProxyImage)
		case objectCoreDNS:
			c.workloads.coreDNS, c.workloads.coreDNSReady = rendering.CoreDNSImage, c.now().Add(coreDNSTime)
		default:
			c.workloads.old = slices.DeleteFunc(c.workloads.old, func(old string) bool { return old == change.Object })
		}
	}

	return changes
}

// recordObject adds to the history the request that changed an object.
func (c *Cluster) recordObject(client string, change cluster.ManifestChange, options cluster.ManifestOptions) {
	parts := strings.Split(change.Object, "/")
	namespace := ""

	if len(parts) > 2 {
		namespace = parts[1]
	}

	verb := "update"

	switch {
	case change.Action == cluster.ManifestPruned:
		verb = "delete"
	case options.ServerSide:
		verb = "patch"
	case change.Action == cluster.ManifestCreated:
		verb = "create"
	}

	c.record("", history.KindWrite, map[string]string{
		"verb": verb, "resource": strings.ToLower(parts[0]) + "s", "namespace": namespace, "name": parts[len(parts)-1],
		"by": "client", "client": client, "code": "200",
	})
}

const (
	objectProxy   = "DaemonSet/kube-system/kube-proxy"
	objectCoreDNS = "Deployment/kube-system/coredns"
)

const (
	// proxyNotice is how long a change to the DaemonSet stands before its
	// controller acts on it, so that whoever made it never looks at the moment of
	// the first pod; proxyStop and proxyStart are how long a pod of kube-proxy takes
	// to go and to come; coreDNSTime is how long CoreDNS takes to be replaced.
	proxyNotice = 137 * time.Millisecond
	proxyStop   = 1319 * time.Millisecond
	proxyStart  = 3433 * time.Millisecond
	coreDNSTime = 11273 * time.Millisecond
	// rolloutPause is how often a rollout looks after a node that is away.
	rolloutPause = 1021 * time.Millisecond
)

// workloads are the objects in the API server that Talos renders.
type workloads struct {
	// proxy and coreDNS are the images of the DaemonSet and of the Deployment,
	// empty where they do not exist.
	proxy, coreDNS string
	// coreDNSReady is when the pods of CoreDNS run from its image.
	coreDNSReady time.Time
	// pods are those of kube-proxy, by node.
	pods map[string]proxyPod
	// old are objects of an earlier sync that Talos no longer renders.
	old []string
	// stop ends the rollout that is under way.
	stop context.CancelFunc
}

// proxyPod is the pod of kube-proxy on a node.
type proxyPod struct {
	image string
	// readyAt is when it runs.
	readyAt time.Time
}

// newWorkloads are the objects of a cluster as it was created.
func newWorkloads(states []model.NodeState, now time.Time) workloads {
	made := workloads{coreDNSReady: now, pods: map[string]proxyPod{}, stop: func() {}}

	for _, state := range states {
		if made.proxy == "" {
			made.proxy = state.ProxyImage
		}

		if made.coreDNS == "" {
			made.coreDNS = state.CoreDNSImage
		}
	}

	return made
}

// proxyPod is the pod on a node, if it has one; with the lock held. The model
// decides which version runs, since machines also change it by themselves.
func (c *Cluster) proxyPod(state model.NodeState) (proxyPod, bool) {
	if c.workloads.proxy == "" || c.nodes[state.Name] == nil {
		return proxyPod{}, false
	}

	pod, known := c.workloads.pods[state.Name]
	if !known {
		pod.image = c.workloads.proxy
	}

	if running := state.Components.Proxy; running != "" && running != versionOf(pod.image) {
		repository, _ := cut(pod.image)
		pod.image = repository + ":v" + running
	}

	return pod, true
}

// cut splits an image reference, without its digest; the tag may be empty.
func cut(image string) (repository, tag string) {
	named, _, _ := strings.Cut(image, "@")

	if colon := strings.LastIndexByte(named, ':'); colon > strings.LastIndexByte(named, '/') {
		return named[:colon], named[colon+1:]
	}

	return named, ""
}

// versionOf is the version in an image's tag, without v.
func versionOf(image string) string {
	_, tag := cut(image)

	return strings.TrimPrefix(tag, "v")
}

// setProxy changes the DaemonSet and rolls it out in the background; an empty
// image deletes it. With the lock held.
func (c *Cluster) setProxy(image string) {
	c.workloads.stop()
	c.workloads.proxy = image

	if image == "" {
		clear(c.workloads.pods)

		return
	}

	ctx, stop := context.WithCancel(c.life)
	c.workloads.stop = stop

	c.work.Go(func() { c.rollProxy(ctx, image) })
}

// rollProxy replaces the pods of kube-proxy one by one. As a DaemonSet does, it
// waits for a node that is away: its pod is the one that may be unavailable.
func (c *Cluster) rollProxy(ctx context.Context, image string) {
	if c.world.Clock().Sleep(ctx, proxyNotice) != nil {
		return
	}

	for {
		node, present := c.outdated(image)

		switch {
		case node == "":
			return
		case !present:
			if c.world.Clock().Sleep(ctx, rolloutPause) != nil {
				return
			}
		case !c.replaceProxy(ctx, node, image):
			return
		}
	}
}

// outdated is a node whose pod of kube-proxy has another image, one that is
// away before others.
func (c *Cluster) outdated(image string) (name string, present bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, state := range c.world.Nodes() {
		pod, found := c.proxyPod(state)

		switch {
		case !found || pod.image == image:
		case !state.Kubelet.Running:
			return state.Name, false
		case name == "":
			name, present = state.Name, true
		}
	}

	return name, present
}

// replaceProxy puts a new pod of kube-proxy onto a node, and returns when it
// runs; false when another rollout took over.
func (c *Cluster) replaceProxy(ctx context.Context, node, image string) bool {
	if !c.putProxy(ctx, node, image) {
		return false
	}

	c.world.SetProxy(node, versionOf(image))

	return c.world.Clock().Sleep(ctx, proxyStop+proxyStart) == nil
}

func (c *Cluster) putProxy(ctx context.Context, node, image string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if ctx.Err() != nil {
		return false
	}

	c.workloads.pods[node] = proxyPod{image: image, readyAt: c.now().Add(proxyStop + proxyStart)}

	return true
}

// unready lists what is not rolled out of the objects that a control plane
// renders.
func (c *Cluster) unready(rendering model.NodeState) []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	var lacking []string

	if rendering.ProxyImage != "" {
		if lack := c.proxyLack(); lack != "" {
			lacking = append(lacking, objectProxy+": "+lack)
		}
	}

	switch {
	case rendering.CoreDNSImage == "":
	case c.workloads.coreDNS == "":
		lacking = append(lacking, objectCoreDNS+": it does not exist")
	case c.now().Before(c.workloads.coreDNSReady):
		lacking = append(lacking, objectCoreDNS+": its pods are being replaced")
	}

	return lacking
}

func (c *Cluster) proxyLack() string {
	if c.workloads.proxy == "" {
		return "it does not exist"
	}

	done, total := 0, 0

	for _, state := range c.world.Nodes() {
		pod, found := c.proxyPod(state)
		if !found {
			continue
		}

		total++

		if pod.image == c.workloads.proxy && c.runs(state.Name, pod) {
			done++
		}
	}

	if done == total {
		return ""
	}

	return fmt.Sprintf("%d of %d pods are up to date and ready", done, total)
}

// runs tells whether a pod of kube-proxy is reported as ready.
func (c *Cluster) runs(node string, pod proxyPod) bool {
	object := c.nodes[node]
	if object == nil {
		return false
	}

	object.fade(c.now())

	return !c.now().Before(pod.readyAt) && !object.lost()
}

// componentPods lists the pods of the control plane and of kube-proxy on the machines.
// Those of a node that is away stay listed as their kubelet last reported them, until
// Kubernetes notices.
func (c *Cluster) componentPods(of func() []model.NodeState) []cluster.ComponentPod {
	c.mu.Lock()
	defer c.mu.Unlock()

	var pods []cluster.ComponentPod

	for _, state := range of() {
		object := c.nodes[state.Name]
		if object == nil {
			continue
		}

		object.report(state.KubeState)
		object.fade(c.now())

		for _, component := range cluster.Components(cluster.Role(state.Role)) {
			if static, found := object.static[string(component)]; found && static.PodImage != "" {
				pods = append(pods, object.staticPod(state.Name, component, static))
			}
		}

		if proxy, found := c.proxyPod(state); found {
			pods = append(pods, cluster.ComponentPod{
				Node: state.Name, Component: cluster.Proxy, Image: proxy.image, Ready: c.runs(state.Name, proxy),
			})
		}
	}

	return pods
}

var _ cluster.Removals = (*Client)(nil)

// SetRemovals says what is in use in the cluster that some version of
// Kubernetes does without.
func (c *Cluster) SetRemovals(removals []cluster.Removal) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.removals = slices.Clone(removals)
}

// Removals implements [cluster.Removals]: those that go on the way from the one
// version to the other, of the API and of the nodes asked about.
func (c *Client) Removals(
	ctx context.Context, from, to version.Version, controlPlanes, workers []string,
) (removals []cluster.Removal, err error) {
	nodes := slices.Concat(controlPlanes, workers)

	err = c.look(ctx, "Removals", "", func() error {
		if err := c.allAnswer(nodes); err != nil {
			return err
		}

		c.cluster.mu.Lock()
		defer c.cluster.mu.Unlock()

		for _, removal := range c.cluster.removals {
			passed := removal.In.Minor().Compare(from.Minor()) > 0 && removal.In.Minor().Compare(to.Minor()) <= 0
			asked := removal.Address == "" || slices.Contains(nodes, removal.Address)

			if passed && asked {
				removals = append(removals, removal)
			}
		}

		return nil
	})

	return removals, err
}

// allAnswer is an error unless every one of the machines does.
func (c *Client) allAnswer(addresses []string) error {
	for _, address := range addresses {
		if err := c.answers(address); err != nil {
			return err
		}
	}

	return nil
}

// answers is an error unless the machine at the address does.
func (c *Client) answers(address string) error {
	if err := c.route(); err != nil {
		return err
	}

	if state, err := c.cluster.world.Node(address); err != nil || !state.Reachable {
		return fmt.Errorf("unable to ask %s: %w", address, cluster.ErrUnreachable)
	}

	return nil
}
