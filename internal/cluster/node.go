// SPDX-License-Identifier: MPL-2.0

// Package cluster holds the types of the domain (nodes, members, leases, observations) and the ports through
// which the engine reaches a cluster. It depends on no types of Terraform, Talos or Kubernetes.
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

// UpgradeAPI is the API through which a machine's operating system is upgraded.
type UpgradeAPI string

const (
	// LegacyAPI is MachineService.Upgrade: one call that drains, installs and reboots. Talos before 1.13 has no
	// other.
	LegacyAPI UpgradeAPI = "legacy"
	// LifecycleAPI is pull, install and reboot as separate calls, with every check left to the client.
	LifecycleAPI UpgradeAPI = "lifecycle"
)

// Machine is what the Talos API of one node reports about it, in one observation. Fields that the credentials may
// not read are zero.
type Machine struct {
	// Address is the address at which the machine was reached.
	Address string
	// NodeName is the name of the Kubernetes node it registers as.
	NodeName string
	// MachineID is the /etc/machine-id, which Talos derives from the identity on the machine's STATE partition;
	// empty if the machine does not report it.
	MachineID string
	// UUID is that of the hardware, as the firmware reports it: it may be empty, and several machines may have
	// the same.
	UUID string
	Role Role
	// Talos is the version of the running system.
	Talos version.Version
	// TalosTag is what the node calls its version if that is not a semantic version, as in builds of vendors;
	// Talos is zero then.
	TalosTag string
	// Schematic is the Image Factory schematic of the running system; empty if the system was not built by a
	// factory.
	Schematic string
	// Extensions are the names of the system extensions in the running system.
	Extensions []string
	// Platform is the name that Talos gives the platform: metal, aws, ...
	Platform   string
	SecureBoot bool
	// BootUnknown is true if the node did not report whether it booted with secure boot; SecureBoot is then false
	// and means nothing.
	BootUnknown bool
	// BootedWithUKI is true if the node booted a UKI, whose kernel arguments are those of the image that was
	// installed.
	BootedWithUKI bool
	// BootID changes with every kernel start; empty if it may not be read.
	BootID string
	// StatusSince is when the machine created the status that has its stage and its readiness, by its own clock.
	// It does so once per boot: two answers with the same time are from one boot, and what the first one said
	// still holds.
	StatusSince time.Time
	Stage       Stage
	Ready       bool
	// PodsSince is a time in this boot before a control plane created its first static pod, by its own clock:
	// what Kubernetes says about containers that started earlier is from an earlier boot. Zero if it has created
	// none yet, and on workers.
	PodsSince time.Time
	// FilesVersion is the version of the files that the API server of a control plane has to read: if it changes,
	// Talos replaces the pod. Empty on workers.
	FilesVersion string
	// Unmet are the readiness conditions that do not hold, as "name: reason".
	Unmet []string
	// UpgradePending is true if the machine has not been ready since an install. Until then, machined switches to
	// the other system if it fails; a reboot alone starts the same system again (Talos 1.13.9, machined: handle,
	// revertBootloader).
	UpgradePending bool
	// UpgradeTag is the boot entry that was running before that install: the label A or B of GRUB, or the file
	// name of a UKI such as Talos-v1.13.9.efi, whose case may differ. After a rollback it is the running one.
	UpgradeTag string
	// Config is the part of the machine configuration that is needed; nil if the credentials may not read it.
	Config *MachineConfig
	// Partial is true if only its address, its version, its boot and its status were asked ([BootOnly]); the rest
	// is zero.
	Partial bool
}

// Extent is how much a machine is asked for.
type Extent int

const (
	// Everything is all that the credentials may read.
	Everything Extent = iota
	// BootOnly is what shows how far a boot is: the version, the boot ID and the status.
	BootOnly
)

// MachineConfig is the part of a machine configuration that matters to an upgrade.
type MachineConfig struct {
	// InstallImage is machine.install.image with its tag; empty when unset.
	InstallImage string
	// Images are the component images that the configuration pins, with their tags. A component that is absent
	// follows the default of the running Talos version and would change with it.
	Images map[Component]string
	// Disabled are the components that the configuration switches off: kube-proxy, the controller-manager or the
	// scheduler. They do not run on this node.
	Disabled map[Component]bool
	// EtcdQuota is the largest size of etcd's database in bytes that a control plane configures
	// (quota-backend-bytes); 0 if it is not configured.
	EtcdQuota int64
	// APIServerArguments are the names of the arguments that v1alpha1 gives the API server
	// (cluster.apiServer.extraArgs), sorted. Their values are not kept.
	APIServerArguments []string
	// IPVS is true if the configuration runs kube-proxy in IPVS mode. Configurations of workers do not mention
	// kube-proxy.
	IPVS bool
	// KernelModules are the names of the kernel modules that the configuration loads.
	KernelModules []string
	// UKIArguments is true if GRUB takes the kernel arguments from the UKI of the image that is installed,
	// instead of writing its own.
	UKIArguments bool
	// Documents are the kinds of the documents, such as KubeletConfig, that name the image of a component or of
	// [Installer] in place of v1alpha1. Configurations that Talos 1.14 and later generate may have them.
	Documents map[Component]string
	// Registries is a hash of all that the configuration says about where images come from and which of them are
	// accepted, as that contains credentials; empty if it says nothing.
	Registries string
	// Installs is true if the configuration has a place for InstallImage. If it has none, the image is not added.
	Installs bool
}

