// SPDX-License-Identifier: MPL-2.0

package model

import "time"

// The components, named as their containers are.
const (
	KubeletName           = "kubelet"
	APIServerName         = "kube-apiserver"
	ControllerManagerName = "kube-controller-manager"
	SchedulerName         = "kube-scheduler"
	ProxyName             = "kube-proxy"
	CoreDNSName           = "coredns"
	// InstallerName is the image that a machine would be installed from anew. It
	// stands in the configuration only.
	InstallerName = "installer"
)

// ApplyMode is how a machine configuration takes effect.
type ApplyMode string

// The modes of an apply, spelled as talosctl spells them.
const (
	ApplyReboot   ApplyMode = "reboot"
	ApplyAuto     ApplyMode = "auto"
	ApplyNoReboot ApplyMode = "no-reboot"
	ApplyStaged   ApplyMode = "staged"
	ApplyTry      ApplyMode = "try"
)

// ApplyReply is what a machine answers to a new configuration.
type ApplyReply struct {
	// Mode is the one that was used.
	Mode     ApplyMode
	Details  string
	Warnings []string
}

// StaticPod is one of the static pods of a control plane: what its
// configuration asks for, and what runs.
type StaticPod struct {
	// Image and ConfigVersion are those of the configuration resource that pods
	// are made from, of which versions count from 1 after each boot.
	Image         string
	ConfigVersion int
	// SourceVersion is the version of what the machine configuration says of the
	// component. Below Talos 1.14 pods are made from that, and it is equal to
	// ConfigVersion. From there on it is another resource: it counts every write
	// of the machine configuration, while ConfigVersion counts only those that
	// change something about the pod.
	SourceVersion int
	// FilesVersion is the version of the files beside the pod of an API server, which
	// is made anew with each of them. Below Talos 1.14 those of the scheduler count
	// as well.
	FilesVersion int
	// Disabled tells that the configuration switches the component off: there is
	// no pod, and PodImage is empty.
	Disabled bool
	// PodImage, PodConfigVersion and PodFilesVersion are those that the pod was made
	// from.
	PodImage                          string
	PodConfigVersion, PodFilesVersion int
	// Ready tells that the pod serves, Started since when its container runs.
	Ready   bool
	Started time.Time
	// Trouble is why the container does not run, empty where nothing is wrong.
	Trouble string
}

// KubeletService is the service that runs the kubelet.
type KubeletService struct {
	// Image is the one that the configuration asks for.
	Image            string
	Running, Healthy bool
	// Since is when the service was created; it is zero while there is none,
	// that is in the middle of a restart.
	Since time.Time
}

// ImageNamespace is where the container runtime keeps an image.
type ImageNamespace string

// The namespaces: kubelets run from the one, pods from the other. The last one is the
// containerd of Talos itself.
const (
	NamespaceSystem ImageNamespace = "system"
	NamespaceCRI    ImageNamespace = "cri"
	NamespaceOwn    ImageNamespace = "inmem"
)
