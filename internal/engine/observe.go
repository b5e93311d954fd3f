// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Observe looks at the whole cluster and changes nothing. What did not answer
// is said in the observation; the error is for a cluster of which nothing can be
// said at all.
func (e *Engine) Observe(ctx context.Context) (cluster.Observation, error) {
	facts := e.gather(ctx)

	return e.assemble(ctx, facts, func(nodes []cluster.Node) {
		askEach(nodes, func(cluster.Node) bool { return true }, func(node *cluster.Node) {
			e.askMachine(ctx, node, entirely())

			if node.Machine != nil && node.Role == cluster.ControlPlane {
				e.askEtcd(ctx, node, true)
			}
		})
	})
}

// assemble makes an observation of what concerns the cluster as a whole, and of what ask
// fills in about the nodes.
func (e *Engine) assemble(ctx context.Context, facts clusterFacts, ask func([]cluster.Node)) (cluster.Observation, error) {
	if err := ctx.Err(); err != nil {
		return cluster.Observation{}, cluster.Ended(ctx)
	}

	observed := cluster.Observation{
		ID: facts.id, Name: e.name, Roles: e.talos.Roles(),
		KubernetesError: facts.kubeErr, DiscoveryError: facts.membersErr, JournalError: facts.journalErr,
	}

	if facts.membersErr != nil && facts.kubeErr != nil {
		return observed, fmt.Errorf("neither discovery nor Kubernetes could list the nodes: %w", errors.Join(facts.membersErr, facts.kubeErr))
	}

	observed.Nodes, observed.Foreign = inventory(facts.members, facts.nodes, e.clock.Now())
	keepUnfinished(observed.Nodes, facts.journal.Keyed(observed.Nodes))
	addPods(observed.Nodes, facts.pods, facts.proxies)
	addVersions(observed.Nodes)
	ask(observed.Nodes)
	observed.Nodes, observed.Stale = setStaleAside(observed.Nodes, e.presence.moves)

	if facts.kubeErr == nil && facts.journalErr == nil {
		e.presence.markGone(observed.Nodes, facts.journal)
	}

	if err := ctx.Err(); err != nil {
		return observed, cluster.Ended(ctx)
	}

	sortNodes(observed.Nodes)

	if facts.journalErr == nil && facts.kubeErr == nil {
		journal := facts.journal.Keyed(observed.Nodes)
		observed.Journal = &journal
	}

	observed.Taken = e.clock.Now()

	return observed, nil
}

// clusterFacts are the answers that concern the cluster as a whole.
type clusterFacts struct {
	id         string
	members    []cluster.Member
	membersErr error
	nodes      []cluster.KubeNode
	// pods are those of the control planes, proxies those of kube-proxy.
	pods       []cluster.ComponentPod
	proxies    podsByNode
	kubeErr    error
	journal    cluster.Journal
	journalErr error
}

// gather asks for everything at once. Its parts write different fields, so no
// lock is needed.
func (e *Engine) gather(ctx context.Context) clusterFacts {
	var (
		facts            clusterFacts
		group            errgroup.Group
		discovered, uid  string
		idErr            error
		podsErr, nodeErr error
	)

	group.Go(func() error {
		discovered, idErr = e.talos.ClusterID(ctx)

		return nil
	})
	group.Go(func() error { facts.members, facts.membersErr = e.talos.Members(ctx); return nil })
	group.Go(func() error { uid, _ = e.kubernetes.UID(ctx); return nil })
	group.Go(func() error { facts.nodes, nodeErr = e.kubernetes.Nodes(ctx); return nil })
	group.Go(func() error { facts.pods, facts.proxies, podsErr = e.componentPods(ctx); return nil })
	group.Go(func() error { facts.journal, facts.journalErr = e.kubernetes.Journal(ctx); return nil })

	_ = group.Wait()

	// The UID stands in where discovery is off, not where it did not answer: an
	// identity that changes with the weather would look like another cluster.
	facts.id = discovered
	if facts.id == "" && idErr == nil {
		facts.id = uid
	}

	// One API away is one reason, however many calls it cost.
	facts.kubeErr = nodeErr
	if facts.kubeErr == nil {
		facts.kubeErr = podsErr
	}

	if facts.membersErr == nil && facts.kubeErr == nil {
		e.memory.listMembers(facts.members, facts.nodes, e.clock.Now())
	}

	e.memory.list(facts, true)

	return facts
}

