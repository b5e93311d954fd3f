// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/ports"
)

// publisher writes annotations the way the real one does, as far as claims are
// concerned: what an event says, as soon as the API server takes it.
type publisher struct {
	client *ports.Client
	// lie changes what is claimed.
	lie func(map[string]string)

	mu      sync.Mutex
	pending map[string]string
}

// Observe implements [cluster.Observer].
func (p *publisher) Observe(event cluster.Event) {
	if event.Target.Talos.IsZero() {
		return
	}

	claims := map[string]string{}

	switch event.Kind {
	case cluster.EventRunStarted, cluster.EventNodeStarted, cluster.EventNodeDone:
		claims["talos-status"] = "in-progress"
	case cluster.EventRunDone:
		claims["talos-status"] = "completed"
	case cluster.EventRunFailed:
		claims["talos-status"] = "failed"
	default:
		return
	}

	if event.Total > 0 {
		claims["talos-progress"] = fmt.Sprintf("%d/%d", event.Done, event.Total)
	}

	if !event.Lowest.IsZero() {
		claims["talos-current"] = event.Lowest.String()
	}

	p.claim(claims)
}

func (p *publisher) claim(claims map[string]string) {
	if p.lie != nil {
		p.lie(claims)
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if p.pending == nil {
		p.pending = map[string]string{}
	}

	maps.Copy(p.pending, claims)
	p.send()
}

// send is one attempt to write what is pending.
func (p *publisher) send() bool {
	if len(p.pending) > 0 && p.client.Annotate(context.Background(), p.pending) == nil {
		clear(p.pending)
	}

	return len(p.pending) == 0
}

// finish repeats the last word for a while.
func (p *publisher) finish() {
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(time.Second) {
		p.mu.Lock()
		done := p.send()
		p.mu.Unlock()

		if done {
			return
		}
	}
}
