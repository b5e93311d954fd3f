// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// requestTimeout bounds each request of this package.
	requestTimeout = 15 * time.Second
	// workers is how many objects are reconciled at a time.
	workers = 8
	// retryLowest and retryHighest bound the pause before a failed reconcile is tried again. They are real time,
	// because the failures are real ones.
	retryLowest, retryHighest = 5 * time.Millisecond, time.Second
)

// kind is the kind of a key.
type kind string

const (
	kindNode  kind = "node"
	kindPod   kind = "pod"
	kindProxy kind = "kube-proxy"
	kindBlock kind = "block"
	// The kinds of kube-controller-manager.
	kindDaemonSet  kind = "DaemonSet"
	kindDeployment kind = "Deployment"

	indexNodeName = "spec.nodeName"
)

// key is one thing that is reconciled.
type key struct {
	kind            kind
	namespace, name string
}

// play is everything that the simulator does as a part of Kubernetes: the kubelets, the scheduler, the node
// controller, and the Talos of a control plane. Each of them acts on the present state of a thing, so nothing
// depends on seeing each change.
type play struct {
	options Options
	client  *client
	ledger  *ledger

	nodes       watched[*corev1.Node]
	pods        watched[*corev1.Pod]
	budgets     watched[*policyv1.PodDisruptionBudget]
	daemonSets  watched[*appsv1.DaemonSet]
	deployments watched[*appsv1.Deployment]

	queue  workqueue.TypedRateLimitingInterface[key]
	timers *timers

	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mutex sync.Mutex
	// registered holds, by node, the boot in which its kubelet created or found the Node object.
	registered map[string]string
	// assumed holds, by UID, the nodes of pods that were bound but that the cache still shows unbound.
	assumed map[string]string
	// proxies holds, by node, the container of kube-proxy that the world knows of.
	proxies map[string]string
	// founded is true once the machines may create their manifests. rendered holds, by control plane, the
	// configuration that it did so from, and workloads the workloads among the manifests.
	founded   bool
	rendered  map[string]string
	workloads map[key]bool
}

func newPlay(options Options, client *client, ledger *ledger) *play {
	// Simulated time passes only between Start and Stop, so the life of the loops is that of the server and not of
	// a caller's context. Its requests must not log: requests that end with it would, and nobody needs to know.
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))

	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryLowest, retryHighest))

	core, apps := client.CoreV1().RESTClient(), client.AppsV1().RESTClient()

	return &play{
		options: options, client: client, ledger: ledger,
		nodes:       watching(core, "nodes", &corev1.Node{}, nil),
		pods:        watching(core, "pods", &corev1.Pod{}, cache.Indexers{indexNodeName: nodeOf}),
		budgets:     watching(client.PolicyV1().RESTClient(), "poddisruptionbudgets", &policyv1.PodDisruptionBudget{}, nil),
		daemonSets:  watching(apps, "daemonsets", &appsv1.DaemonSet{}, nil),
		deployments: watching(apps, "deployments", &appsv1.Deployment{}, nil),
		queue:       queue,
		timers:      newTimers(ctx, options.Clock, queue),
		ctx:         ctx, cancel: cancel,
		registered: map[string]string{},
		assumed:    map[string]string{},
		proxies:    map[string]string{},
		rendered:   map[string]string{},
		workloads:  map[key]bool{},
	}
}

// start returns once each node is registered and all workloads are ready.
func (p *play) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	if err := p.listen(ctx); err != nil {
		return err
	}

	if err := p.foundation(ctx); err != nil {
		return err
	}

	for range workers {
		p.wait.Go(p.work)
	}

	for _, machine := range p.options.World.Machines() {
		p.changed(machine.Name)
	}

	p.wait.Go(p.heartbeat)

	// All nodes come before the first workload, which would otherwise gather on a few.
	if err := settled(ctx, p.unsettledNodes); err != nil {
		return err
	}

	p.found()

	if err := p.deploy(ctx); err != nil {
		return err
	}

	return settled(ctx, p.unsettled)
}

// now returns the time of the stamps that kubelets and controllers set, which have only seconds.
func (p *play) now() metav1.Time { return metav1.NewTime(p.options.Stamp().Truncate(time.Second)) }

func (p *play) stop() {
	p.cancel()
	p.queue.ShutDown()
	p.timers.stop()
	p.wait.Wait()
}

