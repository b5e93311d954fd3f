// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// fakeCluster is a cluster that only answers: every mutating call is counted,
// and refused.
type fakeCluster struct {
	cluster.Talos
	cluster.Kubernetes

	id      string
	idErr   error
	uidErr  error
	roles   []string
	nodes   []fakeNode
	journal cluster.Journal
	// removals and changes are what an inspection finds; inspected counts the
	// times that somebody asked.
	removals  []cluster.Removal
	changes   []cluster.ManifestChange
	inspected atomic.Int32
	// down is the error of every call when set.
	down error
	// kubernetesDown is the error of every call of Kubernetes when set.
	kubernetesDown error
	// kept and forgetErr are the answer of Forget, forgotten its arguments.
	// ForgetBy is until when it was given time.
	kept      []string
	forgetBy  time.Time
	forgetErr error
	forgotten []string
	// expires is when the certificate does.
	expires time.Time
	// crowded is a full disk on every node.
	crowded bool
	// vitalsErr is the error of asking nodes for their vitals, imageErr of asking
	// for images.
	vitalsErr, imageErr error
	// objects are what gates find, whatever they ask for; gated counts the times
	// that one asked.
	objects []map[string]any
	gated   atomic.Int32
	// store is where progress is published; nil is nowhere.
	store publish.Store
	// home is where an object that somebody named is; nil is nowhere. It is a
	// management cluster where managed is true, which cannot be used where unmanaged is
	// set.
	home      *fakeHome
	managed   bool
	unmanaged error
	// lease and leaseErr are the answer of Lease, which calls leaseRead if it is set.
	lease     cluster.Lease
	leaseErr  error
	leaseRead func()
	dialled   int
	// wanted is the context that was reached last.
	wanted string
	closed int
}

type fakeNode struct {
	name        string
	role        cluster.Role
	talos       string
	kubernetes  string
	unreachable error
	// undiscovered is a node that discovery does not list.
	undiscovered bool
	// kubelet is what the kubelet runs where that is something else.
	kubelet string
	// images are those in the machine configuration where they are others; an
	// empty one is not set.
	images map[cluster.Component]string
	// unread hides the machine configuration.
	unread bool
}

// threeNodes is a control plane and two workers on the versions.
func threeNodes(talos, kubernetes string) *fakeCluster {
	return &fakeCluster{id: "cluster-a", roles: []string{"os:admin"}, nodes: []fakeNode{
		{name: "cp-0", role: cluster.ControlPlane, talos: talos, kubernetes: kubernetes},
		{name: "worker-0", role: cluster.Worker, talos: talos, kubernetes: kubernetes},
		{name: "worker-1", role: cluster.Worker, talos: talos, kubernetes: kubernetes},
	}}
}

// Lease implements [cluster.Kubernetes]: nobody holds one unless it says so.
func (f *fakeCluster) Lease(context.Context) (cluster.Lease, error) {
	if f.leaseRead != nil {
		f.leaseRead()
	}

	return f.lease, f.leaseErr
}

// Vitals implements [cluster.Talos]: all is well.
func (f *fakeCluster) Vitals(context.Context, string) (cluster.Vitals, error) {
	disk := cluster.DiskSpace{Size: 100 << 30, Available: 80 << 30}
	if f.crowded {
		disk.Available = 1 << 20
	}

	return cluster.Vitals{Disk: &disk, Time: &cluster.TimeSync{Synced: true}}, errors.Join(f.down, f.vitalsErr)
}

// EtcdSnapshot implements [cluster.Talos].
func (f *fakeCluster) EtcdSnapshot(context.Context, string, io.Writer) error {
	return cluster.ErrDenied
}

// Workloads implements [cluster.WorkloadReader]: there are none.
func (f *fakeCluster) Workloads(context.Context) (cluster.Workloads, error) {
	return cluster.Workloads{}, f.noKubernetes()
}

// Objects implements [cluster.Objects].
func (f *fakeCluster) Objects(context.Context, cluster.ObjectQuery) ([]map[string]any, error) {
	f.gated.Add(1)

	return f.objects, f.noKubernetes()
}

// Image implements [cluster.Registry].
func (f *fakeCluster) Image(context.Context, string) error { return f.imageErr }

