// SPDX-License-Identifier: MPL-2.0

package fact

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Store holds all that is known about a cluster, so that a run has to ask only for what may have changed. It is
// safe for concurrent use. What it returns must not be changed.
type Store struct {
	mu sync.Mutex

	steps     Steps
	clusterID string
	members   Dated[[]cluster.Member]
	// registered are the names of the Node objects from when the members were listed; nil before that.
	registered map[string]bool
	// strangers is true if listed members have no Node object: they may be about to join, or have left.
	strangers bool
	// pods are those of the control planes, proxies those of kube-proxy; nil if they have to be listed.
	pods    Dated[[]cluster.ComponentPod]
	proxies PodsByNode
	// machines are by address.
	machines map[string]machine
	// moving are the nodes whose upgrades have begun and not ended.
	moving map[string]bool
}

// machine is what is known about a machine. All of it is from one boot.
type machine struct {
	// said is what it reported last; nil if it did not answer.
	said Dated[*cluster.Machine]
	// complete is true once it has reported everything that stays the same in this boot, which may be missing
	// until it has finished booting.
	complete bool
	// staticPods is true if said includes what static pods are made from.
	staticPods bool
	// shown is what its Node object showed before it was asked; silent is true if it did not answer and
	// Kubernetes had no Node object for it.
	shown  shown
	silent bool
	// since is when it first answered in this boot.
	since time.Time
	// etcd is what its member of etcd reported last; members is true if that includes the list of members.
	etcd    Dated[*cluster.EtcdView]
	members bool
}

// shown is the part of a Node object that changes if something happens to the machine.
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

// New returns an empty store.
func New() *Store {
	return &Store{machines: map[string]machine{}, moving: map[string]bool{}}
}

// Moment returns the given time with the number of steps taken so far.
func (s *Store) Moment(now time.Time) Moment {
	s.mu.Lock()
	defer s.mu.Unlock()

	return Moment{At: now, Steps: s.steps}
}

// Steps returns the number of steps taken so far.
func (s *Store) Steps() Steps {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.steps
}

// Acted counts something that was done to a node of that role, or a consequence of it.
func (s *Store) Acted(role cluster.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.count(role)
}

// Take counts a step that is about to be taken if allow, which is given the steps taken so far, returns true. No
// other step is counted meanwhile, so allow must not use the store.
func (s *Store) Take(role cluster.Role, allow func(sofar Steps) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if allow(s.steps) {
		s.count(role)
	}
}

func (s *Store) count(role cluster.Role) {
	s.steps.All++

	if role != cluster.Worker {
		s.steps.Grave++
	}
}

// Move records that the upgrade of a node begins or has ended.
func (s *Store) Move(node string, moving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !moving {
		delete(s.moving, node)

		return
	}

	s.moving[node] = true
}

// Moves reports whether the upgrade of a node has begun and not ended.
func (s *Store) Moves(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.moving[node]
}

// Tell records what the machine at the address reported, or why it did not answer. StaticPods is true if it was
// asked for what static pods are made from. Kube is its Node object from before the question; nil if there was
// none, or none was read. A partial observation is not recorded.
func (s *Store) Tell(address string, said Dated[*cluster.Machine], staticPods bool, kube *cluster.KubeNode) {
	if said.Value != nil && said.Value.Partial {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	before := s.machines[address]
	now := machine{said: said, staticPods: staticPods, shown: shownBy(kube), since: said.Got}

	if said.Value != nil && before.said.Value != nil && before.said.Value.BootID == said.Value.BootID {
		now.complete, now.etcd, now.members, now.since = before.complete, before.etcd, before.members, before.since
	}

	if said.Value != nil && said.Value.BootID != "" {
		now.complete = now.complete || said.Value.Settled()
	} else {
		now.complete = false
	}

	s.machines[address] = now
}

// TellEtcd records what the member of etcd on the machine at the address reported, or why it did not answer.
// Members is true if it was asked for the list of members. Nothing is recorded if the machine has not answered,
// or if the question began before the machine first answered in this boot.
func (s *Store) TellEtcd(address string, said Dated[*cluster.EtcdView], members bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	known := s.machines[address]
	if known.said.Value == nil || said.Asked.At.Before(known.since) {
		return
	}

	known.etcd, known.members = said, members
	s.machines[address] = known
}

// Machine returns what the machine at the address reported, and whether that is recent enough.
func (s *Store) Machine(address string, need Need, staticPods bool) (*cluster.Machine, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	known := s.machines[address]

	return known.said.Value, known.said.fits(need) && (known.staticPods || !staticPods)
}

// Etcd returns what the member of etcd on the machine at the address reported, and whether that is recent enough.
func (s *Store) Etcd(address string, need Need, members bool) (*cluster.EtcdView, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	known := s.machines[address]

	return known.etcd.Value, known.etcd.fits(need) && (known.members || !members)
}

// Known returns what is known about the machine at the address, for [cluster.Talos.Machine]; nil if everything
// has to be asked.
func (s *Store) Known(address string) *cluster.Machine {
	s.mu.Lock()
	defer s.mu.Unlock()

	known := s.machines[address]
	if !known.complete {
		return nil
	}

	return known.said.Value
}

// Forget drops what is known about the machine at the address, so that it is asked for everything again.
func (s *Store) Forget(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.machines, address)
}

