// SPDX-License-Identifier: MPL-2.0

package model

// reconcile compares what the configuration asks for with what the machine was
// told before, and restarts what differs. It may be called at any time.
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
	image, rest, disabled := n.image(component), n.configured.rest(component), n.configured.disabled(component)
	changed := pod.Image != image || pod.rest != rest || pod.Disabled != disabled

	if changed {
		pod.Image, pod.rest, pod.Disabled = image, rest, disabled
		pod.ConfigVersion++
	}

	pod.SourceVersion = n.sourceVersion(pod)

	if !changed {
		return
	}

	// The files of an API server are written for its version.
	if server := n.pods[APIServerName]; component == APIServerName || component == SchedulerName && !AtLeast(n.running().talos, 1, 14) {
		server.FilesVersion++
		w.restartPod(n, APIServerName)
	}

	if component != APIServerName {
		w.restartPod(n, component)
	}
}

// sourceVersion is the one of what a static pod's configuration is made from,
// where that is a resource of its own: a boot writes it twice.
func (n *node) sourceVersion(pod *staticPod) int {
	if AtLeast(n.running().talos, 1, 14) {
		return n.configVersion + 1
	}

	return pod.ConfigVersion
}

// make makes the pod anew from the present configuration, where that wants one.
func (p *staticPod) make() {
	p.PodImage, p.PodConfigVersion, p.PodFilesVersion, p.Trouble = p.Image, p.ConfigVersion, p.FilesVersion, ""

	if p.Disabled {
		p.PodImage, p.PodConfigVersion = "", 0
	}
}