// dial hands the fake out in place of the adapters.
func (f *fakeCluster) dial(_ context.Context, _ *connection.Settings, access connection.Credentials, wanted string, _ connection.KubeconfigCache) (*connection.Connection, error) {
	f.dialled++
	f.wanted = wanted

	made := &connection.Connection{
		Name: cmp.Or(access.ContextName(wanted), "fake"), Talos: f, Kubernetes: f, Removals: f, Manifests: f, Workloads: f, Objects: f, Registry: f, Expires: f.expires, Identify: func(string) {},
		Close: func() error { f.closed++; return nil },
	}

	if f.home != nil && f.managed {
		made.Management = &connection.ManagementCluster{Access: f.home}
	} else if f.home != nil {
		made.Own = &connection.ManagementCluster{Access: f.home}
	}

	made.Unmanaged = f.unmanaged

	if f.store != nil {
		made.Store = func(string) publish.Store { return f.store }
	}

	return made, nil
}

// refusing is a store that fails the test when it is written to.
type refusing struct{ *testing.T }

func (r refusing) Patch(_ context.Context, changes map[string]*string) error {
	r.Errorf("published %v", changes)

	return nil
}

func (r refusing) Read(context.Context) (map[string]string, error) { return map[string]string{}, nil }

func (r refusing) String() string { return "a store" }

// clusters is a provider instance that reaches only the fake.
func (f *fakeCluster) clusters(t *testing.T) *connection.Clusters {
	t.Helper()

	t.Cleanup(func() {
		if f.dialled != f.closed {
			t.Errorf("%d connections were opened and %d closed", f.dialled, f.closed)
		}
	})

	shared := &connection.Settings{Version: "test", Clock: engine.RealClock(), Dial: f.dial}

	return connection.NewClusters(shared, connection.Credentials{})
}

func (f *fakeCluster) ClusterID(context.Context) (string, error) {
	if f.down != nil {
		return "", f.down
	}

	return f.id, f.idErr
}

func (f *fakeCluster) Roles() []string { return f.roles }

func (f *fakeCluster) Members(context.Context) ([]cluster.Member, error) {
	members := make([]cluster.Member, 0, len(f.nodes))
	for index, node := range f.nodes {
		if node.undiscovered {
			continue
		}

		members = append(members, cluster.Member{Hostname: node.name, Role: node.role, Addresses: []string{address(index)}})
	}

	return members, f.down
}

func address(index int) string { return fmt.Sprintf("10.5.0.%d", index+2) }

func (f *fakeCluster) Machine(_ context.Context, at string, _ *cluster.Machine, _ cluster.Extent) (cluster.Machine, error) {
	for index, node := range f.nodes {
		if address(index) != at {
			continue
		}

		if node.unreachable != nil {
			return cluster.Machine{}, node.unreachable
		}

		machine := cluster.Machine{
			Address: at, NodeName: node.name, MachineID: "id-" + node.name, Role: node.role, Talos: version.MustParse(node.talos),
			Platform: "metal", BootID: "boot-" + node.name, Stage: cluster.StageRunning, Ready: true,
		}
		if !node.unread {
			machine.Config = node.config()
		}

		return machine, nil
	}

	return cluster.Machine{}, cluster.ErrNotFound
}

// config pins every component to what the node runs, but for what it says itself.
func (n fakeNode) config() *cluster.MachineConfig {
	made := &cluster.MachineConfig{InstallImage: "ghcr.io/siderolabs/installer:v" + n.talos, Images: map[cluster.Component]string{}}

	for _, component := range cluster.Components(cluster.ControlPlane) {
		made.Images[component] = "registry.k8s.io/" + string(component) + ":v" + n.kubernetes
	}

	maps.Copy(made.Images, n.images)
	maps.DeleteFunc(made.Images, func(_ cluster.Component, image string) bool { return image == "" })

	return made
}

// Removals implements [cluster.Removals].
func (f *fakeCluster) Removals(context.Context, version.Version, version.Version, []string, []string) ([]cluster.Removal, error) {
	f.inspected.Add(1)

	return f.removals, f.down
}

// Diff implements [cluster.BootstrapManifests].
func (f *fakeCluster) Diff(context.Context, string, cluster.ManifestOptions) ([]cluster.ManifestChange, error) {
	f.inspected.Add(1)

	return f.changes, f.noKubernetes()
}

// Apply implements [cluster.BootstrapManifests].
func (f *fakeCluster) Apply(context.Context, string, cluster.ManifestOptions) ([]cluster.ManifestChange, error) {
	return nil, cluster.ErrDenied
}

// Unready implements [cluster.BootstrapManifests].
func (f *fakeCluster) Unready(context.Context, string) ([]string, error) { return nil, nil }

func (f *fakeCluster) Etcd(_ context.Context, at string, _ bool) (cluster.EtcdView, error) {
	var view cluster.EtcdView

	for index, node := range f.nodes {
		if node.role == cluster.ControlPlane {
			view.Members = append(view.Members, cluster.EtcdMember{ID: uint64(index + 1), Name: node.name, PeerAddresses: []string{address(index)}})
		}

		if address(index) == at {
			view.Status = cluster.EtcdStatus{MemberID: uint64(index + 1), Leader: 1}
		}
	}

	return view, nil
}

