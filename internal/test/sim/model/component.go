// SPDX-License-Identifier: MPL-2.0

package model

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// The states of a component in the history.
const (
	componentStopped  = "stopped"
	componentStarting = "starting"
	componentReady    = "ready"
	componentFailed   = "failed"
)

// staticPod is a static pod with what the model needs to play it.
type staticPod struct {
	StaticPod
	rest string // its configuration without the image
	run  int    // counts restarts: only the latest one goes on
	held *hold
	flap *Fault // strikes when the pod serves
}

// kubeletService is the kubelet with what the model needs to play it.
type kubeletService struct {
	KubeletService
	running string // the image that runs, or ran last
	rest    string // its configuration without the image
	run     int    // counts restarts: only the latest one goes on
	started bool   // since the boot
	stopped time.Time
	held    *hold
}

// hold is a fault that keeps a component from coming up.
type hold struct {
	step   Step
	effect Effect
	// forGood is true if it lasts until the script is replaced.
	forGood bool
}

// lowest returns the lowest of the versions; empty if there are none.
func (c Components) lowest() string {
	var lowest string

	for _, component := range componentNames() {
		if text := *c.at(component); text != "" && (lowest == "" || olderVersion(text, lowest)) {
			lowest = text
		}
	}

	return lowest
}

// at returns the field with the version of a component.
func (c *Components) at(component string) *string {
	switch component {
	case APIServerName:
		return &c.APIServer
	case ControllerManagerName:
		return &c.ControllerManager
	case SchedulerName:
		return &c.Scheduler
	case ProxyName:
		return &c.Proxy
	default:
		return &c.Kubelet
	}
}

func olderVersion(a, b string) bool {
	first, err := parseVersion(a)
	if err != nil {
		return false
	}

	second, err := parseVersion(b)

	return err == nil && first.LessThan(second)
}

// componentsAtBoot returns the versions with which a machine comes up. kube-proxy is a DaemonSet, so a boot does
// not change it.
func (w *World) componentsAtBoot(n *node) Components {
	components := n.components

	for _, component := range n.configuredNames() {
		image := n.image(component)

		switch {
		case component == ProxyName:
		case n.configured.disabled(component):
			*components.at(component) = ""
		case imageExists(image):
			*components.at(component) = versionOf(image)
		}
	}

	return components
}

// proxyAtStart returns the version of kube-proxy that a new machine is given: that of the cluster.
func (w *World) proxyAtStart(kubernetes string) string {
	switch image := w.options.imagesFor(kubernetes)[ProxyName]; {
	case len(w.nodes) > 0:
		return w.nodes[0].components.Proxy
	case w.options.ProxyDisabled:
		return ""
	case image != "":
		return versionOf(image)
	default:
		return kubernetes
	}
}

// makePods sets what the configuration asks for, as after a boot.
func (n *node) makePods() {
	n.service.Image, n.service.rest = n.image(KubeletName), n.configured.rest(KubeletName)

	if n.role != ControlPlane {
		return
	}

	if n.pods == nil {
		n.pods = map[string]*staticPod{}
	}

	for _, component := range staticNames() {
		pod, found := n.pods[component]
		if !found {
			pod = &staticPod{}
			n.pods[component] = pod
		}

		pod.Image, pod.ConfigVersion, pod.rest = n.image(component), 1, n.configured.rest(component)
		pod.SourceVersion, pod.Disabled = n.sourceVersion(pod), n.leavesOut(component)
		pod.Trouble, pod.FilesVersion = "", 0

		if component == APIServerName {
			pod.FilesVersion = 1
		}
	}
}

// restKubernetes sets the components to a state in which they have run for a long time.
func (w *World) restKubernetes(n *node) {
	now := w.clock.Now()
	n.podsUp, n.podsReported, n.podsMadeBy = true, true, n.kubelet.Version
	n.service.started, n.service.running = true, n.service.Image
	n.service.Running, n.service.Healthy, n.service.Since = true, true, now
	n.pulled[runtimeImage{NamespaceSystem, n.service.Image}] = now

	for component, pod := range n.pods {
		pod.make()

		if pod.Disabled {
			continue
		}

		pod.Ready, pod.Started = true, now
		w.noteStart(n, component)
		n.pulled[runtimeImage{NamespaceCRI, pod.Image}] = now
	}
}

// stopKubernetes ends the components of a machine that goes down.
func (n *node) stopKubernetes() {
	n.kubelet.Running, n.kubelet.Ready = false, false
	n.service.run++
	n.service.started = false
	n.service.Running, n.service.Healthy, n.service.Since = false, false, time.Time{}
	n.podsUp, n.podsReported, n.rejoined = false, false, false

	for _, pod := range n.pods {
		pod.run++
		pod.flap = nil
		pod.Ready, pod.Started = false, time.Time{}
	}
}

// bootKubernetes resets what Kubernetes runs when a kernel starts: a staged configuration takes effect, and
// versions count from 1 again.
func (w *World) bootKubernetes(n *node) {
	if n.staged != nil {
		if config, err := readConfiguration(n.staged); err == nil {
			n.config, n.configured = n.staged, config
		}

		n.staged = nil
	}

	n.stopKubernetes()
	n.configVersion, n.persistent = 1, nil
	n.applying, n.restarting = false, false
	n.unpinned = defaultKubernetes(n.running().talos)
	n.components = w.componentsAtBoot(n)
	n.kubelet = Kubelet{Version: n.components.Kubelet}
	n.makePods()
}

