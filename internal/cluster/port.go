// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Unless its comment says otherwise, a method of a port bounds its calls by timeouts of its own, has the effect of
// one mutating request at most, and returns errors that wrap one of the sentinels of this package if one applies.

// Talos is the API of the machines.
type Talos interface {
	// ClusterID returns the identity that the cluster has for discovery, even if discovery is off; empty if the
	// machines report none.
	ClusterID(ctx context.Context) (string, error)
	// Roles returns the roles of the credentials in use, such as "os:admin", without a request; empty if they are
	// unknown.
	Roles() []string
	// Members lists the machines that discovery knows.
	Members(ctx context.Context) ([]Member, error)
	// Machine observes one node. What the credentials may not read is zero; an unreachable node is an error. Known
	// is an earlier observation of the node; nil if there is none. If the status of the node shows that it is still
	// in the same boot, only what changes within a boot is asked again: its stage, its readiness and, unless the
	// extent is [BootOnly], what is pending or unknown so far of the confirmation of an upgrade, the configuration
	// and what the static pods of a control plane are made from. If it is in another boot, everything within the
	// extent is asked, because nothing that is known about one boot holds for the next. A partial observation is
	// not known to an observation of [Everything].
	Machine(ctx context.Context, address string, known *Machine, extent Extent) (Machine, error)
	// Etcd returns the state of etcd as the control plane at the address sees it. The list of members is nil if
	// members is false, and may be nil for a learner, which cannot list them.
	Etcd(ctx context.Context, address string, members bool) (EtcdView, error)
	// ForfeitLeadership makes the member at the address hand etcd leadership to another one; without effect if it
	// does not lead.
	ForfeitLeadership(ctx context.Context, address string) error
	// EtcdSnapshot streams a snapshot of the member at the address to the writer: the database of etcd followed by
	// its SHA-256 checksum. A nil error does not mean that the snapshot is whole: the caller has to verify the
	// checksum.
	EtcdSnapshot(ctx context.Context, address string, to io.Writer) error
	// Vitals returns what the node at the address reports about its disk and its clock. A part that is missing or
	// cannot be read is nil, in the latter case with the reason in DiskError or TimeError; an error means that the
	// node did not answer at all.
	Vitals(ctx context.Context, address string) (Vitals, error)
	// Pull downloads an installer image to the disk of the node, which proves that the node can get it; cheap if
	// the image is already there. Nothing is installed from the disk.
	Pull(ctx context.Context, address, image string, api UpgradeAPI) error
	// PullToInstall downloads an installer image into the memory of the node, where it stays until the next boot at
	// the latest (LifecycleAPI); cheap if the image is already there.
	PullToInstall(ctx context.Context, address, image string) error
	// ImageDigest returns the digest of an installer image that the node has in its memory under exactly that
	// reference (LifecycleAPI); ErrNotFound if it has none. While it has one, PullToInstall changes nothing,
	// whatever was pushed under the tag since.
	ImageDigest(ctx context.Context, address, image string) (string, error)
	// Install runs the installer of an image that was pulled with PullToInstall, beside the running system
	// (LifecycleAPI). A non-zero exit code is no error, but part of the Installation. ErrNotPulled means that the
	// node has booted since the pull, or has dropped the image; ErrOutcomeUnknown that the end of the installer,
	// which continues by itself, was not seen.
	Install(ctx context.Context, address, image string) (Installation, error)
	// InstallerIdle reports whether no installer runs on the node, and changes nothing (LifecycleAPI).
	InstallerIdle(ctx context.Context, address string) (bool, error)
	// Upgrade asks the node to drain, install and reboot by itself (LegacyAPI), and returns once its installer has
	// ended. If the error is nil, the node then reboots, whatever the result. ErrOutcomeUnknown is wrapped if the
	// node has accepted and the end of the installer was not seen. Before the node accepts, it downloads the image
	// into a store that nothing else fills. Accepted, which may be nil, is called once it has accepted.
	Upgrade(ctx context.Context, address, image string, mode RebootMode, accepted func()) (Installation, error)
	// Reboot asks the node to reboot.
	Reboot(ctx context.Context, address string, mode RebootMode) error
	// Rollback makes the node boot its previous system and asks it to reboot. A second call before that boot would
	// undo the first. ErrRefused means that there is no previous system to boot.
	Rollback(ctx context.Context, address string) error
	// Logs returns the last lines, oldest first, that a service of the node (machined, kubelet, etcd) has written
	// since the node booted, or that one of the last containers of a static pod has written, which may have ended
	// ([ContainerLog]). It returns the given number of lines at most, and 200 lines and 16 KiB in any case.
	// ErrNotFound means that there is no such log. Lines that were read before an error are returned with it.
	Logs(ctx context.Context, address, service string, lines int) ([]string, error)
	// PullComponent downloads the image of a component to where the node's container runtime looks for it; cheap if
	// the image is already there.
	PullComponent(ctx context.Context, address string, component Component, image string) error
	// Component returns the state of a component of the node: the kubelet, a static pod or, on a control plane, the
	// image that it renders for kube-proxy. ErrNotFound means that the node has none, or that its configuration
	// disables it.
	Component(ctx context.Context, address string, component Component) (ComponentStatus, error)
	// Configure sets another image for a component, or for [Installer], in the machine configuration of the node,
	// without a reboot, and leaves the rest of it byte for byte as it is; without effect if it names the image
	// already. ErrConflict means that it names neither From nor To, that another configuration is staged or being
	// tried, or that somebody else wrote it at the same time; ErrRefused that the node did not accept it;
	// ErrNotFound that it has no place for an installer image; ErrOutcomeUnknown that the node accepted it and the
	// result could not be read.
	Configure(ctx context.Context, address string, change ImageChange) error
}