// askEach asks the nodes that are wanted, a bounded number of them at a time.
func askEach(nodes []cluster.Node, wanted func(cluster.Node) bool, ask func(*cluster.Node)) {
	var group errgroup.Group

	group.SetLimit(observeParallel)

	for index := range nodes {
		node := &nodes[index]
		if node.Gone || !wanted(*node) {
			continue
		}

		group.Go(func() error {
			ask(node)

			return nil
		})
	}

	_ = group.Wait()
}

// freshness is what a look at a machine that is in the boot in which it is known asks again
// beside its stage and its readiness.
type freshness struct{ config, staticPods bool }

// entirely asks for all of it.
func entirely() freshness { return freshness{config: true, staticPods: true} }

// without is what is known of a machine, but for what has to be asked again.
func (f freshness) without(known *cluster.Machine) *cluster.Machine {
	if known == nil {
		return nil
	}

	rest := *known

	if f.config {
		rest.Config = nil
	}

	if f.staticPods {
		rest.FilesVersion, rest.PodsSince = "", time.Time{}
	}

	return &rest
}

// askMachine fills in what the machine of a node says. What static pods of a control plane
// are made from is asked in any case where its pods do not fit what is known.
func (e *Engine) askMachine(ctx context.Context, node *cluster.Node, again freshness) {
	asked, known := e.clock.Now(), e.memory.machine(node.Address)

	if known != nil {
		for _, pod := range node.Pods {
			again.staticPods = again.staticPods || outdated(*known, pod) != ""
		}
	}

	machine, err := e.talos.Machine(ctx, node.Address, again.without(known))
	if err != nil {
		if ctx.Err() == nil {
			e.memory.remember(node.Address, nil, err, asked, node.Kube)
		}

		node.Unreachable = err

		return
	}

	e.memory.remember(node.Address, &machine, nil, asked, node.Kube)
	e.fillIn(node, machine)
}

// machine is what the machine at the address says, its static pods included.
func (e *Engine) machine(ctx context.Context, address string) (cluster.Machine, error) {
	machine, err := e.talos.Machine(ctx, address, freshness{staticPods: true}.without(e.memory.machine(address)))
	if err == nil {
		e.memory.saw(machine)
	}

	return machine, err
}

// fillIn takes what its machine said over into the node.
func (e *Engine) fillIn(node *cluster.Node, machine cluster.Machine) {
	node.Machine = &machine
	pods := node.Pods

	for component, pod := range pods {
		if why := outdated(machine, pod); why != "" {
			pod.Ready, pod.Outdated, pod.Trouble = false, true, why

			// Others may have the same.
			node.Pods = maps.Clone(node.Pods)
			node.Pods[component] = pod
		}
	}

	if machine.Role != "" {
		node.Role = machine.Role
	}

	if node.Kube == nil && machine.NodeName != "" {
		node.Name = machine.NodeName
	}
}

// askEtcd fills in what the member of etcd on a control plane says.
func (e *Engine) askEtcd(ctx context.Context, node *cluster.Node, members bool) {
	view, err := e.talos.Etcd(ctx, node.Address, members)
	if err != nil {
		node.EtcdError = err

		return
	}

	node.Etcd = &view
}

// What is wrong with a static pod that Kubernetes does not show as it is.
const (
	earlierPod  = "Kubernetes shows it as it was before the boot"
	replacedPod = "its node has made it anew, and Kubernetes shows the one before"
)

// outdated says why what Kubernetes shows of a static pod is not, or will not be for
// long, what its node runs; empty where it is. Its mirror outlives the container
// when the node boots. Both times are of the node's clock, and Kubernetes knows no
// parts of a second. The API server is made anew with each version of its files,
// which the kubelet comes to later than the node.
func outdated(machine cluster.Machine, pod cluster.ComponentPod) string {
	switch {
	case !pod.Component.Static():
		return ""
	case !pod.Started.IsZero() && pod.Started.Before(machine.PodsSince.Truncate(time.Second)):
		return earlierPod
	case pod.Component == cluster.APIServer && pod.FilesVersion != "" && machine.FilesVersion != "" && pod.FilesVersion != machine.FilesVersion:
		return replacedPod
	default:
		return ""
	}
}

