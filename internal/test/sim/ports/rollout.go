// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

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
