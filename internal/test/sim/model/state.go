// SPDX-License-Identifier: MPL-2.0

package model

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// Slot is one of a machine's two systems.
type Slot struct {
	// Name is A or B.
	Name string
	// Image is empty for a slot nothing was ever installed to.
	Image, Talos, Schematic string
}

// KubeState is the part of [NodeState] that Kubernetes shows of a machine, and what it depends on. It is cheap to
// copy.
type KubeState struct {
	// Name is both hostname and Kubernetes node name.
	Name string
	Role Role
	// Address has no port. If a machine has several, Outer is the one at which nothing answers, and Other is one
	// more that does. Addresses are all of them, in the order in which discovery names them.
	Address, Outer, Other string
	Addresses             []string
	UUID                  string
	// Identity is the discovery identity of the machine, MachineID its /etc/machine-id, which Talos derives from
	// it.
	Identity, MachineID string
	// BootID, Talos and so on are those of the last boot while it is down.
	BootID, Talos, Schematic, Platform string

	Kubelet    Kubelet
	Components Components
	// ConfigVersion counts how often the machine configuration was written since the
	// boot, which counts as the first time.
	ConfigVersion int
	// APIServerUp is true while the kube-apiserver on this machine serves.
	APIServerUp bool
	// StaticPods are those of a control plane, by component.
	StaticPods map[string]StaticPod
	// PodsReported is true once the kubelet has reported since the boot how they are. Until then Kubernetes shows
	// what it reported before.
	PodsReported bool
	// DiskPressure is a condition that the kubelet reports of its node while it runs.
	DiskPressure bool
}

// NodeState is a copy of everything that can be seen of a machine from outside.
type NodeState struct {
	KubeState

	// Up is true while a kernel runs, Reachable while the Talos API answers too.
	Up, Reachable bool
	// Dead is true while the machine hangs at its start, Maintenance if it is in maintenance mode meanwhile.
	Dead, Maintenance bool

	Stage Stage
	Ready bool
	Unmet []Condition
	// Image is what the machine was installed with, as of its last boot.
	Image string
	// Extensions are the names of the system extensions that it runs, sorted.
	Extensions []string
	// TalosTag is what the machine calls its version: mostly v and Talos.
	TalosTag   string
	SecureBoot bool
	// BootedWithUKI is true if the machine booted the UKI of what was installed.
	BootedWithUKI bool
	// SecurityUnknown is true if the machine does not report how it booted; SecureBoot is right all the same.
	SecurityUnknown bool
	// BootedAt and DownAt are simulated instants; DownAt is zero while up.
	BootedAt, DownAt time.Time

	// Booted and Next name the slot that runs and the one that the bootloader starts next. UpgradePending is true
	// while the META tag is there that an install leaves until the machine is ready, and UpgradeTag is what it
	// says: what the bootloader calls the system that it started before the install.
	Slots          [2]Slot
	Booted, Next   string
	UpgradePending bool
	UpgradeTag     string
	// Armed is true if an installer wrote a slot since the last boot.
	Armed      bool
	Installing bool
	// InstallImage is machine.install.image of the configuration.
	InstallImage string
	// Images are the images on the machine, sorted: those that were pulled and not yet dropped, of installers and
	// of components alike. OwnImages are installers in the store of Talos itself, in memory.
	Images, OwnImages []string

	// Config is the machine configuration in effect.
	Config []byte
	// PersistentConfig is the configuration that was stored for the next boot since the last one; nil if none was,
	// and below Talos 1.10, which does not show it. It differs from Config while one is staged or being tried.
	PersistentConfig []byte
	KubeletService   KubeletService
	// ProxyImage is the image of kube-proxy that a control plane renders; empty if kube-proxy is disabled or the
	// machine is a worker. CoreDNSImage is that of CoreDNS, which follows Talos unless the configuration pins it.
	ProxyImage, CoreDNSImage string
	// PulledComponents are the images of Kubernetes on the machine, sorted.
	PulledComponents map[ImageNamespace][]string
	// EtcdID is 0 on workers. EtcdHealthy is true for a voter that runs, EtcdServed is what the machine's own probe
	// found last.
	EtcdID                               uint64
	EtcdRunning, EtcdHealthy, EtcdServed bool
	// Vitals are what [World.Vitals] returns without waiting.
	Vitals Vitals
	// Unschedulable is what the Kubernetes face last said of the node.
	Unschedulable bool

	// Installs and Reboots count since the simulation began.
	Installs, Reboots int
}