// Removals knows what a minor version of Kubernetes no longer has.
type Removals interface {
	// Removals lists what is in use and is removed, or no longer accepted as it is set, in the version to, which is
	// of the minor version after that of from. The nodes are given by their addresses. ErrUnsupported means that
	// nothing is known about this step.
	Removals(ctx context.Context, from, to version.Version, controlPlanes, workers []string) ([]Removal, error)
}

// BootstrapManifests applies the manifests that Talos renders to the cluster. A sync consists of many requests,
// each of which may be repeated.
type BootstrapManifests interface {
	// Diff lists what a sync would change, and writes nothing. The manifests are those that the control plane at
	// the address renders. Without Force, a change of an immutable field is ErrRefused; without Incomplete, or with
	// Prune, missing manifests are ErrIncomplete.
	Diff(ctx context.Context, address string, options ManifestOptions) ([]ManifestChange, error)
	// Apply brings the objects to what the control plane at the address renders, and lists what it changed, even
	// with an error.
	Apply(ctx context.Context, address string, options ManifestOptions) ([]ManifestChange, error)
	// Unready lists the DaemonSets and Deployments that the control plane at the address renders and that are not
	// rolled out yet, each with what it lacks.
	Unready(ctx context.Context, address string) ([]string, error)
}

// Member is a machine as discovery lists it.
type Member struct {
	Hostname  string
	Role      Role
	Addresses []string
}

// Address returns the address at which to look for a machine that only discovery lists: the first of its addresses
// in a private network, or else the first of all; empty if it has none. Discovery does not say which one Talos
// itself uses, and a cloud may block access to its machines from outside.
func (m Member) Address() string {
	for _, address := range m.Addresses {
		if parsed, err := netip.ParseAddr(address); err == nil && parsed.IsPrivate() {
			return address
		}
	}

	if len(m.Addresses) == 0 {
		return ""
	}

	return m.Addresses[0]
}

// Installation is the result of an installer that ran.
type Installation struct {
	// Exit is the installer's exit code, 0 for success.
	Exit int32
	// Output are the last lines it printed.
	Output []string
}

// Refused reports whether an installer of that version ended before it wrote anything. From Talos 1.14 on, its exit
// code says so: what it was given is invalid (2), it does not support that (3), or the node is not what it needs
// (4). A Go program that crashes, at any point, exits with 2 as well, so 2 does not count if the output shows a
// crash.
func (i Installation) Refused(installer version.Version) bool {
	const invalidInput, environment = 2, 4

	if !installer.AtLeast(1, 14) || i.Exit < invalidInput || i.Exit > environment {
		return false
	}

	return i.Exit != invalidInput || !slices.ContainsFunc(i.Output, func(line string) bool {
		return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "goroutine ") ||
			strings.Contains(line, ".go:") && strings.Contains(line, " +0x")
	})
}

// RebootMode is how a machine restarts.
type RebootMode string

const (
	// RebootDefault uses kexec if the machine can.
	RebootDefault RebootMode = "default"
	// RebootPowercycle goes through the firmware.
	RebootPowercycle RebootMode = "powercycle"
)

