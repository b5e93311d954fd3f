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

// Every method of a port bounds its own calls, makes at most one mutating
// request, and returns errors that wrap one of the sentinels of this package.

// Talos is the API of the machines.
type Talos interface {
	// ClusterID is the identity that the cluster has for discovery, also where that is off;
	// empty where the machines do not tell.
	ClusterID(ctx context.Context) (string, error)
	// Roles are the roles of the credentials in use, without asking anyone;
	// empty when they cannot be told.
	Roles() []string
	// Members lists the machines that discovery knows.
	Members(ctx context.Context) ([]Member, error)
	// Machine observes one node. What the credentials may not read is zero; an
	// unreachable node is an error. If its status shows that the node is in the boot in
	// which it is known, only what changes within a boot is asked again: its stage, its
	// readiness and the confirmation of an upgrade and, where they are not known, the
	// configuration and what the static pods of a control plane are made from. Of any
	// other boot everything is asked: nothing that is known of one holds for the next.
	// Known is nil where nothing is known.
	Machine(ctx context.Context, address string, known *Machine) (Machine, error)
	// Etcd is etcd as the control plane at the address sees it; without the members where
	// these are not wanted.
	Etcd(ctx context.Context, address string, members bool) (EtcdView, error)
	// ForfeitLeadership makes the member at the address hand etcd leadership
	// to another one; without effect when it does not lead.
	ForfeitLeadership(ctx context.Context, address string) error
	// EtcdSnapshot streams a snapshot of the member at the address: the database
	// of etcd followed by its SHA-256 checksum. A nil error does not mean that it
	// is whole; that is for the reader to verify.
	EtcdSnapshot(ctx context.Context, address string, to io.Writer) error
	// Vitals are what the node at the address says of its disk and its clock.
	Vitals(ctx context.Context, address string) (Vitals, error)
	// Pull brings an installer image onto the disk of the node, which shows that the node
	// gets it; cheap when it is there. Nothing is installed from the disk.
	Pull(ctx context.Context, address, image string, api UpgradeAPI) error
	// PullToInstall brings an installer image into the memory of the node, until its next
	// boot (LifecycleAPI); cheap when it is there.
	PullToInstall(ctx context.Context, address, image string) error
	// ImageDigest is the digest of an installer image that the node has in its memory under
	// exactly that reference (LifecycleAPI). While it has one, PullToInstall changes nothing,
	// whatever was pushed under its tag since. ErrNotFound means that it has none.
	ImageDigest(ctx context.Context, address, image string) (string, error)
	// Install runs the installer of an image that was pulled to be installed, beside the
	// running system (LifecycleAPI). A non-zero exit is no error: Installation tells.
	// ErrNotPulled means that the node has booted since, or dropped the image.
	Install(ctx context.Context, address, image string) (Installation, error)
	// InstallerIdle tells whether no installer runs on the node. It changes
	// nothing (LifecycleAPI).
	InstallerIdle(ctx context.Context, address string) (bool, error)
	// Upgrade asks the node to drain, install and reboot by itself (LegacyAPI),
	// and returns when its installer has ended; whatever the result, the node
	// then reboots. ErrOutcomeUnknown is wrapped when the node had accepted and
	// the end of the installer was not seen. Before the node accepts, it downloads
	// the image into a store that nothing else fills; accepted, which may be nil, is
	// called then.
	Upgrade(ctx context.Context, address, image string, mode RebootMode, accepted func()) (Installation, error)
	// Reboot asks the node to reboot.
	Reboot(ctx context.Context, address string, mode RebootMode) error
	// Rollback makes the node start its previous system and asks it to reboot.
	// Done twice without a boot in between it would undo itself. ErrRefused means
	// that there is none to start.
	Rollback(ctx context.Context, address string) error
	// Logs are the last lines, at most the given number, oldest first, that a service of the
	// node wrote since it started (machined, kubelet, etcd), or one of the last containers of
	// a static pod, which may have ended ([ContainerLog]).
	Logs(ctx context.Context, address, service string, lines int) ([]string, error)
	// PullComponent brings the image of a component onto the node, where its
	// container runtime looks for it; cheap when it is there.
	PullComponent(ctx context.Context, address string, component Component, image string) error
	// Component asks the node about one of its components: the kubelet, a static
	// pod or, of a control plane, the image that it renders for kube-proxy.
	// ErrNotFound means that the node has none.
	Component(ctx context.Context, address string, component Component) (ComponentStatus, error)
	// Configure has the machine configuration of the node name another image for
	// a component, or for [Installer], without a reboot, and leaves the rest of it byte for byte as
	// it is; without effect where it names the image already. ErrConflict means
	// that it named neither From nor To, or that somebody else wrote it at the
	// same time; ErrRefused that the node did not accept it; ErrNotFound that it
	// has no place for an installer image.
	Configure(ctx context.Context, address string, change ImageChange) error
}