// Configured records that the configuration of a machine names another image.
func (s *Store) Configured(address string, change cluster.ImageChange) {
	s.mu.Lock()
	defer s.mu.Unlock()

	known := s.machines[address]
	if known.said.Value == nil || known.said.Value.Config == nil {
		return
	}

	changed, config := *known.said.Value, *known.said.Value.Config

	if change.Component == cluster.Installer {
		config.InstallImage = change.To
	} else {
		config.Images = maps.Clone(config.Images)
		if config.Images == nil {
			config.Images = map[cluster.Component]string{}
		}

		config.Images[change.Component] = change.To
	}

	changed.Config = &config
	known.said.Value = &changed
	s.machines[address] = known
}

// askAgainAfter is how long a machine that did not answer is not asked again: a machine that is switched off
// delays the caller until the call times out.
const askAgainAfter = 30 * time.Second

// Unchanged returns what a node's machine reported last, or why it did not answer, if its Node object shows no
// change since; known is false if the machine has to be asked. A machine that this run is upgrading counts as
// unchanged, because its own upgrade asks it. If blind is true, which means that nothing can be begun, every
// machine that was asked before does, however old its answer is.
func (s *Store) Unchanged(node cluster.Node, blind bool, now time.Time) (said *cluster.Machine, err error, known bool) { //nolint:revive // the error is a fact
	s.mu.Lock()
	defer s.mu.Unlock()

	last, found := s.machines[node.Address]

	switch {
	case !found:
		return nil, nil, false
	case last.said.Value == nil:
		return nil, last.said.Err, blind || now.Sub(last.said.Asked.At) < askAgainAfter && last.shown == shownBy(node.Kube)
	case blind || s.moving[node.Name]:
		return last.said.Value, nil, true
	case node.Kube == nil, !node.Kube.Ready, last.said.Value.BootID == "", last.said.Value.BootID != node.Kube.BootID:
		return nil, nil, false
	default:
		return last.said.Value, nil, last.said.Value.Settled() && last.shown == shownBy(node.Kube)
	}
}

// silence returns why the machine of a worker without a Node object did not answer; nil if it did, or has to be
// asked. The caller holds the lock.
func (s *Store) silence(address string) error {
	if last := s.machines[address]; last.silent {
		return last.said.Err
	}

	return nil
}

// Doubts reports whether a node has to be asked whether it still exists, even if the observation is not about it.
// A machine that has left cannot be removed from discovery, which lists it for half an hour after its last sign
// of life. A machine that is known to be silent is asked again only by observations of all nodes.
func (s *Store) Doubts(node cluster.Node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return node.Kube == nil && node.Role == cluster.Worker && s.silence(node.Address) == nil
}

