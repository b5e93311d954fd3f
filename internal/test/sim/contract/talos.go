// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TalosFixture is an implementation of [cluster.Talos] with a cluster behind it, all of whose machines are up and
// settled, and with an administrator's credentials.
type TalosFixture interface {
	Talos() cluster.Talos
	// Machines returns the machines behind it, from another source than the API under test.
	Machines() []Machine
}

// TalosCase is one clause about the machines. None changes anything.
type TalosCase struct {
	Name string
	Run  func(t *testing.T, f TalosFixture)
}

// TalosCases lists the clauses about the machines.
func TalosCases() []TalosCase {
	return []TalosCase{
		{"the credentials are an administrator's", rolesAreTold},
		{"the cluster has one ID", oneClusterID},
		{"discovery lists every machine", membersAreListed},
		{"a machine says what it is and how it is", machinesAreTold},
		{"a machine that is known says the same again", knownMachinesAreTold},
		{"a configuration names the images", configurationsAreTold},
		{"every component says what it means to run", componentsAreTold},
		{"etcd is of one mind", etcdIsOfOneMind},
		{"a machine tells of its disk and its clock", vitalsAreTold},
		{"a machine shows the last lines of a service", logsAreShown},
		{"no installer runs", noInstallerRuns},
		{"images that were never pulled have no digest", imagesAreMissed},
		{"a configuration that names another image is left alone", configurationIsCompared},
	}
}

// logLines is how many lines of a log are asked for.
const logLines = 5

func rolesAreTold(t *testing.T, f TalosFixture) {
	if roles := f.Talos().Roles(); !slices.Contains(roles, "os:admin") {
		t.Errorf("the roles are %v, want os:admin among them", roles)
	}
}

func oneClusterID(t *testing.T, f TalosFixture) {
	first, err := f.Talos().ClusterID(t.Context())
	if err != nil || first == "" {
		t.Fatalf("ID %q, %v", first, err)
	}

	if second, err := f.Talos().ClusterID(t.Context()); err != nil || second != first {
		t.Errorf("ID %q, %v, want %q again", second, err, first)
	}
}

func membersAreListed(t *testing.T, f TalosFixture) {
	members, err := f.Talos().Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if len(members) != len(f.Machines()) {
		t.Errorf("%d members, want %d", len(members), len(f.Machines()))
	}

	for _, machine := range f.Machines() {
		index := slices.IndexFunc(members, func(one cluster.Member) bool { return slices.Contains(one.Addresses, machine.Addresses[0]) })
		if index < 0 {
			t.Errorf("no member has the address %s of %s", machine.Addresses[0], machine.Name)

			continue
		}

		if found := members[index]; found.Hostname == "" || (found.Role == cluster.ControlPlane) != machine.ControlPlane {
			t.Errorf("%s: %+v, want a member with a hostname that is a control plane: %t", machine.Name, found, machine.ControlPlane)
		}
	}
}

func machinesAreTold(t *testing.T, f TalosFixture) {
	for _, machine := range f.Machines() {
		found := observe(t, f, machine)

		if found.NodeName != machine.Name || !strings.EqualFold(found.UUID, machine.UUID) || found.BootID != machine.BootID ||
			(found.Role == cluster.ControlPlane) != machine.ControlPlane {
			t.Errorf("%s: %+v, want UUID %s, boot ID %s and a control plane: %t", machine.Name, found, machine.UUID, machine.BootID, machine.ControlPlane)
		}

		if found.MachineID != machine.MachineID || found.MachineID == "" {
			t.Errorf("%s: machine ID %q, want %q", machine.Name, found.MachineID, machine.MachineID)
		}

		if !found.Settled() || len(found.Unmet) > 0 || found.UpgradePending || found.Talos.IsZero() || found.Platform == "" {
			t.Errorf("%s: %+v, want a machine of a known version that is settled", machine.Name, found)
		}

		if found.StatusSince.IsZero() {
			t.Errorf("%s does not say when it made its status, by which two boots are told apart", machine.Name)
		}

		if (found.FilesVersion != "") != machine.ControlPlane || found.PodsSince.IsZero() == machine.ControlPlane {
			t.Errorf("%s: since %s, files %q; want to know of the static pods of control planes", machine.Name, found.PodsSince, found.FilesVersion)
		}
	}
}