// Nodes copies the state of all machines, control planes first, each in order
// of joining.
func (w *World) Nodes() []NodeState {
	w.mu.Lock()
	defer w.mu.Unlock()

	states := make([]NodeState, len(w.nodes))
	for i, n := range w.nodes {
		states[i] = w.state(n)
	}

	slices.SortStableFunc(states, func(a, b NodeState) int {
		return roleOrder(a.Role) - roleOrder(b.Role)
	})

	return states
}

// NodesOf copies the state of the machines of one role, as [World.Nodes] does.
func (w *World) NodesOf(role Role) []NodeState {
	w.mu.Lock()
	defer w.mu.Unlock()

	var states []NodeState

	for _, n := range w.nodes {
		if n.role == role {
			states = append(states, w.state(n))
		}
	}

	return states
}

// Has reports whether there is a machine of the role.
func (w *World) Has(role Role) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return slices.ContainsFunc(w.nodes, func(n *node) bool { return n.role == role })
}

func roleOrder(role Role) int {
	if role == ControlPlane {
		return 0
	}

	return 1
}

// Joined returns how many machines were ever part of the cluster.
func (w *World) Joined() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.joined
}

// Node copies the state of one machine, found by name or address, whether it
// answers or not.
func (w *World) Node(nameOrAddress string) (NodeState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n, err := w.find(nameOrAddress)
	if err != nil {
		return NodeState{}, err
	}

	return w.state(n), nil
}

// NameOf returns the name of the machine with that name or address; false if there is none.
func (w *World) NameOf(nameOrAddress string) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n, err := w.find(nameOrAddress)
	if err != nil {
		return "", false
	}

	return n.name, true
}

// KubeStates copies what Kubernetes shows of all machines, in the order of
// [World.Nodes].
func (w *World) KubeStates() []KubeState {
	w.mu.Lock()
	defer w.mu.Unlock()

	states := make([]KubeState, 0, len(w.nodes))

	for _, role := range []Role{ControlPlane, Worker} {
		for _, n := range w.nodes {
			if n.role == role {
				states = append(states, w.kubeState(n))
			}
		}
	}

	return states
}

// KubeState copies what Kubernetes shows of one machine, found by name or address.
func (w *World) KubeState(nameOrAddress string) (KubeState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	n, err := w.find(nameOrAddress)
	if err != nil {
		return KubeState{}, err
	}

	return w.kubeState(n), nil
}

func (w *World) kubeState(n *node) KubeState {
	running := n.running()

	return KubeState{
		Name: n.name, Role: n.role, Address: n.address, Outer: n.outer, Other: n.other, Addresses: n.addresses(),
		UUID: n.uuid, Identity: n.identity, MachineID: n.machineID,
		BootID: n.bootID, Talos: running.talos, Schematic: running.schematic, Platform: n.platform(),
		Components: n.components, ConfigVersion: n.configVersion, APIServerUp: w.apiServerUp(n),
		Kubelet: n.kubelet, StaticPods: n.staticPods(), PodsReported: n.podsReported,
		DiskPressure: n.kubelet.Running && n.suffers(StepDisk, EffectPressure),
	}
}

func (w *World) state(n *node) NodeState {
	running := n.running()
	unmet := n.unmet()

	state := NodeState{
		KubeState: w.kubeState(n),
		Up:        n.up, Reachable: n.reachable(), Dead: n.dead != nil, Maintenance: n.unconfigured,
		Stage: n.stage, Ready: len(unmet) == 0, Unmet: unmet,
		Image: running.image, Extensions: running.names(),
		TalosTag: cmp.Or(running.tag, "v"+running.talos), SecureBoot: n.secure, BootedWithUKI: n.uki, BootedAt: n.bootedAt, DownAt: n.downAt,
		SecurityUnknown: n.suffers(StepSecurityState, EffectUnreadable),
		Booted:          slotName(n.booted), Next: slotName(n.next), UpgradePending: n.tag >= 0, Armed: n.armed,
		Installing: n.installing, InstallImage: n.configured.install(), Images: w.cached(n), OwnImages: slices.Sorted(maps.Keys(w.fresh(n.ownImages))),
		Config: slices.Clone(n.config), PersistentConfig: n.persistentConfig(),
		KubeletService: n.kubeletService(),
		ProxyImage:     n.rendered(ProxyName), CoreDNSImage: n.rendered(CoreDNSName),
		PulledComponents: w.pulledComponents(n),
		Unschedulable:    n.unschedulable,
		Vitals:           w.vitals(n),
		Installs:         n.installs, Reboots: n.reboots,
	}

	if n.tag >= 0 {
		state.UpgradeTag = n.tagged
	}

	for i, slot := range n.slots {
		state.Slots[i] = Slot{Name: slotName(i), Image: slot.image, Talos: slot.talos, Schematic: slot.schematic}
	}

	if n.etcd != nil {
		state.EtcdID, state.EtcdHealthy = n.etcd.id, n.etcd.healthy()
		state.EtcdRunning, state.EtcdServed = n.etcd.running, n.etcd.served
	}

	return state
}