// MarkGone marks workers as gone that only discovery still lists: the Kubernetes API has no Node object for them,
// they do not answer, and no run of ours left them unfinished. The Kubernetes API must have answered.
func (s *Store) MarkGone(nodes []cluster.Node, journal cluster.Journal) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for index := range nodes {
		node := &nodes[index]
		if node.Kube != nil || node.Role != cluster.Worker {
			continue
		}

		if node.Machine == nil && node.Unreachable == nil {
			node.Unreachable = s.silence(node.Address)
		}

		if !errors.Is(node.Unreachable, cluster.ErrUnreachable) {
			continue
		}

		if last, found := s.machines[node.Address]; found && errors.Is(last.said.Err, cluster.ErrUnreachable) {
			last.silent = true
			s.machines[node.Address] = last
		}

		node.Gone = !s.moving[node.Name] && !unfinished(journal, node.Name)
	}
}

// Identify records the ID of the cluster, unless it is empty.
func (s *Store) Identify(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if id != "" {
		s.clusterID = id
	}
}

// ClusterID returns the ID that the cluster reported last.
func (s *Store) ClusterID() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.clusterID
}

// ListMembers records the listed members, and the Node objects from the same time.
func (s *Store) ListMembers(listed Dated[[]cluster.Member], nodes []cluster.KubeNode) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.members, s.registered = listed, make(map[string]bool, len(nodes))
	addresses := map[string]bool{}

	for _, node := range nodes {
		s.registered[node.Name] = true

		for _, address := range node.Addresses {
			addresses[address] = true
		}
	}

	s.strangers = slices.ContainsFunc(listed.Value, func(member cluster.Member) bool {
		known := slices.ContainsFunc(member.Addresses, func(address string) bool { return addresses[address] })

		return !s.registered[member.Hostname] && !known
	})
}

// Members returns the members that discovery listed last; known is false if they have to be listed again, because
// nodes have joined or left, or because one may be gone.
func (s *Store) Members(nodes []cluster.KubeNode, now time.Time) (members []cluster.Member, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	old := now.Sub(s.members.Got) > cluster.GoneAfter

	if s.registered == nil || len(nodes) != len(s.registered) || s.strangers && old {
		return nil, false
	}

	for _, node := range nodes {
		mayBeGone := !node.Ready && now.Sub(node.ReadySince) > cluster.GoneAfter && old
		if !s.registered[node.Name] || mayBeGone {
			return nil, false
		}
	}

	return s.members.Value, true
}

// ListedMembers reports whether members were listed before.
func (s *Store) ListedMembers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.registered != nil
}

// ListPods records the listed pods of the control planes, unless newer ones are known. If one of them is not
// Ready, nothing is kept, so that the next caller lists them again.
func (s *Store) ListPods(listed Dated[[]cluster.ComponentPod]) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if listed.Got.Before(s.pods.Got) {
		return
	}

	s.pods = listed
	if slices.ContainsFunc(listed.Value, func(pod cluster.ComponentPod) bool { return !pod.Ready }) {
		s.pods = Dated[[]cluster.ComponentPod]{}
	}
}

// StaticPods returns the pods of the control planes, and whether they were listed recently enough.
func (s *Store) StaticPods(need Need) ([]cluster.ComponentPod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.pods.Value, s.pods.fits(need)
}

// ListProxies records the listed pods of kube-proxy; nil has them listed again.
func (s *Store) ListProxies(proxies PodsByNode) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.proxies = proxies
}

// Proxies returns the pods of kube-proxy as they were listed last; nil if they have to be listed again.
func (s *Store) Proxies() PodsByNode {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.proxies
}

// Date is when something that is known was learned.
type Date struct {
	What string
	Got  time.Time
}

// Dates returns the dates of the facts that a permit for a node is based on besides the Node objects: those about
// its machine, about the control planes with their members of etcd and their static pods, and the members. Facts
// that were never asked for are left out.
func (s *Store) Dates(observed cluster.Observation, node string) []Date {
	s.mu.Lock()
	defer s.mu.Unlock()

	var dates []Date

	note := func(what string, got time.Time) {
		if !got.IsZero() {
			dates = append(dates, Date{What: what, Got: got})
		}
	}

	for _, one := range observed.Nodes {
		if one.Name == node || one.Role == cluster.ControlPlane {
			note("machine of "+one.Name, s.machines[one.Address].said.Got)
			note("etcd on "+one.Name, s.machines[one.Address].etcd.Got)
		}
	}

	note("static pods", s.pods.Got)
	note("members", s.members.Got)

	return dates
}