// knownMachinesAreTold reads machines again: in the boot in which they are known, in which what does not change is
// not read, and as if they had been known in another one.
func knownMachinesAreTold(t *testing.T, f TalosFixture) {
	for _, machine := range f.Machines() {
		known := observe(t, f, machine)

		stale := known
		stale.Stage, stale.Ready, stale.Unmet, stale.Config = cluster.StageBooting, false, []string{"etcd: not yet"}, nil
		stale.FilesVersion, stale.PodsSince = "", time.Time{}

		earlier := stale
		earlier.StatusSince = known.StatusSince.Add(-time.Hour)
		earlier.BootID, earlier.Talos, earlier.Schematic, earlier.MachineID = "of-an-earlier-boot", version.Version{}, "of-an-earlier-system", ""

		for name, before := range map[string]cluster.Machine{"in this boot": stale, "in an earlier boot": earlier} {
			again, err := f.Talos().Machine(t.Context(), machine.Addresses[0], &before, cluster.Everything)
			if err != nil || !reflect.DeepEqual(again, known) {
				t.Errorf("%s, known %s: %+v, %v, want %+v", machine.Name, name, again, err, known)
			}
		}

		bootsAreTold(t, f, machine.Addresses[0], known, earlier)
	}
}

// bootsAreTold asks for no more than the boot of a known machine: as if nothing were known of it, and knowing all or a
// part of it, of this boot or of an earlier one. What was asked of the boot alone is not all that is known.
func bootsAreTold(t *testing.T, f TalosFixture, address string, known, earlier cluster.Machine) {
	t.Helper()

	partial := cluster.Machine{
		Address: known.Address, Talos: known.Talos, TalosTag: known.TalosTag, BootID: known.BootID,
		StatusSince: known.StatusSince, Stage: known.Stage, Ready: known.Ready, Unmet: known.Unmet, Partial: true,
	}

	ended := cluster.Machine{Address: known.Address, BootID: earlier.BootID, StatusSince: earlier.StatusSince, Partial: true}

	for name, test := range map[string]struct {
		known  *cluster.Machine
		extent cluster.Extent
		want   cluster.Machine
	}{
		"nothing":                   {nil, cluster.BootOnly, partial},
		"a part":                    {&partial, cluster.BootOnly, partial},
		"all":                       {&known, cluster.BootOnly, known},
		"all of an earlier boot":    {&earlier, cluster.BootOnly, partial},
		"a part of an earlier boot": {&ended, cluster.BootOnly, partial},
		"a part, for the rest":      {&partial, cluster.Everything, known},
		"a part of before, for all": {&ended, cluster.Everything, known},
	} {
		found, err := f.Talos().Machine(t.Context(), address, test.known, test.extent)
		if err != nil || !reflect.DeepEqual(found, test.want) {
			t.Errorf("%s, knowing %s: %+v, %v, want %+v", address, name, found, err, test.want)
		}
	}
}

func observe(t *testing.T, f TalosFixture, machine Machine) cluster.Machine {
	t.Helper()

	found, err := f.Talos().Machine(t.Context(), machine.Addresses[0], nil, cluster.Everything)
	if err != nil {
		t.Fatal(err)
	}

	return found
}

func configurationsAreTold(t *testing.T, f TalosFixture) {
	for _, machine := range f.Machines() {
		read := observe(t, f, machine).Config
		if read == nil {
			t.Errorf("%s says nothing of its configuration", machine.Name)

			continue
		}

		for component, image := range machine.Images {
			if named := read.Images[component]; named != "" && named != image {
				t.Errorf("%s is to run %s as its %s, and runs %s", machine.Name, named, component, image)
			}
		}

		if !read.Installs || read.InstallImage == "" {
			t.Errorf("%s would be installed from %q, want an image", machine.Name, read.InstallImage)
		}
	}
}

