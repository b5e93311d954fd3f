// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"time"
)

// node is one machine. Everything but its name, role and address is guarded by
// World.mu.
type node struct {
	index   int
	name    string
	role    Role
	address string // the inner one that Talos and etcd use
	// outer is where a firewall lets nobody through, and other the second inner address;
	// empty for none.
	outer, other string
	uuid         string
	// identity is what discovery calls the machine, machineID what Talos makes of
	// that. Both are on the STATE partition.
	identity, machineID string
	secure, uki         bool
	drawn               map[string]uint64

	slots [2]system
	// booted is the slot of what runs, live what was in it then.
	booted int
	live   system
	next   int  // what the bootloader starts
	armed  bool // installed and not booted since
	// reverted: the bootloader was told to start the other slot by a rollback,
	// and the machine has not booted since.
	reverted bool
	tag      int // slot the META tag "upgrade" names, -1 without a pending upgrade
	// images are installers in the containerd of the CRI, from which clients install,
	// and ownImages those in that of Talos itself, in memory, which the legacy upgrade fills.
	images, ownImages imageStore

	config        []byte         // in effect
	configured    *configuration // the same, read
	configVersion int
	staged        []byte // takes the place of config at the next boot, nil for config itself
	persistent    []byte // stored since the boot, nil for none
	applying      bool
	restarting    bool   // a configuration that needs a reboot was applied
	unpinned      string // version of Kubernetes that Talos runs where config names none
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
	dead       chan struct{}         // closed when a machine that hangs may go on
	ailment    ailment               // why the kubelet reports that the node is not ready
	stuck      *hold                 // why the boot sequence does not go on
	stuckFor   string                // what it waits for, in words
	flap       *Fault                // what strikes when the node has been ready for a while
	troubles   map[trouble]time.Time // what is wrong with the machine, and until when; zero for good
	stalled    chan struct{}         // closed when the disk answers again, nil while it does

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
	// Running is the process, Ready what it reports of the node.
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

// load has the machine run what is in a slot from now on, whatever is written there
// later.
func (n *node) load(slot int) { n.booted, n.live = slot, n.slots[slot] }

func (n *node) platform() string { return n.running().platform }

// start gives the machine a new life: the one of a kernel.
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