// APIServerUp reports whether the kube-apiserver on a machine, found by name or address, serves.
func (w *World) APIServerUp(nameOrAddress string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	n, err := w.find(nameOrAddress)

	return err == nil && w.apiServerUp(n)
}

// apiServerUp reports whether the kube-apiserver of a machine serves. It knows only the member beside it.
func (w *World) apiServerUp(n *node) bool {
	return n.up && n.podReady(APIServerName) && n.etcd != nil && n.etcd.running && w.quorum()
}

// Answering returns a control plane whose kube-apiserver serves: one with that address, or any if it is empty.
func (w *World) Answering(address string) (name string, up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, n := range w.nodes {
		if (address == "" || address == n.address || address == n.other) && w.apiServerUp(n) {
			return n.name, true
		}
	}

	return "", false
}

// Serving reports whether any kube-apiserver serves.
func (w *World) Serving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.anyAPIServer()
}

// Routing reports whether any control plane answers, through which others can be reached.
func (w *World) Routing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return slices.ContainsFunc(w.nodes, func(n *node) bool { return n.role == ControlPlane && n.reachable() })
}

func (w *World) anyAPIServer() bool {
	return slices.ContainsFunc(w.nodes, w.apiServerUp)
}

// EtcdQuorum reports whether more than half of the members run.
func (w *World) EtcdQuorum() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.quorum()
}

func (w *World) find(nameOrAddress string) (*node, error) {
	if n := w.named[nameOrAddress]; n != nil {
		return n, nil
	}

	return nil, fmt.Errorf("%q: %w", nameOrAddress, ErrUnknownNode)
}

// reach finds a machine whose API answers.
func (w *World) reach(nameOrAddress string) (*node, error) {
	n, err := w.find(nameOrAddress)
	if err != nil {
		return nil, err
	}

	if n.unconfigured {
		return nil, ErrUnconfigured
	}

	if !n.reachable() {
		return nil, fmt.Errorf("dial tcp %s: connect: %w", hostPort(n.address, "50000"), ErrUnreachable)
	}

	return n, nil
}

// fresh drops from a store what was not used for too long, and returns it.
func (w *World) fresh(store imageStore) imageStore {
	now := w.clock.Now()

	maps.DeleteFunc(store, func(_ string, image storedImage) bool {
		return now.Sub(image.used) > imageLifetime
	})

	return store
}

func (w *World) cached(n *node) []string {
	all := slices.Collect(maps.Keys(w.fresh(n.images)))

	for image := range n.pulled {
		if w.hasComponent(n, image) {
			all = append(all, image.image)
		}
	}

	slices.Sort(all)

	return slices.Compact(all)
}