func componentsAreTold(t *testing.T, f TalosFixture) {
	for _, machine := range f.Machines() {
		for _, component := range cluster.Components(observe(t, f, machine).Role) {
			if component == cluster.Proxy && !machine.ControlPlane {
				continue
			}

			found, err := f.Talos().Component(t.Context(), machine.Addresses[0], component)
			if component == cluster.Proxy && machine.Proxyless {
				if !errors.Is(err, cluster.ErrNotFound) {
					t.Errorf("%s renders a kube-proxy that runs nowhere: %+v, %v", machine.Name, found, err)
				}

				continue
			}

			if err != nil {
				t.Errorf("%s of %s: %v", component, machine.Name, err)

				continue
			}

			if found.Image == "" || component.Static() && (found.Image != machine.Images[component] || found.ConfigVersion == "") {
				t.Errorf("%s of %s: %+v, want the image %q", component, machine.Name, found, machine.Images[component])
			}

			if component != cluster.Kubelet {
				continue
			}

			if !found.Running || !found.Healthy || found.Since.IsZero() || !strings.HasSuffix(found.Image, ":v"+machine.Kubelet) {
				t.Errorf("the kubelet of %s: %+v, want %s that is healthy", machine.Name, found, machine.Kubelet)
			}
		}
	}
}

func etcdIsOfOneMind(t *testing.T, f TalosFixture) {
	planes := slices.DeleteFunc(slices.Clone(f.Machines()), func(machine Machine) bool { return !machine.ControlPlane })

	var (
		leader uint64
		known  []uint64
		own    []uint64
	)

	for _, machine := range planes {
		view, err := f.Talos().Etcd(t.Context(), machine.Addresses[0], true)
		if err != nil {
			t.Fatal(err)
		}

		var members []uint64
		for _, member := range view.Members {
			members = append(members, member.ID)

			if member.Name == "" || member.Learner {
				t.Errorf("%s lists %+v, want a member that has started and votes", machine.Name, member)
			}
		}

		slices.Sort(members)

		if known == nil {
			known, leader = members, view.Status.Leader
		}

		if len(members) != len(planes) || !slices.Equal(members, known) || view.Status.Leader == 0 || view.Status.Leader != leader {
			t.Errorf("%s knows the members %x and follows %x, want %d members, %x as everybody, and %x to follow",
				machine.Name, members, view.Status.Leader, len(planes), known, leader)
		}

		if len(view.Status.Errors) > 0 || view.Status.Learner || view.Status.DBSize <= 0 || view.Status.Applied == 0 {
			t.Errorf("%s: %+v, want a member that complains of nothing", machine.Name, view.Status)
		}

		own = append(own, view.Status.MemberID)
	}

	slices.Sort(own)

	if !slices.Equal(own, known) {
		t.Errorf("the control planes are the members %x, and etcd has %x", own, known)
	}
}

func vitalsAreTold(t *testing.T, f TalosFixture) {
	for _, machine := range f.Machines() {
		found, err := f.Talos().Vitals(t.Context(), machine.Addresses[0])
		if err != nil {
			t.Fatal(err)
		}

		if found.Disk == nil || found.Disk.Available <= 0 || found.Disk.Available > found.Disk.Size {
			t.Errorf("the disk of %s: %+v, %v", machine.Name, found.Disk, found.DiskError)
		}

		if found.Time == nil || !found.Time.Synced && !found.Time.Disabled {
			t.Errorf("the clock of %s: %+v, %v", machine.Name, found.Time, found.TimeError)
		}
	}
}

