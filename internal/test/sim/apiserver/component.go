// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	// labelComponent names the component that a pod is part of.
	labelComponent = "k8s-app"
	// annotationConfigVersion is the version of the configuration from which Talos made a static pod.
	annotationConfigVersion = "talos.dev/config-version"
	// annotationFilesVersion is the version of the files of an API server.
	annotationFilesVersion = "talos.dev/config-file-version"

	objectProxy   = "DaemonSet/kube-system/" + model.ProxyName
	objectCoreDNS = "Deployment/kube-system/coredns"
)

const (
	// proxyNotice is how long a change to the DaemonSet stands before its controller acts on it, so that the client
	// that made it never reads at the moment of the first pod; proxyStop and proxyStart are how long a pod of
	// kube-proxy takes to go and to come; coreDNSTime is how long CoreDNS takes to be replaced.
	proxyNotice = 137 * time.Millisecond
	proxyStop   = 1319 * time.Millisecond
	proxyStart  = 3433 * time.Millisecond
	coreDNSTime = 11273 * time.Millisecond
	// rolloutPause is how often a rollout checks a node that is away.
	rolloutPause = 1021 * time.Millisecond
)

// system is what runs the cluster itself.
type system struct {
	// proxy and coreDNS are the images of the DaemonSet and of the Deployment; empty if they do not exist.
	proxy, coreDNS string
	// coreDNSReady is when the pods of CoreDNS run its image.
	coreDNSReady time.Time
	// proxies are the pods of kube-proxy that were replaced, by node.
	proxies map[string]proxyPod
	// old are objects of an earlier sync that Talos no longer renders.
	old []string
	// stop ends the rollout that is under way.
	stop context.CancelFunc
	// shown are the pods as the API shows them, by their names.
	shown map[string]componentPod
	// rollouts are those of the workloads in the manifests, by UID.
	rollouts map[types.UID]rollout
}

// proxyPod is the pod of kube-proxy on a node.
type proxyPod struct {
	image string
	// readyAt is when the pod becomes ready.
	readyAt time.Time
}

// componentPod is what the API shows of a pod of the control plane, or of kube-proxy.
type componentPod struct {
	node, component, image string
	ready                  bool
	config, files          int
	started                time.Time
	// trouble is why it does not run: a reason, a colon and a message.
	trouble string
	// owner is the UID of the DaemonSet, labels are those of its template; empty for a static pod.
	owner, labels string
}

func (p componentPod) name() string { return p.component + "-" + p.node }

// newSystem returns the system of a cluster as it was created.
func newSystem(states []model.NodeState, now time.Time) system {
	made := system{coreDNSReady: now, proxies: map[string]proxyPod{}, stop: func() {}, shown: map[string]componentPod{}, rollouts: map[types.UID]rollout{}}

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

// showComponents updates the pods of components and the DaemonSet of kube-proxy. Those of a node that is away stay
// as their kubelet last reported them, until Kubernetes notices.
func (s *Server) showComponents(states []model.KubeState) {
	present := map[string]bool{}
	owner, labels := s.proxyOwner()

	for _, state := range states {
		known := s.kubelets[state.Name]
		if known == nil {
			continue
		}

		for _, component := range []string{model.APIServerName, model.ControllerManagerName, model.SchedulerName} {
			static, runs := known.reported.StaticPods[component]
			if !runs || static.PodImage == "" {
				continue
			}

			pod := componentPod{
				node: state.Name, component: component, image: static.PodImage, ready: static.Ready && !known.lost(),
				config: static.PodConfigVersion, started: static.Started, trouble: static.Trouble,
			}
			if component == model.APIServerName {
				pod.files = static.PodFilesVersion
			}

			present[pod.name()] = true
			s.showComponent(pod)
		}

		if proxy, runs := s.proxyPod(state); runs {
			pod := componentPod{
				node: state.Name, component: model.ProxyName, image: proxy.image, ready: s.proxyReady(state.Name, proxy), owner: owner, labels: labels,
			}
			present[pod.name()] = true
			s.showComponent(pod)
		}
	}

	for name := range s.system.shown {
		if !present[name] {
			delete(s.system.shown, name)
			s.drop(itself(), s.core(resourcePods), key{namespaceSystem, name})
		}
	}

	s.showProxySet()
}

func (s *Server) showComponent(pod componentPod) {
	if standing, known := s.system.shown[pod.name()]; !known || standing != pod {
		s.system.shown[pod.name()] = pod
		s.commit(itself(), s.core(resourcePods), pod.object())
	}
}

// object returns a static pod as its mirror shows it, or a pod of kube-proxy.
func (p componentPod) object() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceSystem, Name: p.name(), UID: uidOf(p.name()),
			Labels:          map[string]string{labelComponent: p.component},
			OwnerReferences: []metav1.OwnerReference{owner("v1", "Node", p.node)},
		},
		Spec: corev1.PodSpec{
			NodeName: p.node, Containers: []corev1.Container{{Name: p.component, Image: p.image}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}

	if p.component == model.ProxyName {
		pod.OwnerReferences = []metav1.OwnerReference{owner(appsv1.SchemeGroupVersion.String(), "DaemonSet", p.component)}
		pod.OwnerReferences[0].UID = types.UID(p.owner)
		// The labels come from an object that was admitted.
		pod.Labels, _ = labels.ConvertSelectorToLabelsMap(p.labels)
	} else {
		pod.Annotations = map[string]string{
			corev1.MirrorPodAnnotationKey: "mirror-of-" + p.name(), annotationConfigVersion: strconv.Itoa(p.config),
		}
	}

	if p.component == model.APIServerName {
		pod.Annotations[annotationFilesVersion] = strconv.Itoa(p.files)
	}

	container := corev1.ContainerStatus{Name: p.component, Image: p.image, Ready: p.ready}

	if reason, message, _ := strings.Cut(p.trouble, ": "); reason != "" {
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	} else if !p.started.IsZero() {
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.started.Truncate(time.Second))}
	}

	pod.Status.ContainerStatuses = []corev1.ContainerStatus{container}
	runs(pod, p.ready)

	return pod
}