// listen fills the caches and makes later changes be handled.
func (p *play) listen(ctx context.Context) error {
	if err := errors.Join(
		p.daemonSets.handle(func(*appsv1.DaemonSet) {}, p.daemonsGone),
		p.pods.handle(p.podSeen, p.podGone),
		p.nodes.handle(p.nodeSeen, p.nodeSeen),
		p.budgets.handle(p.budgetSeen, func(object *policyv1.PodDisruptionBudget) { p.ledger.budgets.remove(object) }),
	); err != nil {
		return err
	}

	all := []cache.SharedIndexInformer{
		p.nodes.informer, p.pods.informer, p.budgets.informer, p.daemonSets.informer, p.deployments.informer,
	}
	synced := make([]cache.DoneChecker, 0, len(all))

	for _, informer := range all {
		p.wait.Go(func() { informer.RunWithContext(p.ctx) })
		synced = append(synced, informer.HasSyncedChecker())
	}

	if !cache.WaitFor(ctx, "", synced...) {
		return fmt.Errorf("watching the cluster: %w", ctx.Err())
	}

	return nil
}

func nodeOf(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}

	return []string{pod.Spec.NodeName}, nil
}

// changed queues everything that depends on a machine.
func (p *play) changed(node string) {
	if node == "" {
		for _, machine := range p.options.World.Machines() {
			p.changed(machine.Name)
		}

		return
	}

	p.queue.Add(key{kind: kindNode, name: node})
	p.queue.Add(key{kind: kindBlock, name: node})
}

func (p *play) budgetSeen(budget *policyv1.PodDisruptionBudget) {
	p.ledger.budgets.observe(budget)

	if node := budget.Labels[labelBlocked]; node != "" {
		p.queue.Add(key{kind: kindBlock, name: node})
	}
}

// work reconciles one thing after the other until the queue ends.
func (p *play) work() {
	for {
		next, ended := p.queue.Get()
		if ended {
			return
		}

		if err := p.reconcile(next); err != nil && p.ctx.Err() == nil {
			p.queue.AddRateLimited(next)
		} else {
			p.queue.Forget(next)
		}

		p.queue.Done(next)
	}
}

func (p *play) reconcile(next key) error {
	ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
	defer cancel()

	switch next.kind {
	case kindNode:
		return p.reconcileNode(ctx, next)
	case kindPod:
		return p.reconcilePod(ctx, next)
	case kindProxy:
		p.reconcileProxy(next)

		return nil
	case kindBlock:
		return p.reconcileBlock(ctx, next.name)
	default:
		return nil
	}
}

// timers are delays in simulated time after which a key is reconciled again.
type timers struct {
	ctx   context.Context
	clock Clock
	queue workqueue.TypedRateLimitingInterface[key]
	wait  sync.WaitGroup

	mutex sync.Mutex
	ended bool
	set   map[key]map[string]*timer
}

type timer struct {
	fired  bool
	cancel context.CancelFunc
}

func newTimers(ctx context.Context, clock Clock, queue workqueue.TypedRateLimitingInterface[key]) *timers {
	return &timers{ctx: ctx, clock: clock, queue: queue, set: map[key]map[string]*timer{}}
}

// due reports whether d has passed since it was first called for this key and purpose. If not, the key is
// reconciled again once it has.
func (t *timers) due(k key, purpose string, d time.Duration) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if known := t.set[k][purpose]; known != nil {
		return known.fired
	}

	if t.ended {
		return false
	}

	if t.set[k] == nil {
		t.set[k] = map[string]*timer{}
	}

	ctx, cancel := context.WithCancel(t.ctx)
	started := &timer{cancel: cancel}
	t.set[k][purpose] = started

	t.wait.Go(func() {
		defer cancel()

		if t.clock.Sleep(ctx, d) != nil {
			return
		}

		t.mutex.Lock()
		started.fired = true
		t.mutex.Unlock()

		t.queue.Add(k)
	})

	return false
}

// forget drops the timers of a key: those for the purposes, or all if none is given.
func (t *timers) forget(k key, purposes ...string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if len(purposes) == 0 {
		for _, known := range t.set[k] {
			known.cancel()
		}

		delete(t.set, k)

		return
	}

	for _, purpose := range purposes {
		if known := t.set[k][purpose]; known != nil {
			known.cancel()
			delete(t.set[k], purpose)
		}
	}
}

// stop returns once no timer runs any more; the context must have ended.
func (t *timers) stop() {
	t.mutex.Lock()
	t.ended = true
	t.mutex.Unlock()

	t.wait.Wait()
}

// spread returns a duration between low and high that depends only on the seed and on its purpose.
func spread(seed uint64, what string, low, high time.Duration) time.Duration {
	hash := fnv.New64a()
	// Writing to a hash does not fail.
	_, _ = fmt.Fprintf(hash, "%d/%s", seed, what)

	return low + time.Duration(hash.Sum64()%uint64(high-low))
}
