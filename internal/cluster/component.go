// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Component is a part of Kubernetes whose image Talos manages.
type Component string

// The components, named as their containers are.
const (
	Kubelet           Component = "kubelet"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Proxy             Component = "kube-proxy"
	// Installer is the image that a machine would be installed from anew: machine.install.image. It runs nowhere,
	// and is not one of [Components].
	Installer Component = "installer"
	// Manifests are the objects that Talos renders for every cluster: kube-proxy, CoreDNS, the network and what
	// kubelets need to join. They are one step of a plan that belongs to no node, and are not one of
	// [Components].
	Manifests Component = "manifests"
)

// Components returns the components that a node of the given role runs.
func Components(role Role) []Component {
	if role == ControlPlane {
		return []Component{Kubelet, APIServer, ControllerManager, Scheduler, Proxy}
	}

	return []Component{Kubelet, Proxy}
}

// Static reports whether the component is a static pod of control planes.
func (c Component) Static() bool {
	return c == APIServer || c == ControllerManager || c == Scheduler
}

// Configured reports whether the machine configuration of a node with the role names the image of the component.
// The image of kube-proxy, which is one DaemonSet, is named by the configuration of control planes only: they
// render it.
func (c Component) Configured(role Role) bool {
	return c == Kubelet || role == ControlPlane && slices.Contains(Components(ControlPlane), c)
}

// ComponentStatus is what a node itself reports about one of its components.
type ComponentStatus struct {
	// Image is the image that the node is to run, with its tag: the one that the machine configuration names, or
	// the default of the running Talos.
	Image string
	// ConfigVersion is the version of a static pod's configuration, which the pod carries once it was made from
	// it; empty for a kubelet.
	ConfigVersion string
	// Running and Healthy are the state of the kubelet's service; false for
	// static pods.
	Running, Healthy bool
	// Since is when the present service of a kubelet was created. It changes
	// with every restart.
	Since time.Time
}

// ImageChange is a change of the image that a machine configuration names for
// a component.
type ImageChange struct {
	Component Component
	// From is what it names at present; empty if it names nothing. If another image is found there, somebody else
	// has changed it in the meantime.
	From string
	// To is what it is changed to.
	To string
}

// ComponentPod is a pod of the Kubernetes control plane or of kube-proxy.
type ComponentPod struct {
	Node      string
	Component Component
	Image     string
	Ready     bool
	// ConfigVersion is the version of the configuration that the pod was made from; empty if it is not a static
	// pod.
	ConfigVersion string
	// FilesVersion is the version of the files that an API server was started with;
	// empty for all others.
	FilesVersion string
	// Started is when its container started, by the clock of its node; zero if it is not running.
	Started time.Time
	// Trouble is why a container is not running, as "ImagePullBackOff: ..."; empty if the kubelet reports no
	// reason.
	Trouble string
	// Outdated is true if this describes the pod as it was before its node booted or replaced it.
	Outdated bool
}

// KubernetesPolicy is how Kubernetes reaches its target.
type KubernetesPolicy struct {
	// Images are repositories without tag that replace those in the machine configurations.
	Images map[Component]string
	// MaxUnavailableKubelets bounds the workers whose kubelets restart at a time; its zero value means one.
	MaxUnavailableKubelets Share
	Manifests              ManifestPolicy
}

// ManifestPolicy is what happens to the bootstrap manifests after a roll.
type ManifestPolicy struct {
	// Sync brings the objects in the cluster in line with what Talos renders.
	Sync bool
	// Prune deletes what an earlier sync applied and Talos no longer renders.
	Prune bool
	// Force recreates objects in which an immutable field changed.
	Force bool
	// Timeout is how long to wait for the rollout of what was applied; 0 does not wait.
	Timeout time.Duration
	// Exclude are objects that stay as they are.
	Exclude []ManifestObject
}

// ManifestObject names an object that Talos renders.
type ManifestObject struct {
	// Namespace is empty for every namespace, and for objects of the whole cluster.
	Kind, Namespace, Name string
}

// Is reports whether it names the object, which is spelled as in [ManifestChange.Object].
func (m ManifestObject) Is(object string) bool {
	kind, rest, _ := strings.Cut(object, "/")

	namespace, name, namespaced := strings.Cut(rest, "/")
	if !namespaced {
		namespace, name = "", rest
	}

	return kind == m.Kind && name == m.Name && (m.Namespace == "" || m.Namespace == namespace)
}

// DefaultManifestTimeout is what the documentation promises, and what
// talosctl upgrade-k8s waits.
const DefaultManifestTimeout = 5 * time.Minute

// Removal is something in use that a minor version of Kubernetes no longer has, or that can no longer be set as it
// is.
type Removal struct {
	// Kind is "flag", "feature gate", "admission plugin", "static pod" or "API".
	Kind string
	// Name is the flag, the gate, the plugin, the static pod or the resource.
	Name string
	// Address is the address of the node that uses it; empty for an API.
	Address   string
	Component Component
	// Objects is the number of objects of an API.
	Objects int
	// Locked is the only value that a feature gate still accepts; nil if the gate is gone.
	Locked *bool
	// Unknown is true if no known minor version has the gate.
	Unknown bool
	// Refers is the resource of the API that a static pod refers to, such as "secrets".
	Refers string
	// In is the first version without it.
	In version.Version
}

// ManifestOptions are how manifests are compared and applied.
type ManifestOptions struct {
	// ServerSide uses server-side apply and the inventory, as Talos does from 1.13 on; otherwise objects are
	// replaced as before.
	ServerSide   bool
	Prune, Force bool
	// Incomplete applies what was rendered even if some of it is missing, as a manifest that has to be downloaded
	// may never arrive; it cannot be combined with Prune. Without it, missing manifests are ErrIncomplete.
	Incomplete bool
	// Also are the addresses of the other control planes: what one of them renders is not pruned.
	Also []string
	// Exclude are objects that are neither compared nor applied nor pruned.
	Exclude []ManifestObject
}

// Excludes reports whether an object, spelled as in [ManifestChange.Object], is one of Exclude.
func (o ManifestOptions) Excludes(object string) bool {
	return slices.ContainsFunc(o.Exclude, func(m ManifestObject) bool { return m.Is(object) })
}

// ManifestChange is the change of one object by a sync.
type ManifestChange struct {
	// Object is "Kind/namespace/name", or "Kind/name".
	Object string
	Action ManifestAction
	// Diff is the change in unified form; it may be empty, and it never shows
	// the content of a Secret.
	Diff string
}

// ManifestAction is what a sync does to an object.
type ManifestAction string

// The actions.
const (
	ManifestCreated    ManifestAction = "create"
	ManifestConfigured ManifestAction = "change"
	ManifestPruned     ManifestAction = "delete"
)

// ContainerLog returns the name of the log that a container of a static pod writes on the node, as talosctl logs
// --kubernetes takes it.
func ContainerLog(component Component, node string) string {
	return fmt.Sprintf("kube-system/%[1]s-%[2]s:%[1]s", component, node)
}
