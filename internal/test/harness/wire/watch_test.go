// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
)

// following counts how often a run looks at nodes that it follows.
type following struct {
	*kubeapi.Client

	looks atomic.Int64
}

func (f *following) NodesNow(ctx context.Context, claim string) ([]cluster.KubeNode, error) {
	f.looks.Add(1)

	return f.Client.NodesNow(ctx, claim)
}

// weather calls strike at an interval until the returned function is called.
func weather(every time.Duration, strike func()) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())

	var work sync.WaitGroup

	work.Go(func() {
		for tick := time.NewTicker(every); ; strike() {
			select {
			case <-ctx.Done():
				tick.Stop()

				return
			case <-tick.C:
			}
		}
	})

	return func() {
		cancel()
		work.Wait()
	}
}

// TestWatch_NodesAreFollowedInAnyWeather upgrades with observations from a watch. The checker wants none to be older
// than the last step.
func TestWatch_NodesAreFollowedInAnyWeather(t *testing.T) {
	for name, strike := range map[string]func(r *rig) func(){
		"fine": func(*rig) func() { return func() {} },
		"a watch that stands still": func(r *rig) func() {
			still := false

			return func() {
				still = !still
				r.StallWatches(still)
			}
		},
		"a watch that breaks": func(r *rig) func() { return r.BreakWatches },
		"410 Gone":            func(r *rig) func() { return r.ForgetVersions },
		"429 with Retry-After": func(r *rig) func() {
			return func() {
				r.busy.Store(!r.busy.Load())
				r.BreakWatches()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tested := lifecycleHop()

			inBubble(t, name, tested.given, func(r *rig) {
				var followed *following

				p := r.startOver("run-1", r.talosconfig, func(p *process) cluster.Kubernetes {
					followed = &following{Client: p.kube}

					return followed
				})

				end := weather(17*time.Second+11*time.Millisecond, strike(r))

				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()

				_, err := p.Upgrade(ctx, tested.request)
				if err != nil {
					r.T.Fatalf("%v\n%s", err, r.Judge.Text())
				}

				end()
				r.StallWatches(false)
				r.busy.Store(false)

				looks, lists, watches := followed.looks.Load(), r.lists.Load(), r.watches.Load()
				r.T.Logf("%d looks, %d lists, %d watches", looks, lists, watches)

				if name == "fine" && (looks < 20 || lists > 20) || watches == 0 {
					r.T.Errorf("%d looks cost %d lists and %d watches", looks, lists, watches)
				}

				if err := p.close(); err != nil {
					r.T.Error(err)
				}

				r.disconnected(p)
				r.converged(tested.request)
			})
		})
	}
}

// believing follows the nodes without a claim: it takes what it knows for current.
type believing struct {
	*kubeapi.Client

	mu    sync.Mutex
	known []cluster.KubeNode
	// changed is true if the watch has reported a change since the last list.
	changed bool
	// marked is when the last bookmark came. If toMark is true, what is known is believed only if a bookmark came
	// lately.
	marked time.Time
	toMark bool
}

func (b *believing) follow(ctx context.Context, nodes kubernetes.Interface) error {
	events, err := nodes.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer events.Stop()

	for event := range events.ResultChan() {
		switch event.Type {
		case watch.Bookmark:
			b.mu.Lock()
			b.marked = time.Now()
			b.mu.Unlock()
		case watch.Error:
			// The list after an error is what this client leaves out.
			return nil
		default:
			if _, ok := event.Object.(*corev1.Node); ok {
				b.mu.Lock()
				b.changed = true
				b.mu.Unlock()
			}
		}
	}

	return nil
}

func (b *believing) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.known == nil || b.changed || b.toMark && time.Since(b.marked) > 2*time.Minute {
		listed, err := b.Client.Nodes(ctx)
		if err != nil {
			return nil, err
		}

		b.known, b.changed = listed, false
	}

	return slices.Clone(b.known), nil
}

func (b *believing) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return b.Nodes(ctx)
}

// TestWatch_CheckerSeesOneThatIsBelieved plants clients that take what a watch has reported so far for the current
// state.
func TestWatch_CheckerSeesOneThatIsBelieved(t *testing.T) {
	for name, planted := range map[string]struct {
		strike func(r *rig)
		toMark bool
	}{
		"a watch that stands still":     {strike: func(r *rig) { r.StallWatches(true) }},
		"a bookmark is taken for proof": {strike: func(r *rig) { r.StallWatches(true) }, toMark: true},
		"a relist that is dropped":      {strike: func(r *rig) { r.ForgetVersions() }},
	} {
		t.Run(name, func(t *testing.T) {
			tested := lifecycleHop()

			inBubble(t, name, tested.given, func(r *rig) {
				var believed *believing

				p := r.startOver("run-1", r.talosconfig, func(p *process) cluster.Kubernetes {
					believed = &believing{Client: p.kube, toMark: planted.toMark}

					return believed
				})

				plain, err := kubernetes.NewForConfigAndClient(p.kube.Config(), p.kube.HTTPClient())
				if err != nil {
					r.T.Fatal(err)
				}

				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()

				var work sync.WaitGroup
				defer work.Wait()
				work.Go(func() {
					if err := believed.follow(ctx, plain); err != nil {
						r.T.Error(err)
					}
				})

				// By then the watch has reported that it is cordoned.
				r.tap.takeAim(aim{
					process: p.name, point: first(methodInstall, "worker-0"), variant: meddled, within: inFlight, meddle: func() { planted.strike(r) },
				})

				// The result of the run does not matter.
				_, err = p.Upgrade(ctx, tested.request)
				r.T.Log(err)
				cancel()

				if broken := r.Judge.Verdict().Broken(); !slices.Contains(broken, checker.S3) {
					r.T.Errorf("the checker found %v, want %s among them", broken, checker.S3)
				}

				if err := p.close(); err != nil {
					r.T.Error(err)
				}
			})
		})
	}
}