// podReady reports whether a static pod of the machine serves.
func (n *node) podReady(component string) bool {
	pod, found := n.pods[component]

	return found && pod.Ready
}

func (n *node) staticPods() map[string]StaticPod {
	pods := make(map[string]StaticPod, len(n.pods))
	for component, pod := range n.pods {
		pods[component] = pod.StaticPod
	}

	return pods
}

// SetProxy sets the version of kube-proxy, with or without v, that runs on a machine, found by name; empty means
// none. What runs depends on the DaemonSet, which a face keeps.
func (w *World) SetProxy(node, version string) {
	w.locked(func() {
		n, err := w.find(node)
		version = strings.TrimPrefix(version, "v")

		if err != nil || n.components.Proxy == version {
			return
		}

		n.components.Proxy = version
		state := componentReady

		if version == "" {
			state = componentStopped
		}

		w.recordComponent(n, ProxyName, w.proxyImage(version), "", state)
		w.touch(n)
	})
}

// proxyImage returns the image of a version of kube-proxy: the one that a control plane renders, or the default one
// if none does.
func (w *World) proxyImage(version string) string {
	for _, n := range w.nodes {
		if image := n.rendered(ProxyName); image != "" && versionOf(image) == version {
			return image
		}
	}

	if version == "" {
		return ""
	}

	return defaultImage(ProxyName, version)
}

func (w *World) recordComponent(n *node, component, image, configVersion, state string) {
	w.record(n.name, history.KindComponent, map[string]string{
		"component": component, "image": image, "version": versionOf(image),
		"config_version": configVersion, "state": state,
	})
}

func (w *World) recordPod(n *node, component, state string) {
	pod := n.pods[component]
	w.recordComponent(n, component, pod.PodImage, strconv.Itoa(pod.PodConfigVersion), state)
}

// recordOff records that a component that is switched off has no pod: it is stopped, and has no image.
func (w *World) recordOff(n *node, component string) {
	w.recordComponent(n, component, "", "", componentStopped)
}

// troubled lists the static pods that the kubelet reports as not ready.
func (n *node) troubled() []string {
	var reasons []string

	if !n.podsReported {
		return nil
	}

	for _, component := range staticNames() {
		if pod, found := n.pods[component]; found && !pod.Disabled && !pod.Ready {
			reasons = append(reasons, "kube-system/"+component+"-"+n.name+" not ready")
		}
	}

	return slices.Clip(reasons)
}

// reconcile compares what the configuration asks for with what the machine was given before, and restarts what
// differs. It may be called at any time.
func (w *World) reconcile(n *node) {
	image, rest := n.image(KubeletName), n.configured.rest(KubeletName)
	if n.service.Image != image || n.service.rest != rest {
		n.service.Image, n.service.rest = image, rest
		w.restartKubelet(n)
	}

	for _, component := range staticNames() {
		pod, found := n.pods[component]
		if !found {
			continue
		}

		w.reconcilePod(n, component, pod)
	}

	w.touch(n)
}

func (w *World) reconcilePod(n *node, component string, pod *staticPod) {
	image, rest, disabled := n.image(component), n.configured.rest(component), n.leavesOut(component)
	changed := pod.Image != image || pod.rest != rest || pod.Disabled != disabled

	if changed {
		pod.Image, pod.rest, pod.Disabled = image, rest, disabled
		pod.ConfigVersion++
	}

	pod.SourceVersion = n.sourceVersion(pod)

	if !changed {
		return
	}

	// An API server is recreated with each version of its files. Below Talos 1.14 those include the files of the
	// scheduler.
	if server := n.pods[APIServerName]; component == APIServerName || component == SchedulerName && !AtLeast(n.running().talos, 1, 14) {
		server.FilesVersion++
		w.restartPod(n, APIServerName)
	}

	if component != APIServerName {
		w.restartPod(n, component)
	}
}

// leavesOut reports whether a machine renders no static pod of a component: one that is switched off, or an API
// server with an argument that its version of Talos denies (MergeDenied in
// internal/app/machined/pkg/controllers/k8s, Talos 1.14.1).
func (n *node) leavesOut(component string) bool {
	if n.configured.disabled(component) {
		return true
	}

	_, given := child(n.configured.section(component), "extraArgs")["tls-min-version"]

	return component == APIServerName && given && AtLeast(n.running().talos, 1, 14)
}

// sourceVersion returns the version of what a static pod's configuration is made from. From Talos 1.14 on that is a
// resource of its own, which a boot writes twice.
func (n *node) sourceVersion(pod *staticPod) int {
	if AtLeast(n.running().talos, 1, 14) {
		return n.configVersion + 1
	}

	return pod.ConfigVersion
}

// make recreates the pod from the present configuration, if that wants one.
func (p *staticPod) make() {
	p.PodImage, p.PodConfigVersion, p.PodFilesVersion, p.Trouble = p.Image, p.ConfigVersion, p.FilesVersion, ""

	if p.Disabled {
		p.PodImage, p.PodConfigVersion = "", 0
	}
}