func (f *fakeCluster) UID(context.Context) (string, error) {
	if err := errors.Join(f.noKubernetes(), f.uidErr); err != nil {
		return "", err
	}

	return "uid-of-kube-system", nil
}

func (f *fakeCluster) noKubernetes() error { return errors.Join(f.down, f.kubernetesDown) }

func (f *fakeCluster) Nodes(context.Context) ([]cluster.KubeNode, error) {
	if err := f.noKubernetes(); err != nil {
		return nil, err
	}

	nodes := make([]cluster.KubeNode, 0, len(f.nodes))
	for index, node := range f.nodes {
		nodes = append(nodes, cluster.KubeNode{
			Name: node.name, Addresses: []string{address(index)}, ControlPlane: node.role == cluster.ControlPlane, Talos: true,
			Ready: node.unreachable == nil, ReadySince: time.Now(), Kubelet: version.MustParse(cmp.Or(node.kubelet, node.kubernetes)), MachineID: "id-" + node.name,
		})
	}

	return nodes, nil
}

// FollowNodes implements [cluster.Kubernetes].
func (f *fakeCluster) FollowNodes(context.Context) (stop func()) { return func() {} }

// NodesNow implements [cluster.Kubernetes].
func (f *fakeCluster) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return f.Nodes(ctx)
}

// StaticPods implements [cluster.Kubernetes].
func (f *fakeCluster) StaticPods(ctx context.Context, node string, components ...cluster.Component) ([]cluster.ComponentPod, error) {
	pods, err := f.ComponentPods(ctx)

	return slices.DeleteFunc(pods, func(pod cluster.ComponentPod) bool {
		return !pod.Component.Static() || node != "" && pod.Node != node || len(components) > 0 && !slices.Contains(components, pod.Component)
	}), err
}

// ComponentPods implements [cluster.Kubernetes]: the control planes' own run what
// their nodes do.
func (f *fakeCluster) ComponentPods(context.Context) ([]cluster.ComponentPod, error) {
	var pods []cluster.ComponentPod

	for _, node := range f.nodes {
		if node.role != cluster.ControlPlane {
			continue
		}

		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
			pods = append(pods, cluster.ComponentPod{
				Node: node.name, Component: component, Image: "registry.k8s.io/" + string(component) + ":v" + node.kubernetes, Ready: true, ConfigVersion: "1",
			})
		}
	}

	return pods, f.noKubernetes()
}

func (f *fakeCluster) Journal(context.Context) (cluster.Journal, error) {
	return f.journal, f.noKubernetes()
}

func (f *fakeCluster) Forget(ctx context.Context, id string) ([]string, error) {
	f.forgotten = append(f.forgotten, id)
	f.forgetBy, _ = ctx.Deadline()

	return f.kept, f.forgetErr
}

// fakeHome is a Kubernetes API with one object in it. It refuses to be written
// to, and counts what it is asked for.
type fakeHome struct {
	operator.Access

	object map[string]any
	err    error
	// away is an API that does not answer.
	away  bool
	asked atomic.Int32
}

// Object implements [cluster.ObjectAccess].
func (h *fakeHome) Object(ctx context.Context, _ cluster.Reference) (map[string]any, error) {
	h.asked.Add(1)

	if h.away {
		<-ctx.Done()

		return nil, ctx.Err()
	}

	return h.object, h.err
}

// Objects implements [cluster.Objects].
func (h *fakeHome) Objects(context.Context, cluster.ObjectQuery) ([]map[string]any, error) {
	return nil, h.err
}

// HasPart implements [cluster.ObjectAccess].
func (h *fakeHome) HasPart(context.Context, cluster.Reference, string) (bool, error) {
	return false, h.err
}

// PatchObject implements [cluster.ObjectAccess].
func (h *fakeHome) PatchObject(context.Context, cluster.Reference, string, map[string]any) (map[string]any, error) {
	return nil, cmp.Or(h.err, cluster.ErrDenied)
}

// Secret implements [cluster.SecretAccess].
func (h *fakeHome) Secret(context.Context, string, string) (cluster.Secret, error) {
	return cluster.Secret{}, cluster.ErrDenied
}

// Secrets implements [cluster.SecretAccess].
func (h *fakeHome) Secrets(context.Context, string, string) ([]cluster.Secret, error) {
	return nil, cluster.ErrDenied
}