func logsAreShown(t *testing.T, f TalosFixture) {
	for _, machine := range f.Machines() {
		lines, err := f.Talos().Logs(t.Context(), machine.Addresses[0], "machined", logLines)
		if err != nil || len(lines) == 0 || len(lines) > logLines {
			t.Errorf("machined of %s wrote %q, %v, want at most %d lines", machine.Name, lines, err, logLines)
		}

		if slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, " unary Success") || strings.Contains(line, "authorized based on PID")
		}) {
			t.Errorf("the last lines of machined of %s are about calls to its API: %q", machine.Name, lines)
		}

		if machine.ControlPlane {
			containersSpeak(t, f, machine)
		}
	}
}

// containersSpeak reads what the containers of static pods write, without what the container runtime writes in
// front of each line.
func containersSpeak(t *testing.T, f TalosFixture, machine Machine) {
	for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
		lines, err := f.Talos().Logs(t.Context(), machine.Addresses[0], cluster.ContainerLog(component, machine.Name), logLines)
		if err != nil || len(lines) == 0 || len(lines) > logLines {
			t.Errorf("%s of %s wrote %q, %v, want at most %d lines", component, machine.Name, lines, err, logLines)
		}

		if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "stderr F ") }) {
			t.Errorf("the lines of %s of %s begin with what the runtime wrote: %q", component, machine.Name, lines)
		}
	}

	if lines, err := f.Talos().Logs(t.Context(), machine.Addresses[0], cluster.ContainerLog("kube-nothing", machine.Name), logLines); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("a container that %s does not have wrote %q, %v", machine.Name, lines, err)
	}
}

func noInstallerRuns(t *testing.T, f TalosFixture) {
	for _, machine := range f.Machines() {
		if observe(t, f, machine).UpgradeAPI() != cluster.LifecycleAPI {
			continue
		}

		if idle, err := f.Talos().InstallerIdle(t.Context(), machine.Addresses[0]); err != nil || !idle {
			t.Errorf("%s is idle: %t, %v", machine.Name, idle, err)
		}
	}
}

func imagesAreMissed(t *testing.T, f TalosFixture) {
	for _, machine := range f.Machines() {
		want := cluster.ErrNotFound
		if observe(t, f, machine).UpgradeAPI() != cluster.LifecycleAPI {
			want = cluster.ErrUnsupported
		}

		digest, err := f.Talos().ImageDigest(t.Context(), machine.Addresses[0], "registry.invalid/nobody/installer:v0.0.1")
		if !errors.Is(err, want) || digest != "" {
			t.Errorf("%s has %q, %v, want %v", machine.Name, digest, err, want)
		}
	}
}

func configurationIsCompared(t *testing.T, f TalosFixture) {
	machine := f.Machines()[0]
	before := observe(t, f, machine)

	change := cluster.ImageChange{
		Component: cluster.Kubelet, From: "registry.invalid/nobody/kubelet:v0.0.1", To: "registry.invalid/nobody/kubelet:v0.0.2",
	}

	if err := f.Talos().Configure(t.Context(), machine.Addresses[0], change); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("configured %s: %v, want a conflict", machine.Name, err)
	}

	if after := observe(t, f, machine); before.Config == nil || after.Config == nil || after.Config.Images[cluster.Kubelet] != before.Config.Images[cluster.Kubelet] {
		t.Errorf("the configuration of %s was %+v and is %+v", machine.Name, before.Config, after.Config)
	}
}

// Machine is the truth about a machine, as far as the contract needs it.
type Machine struct {
	// Name is that of its Kubernetes node.
	Name         string
	ControlPlane bool
	// Addresses are all of its addresses; it answers at the first one.
	Addresses []string
	// MachineID is its /etc/machine-id in both APIs, UUID what its firmware reports; empty if it reports none.
	MachineID, UUID, BootID string
	// Kubelet is a version without v.
	Kubelet string
	// Images are what its static pods run; nil for a worker.
	Images map[cluster.Component]string
	// Proxyless is true if its cluster runs no kube-proxy.
	Proxyless bool
}

// systemUUID returns what its kubelet reports, which uses the machine ID if the firmware reports no UUID.
func (m Machine) systemUUID() string { return cmp.Or(m.UUID, m.MachineID) }

