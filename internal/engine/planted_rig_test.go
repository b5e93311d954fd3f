// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
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

func (l *liar) Machine(ctx context.Context, address string, known *cluster.Machine, extent cluster.Extent) (cluster.Machine, error) {
	if l.mute != nil && l.mute(address) {
		return cluster.Machine{}, fmt.Errorf("machine %s: %w", address, cluster.ErrUnreachable)
	}

	hides := l.hidden != "" && address == l.addressOf(ctx, l.hidden)
	asked := address

	if hides {
		asked = l.addressOf(ctx, l.like)
	}

	machine, err := memorised(l, fmt.Sprintf("machine %s, extent %d", asked, extent), func() (cluster.Machine, error) { return l.Client.Machine(ctx, asked, known, extent) })

	if hides {
		machine.Address, machine.NodeName, machine.UUID, machine.BootID = address, l.hidden, "uuid-of-"+l.hidden, "boot-of-"+l.hidden
		machine.MachineID = "id-of-" + l.hidden
	}

	if err == nil && l.machine != nil {
		l.machine(&machine)
	}

	if err == nil && l.kubernetes != "" && !machine.Partial {
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

func (l *liar) StaticPods(ctx context.Context, node string, components ...cluster.Component) ([]cluster.ComponentPod, error) {
	return l.showPods(l.Client.StaticPods(ctx, node, components...))
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

// meddling makes an interceptor that does more, in the name of a client, than the
// engine asks for.
type meddling func(*rig, *ports.Client) ports.Interceptor

// hand is the client of a run without the engine that it belongs to.
type hand struct {
	*ports.Client

	rig *rig
}

// behind has a run do something more after its nth call of a method on a node.
func behind(method, node string, nth int32, do func(context.Context, hand)) meddling {
	return meddled(method, node, nth, func(ctx context.Context, h hand, next func(context.Context) error) error {
		err := next(ctx)
		do(ctx, h)

		return err
	})
}

// ahead has it do so before that call.
func ahead(method, node string, nth int32, do func(context.Context, hand)) meddling {
	return meddled(method, node, nth, func(ctx context.Context, h hand, next func(context.Context) error) error {
		do(ctx, h)

		return next(ctx)
	})
}

func meddled(
	method, node string, nth int32, around func(ctx context.Context, h hand, next func(context.Context) error) error,
) meddling {
	return func(r *rig, client *ports.Client) ports.Interceptor {
		var calls atomic.Int32

		h := hand{Client: r.Client(client.Name()), rig: r}

		return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == method && call.Node == node && calls.Add(1) == nth {
				return around(ctx, h, next)
			}

			return next(ctx)
		}
	}
}

// must fails the test when the bug could not be carried out: then it shows
// nothing.
func (h hand) must(err error) {
	if err != nil {
		h.rig.T.Errorf("the planted bug came to nothing: %v", err)
	}
}

// look observes everything that a disruptive step rests on.
func (h hand) look(ctx context.Context) {
	_, err := h.Nodes(ctx)
	h.must(err)

	for _, state := range h.rig.World().Nodes() {
		if !state.Reachable {
			continue
		}

		machine, err := h.Machine(ctx, state.Name, nil, cluster.Everything)
		h.must(err)

		if machine.Role == cluster.ControlPlane {
			_, err = h.Etcd(ctx, state.Name, true)
			h.must(err)
		}
	}
}

// reboot looks around and reboots a node.
func (h hand) reboot(ctx context.Context, node string) {
	h.look(ctx)
	h.must(h.Reboot(ctx, node, cluster.RebootDefault))
}

// configure makes a component of a node run another version than the one that its
// configuration names, without a look.
func (h hand) configure(ctx context.Context, node string, component cluster.Component, from, to string) {
	repository, _, _ := strings.Cut(h.image(node, component), ":v")
	h.must(h.Configure(ctx, node, cluster.ImageChange{Component: component, From: repository + ":v" + from, To: repository + ":v" + to}))
}

// image is what a component runs from.
func (h hand) image(node string, component cluster.Component) string {
	state := h.rig.State(node)
	if component == cluster.Kubelet {
		return state.KubeletService.Image
	}

	return state.StaticPods[string(component)].Image
}

// claims writes an annotation.
func (h hand) claims(ctx context.Context, key, value string) {
	h.must(h.Annotate(ctx, map[string]string{key: value}))
}

// reapply applies the configuration that a node has.
func (h hand) reapply(ctx context.Context, node string) error {
	state := h.rig.State(node)
	_, err := h.rig.World().ApplyConfig(ctx, node, state.Config, model.ApplyNoReboot, false)

	return err
}

// sayings are all sentences that the checker can say, as its sources have them,
// and what has been heard of it.
type sayings struct {
	invariants []checker.Invariant
	// sentences are formats, parts of a sentence are texts that stand in one.
	sentences, parts []string

	mu         sync.Mutex
	violations []checker.Violation
}

// newSayings reads the sources of the checker.
func newSayings(t *testing.T) *sayings {
	t.Helper()

	made := &sayings{}
	files := token.NewFileSet()
	err := filepath.WalkDir(filepath.Join("..", "test", "sim", "checker"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}

		file, err := parser.ParseFile(files, path, nil, 0)
		if err == nil {
			ast.Inspect(file, made.learn)
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	if len(made.invariants) < 14 || len(made.sentences) < 40 || len(made.parts) < 10 {
		t.Fatalf("read %d invariants, %d sentences and %d parts of sentences from the checker; it has more",
			len(made.invariants), len(made.sentences), len(made.parts))
	}

	return made
}

// learn takes in one piece of a source.
func (s *sayings) learn(piece ast.Node) bool {
	switch piece := piece.(type) {
	case *ast.ValueSpec:
		if kind, is := piece.Type.(*ast.Ident); is && kind.Name == "Invariant" {
			for _, value := range piece.Values {
				s.invariants = append(s.invariants, checker.Invariant(strings.Join(texts(value), "")))
			}
		}
	case *ast.CallExpr:
		if called, is := piece.Fun.(*ast.SelectorExpr); is && called.Sel.Name == "violate" {
			s.sentences = append(s.sentences, texts(piece.Args[2])...)
		}
	case *ast.CompositeLit:
		if kind, is := piece.Type.(*ast.Ident); is && kind.Name == "hazard" {
			s.parts = append(s.parts, phrases(texts(piece))...)
		}
	case *ast.FuncDecl:
		// What its map makes of a fault ends such a sentence.
		if piece.Name.Name == "unsafeEffects" {
			s.parts = append(s.parts, phrases(texts(piece.Body))...)
		}
	}

	return true
}

// texts are the string literals in a piece of source.
func texts(piece ast.Node) []string {
	var found []string

	ast.Inspect(piece, func(part ast.Node) bool {
		literal, is := part.(*ast.BasicLit)
		if !is || literal.Kind != token.STRING {
			return true
		}

		if text, err := strconv.Unquote(literal.Value); err == nil {
			found = append(found, text)
		}

		return true
	})

	return found
}

// phrases are the texts of more than one word; keys and formats are none.
func phrases(texts []string) []string {
	return slices.DeleteFunc(texts, func(text string) bool {
		return !strings.Contains(strings.TrimSpace(text), " ") || strings.Contains(text, "%")
	})
}

// heard notes what the checker said.
func (s *sayings) heard(said []checker.Violation) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.violations = append(s.violations, said...)
}

// complete fails the test unless every invariant was seen to be broken, and every
// sentence was said.
func (s *sayings) complete(t *testing.T) {
	t.Helper()

	said := func(is func(checker.Violation) bool) bool { return slices.ContainsFunc(s.violations, is) }

	for _, invariant := range s.invariants {
		if !said(func(v checker.Violation) bool { return v.Invariant == invariant }) {
			t.Errorf("no planted bug breaks %s", invariant)
		}
	}

	for _, sentence := range s.sentences {
		pattern := patternOf(sentence)
		if !said(func(v checker.Violation) bool { return pattern.MatchString(v.What) }) {
			t.Errorf("no planted bug makes the checker say %q", sentence)
		}
	}

	for _, part := range s.parts {
		if !said(func(v checker.Violation) bool { return strings.Contains(v.What, part) }) {
			t.Errorf("no planted bug makes the checker say something with %q", part)
		}
	}

	if t.Failed() {
		return
	}

	t.Logf("%d invariants, %d sentences and %d parts of sentences of the checker, each said of a planted bug",
		len(s.invariants), len(s.sentences), len(s.parts))
}

// patternOf matches what a format may become.
func patternOf(format string) *regexp.Regexp {
	verb := regexp.MustCompile(`%[-+.0-9]*[a-z]`)
	parts := verb.Split(format, -1)

	for index, part := range parts {
		parts[index] = regexp.QuoteMeta(part)
	}

	return regexp.MustCompile("^" + strings.Join(parts, ".+") + "$")
}

// watched has an assertion look after engines with a bug, and returns what it says;
// empty when it holds.
func (r *rig) watched(bug planted, assertion func(*rig)) string {
	watching := &watcher{TB: r.T, bug: bug}
	over := make(chan struct{})

	// A fatal failure ends the goroutine.
	go func() {
		defer close(over)

		assertion(&rig{&harness.Rig{Cluster: r.Cluster, T: watching, Judge: r.Judge}})
	}()

	<-over

	return watching.said()
}

// Worker connects an engine, with a bug where a test watches what comes of it.
func (r *rig) Worker(run string) *worker {
	if watching, is := r.T.(*watcher); is {
		return r.lying(run, watching.bug)
	}

	return r.Rig.Worker(run)
}

// watcher is a test whose failures are no failures of the test.
type watcher struct {
	testing.TB

	bug planted

	mu    sync.Mutex
	lines []string
}

func (w *watcher) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return strings.Join(w.lines, "\n")
}

func (w *watcher) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.lines = append(w.lines, text)
}

func (w *watcher) FailNow()                          { runtime.Goexit() }
func (w *watcher) Helper()                           {}
func (w *watcher) Failed() bool                      { return w.said() != "" }
func (w *watcher) Error(args ...any)                 { w.note(fmt.Sprint(args...)) }
func (w *watcher) Errorf(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }

func (w *watcher) Fatal(args ...any) {
	w.note(fmt.Sprint(args...))
	w.FailNow()
}

func (w *watcher) Fatalf(format string, args ...any) { w.Fatal(fmt.Sprintf(format, args...)) }
