// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
)

// memory is what was seen of the cluster, so that a run has to ask only for what may have
// changed since.
type memory struct {
	// listing is held while members are listed.
	listing semaphore

	mu sync.Mutex

	id      string
	members []cluster.Member
	// registered are the names of the Node objects that there were when the members were
	// listed, and listed is when that was.
	registered map[string]bool
	listed     time.Time
	// proxies are the pods of kube-proxy; nil where they have to be listed.
	proxies fact.PodsByNode
	// machines are by address.
	machines map[string]memorisedMachine
}

// memorisedMachine is what a machine said last.
type memorisedMachine struct {
	// machine is nil where it did not answer, and err says why.
	machine *cluster.Machine
	err     error
	asked   time.Time
	// complete tells that it has said all that stays the same in this boot: before it has
	// finished booting it may not.
	complete bool
	// shown is what its Node object showed before it was asked.
	shown shown
}

// shown is the part of a Node object by which one sees that something has happened to the
// machine.
type shown struct {
	bootID     string
	ready      bool
	since      time.Time
	kubelet    string
	cordonedBy bool
}

func shownBy(kube *cluster.KubeNode) shown {
	if kube == nil {
		return shown{}
	}

	return shown{bootID: kube.BootID, ready: kube.Ready, since: kube.ReadySince, kubelet: kube.Kubelet.String(), cordonedBy: kube.CordonedByTalos}
}

func newMemory() *memory {
	return &memory{listing: newSemaphore(1), machines: map[string]memorisedMachine{}}
}

// machine is what is known of the machine at the address, for [cluster.Talos]; nil where
// all has to be asked.
func (m *memory) machine(address string) *cluster.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()

	known := m.machines[address]
	if !known.complete {
		return nil
	}

	return known.machine
}

// remember takes note of what a machine said, or why it did not answer.
func (m *memory) remember(address string, machine *cluster.Machine, err error, asked time.Time, kube *cluster.KubeNode) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.machines[address] = memorisedMachine{machine: machine, err: err, asked: asked, complete: m.completed(address, machine), shown: shownBy(kube)}
}

// completed tells whether the machine has said all that stays the same in its boot, by now
// or before.
func (m *memory) completed(address string, machine *cluster.Machine) bool {
	if machine == nil || machine.BootID == "" {
		return false
	}

	before := m.machines[address]

	return machine.Settled() || before.complete && before.machine.BootID == machine.BootID
}

// saw takes note of what a machine said to somebody who did not look at its Node object.
func (m *memory) saw(machine cluster.Machine) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.machines[machine.Address] = memorisedMachine{machine: &machine, complete: m.completed(machine.Address, &machine)}
}

// forget has the machine at the address asked for everything again.
func (m *memory) forget(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.machines, address)
}

// configured takes note that the configuration of a machine names another image.
func (m *memory) configured(address string, change cluster.ImageChange) {
	m.mu.Lock()
	defer m.mu.Unlock()

	known := m.machines[address]
	if known.machine == nil || known.machine.Config == nil {
		return
	}

	machine, config := *known.machine, *known.machine.Config

	if change.Component == cluster.Installer {
		config.InstallImage = change.To
	} else {
		config.Images = maps.Clone(config.Images)
		if config.Images == nil {
			config.Images = map[cluster.Component]string{}
		}

		config.Images[change.Component] = change.To
	}

	machine.Config = &config
	known.machine = &machine
	m.machines[address] = known
}

// askAgainAfter is for how long a machine that did not answer is not asked again: one that
// is switched off holds up whoever asks until the call times out.
const askAgainAfter = 30 * time.Second

// unchanged is what a node's machine said when it was asked last, provided that its Node
// object shows that nothing has happened to it since. A machine that is being upgraded by
// this run is as it was before: its upgrade knows better.
func (m *memory) unchanged(node cluster.Node, moving bool, now time.Time) (memorisedMachine, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	known, found := m.machines[node.Address]

	switch {
	case !found:
		return known, false
	case known.machine == nil:
		return known, now.Sub(known.asked) < askAgainAfter && known.shown == shownBy(node.Kube)
	case moving:
		return known, true
	case node.Kube == nil, !node.Kube.Ready, known.machine.BootID == "", known.machine.BootID != node.Kube.BootID:
		return known, false
	default:
		return known, known.machine.Settled() && known.shown == shownBy(node.Kube)
	}
}

// listMembers takes over the members that were listed, and beside which Node objects.
func (m *memory) listMembers(members []cluster.Member, nodes []cluster.KubeNode, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.members, m.listed, m.registered = members, now, map[string]bool{}
	for _, node := range nodes {
		m.registered[node.Name] = true
	}
}

// list takes over the ID of the cluster, and the pods where kube-proxy's are among those that
// were listed.
func (m *memory) list(facts clusterFacts, pods bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.id = cmp.Or(facts.id, m.id)

	if facts.kubeErr == nil && pods {
		m.proxies = facts.proxies
	}
}

// forgetProxies has the pods of kube-proxy listed again.
func (m *memory) forgetProxies() {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.proxies = nil
}

// membersOf are the members that discovery listed last; known is false where they have to
// be listed again, because nodes have joined or left, or because one may be gone.
func (m *memory) membersOf(nodes []cluster.KubeNode, now time.Time) (members []cluster.Member, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.registered == nil || len(nodes) != len(m.registered) {
		return nil, false
	}

	for _, node := range nodes {
		mayBeGone := !node.Ready && now.Sub(node.ReadySince) > cluster.GoneAfter && now.Sub(m.listed) > cluster.GoneAfter
		if !m.registered[node.Name] || mayBeGone {
			return nil, false
		}
	}

	return m.members, true
}

// listedMembers tells whether members were listed before.
func (m *memory) listedMembers() bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.registered != nil
}

// clusterID is the one that the cluster told last.
func (m *memory) clusterID() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.id
}

// proxyPods are the pods of kube-proxy as they were listed last; nil where they have to be
// listed again.
func (m *memory) proxyPods() fact.PodsByNode {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.proxies
}