// FromModel returns the truth about the machines of a simulated cluster.
func FromModel(world *model.World) []Machine {
	states := world.Nodes()
	machines := make([]Machine, 0, len(states))

	for _, state := range states {
		machine := Machine{
			Name: state.Name, ControlPlane: state.Role == model.ControlPlane, Addresses: []string{state.Address},
			MachineID: state.MachineID, UUID: state.UUID, BootID: state.BootID, Kubelet: state.Kubelet.Version,
		}

		for name, pod := range state.StaticPods {
			if machine.Images == nil {
				machine.Images = map[cluster.Component]string{}
			}

			machine.Images[cluster.Component(name)] = pod.Image
		}

		machines = append(machines, machine)
	}

	return machines
}

// FromTalos returns real machines as they report themselves: the truth for what is asked of Kubernetes. addresses
// has all addresses of each machine.
func FromTalos(ctx context.Context, talos cluster.Talos, addresses [][]string) ([]Machine, error) {
	machines := make([]Machine, 0, len(addresses))
	proxyless := true

	for _, own := range addresses {
		said, err := talos.Machine(ctx, own[0], nil, cluster.Everything)
		if err != nil {
			return nil, err
		}

		machine := Machine{
			Name: said.NodeName, ControlPlane: said.Role == cluster.ControlPlane, Addresses: own,
			MachineID: said.MachineID, UUID: said.UUID, BootID: said.BootID, Images: map[cluster.Component]string{},
		}

		// Only control planes render kube-proxy.
		if said.Config != nil && machine.ControlPlane && !said.Config.Disabled[cluster.Proxy] {
			proxyless = false
		}

		for _, component := range cluster.Components(said.Role) {
			if component == cluster.Proxy {
				continue
			}

			status, err := talos.Component(ctx, own[0], component)
			if err != nil {
				return nil, err
			}

			if component == cluster.Kubelet {
				machine.Kubelet = Tag(status.Image)
			} else {
				machine.Images[component] = status.Image
			}
		}

		machines = append(machines, machine)
	}

	for i := range machines {
		machines[i].Proxyless = proxyless
	}

	return machines, nil
}

// Tag returns the version in a reference of an image, without v.
func Tag(image string) string {
	name, _, _ := strings.Cut(image, "@")

	return strings.TrimPrefix(name[strings.LastIndex(name, ":")+1:], "v")
}

// FromKubernetes returns real machines as their kubelets report them: the truth for what is asked of Talos.
func FromKubernetes(ctx context.Context, client kubernetes.Interface) ([]Machine, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	machines := make([]Machine, 0, len(nodes.Items))
	proxyless := !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Labels["k8s-app"] == string(cluster.Proxy) })

	for i := range nodes.Items {
		node := &nodes.Items[i]
		_, plane := node.Labels["node-role.kubernetes.io/control-plane"]

		machine := Machine{
			Name: node.Name, ControlPlane: plane, MachineID: node.Status.NodeInfo.MachineID, UUID: node.Status.NodeInfo.SystemUUID,
			BootID: node.Status.NodeInfo.BootID, Kubelet: strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v"), Images: map[cluster.Component]string{},
			Proxyless: proxyless,
		}

		if machine.UUID == machine.MachineID {
			machine.UUID = ""
		}

		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				machine.Addresses = append(machine.Addresses, address.Address)
			}
		}

		for j := range pods.Items {
			for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
				if pods.Items[j].Name == string(component)+"-"+node.Name {
					machine.Images[component] = pods.Items[j].Spec.Containers[0].Image
				}
			}
		}

		machines = append(machines, machine)
	}

	return machines, nil
}

// Machines is a fixture for the clauses about machines: an implementation and the
// truth about what is behind it.
type Machines struct {
	Adapter cluster.Talos
	Known   []Machine
}

// Talos returns the implementation.
func (m Machines) Talos() cluster.Talos { return m.Adapter }

// Machines returns the truth.
func (m Machines) Machines() []Machine { return m.Known }