// The components, named as their containers are.
const (
	KubeletName           = "kubelet"
	APIServerName         = "kube-apiserver"
	ControllerManagerName = "kube-controller-manager"
	SchedulerName         = "kube-scheduler"
	ProxyName             = "kube-proxy"
	CoreDNSName           = "coredns"
	// InstallerName is the image from which a machine would be reinstalled. It is only in the configuration.
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
	// Image and ConfigVersion are those of the configuration resource that pods are made from. Its versions count
	// from 1 after each boot.
	Image         string
	ConfigVersion int
	// SourceVersion is the version of what the machine configuration says about the component. Below Talos 1.14
	// pods are made from that, and it is equal to ConfigVersion. From there on it is another resource: it counts
	// every write of the machine configuration, while ConfigVersion counts only those that change something about
	// the pod.
	SourceVersion int
	// FilesVersion is the version of the files beside the pod of an API server, which is recreated with each
	// version. Below Talos 1.14 those of the scheduler count as well.
	FilesVersion int
	// Disabled is true if the machine renders no pod of the component: there is no pod, and PodImage is empty.
	Disabled bool
	// PodImage, PodConfigVersion and PodFilesVersion are those that the pod was made
	// from.
	PodImage                          string
	PodConfigVersion, PodFilesVersion int
	// Ready is true while the pod serves, Started is when its container started.
	Ready   bool
	Started time.Time
	// Trouble is why the container does not run; empty if nothing is wrong.
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

// The namespaces: kubelets run from the first, pods from the second. The last one is the containerd of Talos
// itself.
const (
	NamespaceSystem ImageNamespace = "system"
	NamespaceCRI    ImageNamespace = "cri"
	NamespaceOwn    ImageNamespace = "inmem"
)

// Observe is a client's question to a machine: it is recorded under what, may be struck by a fault, and returns the
// state if the machine answers.
func (w *World) Observe(ctx context.Context, name, what string) (state NodeState, err error) {
	if err := ctx.Err(); err != nil {
		return NodeState{}, err
	}

	w.locked(func() {
		var n *node

		if n, err = w.observe(name, what); err == nil {
			state = w.state(n)
		}
	})

	return state, err
}

// ReadBootID returns the kernel's boot ID.
func (w *World) ReadBootID(ctx context.Context, name string) (string, error) {
	state, err := w.Observe(ctx, name, "boot_id")

	return state.BootID, err
}

// Version returns the Talos version that runs, without v.
func (w *World) Version(ctx context.Context, name string) (string, error) {
	state, err := w.Observe(ctx, name, "version")

	return state.Talos, err
}

// MachineStatus returns stage, readiness and unmet conditions, along with the rest of the state.
func (w *World) MachineStatus(ctx context.Context, name string) (NodeState, error) {
	return w.Observe(ctx, name, "machine")
}

// observe finds a machine that answers, after applying the faults of the script. The lock is held.
func (w *World) observe(name, what string) (*node, error) {
	n, err := w.reach(name)
	if err != nil {
		return nil, err
	}

	if fault, found := w.takeFault(n.name, StepObserve); found {
		w.fallSilent(n, fault, 0)

		return w.reach(name)
	}

	w.record(n.name, history.KindRead, map[string]string{"what": what})

	return n, nil
}

// The file systems below /var, in bytes: the size and the free space of /var, those of the volume that
// [Options.ContainerdVolume] gives the images, and how much [EffectFull] leaves free.
const (
	DiskSize       = 24 << 30
	DiskFree       = 17 << 30
	ContainerdSize = 40 << 30
	ContainerdFree = 29 << 30
	FullDisk       = 100 << 20
)

// Vitals are what a machine reports about its disk and its clock.
type Vitals struct {
	// Disk is the file system below /var; nil if it is not reported.
	Disk *Disk
	// Containerd is the file system below /var/lib/containerd, where images are; nil if they share the one below
	// /var or it is not reported.
	Containerd *Disk
	// Time is nil if it is not reported.
	Time *Clocking
}

// Disk is a file system, in bytes.
type Disk struct{ Size, Available int64 }

// Clocking is the state of a clock.
type Clocking struct {
	// Synced is true if the clock is synchronised or not meant to be; Disabled is true in the latter case.
	Synced, Disabled bool
}

// Vitals asks a machine, found by name or address. With [EffectStall] on its disk it answers once that is over. If
// the caller gives up before, or its connection breaks, that error is returned, and the vitals without the disk.
func (w *World) Vitals(ctx context.Context, name string) (vitals Vitals, err error) {
	if err := ctx.Err(); err != nil {
		return Vitals{}, err
	}

	var (
		asked   *node
		current call
		stalled <-chan struct{}
	)

	w.locked(func() {
		if asked, err = w.observe(name, "vitals"); err != nil {
			return
		}

		current, stalled = begin(ctx, asked), asked.stalled
		vitals = w.vitals(asked)
	})

	if err != nil {
		return Vitals{}, err
	}

	defer current.end()

	if stalled == nil {
		return vitals, nil
	}

	select {
	case <-stalled:
	case <-current.ctx.Done():
	}

	if current.broken() {
		return vitals, current.err(ctx)
	}

	w.locked(func() { vitals = w.vitals(asked) })

	return vitals, nil
}

func (w *World) vitals(n *node) Vitals {
	vitals := Vitals{Time: &Clocking{Synced: true}}

	if !n.suffers(StepDisk, EffectUnreadable) && !n.suffers(StepDisk, EffectStall) {
		vitals.Disk, vitals.Containerd = w.disks(n)
	}

	switch {
	case n.suffers(StepClock, EffectUnreadable):
		vitals.Time = nil
	case n.suffers(StepClock, EffectUnsynced):
		vitals.Time.Synced = false
	case n.suffers(StepClock, EffectDisabled):
		vitals.Time.Disabled = true
	}

	return vitals
}

// disks returns the file system below /var, and that of the images if it is another one.
func (w *World) disks(n *node) (disk, containerd *Disk) {
	disk = &Disk{Size: DiskSize, Available: DiskFree}
	images := disk

	if w.options.ContainerdVolume {
		containerd = &Disk{Size: ContainerdSize, Available: ContainerdFree}
		images = containerd
	}

	if n.suffers(StepDisk, EffectFull) {
		images.Available = FullDisk
	}

	return disk, containerd
}
