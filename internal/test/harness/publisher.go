// SPDX-License-Identifier: MPL-2.0

package harness

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// Publisher writes the claims among the annotations as the real publisher does: what an event says, as soon as the
// API server accepts it.
type Publisher struct {
	client *ports.Client
	// Lie changes what is claimed; nil if it is not changed.
	Lie func(map[string]string)

	mu      sync.Mutex
	pending map[string]string
}

// Observe implements [cluster.Observer].
func (p *Publisher) Observe(event cluster.Event) {
	if event.Kind == cluster.EventPlanned {
		// There is no lease yet under which anything could be written.
		return
	}

	claims := map[string]string{}

	if event.Talos.Managed {
		claim(claims, "talos", event, event.Talos, event.Component == "")
	}

	if event.Kubernetes.Managed {
		claim(claims, "kubernetes", event, event.Kubernetes, event.Component != "" || event.Talos.Steps == 0)
	}

	if event.Kind == cluster.EventRollingBack {
		claims["talos-status"] = "rolling-back"
	}

	if event.Kind == cluster.EventRolledBack {
		claims["talos-status"], claims["talos-current"] = "idle", event.Talos.Lowest.String()
		if event.Err != nil {
			claims["talos-status"] = "failed"
		}
	}

	p.claim(claims)
}

// Announces implements [cluster.Announcer].
func (p *Publisher) Announces(_ context.Context, event cluster.Event) bool {
	claims := map[string]string{}

	if event.Talos.Managed {
		claim(claims, "talos", event, event.Talos, true)
	}

	if event.Kubernetes.Managed {
		claim(claims, "kubernetes", event, event.Kubernetes, true)
	}

	said := p.client.Annotations()

	for key, value := range claims {
		if said[key] != "" && said[key] != value {
			return true
		}
	}

	return false
}

// claim adds what an event says about one half. present is true if the half is being worked on, which is the half
// that fails.
func claim(claims map[string]string, half string, event cluster.Event, at cluster.Progress, present bool) {
	status := ""

	switch {
	case at.Steps == 0 && at.Complete():
		status = "completed"
	case event.Kind == cluster.EventRunDone:
		status = "pending"
	case event.Kind == cluster.EventRunFailed && present:
		status = "failed"
	case event.Kind == cluster.EventRunStarted, event.Kind == cluster.EventNodeStarted, event.Kind == cluster.EventNodeDone:
		status = "in-progress"
	}

	if half == "kubernetes" && status == "in-progress" && event.Talos.Steps > 0 {
		status = "blocked"
	}

	if status != "" {
		claims[half+"-status"] = status
	}

	if at.Total > 0 {
		claims[half+"-progress"] = fmt.Sprintf("%d/%d", at.Done, at.Total)
	}

	if !at.Lowest.IsZero() {
		claims[half+"-current"] = at.Lowest.String()
	}
}

func (p *Publisher) claim(claims map[string]string) {
	if p.Lie != nil {
		p.Lie(claims)
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if p.pending == nil {
		p.pending = map[string]string{}
	}

	maps.Copy(p.pending, claims)
	p.send()
}

// send tries once to write what is pending, and reports whether nothing is pending any more.
func (p *Publisher) send() bool {
	if len(p.pending) > 0 && p.client.Annotate(context.Background(), p.pending) == nil {
		clear(p.pending)
	}

	return len(p.pending) == 0
}

// Flush implements [cluster.Flusher].
func (p *Publisher) Flush(ctx context.Context) {
	for ctx.Err() == nil {
		p.mu.Lock()
		done := p.send()
		p.mu.Unlock()

		if done {
			return
		}

		timer := time.NewTimer(again)

		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

// again is the pause before the next attempt to write.
const again = 997 * time.Millisecond

// Finish tries for a while to write what is still pending.
func (p *Publisher) Finish() {
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(time.Second) {
		p.mu.Lock()
		done := p.send()
		p.mu.Unlock()

		if done {
			return
		}
	}
}