// podsByNode are pods by the names of their nodes. Nobody changes them: many observations
// have the same.
type podsByNode map[string]map[cluster.Component]cluster.ComponentPod

// componentPods lists the pods of the control planes, and those of kube-proxy.
func (e *Engine) componentPods(ctx context.Context) ([]cluster.ComponentPod, podsByNode, error) {
	all, err := e.kubernetes.ComponentPods(ctx)
	if err != nil {
		return nil, nil, err
	}

	pods, proxies := make([]cluster.ComponentPod, 0, len(all)), podsByNode{}

	for _, pod := range all {
		if pod.Component == cluster.Proxy {
			proxies[pod.Node] = map[cluster.Component]cluster.ComponentPod{cluster.Proxy: pod}
		} else {
			pods = append(pods, pod)
		}
	}

	return pods, proxies, nil
}

// addPods gives each node its pods. One with no others than kube-proxy's, as most are,
// shares these.
func addPods(nodes []cluster.Node, pods []cluster.ComponentPod, proxies podsByNode) {
	own := podsByNode{}

	for _, pod := range pods {
		if own[pod.Node] == nil {
			own[pod.Node] = map[cluster.Component]cluster.ComponentPod{}
			maps.Copy(own[pod.Node], proxies[pod.Node])
		}

		own[pod.Node][pod.Component] = pod
	}

	for index := range nodes {
		node := &nodes[index]
		if node.Pods = own[node.Name]; node.Pods == nil {
			node.Pods = proxies[node.Name]
		}
	}
}

// addVersions derives the running component versions from what the kubelets report and
// from the images of the component pods. Nodes that run the same share them.
func addVersions(nodes []cluster.Node) {
	type running struct {
		kubelet version.Version
		proxy   string
	}

	shared := map[running]map[cluster.Component]version.Version{}

	for index := range nodes {
		node := &nodes[index]
		runs := running{proxy: node.Pods[cluster.Proxy].Image}

		if node.Kube != nil {
			runs.kubelet = node.Kube.Kubelet
		}

		worker := len(node.Pods) == 0 || len(node.Pods) == 1 && runs.proxy != ""
		if node.Versions = shared[runs]; worker && node.Versions != nil {
			continue
		}

		node.Versions = map[cluster.Component]version.Version{}
		if !runs.kubelet.IsZero() {
			node.Versions[cluster.Kubelet] = runs.kubelet
		}

		for component, pod := range node.Pods {
			if found := image.Version(pod.Image); !found.IsZero() {
				node.Versions[component] = found
			}
		}

		if worker {
			shared[runs] = node.Versions
		}
	}
}

// inventory is who belongs to the cluster: Kubernetes nodes and discovery
// members, matched by address. Either list alone will do when the other one is
// not to be had.
func inventory(members []cluster.Member, nodes []cluster.KubeNode, now time.Time) (known []cluster.Node, foreign []string) {
	// at are the members with an address.
	at := make(map[string][]int, len(members))

	for index, member := range members {
		for _, address := range member.Addresses {
			at[address] = append(at[address], index)
		}
	}

	owned, matched := matchMembers(members, nodes, at)
	known = make([]cluster.Node, 0, len(nodes))

	for i := range nodes {
		kube, index := &nodes[i], owned[i]

		if index < 0 && !kube.Talos {
			foreign = append(foreign, kube.Name)

			continue
		}

		node := cluster.Node{Name: kube.Name, Role: kubeRole(*kube), Kube: kube}

		if index >= 0 {
			node.Member, node.Role = true, members[index].Role
			node.Address = commonAddress(members[index].Addresses, kube.Addresses)
		} else {
			node.Address = lastAddress(kube, at)
		}

		node.Gone = !node.Member && len(members) > 0 && !kube.Ready && now.Sub(kube.ReadySince) > cluster.GoneAfter
		known = append(known, node)
	}

	for index, member := range members {
		if !matched[index] {
			known = append(known, cluster.Node{Name: member.Hostname, Role: member.Role, Member: true, Address: member.Address()})
		}
	}

	return known, foreign
}

