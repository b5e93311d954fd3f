// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
)

// node is one machine. Everything but its name, role and address is guarded by
// World.mu.
type node struct {
	index   int
	name    string
	role    Role
	address string // the inner one that Talos and etcd use
	// outer is an address at which a firewall lets nothing through, and other the second inner address; empty for
	// none.
	outer, other string
	uuid         string
	// identity is what discovery calls the machine, machineID what Talos derives from it. Both are on the STATE
	// partition.
	identity, machineID string
	secure, uki         bool
	drawn               map[string]uint64

	slots [2]system
	// booted is the slot of the system that runs, live what was in it at the boot.
	booted int
	live   system
	next   int  // what the bootloader starts
	armed  bool // installed and not booted since
	// reverted is true if a rollback made the bootloader start the other slot and the machine has not booted since.
	reverted bool
	// tag is the slot that the META tag "upgrade" names, -1 without one, and tagged is the name that it has there.
	// The tag stays until the machine has been ready.
	tag    int
	tagged string
	// entries are the file names of the slots if sd-boot starts them. selected is true while nothing has told it
	// which one to start.
	entries  [2]string
	selected bool
	// images are installers in the containerd of the CRI, from which clients install, and ownImages those in the
	// containerd of Talos itself, in memory, which the legacy upgrade fills as well.
	images, ownImages imageStore
	// damaged are the digests of installers of which the disk lacks files, however often they
	// are downloaded into images: a container that was never removed holds what was unpacked.
	damaged map[string]bool

	config        []byte         // in effect
	configured    *configuration // the same, read
	configVersion int
	staged        []byte // takes the place of config at the next boot, nil for config itself
	persistent    []byte // stored since the boot, nil for none
	applying      bool
	restarting    bool   // a configuration that needs a reboot was applied
	unpinned      string // version of Kubernetes that Talos runs if config names none
	pulled        map[runtimeImage]time.Time

	up       bool // the kernel runs and apid serves
	life     context.Context
	kill     context.CancelFunc
	link     context.Context // ends when clients' connections break
	unlink   context.CancelFunc
	booting  context.Context // ends when another sequence takes the boot over
	stopBoot context.CancelFunc
	bootID   string
	bootedAt time.Time
	downAt   time.Time

	silent     bool // apid does not answer although the machine runs
	silentStep Step
	silentEnd  time.Time
	dead       chan struct{} // closed when a machine that hangs may go on
	// unconfigured is true if it is in maintenance mode until then.
	unconfigured bool
	ailment      ailment               // why the kubelet reports that the node is not ready
	stuck        *hold                 // why the boot sequence does not go on
	stuckFor     string                // what it waits for, in words
	flap         *Fault                // what strikes when the node has been ready for a while
	troubles     map[trouble]time.Time // what is wrong with the machine, and until when; zero for good
	stalled      chan struct{}         // closed when the disk answers again, nil while it does

	stage         Stage
	sequence      string // running sequence, empty in between
	byHand        bool   // a person asked for the sequence
	actor         string
	installing    bool
	cordoned      bool // the machine's own cordon is to be lifted
	removed       bool
	unschedulable bool // as the Kubernetes face says

	components   Components
	kubelet      Kubelet
	service      kubeletService
	pods         map[string]*staticPod // by component, empty on workers
	podsUp       bool                  // static pods were started since the boot
	podsMadeBy   string                // the version of the kubelet that made them
	podsReported bool                  // the kubelet has said since how they are
	rejoined     bool                  // the boot came to its end
	etcd         *member
	events       *ring
	logs         map[string][]string // lines since the boot, by service
	calls        []apiCall           // to the API since the boot, the last ones
	reported     report

	installs, reboots, boots, actors int
}

// Kubelet is what a node's kubelet does.
type Kubelet struct {
	// Running is true while the process runs, Ready is what it reports about the node.
	Running, Ready bool
	// Version has no v.
	Version string
}

// Components are versions without v of what runs on a node; workers have a
// kubelet and the proxy only.
type Components struct {
	APIServer, ControllerManager, Scheduler, Proxy, Kubelet string
}

func slotName(slot int) string { return [...]string{"A", "B"}[slot] }

func (n *node) reachable() bool { return n.up && !n.silent }

func (n *node) running() system { return n.live }

// load makes the machine run what is in a slot from now on, whatever is written there later.
func (n *node) load(slot int) { n.booted, n.live = slot, n.slots[slot] }

func (n *node) platform() string { return n.running().platform }

// start makes the contexts of a machine whose kernel starts.
func (n *node) start(parent context.Context) {
	n.life, n.kill = context.WithCancel(parent)
	n.booting, n.stopBoot = context.WithCancel(n.life)
	n.relink()
}

