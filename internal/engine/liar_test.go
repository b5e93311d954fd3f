// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// liar stands between an engine and a cluster and does one thing wrong.
type liar struct {
	*ports.Client

	// hidden is a node that seems well although it is away, like is one whose
	// health it borrows.
	hidden, like string
	// remember answers observations from memory for that long.
	remember time.Duration
	// noJournal and noLease pretend to write them, noRenewal does so once the
	// lease was taken, noRelease when it is given back.
	noJournal, noRenewal, noRelease bool
	noLease                         atomic.Bool
	// ownName is read in the journal whoever wrote another one there.
	ownName bool
	// mute tells which machine seems not to answer.
	mute func(address string) bool
	// uuids, by machine ID, are what the journal goes by instead.
	uuids map[string]string
	// forgets is a phase that is written down as another one.
	forgets cluster.Phase
	// seesLease is a lease of somebody where there is none.
	seesLease bool
	// machine changes what a machine says.
	machine func(*cluster.Machine)
	// install changes how an install seems to end.
	install func(cluster.Installation, error) (cluster.Installation, error)
	// etcd changes what a member says.
	etcd func(*cluster.EtcdView)
	// pods changes what a pod of a component seems to be.
	pods func(*cluster.ComponentPod)
	// kubernetes is the version that everything seems to run.
	kubernetes string
	// uncordon replaces the request; every cordon then seems to be ours.
	uncordon func(client, node string)
	// schedulable is a node that never seems to be cordoned.
	schedulable string
	// unschedulable is a node that seems to be cordoned by us from its first cordon on.
	unschedulable string
	occupied      atomic.Bool
	// deletes removes pods without asking budgets.
	deletes bool

	mu      sync.Mutex
	memory  map[string]observedSnapshotFor
	written int
	// lease is the last one that it has written, or pretended to.
	lease cluster.Lease
	// shown is the journal that goes by uuids, as the engine knows it.
	shown cluster.Journal
}

type observedSnapshotFor struct {
	at     time.Time
	answer any
}

func (l *liar) hide(node, like string) { l.hidden, l.like = node, like }

// memorised answers from memory while that is fresh.
func memorised[T any](l *liar, key string, ask func() (T, error)) (T, error) {
	l.mu.Lock()
	known, found := l.memory[key]
	l.mu.Unlock()

	if answer, ok := known.answer.(T); ok && found && time.Since(known.at) < l.remember {
		return answer, nil
	}

	answer, err := ask()

	l.mu.Lock()
	defer l.mu.Unlock()

	if l.memory == nil {
		l.memory = map[string]observedSnapshotFor{}
	}

	if err == nil {
		l.memory[key] = observedSnapshotFor{at: time.Now(), answer: answer}
	}

	return answer, err
}

// addressOf finds a node that discovery knows.
func (l *liar) addressOf(ctx context.Context, node string) string {
	members, err := l.Client.Members(ctx)
	if err != nil {
		return ""
	}

	for _, member := range members {
		if member.Hostname == node {
			return member.Addresses[0]
		}
	}

	return ""
}

func (l *liar) Install(ctx context.Context, address, image string) (cluster.Installation, error) {
	done, err := l.Client.Install(ctx, address, image)
	if l.install != nil {
		return l.install(done, err)
	}

	return done, err
}

func (l *liar) Machine(ctx context.Context, address string, known *cluster.Machine) (cluster.Machine, error) {
	if l.mute != nil && l.mute(address) {
		return cluster.Machine{}, fmt.Errorf("machine %s: %w", address, cluster.ErrUnreachable)
	}

	hides := l.hidden != "" && address == l.addressOf(ctx, l.hidden)
	asked := address

	if hides {
		asked = l.addressOf(ctx, l.like)
	}

	machine, err := memorised(l, "machine "+asked, func() (cluster.Machine, error) { return l.Client.Machine(ctx, asked, known) })

	if hides {
		machine.Address, machine.NodeName, machine.UUID, machine.BootID = address, l.hidden, "uuid-of-"+l.hidden, "boot-of-"+l.hidden
		machine.MachineID = "id-of-" + l.hidden
	}

	if err == nil && l.machine != nil {
		l.machine(&machine)
	}

	if err == nil && l.kubernetes != "" {
		images := map[cluster.Component]string{}
		for component := range machine.Config.Images {
			images[component] = "registry.k8s.io/" + string(component) + ":v" + l.kubernetes
		}

		machine.Config.Images = images
	}

	return machine, err
}

func (l *liar) Pull(ctx context.Context, address, image string, api cluster.UpgradeAPI) error {
	if l.hidden != "" && address == l.addressOf(ctx, l.hidden) {
		return nil
	}

	return l.Client.Pull(ctx, address, image, api)
}

func (l *liar) Vitals(ctx context.Context, address string) (cluster.Vitals, error) {
	if l.hidden != "" && address == l.addressOf(ctx, l.hidden) {
		address = l.addressOf(ctx, l.like)
	}

	return l.Client.Vitals(ctx, address)
}

func (l *liar) Etcd(ctx context.Context, address string, members bool) (cluster.EtcdView, error) {
	hides := l.hidden != "" && address == l.addressOf(ctx, l.hidden)
	asked := address

	if hides {
		asked = l.addressOf(ctx, l.like)
	}

	view, err := memorised(l, "etcd "+asked, func() (cluster.EtcdView, error) { return l.Client.Etcd(ctx, asked, members) })

	for _, member := range view.Members {
		if hides && member.Name == l.hidden {
			view.Status.MemberID = member.ID
		}
	}

	if l.etcd != nil && err == nil {
		l.etcd(&view)
	}

	return view, err
}