// Removals knows what a release line of Kubernetes does without.
type Removals interface {
	// Removals lists what is in use and gone in the version to, which is of the
	// release line after that of from. The nodes are named by their addresses.
	Removals(ctx context.Context, from, to version.Version, controlPlanes, workers []string) ([]Removal, error)
}

// BootstrapManifests brings what Talos renders into the cluster. A sync is many
// requests; each of them may be repeated.
type BootstrapManifests interface {
	// Diff lists what a sync would change, and writes nothing. The manifests are
	// those that the control plane at the address renders.
	Diff(ctx context.Context, address string, options ManifestOptions) ([]ManifestChange, error)
	// Apply brings the objects to what the control plane at the address renders,
	// and lists what it changed.
	Apply(ctx context.Context, address string, options ManifestOptions) ([]ManifestChange, error)
	// Unready lists the objects, of those that the control plane at the address
	// renders, that are not rolled out yet, each with what it lacks.
	Unready(ctx context.Context, address string) ([]string, error)
}

// Member is a machine as discovery lists it.
type Member struct {
	Hostname  string
	Role      Role
	Addresses []string
}

// Address is where to look for a machine that nothing but discovery lists: at the first
// of its addresses in a private network, or else the first of all. Discovery does not
// say which one Talos itself uses, and from outside a cloud may let nobody through.
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

// Refused tells that an installer of that version ended before it wrote
// anything. From Talos 1.14 on its exit code says so: what it was given is not
// valid, it does not support that, or the node is not what it needs. A program in
// Go that crashes ends with the first of these codes too, wherever it was.
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
	// RebootDefault uses kexec where the machine can.
	RebootDefault RebootMode = "default"
	// RebootPowercycle goes through the firmware.
	RebootPowercycle RebootMode = "powercycle"
)

