// SPDX-License-Identifier: MPL-2.0

// Package cluster holds the nouns of the domain (nodes, members, leases, what
// was observed of them) and the ports through which the engine reaches a
// cluster. It knows neither Terraform nor Talos nor Kubernetes types.
package cluster

import (
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Role is what a machine does in its cluster.
type Role string

const (
	// ControlPlane runs etcd and the Kubernetes control plane.
	ControlPlane Role = "controlplane"
	// Worker runs workloads only.
	Worker Role = "worker"
)

// Stage is the stage of a machine's boot and shutdown sequences, spelled as
// Talos' MachineStatus prints it.
type Stage string

const (
	// StageBooting is a machine whose boot sequence has not finished.
	StageBooting Stage = "booting"
	// StageRunning is a machine whose boot sequence finished without error.
	StageRunning Stage = "running"
	// StageUpgrading is a machine in a legacy upgrade sequence.
	StageUpgrading Stage = "upgrading"
	// StageInstalling is a machine that is being installed.
	StageInstalling Stage = "installing"
	// StageResetting is a machine whose disks are being wiped.
	StageResetting Stage = "resetting"
	// StageShuttingDown is a machine that is being switched off.
	StageShuttingDown Stage = "shutting down"
	// StageRebooting is a machine on its way down, or one that hit a fatal
	// error in a sequence.
	StageRebooting Stage = "rebooting"
)

// UpgradeAPI is the way a machine takes an operating system upgrade.
type UpgradeAPI string

const (
	// LegacyAPI is MachineService.Upgrade: one call that drains, installs and
	// reboots. It is all that Talos before 1.13 has.
	LegacyAPI UpgradeAPI = "legacy"
	// LifecycleAPI is pull, install and reboot as separate calls, with every
	// check left to the client.
	LifecycleAPI UpgradeAPI = "lifecycle"
)

// Machine is what the Talos API of one node says about it, in one
// observation. Fields that the credentials may not read are zero.
type Machine struct {
	// Address is the one the machine was asked under.
	Address string
	// NodeName is the name of the Kubernetes node it registers as.
	NodeName string
	// MachineID is the /etc/machine-id, which Talos makes of the identity that the
	// machine has on its STATE partition; empty where it does not tell.
	MachineID string
	// UUID is the hardware's, as its firmware tells: several machines may have the
	// same one, or none.
	UUID string
	Role Role
	// Talos is the version of the running system.
	Talos version.Version
	// TalosTag is what the node calls that version where it is no semantic version,
	// as in builds of vendors; Talos is zero then.
	TalosTag string
	// Schematic is the Image Factory schematic of the running system; empty
	// when the system was not built by a factory.
	Schematic string
	// Extensions are the names of the system extensions in the running system.
	Extensions []string
	// Platform is what Talos calls it: metal, aws, ...
	Platform   string
	SecureBoot bool
	// BootUnknown tells that the node did not say whether it booted with secure
	// boot; SecureBoot is then false and means nothing.
	BootUnknown bool
	// BootedWithUKI tells that the node booted a UKI, whose kernel arguments are
	// those of the image that was installed.
	BootedWithUKI bool
	// BootID changes with every kernel start; empty when it may not be read.
	BootID string
	// StatusSince is when the machine made the status that has its stage and its
	// readiness, by its own clock: once in each boot. Two answers with the same moment
	// are of one boot, so that what the first one told holds for the second as well.
	StatusSince time.Time
	Stage       Stage
	Ready       bool
	// PodsSince is a moment of this boot before a control plane made its first static
	// pod, by its own clock: what Kubernetes says of containers that started earlier
	// is of an earlier boot. Zero where it has made none yet, and on workers.
	PodsSince time.Time
	// FilesVersion is the version of the files that the API server of a control plane
	// has to read: with another one, Talos makes its pod anew. Empty elsewhere.
	FilesVersion string
	// Unmet are the readiness conditions that do not hold, as "name: reason".
	Unmet []string
	// UpgradePending tells that the machine has not been ready since an install. Until
	// then machined has the other system started if it fails; a reboot by itself starts
	// the same system again (Talos 1.13.9, machined: handle, revertBootloader).
	UpgradePending bool
	// UpgradeTag is the boot entry that was started before that install: the label A or B
	// of GRUB, or the file name of a UKI such as Talos-v1.13.9.efi, whose case may differ.
	// After a rollback it is the one that runs.
	UpgradeTag string
	// Config is the part of the machine configuration we need; nil when the
	// credentials may not read it.
	Config *MachineConfig
}

// MachineConfig is the part of a machine configuration that matters to an
// upgrade.
type MachineConfig struct {
	// InstallImage is machine.install.image with its tag; empty when unset.
	InstallImage string
	// Images are the component images that the configuration pins, with their
	// tags. A component that is absent follows the default of the running
	// Talos version and would move with it.
	Images map[Component]string
	// Disabled are the components that the configuration switches off: kube-proxy,
	// the controller-manager or the scheduler. They run nowhere on this node.
	Disabled map[Component]bool
	// EtcdQuota is the largest size of etcd's database in bytes that a control
	// plane configures (quota-backend-bytes); 0 where it configures none.
	EtcdQuota int64
	// APIServerArguments are the names of the arguments that v1alpha1 gives the API server
	// (cluster.apiServer.extraArgs), sorted. Their values are not kept.
	APIServerArguments []string
	// IPVS tells that the configuration has kube-proxy run in IPVS mode. Configurations of workers
	// say nothing of kube-proxy.
	IPVS bool
	// KernelModules are the names of the kernel modules that the configuration has loaded.
	KernelModules []string
	// UKIArguments tells that GRUB takes the kernel arguments from the UKI of the
	// image that is installed, instead of writing its own.
	UKIArguments bool
	// Documents are the kinds of the documents, such as KubeletConfig, that name the
	// image of a component or of [Installer] in place of v1alpha1, as those can that
	// Talos generates from 1.14 on.
	Documents map[Component]string
	// Registries stands for all that the configuration says about where images come from and
	// which of them are accepted: a hash, as there are credentials in it; empty where it says
	// nothing.
	Registries string
	// Installs tells that the configuration has a place for InstallImage. Where
	// it has none, the image is not added.
	Installs bool
}

// UpgradeAPI is the way this machine takes an upgrade. Its own version decides:
// probing would turn a missing service into an accident in mid-upgrade.
func (m Machine) UpgradeAPI() UpgradeAPI {
	if m.Talos.AtLeast(1, 13) {
		return LifecycleAPI
	}

	return LegacyAPI
}

// Settled tells whether the machine finished booting and all its own readiness
// conditions hold. A machine that is going down reports ready as well, so the
// stage counts too.
func (m Machine) Settled() bool { return m.Stage == StageRunning && m.Ready }

// DiskPressure is the complaint of a kubelet about a full disk.
const DiskPressure = "DiskPressure"

// KubeNode is what the Kubernetes API says about a node.
type KubeNode struct {
	Name         string
	Addresses    []string
	ControlPlane bool
	// Labels are those of the Node object.
	Labels map[string]string
	// Ready is true only for an explicit Ready=True; Unknown counts as not
	// ready.
	Ready bool
	// ReadyReason is the reason of the Ready condition.
	ReadyReason string
	// ReadySince is the last transition of the Ready condition.
	ReadySince time.Time
	// Unschedulable tells that the node is cordoned.
	Unschedulable bool
	// CordonedBy names the run of ours that cordoned the node; empty when
	// somebody else did or when it is not cordoned.
	CordonedBy string
	Kubelet    version.Version
	// MachineID is the /etc/machine-id that the kubelet has registered.
	MachineID string
	// SystemUUID is the UUID of the hardware as the kubelet reports it.
	SystemUUID string
	// BootID is the one of the kernel that the kubelet last registered with;
	// until it equals the machine's, the Ready condition is of an earlier boot.
	BootID string
	// CordonedByTalos tells that the machine cordoned its own node, as it does in
	// a legacy upgrade, a shutdown or a reset (annotation talos.dev/cordoned).
	CordonedByTalos bool
	// LastWriter names who else has written to the Node object since we last did, as
	// far as Kubernetes remembers: not its kubelet, nor the controllers that look after
	// nodes. Who only took something away is not remembered.
	LastWriter string
	// Pressure are the kubelet's complaints: [DiskPressure], MemoryPressure and
	// PIDPressure.
	Pressure []string
	// Talos tells whether the operating system is Talos.
	Talos bool
	// ExcludesWorkloads tells that ordinary pods cannot be scheduled here
	// (a NoSchedule or NoExecute taint), cordon aside.
	ExcludesWorkloads bool
}

// Node is everything known about one machine of the cluster.
type Node struct {
	// Name is the name of the Kubernetes node, or the hostname of a member
	// that has none.
	Name    string
	Role    Role
	Address string
	// Machine is what Talos says; nil when it did not answer.
	Machine *Machine
	// Unreachable says why Machine is nil.
	Unreachable error
	// Kube is what Kubernetes says; nil when no Node object exists.
	Kube *KubeNode
	// Member tells that discovery lists the machine.
	Member bool
	// Gone tells that the node is only listed and no longer there. Either it is
	// registered, NotReady for longer than [GoneAfter] and absent from discovery; or
	// it is a worker that has no Node object any more and does not answer, and that
	// discovery, from which nobody can take it, has yet to forget.
	Gone bool
	// Versions are the versions of the components seen running.
	Versions map[Component]version.Version
	// Pods are the pods of its components, static ones and kube-proxy's.
	Pods map[Component]ComponentPod
	// Etcd is this control plane's own view of etcd; nil on workers and where
	// it could not be asked.
	Etcd *EtcdView
	// EtcdError says why Etcd is nil on a control plane.
	EtcdError error
}

// GoneAfter is how long a node must have been NotReady, and absent from
// discovery, before it is taken for gone.
const GoneAfter = 5 * time.Minute

// Available tells whether the node can take workloads: Ready and not cordoned.
func (n Node) Available() bool {
	return n.Kube != nil && n.Kube.Ready && !n.Kube.Unschedulable
}

// Left tells, of a gone node, that it has no Node object any more either.
func (n Node) Left() bool { return n.Gone && n.Kube == nil }

// MachineID is what the machine tells itself or, where it does not, what its
// kubelet has registered.
func (n Node) MachineID() string {
	switch {
	case n.Machine != nil && n.Machine.MachineID != "":
		return n.Machine.MachineID
	case n.Kube != nil:
		return n.Kube.MachineID
	default:
		return ""
	}
}

// hasUUID tells whether either API tells of that UUID of the hardware.
func (n Node) hasUUID(uuid string) bool {
	return n.Machine != nil && strings.EqualFold(n.Machine.UUID, uuid) || n.Kube != nil && strings.EqualFold(n.Kube.SystemUUID, uuid)
}

// StaleNode is a Node object with the address of a machine that registers under another
// name, as after a rename, or where a new machine got the address of an old one.
type StaleNode struct {
	Name    string
	Address string
	// Registered is the name of the Node object that is the machine's.
	Registered string
}

// Observation is what was seen of a whole cluster at one moment.
type Observation struct {
	// ID is the Talos cluster ID, or the UID of the namespace kube-system
	// where discovery is off.
	ID   string
	Name string
	// Taken is when the observation was complete.
	Taken time.Time
	// Nodes are sorted by role (workers first) and name.
	Nodes []Node
	// Foreign are the names of Kubernetes nodes that do not run Talos; they are
	// left alone.
	Foreign []string
	// Stale are the Node objects that no machine has any more. They are in none of
	// the other fields.
	Stale []StaleNode
	// KubernetesError says why the Kubernetes API did not answer; the Kube
	// fields are nil then.
	KubernetesError error
	// DiscoveryError says why the members could not be listed.
	DiscoveryError error
	// Journal is what an earlier run left; nil when it could not be read.
	Journal *Journal
	// JournalError says why Journal is nil.
	JournalError error
	// Roles are the Talos roles of the credentials; empty when unknown.
	Roles []string
}

// Node finds a node by name.
func (s Observation) Node(name string) (Node, bool) {
	for index := range s.Nodes {
		if s.Nodes[index].Name == name {
			return s.Nodes[index], true
		}
	}

	return Node{}, false
}

// Managed are the nodes that are there: all but the gone ones.
func (s Observation) Managed() []Node {
	return s.nodes(func(n *Node) bool { return !n.Gone })
}

// ControlPlanes are the managed nodes that run etcd.
func (s Observation) ControlPlanes() []Node {
	return s.nodes(func(n *Node) bool { return !n.Gone && n.Role == ControlPlane })
}

// Workers are the managed nodes that do not run etcd.
func (s Observation) Workers() []Node {
	return s.nodes(func(n *Node) bool { return !n.Gone && n.Role == Worker })
}

// nodes are copies of those that are wanted, and of no others: a guard asks for five
// control planes of a thousand nodes.
func (s Observation) nodes(wanted func(*Node) bool) []Node {
	var found []Node

	for index := range s.Nodes {
		if wanted(&s.Nodes[index]) {
			found = append(found, s.Nodes[index])
		}
	}

	return found
}

// AlarmedNode is the name of the control plane whose member raised an alarm, such as
// "NOSPACE on member 1f"; empty where nobody knows the member.
func (s Observation) AlarmedNode(alarm string) string {
	for _, node := range s.ControlPlanes() {
		if node.Etcd != nil && strings.HasSuffix(alarm, fmt.Sprintf(" %x", node.Etcd.Status.MemberID)) {
			return node.Name
		}
	}

	return ""
}

// TalosVersions are the lowest and the highest Talos version that answered.
func (s Observation) TalosVersions() (lowest, highest version.Version) {
	var seen []version.Version

	for _, node := range s.Managed() {
		if node.Machine != nil {
			seen = append(seen, node.Machine.Talos)
		}
	}

	return version.Lowest(seen...), version.Highest(seen...)
}

// KubernetesVersions are the lowest and the highest version of any component
// seen on any node.
func (s Observation) KubernetesVersions() (lowest, highest version.Version) {
	var seen []version.Version

	for _, node := range s.Managed() {
		for _, running := range node.Versions {
			seen = append(seen, running)
		}
	}

	return version.Lowest(seen...), version.Highest(seen...)
}