func (l *liar) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return l.Nodes(ctx)
}

func (l *liar) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	return named(ctx, name, l.Nodes)
}

func (l *liar) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := memorised(l, "nodes", func() ([]cluster.KubeNode, error) { return l.Client.Nodes(ctx) })
	changed := append([]cluster.KubeNode(nil), nodes...)

	for index := range changed {
		node := &changed[index]
		node.Ready = node.Ready || node.Name == l.hidden
		node.Unschedulable = node.Unschedulable && node.Name != l.schedulable

		if node.Name == l.unschedulable && l.occupied.Load() {
			node.Unschedulable, node.CordonedBy = true, l.Name()
		}

		if l.kubernetes != "" {
			node.Kubelet = version.MustParse(l.kubernetes)
		}
	}

	return changed, err
}

func (l *liar) ComponentPods(ctx context.Context) ([]cluster.ComponentPod, error) {
	return l.showPods(l.Client.ComponentPods(ctx))
}

func (l *liar) StaticPods(ctx context.Context) ([]cluster.ComponentPod, error) {
	return l.showPods(l.Client.StaticPods(ctx))
}

func (l *liar) showPods(pods []cluster.ComponentPod, err error) ([]cluster.ComponentPod, error) {
	for index := range pods {
		pods[index].Ready = pods[index].Ready || pods[index].Node == l.hidden

		if l.kubernetes != "" {
			pods[index].Image = "registry.k8s.io/" + string(pods[index].Component) + ":v" + l.kubernetes
		}

		if l.pods != nil {
			l.pods(&pods[index])
		}
	}

	return pods, err
}

func (l *liar) Cordon(ctx context.Context, node, run string) (bool, error) {
	ours, err := l.Client.Cordon(ctx, node, run)
	if node == l.unschedulable {
		l.occupied.Store(true)
	}

	return ours || err == nil && l.uncordon != nil, err
}

func (l *liar) Uncordon(ctx context.Context, node string) error {
	if l.uncordon == nil {
		return l.Client.Uncordon(ctx, node)
	}

	l.uncordon(l.Name(), node)

	return nil
}

func (l *liar) Evict(ctx context.Context, pod cluster.Pod) error {
	if l.deletes {
		return l.DeletePod(ctx, pod)
	}

	return l.Client.Evict(ctx, pod)
}

// pretended is the resource version of something that was never written.
func (l *liar) pretended() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.written++

	return fmt.Sprint(l.written)
}

func (l *liar) Lease(ctx context.Context) (cluster.Lease, error) {
	if l.noLease.Load() {
		return l.known(), nil
	}

	lease, err := l.Client.Lease(ctx)
	if l.seesLease && err == nil && lease.Holder == "" {
		lease.Holder = "somebody"
	}

	return lease, err
}

func (l *liar) WriteLease(ctx context.Context, lease cluster.Lease) (cluster.Lease, error) {
	if l.noLease.Load() || l.noRelease && lease.Holder == "" {
		lease.ResourceVersion = l.pretended()
		l.know(lease)

		return lease, nil
	}

	written, err := l.Client.WriteLease(ctx, lease)
	if err == nil && l.noRenewal {
		l.noLease.Store(true)
	}

	if err == nil {
		l.know(written)
	}

	return written, err
}

func (l *liar) known() cluster.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.lease
}

func (l *liar) know(lease cluster.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.lease = lease
}

func (l *liar) Journal(ctx context.Context) (cluster.Journal, error) {
	if l.noJournal {
		return cluster.Journal{}, nil
	}

	journal, err := l.Client.Journal(ctx)
	if l.ownName && err == nil {
		journal.Holder = l.known().Holder
	}

	if l.uuids == nil || err != nil {
		return journal, err
	}

	return l.byUUID(journal), nil
}

// byUUID is a journal that goes by uuids, looked up for each machine.
func (l *liar) byUUID(journal cluster.Journal) cluster.Journal {
	stands := journal
	stands.Entries = nil

	for id, uuid := range l.uuids {
		if entry, found := journal.Entries[uuid]; found {
			stands = stands.With(id, entry)
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.shown = stands

	return stands
}

// writeByUUID writes what changed of the journal of each machine under what it
// goes by.
func (l *liar) writeByUUID(ctx context.Context, journal cluster.Journal) (cluster.Journal, error) {
	stands, err := l.Client.Journal(ctx)
	if err != nil {
		return stands, err
	}

	l.mu.Lock()
	shown := l.shown
	l.mu.Unlock()

	stands.Holder, stands.ResourceVersion = journal.Holder, journal.ResourceVersion

	for id, uuid := range l.uuids {
		before, had := shown.Entries[id]
		after, has := journal.Entries[id]

		switch {
		case had == has && before == after:
		case has:
			stands = stands.With(uuid, after)
		default:
			stands = stands.Without(uuid)
		}
	}

	written, err := l.Client.WriteJournal(ctx, stands)
	if err != nil {
		return written, err
	}

	return l.byUUID(written), nil
}

func (l *liar) WriteJournal(ctx context.Context, journal cluster.Journal) (cluster.Journal, error) {
	if l.noJournal {
		journal.ResourceVersion = l.pretended()

		return journal, nil
	}

	if l.uuids != nil {
		return l.writeByUUID(ctx, journal)
	}

	for key, entry := range journal.Entries {
		if l.forgets != "" && entry.Phase == l.forgets {
			entry.Phase = cluster.PhaseRebooting
			journal = journal.With(key, entry)
		}
	}

	return l.Client.WriteJournal(ctx, journal)
}