// Kubernetes is the part of the Kubernetes API that an upgrade needs.
type Kubernetes interface {
	// UID is the UID of the namespace kube-system.
	UID(ctx context.Context) (string, error)
	Nodes(ctx context.Context) ([]KubeNode, error)
	// FollowNodes keeps what is known of the nodes up to date until the returned function is
	// called, so that NodesNow seldom needs a list. Nothing fails where that does not work.
	FollowNodes(ctx context.Context) (stop func())
	// NodesNow is what Nodes would answer, as of a moment after the call began. Where the
	// nodes are followed it costs one write instead of a list: onto the named node, which
	// proves that everything before it has arrived. Without a name the nodes are listed.
	NodesNow(ctx context.Context, claim string) ([]KubeNode, error)
	// Node is one node; ErrNotFound where there is none of that name.
	Node(ctx context.Context, name string) (KubeNode, error)
	// ComponentPods lists the pods of the control plane and of kube-proxy.
	ComponentPods(ctx context.Context) ([]ComponentPod, error)
	// StaticPods lists the pods of the control plane: those on the named node, or on all nodes if
	// the name is empty; those of the components, or of all if none is given.
	StaticPods(ctx context.Context, node string, components ...Component) ([]ComponentPod, error)
	// Cordon makes the node unschedulable and marks the cordon as set by the
	// run, in one request. A node that is cordoned already is left alone; ours
	// then tells whether an earlier run of ours did it.
	Cordon(ctx context.Context, node, run string) (ours bool, err error)
	// Uncordon makes the node schedulable again if its cordon is marked as
	// ours, whichever run set it, and leaves it alone otherwise. A node that
	// no longer exists is no error.
	Uncordon(ctx context.Context, node string) error
	// PodsToEvict lists the pods that a drain of the node removes, by
	// kubectl's rules: no mirror pods, no DaemonSet pods, no finished pods.
	PodsToEvict(ctx context.Context, node string) ([]Pod, error)
	// VolumesLeft lists the volumes that are attached to the node, or on their way off it,
	// and that no pod on it uses; ErrDenied where the credentials may not list
	// VolumeAttachments, or read the claims of those pods.
	VolumesLeft(ctx context.Context, node string) ([]Volume, error)
	// Evict asks for the eviction of one pod, by UID; ErrBudget when a budget
	// has nothing to give, nil when the pod is gone already.
	Evict(ctx context.Context, pod Pod) error
	// DeletePod deletes one pod, by UID, without asking its budgets.
	DeletePod(ctx context.Context, pod Pod) error
	// Lease reads the lease that serialises upgrades; zero when there is none.
	Lease(ctx context.Context) (Lease, error)
	// WriteLease creates the lease when its ResourceVersion is empty and
	// updates it otherwise; ErrConflict when somebody else was faster.
	WriteLease(ctx context.Context, lease Lease) (Lease, error)
	// WriteSuspension suspends the upgrades of the cluster for the reason or, with nil,
	// lets them go on. It is written into the lease as that was read, the way WriteLease
	// does, and changes nothing else in it: one that it creates has no holder.
	WriteSuspension(ctx context.Context, lease Lease, reason *string) (Lease, error)
	// Journal reads the journal; empty when there is none.
	Journal(ctx context.Context) (Journal, error)
	// WriteJournal creates or updates the journal the way WriteLease does.
	WriteJournal(ctx context.Context, journal Journal) (Journal, error)
	// Forget removes the objects of ours that an upgrade left in the cluster
	// with the given ID: the published ConfigMap, a lease nobody holds, and a
	// journal without open entries. It reports what it kept and why.
	Forget(ctx context.Context, id string) (kept []string, err error)
}

// Pod is a pod that a drain must remove.
type Pod struct {
	Namespace, Name, UID string
	// Terminating tells that it is on its way out already.
	Terminating bool
}

// String is "namespace/name".
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Volume is a volume that is attached to a node.
type Volume struct {
	// Name is that of the PersistentVolume, and Driver that of what attaches it, such as
	// ebs.csi.aws.com.
	Name, Driver string
	// Trouble is why it could not be detached so far; empty where nothing is known.
	Trouble string
}

// String is "name (driver)", with what keeps it.
func (v Volume) String() string {
	if v.Trouble == "" {
		return fmt.Sprintf("%s (%s)", v.Name, v.Driver)
	}

	return fmt.Sprintf("%s (%s: %s)", v.Name, v.Driver, v.Trouble)
}

// Lease is who may change the cluster now.
type Lease struct {
	// Holder is empty when nobody holds it.
	Holder          string
	Acquired        time.Time
	Renewed         time.Time
	Duration        time.Duration
	Transitions     int32
	ResourceVersion string
	// Suspended is that somebody has suspended the upgrades of the cluster; nil where
	// nobody has. Whoever writes the lease leaves it as it is.
	Suspended *Suspension
}

// Suspension is that somebody wants no upgrade of the cluster to begin anything new.
type Suspension struct {
	// Reason is what they wrote; empty where they wrote nothing.
	Reason string
	// By is the program that wrote it, and Since is when, as the API server has
	// recorded it; empty and zero where it has not.
	By    string
	Since time.Time
}

// String is how people recognise the suspension, such as
// "since 2026-11-24T03:10:00Z (kubectl-annotate): storage is degraded".
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