// matchMembers returns the index of the member of each node, negative where it has none,
// and which members have a node. A member has one node at most. If several Node objects
// have its address, all but one are stale: the one with the member's hostname is chosen,
// then one that is Ready, then the first by name.
func matchMembers(members []cluster.Member, nodes []cluster.KubeNode, at map[string][]int) (owned []int, matched []bool) {
	owned, matched = make([]int, len(nodes)), make([]bool, len(members))
	order := make([]int, len(nodes))

	for i := range nodes {
		owned[i], order[i] = -1, i
	}

	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(readyRank(nodes[a]), readyRank(nodes[b])), cmp.Compare(nodes[a].Name, nodes[b].Name))
	})

	for _, named := range []bool{true, false} {
		for _, i := range order {
			if owned[i] >= 0 {
				continue
			}

			free := func(index int) bool {
				return !matched[index] && (!named || shortName(members[index].Hostname) == shortName(nodes[i].Name))
			}

			if owned[i] = memberOf(&nodes[i], at, free); owned[i] >= 0 {
				matched[owned[i]] = true
			}
		}
	}

	return owned, matched
}

// memberOf is the first member that has an address of the node and is free; negative
// where there is none.
func memberOf(kube *cluster.KubeNode, at map[string][]int, free func(int) bool) int {
	first := -1

	for _, address := range kube.Addresses {
		for _, index := range at[address] {
			if free(index) && (first < 0 || index < first) {
				first = index
			}
		}
	}

	return first
}

// lastAddress is where the machine of a node without a member is asked: at its first address
// or, where the node is not Ready, at the first one that discovery knows, as that of another
// machine may have been its own before.
func lastAddress(kube *cluster.KubeNode, at map[string][]int) string {
	for _, address := range kube.Addresses {
		if kube.Ready || len(at[address]) > 0 {
			return address
		}
	}

	if len(kube.Addresses) > 0 {
		return kube.Addresses[0]
	}

	return ""
}

func readyRank(node cluster.KubeNode) int {
	if node.Ready {
		return 0
	}

	return 1
}

// shortName is a hostname without its domain: discovery may spell it with one, and the
// kubelet without, or the other way round.
func shortName(name string) string {
	short, _, _ := strings.Cut(name, ".")

	return strings.ToLower(short)
}

// sharedAddresses are the addresses that several Node objects have.
func sharedAddresses(nodes []cluster.Node) map[string]bool {
	seen, shared := make(map[string]bool, len(nodes)), map[string]bool{}

	for index := range nodes {
		node := &nodes[index]
		if node.Kube == nil || node.Gone || node.Address == "" {
			continue
		}

		if seen[node.Address] {
			shared[node.Address] = true
		}

		seen[node.Address] = true
	}

	return shared
}

// setStaleAside takes the stale Node objects out of the nodes. A Node object is stale if it
// is not Ready and the machine that it leads to says that it registers under the name of
// another Node object of the same machine. That of a node whose upgrade goes on is never
// taken out, so that the upgrade does not lose sight of it.
func setStaleAside(nodes []cluster.Node, moves func(string) bool) (current []cluster.Node, stale []cluster.StaleNode) {
	byName := make(map[string]*cluster.Node, len(nodes))

	for index := range nodes {
		if nodes[index].Kube != nil {
			byName[nodes[index].Name] = &nodes[index]
		}
	}

	isStale := make([]bool, len(nodes))

	for index := range nodes {
		node := &nodes[index]
		if node.Kube == nil || node.Kube.Ready || node.Gone || node.Machine == nil || node.Machine.NodeName == node.Name || moves(node.Name) {
			continue
		}

		own, found := byName[node.Machine.NodeName]
		if !found || own.Gone || !sameMachine(*node, *own) {
			continue
		}

		isStale[index], own.Member = true, own.Member || node.Member
		stale = append(stale, cluster.StaleNode{Name: node.Name, Address: node.Address, Registered: own.Name})
	}

	if len(stale) == 0 {
		return nodes, nil
	}

	for index := range nodes {
		if !isStale[index] {
			current = append(current, nodes[index])
		}
	}

	slices.SortFunc(stale, func(a, b cluster.StaleNode) int { return cmp.Compare(a.Name, b.Name) })

	return current, stale
}

// sameMachine tells whether two nodes lead to one machine, which may have two addresses.
func sameMachine(a, b cluster.Node) bool {
	if a.Address == b.Address {
		return true
	}

	return a.Machine != nil && b.Machine != nil && a.Machine.BootID != "" && a.Machine.BootID == b.Machine.BootID && a.Machine.MachineID == b.Machine.MachineID
}