// Kubernetes is the part of the Kubernetes API that an upgrade needs.
type Kubernetes interface {
	// UID returns the UID of the namespace kube-system.
	UID(ctx context.Context) (string, error)
	// Nodes lists the nodes of the cluster.
	Nodes(ctx context.Context) ([]KubeNode, error)
	// FollowNodes keeps what is known about the nodes up to date until the returned function is called, so that
	// NodesNow seldom needs a list. It does not fail: if the nodes cannot be followed, NodesNow lists them.
	FollowNodes(ctx context.Context) (stop func())
	// NodesNow returns what Nodes would return at a moment after the call began. If the nodes are followed, it
	// costs one write to the node claim instead of a list: the write proves that everything before it has arrived.
	// If claim is empty, the nodes are listed. The slice must not be changed, because several callers may have it.
	NodesNow(ctx context.Context, claim string) ([]KubeNode, error)
	// Node returns one node; ErrNotFound if none has that name.
	Node(ctx context.Context, name string) (KubeNode, error)
	// ComponentPods lists the pods of the control plane and of kube-proxy, except for those that have finished or
	// are being deleted.
	ComponentPods(ctx context.Context) ([]ComponentPod, error)
	// StaticPods lists, in the same way, the pods of the control plane: those on the named node, or on all nodes if
	// the name is empty; those of the components, or of all if none is given.
	StaticPods(ctx context.Context, node string, components ...Component) ([]ComponentPod, error)
	// Cordon makes the node unschedulable and marks the cordon as set by the run, in one request. A node that is
	// already cordoned is left alone. Ours reports whether the cordon was set now, or by an earlier run of ours.
	Cordon(ctx context.Context, node, run string) (ours bool, err error)
	// Uncordon makes the node schedulable again if its cordon is marked as ours, whichever run set it, and leaves
	// it alone otherwise. It is no error if the node no longer exists.
	Uncordon(ctx context.Context, node string) error
	// PodsToEvict lists the pods that a drain of the node removes, by kubectl's rules: no mirror pods, no pods of a
	// DaemonSet that exists, no finished pods.
	PodsToEvict(ctx context.Context, node string) ([]Pod, error)
	// VolumesLeft lists the volumes that are attached to the node, or are being detached from it, and that no pod
	// on it uses; ErrDenied if the credentials may not list VolumeAttachments, or read the claims of those pods.
	VolumesLeft(ctx context.Context, node string) ([]Volume, error)
	// Evict requests the eviction of one pod, by UID. ErrBudget means that a budget allows no eviction now;
	// ErrOverlap, beside ErrRefused, that more than one budget covers the pod. It is no error if the pod is gone,
	// or its namespace is being deleted.
	Evict(ctx context.Context, pod Pod) error
	// DeletePod deletes one pod, by UID, regardless of its budgets. It is no error if the pod is gone.
	DeletePod(ctx context.Context, pod Pod) error
	// Lease reads the lease that serialises upgrades; zero if there is none.
	Lease(ctx context.Context) (Lease, error)
	// WriteLease creates the lease if its ResourceVersion is empty and updates it otherwise, and returns it as
	// written; ErrConflict if somebody else wrote or deleted it first.
	WriteLease(ctx context.Context, lease Lease) (Lease, error)
	// WriteSuspension suspends the upgrades of the cluster for the reason or, if that is nil, resumes them. It
	// writes the lease as WriteLease does, but changes nothing else in it: a lease that it creates has no holder.
	WriteSuspension(ctx context.Context, lease Lease, reason *string) (Lease, error)
	// Journal reads the journal; empty if there is none. An entry that cannot be read is an error.
	Journal(ctx context.Context) (Journal, error)
	// WriteJournal creates or updates the journal as WriteLease does the lease.
	WriteJournal(ctx context.Context, journal Journal) (Journal, error)
	// Forget removes what upgrades left in the cluster with the given ID: the lease unless its holder renews it or
	// upgrades are suspended, and, unless it keeps the lease, the published ConfigMap and the journal if nothing in
	// it is unfinished. It deletes only objects of ours, and returns what it kept and why. If the lease has a holder,
	// it is watched for its duration, or for 30 s if that is absent or longer than a minute.
	Forget(ctx context.Context, id string) (kept []string, err error)
}

// Pod is a pod that a drain must remove.
type Pod struct {
	Namespace, Name, UID string
	// Terminating is true if the pod is being deleted.
	Terminating bool
}

// String returns "namespace/name".
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Volume is a volume that is attached to a node.
type Volume struct {
	// Name is the name of the PersistentVolume, and Driver the name of what attaches it, such as ebs.csi.aws.com.
	Name, Driver string
	// Trouble is why the volume could not be detached so far; empty if that is unknown.
	Trouble string
}

// String returns "name (driver)", or "name (driver: trouble)" if there is trouble.
func (v Volume) String() string {
	if v.Trouble == "" {
		return fmt.Sprintf("%s (%s)", v.Name, v.Driver)
	}

	return fmt.Sprintf("%s (%s: %s)", v.Name, v.Driver, v.Trouble)
}

// Lease is the lease that serialises upgrades: only its holder may change the cluster.
type Lease struct {
	// Holder is empty if nobody holds it.
	Holder          string
	Acquired        time.Time
	Renewed         time.Time
	Duration        time.Duration
	Transitions     int32
	ResourceVersion string
	// Suspended is set if somebody has suspended the upgrades of the cluster. A write of the lease leaves it as it
	// is.
	Suspended *Suspension
}

// Suspension is somebody's request that no upgrade of the cluster begins anything new.
type Suspension struct {
	// Reason is what they wrote; empty if they wrote nothing.
	Reason string
	// By is the program that wrote the suspension, and Since is when it last changed the lease, as recorded by the API
	// server; empty and zero if it has not recorded that.
	By    string
	Since time.Time
}

// String returns the suspension as people recognise it, such as "since 2026-11-24T03:10:00Z (kubectl-annotate):
// storage is degraded".
func (s Suspension) String() string {
	text := "by somebody"
	if !s.Since.IsZero() {
		text = "since " + s.Since.UTC().Format(time.RFC3339)
	}

	if s.By != "" {
		text += " (" + s.By + ")"
	}

	if s.Reason != "" {
		text += ": " + s.Reason
	}

	return text
}
