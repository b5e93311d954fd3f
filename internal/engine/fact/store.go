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

// Store is all that is known of a cluster, so that a run has to ask only for what may have changed. It
// may be used by several goroutines. Nobody changes what it gives.
type Store struct {
	mu sync.Mutex

	steps     Steps
	clusterID string
	members   Dated[[]cluster.Member]
	// registered are the names of the Node objects that there were when the members were
	// listed; nil before that.
	registered map[string]bool
	// strangers tells that members were listed that have no Node object: they may be about to join, or have left.
	strangers bool
	// pods are those of the control planes, proxies those of kube-proxy; nil where they have to be
	// listed.
	pods    Dated[[]cluster.ComponentPod]
	proxies PodsByNode
	// machines are by address.
	machines map[string]machine
	// moving are the nodes whose upgrades have begun and not ended.
	moving map[string]bool
}

// machine is what is known of a machine. All of it belongs to one boot.
type machine struct {
	// said is what it said last; nil where it did not answer.
	said Dated[*cluster.Machine]
	// complete tells that it has said all that stays the same in this boot: before it has
	// finished booting it may not.
	complete bool
	// staticPods tells that said was asked for what static pods are made from.
	staticPods bool
	// shown is what its Node object showed before it was asked, and silent tells that it did not answer
	// and had none, as Kubernetes said.
	shown  shown
	silent bool
	// since is when it was first heard of in this boot.
	since time.Time
	// etcd is what its member of etcd said last, and members that it was asked for the others.
	etcd    Dated[*cluster.EtcdView]
	members bool
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

// New is a store of a cluster of which nothing is known.
func New() *Store {
	return &Store{machines: map[string]machine{}, moving: map[string]bool{}}
}

// Moment is the present, at the given time.
func (s *Store) Moment(now time.Time) Moment {
	s.mu.Lock()
	defer s.mu.Unlock()

	return Moment{At: now, Steps: s.steps}
}

// Steps are those that there were so far.
func (s *Store) Steps() Steps {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.steps
}

// Acted notes that something was done to a node of that role, or came of it.
func (s *Store) Acted(role cluster.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.count(role)
}

// Take notes a step about to be done where the function allows it, which is told the steps that there were
// so far. Nobody takes another one meanwhile; the function must not ask the store.
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

// Move notes that the upgrade of a node begins or has ended.
func (s *Store) Move(node string, moving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !moving {
		delete(s.moving, node)

		return
	}

	s.moving[node] = true
}

// Moves tells whether the upgrade of a node has begun and not ended.
func (s *Store) Moves(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.moving[node]
}

// Tell takes note of what the machine at the address said, or why it did not answer. StaticPods tells
// that it was asked for what static pods are made from, and kube is its Node object as it was before;
// nil where there was none, or nobody has looked at it.
func (s *Store) Tell(address string, said Dated[*cluster.Machine], staticPods bool, kube *cluster.KubeNode) {
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

// TellEtcd takes note of what the member of etcd on the machine at the address said, or why it did not
// answer. Members tells that it was asked for the others. Nothing is noted of a machine that has not
// answered, nor of a question that began before it was heard of in this boot.
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

// Machine is what the machine at the address said, where that is recent enough.
func (s *Store) Machine(address string, need Need, staticPods bool) (*cluster.Machine, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	known := s.machines[address]

	return known.said.Value, known.said.fits(need) && (known.staticPods || !staticPods)
}

// Etcd is what the member of etcd on the machine at the address said, where that is recent enough.
func (s *Store) Etcd(address string, need Need, members bool) (*cluster.EtcdView, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	known := s.machines[address]

	return known.etcd.Value, known.etcd.fits(need) && (known.members || !members)
}

// Known is what is known of the machine at the address, for [cluster.Talos.Machine]; nil where
// all has to be asked.
func (s *Store) Known(address string) *cluster.Machine {
	s.mu.Lock()
	defer s.mu.Unlock()

	known := s.machines[address]
	if !known.complete {
		return nil
	}

	return known.said.Value
}

// Forget has the machine at the address asked for everything again.
func (s *Store) Forget(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.machines, address)
}

// Configured takes note that the configuration of a machine names another image.
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

// askAgainAfter is for how long a machine that did not answer is not asked again: one that
// is switched off holds up whoever asks until the call times out.
const askAgainAfter = 30 * time.Second

// Unchanged is what a node's machine said when it was asked last, or why it did not answer, provided
// that its Node object shows that nothing has happened to it since; known is false where it has to be
// asked. A machine that is being upgraded by this run is as it was before: its upgrade knows better.
// So is every one where nothing can be begun, which blind tells.
func (s *Store) Unchanged(node cluster.Node, blind bool, now time.Time) (said *cluster.Machine, err error, known bool) { //nolint:revive // the error is a fact
	s.mu.Lock()
	defer s.mu.Unlock()

	last, found := s.machines[node.Address]

	switch {
	case !found:
		return nil, nil, false
	case last.said.Value == nil:
		return nil, last.said.Err, now.Sub(last.said.Asked.At) < askAgainAfter && last.shown == shownBy(node.Kube)
	case blind || s.moving[node.Name]:
		return last.said.Value, nil, true
	case node.Kube == nil, !node.Kube.Ready, last.said.Value.BootID == "", last.said.Value.BootID != node.Kube.BootID:
		return nil, nil, false
	default:
		return last.said.Value, nil, last.said.Value.Settled() && last.shown == shownBy(node.Kube)
	}
}

// silence is why the machine of a worker without a Node object did not answer; nil where it did, or
// has to be asked. The caller holds the lock.
func (s *Store) silence(address string) error {
	if last := s.machines[address]; last.silent {
		return last.said.Err
	}

	return nil
}

// Doubts tells whether a node has to be asked whether it is there, be the look about it or not: nobody
// can take a machine out of discovery, which forgets it half an hour after its last word. One that is
// known to be silent is asked again by looks that want to know of all nodes.
func (s *Store) Doubts(node cluster.Node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return node.Kube == nil && node.Role == cluster.Worker && s.silence(node.Address) == nil
}

// MarkGone marks the workers as gone that discovery lists, and nothing else speaks
// for: they have no Node object, which the Kubernetes API must have said, do not
// answer, and no run of ours is in the middle of anything with them.
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

// Identify takes note of the ID of the cluster, where it was told.
func (s *Store) Identify(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if id != "" {
		s.clusterID = id
	}
}

// ClusterID is the one that the cluster told last.
func (s *Store) ClusterID() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.clusterID
}

// ListMembers takes over the members that were listed, and beside which Node objects.
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

// Members are the members that discovery listed last; known is false where they have to
// be listed again, because nodes have joined or left, or because one may be gone.
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

// ListedMembers tells whether members were listed before.
func (s *Store) ListedMembers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.registered != nil
}

// ListPods takes over the pods of the control planes that were listed. Those of which one is not
// well are listed again by whoever looks next.
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

// StaticPods are those of the control planes, where they were listed recently enough.
func (s *Store) StaticPods(need Need) ([]cluster.ComponentPod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.pods.Value, s.pods.fits(need)
}

// ListProxies takes over the pods of kube-proxy that were listed; nil has them listed again.
func (s *Store) ListProxies(proxies PodsByNode) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.proxies = proxies
}

// Proxies are the pods of kube-proxy as they were listed last; nil where they have to be
// listed again.
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

// Dates are those of what a permit for a node rests on beside the Node objects: of its machine, of the control
// planes with their members of etcd and their static pods, and of the members. What nobody has asked for is not
// among them.
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