// keepUnfinished does not let a node count as gone whose upgrade is unfinished:
// going on without it could take down one node after the other with an image
// that does not boot.
func keepUnfinished(nodes []cluster.Node, journal cluster.Journal) {
	for index := range nodes {
		if !nodes[index].Gone {
			continue
		}

		if _, entry, found := journal.Of(nodes[index]); found && entry.Awaited() {
			nodes[index].Gone = false
		}
	}
}

func kubeRole(kube cluster.KubeNode) cluster.Role {
	if kube.ControlPlane {
		return cluster.ControlPlane
	}

	return cluster.Worker
}

// commonAddress is the first of the node's addresses that discovery knows too.
func commonAddress(member, node []string) string {
	for _, address := range node {
		if slices.Contains(member, address) {
			return address
		}
	}

	return ""
}

// sortNodes puts workers first and orders by name within a role, so that every
// table and every message lists nodes the same way.
func sortNodes(nodes []cluster.Node) {
	slices.SortFunc(nodes, func(a, b cluster.Node) int {
		return cmp.Or(cmp.Compare(roleRank(a.Role), roleRank(b.Role)), cmp.Compare(a.Name, b.Name))
	})
}

func roleRank(role cluster.Role) int {
	if role == cluster.Worker {
		return 0
	}

	return 1
}

// presence tells removed workers from those that are away. Nobody can take a
// machine out of discovery, which forgets it half an hour after its last word.
type presence struct {
	mu sync.Mutex
	// moving are the nodes whose upgrades have begun and not ended.
	moving map[string]bool
	// silent is, by address, why a worker without a Node object did not answer.
	// Only looks at the whole cluster ask it again: one that is switched off holds
	// up whoever asks until the call times out.
	silent map[string]error
}

func newPresence() *presence {
	return &presence{moving: map[string]bool{}, silent: map[string]error{}}
}

// move notes that the upgrade of a node begins or has ended.
func (p *presence) move(node string, moving bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !moving {
		delete(p.moving, node)

		return
	}

	p.moving[node] = true
}

// moves tells whether the upgrade of a node has begun and not ended.
func (p *presence) moves(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.moving[node]
}

// doubts tells whether a node has to be asked whether it is there, be the look
// about it or not. What is known to be silent is not asked again.
func (p *presence) doubts(node cluster.Node) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return node.Kube == nil && node.Role == cluster.Worker && p.silent[node.Address] == nil
}

// markGone marks the workers as gone that discovery lists, and nothing else speaks
// for: they have no Node object, which the Kubernetes API must have said, do not
// answer, and no run of ours is in the middle of anything with them.
func (p *presence) markGone(nodes []cluster.Node, journal cluster.Journal) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for index := range nodes {
		node := &nodes[index]
		if node.Kube != nil || node.Role != cluster.Worker {
			continue
		}

		if node.Machine == nil && node.Unreachable == nil {
			node.Unreachable = p.silent[node.Address]
		}

		if !errors.Is(node.Unreachable, cluster.ErrUnreachable) {
			delete(p.silent, node.Address)

			continue
		}

		p.silent[node.Address] = node.Unreachable
		node.Gone = !p.moving[node.Name] && !unfinishedNamed(journal, node.Name)
	}
}

// unfinishedNamed tells whether the journal has an open entry for a machine that
// says nothing of itself.
func unfinishedNamed(journal cluster.Journal, name string) bool {
	for _, entry := range journal.Entries {
		if shortName(entry.Node) == shortName(name) && entry.Awaited() {
			return true
		}
	}

	return false
}

// unready says what is wrong with a static pod of a machine; empty where it is Ready
// and what the machine runs.
func unready(machine cluster.Machine, pod cluster.ComponentPod) string {
	why := outdated(machine, pod)

	switch {
	case why != "":
		return fmt.Sprintf("its %s: %s", pod.Component, why)
	case !pod.Ready:
		return fmt.Sprintf("its %s is not Ready%s", pod.Component, troubled(pod))
	default:
		return ""
	}
}

func troubled(pod cluster.ComponentPod) string {
	if pod.Trouble == "" {
		return ""
	}

	return " (" + pod.Trouble + ")"
}