func (n *node) relink() {
	n.cut()
	n.link, n.unlink = context.WithCancel(n.life)
}

// cut breaks every connection to the machine.
func (n *node) cut() {
	if n.unlink != nil {
		n.unlink()
	}
}

// SetUUID changes the UUID of the hardware that the firmware of a machine, found by name or address, reports. Cheap
// boards share one, and some have only zeros.
func (w *World) SetUUID(nameOrAddress, uuid string) (err error) {
	w.locked(func() {
		var n *node

		if n, err = w.find(nameOrAddress); err == nil {
			n.uuid = uuid
			w.touch(n)
		}
	})

	return err
}

// WipeStateByHand plays a person who resets the STATE partition of a machine and gives it its configuration again:
// the machine reboots into the system that it has, keeps its name, and has another identity.
func (w *World) WipeStateByHand(nameOrAddress string) error {
	if err := w.RebootByHand(nameOrAddress, RebootDefault); err != nil {
		return err
	}

	return w.identify(nameOrAddress, func(n *node) (identity, machineID string) {
		return drawIdentity(w.options.Seed, "identity", n.name, n.bootID, strconv.Itoa(n.boots))
	})
}

// CloneState gives a machine the identity of another one, as copying the disk does.
func (w *World) CloneState(from, to string) error {
	original, err := w.Node(from)
	if err != nil {
		return err
	}

	return w.identify(to, func(*node) (identity, machineID string) { return original.Identity, original.MachineID })
}

func (w *World) identify(nameOrAddress string, as func(*node) (identity, machineID string)) (err error) {
	w.locked(func() {
		var n *node

		if n, err = w.find(nameOrAddress); err == nil {
			n.identity, n.machineID = as(n)
			w.touch(n)
		}
	})

	return err
}

func parseVersion(text string) (*semver.Version, error) {
	version, err := semver.StrictNewVersion(strings.TrimPrefix(text, "v"))
	if err != nil {
		return nil, fmt.Errorf("want MAJOR.MINOR.PATCH: %w", err)
	}

	return version, nil
}

// AtLeast reports whether a Talos version is of the given minor or a later one. Pre-releases count as their
// release. It is false if the version cannot be parsed.
func AtLeast(version string, major, minor uint64) bool {
	v, err := parseVersion(version)
	if err != nil {
		return false
	}

	return v.Major() > major || v.Major() == major && v.Minor() >= minor
}

// sameMinor reports whether both versions are of one minor version.
func sameMinor(a, b string) bool {
	first, err := parseVersion(a)
	if err != nil {
		return false
	}

	second, err := parseVersion(b)

	return err == nil && first.Major() == second.Major() && first.Minor() == second.Minor()
}

// defaultKubernetes returns the Kubernetes version that a Talos version installs if the machine configuration names
// none.
func defaultKubernetes(talos string) string {
	v, err := parseVersion(talos)
	if err != nil {
		return ""
	}

	const offset = 23 // Talos 1.11 came with Kubernetes 1.34, and so on, one by one.

	return fmt.Sprintf("1.%d.0", v.Minor()+offset)
}

// hostRange is the range of the host minors from which an installer upgrades: from is included, below is not.
type hostRange struct {
	from, below uint64
}

// hostRangeOf returns the minors of the hosts for the minor of an installer.
func hostRangeOf(minor uint64) (hostRange, bool) {
	accepted, known := map[uint64]hostRange{
		2: {0, 3}, 3: {0, 5}, 4: {0, 6}, 5: {2, 7}, 6: {3, 8}, 7: {4, 9}, 8: {5, 10}, 9: {8, 11},
		10: {8, 12}, 11: {9, 13}, 12: {10, 14}, 13: {11, 15}, 14: {12, 16}, 15: {13, 17},
	}[minor]

	return accepted, known
}

// released reports whether an installer of that version could exist at all.
func released(version *semver.Version) bool {
	_, known := hostRangeOf(version.Minor())

	return version.Major() == 1 && known
}

// checkHost is the installer's first step: it checks whether the installer may replace what the host runs.
func checkHost(installer, host *semver.Version) error {
	accepted, known := hostRangeOf(installer.Minor())

	switch {
	case !known || installer.Major() != 1:
		return fmt.Errorf("upgrades to version %s are not supported", installer)
	case host.Minor() < accepted.from:
		return fmt.Errorf("host version %s is too old to upgrade to Talos %s", host, installer)
	case host.Minor() >= accepted.below:
		return fmt.Errorf("host version %s is too new to downgrade to Talos %s", host, installer)
	default:
		return nil
	}
}