// UpgradeAPI returns the API through which this machine is upgraded. The version decides, not a probe: if a probe
// failed, the service could be missing for another reason in the middle of an upgrade.
func (m Machine) UpgradeAPI() UpgradeAPI {
	if m.Talos.AtLeast(1, 13) {
		return LifecycleAPI
	}

	return LegacyAPI
}

// Settled reports whether the machine finished booting and all its own readiness conditions hold. The stage
// counts too, because a machine that is shutting down still reports ready.
func (m Machine) Settled() bool { return m.Stage == StageRunning && m.Ready }

// DiskPressure is what the kubelet reports if the disk is full.
const DiskPressure = "DiskPressure"

// KubeNode is what the Kubernetes API reports about a node.
type KubeNode struct {
	Name         string
	Addresses    []string
	ControlPlane bool
	// Labels are those of the Node object.
	Labels map[string]string
	// Ready is true only for an explicit Ready=True; Unknown counts as not ready.
	Ready bool
	// ReadyReason is the reason of the Ready condition.
	ReadyReason string
	// ReadySince is the last transition of the Ready condition.
	ReadySince time.Time
	// Unschedulable is true if the node is cordoned.
	Unschedulable bool
	// CordonedBy is the ID of the run of ours that cordoned the node; empty if somebody else did or if it is not
	// cordoned.
	CordonedBy string
	Kubelet    version.Version
	// MachineID is the /etc/machine-id that the kubelet has registered.
	MachineID string
	// SystemUUID is the UUID of the hardware as the kubelet reports it.
	SystemUUID string
	// BootID is the boot ID of the kernel that the kubelet last registered with; until it equals the machine's,
	// the Ready condition is from an earlier boot.
	BootID string
	// CordonedByTalos is true if the machine cordoned its own node, as it does in a legacy upgrade, a shutdown or
	// a reset (annotation talos.dev/cordoned).
	CordonedByTalos bool
	// LastWriter is who else has written to the Node object since our last write, as far as Kubernetes remembers;
	// the kubelet and the controllers of nodes do not count. A writer that only removed fields is not remembered.
	LastWriter string
	// Pressure are the pressure conditions that the kubelet reports: [DiskPressure], MemoryPressure and
	// PIDPressure.
	Pressure []string
	// Talos is true if the operating system is Talos.
	Talos bool
	// ExcludesWorkloads is true if ordinary pods cannot be scheduled here because of a taint (NoSchedule or
	// NoExecute); a cordon does not count.
	ExcludesWorkloads bool
}

// Node is everything that is known about one machine of the cluster.
type Node struct {
	// Name is the name of the Kubernetes node, or the hostname of a member that has none.
	Name    string
	Role    Role
	Address string
	// Machine is what Talos reports; nil if it did not answer.
	Machine *Machine
	// Unreachable says why Machine is nil.
	Unreachable error
	// Kube is what Kubernetes reports; nil if there is no Node object.
	Kube *KubeNode
	// Member is true if discovery lists the machine.
	Member bool
	// Gone is true if the node is still listed but no longer exists: either it is registered, has been NotReady
	// for longer than [GoneAfter] and is absent from discovery, which lists every Ready node that runs Talos; or it
	// is a worker without a Node object that does not answer and that discovery still lists, as members cannot be
	// removed from it and have to expire.
	Gone bool
	// Versions are the versions of the components seen running.
	Versions map[Component]version.Version
	// Pods are the pods of its components, static ones and kube-proxy's.
	Pods map[Component]ComponentPod
	// Etcd is this control plane's own view of etcd; nil on workers and if etcd did not answer.
	Etcd *EtcdView
	// EtcdError says why Etcd is nil on a control plane.
	EtcdError error
}

// GoneAfter is how long a node must have been NotReady, and absent from discovery, before it counts as gone.
const GoneAfter = 5 * time.Minute

// Available reports whether the node can take workloads: Ready and not cordoned.
func (n Node) Available() bool {
	return n.Kube != nil && n.Kube.Ready && !n.Kube.Unschedulable
}

// Left reports whether the node is gone and its Node object is gone too.
func (n Node) Left() bool { return n.Gone && n.Kube == nil }

