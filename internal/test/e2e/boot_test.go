// SPDX-License-Identifier: MPL-2.0

package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

const (
	// watchLag is how far behind a watch may be: a Kubernetes client waits up to half a minute between two attempts.
	watchLag  = time.Minute
	watchPoll = 100 * time.Millisecond
)

// boots records each boot of each machine, as its kubelet reports it. A boot that ends before its kubelet has
// reported it is not recorded.
type boots struct {
	mutex sync.Mutex
	ids   map[string][]string
}

// watchBoots records boots until the test ends. When it returns, each node has its current one.
func watchBoots(t *testing.T, c *target) *boots {
	t.Helper()

	noted := &boots{ids: map[string][]string{}}
	stop := make(chan struct{})
	factory := informers.NewSharedInformerFactory(c.plain, 0)
	informer := factory.Core().V1().Nodes().Informer()

	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    noted.note,
		UpdateFunc: func(_, now any) { noted.note(now) },
	})
	if err != nil {
		t.Fatal(err)
	}

	factory.Start(stop)
	t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})

	if !cache.WaitForCacheSync(t.Context().Done(), handler.HasSynced) {
		t.Fatal("the nodes could not be watched")
	}

	return noted
}

func (b *boots) note(object any) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return
	}

	b.mutex.Lock()
	defer b.mutex.Unlock()

	if seen := b.ids[node.Name]; !slices.Contains(seen, node.Status.NodeInfo.BootID) {
		b.ids[node.Name] = append(seen, node.Status.NodeInfo.BootID)
	}
}

// of returns the boots of a node, in order.
func (b *boots) of(node string) []string {
	b.mutex.Lock()
	defer b.mutex.Unlock()

	return slices.Clone(b.ids[node])
}

// until returns the boots of a node once the last of them is the given one: a watch that lost its API server is some
// seconds behind.
func (b *boots) until(ctx context.Context, node, last string) []string {
	ctx, cancel := context.WithTimeout(ctx, watchLag)
	defer cancel()

	ticker := time.NewTicker(watchPoll)
	defer ticker.Stop()

	for {
		seen := b.of(node)
		if len(seen) > 0 && seen[len(seen)-1] == last {
			return seen
		}

		select {
		case <-ctx.Done():
			return seen
		case <-ticker.C:
		}
	}
}