// showProxySet updates the DaemonSet of kube-proxy.
func (s *Server) showProxySet() {
	of, at := s.table(appsv1.SchemeGroupVersion, resourceDaemonSets), key{namespaceSystem, model.ProxyName}

	if s.bootstrapped {
		s.showRollouts()

		return
	}

	if s.system.proxy == "" {
		s.drop(itself(), of, at)

		return
	}

	// Only the image of the stored object ever changes.
	if standing, is := of.objects[at].(*appsv1.DaemonSet); is && standing.Spec.Template.Spec.Containers[0].Image == s.system.proxy {
		return
	}

	selected := map[string]string{labelComponent: at.name}

	s.show(of, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: at.namespace, Name: at.name, UID: ownerUID("DaemonSet", at.name)},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selected},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selected},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: at.name, Image: s.system.proxy}}},
			},
		},
	})
}

// proxyPod returns the pod on a node, if it has one. The model decides which version runs, because machines also
// change it by themselves.
func (s *Server) proxyPod(state model.KubeState) (proxyPod, bool) {
	if s.system.proxy == "" || s.kubelets[state.Name] == nil {
		return proxyPod{}, false
	}

	pod, known := s.system.proxies[state.Name]
	if !known {
		pod.image = s.system.proxy
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

// versionOf returns the version in an image's tag, without v.
func versionOf(image string) string {
	_, tag := cut(image)

	return strings.TrimPrefix(tag, "v")
}

// startProxy gives a node that has just registered the pod that the DaemonSet makes for it: with its present image.
func (s *Server) startProxy(node string) {
	delete(s.system.proxies, node)

	if s.system.proxy != "" {
		s.world.SetProxy(node, versionOf(s.system.proxy))
	}
}

// proxyReady reports whether a pod of kube-proxy is reported as ready.
func (s *Server) proxyReady(node string, pod proxyPod) bool {
	known := s.kubelets[node]
	if known == nil {
		return false
	}

	known.fade(s.now())

	return !s.now().Before(pod.readyAt) && !known.lost()
}

// setProxy changes the DaemonSet and rolls it out in the background; an empty
// image deletes it.
func (s *Server) setProxy(image string) {
	s.system.stop()
	s.system.proxy = image

	if image == "" {
		clear(s.system.proxies)

		return
	}

	if s.life.Err() != nil {
		return
	}

	ctx, stop := context.WithCancel(s.life)
	s.system.stop = stop

	s.work.Go(func() { s.rollProxy(ctx, image) })
}

// rollProxy replaces the pods of kube-proxy one by one. Like a DaemonSet, it waits for a node that is away: its pod
// is the one that may be unavailable.
func (s *Server) rollProxy(ctx context.Context, image string) {
	if s.world.Clock().Sleep(ctx, proxyNotice) != nil {
		return
	}

	for {
		node, present := s.outdated(image)

		switch {
		case node == "":
			return
		case !present:
			if s.world.Clock().Sleep(ctx, rolloutPause) != nil {
				return
			}
		case !s.replaceProxy(ctx, node, image):
			return
		}
	}
}

// outdated returns a node whose pod of kube-proxy has another image; nodes that are away come first.
func (s *Server) outdated(image string) (name string, present bool) {
	s.lock()
	defer s.mu.Unlock()

	for _, state := range s.world.KubeStates() {
		pod, found := s.proxyPod(state)

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

// replaceProxy puts a new pod of kube-proxy onto a node, and returns once it runs; false if another rollout took
// over.
func (s *Server) replaceProxy(ctx context.Context, node, image string) bool {
	s.lock()
	going := ctx.Err() == nil

	if going {
		s.system.proxies[node] = proxyPod{image: image, readyAt: s.now().Add(proxyStop + proxyStart)}
	}
	s.mu.Unlock()

	if !going {
		return false
	}

	s.world.SetProxy(node, versionOf(image))

	return s.world.Clock().Sleep(ctx, proxyStop+proxyStart) == nil
}

// AddOldObject adds an object, as "Kind/namespace/name", that an earlier sync
// applied and that Talos does not render any more.
func (s *Server) AddOldObject(object string) {
	s.lock()
	defer s.mu.Unlock()

	s.system.old = append(s.system.old, object)
}

// Rendered returns the images of the objects in the cluster that Talos renders, by their names; the image is empty
// for objects that it does not render any more.
func (s *Server) Rendered() map[string]string {
	s.lock()
	defer s.mu.Unlock()

	objects := map[string]string{}
	for _, old := range s.system.old {
		objects[old] = ""
	}

	for name, image := range map[string]string{objectProxy: s.system.proxy, objectCoreDNS: s.system.coreDNS} {
		if image != "" {
			objects[name] = image
		}
	}

	return objects
}

// ManifestChanges returns what a sync of the bootstrap manifests that a control plane renders changes.
func (s *Server) ManifestChanges(rendering model.NodeState, options cluster.ManifestOptions) []cluster.ManifestChange {
	s.lock()
	defer s.mu.Unlock()

	return s.manifestChanges(rendering, options)
}

func (s *Server) manifestChanges(rendering model.NodeState, options cluster.ManifestOptions) []cluster.ManifestChange {
	var changes []cluster.ManifestChange

	// Only the inventory of server-side apply knows what an earlier sync did.
	prune := options.Prune && options.ServerSide

	for _, object := range []struct{ name, has, wants string }{
		{objectProxy, s.system.proxy, rendering.ProxyImage},
		{objectCoreDNS, s.system.coreDNS, rendering.CoreDNSImage},
	} {
		change := cluster.ManifestChange{Object: object.name, Diff: imageDiff(object.has, object.wants)}

		switch {
		case object.has == object.wants, options.Excludes(object.name):
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
		for _, old := range s.system.old {
			if options.Excludes(old) {
				continue
			}

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

// ApplyManifests changes the objects to what a control plane renders, in the name of a client.
func (s *Server) ApplyManifests(client string, rendering model.NodeState, options cluster.ManifestOptions) []cluster.ManifestChange {
	s.lock()
	defer s.mu.Unlock()

	changes := s.manifestChanges(rendering, options)

	for _, change := range changes {
		s.tellManifest(client, change, options)

		switch change.Object {
		case objectProxy:
			s.setProxy(rendering.ProxyImage)
		case objectCoreDNS:
			s.system.coreDNS, s.system.coreDNSReady = rendering.CoreDNSImage, s.now().Add(coreDNSTime)
		default:
			s.system.old = slices.DeleteFunc(s.system.old, func(old string) bool { return old == change.Object })
		}
	}

	return changes
}

// tellManifest records the request that changed an object.
func (s *Server) tellManifest(client string, change cluster.ManifestChange, options cluster.ManifestOptions) {
	parts := strings.Split(change.Object, "/")
	namespace := ""

	if len(parts) > 2 {
		namespace = parts[1]
	}

	verb := verbUpdate

	switch {
	case change.Action == cluster.ManifestPruned:
		verb = verbDelete
	case options.ServerSide:
		verb = verbPatch
	case change.Action == cluster.ManifestCreated:
		verb = verbCreate
	}

	s.record("", history.KindWrite, clientNamed(client).detail("verb", verb, "resource", strings.ToLower(parts[0])+"s",
		"namespace", namespace, "name", parts[len(parts)-1], "code", "200"))
}

// Unready lists the objects that a control plane renders and that are not rolled out.
func (s *Server) Unready(rendering model.NodeState) []string {
	s.lock()
	defer s.mu.Unlock()

	var lacking []string

	if rendering.ProxyImage != "" {
		if lack := s.proxyLack(); lack != "" {
			lacking = append(lacking, objectProxy+": "+lack)
		}
	}

	switch {
	case rendering.CoreDNSImage == "":
	case s.system.coreDNS == "":
		lacking = append(lacking, objectCoreDNS+": it does not exist")
	case s.now().Before(s.system.coreDNSReady):
		lacking = append(lacking, objectCoreDNS+": its pods are being replaced")
	}

	return lacking
}

func (s *Server) proxyLack() string {
	if s.system.proxy == "" {
		return "it does not exist"
	}

	done, total := 0, 0

	for _, state := range s.world.KubeStates() {
		pod, found := s.proxyPod(state)
		if !found {
			continue
		}

		total++

		if pod.image == s.system.proxy && s.proxyReady(state.Name, pod) {
			done++
		}
	}

	if done == total {
		return ""
	}

	return fmt.Sprintf("%d of %d pods are up to date and ready", done, total)
}