// MachineID returns the ID that the machine itself reports or, if it does not, the one that its kubelet
// registered.
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

// hasUUID reports whether the Talos API or the Kubernetes API reports that UUID of the hardware.
func (n Node) hasUUID(uuid string) bool {
	return n.Machine != nil && strings.EqualFold(n.Machine.UUID, uuid) || n.Kube != nil && strings.EqualFold(n.Kube.SystemUUID, uuid)
}

// StaleNode is a Node object with the address of a machine that is registered under another name, as after a
// rename, or if a new machine got the address of an old one.
type StaleNode struct {
	Name    string
	Address string
	// Registered is the name of the Node object that belongs to the machine.
	Registered string
}

// Observation is the state of a whole cluster at one moment.
type Observation struct {
	// ID is the Talos cluster ID, or the UID of the namespace kube-system if the cluster has none.
	ID   string
	Name string
	// Taken is when the observation was complete.
	Taken time.Time
	// Nodes are sorted by role (workers first) and name.
	Nodes []Node
	// Foreign are the names of Kubernetes nodes that do not run Talos; they are left alone.
	Foreign []string
	// Stale are the Node objects that no longer belong to a machine. They are in none of the other fields.
	Stale []StaleNode
	// KubernetesError says why the Kubernetes API did not answer; the Kube fields are nil then.
	KubernetesError error
	// DiscoveryError says why the members could not be listed.
	DiscoveryError error
	// Journal is what an earlier run left; nil if it could not be read.
	Journal *Journal
	// JournalError says why Journal is nil.
	JournalError error
	// Roles are the Talos roles of the credentials; empty if unknown.
	Roles []string
}

// Node returns the node with the given name.
func (s Observation) Node(name string) (Node, bool) {
	for index := range s.Nodes {
		if s.Nodes[index].Name == name {
			return s.Nodes[index], true
		}
	}

	return Node{}, false
}

// Managed returns the nodes that are not gone.
func (s Observation) Managed() []Node {
	return s.nodes(func(n *Node) bool { return !n.Gone })
}

// EachManaged yields the nodes that [Observation.Managed] returns, without copies: rules go through all nodes, of
// which there may be a thousand, before each step.
func (s Observation) EachManaged(yield func(*Node) bool) {
	for index := range s.Nodes {
		if node := &s.Nodes[index]; !node.Gone && !yield(node) {
			return
		}
	}
}

// ControlPlanes returns the managed nodes that run etcd.
func (s Observation) ControlPlanes() []Node {
	return s.nodes(func(n *Node) bool { return !n.Gone && n.Role == ControlPlane })
}

// Workers returns the managed nodes that do not run etcd.
func (s Observation) Workers() []Node {
	return s.nodes(func(n *Node) bool { return !n.Gone && n.Role == Worker })
}

// EachWorker yields the nodes that [Observation.Workers] returns, without copies.
func (s Observation) EachWorker(yield func(*Node) bool) {
	for node := range s.EachManaged {
		if node.Role == Worker && !yield(node) {
			return
		}
	}
}

// CountWorkers returns how many managed nodes do not run etcd.
func (s Observation) CountWorkers() int {
	count := 0
	for range s.EachWorker {
		count++
	}

	return count
}

// nodes returns copies of the wanted nodes, and copies no others: a guard asks for five control planes among a
// thousand nodes.
func (s Observation) nodes(wanted func(*Node) bool) []Node {
	var found []Node

	for index := range s.Nodes {
		if wanted(&s.Nodes[index]) {
			found = append(found, s.Nodes[index])
		}
	}

	return found
}

// AlarmedNode returns the name of the control plane whose member raised an alarm, such as "NOSPACE on member 1f";
// empty if the member is unknown.
func (s Observation) AlarmedNode(alarm string) string {
	for _, node := range s.ControlPlanes() {
		if node.Etcd != nil && strings.HasSuffix(alarm, fmt.Sprintf(" %x", node.Etcd.Status.MemberID)) {
			return node.Name
		}
	}

	return ""
}

// TalosVersions returns the lowest and the highest Talos version among the nodes that answered.
func (s Observation) TalosVersions() (lowest, highest version.Version) {
	var seen []version.Version

	for _, node := range s.Managed() {
		if node.Machine != nil {
			seen = append(seen, node.Machine.Talos)
		}
	}

	return version.Lowest(seen...), version.Highest(seen...)
}

// KubernetesVersions returns the lowest and the highest version of any component seen on any node.
func (s Observation) KubernetesVersions() (lowest, highest version.Version) {
	var seen []version.Version

	for _, node := range s.Managed() {
		for _, running := range node.Versions {
			seen = append(seen, running)
		}
	}

	return version.Lowest(seen...), version.Highest(seen...)
}
